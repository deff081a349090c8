//! Why a live process could not be looked at: one sentence with its cause and the next thing to try.
//!
//! In: facts that /proc gives about lockscope and the target. Out: [`AttachError`]. The explanation is a pure
//! function of those facts, so that rules which this machine's kernel lacks (Yama) are tested too.

use std::fs;
use std::path::Path;

/// Why a look at a live process failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Nothing has this id.
    #[error("there is no process {0}: it may have ended; `ps -e` lists what runs")]
    NoSuchProcess(i32),
    /// A thread of the kernel.
    #[error("{pid} ({name}) is a kernel thread: it has no user stack and no memory to look at")]
    KernelThread {
        /// Process id.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// Not an x86-64 program.
    #[error("process {pid} runs a program that is not 64-bit x86 ({what}): lockscope reads x86-64 processes only")]
    WrongArchitecture {
        /// Process id.
        pid: i32,
        /// What it is.
        what: String,
    },
    /// Another tracer has it.
    #[error(
        "process {pid} is already traced by {tracer} (pid {tracer_pid}), and Linux allows one tracer: detach that one, or ask it for the stacks"
    )]
    AlreadyTraced {
        /// Process id.
        pid: i32,
        /// Name of the tracer.
        tracer: String,
        /// Its process id.
        tracer_pid: i32,
    },
    /// The kernel refused.
    #[error("may not look at process {pid}: {why}")]
    Denied {
        /// Process id.
        pid: i32,
        /// The rule that was met and what to do about it.
        why: String,
    },
    /// It ended while being looked at.
    #[error("process {0} ended during the look")]
    Ended(i32),
    /// It kept replacing itself by exec.
    #[error("process {0} called exec during each of several looks: try again when it has settled")]
    KeepsExecuting(i32),
    /// lockscope itself.
    #[error("process {0} is lockscope itself: a tracer cannot trace itself")]
    Itself(i32),
    /// Anything else, with what was tried.
    #[error("{action} of process {pid} failed: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Process id.
        pid: i32,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// What decides whether ptrace is allowed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Permission {
    /// Our effective user id and the target's real one.
    pub(crate) own_uid: Option<u32>,
    pub(crate) target_uid: Option<u32>,
    /// Whether CAP_SYS_PTRACE is among our effective capabilities.
    pub(crate) can_ptrace: bool,
    /// `kernel.yama.ptrace_scope`, where the kernel has Yama.
    pub(crate) yama_scope: Option<u8>,
    /// Our seccomp mode.
    pub(crate) seccomp: u8,
}

const CAP_SYS_PTRACE: u64 = 1 << 19;

impl Permission {
    /// Read the facts below `proc_root`.
    pub(crate) fn read(proc_root: &Path, pid: i32) -> Permission {
        let own = fs::read_to_string(proc_root.join("self/status")).unwrap_or_default();
        let target = fs::read_to_string(proc_root.join(pid.to_string()).join("status")).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':').map(|v| v.trim().to_string()))
        };
        let uid = |text: &str, column: usize| field(text, "Uid")?.split_whitespace().nth(column)?.parse().ok();
        Permission {
            own_uid: uid(&own, 1),
            target_uid: uid(&target, 0),
            can_ptrace: field(&own, "CapEff")
                .and_then(|v| u64::from_str_radix(&v, 16).ok())
                .is_some_and(|caps| caps & CAP_SYS_PTRACE != 0),
            yama_scope: fs::read_to_string(proc_root.join("sys/kernel/yama/ptrace_scope"))
                .ok()
                .and_then(|v| v.trim().parse().ok()),
            seccomp: field(&own, "Seccomp").and_then(|v| v.parse().ok()).unwrap_or(0),
        }
    }

    /// The rule that most likely refused, and what to do.
    pub(crate) fn explain(&self) -> String {
        if self.yama_scope == Some(3) {
            return "Yama's ptrace_scope is 3, which forbids tracing until the next boot, to root too".into();
        }
        if self.can_ptrace {
            if self.seccomp != 0 {
                return "a seccomp filter forbids ptrace here although CAP_SYS_PTRACE is held: start the container \
                        with --security-opt seccomp=unconfined or a profile that allows ptrace"
                    .into();
            }
            return "the kernel refused although CAP_SYS_PTRACE is held; a security module or a user namespace of \
                    the target is in the way: try from the host's initial namespace"
                .into();
        }
        if let (Some(own), Some(target)) = (self.own_uid, self.target_uid)
            && own != target
        {
            return format!(
                "it belongs to uid {target}, lockscope runs as uid {own} without CAP_SYS_PTRACE: use sudo, or the \
                     target's own user"
            );
        }
        match self.yama_scope {
            Some(1) => "Yama's ptrace_scope is 1, which allows tracing of own children only: use sudo, or \
                        `sudo sysctl kernel.yama.ptrace_scope=0`"
                .into(),
            Some(2) => "Yama's ptrace_scope is 2, which asks for CAP_SYS_PTRACE: use sudo".into(),
            _ if self.seccomp != 0 => "a seccomp filter (a container's default profile) forbids ptrace: start the \
                                       container with --cap-add SYS_PTRACE"
                .into(),
            _ => "the process is not dumpable (it changed its user or has prctl(PR_SET_DUMPABLE, 0)), and \
                  CAP_SYS_PTRACE is missing: use sudo, or in a container --cap-add SYS_PTRACE"
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proc_root(yama: Option<&str>, own: &str, target: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("self")).unwrap();
        fs::create_dir_all(root.path().join("77")).unwrap();
        fs::write(root.path().join("self/status"), own).unwrap();
        fs::write(root.path().join("77/status"), target).unwrap();
        if let Some(scope) = yama {
            fs::create_dir_all(root.path().join("sys/kernel/yama")).unwrap();
            fs::write(root.path().join("sys/kernel/yama/ptrace_scope"), scope).unwrap();
        }
        root
    }

    #[test]
    fn each_rule_is_named() {
        let plain = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t0\n";
        let filtered = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t2\n";
        let root = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        let target = "Uid:\t1000\t1000\t1000\t1000\n";
        let other = "Uid:\t33\t33\t33\t33\n";
        for (yama, own, target, word) in [
            (Some("1\n"), plain, target, "ptrace_scope is 1"),
            (Some("2\n"), plain, target, "ptrace_scope is 2"),
            (Some("3\n"), root, target, "ptrace_scope is 3"),
            (None, plain, other, "belongs to uid 33"),
            (Some("0\n"), plain, target, "not dumpable"),
            (None, filtered, target, "seccomp"),
            (None, root, target, "although CAP_SYS_PTRACE"),
        ] {
            let root = proc_root(yama, own, target);
            let text = Permission::read(root.path(), 77).explain();
            assert!(text.contains(word), "{yama:?}: {text}");
        }
    }
}

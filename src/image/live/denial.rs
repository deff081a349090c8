//! Which rule of the kernel keeps lockscope from a process.
//!
//! In: /proc's word on both processes. Out: [`DenialFacts`], and the sentence that explains them. Nothing is touched.

use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::proc_fs::{self, ProcFs};

/// The facts that decide whether one process may trace another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DenialFacts {
    /// Effective user of the target.
    pub(super) target_uid: Option<u32>,
    /// Owner of the target's memory in /proc: not its user if it is not dumpable. The directory is always its user's
    /// (task_dump_owner in the kernel's fs/proc/base.c).
    pub(super) memory_uid: Option<u32>,
    /// lockscope's effective user.
    pub(super) own_uid: Option<u32>,
    /// Whether lockscope has CAP_SYS_PTRACE.
    pub(super) capable: bool,
    /// Yama's scope.
    pub(super) yama_scope: Option<i32>,
    /// Whether the target has capabilities that lockscope lacks.
    pub(super) exceeded: bool,
    /// Whether a seccomp filter keeps lockscope from ptrace.
    pub(super) filtered: bool,
}

impl DenialFacts {
    /// Read them from /proc.
    pub(super) fn read(proc_fs: &ProcFs, pid: i32) -> Self {
        const CAP_SYS_PTRACE: u64 = 1 << 19;
        let own = proc_fs::status(&proc_fs.root().join("self")).unwrap_or_default();
        let directory = proc_fs.process(pid);
        let target = proc_fs::status(&directory).unwrap_or_default();
        let permitted = |status: proc_fs::Status| status.permitted_capabilities.unwrap_or(0);
        DenialFacts {
            target_uid: target.effective_uid,
            memory_uid: std::fs::metadata(directory.join("mem")).ok().map(|metadata| metadata.uid()),
            own_uid: own.effective_uid,
            capable: own.effective_capabilities.is_some_and(|set| set & CAP_SYS_PTRACE != 0),
            yama_scope: proc_fs.yama_scope(),
            exceeded: permitted(target) & !permitted(own) != 0,
            filtered: own.seccomp.is_some_and(|mode| mode != 0) && is_filtered(),
        }
    }
}

/// Whether a filter forbids ptrace itself: for a process that it does not trace, the kernel returns ESRCH.
pub(super) fn is_filtered() -> bool {
    matches!(nix::sys::ptrace::interrupt(Pid::this()), Err(Errno::EPERM | Errno::ENOSYS))
}

/// The rule that was met, the strongest first, and the next step.
pub(super) fn explain_denied(facts: &DenialFacts) -> String {
    let other_user = matches!((facts.target_uid, facts.own_uid), (Some(target), Some(own)) if target != own);
    let not_dumpable = matches!((facts.target_uid, facts.memory_uid), (Some(user), Some(owner)) if user != owner);
    if facts.yama_scope == Some(3) {
        return "Yama's scope is 3 (kernel.yama.ptrace_scope), so that no process may attach to another until the next \
                boot, not even as root; have a core file written instead (kill -ABRT) and look at that"
            .to_owned();
    }
    if facts.capable {
        if facts.filtered {
            return "a seccomp filter, most likely a container's, refuses ptrace; start lockscope's container with \
                    --security-opt seccomp=unconfined, or run lockscope on the host as root"
                .to_owned();
        }
        return "lockscope has CAP_SYS_PTRACE, so that a security module (AppArmor, SELinux; see `dmesg`) or another \
                user namespace stands in between; run lockscope on the host as root"
            .to_owned();
    }
    if facts.filtered {
        // Docker's and containerd's profiles for kernels before 4.8 allow it with the capability.
        return "a seccomp filter, most likely a container's, refuses ptrace; start lockscope's container with \
                --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined, or run lockscope on the host as root"
            .to_owned();
    }
    // Root without the capability is root of a container, where sudo gives nothing.
    let contained = facts.own_uid == Some(0);
    let privileged = if contained {
        "start lockscope's container with --cap-add=SYS_PTRACE (`kubectl debug` with --profile=general), or run lockscope \
         on the host as root"
    } else {
        "run lockscope with sudo, or in a container with --cap-add=SYS_PTRACE"
    };
    if other_user {
        let (target, own) = (facts.target_uid.unwrap_or(0), facts.own_uid.unwrap_or(0));
        let how = match contained {
            true => format!("run lockscope as that user (`docker exec --user {target}`), or {privileged}"),
            false => "run lockscope as that user or with sudo, or in a container with --cap-add=SYS_PTRACE".to_owned(),
        };
        return format!(
            "the process belongs to user {target}, lockscope runs as user {own} and has no CAP_SYS_PTRACE; {how}"
        );
    }
    if facts.yama_scope == Some(2) {
        return format!(
            "Yama's scope is 2 (kernel.yama.ptrace_scope), so that only processes with CAP_SYS_PTRACE may attach; \
             {privileged}"
        );
    }
    if facts.exceeded {
        return format!(
            "the process has capabilities that lockscope lacks (CapPrm in /proc/PID/status), and lockscope has no \
             CAP_SYS_PTRACE; {privileged}"
        );
    }
    if not_dumpable {
        return format!(
            "the process is not dumpable (a set-user-id program, one with file capabilities, or one that asked for it by \
             PR_SET_DUMPABLE); {privileged}"
        );
    }
    if facts.yama_scope == Some(1) {
        return format!(
            "Yama's scope is 1 (kernel.yama.ptrace_scope), so that without CAP_SYS_PTRACE only an ancestor may attach; \
             start the program by `lockscope run`, allow it until reboot with `sudo sysctl \
             kernel.yama.ptrace_scope=0`, or {privileged}"
        );
    }
    format!("no rule known to lockscope explains it and CAP_SYS_PTRACE is missing; {privileged}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(own: &str, target: &str, yama: Option<&str>) -> DenialFacts {
        let root = tempfile::tempdir().expect("temporary directory");
        for (directory, status) in [("self", own), ("12", target)] {
            std::fs::create_dir(root.path().join(directory)).expect("directory");
            std::fs::write(root.path().join(directory).join("status"), status).expect("status");
        }
        if let Some(scope) = yama {
            std::fs::create_dir_all(root.path().join("sys/kernel/yama")).expect("directory");
            std::fs::write(root.path().join("sys/kernel/yama/ptrace_scope"), scope).expect("scope");
        }
        let mut facts = DenialFacts::read(&ProcFs::new(root.path()), 12);
        // The temporary directory belongs to the user who runs the test. The test leaves that user's own filter out.
        facts.memory_uid = facts.target_uid;
        facts.filtered = own.contains("Seccomp:\t2");
        facts
    }

    const USER: &str = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t0\n";
    const FILTERED: &str = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t2\n";
    const ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";
    const CONTAINED: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80c25fb\nSeccomp:\t2\n";
    const WITHOUT: &str = "Uid:\t0\t0\t0\t0\nCapPrm:\t00000000800405fb\nCapEff:\t00000000800405fb\nSeccomp:\t0\n";
    const MORE: &str = "Uid:\t0\t0\t0\t0\nCapPrm:\t00000000800415fb\nCapEff:\t00000000800415fb\nSeccomp:\t0\n";

    #[test]
    fn each_rule_has_its_sentence() {
        let said = |own, target, yama| explain_denied(&facts(own, target, yama));
        assert!(said(USER, USER, Some("1\n")).contains("scope is 1"));
        assert!(said(USER, USER, Some("2\n")).contains("scope is 2"));
        assert!(said(ROOT, USER, Some("3\n")).contains("scope is 3"));
        assert!(said(USER, ROOT, Some("1\n")).contains("belongs to user 0, lockscope runs as user 1000"));
        assert!(said(CONTAINED, ROOT, None).contains("seccomp=unconfined"));
        assert!(said(FILTERED, USER, Some("0")).contains("seccomp filter"));
        assert!(said(ROOT, ROOT, None).contains("security module"));
        assert!(said(USER, USER, None).contains("sudo"));
        assert!(said(WITHOUT, MORE, Some("1")).contains("has capabilities that lockscope lacks"));
        assert!(said(MORE, WITHOUT, None).contains("no rule known"));
    }

    #[test]
    fn root_of_a_container_is_not_sent_to_sudo() {
        for (target, yama) in [(USER, None), (MORE, None), (WITHOUT, None), (WITHOUT, Some("1")), (WITHOUT, Some("2"))]
        {
            let text = explain_denied(&facts(WITHOUT, target, yama));
            assert!(!text.contains("with sudo") && text.contains("--profile=general"), "{text}");
        }
        assert!(explain_denied(&facts(WITHOUT, USER, None)).contains("docker exec --user 1000"));
    }

    #[test]
    fn memory_of_root_means_not_dumpable() {
        let facts = DenialFacts { memory_uid: Some(0), ..facts(USER, USER, Some("1")) };
        assert!(explain_denied(&facts).contains("not dumpable"));
    }
}

//! What /proc says of a process and its threads, as text.
//!
//! In: a proc root (`/proc`, or a made-up one in tests) and ids. Out: plain values. It reads files only; nothing
//! here stops a thread. Files that vanish meanwhile are `None`: threads come and go.

use std::fs;
use std::path::{Path, PathBuf};

use procfs::FromRead;
use procfs::process::{MMPermissions, MMapPath, MemoryMaps, Stat, Status};

use crate::image::{Addr, Mapping, Syscall, TaskState};

/// Reads below one root.
#[derive(Debug, Clone)]
pub(crate) struct Proc {
    root: PathBuf,
}

/// Facts of one thread that are read before the stop.
#[derive(Debug, Clone)]
pub(crate) struct TaskFacts {
    pub(crate) name: String,
    pub(crate) state: TaskState,
    pub(crate) ns_tid: i32,
    pub(crate) ns_pid: i32,
    pub(crate) tracer: i32,
    pub(crate) switches: Option<(u64, u64)>,
    pub(crate) start_ticks: Option<u64>,
    pub(crate) kernel_thread: bool,
    pub(crate) parent: i32,
}

impl Proc {
    pub(crate) fn new(root: &Path) -> Proc {
        Proc { root: root.to_path_buf() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn directory(&self, pid: i32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    fn task(&self, pid: i32, tid: i32, file: &str) -> PathBuf {
        self.directory(pid).join("task").join(tid.to_string()).join(file)
    }

    /// Thread ids, in order.
    pub(crate) fn threads(&self, pid: i32) -> Vec<i32> {
        let mut tids: Vec<i32> = fs::read_dir(self.directory(pid).join("task"))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        tids.sort_unstable();
        tids
    }

    /// Status and stat of a thread.
    pub(crate) fn facts(&self, pid: i32, tid: i32) -> Option<TaskFacts> {
        let stat = Stat::from_read(fs::File::open(self.task(pid, tid, "stat")).ok()?).ok()?;
        let status = Status::from_read(fs::File::open(self.task(pid, tid, "status")).ok()?).ok()?;
        const PF_KTHREAD: u32 = 0x0020_0000; // include/linux/sched.h
        Some(TaskFacts {
            name: stat.comm,
            state: TaskState::from_letter(stat.state),
            ns_tid: status.nspid.as_ref().and_then(|l| l.last().copied()).unwrap_or(tid),
            ns_pid: status.nstgid.as_ref().and_then(|l| l.last().copied()).unwrap_or(pid),
            tracer: status.tracerpid,
            switches: status.voluntary_ctxt_switches.zip(status.nonvoluntary_ctxt_switches),
            start_ticks: Some(stat.starttime),
            kernel_thread: stat.flags & PF_KTHREAD != 0,
            parent: status.ppid,
        })
    }

    /// CPU time used by a thread, in nanoseconds (first word of schedstat).
    pub(crate) fn cpu_time(&self, pid: i32, tid: i32) -> Option<u64> {
        fs::read_to_string(self.task(pid, tid, "schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    }

    /// Time since boot in milliseconds, by the clock of start times.
    pub(crate) fn uptime_ms(&self) -> Option<u64> {
        let text = fs::read_to_string(self.root.join("uptime")).ok()?;
        let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        Some((seconds * 1e3) as u64)
    }

    /// The kernel function that a thread sleeps in.
    pub(crate) fn wchan(&self, pid: i32, tid: i32) -> Option<String> {
        let text = fs::read_to_string(self.task(pid, tid, "wchan")).ok()?;
        (!text.is_empty() && text != "0").then_some(text)
    }

    /// The system call of a sleeping thread: `nr a1..a6 sp pc`.
    pub(crate) fn syscall(&self, pid: i32, tid: i32) -> Option<Syscall> {
        parse_syscall(&fs::read_to_string(self.task(pid, tid, "syscall")).ok()?)
    }

    /// When a thread last ran, in milliseconds of the run queues' clock (`se.exec_start`). That clock is none of
    /// those that clock_gettime knows (5 s off here): compare it with [`Proc::now_ms`] only.
    pub(crate) fn last_ran_ms(&self, pid: i32, tid: i32) -> Option<f64> {
        exec_start(&fs::read_to_string(self.task(pid, tid, "sched")).ok()?)
    }

    /// Now by the same clock: the calling thread is running, so its own last run is now, to within a tick.
    pub(crate) fn now_ms(&self) -> Option<f64> {
        exec_start(&fs::read_to_string(self.root.join("thread-self/sched")).ok()?)
    }

    /// The address space's map. A zombie leader's own file is empty; that of any live thread serves as well.
    pub(crate) fn mappings(&self, pid: i32, tids: &[i32]) -> Vec<Mapping> {
        std::iter::once(self.directory(pid).join("maps"))
            .chain(tids.iter().take(64).map(|tid| self.task(pid, *tid, "maps")))
            .find_map(|path| {
                let maps = MemoryMaps::from_read(fs::File::open(path).ok()?).ok()?;
                let list: Vec<Mapping> = maps.into_iter().map(mapping).collect();
                (!list.is_empty()).then_some(list)
            })
            .unwrap_or_default()
    }

    /// A link such as `exe`, through a live thread where the leader is a zombie.
    pub(crate) fn link(&self, pid: i32, tids: &[i32], name: &str) -> Option<PathBuf> {
        std::iter::once(self.directory(pid).join(name))
            .chain(tids.iter().take(64).map(|tid| self.task(pid, *tid, name)))
            .find_map(|path| fs::read_link(path).ok())
    }

    /// The argument vector.
    pub(crate) fn cmdline(&self, pid: i32, tids: &[i32]) -> Vec<String> {
        std::iter::once(self.directory(pid).join("cmdline"))
            .chain(tids.iter().take(64).map(|tid| self.task(pid, *tid, "cmdline")))
            .filter_map(|path| fs::read(path).ok())
            .find(|bytes| !bytes.is_empty())
            .map(|bytes| {
                bytes
                    .strip_suffix(b"\0")
                    .unwrap_or(&bytes)
                    .split(|b| *b == 0)
                    .map(|part| String::from_utf8_lossy(part).into_owned())
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Name of a process.
    pub(crate) fn name(&self, pid: i32) -> Option<String> {
        fs::read_to_string(self.directory(pid).join("comm")).ok().map(|s| s.trim_end().to_string())
    }

    /// All descendants of `pid`, parents before children, at most `limit`.
    pub(crate) fn descendants(&self, pid: i32, limit: usize) -> Vec<i32> {
        let mut found = vec![pid];
        let mut next = 0;
        while next < found.len() && found.len() < limit {
            let parent = found[next];
            next += 1;
            for tid in self.threads(parent) {
                let text = fs::read_to_string(self.task(parent, tid, "children")).unwrap_or_default();
                for child in text.split_whitespace().filter_map(|c| c.parse().ok()) {
                    if !found.contains(&child) && found.len() < limit {
                        found.push(child);
                    }
                }
            }
        }
        found.remove(0);
        found
    }
}

fn mapping(map: procfs::process::MemoryMap) -> Mapping {
    let permission = |bit| map.perms.contains(bit);
    let name = match &map.pathname {
        MMapPath::Path(path) => Some(path.to_string_lossy().into_owned()),
        MMapPath::Heap => Some("[heap]".into()),
        MMapPath::Stack => Some("[stack]".into()),
        MMapPath::Vdso => Some("[vdso]".into()),
        MMapPath::Vvar => Some("[vvar]".into()),
        MMapPath::Vsyscall => Some("[vsyscall]".into()),
        MMapPath::Other(other) => Some(format!("[{other}]")),
        _ => None,
    };
    let (path, deleted) = match name {
        Some(name) => match name.strip_suffix(" (deleted)") {
            Some(stripped) => (Some(stripped.to_string()), true),
            None => (Some(name), false),
        },
        None => (None, false),
    };
    Mapping {
        start: Addr(map.address.0),
        end: Addr(map.address.1),
        read: permission(MMPermissions::READ),
        write: permission(MMPermissions::WRITE),
        execute: permission(MMPermissions::EXECUTE),
        shared: permission(MMPermissions::SHARED),
        offset: map.offset,
        device: map.dev,
        inode: map.inode,
        path,
        deleted,
    }
}

fn exec_start(text: &str) -> Option<f64> {
    text.lines().find(|l| l.starts_with("se.exec_start"))?.rsplit(':').next()?.trim().parse().ok()
}

/// `nr a1 .. a6 sp pc`; "running" and damaged text are `None`.
fn parse_syscall(text: &str) -> Option<Syscall> {
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let hex: Vec<u64> =
        words.map(|w| u64::from_str_radix(w.strip_prefix("0x")?, 16).ok()).collect::<Option<Vec<u64>>>()?;
    if number < 0 || hex.len() != 8 {
        return None;
    }
    let mut arguments = [0; 6];
    arguments.copy_from_slice(&hex[..6]);
    // Asleep in the call: the result that a restartable call shows at a stop.
    Some(Syscall { number, arguments, result: -512, sp: Addr(hex[6]), pc: Addr(hex[7]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syscall_line_is_read() {
        let call =
            parse_syscall("202 0x33b84088 0x189 0x3 0x0 0x0 0xffffffff 0x7ffc074a2758 0x7f9086898d17\n").unwrap();
        assert_eq!((call.number, call.arguments[0], call.sp), (202, 0x33b8_4088, Addr(0x7ffc_074a_2758)));
        for damaged in ["running", "", "-1 0x0 0x0", "202 0x1", "x 0x1 0x1 0x1 0x1 0x1 0x1 0x1 0x1"] {
            assert_eq!(parse_syscall(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn own_threads_and_maps_are_read() {
        let proc = Proc::new(Path::new("/proc"));
        let pid = std::process::id() as i32;
        let tids = proc.threads(pid);
        assert!(tids.contains(&pid));
        assert_eq!(proc.facts(pid, pid).unwrap().ns_tid, nix::unistd::getpid().as_raw());
        let maps = proc.mappings(pid, &tids);
        assert!(maps.iter().any(|m| m.path.as_deref() == Some("[stack]")));
        assert!(maps.windows(2).all(|w| w[0].end <= w[1].start));
    }
}

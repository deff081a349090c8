//! Descriptors, file locks, semaphores, and the other ends of pipes and sockets, from /proc.
//!
//! In: the captured processes and the system calls that their threads sleep in. Out: [`Descriptor`]s and
//! [`KernelFacts`]. Nothing is opened: to open a pipe through /proc/PID/fd would give it one more end. All but
//! the locks that a thread may try to take again and again (`locked_files`) is read after the release; what is concluded from it holds only if a second look shows the same.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::frozen;
use super::in_flight;
use super::locked_files::{self, LockedFiles, has_lockable, parse_lock};
use super::proc_fs::{ProcFs, descriptors, field};
use super::sharers;
use super::sleeping;
use super::sockets::Sockets;
use crate::arch::system_calls::{Child, Waits};
use crate::image::descriptors::{
    Asked, CHILD_ENDS, Descriptor, Detail, FileLock, KernelFacts, MessageQueue, PipeEnd, SetSemaphore, Want, asked,
    queue_asked, semaphores_asked, socket_inode, socket_name, system_v_queue_asked,
};
use crate::image::{ProcessImage, ThreadImage};
use crate::limits::image::{MOST_WANTED, NESTED_SETS};
use crate::sys;

/// The access mode in the flags of a descriptor (fcntl.h): read only, write only, both.
const ACCESS_MODE: u32 = 3;

/// Fill in what the waits of these processes need.
pub(super) fn read(proc_fs: &ProcFs, processes: &mut [ProcessImage]) -> KernelFacts {
    let tries = |process: &ProcessImage| sleeping::is_brief(proc_fs, process);
    let tries: Vec<bool> = processes.iter().map(tries).collect();
    let may_lock = |(process, tries): (&ProcessImage, &bool)| *tries && has_lockable(&proc_fs.process(process.pid));
    let mut locked = LockedFiles::new(proc_fs, processes.iter().zip(&tries).any(may_lock));
    let handled: Vec<(i32, u64)> =
        processes.iter().map(|process| (process.pid, caught(&proc_fs.shared(process.pid)))).collect();
    let timers = handled.iter().filter_map(|(pid, _)| Some((*pid, timers(&proc_fs.process(*pid))?))).collect();
    let children = children(proc_fs, processes, &handled);
    let mut facts = KernelFacts {
        semaphores: semaphores(proc_fs, processes),
        handled,
        timers,
        frozen: processes.iter().filter_map(|one| Some((one.pid, frozen::group(proc_fs, one.pid)?))).collect(),
        queues: queues(proc_fs, processes),
        children,
        sharers: sharers::read(proc_fs, processes),
        stopped: processes.iter().filter_map(|one| Some((one.pid, stopped_by(proc_fs, one.pid)?))).collect(),
        own_pipes: own_pipes(),
        ..KernelFacts::default()
    };
    let all_asked: Vec<Vec<Asked>> = processes
        .iter()
        .map(|process| {
            let calls = process.threads.iter().filter_map(ThreadImage::call);
            calls.filter_map(|call| asked(process.architecture, &call, &*process.memory)).collect()
        })
        .collect();
    for (process, _) in processes.iter_mut().zip(&tries).filter(|(_, tries)| **tries) {
        of_locked_files(proc_fs, process, &mut facts.locks, &mut locked);
    }
    if all_asked.iter().all(Vec::is_empty) {
        return facts;
    }
    // Names of pipes, sockets and eventfds whose other ends are needed.
    let mut ends = BTreeSet::new();
    let mut sockets = Sockets::default();
    for (process, asked) in processes.iter_mut().zip(&all_asked) {
        let directory = proc_fs.process(process.pid);
        if process.descriptors.is_empty() {
            process.descriptors = descriptors(&directory).unwrap_or_default();
        }
        let mut numbers: BTreeSet<i32> = asked.iter().flat_map(numbers_of).collect();
        identify_all(&directory, &mut process.descriptors, &numbers);
        let calls = process.threads.iter().filter_map(ThreadImage::call);
        let queues: BTreeSet<i32> = calls.filter_map(|call| queue_asked(process.architecture, &call)).collect();
        for descriptor in process.descriptors.iter_mut().filter(|descriptor| queues.contains(&descriptor.number)) {
            descriptor.detail = Detail::Queue;
        }
        // Sets may be members of sets.
        for _ in 0..NESTED_SETS {
            let sets = process.descriptors.iter().filter(|descriptor| numbers.contains(&descriptor.number));
            let wants = sets.filter_map(|descriptor| match &descriptor.detail {
                Detail::Set(wants) => Some(wants),
                _ => None,
            });
            let watched: BTreeSet<i32> = wants.flatten().map(|want| want.number).collect();
            if watched.is_subset(&numbers) {
                break;
            }
            identify_all(&directory, &mut process.descriptors, &watched);
            numbers.extend(watched);
        }
        let waited = || process.descriptors.iter().filter(|descriptor| numbers.contains(&descriptor.number));
        let inodes: BTreeSet<u64> = waited().filter_map(|descriptor| socket_inode(&descriptor.target)).collect();
        let mut known = sockets.of(proc_fs, process.pid, &inodes);
        // Only calls on the socket itself end by its limits, none that waits for several.
        let is_alone =
            |number: i32| asked.iter().any(|asked| matches!(asked, Asked::One(want) if want.number == number));
        for socket in &mut known {
            let is_it = |descriptor: &&Descriptor| socket_inode(&descriptor.target) == Some(socket.inode);
            let own = waited().filter(is_it).find(|descriptor| is_alone(descriptor.number));
            let limits = own.and_then(|own| sys::socket_limits(process.pid, own.number).ok());
            (socket.limits_receiving, socket.limits_sending) = limits.unwrap_or_default();
        }
        ends.extend(
            known
                .iter()
                .flat_map(|socket| [Some(socket.inode), socket.peer, socket.unaccepted_by])
                .flatten()
                .map(socket_name),
        );
        for socket in known {
            match facts.sockets.iter_mut().find(|one| one.inode == socket.inode) {
                Some(one) => {
                    one.limits_receiving |= socket.limits_receiving;
                    one.limits_sending |= socket.limits_sending;
                }
                None => facts.sockets.push(socket),
            }
        }
        let has_ends = |descriptor: &&Descriptor| {
            descriptor.is_pipe || matches!(descriptor.detail, Detail::Event { .. } | Detail::Queue)
        };
        ends.extend(waited().filter(has_ends).map(Descriptor::end_name));
    }
    let has_events = ends.iter().any(|end| end.starts_with("eventfd:"));
    for process in processes.iter_mut() {
        let directory = proc_fs.process(process.pid);
        for descriptor in &mut process.descriptors {
            if has_events && descriptor.target == EVENT_FD && descriptor.detail == Detail::None {
                descriptor.detail = detail(&directory, descriptor);
            }
            if ends.contains(&descriptor.target) {
                descriptor.is_pipe |= !descriptor.target.starts_with("socket:");
                (descriptor.reads, descriptor.writes) = access(&directory, descriptor.number);
            }
        }
    }
    let files: BTreeSet<String> =
        processes.iter().zip(&all_asked).flat_map(|(process, asked)| locked_files(process, asked)).collect();
    if all_asked.iter().flatten().any(|asked| matches!(asked, Asked::Lock(_))) {
        facts.locks = locked.now();
        if facts.locks.iter().any(FileLock::is_of_open_file) {
            of_open_files(proc_fs, &files, &mut facts.locks);
        }
    }
    if !ends.is_empty() {
        let captured: BTreeSet<i32> = processes.iter().map(|process| process.pid).collect();
        let mut in_flight = in_flight::Asker::default();
        for process in processes.iter() {
            in_flight.ask(process.pid, &proc_fs.process(process.pid), &process.descriptors);
        }
        others(proc_fs, &ends, &captured, &mut in_flight, &mut facts);
        in_flight.finish(proc_fs, &ends, &mut sockets, &mut facts);
    }
    facts
}

/// The pipes that are standard output and standard error of this very process.
fn own_pipes() -> Vec<String> {
    let ends = ["/proc/self/fd/1", "/proc/self/fd/2"].iter().filter_map(|end| std::fs::read_link(end).ok());
    ends.map(|end| end.to_string_lossy().into_owned()).filter(|end| end.starts_with("pipe:")).collect()
}

/// The signal that stopped a process. For a stopped process the last field of stat is that signal and no exit status
/// (fs/proc/array.c, measured on Linux 6.18). The state is not checked: a sample that has just released the process
/// finds it on its way back.
fn stopped_by(proc_fs: &ProcFs, pid: i32) -> Option<i32> {
    /// SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
    const STOPPING: std::ops::RangeInclusive<i32> = 19..=22;
    let text = std::fs::read(proc_fs.process(pid).join("stat")).ok()?;
    let last = text.rsplit(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    std::str::from_utf8(last).ok()?.parse().ok().filter(|signal| STOPPING.contains(signal))
}

/// The signals that each C library keeps for itself: 32 and 33.
const INTERNAL_SIGNALS: u64 = 0b11 << 31;

/// The signals that a process has handlers for, one bit each; all where that can't be read.
fn caught(directory: &Path) -> u64 {
    let text = std::fs::read_to_string(directory.join("status")).unwrap_or_default();
    field(&text, "SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(!0) & !INTERNAL_SIGNALS
}

/// The signals of a process's timers (proc(5), /proc/pid/timers): "signal: 34/0000000000000000".
fn timers(directory: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join("timers")).ok()?;
    let signals =
        text.lines().filter_map(|line| line.strip_prefix("signal:")?.trim().split('/').next()?.parse::<u32>().ok());
    let bits = signals.filter_map(|signal| 1u64.checked_shl(signal.checked_sub(1)?));
    Some(bits.fold(0, |all, bit| all | bit)).filter(|bits| *bits != 0)
}

/// Find the descriptors of a process whose files are locked, by inode numbers alone: a further query to a file system
/// might take for ever. The locks are read if they were not yet.
fn of_locked_files(proc_fs: &ProcFs, process: &mut ProcessImage, locks: &mut Vec<FileLock>, locked: &mut LockedFiles) {
    let directory = proc_fs.process(process.pid);
    let mut list = descriptors(&directory).unwrap_or_default();
    let is_file = |descriptor: &Descriptor| locked_files::may_be_locked(&descriptor.target);
    if !list.iter().any(is_file) {
        return;
    }
    if locks.is_empty() {
        *locks = locked.take();
    }
    let locked: BTreeSet<u64> = locks.iter().filter(|lock| !lock.blocked).map(|lock| lock.inode).collect();
    if locked.is_empty() {
        return;
    }
    for descriptor in list.iter_mut().filter(|descriptor| is_file(descriptor)) {
        let path = directory.join("fdinfo").join(descriptor.number.to_string());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let inode = field(&text, "ino:").and_then(|inode| inode.parse().ok());
        descriptor.inode = inode.filter(|inode| locked.contains(inode));
    }
    if list.iter().any(|descriptor| descriptor.inode.is_some()) {
        process.descriptors = list;
    }
}

/// The names of the files that threads of a process wait to lock.
fn locked_files(process: &ProcessImage, asked: &[Asked]) -> Vec<String> {
    let numbers = asked.iter().filter_map(|asked| if let Asked::Lock(number) = asked { Some(*number) } else { None });
    let descriptor = |number| process.descriptors.iter().find(|descriptor| descriptor.number == number);
    numbers.filter_map(|number| Some(descriptor(number)?.target.clone())).collect()
}

/// The children of those processes in which a thread waits for a child, or that handle the signal of its end.
fn children(proc_fs: &ProcFs, processes: &[ProcessImage], handled: &[(i32, u64)]) -> Vec<(i32, Vec<i32>)> {
    let waits = |process: &&ProcessImage| {
        let calls = process.threads.iter().filter_map(ThreadImage::call);
        let mut rows = calls.filter_map(|call| process.architecture.system_call(call.number));
        rows.any(|row| matches!(row.waits, Waits::Child(Child::Id | Child::Kind)))
    };
    let is_told = |pid: i32| handled.iter().any(|(of, signals)| *of == pid && signals & CHILD_ENDS != 0);
    let asked = processes.iter().filter(|process| waits(process) || is_told(process.pid));
    asked.map(|process| (process.pid, proc_fs.children(process.pid))).collect()
}

/// Put in the place of locks that belong to open files one for each process that has such an open file: its fdinfo has
/// a line for it.
fn of_open_files(proc_fs: &ProcFs, files: &BTreeSet<String>, locks: &mut Vec<FileLock>) {
    let Ok(entries) = std::fs::read_dir(proc_fs.root()) else { return };
    let mut found: Vec<FileLock> = Vec::new();
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let directory = proc_fs.shared(pid);
        let list = descriptors(&directory).unwrap_or_default();
        for descriptor in list.iter().filter(|descriptor| files.contains(&descriptor.target)) {
            let text = std::fs::read_to_string(directory.join("fdinfo").join(descriptor.number.to_string()));
            let text = text.unwrap_or_default();
            let lines = text.lines().filter_map(|line| parse_lock(line.strip_prefix("lock:")?));
            found.extend(lines.filter(FileLock::is_of_open_file).map(|lock| {
                let inherited = lock.pid > 0 && lock.pid != pid;
                FileLock { pid, inherited, ..lock }
            }));
        }
    }
    found.dedup();
    let is_known = |lock: &FileLock| found.iter().any(|one| lock.is_same(one));
    locks.retain(|lock| !is_known(lock));
    locks.extend(found);
}

/// The descriptors that a call names itself.
fn numbers_of(asked: &Asked) -> Vec<i32> {
    match asked {
        Asked::One(want) => vec![want.number],
        Asked::Several(wants) => wants.iter().map(|want| want.number).collect(),
        Asked::Set(number) | Asked::Process(number) | Asked::Lock(number) => vec![*number],
    }
}

/// The semaphores that threads wait for, where they are those of lockscope's own IPC namespace.
fn semaphores(proc_fs: &ProcFs, processes: &[ProcessImage]) -> Vec<SetSemaphore> {
    let mut wanted = BTreeSet::new();
    for process in processes {
        let calls = process.threads.iter().filter_map(ThreadImage::call);
        let operations: Vec<_> =
            calls.flat_map(|call| semaphores_asked(process.architecture, &call, &*process.memory)).collect();
        if operations.is_empty() {
            continue;
        }
        let namespace = |pid: &str| std::fs::read_link(proc_fs.root().join(pid).join("ns/ipc")).ok();
        if namespace("self") == namespace(&process.pid.to_string()) {
            wanted.extend(operations.into_iter().map(|operation| (operation.set, operation.number)));
        }
    }
    let ask = |(set, number)| {
        let [value, last, waiters] = sys::semaphore(set, number)?;
        Some(SetSemaphore { set, number, value, last, waiters })
    };
    wanted.into_iter().filter_map(ask).collect()
}

/// The System V message queues that threads wait for, where they are those of lockscope's own IPC namespace (proc(5):
/// `key msqid perms cbytes qnum lspid lrpid ...`).
fn queues(proc_fs: &ProcFs, processes: &[ProcessImage]) -> Vec<MessageQueue> {
    let namespace = |pid: &str| std::fs::read_link(proc_fs.root().join(pid).join("ns/ipc")).ok();
    let is_own = |process: &&ProcessImage| namespace("self") == namespace(&process.pid.to_string());
    let wanted: BTreeSet<i32> = processes
        .iter()
        .filter(is_own)
        .flat_map(|process| {
            process.threads.iter().filter_map(ThreadImage::call).map(|call| (process.architecture, call))
        })
        .filter_map(|(architecture, call)| system_v_queue_asked(architecture, &call))
        .map(|(id, _)| id)
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let text = std::fs::read_to_string(proc_fs.root().join("sysvipc/msg")).unwrap_or_default();
    let one = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let id = words.next()?.parse().ok().filter(|id| wanted.contains(id))?;
        let mut words = words.skip(2);
        let messages = words.next()?.parse().ok()?;
        Some(MessageQueue { id, messages, sender: words.next()?.parse().ok()?, receiver: words.next()?.parse().ok()? })
    };
    text.lines().filter_map(one).collect()
}

/// Inode, kind and details of the open files with these numbers.
fn identify_all(directory: &Path, descriptors: &mut [Descriptor], numbers: &BTreeSet<i32>) {
    for descriptor in descriptors.iter_mut().filter(|descriptor| numbers.contains(&descriptor.number)) {
        if descriptor.inode.is_none() {
            identify(directory, descriptor);
            descriptor.detail = detail(directory, descriptor);
        }
    }
}

/// Inode and kind of the open file.
fn identify(directory: &Path, descriptor: &mut Descriptor) {
    // stat follows the link to the open file itself, and opens nothing.
    if let Ok(metadata) = std::fs::metadata(directory.join("fd").join(descriptor.number.to_string())) {
        descriptor.inode = Some(metadata.ino());
        descriptor.is_pipe = metadata.file_type().is_fifo();
    }
}

const EVENT_FD: &str = "anon_inode:[eventfd]";

/// The kernel's details of a special file (fdinfo; Documentation/filesystems/proc.rst, 3.8).
fn detail(directory: &Path, descriptor: &Descriptor) -> Detail {
    let Some(kind) = descriptor.target.strip_prefix("anon_inode:") else { return Detail::None };
    let text =
        || std::fs::read_to_string(directory.join("fdinfo").join(descriptor.number.to_string())).unwrap_or_default();
    match kind {
        "[eventfd]" => event(&text()).unwrap_or_default(),
        "[eventpoll]" => Detail::Set(watched(&text())),
        "[pidfd]" => field(&text(), "Pid:").and_then(|pid| pid.parse().ok()).map_or(Detail::None, Detail::Process),
        "[timerfd]" => Detail::Timer,
        "[signalfd]" => Detail::Signals,
        _ => Detail::None,
    }
}

/// `eventfd-count:                0`, in hexadecimal, and since Linux 5.2 `eventfd-id: 7`.
fn event(text: &str) -> Option<Detail> {
    let count = u64::from_str_radix(field(text, "eventfd-count:")?, 16).ok()?;
    Some(Detail::Event { id: field(text, "eventfd-id:")?.parse().ok()?, count })
}

/// Flags for how an epoll set reports a member, not for which events: EPOLLEXCLUSIVE, EPOLLWAKEUP, EPOLLONESHOT,
/// EPOLLET (linux/eventpoll.h).
const MANNER_OF_EVENTS: u32 = 0xf << 28;

/// `tfd:        5 events:       19 data: ...`, a line for each. A member with EPOLLONESHOT that has reported its event
/// has none left until it is armed again: it cannot end a wait.
fn watched(text: &str) -> Vec<Want> {
    let one = |line: &str| {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        (events & !MANNER_OF_EVENTS != 0).then(|| Want::of_events(number, events))
    };
    // One entry beyond the limit shows that the set is too large.
    text.lines().filter_map(one).take(MOST_WANTED + 1).collect()
}

/// Whether a descriptor reads, and writes.
fn access(directory: &Path, number: i32) -> (bool, bool) {
    let text = std::fs::read_to_string(directory.join("fdinfo").join(number.to_string())).unwrap_or_default();
    let flags = text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    match flags.map(|flags| flags & ACCESS_MODE) {
        Some(0) => (true, false),
        Some(1) => (false, true),
        // Where the kernel does not report it, it may be either.
        _ => (true, true),
    }
}

/// Ends in all processes that are not captured.
fn others(
    proc_fs: &ProcFs,
    ends: &BTreeSet<String>,
    captured: &BTreeSet<i32>,
    in_flight: &mut in_flight::Asker,
    facts: &mut KernelFacts,
) {
    let Ok(entries) = std::fs::read_dir(proc_fs.root()) else { return };
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let has_events = ends.iter().any(|end| end.starts_with("eventfd:"));
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(|pid| !captured.contains(pid) && *pid != own) {
        let directory = proc_fs.shared(pid);
        let list = match descriptors(&directory) {
            Ok(list) => list,
            Err(error) => {
                // Otherwise it ended meanwhile.
                facts.unread += usize::from(error.kind() == io::ErrorKind::PermissionDenied);
                continue;
            }
        };
        in_flight.ask(pid, &directory, &list);
        for mut descriptor in list {
            if has_events && descriptor.target == EVENT_FD {
                descriptor.detail = detail(&directory, &descriptor);
            }
            let target = descriptor.end_name();
            if !ends.contains(&target) {
                continue;
            }
            let (reads, writes) = access(&directory, descriptor.number);
            let name = super::proc_fs::name(&directory).unwrap_or_default();
            let end = PipeEnd { target, pid, name, reads, writes };
            if !facts.ends.contains(&end) {
                facts.ends.push(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_of_special_files() {
        assert_eq!(
            event("pos:\t0\nflags:\t02\neventfd-count:               1f\neventfd-id: 7\n"),
            Some(Detail::Event { id: 7, count: 31 })
        );
        let set = "flags:\t02\ntfd:        5 events:       19 data:  5  pos:0 ino:1758c sdev:f\ntfd: x\n\
            tfd:        6 events:        4 data:  6  pos:0 ino:1758d sdev:f\n\
            tfd:        7 events: 40000000 data:  7  pos:0 ino:1758e sdev:f\n";
        let wants = [Want { number: 5, reads: true, writes: false }, Want { number: 6, reads: false, writes: true }];
        assert_eq!(watched(set), wants);
    }

    #[test]
    fn own_descriptors_and_their_directions() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut list = descriptors(Path::new("/proc/self")).expect("readable");
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let other = std::os::fd::AsRawFd::as_raw_fd(&writer);
        let own = list.iter_mut().find(|descriptor| descriptor.number == number).expect("there");
        identify(Path::new("/proc/self"), own);
        assert!(own.is_pipe && own.target == format!("pipe:[{}]", own.inode.expect("asked")));
        assert_eq!(access(Path::new("/proc/self"), number), (true, false));
        assert_eq!(access(Path::new("/proc/self"), other), (false, true));
    }
}

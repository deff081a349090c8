//! All the `unsafe` of lockscope: system calls that no safe wrapper offers in the form needed here.
//!
//! In: plain numbers and slices. Out: plain results. `nix` does the rest of the ptrace calls; its `waitpid` and
//! `detach` know no real-time signals, and losing one of the target's signals is not an option. No policy lives here.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use aya_obj::generated::bpf_insn;
use memmap2::{Mmap, MmapOptions};
use nix::errno::Errno;
use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// A piece of the target's memory: first address and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// First address.
    pub(crate) start: u64,
    /// Length in bytes.
    pub(crate) length: usize,
}

/// As many spans as one call takes (IOV_MAX).
pub(crate) const SPANS_PER_CALL: usize = 1024;

/// A ptrace stop that a tracee has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The signal of the stop.
    pub(crate) signal: i32,
    /// The PTRACE_EVENT_ number; 0 in a signal-delivery stop.
    pub(crate) event: i32,
}

impl Stop {
    /// The signal that has to be handed on at the detach, since the stop took it out of the queue.
    pub(crate) fn undelivered(self) -> i32 {
        if self.event == 0 { self.signal } else { 0 }
    }

    /// Whether the thread stands in a group-stop (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU): it must stay there.
    pub(crate) fn is_group_stop(self) -> bool {
        self.event == libc::PTRACE_EVENT_STOP && self.signal != libc::SIGTRAP
    }

    /// Whether the process has just replaced its program.
    pub(crate) fn is_exec(self) -> bool {
        self.event == libc::PTRACE_EVENT_EXEC
    }
}

/// Whether the tracee `tid` of this very thread has come to a stop; does not wait, and never takes an exit status.
pub(crate) fn poll_stop(tid: i32) -> Result<Option<Stop>, Errno> {
    let id = libc::id_t::try_from(tid).map_err(|_| Errno::ESRCH)?;
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid siginfo_t for the kernel to fill, and outlives the call.
    let result = unsafe { libc::waitid(libc::P_PID, id, &mut info, options) };
    Errno::result(result)?;
    // SAFETY: waitid succeeded, so the fields of a SIGCHLD are filled in, or are zero when nothing was there.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some(Stop { signal: status & 0xff, event: status >> 8 }))
}

/// The number of the system call ptrace.
pub(crate) const PTRACE_CALL: i64 = libc::SYS_ptrace;

/// Take the exit status of a thread that has ended and that a thread of this process traces, if there is one; does not wait. The
/// status of a process is not for this: it would be taken away from the code that has started it.
pub(crate) fn take_exit_status(thread: i32) {
    let Ok(id) = libc::id_t::try_from(thread) else { return };
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid siginfo_t for the kernel to fill, and outlives the call. An error means that nothing is
    // there to take.
    unsafe { libc::waitid(libc::P_PID, id, &mut info, libc::WEXITED | libc::WNOHANG | libc::__WALL) };
}

/// Value, last process and number of waiters of a semaphore of a System V set, if it can be read.
pub(crate) fn semaphore(set: i32, number: u16) -> Option<[i32; 3]> {
    let ask = |command: i32| {
        // SAFETY: these commands read a number each and take no fourth argument; no memory is touched.
        let result = unsafe { libc::semctl(set, i32::from(number), command) };
        (result >= 0).then_some(result)
    };
    Some([ask(libc::GETVAL)?, ask(libc::GETPID)?, ask(libc::GETNCNT)?])
}

/// General registers as the kernel has them: 216 bytes on x86-64, 272 on AArch64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegisterBytes {
    bytes: [u8; 272],
    length: usize,
    /// Another requested set of registers: its kind, and the bytes that exist.
    second: Option<(u32, [u8; 8])>,
}

impl RegisterBytes {
    /// The bytes that exist.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The first word of the second set.
    pub(crate) fn second(&self) -> Option<(u32, &[u8])> {
        self.second.as_ref().map(|(kind, bytes)| (*kind, bytes.as_slice()))
    }
}

/// Read the general registers of the stopped tracee `tid`, and the first word of another set if one is named.
pub(crate) fn registers(tid: i32, second: Option<u32>) -> Result<RegisterBytes, Errno> {
    let mut registers = RegisterBytes { bytes: [0; 272], length: 0, second: None };
    registers.length = register_set(tid, libc::NT_PRSTATUS.cast_unsigned(), &mut registers.bytes)?;
    if let Some(kind) = second {
        let mut word = [0; 8];
        let length = register_set(tid, kind, &mut word)?;
        registers.second = (length == word.len()).then_some((kind, word));
    }
    Ok(registers)
}

/// Read a set of registers of the stopped tracee `tid`, as much as there is room for; how much that was.
fn register_set(tid: i32, kind: u32, into: &mut [u8]) -> Result<usize, Errno> {
    let mut vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the vector names bytes that outlive the call, and the kernel writes no more than their number.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid,
            std::ptr::without_provenance_mut::<libc::c_void>(kind as usize),
            &raw mut vector,
        )
    };
    Errno::result(result)?;
    Ok(vector.iov_len)
}

/// Write the general registers of the stopped tracee `tid`, as [`registers`] gave them.
pub(crate) fn set_registers(tid: i32, bytes: &[u8]) -> Result<(), Errno> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel only reads the bytes that the vector names, which outlive the call.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_SETREGSET,
            tid,
            std::ptr::without_provenance_mut::<libc::c_void>(libc::NT_PRSTATUS as usize),
            &raw mut vector,
        )
    };
    Errno::result(result).map(drop)
}

/// Let the tracee `tid` go, and hand on `signal` (0 for none).
pub(crate) fn detach(tid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: PTRACE_DETACH ignores the address and takes the signal's number as data; no memory is touched.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_DETACH,
            tid,
            std::ptr::null_mut::<libc::c_void>(),
            std::ptr::without_provenance_mut::<libc::c_void>(signal as usize),
        )
    };
    Errno::result(result).map(drop)
}

/// Read `spans` (at most [`SPANS_PER_CALL`]) of the process of task `tid`, one after the other, into `buffer`; the
/// number of bytes before the first that faults.
pub(crate) fn read_spans(tid: i32, spans: &[Span], buffer: &mut [u8]) -> Result<usize, Errno> {
    let remote: Vec<RemoteIoVec> = spans
        .iter()
        .take(SPANS_PER_CALL)
        .map(|span| RemoteIoVec { base: span.start as usize, len: span.length })
        .collect();
    process_vm_readv(Pid::from_raw(tid), &mut [IoSliceMut::new(buffer)], &remote)
}

/// Map a regular file for reading.
pub(crate) fn map_file(file: &File) -> std::io::Result<Mmap> {
    survive_lost_pages();
    // SAFETY: the mapping is private and read-only. Should someone truncate the file meanwhile, what is lost reads as zeros
    // (see `survive_lost_pages`); what changes is only ever copied out and parsed with every length checked.
    unsafe { MmapOptions::new().map_copy_read_only(file) }
}

/// Run `work` in a thread of its own that has these ids for files, and no capability: it may open the files that a
/// process with these ids may open. `None` where the kernel refuses the ids: they are another user's, or the thread
/// would keep groups beyond `groups`.
pub(crate) fn as_user<T: Send>(
    user: u32,
    group: u32,
    groups: &[u32],
    work: impl FnOnce() -> Option<T> + Send,
) -> Option<T> {
    /// `struct __user_cap_header_struct` and `__user_cap_data_struct` of version 3 (linux/capability.h).
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let none = [0u32; 6];
    let take_ids = move || {
        // SAFETY: `groups` is a list of that length that outlives the call. The system call itself, unlike libc's
        // function of that name, is about the calling thread alone, as are all that follow.
        let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } == 0;
        let has_no_others = || {
            let own = nix::unistd::getgroups().unwrap_or_default();
            own.iter().all(|one| one.as_raw() == group || groups.contains(&one.as_raw()))
        };
        // SAFETY: take a number and touch no memory; with -1 they change nothing and give what is.
        let (is_group, is_user) = unsafe {
            libc::syscall(libc::SYS_setfsgid, group);
            libc::syscall(libc::SYS_setfsuid, user);
            (
                libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32 == group,
                libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32 == user,
            )
        };
        // SAFETY: header and data are of the sizes that this version of the call reads, and outlive it; the thread is about to end.
        let is_bare = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) } == 0;
        (set || has_no_others()) && is_group && is_user && is_bare
    };
    std::thread::scope(|scope| scope.spawn(move || take_ids().then(work).flatten()).join().ok().flatten())
}

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old one, with the id of the new.
    Parent(i32),
}

/// Fork. This process must have one thread, so that the child can go on as any program; refused (EBUSY) where /proc says otherwise.
pub(crate) fn fork() -> Result<Forked, Errno> {
    if std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
        return Err(Errno::EBUSY);
    }
    // SAFETY: without other threads no lock can be held in the child by a thread that it does not have.
    let result = unsafe { libc::fork() };
    Errno::result(result).map(|pid| if pid == 0 { Forked::Child } else { Forked::Parent(pid) })
}

/// A child that has ended, with its exit status as a shell gives it: 128 + n for one that signal n ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its id.
    pub(crate) pid: i32,
    /// Its status.
    pub(crate) status: u8,
}

/// A child that has ended: this one, or any with `None`. It stays as it is with `keep`, and else is gone. Does not
/// wait, and knows real-time signals; `nix` turns them into an error that swallows the status.
pub(crate) fn ended_child(pid: Option<i32>, keep: bool) -> Result<Option<Ended>, Errno> {
    let (kind, id) = match pid {
        Some(pid) => (libc::P_PID, libc::id_t::try_from(pid).map_err(|_| Errno::ECHILD)?),
        None => (libc::P_ALL, 0),
    };
    let options = libc::WEXITED | libc::WNOHANG | if keep { libc::WNOWAIT } else { 0 };
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid siginfo_t for the kernel to fill, and outlives the call.
    Errno::result(unsafe { libc::waitid(kind, id, &mut info, options) })?;
    // SAFETY: waitid succeeded, so the fields of a SIGCHLD are filled in, or are zero when nothing was there.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let status = if info.si_code == libc::CLD_EXITED { status } else { 128 + status };
    Ok((pid != 0).then_some(Ended { pid, status: status as u8 }))
}

/// Whether two processes have one address space, as between vfork and exec; `None` where the kernel refuses to compare them.
pub(crate) fn have_same_memory(one: i32, other: i32) -> Option<bool> {
    /// `KCMP_VM` of linux/kcmp.h.
    const ADDRESS_SPACES: i32 = 1;
    // SAFETY: takes numbers and touches no memory.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, ADDRESS_SPACES, 0, 0) };
    Errno::result(order).ok().map(|order| order == 0)
}

/// A descriptor that becomes readable when the process ends (Linux 5.3).
pub(crate) fn process_descriptor(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes two numbers and touches no memory.
    let result = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Whether calls of the process that receive by this socket of its, and those that send, have a limit of the socket's own (SO_RCVTIMEO,
/// SO_SNDTIMEO). The socket is open here, too, for as long as that takes (pidfd_getfd, Linux 5.6).
pub(crate) fn socket_limits(pid: i32, descriptor: i32) -> Result<(bool, bool), Errno> {
    let process = process_descriptor(pid)?;
    // SAFETY: takes three numbers and touches no memory.
    let result = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) })?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    let socket = unsafe { OwnedFd::from_raw_fd(result as i32) };
    let limit = |option: i32| {
        let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let mut size = size_of::<libc::timeval>() as libc::socklen_t;
        let place = (&raw mut limit).cast();
        // SAFETY: the kernel writes at most `size` bytes to the structure, which is of that size.
        Errno::result(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, place, &raw mut size) })?;
        Ok(limit.tv_sec != 0 || limit.tv_usec != 0)
    };
    Ok((limit(libc::SO_RCVTIMEO)?, limit(libc::SO_SNDTIMEO)?))
}

/// An event that counts how often a thread gets to the instruction at `address`, by a breakpoint of the processor's that stops nobody; also
/// while others run. A read gives three words: how often, for how many nanoseconds the thread ran since then, and for how many of these
/// it was counted.
pub(crate) fn count_executions(thread: i32, address: u64) -> Result<File, Errno> {
    /// `struct perf_event_attr` as of its second version (linux/perf_event.h, PERF_ATTR_SIZE_VER1).
    #[repr(C)]
    struct Event {
        kind: u32,
        size: u32,
        config: u64,
        period: u64,
        sample: u64,
        read: u64,
        flags: u64,
        wakeup: u32,
        breakpoint: u32,
        address: u64,
        length: u64,
    }
    /// PERF_TYPE_BREAKPOINT, HW_BREAKPOINT_X.
    const BREAKPOINT: u32 = 5;
    const EXECUTED: u32 = 4;
    /// PERF_FORMAT_TOTAL_TIME_ENABLED and RUNNING.
    const TIMES: u64 = 0b11;
    /// `pinned`, `exclude_kernel`, `exclude_hv`.
    const FLAGS: u64 = 1 << 2 | 1 << 5 | 1 << 6;
    /// PERF_FLAG_FD_CLOEXEC.
    const CLOSE_ON_EXEC: u64 = 8;
    let event = Event {
        kind: BREAKPOINT,
        size: size_of::<Event>() as u32,
        config: 0,
        period: 0,
        sample: 0,
        read: TIMES,
        flags: FLAGS,
        wakeup: 0,
        breakpoint: EXECUTED,
        address,
        // For instructions it has to be the size of a word, whatever they are as long as.
        length: size_of::<libc::c_long>() as u64,
    };
    // SAFETY: the attributes have the size that they say, and outlive the call; any processor, no group.
    let result = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const event, thread, -1, -1, CLOSE_ON_EXEC) };
    let file = Errno::result(result)?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { File::from_raw_fd(file as i32) })
}

/// A table of eBPF (BPF_MAP_TYPE_HASH) with room for `entries` numbers, with values of one byte.
pub(crate) fn bpf_set(entries: u32) -> Result<OwnedFd, Errno> {
    /// The first fields of `union bpf_attr` for BPF_MAP_CREATE (linux/bpf.h; the same for the other calls below).
    #[repr(C)]
    struct Create {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
    }
    const HASH: u32 = 1;
    // SAFETY: plain numbers, in the layout that the command takes.
    let result = unsafe { bpf(0, &Create { kind: HASH, key_size: 4, value_size: 1, entries }) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Put a number into a table of [`bpf_set`], with its value for the program.
pub(crate) fn bpf_insert(set: BorrowedFd<'_>, key: i32, value: u8) -> Result<(), Errno> {
    /// For BPF_MAP_UPDATE_ELEM.
    #[repr(C)]
    struct Update {
        set: u64,
        key: *const i32,
        value: *const u8,
        flags: u64,
    }
    let update = Update { set: set.as_raw_fd() as u64, key: &raw const key, value: &raw const value, flags: 0 };
    // SAFETY: both pointers lead to as many bytes as the table was made for, which outlive the call.
    unsafe { bpf(2, &update) }.map(drop)
}

/// Load a program of eBPF that iterates over what the kernel's function number `over` does. On refusal the kernel's words about it are
/// put into `log`.
pub(crate) fn bpf_program(
    instructions: &[bpf_insn],
    licence: &CStr,
    over: u32,
    log: &mut [u8],
) -> Result<OwnedFd, Errno> {
    /// For BPF_PROG_LOAD.
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: *const bpf_insn,
        licence: *const libc::c_char,
        log_level: u32,
        log_size: u32,
        log: *mut u8,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
        /// Type information of the program, for its debuggers.
        debugging: [u32; 9],
        attach_to: u32,
    }
    const TRACING: u32 = 26;
    let load = Load {
        kind: TRACING,
        count: u32::try_from(instructions.len()).map_err(|_| Errno::E2BIG)?,
        instructions: instructions.as_ptr(),
        licence: licence.as_ptr(),
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).map_err(|_| Errno::E2BIG)?,
        log: if log.is_empty() { std::ptr::null_mut() } else { log.as_mut_ptr() },
        kernel_version: 0,
        flags: 0,
        name: *b"lockscope\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: ITERATOR,
        debugging: [0; 9],
        attach_to: over,
    };
    // SAFETY: the pointers lead to as many instructions and bytes as their counts say, and to a text that ends; all outlive the call.
    let program = unsafe { bpf(5, &load) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

/// For programs that iterate, when they are loaded and linked.
const ITERATOR: u32 = 28;

/// Link a program of [`bpf_program`] so that it can be read: over all tasks, or (Linux 6.1) over those of one process.
pub(crate) fn bpf_link(program: BorrowedFd<'_>, process: Option<i32>) -> Result<OwnedFd, Errno> {
    /// For BPF_LINK_CREATE.
    #[repr(C)]
    struct Link {
        program: i32,
        target: u32,
        attach_type: u32,
        flags: u32,
        tasks: *const Tasks,
        length: u32,
        unused: u32,
    }
    /// The part of `union bpf_iter_link_info` that is about tasks.
    #[repr(C)]
    struct Tasks {
        thread: u32,
        process: i32,
        descriptor: u32,
        unused: u32,
    }
    let tasks = process.map(|process| Tasks { thread: 0, process, descriptor: 0, unused: 0 });
    let link = Link {
        program: program.as_raw_fd(),
        target: 0,
        attach_type: ITERATOR,
        flags: 0,
        tasks: tasks.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
        length: if tasks.is_some() { size_of::<Tasks>() as u32 } else { 0 },
        unused: 0,
    };
    // SAFETY: the pointer, where it is not null, leads to as many bytes as its length states, which outlive the call.
    let link = unsafe { bpf(28, &link) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// A file with the output of a program of [`bpf_link`], from its beginning.
pub(crate) fn bpf_iterate(link: BorrowedFd<'_>) -> Result<File, Errno> {
    /// For BPF_ITER_CREATE.
    #[repr(C)]
    struct Iterate {
        link: i32,
        flags: u32,
    }
    // SAFETY: plain numbers.
    let file = unsafe { bpf(33, &Iterate { link: link.as_raw_fd(), flags: 0 }) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// # Safety
///
/// `attributes` are laid out as the command takes them, and what they point to may be read, or written, as the command does.
unsafe fn bpf<T>(command: i32, attributes: &T) -> Result<i32, Errno> {
    // SAFETY: the size is that of `attributes`; the caller vouches for what they point to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    Errno::result(result).map(|result| result as i32)
}

/// Null in the place of the standard files: a process that is left behind must keep nobody's pipe open.
pub(crate) fn leave_standard_files() {
    if let Ok(nowhere) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&nowhere);
        let _ = nix::unistd::dup2_stdout(&nowhere);
        let _ = nix::unistd::dup2_stderr(&nowhere);
    }
}

/// Close all descriptors of this process but the standard ones and `kept`. Only for a process that was just forked and will never
/// drop what it owned before: it ends by `exit`.
pub(crate) fn close_all_but(kept: BorrowedFd<'_>) {
    close_others(kept.as_raw_fd());
}

/// The same, of all descriptors but the standard ones.
pub(crate) fn close_all() {
    close_others(2);
}

fn close_others(kept: i32) {
    for (first, last) in [(3, kept - 1), (kept.max(2) + 1, i32::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: closes descriptors that nobody in this process uses any more, see above.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if result != 0 {
            // Before Linux 5.9.
            for descriptor in first..=last.min(1 << 16) {
                // SAFETY: as above.
                unsafe { libc::close(descriptor) };
            }
        }
    }
}

/// The size of the kernel's pages: its unit of mapping, protection and reports. x86-64 has 4 KiB; on 64-bit Arm it is
/// one of the powers of two from that to 64 KiB, as the kernel was built.
pub(crate) fn page_size() -> usize {
    const LEAST: usize = 4096;
    let told = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok());
    told.filter(|size| size.is_power_of_two()).unwrap_or(LEAST).max(LEAST)
}

/// Whether a page of a file was missing when it was read, see [`survive_lost_pages`].
static LOST_PAGES: AtomicBool = AtomicBool::new(false);
/// The size of the memory lost in one fault: a signal handler must not query it.
static LOST_PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);

/// Whether that happened since the last call.
pub(crate) fn lost_pages() -> bool {
    LOST_PAGES.swap(false, Ordering::Relaxed)
}

/// From now on a mapped file that others cut or overwrite in place, or that its file system cannot give any more, reads as zeros
/// there: the kernel sends SIGBUS, whose default would end lockscope.
pub(crate) fn survive_lost_pages() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        LOST_PAGE_SIZE.store(page_size(), Ordering::Relaxed);
        // SAFETY: sigaction is plain data for which all zeroes is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = put_zeros as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler makes system calls and stores an atomic only, which a signal handler may do.
        unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
    });
}

extern "C" fn put_zeros(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    /// A page of a file is not there (asm-generic/siginfo.h).
    const BUS_ADRERR: i32 = 2;
    // SAFETY: the kernel gives a valid siginfo_t with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let size = LOST_PAGE_SIZE.load(Ordering::Relaxed);
    // SAFETY: the page faulted because nothing is behind it (only pages of files raise this code), so nothing is lost by putting
    // zeros there; it stays readable as it was.
    if code == BUS_ADRERR && unsafe { put_zero_page(address, size) } {
        LOST_PAGES.store(true, Ordering::Relaxed);
        return;
    }
    // SAFETY: gives the signal its default action, which the instruction meets when it runs again.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Put zeros where the page of this size with `address` is; whether that could be done. It makes one system call, and no page of
/// another size can be put anywhere but by chance: the kernel refuses an address that is not a multiple of its own.
///
/// # Safety
///
/// Nothing in that page is needed any more.
unsafe fn put_zero_page(address: usize, size: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let page = std::ptr::without_provenance_mut(address & !(size - 1));
    // SAFETY: as the caller says.
    unsafe { libc::mmap(page, size, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED }
}

/// A pthread mutex that records its owner in every libc: error-checking, as musl's default mutex names none.
pub(crate) struct ErrorCheckMutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

// SAFETY: a pthread mutex is made to be used by several threads; the box keeps its address.
unsafe impl Send for ErrorCheckMutex {}
// SAFETY: as above; the only access to the cell is through pthread_mutex_lock, _unlock and _destroy.
unsafe impl Sync for ErrorCheckMutex {}

impl ErrorCheckMutex {
    /// An unlocked mutex.
    pub(crate) fn new() -> ErrorCheckMutex {
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: the attributes are initialised by the first call before the others read them, and the mutex is not
        // yet known to another thread.
        unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ERRORCHECK);
            libc::pthread_mutex_init(mutex.get(), attributes.as_ptr());
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
        }
        ErrorCheckMutex(mutex)
    }

    /// Lock it; 0 or an error number, such as EDEADLK.
    pub(crate) fn lock(&self) -> i32 {
        // SAFETY: the mutex was initialised in `new` and lives as long as `self`.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }

    /// Unlock it; 0 or an error number, such as EPERM for a thread that does not own it.
    pub(crate) fn unlock(&self) -> i32 {
        // SAFETY: as in `lock`.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) }
    }
}

impl Drop for ErrorCheckMutex {
    fn drop(&mut self) {
        // SAFETY: nobody borrows `self` any more, and destroying a locked mutex returns EBUSY without touching it.
        unsafe { libc::pthread_mutex_destroy(self.0.get()) };
    }
}

/// Zeroed memory that this process and those it starts by [`start_apart`] have in common.
///
/// Words and bytes are atomic, since another process may write at any time. Pages are handed out by what the words and
/// bytes say of them; nobody writes a page again once it was marked as complete.
#[derive(Debug)]
pub(crate) struct SharedArea {
    start: std::ptr::NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone until it is dropped, and all access goes through atomics or raw copies.
unsafe impl Send for SharedArea {}
// SAFETY: as above.
unsafe impl Sync for SharedArea {}

impl SharedArea {
    /// `length` bytes; memory is taken only for what is touched.
    pub(crate) fn new(length: usize) -> std::io::Result<SharedArea> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing that exists is replaced.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let start = Some(start)
            .filter(|&start| start != libc::MAP_FAILED)
            .and_then(|start| std::ptr::NonNull::new(start.cast::<u8>()));
        start.map(|start| SharedArea { start, length }).ok_or_else(std::io::Error::last_os_error)
    }

    /// The word at `offset`, a multiple of 8.
    pub(crate) fn word(&self, offset: usize) -> Option<&std::sync::atomic::AtomicU64> {
        let fits = offset.is_multiple_of(8) && offset.checked_add(8)? <= self.length;
        // SAFETY: within the mapping and aligned, as was just checked; it is only ever used as an atomic word.
        fits.then(|| unsafe { std::sync::atomic::AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    /// The byte at `offset`.
    pub(crate) fn byte(&self, offset: usize) -> Option<&std::sync::atomic::AtomicU8> {
        // SAFETY: within the mapping, as is checked; it is only ever used as an atomic byte.
        (offset < self.length)
            .then(|| unsafe { std::sync::atomic::AtomicU8::from_ptr(self.start.as_ptr().add(offset)) })
    }

    /// Fill a buffer with what lies at `offset`; false if that is not all within the area.
    pub(crate) fn copy_to(&self, offset: usize, buffer: &mut [u8]) -> bool {
        let fits = offset.checked_add(buffer.len()).is_some_and(|end| end <= self.length);
        if fits {
            // SAFETY: the source lies within the mapping, and the buffer is memory of its own; see the type for who writes when.
            unsafe {
                std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), buffer.as_mut_ptr(), buffer.len());
            }
        }
        fits
    }

    /// The addresses of a part, for the kernel to write to.
    fn part(&self, offset: usize, length: usize) -> Option<libc::iovec> {
        (offset.checked_add(length)? <= self.length)
            .then(|| libc::iovec { iov_base: self.start.as_ptr().wrapping_add(offset).cast(), iov_len: length })
    }

    /// Copy pieces of the memory of task `tid` to offsets of the area, in order; the number of bytes before the first
    /// piece that faults. At most [`PIECES_PER_CALL`] are taken. It allocates nothing.
    pub(crate) fn read_remote(&self, tid: i32, pieces: &[(Span, usize)]) -> Result<usize, Errno> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let (mut local, mut remote) = ([nothing; PIECES_PER_CALL], [nothing; PIECES_PER_CALL]);
        let mut count = 0;
        for (&(span, offset), (local, remote)) in pieces.iter().zip(local.iter_mut().zip(remote.iter_mut())) {
            *local = self.part(offset, span.length).ok_or(Errno::EINVAL)?;
            let base = std::ptr::without_provenance_mut(span.start as usize);
            *remote = libc::iovec { iov_base: base, iov_len: span.length };
            count += 1;
        }
        // SAFETY: the local parts lie within the mapping; the remote ones are addresses of another process, which the
        // kernel checks.
        let read = unsafe { libc::process_vm_readv(tid, local.as_ptr(), count, remote.as_ptr(), count, 0) };
        Errno::result(read).map(|read| read as usize)
    }

    /// Copy from a file to an offset of the area; the number of bytes read. It allocates nothing.
    pub(crate) fn read_file(&self, file: i32, position: u64, offset: usize, length: usize) -> Result<usize, Errno> {
        let part = self.part(offset, length).ok_or(Errno::EINVAL)?;
        // SAFETY: the part lies within the mapping.
        let read = unsafe { libc::pread(file, part.iov_base, part.iov_len, position as libc::off_t) };
        Errno::result(read).map(|read| read as usize)
    }
}

impl Drop for SharedArea {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Let the heap grow by tens of megabytes at once, with large pages where the kernel has some, and keep some of the
/// freed memory. Otherwise a third of the time for a sample of ten threads went into first touches of pages (two
/// microseconds each in a virtual machine). Does nothing beside glibc.
pub(crate) fn prepare_heap() {
    #[cfg(target_env = "gnu")]
    {
        const GROWTH: usize = 32 << 20;
        const LARGE_PAGE: usize = 2 << 20;
        let options =
            [(libc::M_MMAP_THRESHOLD, GROWTH), (libc::M_TOP_PAD, GROWTH), (libc::M_TRIM_THRESHOLD, 2 * GROWTH)];
        for (option, value) in options {
            // SAFETY: changes settings of the allocator, which takes its own lock.
            unsafe { libc::mallopt(option, value as i32) };
        }
        // More than the heap has left: it grows.
        let first = Vec::<u8>::with_capacity(256 << 10);
        let start = (first.as_ptr() as usize).next_multiple_of(LARGE_PAGE);
        let end = (first.as_ptr() as usize + GROWTH) / LARGE_PAGE * LARGE_PAGE;
        // SAFETY: says how the pages of a range are to be made, and changes nothing in them; what is not mapped there is an error, which
        // is as good as a kernel without large pages.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
        HEAP_IS_PREPARED.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Give back what the heap has free: whoever works now and then must not keep what it needed.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks, and changes nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether [`prepare_heap`] was called: the heap is lockscope's own.
#[cfg(target_env = "gnu")]
static HEAP_IS_PREPARED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Let a thread touch the next `bytes` bytes of a prepared heap first. These touches take a tenth of the time of a
/// sample of ten thousand threads. A later copy of this process costs more for it.
pub(crate) fn touch_heap(bytes: usize) {
    #[cfg(target_env = "gnu")]
    {
        const MOST: usize = 256 << 20;
        /// Less is touched by the way.
        const LEAST: usize = 32 << 20;
        const BLOCK: usize = 16 << 20;
        /// The kernel keeps other threads from mapping files meanwhile.
        const AT_ONCE: usize = 64 << 10;
        let bytes = bytes.min(MOST);
        if bytes < LEAST || !HEAP_IS_PREPARED.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        // SAFETY: changes a setting of the allocator, which takes its own lock.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, (2 * MOST) as i32) };
        // The heap grows by these, and keeps what it has grown by.
        let blocks: Vec<Vec<u8>> = (0..bytes.div_ceil(BLOCK)).map(|_| Vec::with_capacity(BLOCK)).collect();
        let Some(start) = blocks.first().map(|block| (block.as_ptr() as usize).next_multiple_of(4096)) else { return };
        let end = blocks.iter().map(|block| block.as_ptr() as usize + BLOCK).max().unwrap_or(start).min(start + bytes);
        drop(blocks);
        let is_touched = |at: usize| {
            // SAFETY: makes pages of a range, and changes nothing in them; what is not mapped there any more is an error.
            unsafe { libc::madvise(at as *mut libc::c_void, AT_ONCE, libc::MADV_POPULATE_WRITE) == 0 }
        };
        let touch = move || (start..end.saturating_sub(AT_ONCE)).step_by(AT_ONCE).all(is_touched);
        let _ = std::thread::Builder::new().name("heap".to_owned()).spawn(touch);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// As many pieces as [`SharedArea::read_remote`] takes: two tables of them lie on its stack.
pub(crate) const PIECES_PER_CALL: usize = 128;

/// Start a process that is a copy of this one, runs `serve` and ends. It has no open file but `kept` (ascending), takes no
/// signal but SIGKILL, and gets that when the thread that started it ends. Its end raises no signal here, and only
/// [`collect`] collects it.
///
/// The other threads are missing in the copy, stopped at any point of their work. So `serve` must make system calls
/// only, and must neither allocate nor take a lock.
pub(crate) fn start_apart(kept: &[i32], serve: impl FnOnce()) -> std::io::Result<i32> {
    let own = std::process::id();
    // SAFETY: all zeroes is a valid sigset_t, and sigfillset fills it.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: both sets are valid; the mask of this thread is put back below.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    // SAFETY: a plain fork but for the signal at the end: no stack, no thread data and no flag is given. The child runs what is
    // below alone, which neither allocates nor takes locks.
    let result = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if result == 0 {
        // SAFETY: system calls on plain numbers; closed files are not used any more, since only `serve` follows.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_NAME, c"lockscope-copy".as_ptr());
            if libc::getppid() as u32 != own {
                libc::_exit(0);
            }
            let mut first = 0;
            for &file in kept.iter().chain(&[i32::MAX]) {
                if file > first {
                    close_files(first, file - 1);
                }
                first = file.saturating_add(1);
            }
            libc::chdir(c"/".as_ptr());
        }
        serve();
        // SAFETY: ends this process at once, without what is registered to run at the end.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: `before` is what pthread_sigmask gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    match i32::try_from(result) {
        Ok(child) if child > 0 => Ok(child),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Close all files from `first` to `last`. Kernels before 5.9 have no call for it.
fn close_files(first: i32, last: i32) {
    const HIGHEST_TRIED: i32 = 4096;
    // SAFETY: files of this process alone, which uses none of them any more (see the caller).
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
            for file in first..=last.min(HIGHEST_TRIED) {
                libc::close(file);
            }
        }
    }
}

/// Collect a process that [`start_apart`] started, if it has ended; does not wait. Whether it is gone.
pub(crate) fn collect(child: i32) -> bool {
    // SAFETY: no status is requested, so that no memory is touched.
    let result = unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    result != 0
}

/// Give an entry of a folder another name that is nobody's yet; an error where there is one. File systems that cannot promise that
/// replace it.
pub(crate) fn rename_to_nothing(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> std::io::Result<()> {
    /// RENAME_NOREPLACE (linux/fs.h).
    const KEEP: u32 = 1;
    let text = |name: &OsStr| CString::new(name.as_bytes()).map_err(|_| std::io::Error::from(Errno::EINVAL));
    let (from, to) = (text(from)?, text(to)?);
    let folder = folder.as_raw_fd();
    let rename = |flags: u32| {
        // SAFETY: both names are texts that end, and outlive the call.
        let result = unsafe { libc::syscall(libc::SYS_renameat2, folder, from.as_ptr(), folder, to.as_ptr(), flags) };
        Errno::result(result).map(drop)
    };
    match rename(KEEP) {
        Err(Errno::EINVAL) => rename(0).map_err(std::io::Error::from),
        done => done.map_err(std::io::Error::from),
    }
}

/// Signals whose inherited action a command must find as it was: lockscope needs another one of each.
const KEPT_FOR_COMMANDS: [i32; 3] = [libc::SIGCHLD, libc::SIGPIPE, libc::SIGXFSZ];
/// Which of them were ignored when this process started.
static IGNORED_AT_START: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Which of the standard files were closed then.
static CLOSED_AT_START: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Runs before Rust's runtime, which ignores SIGPIPE, and opens /dev/null where a standard file is closed.
extern "C" fn note_actions() {
    for (file, is_closed) in (0..).zip(&CLOSED_AT_START) {
        // SAFETY: asks for the flags of a descriptor, and changes nothing.
        is_closed.store(unsafe { libc::fcntl(file, libc::F_GETFD) } < 0, Ordering::Relaxed);
    }
    for (signal, is_ignored) in KEPT_FOR_COMMANDS.into_iter().zip(&IGNORED_AT_START) {
        // SAFETY: all zeroes is a valid sigaction, which the call fills in; it changes nothing.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            action
        };
        is_ignored.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
}

// SAFETY: the C library calls each entry once before `main`; this one needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_ACTIONS: extern "C" fn() = note_actions;

/// Take the actions that a process needs which starts commands and writes reports: children that end are seen, and a file that may not
/// grow is an error of the write.
pub(crate) fn take_actions() {
    // SAFETY: both are actions of the kernel's own, and no handler is replaced.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Become a command that finds the actions of signals, and standard files that are closed, as this process found them; returns only if that fails.
pub(crate) fn become_command(command: &mut std::process::Command) -> std::io::Error {
    let restore = || {
        for (signal, is_ignored) in KEPT_FOR_COMMANDS.into_iter().zip(&IGNORED_AT_START) {
            let action = if is_ignored.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
            // SAFETY: as above.
            unsafe { libc::signal(signal, action) };
        }
        for (file, _) in (0..).zip(&CLOSED_AT_START).filter(|(_, is_closed)| is_closed.load(Ordering::Relaxed)) {
            // SAFETY: what the runtime has opened there is nobody's.
            unsafe { libc::close(file) };
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, restore) };
    std::os::unix::process::CommandExt::exec(command)
}

/// Take the processor before all threads that are not urgent, or give that priority back. Refused without CAP_SYS_NICE,
/// which is no error: it makes a stop shorter on a busy machine, and no more. A thread that waits by polling must not
/// have it: on a machine with one processor the awaited threads would not run.
pub(crate) fn set_urgent(urgent: bool) {
    let (policy, priority) =
        if urgent { (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1) } else { (libc::SCHED_OTHER, 0) };
    // SAFETY: all zeroes is a valid sched_param on every libc (musl's has more fields).
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // The system call, since musl's function of that name refuses always.
    // SAFETY: the parameters are valid and outlive the call, which concerns this thread alone.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
}

/// The signal that a sampler gets when its supervisor ends: no kernel and no program sends it otherwise (signal(7):
/// unused).
pub(crate) const SUPERVISOR_ENDED: nix::sys::signal::Signal = nix::sys::signal::Signal::SIGSTKFLT;
/// Signals that would end or stop this process, and wait as long as a target stands still on its account.
const DEFERRED: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP, SUPERVISOR_ENDED as i32];
/// Those that came meanwhile, a bit each.
static CAME: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// Whether there is a stop at the moment.
static IS_DEFERRING: AtomicBool = AtomicBool::new(false);
/// How many stops there are at the moment, and the signals whose action was replaced by the first.
static DEFERRING: std::sync::Mutex<(usize, [bool; DEFERRED.len()])> =
    std::sync::Mutex::new((0, [false; DEFERRED.len()]));

extern "C" fn take_note(signal: i32) {
    let bit = 1 << signal;
    CAME.fetch_or(bit, Ordering::SeqCst);
    // On another thread this may begin just before the last stop ends, and get here when what came was sent again already.
    if !IS_DEFERRING.load(Ordering::SeqCst) && CAME.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
        // SAFETY: may be called in a handler; sends a signal to this very process, which it was sent before.
        unsafe { libc::kill(libc::getpid(), signal) };
    }
}

/// SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP and [`SUPERVISOR_ENDED`] wait until this is dropped, where they have their default action. An action, not a
/// mask: another thread with another mask would take them, and their default is the end of all threads.
#[derive(Debug)]
pub(crate) struct DeferredSignals(());

impl DeferredSignals {
    /// From now on.
    pub(crate) fn begin() -> DeferredSignals {
        let mut deferring = DEFERRING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        deferring.0 += 1;
        if deferring.0 == 1 {
            IS_DEFERRING.store(true, Ordering::SeqCst);
            for (signal, replaced) in DEFERRED.into_iter().zip(&mut deferring.1) {
                *replaced = action(signal, None) == Some(libc::SIG_DFL)
                    && action(signal, Some(take_note as extern "C" fn(i32) as libc::sighandler_t)).is_some();
            }
        }
        DeferredSignals(())
    }
}

impl Drop for DeferredSignals {
    fn drop(&mut self) {
        let mut deferring = DEFERRING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        deferring.0 = deferring.0.saturating_sub(1);
        if deferring.0 > 0 {
            return;
        }
        for (signal, replaced) in DEFERRED.into_iter().zip(&mut deferring.1) {
            if std::mem::take(replaced) {
                action(signal, Some(libc::SIG_DFL));
            }
        }
        IS_DEFERRING.store(false, Ordering::SeqCst);
        drop(deferring);
        let came = CAME.swap(0, Ordering::SeqCst);
        for signal in DEFERRED.into_iter().filter(|signal| came & (1 << signal) != 0) {
            // SAFETY: sends a signal to this very process, which it was sent before.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
    }
}

/// The process that may continue this process without a note, and whether another process did.
static RESUMER: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
static CONTINUED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_continue(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo_t with SA_SIGINFO, which for a signal that was sent has the sender.
    let sender = unsafe { (*info).si_pid() };
    if sender != RESUMER.load(Ordering::SeqCst) {
        CONTINUED.store(true, Ordering::SeqCst);
    }
}

/// Take note of each SIGCONT from now on that is not of `resumer`, where that signal has its default action.
pub(crate) fn note_continues(resumer: i32) {
    RESUMER.store(resumer, Ordering::SeqCst);
    CONTINUED.store(false, Ordering::SeqCst);
    if action(libc::SIGCONT, None) != Some(libc::SIG_DFL) {
        return;
    }
    // SAFETY: sigaction is plain data for which all zeroes is a valid value.
    let mut noted: libc::sigaction = unsafe { std::mem::zeroed() };
    noted.sa_sigaction = note_continue as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    noted.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler reads and stores atomics only.
    unsafe { libc::sigaction(libc::SIGCONT, &noted, std::ptr::null_mut()) };
}

/// Whether there was one since; the default action is back.
pub(crate) fn was_continued_by_others() -> bool {
    let own = note_continue as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    if action(libc::SIGCONT, None) == Some(own) {
        action(libc::SIGCONT, Some(libc::SIG_DFL));
    }
    CONTINUED.load(Ordering::SeqCst)
}

/// The action of a signal, after it was set if a new one is given.
fn action(signal: i32, new: Option<libc::sighandler_t>) -> Option<libc::sighandler_t> {
    // SAFETY: all zeroes is a valid sigaction: the default action, no flag, an empty mask.
    let (mut old, mut set): (libc::sigaction, libc::sigaction) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    set.sa_flags = libc::SA_RESTART;
    let asked = new.map_or(std::ptr::null(), |handler| {
        set.sa_sigaction = handler;
        &raw const set
    });
    // SAFETY: both structures are valid and outlive the call; the handler only sets bits of an atomic word.
    let result = unsafe { libc::sigaction(signal, asked, &mut old) };
    (result == 0).then_some(old.sa_sigaction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_checking_mutex_refuses_its_owner() {
        let mutex = ErrorCheckMutex::new();
        assert_eq!(mutex.lock(), 0);
        assert_eq!(mutex.lock(), libc::EDEADLK);
        assert_eq!(mutex.unlock(), 0);
        assert_eq!(mutex.unlock(), libc::EPERM);
    }

    /// As a kernel with pages of 64 KiB loses them, wherever inside the access was.
    #[test]
    fn a_lost_page_is_replaced_whole_and_no_other() {
        const LARGEST: usize = 64 << 10;
        let area = SharedArea::new(4 * LARGEST).expect("memory");
        let start = area.start.as_ptr() as usize;
        let page = start.next_multiple_of(LARGEST) + LARGEST - start;
        let byte = |offset: usize| area.byte(offset).expect("inside").load(Ordering::Relaxed);
        for offset in [page - 1, page, page + LARGEST - 1, page + LARGEST] {
            area.byte(offset).expect("inside").store(7, Ordering::Relaxed);
        }
        // SAFETY: the page lies within the area, and only these bytes of it are used.
        assert!(unsafe { put_zero_page(start + page + 0x5123, LARGEST) });
        assert_eq!([page - 1, page, page + LARGEST - 1, page + LARGEST].map(byte), [7, 0, 0, 7]);
        // SAFETY: nothing is replaced: that is no address of a page.
        assert!(page_size().is_power_of_two() && !unsafe { put_zero_page(start + page_size() / 2, page_size() / 2) });
    }
}

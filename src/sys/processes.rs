//! Processes: what they are started as, how they end, and whether two of them share their memory.
//!
//! In: ids. Out: what the kernel says of them.

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// Value, last process and number of waiters of a semaphore of a System V set, if it can be read.
pub(crate) fn semaphore(set: i32, number: u16) -> Option<[i32; 3]> {
    let ask = |command: i32| {
        // SAFETY: these commands read a number each and take no fourth argument; no memory is touched.
        let result = unsafe { libc::semctl(set, i32::from(number), command) };
        (result >= 0).then_some(result)
    };
    Some([ask(libc::GETVAL)?, ask(libc::GETPID)?, ask(libc::GETNCNT)?])
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

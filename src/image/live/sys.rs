//! All the `unsafe` of lockscope: system calls that no safe wrapper offers in the form needed here.
//!
//! In: plain numbers and slices. Out: plain results. `nix` does the rest of the ptrace calls; its `waitpid` and
//! `detach` know no real-time signals, and losing one of the target's signals is not an option. No policy lives here.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::Mmap;
use nix::errno::Errno;
use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::image::descriptors::SetSemaphore;

/// A piece of the target's memory: first address and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    /// First address.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) length: usize,
}

/// As many spans as one call takes (IOV_MAX).
pub(super) const SPANS_PER_CALL: usize = 1024;

/// A ptrace stop that a tracee has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    /// The signal of the stop.
    pub(super) signal: i32,
    /// The PTRACE_EVENT_ number; 0 in a signal-delivery stop.
    pub(super) event: i32,
}

impl Stop {
    /// The signal that has to be handed on at the detach, since the stop took it out of the queue.
    pub(super) fn undelivered(self) -> i32 {
        if self.event == 0 { self.signal } else { 0 }
    }

    /// Whether the thread stands in a group-stop (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU): it must stay there.
    pub(super) fn is_group_stop(self) -> bool {
        self.event == libc::PTRACE_EVENT_STOP && self.signal != libc::SIGTRAP
    }

    /// Whether the process has just replaced its program.
    pub(super) fn is_exec(self) -> bool {
        self.event == libc::PTRACE_EVENT_EXEC
    }
}

/// Whether the tracee `tid` of this very thread has come to a stop; does not wait, and never takes an exit status.
pub(super) fn poll_stop(tid: i32) -> Result<Option<Stop>, Errno> {
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

/// What is known of a semaphore of a System V set, if it can be read.
pub(super) fn semaphore(set: i32, number: u16) -> Option<SetSemaphore> {
    let ask = |command: i32| {
        // SAFETY: these commands read a number each and take no fourth argument; no memory is touched.
        let result = unsafe { libc::semctl(set, i32::from(number), command) };
        (result >= 0).then_some(result)
    };
    let (value, last) = (ask(libc::GETVAL)?, ask(libc::GETPID)?);
    Some(SetSemaphore { set, number, value, last, waiters: ask(libc::GETNCNT)? })
}

/// Let the tracee `tid` go, and hand on `signal` (0 for none).
pub(super) fn detach(tid: i32, signal: i32) -> Result<(), Errno> {
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
pub(super) fn read_spans(tid: i32, spans: &[Span], buffer: &mut [u8]) -> Result<usize, Errno> {
    let remote: Vec<RemoteIoVec> = spans
        .iter()
        .take(SPANS_PER_CALL)
        .map(|span| RemoteIoVec { base: span.start as usize, len: span.length })
        .collect();
    process_vm_readv(Pid::from_raw(tid), &mut [IoSliceMut::new(buffer)], &remote)
}

/// Map a regular file for reading.
pub(in crate::image) fn map_file(file: &File) -> std::io::Result<Mmap> {
    survive_lost_pages();
    // SAFETY: the mapping is private and read-only. Should someone truncate the file meanwhile, what is lost reads as zeros
    // (see `survive_lost_pages`); what changes is only ever copied out and parsed with every length checked.
    unsafe { Mmap::map(file) }
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

/// A child that has ended: this one, or any with `None`. It stays as it is where `keep` says so, and else is gone. Does not wait, and
/// knows real-time signals, of which `nix` makes an error that swallows the status.
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

/// A descriptor that becomes readable when the process ends (Linux 5.3).
pub(crate) fn process_descriptor(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes two numbers and touches no memory.
    let result = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Close all descriptors of this process but the standard ones and `kept`. Only for a process that was just forked and will never
/// drop what it owned before: it ends by `exit`.
pub(crate) fn close_all_but(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd();
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

/// Whether a page of a file was missing when it was read, see [`survive_lost_pages`].
static LOST_PAGES: AtomicBool = AtomicBool::new(false);

/// Whether that happened since it was last asked.
pub(crate) fn lost_pages() -> bool {
    LOST_PAGES.swap(false, Ordering::Relaxed)
}

/// From now on a mapped file that others cut or overwrite in place, or that its file system cannot give any more, reads as zeros
/// there: the kernel sends SIGBUS, whose default would end lockscope.
pub(crate) fn survive_lost_pages() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
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
    const PAGE: usize = 4096;
    // SAFETY: the kernel gives a valid siginfo_t with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let page = std::ptr::without_provenance_mut(address & !(PAGE - 1));
    // SAFETY: the page faulted because nothing is behind it (only pages of files raise this code), so nothing is lost by putting
    // zeros there; it stays readable as it was.
    let put =
        code == BUS_ADRERR && unsafe { libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0) } != libc::MAP_FAILED;
    if put {
        LOST_PAGES.store(true, Ordering::Relaxed);
        return;
    }
    // SAFETY: gives the signal its default action, which the instruction meets when it runs again.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
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
}

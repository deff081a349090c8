//! All the `unsafe` of lockscope: system calls that no safe wrapper offers in the form needed here.
//!
//! In: plain numbers and slices. Out: plain results. `nix` does the rest of the ptrace calls; its `waitpid` and
//! `detach` know no real-time signals, and losing one of the target's signals is not an option. No policy lives here.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::IoSliceMut;

use memmap2::Mmap;
use nix::errno::Errno;
use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

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
}

impl RegisterBytes {
    /// Those that there are.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Read the general registers of the stopped tracee `tid`.
pub(crate) fn registers(tid: i32) -> Result<RegisterBytes, Errno> {
    let mut registers = RegisterBytes { bytes: [0; 272], length: 0 };
    let mut vector = libc::iovec { iov_base: registers.bytes.as_mut_ptr().cast(), iov_len: registers.bytes.len() };
    // SAFETY: the vector names bytes that outlive the call, and the kernel writes no more than their number.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid,
            std::ptr::without_provenance_mut::<libc::c_void>(libc::NT_PRSTATUS as usize),
            &raw mut vector,
        )
    };
    Errno::result(result)?;
    registers.length = vector.iov_len;
    Ok(registers)
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
    // SAFETY: the mapping is private and read-only. Should someone truncate the file meanwhile, a read raises SIGBUS;
    // programs and libraries in use are replaced by rename, not rewritten in place.
    unsafe { Mmap::map(file) }
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

//! ptrace, where `nix` does not do: it knows no real-time signals, and losing one of the target's signals is not an option.
//!
//! In: ids of threads. Out: their stops and registers. When a thread is stopped is decided elsewhere.

use nix::errno::Errno;
use nix::libc;

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

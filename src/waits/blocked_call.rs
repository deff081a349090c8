//! The system call that a thread sleeps in, and the futex that it sleeps on there.
//!
//! In: registers, or the /proc facts of a thread without them; memory around the call. Out: [`Call`] and [`Futex`]. The
//! kernel's family decides the target of a call's wait.

use crate::arch::Architecture;
use crate::arch::system_calls::{self as calls, SystemCall, Waits};
use crate::image::{Addr, Memory, MemoryExt, Syscall, ThreadImage};

/// A system call that a thread sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its number; the real one where a restarted call could be recognised, else 219.
    pub number: i64,
    /// It is being restarted after an earlier stop or signal: then it has a time-out.
    pub restarted: bool,
    /// The six arguments.
    pub arguments: [u64; 6],
    /// Stack pointer.
    pub sp: Addr,
}

/// A wait on a futex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Futex {
    /// Address of the word.
    pub word: Addr,
    /// The value that it must have for the thread to sleep.
    pub value: u32,
    /// Operation with its flags, as passed.
    pub operation: u32,
    /// Operation without flags: 0 WAIT, 6 LOCK_PI, 9 WAIT_BITSET, 11 WAIT_REQUEUE_PI, 13 LOCK_PI2.
    pub command: u32,
    /// Has a time-out.
    pub timed: bool,
}

impl Call {
    /// The architecture's data about calls with this number.
    pub(crate) fn row(&self, architecture: Architecture) -> Option<&'static SystemCall> {
        architecture.system_call(self.number)
    }
}

impl Futex {
    /// Whether the kernel itself keeps the owner in the word.
    pub(crate) fn inherits_priority(&self) -> bool {
        matches!(self.command, FUTEX_LOCK_PI | FUTEX_LOCK_PI2)
    }
}

/// How many arguments a futex call that waits takes: word, operation, value, time-out. The last two are for others.
pub(super) const FUTEX_ARGUMENTS: usize = 4;
/// FUTEX_WAIT (linux/futex.h).
pub(crate) const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
/// FUTEX_WAIT_BITSET.
pub(crate) const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_WAIT_REQUEUE_PI: u32 = 11;
const FUTEX_LOCK_PI2: u32 = 13;
/// FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, above the 7 bits of the command (linux/futex.h).
const FUTEX_COMMAND: u32 = 0x7f;

/// The system call that `thread` sleeps in.
pub(crate) fn call(architecture: Architecture, thread: &ThreadImage, memory: &dyn Memory) -> Option<Call> {
    let raw = match thread.registers {
        Some(registers) => registers.asleep()?,
        // /proc shows a call only of a sleeping thread; there is no result to look at.
        None => thread.syscall.filter(|call| call.number >= 0)?,
    };
    let restarted = architecture.is_restart(raw.number);
    let number = if restarted { original_number(architecture, &raw, memory) } else { raw.number };
    Some(Call { number, restarted, arguments: raw.arguments, sp: raw.sp })
}

/// Which call restart_syscall stands for (libc.md section 6): the instruction that loaded its number, or the shape
/// of the arguments, which the kernel keeps.
fn original_number(architecture: Architecture, raw: &Syscall, memory: &dyn Memory) -> i64 {
    if let Some(number) = architecture.number_by_code(raw, memory) {
        return number;
    }
    let [first, ..] = raw.arguments;
    let recognised = match shaped_as_futex(&raw.arguments, memory) {
        Some(futex) if memory.u32(futex.word) == Ok(futex.value) => Some(&calls::FUTEX),
        // nanosleep through clock_nanosleep: the first argument is a clock's number.
        None if first < 16 => Some(&calls::CLOCK_NANOSLEEP),
        // poll and nanosleep may look like a futex that was woken: not proven.
        _ => None,
    };
    recognised.and_then(|call| architecture.number_of(call)).unwrap_or(raw.number)
}

/// A futex wait, if the arguments of a restarted call can be one.
pub(super) fn shaped_as_futex(arguments: &[u64; 6], memory: &dyn Memory) -> Option<Futex> {
    let [first, second, third, ..] = *arguments;
    let operation = second as u32;
    let command = operation & FUTEX_COMMAND;
    let shape = operation & !0x1ff == 0
        && matches!(command, FUTEX_WAIT | FUTEX_WAIT_BITSET)
        && first.is_multiple_of(4)
        && memory.u32(Addr(first)).is_ok();
    shape.then_some(Futex { word: Addr(first), value: third as u32, operation, command, timed: true })
}

/// The futex that a call waits on, if it does.
pub(crate) fn futex(row: Option<&SystemCall>, call: &Call, memory: &dyn Memory) -> Option<Futex> {
    let [a0, a1, a2, a3, a4, _] = call.arguments;
    let Some(Waits::Futex(form)) = row.map(|row| row.waits) else { return None };
    match form {
        calls::Futex::Operation => {
            let operation = a1 as u32;
            let command = operation & FUTEX_COMMAND;
            let waits = [FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2];
            waits.contains(&command).then_some(Futex {
                word: Addr(a0),
                value: a2 as u32,
                operation,
                command,
                // The clock bit says nothing: 0x189 is also used without a time-out.
                timed: a3 != 0,
            })
        }
        calls::Futex::Array => {
            // struct futex_waitv { u64 val; u64 uaddr; u32 flags; u32 reserved }: the first of several.
            let value = memory.u64(Addr(a0)).ok()? as u32;
            let word = memory.pointer(Addr(a0) + 8).ok()?;
            Some(Futex { word, value, operation: 0, command: FUTEX_WAIT, timed: a3 != 0 })
        }
        calls::Futex::Word => {
            Some(Futex { word: Addr(a0), value: a1 as u32, operation: 0, command: FUTEX_WAIT, timed: a4 != 0 })
        }
    }
}

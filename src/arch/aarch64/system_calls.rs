//! System calls: how a thread makes one, and how a stop shows one.
//!
//! The kernel keeps no number of the call that a thread sleeps in where a tracer could see it: a stop takes the thread out of the
//! call, gives it back the first argument, and puts it before the instruction that makes the call again (`do_signal` in
//! arch/arm64/kernel/signal.c); calls that it does not restart say EINTR behind that instruction. So the code tells.

use super::registers::{X0, X1, X2, X3, X4, X5, X8};
use crate::arch::system_calls::{self as calls, SystemCall};
use crate::arch::{Register, Registers, Syscall};
use crate::memory::{Addr, Memory, MemoryExt};

/// The registers of the arguments.
const ARGUMENTS: [Register; 6] = [X0, X1, X2, X3, X4, X5];

/// `svc #0`.
const CALL: u32 = 0xd400_0001;
/// The size of an instruction.
const INSTRUCTION: u64 = 4;
/// EINTR, as the result register has it.
const INTERRUPTED: i64 = -4;
/// ERESTARTSYS (include/linux/errno.h): the kernel hides it, and makes the call again.
const RESTARTED: i64 = -512;

/// `registers` as they were read, with the system call that the code says the thread is in; `None` if that code cannot be read.
pub(in crate::arch) fn settled(mut registers: Registers, memory: &dyn Memory) -> Option<Registers> {
    let pc = registers.general.pc()?;
    let result = registers.general.get(X0)? as i64;
    let makes_call = memory.u32(pc).ok()? == CALL;
    let is_behind = || result == INTERRUPTED && memory.u32(pc - INSTRUCTION) == Ok(CALL);
    registers.system_call = match registers.general.get(X8) {
        Some(number) if makes_call || is_behind() => number as i64,
        _ => -1,
    };
    Some(registers)
}

/// The system call that a thread is in.
pub(in crate::arch) fn current(registers: &Registers) -> Option<Syscall> {
    if registers.system_call < 0 {
        return None;
    }
    let first = registers.general.get(X0).unwrap_or(0) as i64;
    let pc = registers.general.pc().unwrap_or(Addr(0));
    let (result, pc) = if first == INTERRUPTED { (INTERRUPTED, pc) } else { (RESTARTED, pc + INSTRUCTION) };
    Some(Syscall {
        number: registers.system_call,
        arguments: ARGUMENTS.map(|register| registers.general.get(register).unwrap_or(0)),
        result,
        sp: registers.general.sp().unwrap_or(Addr(0)),
        pc,
    })
}

/// A thread that is found in a call at all is asleep in it: see [`settled`].
pub(in crate::arch) fn is_asleep(call: &Syscall) -> bool {
    [RESTARTED, INTERRUPTED].contains(&call.result)
}

/// Whether a call says EINTR after any stop. The kernel has no way to make it again but to run its instruction once more with its
/// first argument, which a stop overwrites: a tracer would have to have it from before, and to know that no signal came.
pub(in crate::arch) fn is_lost(call: &SystemCall) -> bool {
    const LOST: [SystemCall; 8] = [
        calls::EPOLL_PWAIT,
        calls::EPOLL_PWAIT2,
        calls::RT_SIGTIMEDWAIT,
        calls::SEMOP,
        calls::SEMTIMEDOP,
        calls::IO_GETEVENTS,
        calls::IO_PGETEVENTS,
        calls::IO_URING_ENTER,
    ];
    LOST.contains(call)
}

/// `mov x8, #number` among the instructions before the one that makes the call.
pub(in crate::arch) fn number_by_code(call: &Syscall, memory: &dyn Memory) -> Option<i64> {
    /// As far as glibc's inlined calls put them apart.
    const FAR: u64 = 10;
    let at = call.pc - INSTRUCTION;
    (1..=FAR).find_map(|back| {
        let word = memory.u32(at - back * INSTRUCTION).ok()?;
        (word & 0xffe0_001f == 0xd280_0008).then_some(i64::from((word >> 5) & 0xffff))
    })
}

/// The opposite of [`current`].
#[cfg(test)]
pub(in crate::arch) fn made(mut registers: Registers, result: i64, arguments: [u64; 6]) -> Registers {
    ARGUMENTS.iter().zip(arguments).for_each(|(register, value)| registers.general.set(*register, value));
    if result == INTERRUPTED {
        registers.general.set(X0, result as u64);
    }
    registers
}

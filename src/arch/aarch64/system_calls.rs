//! System calls: how a thread makes one, and how a stop shows one.
//!
//! For a sleeping thread the kernel keeps no call number that a tracer could see. A stop takes the thread out of the
//! call, and gives it back the first argument. It puts the thread before the instruction that makes the call again
//! (`do_signal` in arch/arm64/kernel/signal.c). Calls that it does not restart return EINTR behind that instruction. So
//! the code shows the call.

use super::registers::{FLAGS_AT, SIZE, X0, X1, X2, X3, X4, X5, X8, parse, write};
use crate::arch::{Register, Registers, Restart, Syscall};
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

/// Size of a sleeping thread's record: the registers, the first argument of its system call, the call's number or -1,
/// the thread pointer.
pub(in crate::arch) const SIZE_ASLEEP: usize = SIZE + 3 * 8;

/// Registers of a sleeping thread, as a stop would show them if the kernel makes its call again: at the instruction, with the first
/// argument. `None` for a thread of the kernel's own.
pub(in crate::arch) fn asleep(bytes: &[u8]) -> Option<Registers> {
    /// PSTATE.M[3:0], the level of privilege; 0 is user space.
    const PRIVILEGE: u8 = 0xf;
    let mut words = bytes.get(SIZE..SIZE_ASLEEP)?.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let (first, number, thread_pointer) = (words.next()?, words.next()? as i64, words.next()?);
    let mut registers = parse(bytes)?;
    let pc = registers.general.pc().filter(|pc| pc.0 >= INSTRUCTION)?;
    if bytes.get(FLAGS_AT)? & PRIVILEGE != 0 {
        return None;
    }
    registers.thread_pointer = Addr(thread_pointer);
    if number >= 0 {
        registers.system_call = number;
        registers.general.set(X0, first);
        registers.general.set_pc(pc - INSTRUCTION);
    }
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

/// Whether the result register says EINTR. Code of the program's own may have that there, too.
pub(in crate::arch) fn is_interrupted(bytes: &[u8]) -> bool {
    parse(bytes).is_some_and(|registers| registers.general.get(X0).map(|result| result as i64) == Some(INTERRUPTED))
}

/// Some calls, as epoll_pwait, rt_sigtimedwait and semtimedop, return EINTR after any stop. With that as the result the
/// kernel has lost their first argument. `slept` has it: if all else is as it was in that call, the thread is set back
/// to the instruction that makes it. ERESTARTNOHAND as the result is the way on x86-64. Here the program would get 514
/// as an error: the kernel checks results before it lets a tracer see them, and not again. The result decides this, not
/// a list of calls.
pub(in crate::arch) fn restarted(bytes: &[u8], slept: &Syscall) -> Option<Restart> {
    let mut registers = parse(bytes)?;
    let general = &mut registers.general;
    // The kernel takes the number from the lower half of the register.
    let is_number = general.get(X8)? as i32 as i64 == slept.number;
    let others = ARGUMENTS.iter().zip(slept.arguments).skip(1);
    let has_arguments = others.into_iter().all(|(register, value)| general.get(*register) == Some(value));
    let is_there = general.sp() == Some(slept.sp) && general.pc() == Some(slept.pc);
    if !(is_interrupted(bytes) && is_number && has_arguments && is_there) {
        return None;
    }
    let [first, ..] = slept.arguments;
    general.set(X0, first);
    general.set_pc(Addr(slept.pc.0.checked_sub(INSTRUCTION)?));
    let mut again = write(&registers);
    // The flags, which are no register here.
    again.get_mut(FLAGS_AT..)?.copy_from_slice(bytes.get(FLAGS_AT..SIZE)?);
    Some(Restart { again, said: Some(bytes.to_vec()) })
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

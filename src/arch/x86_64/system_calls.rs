//! System calls: how a thread makes one, how a stop shows one, and how one that the stop broke goes on.

use super::registers::{R8, R9, R10, RAX, RCX, RDI, RDX, RESULT_AT, RIP, RSI, SIZE, is_user, parse};
use crate::arch::{Register, Registers, Restart, Syscall};
use crate::memory::{Addr, Memory, MemoryExt};

/// The registers of the arguments (psABI, section A.2.1).
const ARGUMENTS: [Register; 6] = [RDI, RSI, RDX, R10, R8, R9];

/// `syscall`.
const CALL: [u8; 2] = [0x0f, 0x05];

/// EINTR, as the result register has it.
const INTERRUPTED: i64 = -4;
/// ERESTARTSYS (include/linux/errno.h).
const RESTARTED: i64 = -512;
/// ERESTARTNOHAND.
const RESTART_WITHOUT_HANDLER: i64 = -514;

/// ERESTART_RESTARTBLOCK: another call, restart_syscall, goes on with this one.
const RESTARTED_BY_ANOTHER: i64 = -516;

/// restart_syscall (arch/x86/entry/syscalls/syscall_64.tbl).
const RESTART_SYSCALL: u64 = 219;

/// No number of a call is greater.
const NUMBERS_END: u64 = 1024;

/// The system call that a thread is in.
pub(in crate::arch) fn current(registers: &Registers) -> Option<Syscall> {
    if registers.system_call < 0 {
        return None;
    }
    Some(Syscall {
        number: registers.system_call,
        arguments: ARGUMENTS.map(|register| registers.general.get(register).unwrap_or(0)),
        result: registers.general.get(RAX).unwrap_or(0) as i64,
        sp: registers.general.sp().unwrap_or(Addr(0)),
        pc: registers.general.pc().unwrap_or(Addr(0)),
    })
}

/// Whether the result register says that the call did not finish.
pub(in crate::arch) fn is_asleep(call: &Syscall) -> bool {
    // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK, and EINTR of the calls that are not
    // restarted (measured on Linux 6.18).
    const ASLEEP: [i64; 5] = [RESTARTED, -513, RESTART_WITHOUT_HANDLER, RESTARTED_BY_ANOTHER, INTERRUPTED];
    ASLEEP.contains(&call.result)
}

/// Whether registers that were read of a sleeping thread are those of a call without a result so far: the kernel puts -ENOSYS
/// there before it begins (arch/x86/entry/entry_64.S, `PUSH_AND_CLEAR_REGS rax=$-ENOSYS`), and a call that does not exist does
/// not sleep.
fn has_no_result(registers: &Registers) -> bool {
    const NO_SUCH_CALL: i64 = -38;
    registers.system_call >= 0 && registers.general.get(RAX).map(|rax| rax as i64) == Some(NO_SUCH_CALL)
}

/// Size of a sleeping thread's record: the structure without the four segment registers at its end.
pub(in crate::arch) const SIZE_ASLEEP: usize = SIZE - 4 * 8;

/// Registers of a sleeping thread: without the result of a call that has none yet, and `None` for one of the kernel's own.
pub(in crate::arch) fn asleep(bytes: &[u8]) -> Option<Registers> {
    let mut whole = bytes.get(..SIZE_ASLEEP)?.to_vec();
    whole.resize(SIZE, 0);
    let mut registers = parse(&whole).filter(|_| is_user(&whole))?;
    if has_no_result(&registers) {
        registers.general.forget(RAX);
    }
    Some(registers)
}

/// Whether the result register says EINTR.
pub(in crate::arch) fn is_interrupted(bytes: &[u8]) -> bool {
    parse(bytes).as_ref().and_then(current).is_some_and(|call| call.result == INTERRUPTED)
}

/// Calls such as epoll_wait, sigtimedwait and semop return EINTR after any stop. With ERESTARTNOHAND instead, the
/// kernel restarts the call, or lets it return EINTR if a signal did come meanwhile. Decided by the result and not by
/// a list of calls.
pub(in crate::arch) fn restarted(bytes: &[u8]) -> Option<Restart> {
    if !is_interrupted(bytes) {
        return None;
    }
    Some(Restart { again: without_handler(bytes)?, said: None })
}

/// Registers with which a call is made again as itself, where the kernel would let restart_syscall go on with it; `None` for any other
/// result. A signal with a handler ends it with EINTR either way.
pub(in crate::arch) fn made_again_as_itself(bytes: &[u8]) -> Option<Vec<u8>> {
    let call = parse(bytes).as_ref().and_then(current)?;
    if call.result == RESTARTED_BY_ANOTHER { without_handler(bytes) } else { None }
}

/// These registers with ERESTARTNOHAND as the result.
fn without_handler(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut again = bytes.to_vec();
    again.get_mut(RESULT_AT..RESULT_AT + 8)?.copy_from_slice(&RESTART_WITHOUT_HANDLER.to_le_bytes());
    Some(again)
}

/// Registers of a thread that is about to repeat a system call, as they were in that call. A stop or a signal without a
/// handler took it out of the call. The kernel has set it back to the instruction (`arch_do_signal_or_restart` in
/// arch/x86/kernel/signal.c). RCX still has the address behind it, which that instruction itself put there (Intel's
/// manual, SYSCALL). A thread that ended before it left the kernel still has the number of the call beside that (seen
/// in one core of 300). Elsewhere `registers` are returned unchanged.
pub(in crate::arch) fn made_again(mut registers: Registers, memory: &dyn Memory) -> Registers {
    let general = &mut registers.general;
    let (Some(pc), Some(behind), Some(number)) = (general.pc(), general.get(RCX), general.get(RAX)) else {
        return registers;
    };
    let after = pc + CALL.len() as u64;
    let number = match u64::try_from(registers.system_call) {
        Err(_) => number,
        // With a time that runs out it is another call that goes on with the first.
        Ok(first) if [first, RESTART_SYSCALL].contains(&number) => first,
        Ok(_) => return registers,
    };
    let was_in_a_call = number < NUMBERS_END && Addr(behind) == after;
    let mut code = CALL.map(|_| 0);
    if was_in_a_call && memory.read_exact(pc, &mut code).is_ok() && code == CALL {
        registers.system_call = number as i64;
        general.set(RAX, RESTARTED as u64);
        general.set(RIP, after.0);
    }
    registers
}

/// `mov $number,%eax; [xor $0x80,%sil]; syscall`.
pub(in crate::arch) fn number_by_code(call: &Syscall, memory: &dyn Memory) -> Option<i64> {
    /// `xor $0x80,%sil`.
    const CHANGES: [u8; 4] = [0x40, 0x80, 0xf6, 0x80];
    [0, CHANGES.len()].into_iter().find_map(|gap| {
        let length = 7 + gap;
        let mut code = [0u8; 11];
        let code = code.get_mut(..length)?;
        memory.read_exact(call.pc - length as u64, code).ok()?;
        let (number, rest) = code.strip_prefix(&[0xb8])?.split_first_chunk()?;
        let between = rest.strip_suffix(&CALL)?;
        let number = u64::from(u32::from_le_bytes(*number));
        (between == CHANGES.get(..gap)? && number < NUMBERS_END).then_some(number as i64)
    })
}

/// The opposite of [`current`].
#[cfg(test)]
pub(in crate::arch) fn made(mut registers: Registers, result: i64, arguments: [u64; 6]) -> Registers {
    ARGUMENTS.iter().zip(arguments).for_each(|(register, value)| registers.general.set(*register, value));
    registers.general.set(RAX, result as u64);
    registers
}

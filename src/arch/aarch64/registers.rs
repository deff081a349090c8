//! The registers: their DWARF numbers (DWARF for the Arm 64-bit Architecture, section 4.1) and their order in the kernel's
//! `struct user_pt_regs`.

use crate::arch::{Architecture, Register, RegisterSet, Registers};
use crate::memory::Addr;

pub(super) const X0: Register = Register(0);
pub(super) const X1: Register = Register(1);
pub(super) const X2: Register = Register(2);
pub(super) const X3: Register = Register(3);
pub(super) const X4: Register = Register(4);
pub(super) const X5: Register = Register(5);
pub(super) const X6: Register = Register(6);
pub(super) const X7: Register = Register(7);
/// The number of a system call.
pub(super) const X8: Register = Register(8);
/// x29.
pub(in crate::arch) const FRAME_POINTER: Register = Register(29);
/// x30: where a call leaves its return address.
pub(in crate::arch) const LINK: Register = Register(30);
/// sp.
pub(in crate::arch) const STACK_POINTER: Register = Register(31);
/// pc. DWARF reserves the number 32 for it.
pub(in crate::arch) const PROGRAM_COUNTER: Register = Register(32);

/// By DWARF number.
pub(in crate::arch) const NAMES: [&str; 33] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc",
];

/// Size of `struct user_pt_regs` (arch/arm64/include/uapi/asm/ptrace.h), in bytes: the registers in order of their DWARF numbers,
/// and the flags.
pub(in crate::arch) const SIZE: usize = (NAMES.len() + 1) * 8;

/// Where the flags are in it.
pub(super) const FLAGS_AT: usize = NAMES.len() * 8;

/// The registers in a `struct user_pt_regs`. Whether the thread is in a system call, is for [`settled`](super::system_calls::settled) to say, and
/// the thread pointer comes in a note of its own.
pub(in crate::arch) fn parse(bytes: &[u8]) -> Option<Registers> {
    let words = bytes.get(..SIZE)?.as_chunks::<8>().0;
    let mut general = RegisterSet::new(Architecture::Aarch64);
    for (number, word) in (0..NAMES.len() as u16).zip(words) {
        general.set(Register(number), u64::from_le_bytes(*word));
    }
    Some(Registers { general, system_call: -1, thread_pointer: Addr(0), descriptor: None })
}

/// A `struct user_pt_regs` of these registers; unknown ones are 0, and so are the flags.
pub(in crate::arch) fn write(registers: &Registers) -> Vec<u8> {
    let value = |number: usize| registers.general.get(Register(number as u16)).unwrap_or(0);
    (0..SIZE / 8).flat_map(|number| value(number).to_le_bytes()).collect()
}

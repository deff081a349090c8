//! The registers: their DWARF numbers (psABI, figure 3.36) and their order in the kernel's `struct user_regs_struct`.

use crate::arch::{Architecture, Register, RegisterSet, Registers};
use crate::memory::Addr;

pub(super) const RAX: Register = Register(0);
pub(super) const RDX: Register = Register(1);
pub(super) const RCX: Register = Register(2);
pub(super) const RBX: Register = Register(3);
pub(super) const RSI: Register = Register(4);
pub(super) const RDI: Register = Register(5);
pub(in crate::arch) const RBP: Register = Register(6);
pub(in crate::arch) const RSP: Register = Register(7);
pub(super) const R8: Register = Register(8);
pub(super) const R9: Register = Register(9);
pub(super) const R10: Register = Register(10);
pub(super) const R11: Register = Register(11);
pub(super) const R12: Register = Register(12);
pub(super) const R13: Register = Register(13);
pub(super) const R14: Register = Register(14);
pub(super) const R15: Register = Register(15);
/// The return address column: the instruction pointer.
pub(in crate::arch) const RIP: Register = Register(16);

/// By DWARF number.
pub(in crate::arch) const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
];

/// The register at a position of `struct user_regs_struct` (arch/x86/include/asm/user_64.h).
enum Slot {
    General(Register),
    /// `orig_ax`.
    SystemCall,
    /// `fs_base`.
    ThreadPointer,
    /// Not captured; the value that it has in any user program (arch/x86/include/asm/segment.h; interrupts on).
    Fixed(u64),
}

const USER_CS: u64 = 0x33;
const USER_SS: u64 = 0x2b;
const FLAGS: u64 = 0x202;

/// In order, each of 8 bytes.
const LAYOUT: [Slot; 27] = [
    Slot::General(R15),
    Slot::General(R14),
    Slot::General(R13),
    Slot::General(R12),
    Slot::General(RBP),
    Slot::General(RBX),
    Slot::General(R11),
    Slot::General(R10),
    Slot::General(R9),
    Slot::General(R8),
    Slot::General(RAX),
    Slot::General(RCX),
    Slot::General(RDX),
    Slot::General(RSI),
    Slot::General(RDI),
    Slot::SystemCall,
    Slot::General(RIP),
    Slot::Fixed(USER_CS),
    Slot::Fixed(FLAGS),
    Slot::General(RSP),
    Slot::Fixed(USER_SS),
    Slot::ThreadPointer,
    Slot::Fixed(0),
    Slot::Fixed(0),
    Slot::Fixed(0),
    Slot::Fixed(0),
    Slot::Fixed(0),
];

/// Size of the structure, in bytes.
pub(in crate::arch) const SIZE: usize = LAYOUT.len() * 8;

/// Position of the result register in the structure, and of the system call's number, in bytes.
pub(super) const RESULT_AT: usize = 10 * 8;

/// The words of the structure.
fn words(bytes: &[u8]) -> Option<impl Iterator<Item = (&'static Slot, u64)>> {
    let bytes = bytes.get(..SIZE)?;
    Some(LAYOUT.iter().zip(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))))
}

/// The registers in a `struct user_regs_struct`.
pub(in crate::arch) fn parse(bytes: &[u8]) -> Option<Registers> {
    let mut general = RegisterSet::new(Architecture::X86_64);
    let (mut system_call, mut thread_pointer) = (-1, Addr(0));
    for (slot, value) in words(bytes)? {
        match slot {
            Slot::General(register) => general.set(*register, value),
            Slot::SystemCall => system_call = value as i64,
            Slot::ThreadPointer => thread_pointer = Addr(value),
            Slot::Fixed(_) => {}
        }
    }
    Some(Registers { general, system_call, thread_pointer, descriptor: None })
}

/// Whether a `struct user_regs_struct` is of code in user space: the privilege level of its code segment is 3.
pub(super) fn is_user(bytes: &[u8]) -> bool {
    const CODE_SEGMENT_AT: usize = 17 * 8;
    bytes.get(CODE_SEGMENT_AT).is_some_and(|segment| segment & 3 == 3)
}

/// A `struct user_regs_struct` of these registers; unknown ones are 0.
pub(in crate::arch) fn write(registers: &Registers) -> Vec<u8> {
    let value = |slot: &Slot| match slot {
        Slot::General(register) => registers.general.get(*register).unwrap_or(0),
        Slot::SystemCall => registers.system_call as u64,
        Slot::ThreadPointer => registers.thread_pointer.0,
        Slot::Fixed(value) => *value,
    };
    LAYOUT.iter().flat_map(|slot| value(slot).to_le_bytes()).collect()
}

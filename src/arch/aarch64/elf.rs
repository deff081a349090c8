//! The data of this machine in ELF files, cores and the kernel's maps.

use crate::arch::Registers;
use crate::memory::Addr;

/// EM_AARCH64 (ELF for the Arm 64-bit Architecture, section 5.1).
pub(in crate::arch) const MACHINE: u16 = 183;

/// The largest size of the pages that files are mapped in: kernels are built for 4, 16 and 64 KiB, and linkers lay files out for
/// the largest.
pub(in crate::arch) const PAGE_SIZE: u64 = 65536;

/// NT_ARM_TLS (linux/elf.h): the thread pointer, which is in no NT_PRSTATUS.
pub(in crate::arch) const THREAD_POINTER_NOTE: u32 = 0x401;

/// Take what a note with the owner "LINUX" says of the thread whose NT_PRSTATUS stands before it.
pub(in crate::arch) fn take_note(registers: &mut Registers, kind: u32, data: &[u8]) {
    if kind == THREAD_POINTER_NOTE
        && let Some(word) = data.first_chunk()
    {
        registers.thread_pointer = Addr(u64::from_le_bytes(*word));
    }
}

/// The opposite of [`take_note`]: the two thread pointers; programs use the first.
pub(in crate::arch) fn notes(registers: &Registers) -> Vec<(u32, Vec<u8>)> {
    let mut pointers = registers.thread_pointer.0.to_le_bytes().to_vec();
    pointers.extend([0; 8]);
    vec![(THREAD_POINTER_NOTE, pointers)]
}

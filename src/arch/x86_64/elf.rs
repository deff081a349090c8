//! The data of this machine in ELF files and the kernel's maps.

/// EM_X86_64 (psABI, section 4.1).
pub(in crate::arch) const MACHINE: u16 = 62;

/// The only size of the pages that files are mapped in.
pub(in crate::arch) const PAGE_SIZE: u64 = 4096;

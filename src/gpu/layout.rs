//! The tables of a GPU core: which section is which, where which field lies in an element.
//!
//! In: nothing. Out: constants, and [`Element`], which reads a field only where the element has room for it. Source:
//! `cudacoredump.h` and `cudadebugger.h` of the CUDA toolkit 13.0 (extras/Debugger/include); each field says since which
//! driver there is one.

/// The machine of GPU cores and of code for GPUs (EM_CUDA).
pub(super) const MACHINE: u16 = 190;

/// The content of sections, by the number after SHT_LOUSER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A module's code, at its addresses on the device.
    Image,
    /// The calls of one thread.
    Calls,
    Devices,
    Contexts,
    Multiprocessors,
    Kernels,
    Blocks,
    Warps,
    Threads,
    Modules,
    Arguments,
    About,
    /// Names of devices.
    Strings,
}

/// The sections that are read: the others hold memory and registers.
pub(super) const KINDS: [(u32, Kind); 12] = [
    (7, Kind::Image),
    (8, Kind::Calls),
    (9, Kind::Devices),
    (10, Kind::Contexts),
    (11, Kind::Multiprocessors),
    (12, Kind::Kernels),
    (13, Kind::Blocks),
    (14, Kind::Warps),
    (15, Kind::Threads),
    (16, Kind::Modules),
    (18, Kind::Arguments),
    (22, Kind::About),
];

/// SHT_LOUSER.
pub(super) const FIRST_KIND: u32 = 0x8000_0000;
/// SHT_STRTAB.
pub(super) const STRINGS: u32 = 3;

/// A field: its first byte, how many it has, the driver that has it first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    offset: usize,
    size: usize,
    #[cfg_attr(not(test), expect(dead_code, reason = "told by the tables, checked by a test"))]
    since: u32,
}

const fn word(offset: usize, since: u32) -> Field {
    Field { offset, size: 4, since }
}

const fn long(offset: usize, since: u32) -> Field {
    Field { offset, size: 8, since }
}

/// `CudbgDeviceTableEntry`.
pub(super) mod device {
    use super::{Field, long, word};
    pub(in crate::gpu) const NAME: Field = long(0, 346);
    pub(in crate::gpu) const ARCHITECTURE: Field = long(16, 346);
    pub(in crate::gpu) const NUMBER: Field = word(24, 346);
    pub(in crate::gpu) const MULTIPROCESSORS: Field = word(36, 346);
}

/// `CudbgContextTableEntry`.
pub(super) mod context {
    use super::{Field, long, word};
    pub(in crate::gpu) const HANDLE: Field = long(0, 346);
    pub(in crate::gpu) const THREAD: Field = word(36, 346);
}

/// `CudbgModuleTableEntry`.
pub(super) mod module {
    use super::{Field, long};
    pub(in crate::gpu) const HANDLE: Field = long(0, 346);
}

/// `CudbgGridTableEntry`.
pub(super) mod kernel {
    use super::{Field, long, word};
    pub(in crate::gpu) const NUMBER: Field = long(0, 346);
    pub(in crate::gpu) const CONTEXT: Field = long(8, 346);
    pub(in crate::gpu) const ENTRY: Field = long(24, 346);
    pub(in crate::gpu) const MODULE: Field = long(32, 346);
    pub(in crate::gpu) const ORIGIN: Field = word(60, 346);
    pub(in crate::gpu) const STATUS: Field = word(64, 346);
    pub(in crate::gpu) const GRID: [Field; 3] = [word(72, 346), word(76, 346), word(80, 346)];
    pub(in crate::gpu) const BLOCK: [Field; 3] = [word(84, 346), word(88, 346), word(92, 346)];
    pub(in crate::gpu) const CLUSTER: [Field; 3] = [word(104, 525), word(108, 525), word(112, 525)];
}

/// `CudbgSmTableEntry`.
pub(super) mod multiprocessor {
    use super::{Field, long, word};
    pub(in crate::gpu) const EXCEPTION: Field = word(8, 555);
    pub(in crate::gpu) const HAS_ADDRESS: Field = word(12, 555);
    pub(in crate::gpu) const ADDRESS: Field = long(16, 555);
}

/// `CudbgCTATableEntry`.
pub(super) mod block {
    use super::{Field, long, word};
    pub(in crate::gpu) const KERNEL: Field = long(0, 346);
    pub(in crate::gpu) const INDEX: [Field; 3] = [word(8, 346), word(12, 346), word(16, 346)];
}

/// `CudbgWarpTableEntry`.
pub(super) mod warp {
    use super::{Field, long, word};
    pub(in crate::gpu) const ERROR_ADDRESS: Field = long(0, 346);
    pub(in crate::gpu) const VALID: Field = word(12, 346);
    pub(in crate::gpu) const HAS_ERROR_ADDRESS: Field = word(24, 346);
}

/// `CudbgThreadTableEntry`.
pub(super) mod thread {
    use super::{Field, long, word};
    pub(in crate::gpu) const ADDRESS: Field = long(0, 346);
    pub(in crate::gpu) const LANE: Field = word(16, 346);
    pub(in crate::gpu) const INDEX: [Field; 3] = [word(20, 346), word(24, 346), word(28, 346)];
    pub(in crate::gpu) const EXCEPTION: Field = word(32, 346);
}

/// `CudbgBacktraceTableEntry`.
pub(super) mod call {
    use super::{Field, long};
    pub(in crate::gpu) const ADDRESS: Field = long(8, 346);
}

/// `CudbgMetaDataEntry`.
pub(super) mod about {
    use super::{Field, word};
    pub(in crate::gpu) const DRIVER: [Field; 2] = [word(8, 565), word(12, 565)];
}

/// `CUDBGException_t`, as cuda-gdb words them.
const EXCEPTIONS: [&str; 22] = [
    "lane illegal address",
    "lane user stack overflow",
    "device hardware stack overflow",
    "illegal instruction",
    "out-of-range address",
    "misaligned address",
    "invalid address space",
    "invalid program counter",
    "hardware stack overflow",
    "device illegal address",
    "lane misaligned address",
    "assertion failed",
    "error in a system call",
    "illegal address",
    "atomic operation across the system on memory that cannot move",
    "invalid atomic operation across the system",
    "address out of the cluster's range",
    "block of the cluster is not present",
    "overwritten stack canary",
    "tensor memory access check",
    "tensor memory leak",
    "call requires a newer driver",
];

/// The name of an exception; `None` for none.
pub(super) fn exception(code: u64) -> Option<String> {
    let position = code.checked_sub(1)?;
    let known = usize::try_from(position).ok().and_then(|position| EXCEPTIONS.get(position));
    Some(known.map_or_else(|| format!("exception {code}"), |known| (*known).to_owned()))
}

/// One element of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a>(pub(super) &'a [u8]);

impl Element<'_> {
    /// A field; `None` where the driver that wrote this had none.
    pub(super) fn get(&self, field: Field) -> Option<u64> {
        let bytes = self.0.get(field.offset..field.offset.checked_add(field.size)?)?;
        let mut word = [0; 8];
        word.get_mut(..field.size)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    /// The same of a field of four bytes.
    pub(super) fn word(&self, field: Field) -> Option<u32> {
        u32::try_from(self.get(field)?).ok()
    }

    /// Three of them.
    pub(super) fn three(&self, fields: [Field; 3]) -> Option<[u32; 3]> {
        let [x, y, z] = fields.map(|field| self.word(field));
        Some([x?, y?, z?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_only_where_the_element_has_it() {
        let old = [7u8; 104];
        assert_eq!(Element(&old).word(kernel::GRID[0]), Some(0x0707_0707));
        assert_eq!(Element(&old).word(kernel::CLUSTER[0]), None, "a driver before 525");
        assert!(kernel::CLUSTER[0].since > kernel::GRID[0].since);
        assert_eq!((exception(0), exception(14).as_deref()), (None, Some("illegal address")));
        assert_eq!(exception(99).as_deref(), Some("exception 99"));
    }
}

//! The ELF files that a process maps, with the sections that unwinding and naming need.
//!
//! In: mappings, file bytes and memory of a [`ProcessImage`]. Out: [`Modules`], looked up by address.

use crate::image::{Addr, FileBytes, ProcessImage};

/// One mapped ELF file.
#[derive(Debug, Clone)]
pub struct Module {
    /// File name without folders: `libc.so.6`.
    pub name: String,
    /// Path as the target sees it.
    pub path: String,
    /// What to add to an address in the file (a virtual address) to get the address in the process.
    pub bias: u64,
    /// Lowest address mapped.
    pub start: Addr,
    /// One past the highest address mapped.
    pub end: Addr,
    /// NT_GNU_BUILD_ID.
    pub build_id: Option<Vec<u8>>,
    /// The file's bytes; `None` where only memory is left (then symbols and CFI come from the dynamic segment).
    pub file: Option<FileBytes>,
}

/// All modules of a process, in order of address.
#[derive(Debug, Default)]
pub struct Modules {
    /// In order of `start`.
    pub list: Vec<Module>,
}

impl Modules {
    /// Find the ELF files among the mappings. Files are recognised by content, not by name.
    pub fn of(_image: &ProcessImage) -> Modules {
        Modules::default()
    }

    /// The module that holds `address`, by its position in `list`.
    pub fn at(&self, address: Addr) -> Option<usize> {
        let after = self.list.partition_point(|m| m.start <= address);
        (after > 0 && address < self.list[after - 1].end).then(|| after - 1)
    }
}

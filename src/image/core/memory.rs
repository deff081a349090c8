//! Memory of a dead process: what the core stores, and over it the files that were mapped and not dumped.
//!
//! In: an address. Out: bytes, or a fault that says whether the core lacks them. A file's bytes are used only where
//! nothing can have changed them: see [`CoreMemory::file_bytes`].

use std::sync::Arc;

use object::LittleEndian;
use object::elf;
use object::read::elf::ProgramHeader;

use super::elf::CoreFile;
use super::files::{CoreFiles, Found};
use crate::image::{Addr, Fault, Mapping, Memory};
use crate::memory::copy_into;

/// [`Memory`] of a core.
#[derive(Debug)]
pub(super) struct CoreMemory {
    core: Arc<CoreFile>,
    files: Arc<CoreFiles>,
    mappings: Vec<Mapping>,
    /// Whether the core has what the process changed. Otherwise a page that is missing may have been written to.
    has_changes: bool,
}

impl CoreMemory {
    pub(super) fn new(core: Arc<CoreFile>, files: Arc<CoreFiles>, mappings: Vec<Mapping>, has_changes: bool) -> Self {
        CoreMemory { core, files, mappings, has_changes }
    }

    /// Bytes of the file behind a private mapping. A page of it that was written to is the process's own and dumped
    /// with the others, if such pages are dumped at all; if not, only what cannot be written to is believed, and
    /// not what the loader relocated before it took the right to write away.
    fn file_bytes(&self, mapping: &Mapping, address: Addr, buffer: &mut [u8]) -> Option<usize> {
        if mapping.shared || !mapping.is_file() || mapping.deleted {
            return None;
        }
        let path = mapping.path.as_deref()?;
        let (Found::Same(bytes) | Found::Unchecked(bytes)) = self.files.find(path) else { return None };
        let offset = mapping.offset.checked_add(address - mapping.start)?;
        if !self.has_changes {
            let constant = self.files.segments(path).iter().any(|segment| {
                segment.p_type(LittleEndian) == elf::PT_LOAD
                    && !segment.p_flags(LittleEndian).contains(elf::PF_W)
                    && Addr(offset).within(Addr(segment.p_offset(LittleEndian)), segment.p_filesz(LittleEndian))
            });
            if mapping.write || !constant {
                return None;
            }
        }
        let rest = bytes.get(usize::try_from(offset).ok()?..)?;
        let mapped = rest.len().min(usize::try_from(mapping.end - address).ok()?);
        let length = copy_into(buffer, rest.get(..mapped)?);
        (length > 0).then_some(length)
    }
}

impl Memory for CoreMemory {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let stored = self.core.read(address, buffer);
        if stored > 0 {
            return Ok(stored);
        }
        match Mapping::of(&self.mappings, address) {
            None => Err(Fault::Unmapped(address)),
            Some(mapping) => self.file_bytes(mapping, address, buffer).ok_or(Fault::NotCaptured(address)),
        }
    }
}

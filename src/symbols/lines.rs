//! Source lines and inlined calls, from DWARF.
//!
//! In: the bytes of a module or of its debug file. Out: source positions of an address in the file's own numbering.

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use super::SourceFrame;
use super::demangle::demangle;
use crate::image::FileBytes;

type Slice = EndianSlice<'static, LittleEndian>;

/// The line tables of a module.
pub(crate) struct Lines {
    context: Context<Slice>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

/// Inlining deeper than this is not followed.
const DEEPEST_INLINING: usize = 64;

impl Lines {
    /// `None` for a file without debug information.
    pub(crate) fn load(bytes: &FileBytes) -> Option<Lines> {
        // addr2line keeps slices into the sections for as long as it lives, and so does the module that owns it,
        // which a run of lockscope needs to its end: the mapping is kept for good instead of copying what can be
        // hundreds of megabytes.
        let bytes: &'static [u8] = Box::leak(Box::new(bytes.clone()));
        let file = ElfFile64::<object::LittleEndian>::parse(bytes).ok()?;
        file.section_by_name(".debug_line")?;
        file.section_by_name(".debug_info")?;
        let section = |id: SectionId| -> Result<Slice, gimli::Error> {
            let data = file.section_by_name(id.name()).and_then(|s| s.uncompressed_data().ok());
            let data: &'static [u8] = match data {
                Some(std::borrow::Cow::Borrowed(data)) => data,
                Some(std::borrow::Cow::Owned(data)) => Vec::leak(data),
                None => &[],
            };
            Ok(EndianSlice::new(data, LittleEndian))
        };
        let dwarf = Dwarf::load(section).ok()?;
        Some(Lines { context: Context::from_dwarf(dwarf).ok()? })
    }

    /// Source positions, innermost inlined call first.
    pub(crate) fn source(&self, address: u64) -> Vec<SourceFrame> {
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut found = Vec::new();
        while found.len() < DEEPEST_INLINING {
            let Ok(Some(frame)) = frames.next() else { break };
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok().map(|n| demangle(&n)));
            let (file, line) = match &frame.location {
                Some(location) => (location.file.map(str::to_string), location.line),
                None => (None, None),
            };
            found.push(SourceFrame { function: name, file, line, inlined: true });
        }
        // The last one is the function that the code belongs to; the others were inlined into it.
        if let Some(last) = found.last_mut() {
            last.inlined = false;
        }
        found
    }
}

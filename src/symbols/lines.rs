//! Source lines and inlined calls, from DWARF.
//!
//! In: the bytes of a module or of its debug file. Out: source positions of an address in the file's own numbering.

use std::borrow::Cow;
use std::collections::BTreeMap;

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};
use self_cell::self_cell;

use super::SourceFrame;
use super::demangle::demangle;
use crate::image::FileBytes;

/// The file, and its sections that had to be unpacked.
struct Sections {
    file: FileBytes,
    unpacked: BTreeMap<&'static str, Vec<u8>>,
}

type Tables<'a> = Context<EndianSlice<'a, LittleEndian>>;

self_cell!(
    /// addr2line keeps slices into the sections: copying them would cost hundreds of megabytes.
    struct Parsed {
        owner: Sections,
        #[not_covariant]
        dependent: Tables,
    }
);

/// The line tables of a module.
pub(crate) struct Lines(Parsed);

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

/// Inlining deeper than this is not followed.
const DEEPEST_INLINING: usize = 64;

impl Sections {
    /// `None` for a file without debug information.
    fn of(file: &FileBytes) -> Option<Sections> {
        let parsed = ElfFile64::<object::LittleEndian>::parse(&**file).ok()?;
        parsed.section_by_name(".debug_line")?;
        parsed.section_by_name(".debug_info")?;
        let mut unpacked = BTreeMap::new();
        // The loader asks for each section that there may be; nothing is parsed yet.
        let _ = Dwarf::load(|id: SectionId| -> Result<(), ()> {
            let data = parsed.section_by_name(id.name()).and_then(|section| section.uncompressed_data().ok());
            if let Some(Cow::Owned(data)) = data {
                unpacked.insert(id.name(), data);
            }
            Ok(())
        });
        Some(Sections { file: file.clone(), unpacked })
    }

    fn tables(&self) -> Option<Tables<'_>> {
        let parsed = ElfFile64::<object::LittleEndian>::parse(&*self.file).ok()?;
        let section = |id: SectionId| -> Result<EndianSlice<'_, LittleEndian>, ()> {
            let plain = || match parsed.section_by_name(id.name())?.uncompressed_data().ok()? {
                Cow::Borrowed(data) => Some(data),
                Cow::Owned(_) => None,
            };
            let data = self.unpacked.get(id.name()).map(Vec::as_slice).or_else(plain).unwrap_or_default();
            Ok(EndianSlice::new(data, LittleEndian))
        };
        Context::from_dwarf(Dwarf::load(section).ok()?).ok()
    }
}

impl Lines {
    /// `None` for a file without debug information.
    pub(crate) fn load(bytes: &FileBytes) -> Option<Lines> {
        let sections = Sections::of(bytes)?;
        Parsed::try_new(sections, |sections| sections.tables().ok_or(())).ok().map(Lines)
    }

    /// Source positions, innermost inlined call first.
    pub(crate) fn source(&self, address: u64) -> Vec<SourceFrame> {
        self.0.with_dependent(|_, tables| frames(tables, address))
    }
}

fn frames(tables: &Tables<'_>, address: u64) -> Vec<SourceFrame> {
    let Ok(mut frames) = tables.find_frames(address).skip_all_loads() else { return Vec::new() };
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

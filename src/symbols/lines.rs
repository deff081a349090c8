//! Source lines and inlined calls, from DWARF.
//!
//! In: the bytes of a module or of its debug file. Out: source positions of an address in the file's own numbering.

use std::borrow::Cow;
use std::collections::BTreeMap;

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Object, ObjectSection};
use self_cell::self_cell;

use super::SourceFrame;
use super::demangle::demangle;
use crate::image::{FileBytes, budget};
use crate::limits;
use crate::limits::symbols::{DEEPEST_INLINING, LARGEST_LINE_PROGRAM, LARGEST_UNIT, MOST_RANGES, MOST_UNITS};

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

impl Sections {
    /// `None` for a file without debug information.
    fn of(file: &FileBytes) -> Option<Sections> {
        let parsed = ElfFile64::<object::LittleEndian>::parse(&**file).ok()?;
        parsed.section_by_name(".debug_line")?;
        parsed.section_by_name(".debug_info")?;
        let mut unpacked = BTreeMap::new();
        // The loader asks for each section that there may be; nothing is parsed yet.
        let loaded = Dwarf::load(|id: SectionId| -> Result<(), ()> {
            let Some(section) = parsed.section_by_name(id.name()) else { return Ok(()) };
            let Some(size) = section.compressed_data().ok().filter(|data| data.format != CompressionFormat::None)
            else {
                return Ok(());
            };
            let size = size.uncompressed_size;
            // What it announces is asked for before anything is unpacked.
            if !budget::take(size, || format!("debug information that is packed ({})", id.name())) {
                return Err(());
            }
            if let Ok(Cow::Owned(data)) = section.uncompressed_data() {
                unpacked.insert(id.name(), data);
            }
            Ok(())
        });
        loaded.ok()?;
        let sections = Sections { file: file.clone(), unpacked };
        let fits = sections.with_section(".debug_info", |data| units_fit(data, LARGEST_UNIT))?
            && sections.with_section(".debug_line", |data| units_fit(data, LARGEST_LINE_PROGRAM))?;
        if !fits {
            // What it says of itself stands for what parsing it would take.
            budget::take(u64::MAX, || "source lines of a file whose debug information is out of all proportion".into());
            return None;
        }
        Some(sections)
    }

    /// Ask something of a section, unpacked or not.
    fn with_section<T>(&self, name: &'static str, ask: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if let Some(data) = self.unpacked.get(name) {
            return Some(ask(data));
        }
        let parsed = ElfFile64::<object::LittleEndian>::parse(&*self.file).ok()?;
        let data = parsed.section_by_name(name)?.data().ok()?;
        Some(ask(data))
    }

    fn tables(&self) -> Option<Tables<'_>> {
        let dwarf = self.dwarf()?;
        // Thousands of units may name the same list of ranges, and each gets a copy of it. Of most files the sizes of the sections
        // say that there cannot be so many: an entry has three bytes (DWARF 5, section 7.25) or two addresses, a unit has eleven.
        let size = |name| self.with_section(name, |data| data.len() as u64).unwrap_or(0);
        let longest = size(".debug_rnglists") / 3 + size(".debug_ranges") / 16;
        let may_share = longest.saturating_mul(size(".debug_info") / 11) > MOST_RANGES as u64;
        if may_share && !ranges_fit(&dwarf, MOST_RANGES) {
            budget::take(u64::MAX, || {
                "source lines of a file whose units share their ranges out of all proportion".into()
            });
            return None;
        }
        Context::from_dwarf(dwarf).ok()
    }

    fn dwarf(&self) -> Option<Dwarf<EndianSlice<'_, LittleEndian>>> {
        let parsed = ElfFile64::<object::LittleEndian>::parse(&*self.file).ok()?;
        let section = |id: SectionId| -> Result<EndianSlice<'_, LittleEndian>, ()> {
            let plain = || {
                let data = parsed.section_by_name(id.name())?.compressed_data().ok()?;
                (data.format == CompressionFormat::None).then_some(data.data)
            };
            let data = self.unpacked.get(id.name()).map(Vec::as_slice).or_else(plain).unwrap_or_default();
            Ok(EndianSlice::new(data, LittleEndian))
        };
        Dwarf::load(section).ok()
    }
}

/// Whether the units of .debug_info or .debug_line are so few and so small that parsing them takes a bounded room: a unit is parsed
/// as a whole, into up to thirty times its size.
fn units_fit(section: &[u8], largest: u64) -> bool {
    let mut rest = section;
    for _ in 0..MOST_UNITS {
        let Some((word, behind)) = rest.split_first_chunk::<4>() else { return true };
        let (length, behind) = match u32::from_le_bytes(*word) {
            // 64-bit DWARF: the length follows (DWARF 5, section 7.4).
            u32::MAX => match behind.split_first_chunk::<8>() {
                Some((length, behind)) => (u64::from_le_bytes(*length), behind),
                None => return true,
            },
            length => (u64::from(length), behind),
        };
        // One that ends outside of the section is not parsed.
        let Some(next) = usize::try_from(length).ok().and_then(|length| behind.get(length..)) else { return true };
        if length > largest {
            return false;
        }
        rest = next;
    }
    rest.is_empty()
}

/// Whether all units together have no more than `most` ranges of addresses.
fn ranges_fit(dwarf: &Dwarf<EndianSlice<'_, LittleEndian>>, most: usize) -> bool {
    let mut left = most;
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { continue };
        while let Ok(Some(_)) = ranges.next() {
            match left.checked_sub(1) {
                Some(fewer) => left = fewer,
                None => return false,
            }
        }
    }
    true
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
    while let Ok(Some(frame)) = frames.next() {
        if found.len() >= DEEPEST_INLINING {
            limits::met(DEEPEST_INLINING, "functions that are inlined into each other", "of one place");
            break;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of a few bytes that all name the same list of ranges.
    fn shared(units: usize, ranges: usize) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        // A compile unit without children, with DW_AT_low_pc (DW_FORM_addr) and DW_AT_ranges (DW_FORM_sec_offset).
        let abbreviations = vec![1, 0x11, 0, 0x11, 0x01, 0x55, 0x17, 0, 0, 0];
        let unit = [&20u32.to_le_bytes()[..], &4u16.to_le_bytes(), &[0; 4], &[8, 1], &[0; 8], &[0; 4]].concat();
        let mut list: Vec<u8> =
            (1..=ranges as u64).flat_map(|at| [at * 16, at * 16 + 8]).flat_map(u64::to_le_bytes).collect();
        list.extend([0; 16]);
        (abbreviations, unit.repeat(units), list)
    }

    #[test]
    fn ranges_that_many_units_share_are_counted_for_each() {
        let (abbreviations, units, list) = shared(100, 50);
        let section = |id: SectionId| -> Result<EndianSlice<'_, LittleEndian>, ()> {
            let data: &[u8] = match id {
                SectionId::DebugAbbrev => &abbreviations,
                SectionId::DebugInfo => &units,
                SectionId::DebugRanges => &list,
                _ => &[],
            };
            Ok(EndianSlice::new(data, LittleEndian))
        };
        let dwarf = Dwarf::load(section).expect("sections");
        assert!(ranges_fit(&dwarf, 5000) && !ranges_fit(&dwarf, 4999));
    }

    #[test]
    fn circles_in_debug_information_come_to_an_end() {
        let seed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/elf/dwarf-loops");
        let bytes = FileBytes::new(std::fs::read(seed).expect("a file"));
        let file = ElfFile64::<object::LittleEndian>::parse(&*bytes).expect("an ELF file");
        let mut functions = file.dynamic_symbols().map(|symbol| object::ObjectSymbol::address(&symbol));
        let address = functions.find(|address| *address != 0).expect("a function");
        let lines = Lines::load(&bytes).expect("debug information");
        // Neither a stack without end nor a loop: whoever follows the names gives up.
        assert!(lines.source(address).len() <= DEEPEST_INLINING);
    }
}

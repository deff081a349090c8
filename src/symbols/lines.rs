//! Source lines and inlined calls, from DWARF.
//!
//! In: the bytes of a module or of its debug file. Out: source positions of an address in the file's own numbering.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId, UnitRef};
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Object, ObjectSection};
use self_cell::self_cell;

use super::SourceFrame;
use super::demangle::{demangle, shortened};
use super::paths::{LockPath, data_paths, lock_paths};
use super::proportion::{Functions, ranges_fit, units_fit};
use super::variables::{Variable, variables};
use crate::image::{FileBytes, budget};
use crate::limits;
use crate::limits::symbols::{DEEPEST_INLINING, LARGEST_LINE_PROGRAM, LARGEST_UNIT, MOST_RANGES, MOST_UNITS};

/// The file, and its sections that had to be unpacked.
struct Sections {
    file: FileBytes,
    unpacked: BTreeMap<&'static str, Vec<u8>>,
}

struct Tables<'a> {
    context: Context<EndianSlice<'a, LittleEndian>>,
    dwarf: Arc<Dwarf<EndianSlice<'a, LittleEndian>>>,
    /// Where functions may share their ranges as units may, or have many lines.
    functions: Option<Functions>,
    /// Paths to locks from the data of units, by the place of the unit.
    data: RefCell<BTreeMap<usize, Vec<LockPath>>>,
}

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
        // The loader requests each possible section; nothing is parsed yet.
        let loaded = Dwarf::load(|id: SectionId| -> Result<(), ()> {
            let Some(section) = parsed.section_by_name(id.name()) else { return Ok(()) };
            let Some(size) = section.compressed_data().ok().filter(|data| data.format != CompressionFormat::None)
            else {
                return Ok(());
            };
            let size = size.uncompressed_size;
            // The announced size is taken from the budget before any unpacking.
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
        let fits = sections.with_section(".debug_info", |data| units_fit(data, MOST_UNITS, LARGEST_UNIT))?
            && sections.with_section(".debug_line", |data| units_fit(data, MOST_UNITS, LARGEST_LINE_PROGRAM))?;
        if !fits {
            // The sizes that it claims stand for the cost of parsing it.
            budget::take(u64::MAX, || "source lines of a file whose debug information is out of all proportion".into());
            return None;
        }
        Some(sections)
    }

    /// Read a section, unpacked or not.
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
        // Thousands of units may name the same list of ranges, and each gets a copy of it.
        if !ranges_fit(&dwarf, MOST_RANGES) {
            budget::take(u64::MAX, || {
                "source lines of a file whose units share their ranges out of all proportion".into()
            });
            return None;
        }
        let functions = Functions::to_ask(&dwarf, MOST_RANGES);
        if functions.as_ref().is_some_and(|functions| !functions.fit_anywhere(&dwarf)) {
            return None;
        }
        let dwarf = Arc::new(dwarf);
        let context = Context::from_arc_dwarf(dwarf.clone()).ok()?;
        Some(Tables { context, dwarf, functions, data: RefCell::default() })
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

    /// Guards and locks among the variables there.
    pub(crate) fn variables(&self, address: u64) -> Vec<Variable> {
        self.0.with_dependent(|_, tables| tables.of_unit(address, variables))
    }

    /// Paths to locks from the variables there.
    pub(crate) fn lock_paths(&self, address: u64) -> Vec<LockPath> {
        self.0.with_dependent(|_, tables| tables.of_unit(address, lock_paths))
    }

    /// Paths to locks from the data of the unit there.
    pub(crate) fn data_paths(&self, address: u64) -> Vec<LockPath> {
        self.0.with_dependent(|_, tables| {
            tables.of_unit(address, |unit, address| {
                let at = unit.unit.header.debug_info_offset().map_or(usize::MAX, |offset| offset.0);
                let known = tables.data.borrow().get(&at).cloned();
                known.unwrap_or_else(|| {
                    let found = data_paths(unit, address);
                    tables.data.borrow_mut().insert(at, found.clone());
                    found
                })
            })
        })
    }
}

impl<'a> Tables<'a> {
    /// The answer of the unit that an address is in.
    fn of_unit<T>(
        &self,
        address: u64,
        ask: impl FnOnce(UnitRef<'_, EndianSlice<'a, LittleEndian>>, u64) -> Vec<T>,
    ) -> Vec<T> {
        if !self.fit_at(address) {
            return Vec::new();
        }
        let unit = self.context.find_dwarf_and_unit(address).skip_all_loads();
        unit.map(|unit| ask(unit, address)).unwrap_or_default()
    }

    /// Whether the units there can be parsed in a bounded room; told where they cannot.
    fn fit_at(&self, address: u64) -> bool {
        self.functions.as_ref().is_none_or(|functions| functions.fit_at(&self.dwarf, address))
    }
}

fn frames(tables: &Tables<'_>, address: u64) -> Vec<SourceFrame> {
    if !tables.fit_at(address) {
        return Vec::new();
    }
    let Ok(mut frames) = tables.context.find_frames(address).skip_all_loads() else { return Vec::new() };
    let mut found = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        if found.len() >= DEEPEST_INLINING {
            limits::met(DEEPEST_INLINING, "functions that are inlined into each other", "of one place");
            break;
        }
        let name = frame.function.as_ref().and_then(|f| f.raw_name().ok().map(|n| demangle(&n).into()));
        let (file, line) = match &frame.location {
            Some(location) => (location.file.map(|file| Arc::from(shortened(file))), location.line),
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

    #[test]
    fn circles_in_debug_information_come_to_an_end() {
        let seed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/elf/dwarf-loops");
        let bytes = FileBytes::new(std::fs::read(seed).expect("a file"));
        let file = ElfFile64::<object::LittleEndian>::parse(&*bytes).expect("an ELF file");
        let mut functions = file.dynamic_symbols().map(|symbol| object::ObjectSymbol::address(&symbol));
        let address = functions.find(|address| *address != 0).expect("a function");
        let lines = Lines::load(&bytes).expect("debug information");
        // Neither a stack without end nor a loop: the search for names gives up.
        assert!(lines.source(address).len() <= DEEPEST_INLINING);
    }

    #[test]
    fn addr2line_panics_where_a_file_is_rewritten_under_it() {
        // If it does not any more, `asked_of` may go.
        let seed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/elf/two-functions");
        let original = std::fs::read(seed).expect("a file");
        let library = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(library.path(), &original).expect("written");
        let bytes = FileBytes::new(crate::sys::map_file(library.as_file()).expect("mapped"));
        let file = ElfFile64::<object::LittleEndian>::parse(&*original).expect("an ELF file");
        let address = |name: &str| file.symbol_by_name(name).map(|symbol| object::ObjectSymbol::address(&symbol));
        let lines = Lines::load(&bytes).expect("debug information");
        assert_eq!(lines.source(address("first").expect("a function"))[0].line, Some(1));
        let section = file.section_by_name(".debug_info").and_then(|section| section.file_range()).expect("a section");
        let zeros = vec![0; usize::try_from(section.1).expect("a size")];
        std::os::unix::fs::FileExt::write_all_at(library.as_file(), &zeros, section.0).expect("written");
        assert!(limits::without_panic(|| lines.source(address("second").expect("a function"))).is_none());
    }
}

//! Symbol tables of one module: .symtab, .dynsym, .gnu_debugdata and the separate debug file's, in one sorted list.
//!
//! In: file bytes. Out: the symbol that covers an address. Names stay in the file; only requested ones are read, copied
//! and demangled. Finding the ends of all took half of the time, and read as much again from the disk.

use std::collections::HashMap;

use object::read::elf::{ElfFile64, ElfSymbol64, SectionHeader, Sym, SymbolTable};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SymbolIndex, SymbolKind,
    elf,
};

use super::Symbol;
use super::demangle::{Mangling, demangle};
use crate::image::{Addr, FileBytes, budget};
use crate::limits::symbols::{LARGEST_DEBUGDATA, LONGEST_SYMBOL, MOST_SYMBOLS, NESTED_SYMBOLS};
use crate::limits::{self, Bounded};

/// The object of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Function,
    Data,
}

#[derive(Debug, Clone)]
struct Entry {
    /// In the file's own numbering.
    address: u64,
    size: u64,
    kind: Kind,
    is_local: bool,
    source: u8,
    /// Where its name begins in the file.
    name: u32,
    /// In the order in which they were read.
    number: u32,
}

/// All symbols of a module, in order of address.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    sources: Vec<FileBytes>,
    /// The longest function and object: how far back a covering symbol may start.
    longest: u64,
}

impl Table {
    /// Collect from the module's own file and from its debug file, where there is one.
    pub(crate) fn collect(file: Option<&FileBytes>, debug: Option<&FileBytes>) -> Table {
        let mut table = Table::default();
        for bytes in [debug, file].into_iter().flatten() {
            table.add(bytes);
        }
        if let Some(inner) = file.and_then(debugdata) {
            table.add(&inner);
        }
        table.entries.sort_unstable_by_key(|e| (e.address, e.number));
        table.longest = table.entries.iter().map(|e| e.size).max().unwrap_or(0).min(1 << 30);
        table
    }

    fn add(&mut self, bytes: &FileBytes) {
        let Ok(source) = u8::try_from(self.sources.len()) else { return };
        let Ok(file) = ElfFile64::<LittleEndian>::parse(&**bytes) else { return };
        self.sources.push(bytes.clone());
        let of_file = names_of(&file, file.elf_symbol_table());
        let of_linker = names_of(&file, file.elf_dynamic_symbol_table());
        let all = file.symbols().map(|symbol| (of_file, symbol));
        let all = all.chain(file.dynamic_symbols().map(|symbol| (of_linker, symbol)));
        for (names, symbol) in all.bounded(MOST_SYMBOLS, || "symbols of a large file".into(), "symbols") {
            let kind = match symbol.kind() {
                SymbolKind::Text => Kind::Function,
                SymbolKind::Data => Kind::Data,
                _ => continue,
            };
            let name = names.and_then(|names| place_of_name(names, &symbol));
            let Some(name) = name.and_then(|name| u32::try_from(name).ok()).filter(|_| !symbol.is_undefined()) else {
                continue;
            };
            if !budget::make_room(&mut self.entries, || "a part of the symbols of a large file".into()) {
                return;
            }
            let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
            let (address, size, is_local) = (symbol.address(), symbol.size(), symbol.is_local());
            self.entries.push(Entry { address, size, kind, is_local, source, name, number });
        }
    }

    /// The function that covers `address`.
    pub(crate) fn function(&self, address: u64) -> Option<Symbol> {
        self.covering(address, Kind::Function)
    }

    /// Whether a function begins at `address`.
    pub(crate) fn begins_function(&self, address: u64) -> bool {
        let first = self.entries.partition_point(|entry| entry.address < address);
        let here = self.entries.iter().skip(first).take_while(|entry| entry.address == address);
        here.take(NESTED_SYMBOLS).any(|entry| entry.kind == Kind::Function)
    }

    /// The data object that covers `address`.
    pub(crate) fn object(&self, address: u64) -> Option<Symbol> {
        self.covering(address, Kind::Data)
    }

    fn covering(&self, address: u64, kind: Kind) -> Option<Symbol> {
        let after = self.entries.partition_point(|e| e.address <= address);
        // Symbols nest (a hot part inside a whole), so the nearest start need not cover: go back a bounded way.
        let mut best: Option<(&Entry, u8)> = None;
        for entry in self.entries.iter().take(after).rev().take(NESTED_SYMBOLS) {
            if address - entry.address > self.longest {
                break;
            }
            if let Some((found, _)) = best
                && entry.address < found.address
            {
                break;
            }
            let covers = address - entry.address < entry.size || (entry.size == 0 && entry.address == address);
            if entry.kind != kind || !covers {
                continue;
            }
            let name = self.raw_name(entry);
            let rank = rank(name, entry.is_local);
            if !name.is_empty() && best.is_none_or(|(_, least)| rank <= least) {
                best = Some((entry, rank));
            }
        }
        best.map(|(entry, _)| self.symbol(entry))
    }

    /// The symbol of exactly this name.
    pub(crate) fn find(&self, name: &str) -> Option<Symbol> {
        self.entries.iter().find(|e| self.raw_name(e) == name.as_bytes()).map(|e| self.symbol(e))
    }

    fn raw_name(&self, entry: &Entry) -> &[u8] {
        let source = self.sources.get(usize::from(entry.source));
        source.map(|source| name_at(source, u64::from(entry.name))).unwrap_or_default()
    }

    fn symbol(&self, entry: &Entry) -> Symbol {
        let name = String::from_utf8_lossy(self.raw_name(entry));
        let plain = name.split('@').next().unwrap_or(&name);
        let mangling = Mangling::of(plain);
        Symbol { name: demangle(plain).into(), address: Addr(entry.address), size: entry.size, mangling }
    }
}

/// Finds one name among a file's dynamic symbols without making a table. Returns the address and size of a defined symbol, and zeros
/// for an imported one.
pub(crate) fn find_dynamic(bytes: &[u8], name: &str, is_imported: bool) -> Option<(u64, u64)> {
    let file = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
    let names = names_of(&file, file.elf_dynamic_symbol_table())?;
    let is_it = |symbol: &ElfSymbol64<'_, '_, LittleEndian>| {
        let place = place_of_name(names, symbol).and_then(|place| usize::try_from(place).ok());
        let rest = place.and_then(|place| bytes.get(place..)).and_then(|rest| rest.strip_prefix(name.as_bytes()));
        symbol.is_undefined() == is_imported && rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let symbol = counted(file.dynamic_symbols().take(MOST_SYMBOLS), is_it)?;
    Some((symbol.address(), symbol.size()))
}

/// The first that is meant, of a table which the look may go over.
fn counted<Item>(mut all: impl Iterator<Item = Item>, mut is_it: impl FnMut(&Item) -> bool) -> Option<Item> {
    const STEPS: u64 = 10;
    if !budget::may_go_over(|| "names of further symbols in the tables of files".into()) {
        return None;
    }
    let mut steps = 0;
    let found = all.find(|item| {
        steps += STEPS;
        is_it(item)
    });
    budget::went_over(steps);
    found
}

/// Where in a file the names of a symbol table begin.
fn names_of(
    file: &ElfFile64<'_, LittleEndian>,
    table: &SymbolTable<'_, elf::FileHeader64<LittleEndian>>,
) -> Option<u64> {
    let section = file.elf_section_table().section(table.string_section()).ok()?;
    (section.sh_type(LittleEndian) == elf::SHT_STRTAB).then(|| section.sh_offset(LittleEndian))
}

/// Where in the file a symbol's name begins, whose table has its names from `names` on; the first of these is no name.
fn place_of_name(names: u64, symbol: &ElfSymbol64<'_, '_, LittleEndian>) -> Option<u64> {
    let place = names.checked_add(u64::from(symbol.elf_symbol().st_name(LittleEndian)))?;
    (place > names).then_some(place)
}

/// The bytes up to a zero byte at an offset of a file; empty where no name is as long as that.
fn name_at(bytes: &[u8], place: u64) -> &[u8] {
    let rest = usize::try_from(place).ok().and_then(|place| bytes.get(place..)).unwrap_or_default();
    let rest = rest.get(..LONGEST_SYMBOL.min(rest.len())).unwrap_or_default();
    memchr::memchr(0, rest).and_then(|length| rest.get(..length)).unwrap_or_default()
}

/// The places to which the dynamic linker writes the address of a symbol, and which symbol that is.
pub(crate) fn slots(bytes: &[u8]) -> HashMap<u64, SymbolIndex> {
    let mut slots = HashMap::new();
    let file = ElfFile64::<LittleEndian>::parse(bytes).ok();
    let Some(all) = file.as_ref().and_then(|file| file.dynamic_relocations()) else { return slots };
    counted(all.take(MOST_SYMBOLS), |(offset, relocation)| {
        if let RelocationTarget::Symbol(index) = relocation.target() {
            slots.insert(*offset, index);
        }
        false
    });
    slots
}

/// The name of a dynamic symbol.
pub(crate) fn dynamic_name(bytes: &[u8], index: SymbolIndex) -> Option<String> {
    let file = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
    let name = file.dynamic_symbol_table()?.symbol_by_index(index).ok()?.name().ok()?.to_owned();
    Some(name).filter(|name| !name.is_empty())
}

/// Public names before private ones: `pthread_mutex_lock` stands beside `__pthread_mutex_lock` at one address.
fn rank(name: &[u8], local: bool) -> u8 {
    let underscores = name.iter().take_while(|b| **b == b'_').count();
    let underscores = u8::try_from(underscores).map_or(7, |count| count.min(7));
    // Mangled names begin with one underscore as well; they have no plainer alias.
    let underscores = if name.starts_with(b"_Z") || name.starts_with(b"_R") { 0 } else { underscores };
    underscores + if local { 8 } else { 0 }
}

/// The symbols that Fedora and its kin leave in stripped files: an xz-compressed ELF file.
fn debugdata(bytes: &FileBytes) -> Option<FileBytes> {
    let file = ElfFile64::<LittleEndian>::parse(&**bytes).ok()?;
    let packed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
    if packed.len() > LARGEST_DEBUGDATA {
        limits::met(LARGEST_DEBUGDATA, "symbols in .gnu_debugdata of a file", "bytes of it");
        return None;
    }
    let mut unpacked = Limited { bytes: Vec::new() };
    lzma_rs::xz_decompress(&mut &packed[..], &mut unpacked).ok()?;
    Some(FileBytes::new(unpacked.bytes))
}

/// A buffer that refuses to grow without end: a few hundred bytes can unpack to gigabytes.
struct Limited {
    bytes: Vec<u8>,
}

impl std::io::Write for Limited {
    fn write(&mut self, more: &[u8]) -> std::io::Result<usize> {
        // The decoder keeps as much again.
        let cost = 2 * more.len() as u64;
        let fits = self.bytes.len() + more.len() <= 2 * LARGEST_DEBUGDATA;
        if !fits {
            limits::met(2 * LARGEST_DEBUGDATA, "symbols in .gnu_debugdata of a file", "bytes that it unpacks to");
        }
        if !fits || !budget::take(cost, || "the symbols in .gnu_debugdata of a file".into()) {
            return Err(std::io::Error::other("unpacks to too much"));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

//! A module's code in a GPU core: functions by address, and their lines.
//!
//! In: the bytes of an ELF file for GPUs (a cubin) that is relocated to its addresses on the device. Out: [`ModuleImage`]. Functions
//! that were not loaded yet stand at address 0, and are no functions here.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::lines::{Lines, SourceLine};
use crate::image::budget;
use crate::limits;
use crate::limits::gpu::MOST_FUNCTIONS;

/// One function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) symbol: String,
}

/// The functions of a module.
#[derive(Debug, Default)]
pub(super) struct ModuleImage {
    functions: Vec<Function>,
    lines: Lines,
}

impl ModuleImage {
    /// From the file's bytes; `None` where they are no ELF file.
    pub(super) fn parse(bytes: &[u8]) -> Option<ModuleImage> {
        let file = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
        let mut functions = Vec::new();
        for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() > 0) {
            let Ok(name) = symbol.name() else { continue };
            if functions.len() >= MOST_FUNCTIONS {
                limits::met(MOST_FUNCTIONS, "functions of a module of the GPU", "of one module");
                break;
            }
            if !budget::take((size_of::<Function>() + name.len()) as u64, || "functions of a GPU core".into()) {
                break;
            }
            functions.push(Function { start: symbol.address(), size: symbol.size(), symbol: name.to_owned() });
        }
        functions.sort_by_key(|function| function.start);
        let section = |name| file.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default();
        let lines = Lines::parse(section(".debug_line"), section(".debug_str"));
        Some(ModuleImage { functions, lines })
    }

    /// The function with this address in it.
    pub(super) fn function(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let found = self.functions.get(..after)?.last()?;
        (address - found.start < found.size.max(1)).then_some(found)
    }

    /// The source lines of an address, the innermost inlined call first.
    pub(super) fn lines(&self, address: u64) -> Vec<SourceLine> {
        self.lines.of(address)
    }
}

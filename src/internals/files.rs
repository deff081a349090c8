//! Doors for checks of whole files of any machine: what is known of the functions that a library exports.
//!
//! In: the bytes of an ELF file, which nothing maps. Out: which of its functions have no name, and from which of its instructions no
//! way leads to the caller. It judges nothing.

use std::sync::Arc;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind, elf};

use crate::arch::Architecture;
use crate::image::{Addr, Fault, FileBytes, Files, Mapping, Memory, ProcessImage, RegisterSet, Registers, ThreadImage};
use crate::modules::Modules;
use crate::symbols::{Symbols, Tables};
use crate::unwind::{self, StackEnd};

/// Where the file is mapped, where its threads have their stacks, and where all their functions return to.
const BASE: u64 = 0x10_0000_0000;
const STACK: u64 = 0x20_0000_0000;
const STACK_SIZE: u64 = 1 << 32;
const RETURN: u64 = 0x30_0000_0000;
const PAGE: u64 = 0x10000;

/// The facts about the functions that a file exports.
#[derive(Debug, Default)]
pub struct Exported {
    /// How many there are.
    pub functions: usize,
    /// Those that have another name than one of their own, or none.
    pub nameless: Vec<String>,
    /// At how many instructions of theirs a thread was put.
    pub places: usize,
    /// From how many of these its caller is found by call frame information, and is right.
    pub unwound: usize,
    /// Where the file has no call frame information at all, as for some code that was written in assembly.
    pub bare: usize,
    /// Where it has, and the caller is not found: the function, how far inside, and what is found instead.
    pub lost: Vec<String>,
}

/// Check every exported function of an ELF file, and in each up to `most` instructions that stand evenly apart, the
/// first among them. In all functions together it checks about `in_all`, but at least one in each. `None` if it is no
/// ELF file of a machine that lockscope knows.
pub fn exported(bytes: Vec<u8>, most: usize, in_all: usize) -> Option<Exported> {
    let elf = ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let architecture = Architecture::of_elf(elf.elf_header().e_machine.get(elf.endian()).0).ok()?;
    let mut functions: Vec<Function> = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?.to_owned())))
        .collect();
    functions.sort();
    let most = most.min(in_all / functions.len().max(1)).max(1);
    let segments = segments(&elf);
    let file = Mapped { bytes: FileBytes::new(bytes), segments };
    let image = file.image(architecture, Vec::new());
    let modules = Modules::of(&image);
    let tables = Tables::of(&modules);
    let symbols = Symbols::new(&modules, &tables, &image);
    let mut found = Exported::default();
    for group in functions.chunk_by(|one, other| one.0 == other.0) {
        let Some((start, size, name)) = group.first() else { continue };
        let start = Addr(BASE + start);
        found.functions += 1;
        let symbol = symbols.function(start);
        // A mangled symbol gets another name.
        let is_one =
            |named: &str| name.starts_with("_Z") || group.iter().any(|one| one.2.split('@').next() == Some(named));
        if !symbol.as_ref().is_some_and(|symbol| symbol.address == start && is_one(&symbol.name)) {
            found.nameless.push(format!("{name}: {:?}", symbol.map(|symbol| symbol.name)));
        }
        let mut code = vec![0; usize::try_from(*size).unwrap_or(0)];
        let read = image.memory.read(start, &mut code).unwrap_or(0);
        let places: Vec<Addr> = architecture.decoder(code.get(..read)?, start).map(|one| one.address).collect();
        let apart = places.len().div_ceil(most).max(1);
        let threads = places.iter().step_by(apart).map(|at| thread(architecture, *at)).collect();
        let image = file.image(architecture, threads);
        for (stack, at) in unwind::stacks(&image, &modules).into_iter().zip(places.iter().step_by(apart)) {
            found.places += 1;
            let caller = stack.frames.get(1);
            if caller.is_some_and(|frame| frame.pc == Addr(RETURN) && frame.trust.is_certain()) {
                found.unwound += 1;
            } else if caller.is_none() && stack.end == StackEnd::NoRule(*at) {
                found.bare += 1;
            } else {
                let what = caller.map(|frame| (frame.pc, frame.trust));
                found.lost.push(format!("{name}+{:#x}: {what:?}, {}", *at - start, stack.end));
            }
        }
    }
    Some(found)
}

/// Address in the file, size, name.
type Function = (u64, u64, String);

/// A part of the file: its address, its place in the file, its size, and whether it is code.
type Segment = (u64, u64, u64, bool);

fn segments(elf: &ElfFile64<'_, Endianness>) -> Vec<Segment> {
    let endian = elf.endian();
    let loads = elf.elf_program_headers().iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    let one = |segment: &elf::ProgramHeader64<Endianness>| {
        let is_code = segment.p_flags(endian).contains(elf::PF_X);
        (segment.p_vaddr(endian), segment.p_offset(endian), segment.p_filesz(endian), is_code)
    };
    loads.map(one).collect()
}

/// A thread before the instruction at `at`. Every word of its stack is where it returns to, and every register that a function may use
/// for that address.
fn thread(architecture: Architecture, at: Addr) -> ThreadImage {
    let mut general = RegisterSet::new(architecture);
    architecture.general_registers().for_each(|register| general.set(register, STACK));
    architecture
        .caller_saved()
        .iter()
        .copied()
        .chain(architecture.link())
        .for_each(|register| general.set(register, RETURN));
    general.set_pc(at);
    general.set_sp(Addr(STACK));
    let registers = Registers { general, system_call: -1, thread_pointer: Addr(0), descriptor: None };
    ThreadImage { registers: Some(registers), ..ThreadImage::new(1) }
}

/// The file as it would be mapped, and a stack.
#[derive(Debug, Clone)]
struct Mapped {
    bytes: FileBytes,
    segments: Vec<Segment>,
}

impl Mapped {
    fn image(&self, architecture: Architecture, threads: Vec<ThreadImage>) -> ProcessImage {
        let page = |value: u64| value & !(PAGE - 1);
        let mapping = |(address, offset, size, is_code): &Segment| Mapping {
            read: true,
            execute: *is_code,
            inode: 1,
            offset: page(*offset),
            path: Some("/library".to_owned()),
            ..Mapping::new(Addr(BASE + page(*address)), Addr(BASE + address + size))
        };
        ProcessImage {
            architecture,
            threads,
            mappings: self.segments.iter().map(mapping).collect(),
            memory: Arc::new(self.clone()),
            files: Arc::new(self.clone()),
            ..ProcessImage::unknown()
        }
    }
}

impl Memory for Mapped {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        // A function that keeps its data in a register finds these values at the address of the caller.
        if [STACK, RETURN].iter().any(|start| (*start..start + STACK_SIZE).contains(&address.0)) {
            let word = |at: u64| RETURN.to_le_bytes().get(at as usize % 8).copied().unwrap_or(0);
            buffer.iter_mut().zip(address.0..).for_each(|(byte, at)| *byte = word(at));
            return Ok(buffer.len());
        }
        let part = |(start, offset, size, _): &Segment| {
            let inside = address.0.checked_sub(BASE + start).filter(|inside| inside < size)?;
            let place = usize::try_from(offset + inside).ok()?;
            self.bytes.get(place..place.checked_add(usize::try_from(size - inside).ok()?)?)
        };
        let part = self.segments.iter().find_map(part).ok_or(Fault::Unmapped(address))?;
        Ok(part.iter().zip(buffer).map(|(from, to)| *to = *from).count())
    }
}

impl Files for Mapped {
    fn mapped(&self, _mapping: &Mapping) -> Option<FileBytes> {
        Some(self.bytes.clone())
    }

    fn debug_file(&self, _build_id: Option<&[u8]>, _link: Option<&str>, _module_path: &str) -> Option<FileBytes> {
        None
    }
}

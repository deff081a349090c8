//! The ELF files that a process maps, with the sections that unwinding and naming need.
//!
//! In: mappings, file bytes and memory of a [`ProcessImage`]. Out: [`Modules`], found by address. Only headers are
//! parsed here; the code that needs names makes symbol tables and line tables from these files.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub(crate) mod frame_index;

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use crate::arch::Architecture;
use crate::image::core::build_id;
use crate::image::{Addr, FileBytes, Mapping, MemoryExt, ProcessImage, saturated};
use crate::limits::unwind::{LARGEST_FROM_MEMORY, LARGEST_VDSO, MOST_HEADERS};
use crate::limits::{self, Bounded};
use crate::memory::copy_into;
use frame_index::FrameIndex;

/// One mapped ELF file.
#[derive(Debug)]
pub(crate) struct Module {
    /// File name without folders: `libc.so.6`.
    pub name: Arc<str>,
    /// Path as the target sees it.
    pub path: String,
    /// The number to add to an address in the file (a virtual address) to get the address in the process.
    pub bias: u64,
    /// Lowest address mapped.
    pub start: Addr,
    /// One past the highest address mapped.
    pub end: Addr,
    /// The machine that its code is for.
    pub(crate) architecture: Architecture,
    /// NT_GNU_BUILD_ID.
    pub build_id: Option<Vec<u8>>,
    /// The file's bytes, or, where only memory is left, what is mapped of it laid out as in the file.
    pub file: Option<FileBytes>,
    /// Where the sections for unwinding lie.
    pub(crate) frames: FrameSections,
    /// Frame descriptions by address, for files without .eh_frame_hdr.
    pub(crate) index: OnceCell<FrameIndex>,
}

/// A section: its address in the file's own numbering, and its place in the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Section {
    pub(crate) address: u64,
    pub(crate) range: Range<usize>,
}

/// Sections for unwinding.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrameSections {
    pub(crate) eh_frame_hdr: Option<Section>,
    pub(crate) eh_frame: Option<Section>,
    pub(crate) debug_frame: Option<Section>,
    pub(crate) text: u64,
    pub(crate) got: u64,
}

/// All modules of a process, in order of address.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// In order of `start`. One may lie in a hole of another: between the code and the data of a file that is laid out for pages of
    /// 64 KiB there is room, and kernels put their vDSO into that of the loader.
    pub list: Vec<Module>,
    /// For each in `list`, the highest end among it and those before it.
    reach: Vec<Addr>,
    /// The executable file mappings that they were made from.
    made_from: Vec<(Addr, u64)>,
}

/// A snapshot's data about a module; its file may not be at hand.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct RecordedModule {
    /// As in [`Module`].
    pub name: String,
    /// As in [`Module`].
    pub path: String,
    /// As in [`Module`].
    pub bias: u64,
    /// As in [`Module`].
    pub start: Addr,
    /// As in [`Module`].
    pub end: Addr,
    /// As in [`Module`].
    pub build_id: Option<Vec<u8>>,
}

impl Modules {
    /// Find the ELF files among the mappings. Files are recognised by content, not by name.
    pub(crate) fn of(image: &ProcessImage) -> Modules {
        let mut list: Vec<Module> = Vec::new();
        for mapping in image.mappings.iter().filter(|m| m.execute) {
            let module = if mapping.is_file() {
                from_file(image, mapping)
            } else if mapping.path.as_deref() == Some("[vdso]") {
                from_vdso(image, mapping)
            } else {
                None
            };
            if let Some(module) = module
                && !list.iter().any(|m| m.start == module.start && m.path == module.path)
            {
                list.push(module);
            }
        }
        Modules::sorted(list, executables(image))
    }

    /// The modules as they were found before, with their files where `image` still has these.
    pub(crate) fn recorded(list: &[RecordedModule], image: &ProcessImage) -> Modules {
        let module = |recorded: &RecordedModule| {
            let mapping = image.mappings.iter().find(|mapping| mapping.path.as_deref() == Some(&recorded.path));
            let file = mapping.and_then(|mapping| image.files.mapped(mapping));
            let mut module = file
                .and_then(|bytes| parse(bytes, recorded.path.clone()))
                .unwrap_or_else(|| Module::without_file(image.architecture));
            module.name = recorded.name.as_str().into();
            module.path.clone_from(&recorded.path);
            module.build_id.clone_from(&recorded.build_id);
            (module.bias, module.start, module.end) = (recorded.bias, recorded.start, recorded.end);
            module
        };
        Modules::sorted(list.iter().map(module).collect(), executables(image))
    }

    fn sorted(mut list: Vec<Module>, made_from: Vec<(Addr, u64)>) -> Modules {
        list.sort_by_key(|module| module.start);
        let further = |reach: &mut Addr, module: &Module| {
            *reach = (*reach).max(module.end);
            Some(*reach)
        };
        let reach = list.iter().scan(Addr(0), further).collect();
        Modules { list, reach, made_from }
    }

    /// The data to keep about these modules.
    pub(crate) fn record(&self) -> Vec<RecordedModule> {
        let record = |module: &Module| RecordedModule {
            name: module.name.to_string(),
            path: module.path.clone(),
            bias: module.bias,
            start: module.start,
            end: module.end,
            build_id: module.build_id.clone(),
        };
        self.list.iter().map(record).collect()
    }

    /// Whether these are still the modules of `image`: nothing executable was mapped or unmapped.
    pub(crate) fn still_fit(&self, image: &ProcessImage) -> bool {
        self.made_from == executables(image)
    }

    /// The module that holds `address`, by its position in `list`.
    pub(crate) fn at(&self, address: Addr) -> Option<usize> {
        let after = self.list.partition_point(|m| m.start <= address);
        let reaches = |position: &usize| self.reach.get(*position).is_some_and(|reach| address < *reach);
        let covers = |position: &usize| self.list.get(*position).is_some_and(|module| address < module.end);
        (0..after).rev().take_while(reaches).find(covers)
    }
}

impl Module {
    fn without_file(architecture: Architecture) -> Module {
        Module {
            architecture,
            name: Arc::from(""),
            path: String::new(),
            bias: 0,
            start: Addr(0),
            end: Addr(0),
            build_id: None,
            file: None,
            frames: FrameSections::default(),
            index: OnceCell::new(),
        }
    }
}

fn executables(image: &ProcessImage) -> Vec<(Addr, u64)> {
    image.mappings.iter().filter(|m| m.execute).map(|m| (m.start, m.inode)).collect()
}

fn from_file(image: &ProcessImage, mapping: &Mapping) -> Option<Module> {
    let path = mapping.path.clone()?;
    let bytes = image.files.mapped(mapping).or_else(|| from_memory(image, mapping))?;
    let mut module = parse(bytes, path)?;
    let (bias, start, end) = place(module.file.as_ref()?, mapping)?;
    (module.bias, module.start, module.end) = (bias, start, end);
    Some(module)
}

fn from_vdso(image: &ProcessImage, mapping: &Mapping) -> Option<Module> {
    let length = (mapping.end - mapping.start).min(LARGEST_VDSO);
    let bytes = image.memory.bytes(mapping.start, saturated(length)).ok()?;
    let mut module = parse(FileBytes::new(bytes), "[vdso]".into())?;
    // The vDSO is linked at 0 and mapped whole.
    (module.bias, module.start, module.end) = (mapping.start.0, mapping.start, mapping.end);
    Some(module)
}

/// The mapped part of a file, each byte at its offset in the file: enough for headers, code, CFI and dynamic symbols.
fn from_memory(image: &ProcessImage, wanted: &Mapping) -> Option<FileBytes> {
    let parts: Vec<&Mapping> = image
        .mappings
        .iter()
        .filter(|m| (m.device, m.inode) == (wanted.device, wanted.inode) && m.path == wanted.path && m.read)
        .collect();
    let size = parts.iter().map(|m| m.offset.saturating_add(m.end - m.start)).max()?;
    if size > LARGEST_FROM_MEMORY {
        let path = wanted.path.as_deref().unwrap_or("a module");
        let what = format!("functions and stacks of {path}, whose file cannot be opened");
        limits::met(LARGEST_FROM_MEMORY, what, "bytes of a module from memory");
        return None;
    }
    let mut bytes = vec![0; saturated(size)];
    for part in parts {
        let length = saturated((part.end - part.start).min(size.checked_sub(part.offset)?));
        if let Ok(read) = image.memory.bytes(part.start, length) {
            copy_into(bytes.get_mut(usize::try_from(part.offset).ok()?..)?, &read);
        }
    }
    // The section headers are not mapped: make the file say that it has none.
    for place in [40..48, 60..64] {
        bytes.get_mut(place).unwrap_or_default().fill(0);
    }
    Some(FileBytes::new(bytes))
}

type Header = elf::FileHeader64<LittleEndian>;

fn header(bytes: &[u8]) -> Option<&Header> {
    Header::parse(bytes).ok()
}

fn architecture(bytes: &[u8]) -> Option<Architecture> {
    Architecture::of_elf(header(bytes)?.e_machine.get(LittleEndian).0).ok()
}

fn segments(bytes: &[u8]) -> Option<&[elf::ProgramHeader64<LittleEndian>]> {
    let found = header(bytes)?.program_headers(LittleEndian, bytes).ok()?;
    let fits = found.len() <= MOST_HEADERS;
    if !fits {
        limits::met(MOST_HEADERS, "a file that says it has more segments than any", "segments");
    }
    fits.then_some(found)
}

/// Where the file lies in the process: bias, first and last address.
fn place(bytes: &[u8], mapping: &Mapping) -> Option<(u64, Addr, Addr)> {
    let page = architecture(bytes)?.page_size();
    let loads: Vec<_> = segments(bytes)?.iter().filter(|s| s.p_type(LittleEndian) == elf::PT_LOAD).collect();
    let own = loads.iter().find(|s| {
        let offset = s.p_offset(LittleEndian);
        s.p_flags(LittleEndian).contains(elf::PF_X)
            && offset & !(page - 1) <= mapping.offset
            && mapping.offset < offset.saturating_add(s.p_filesz(LittleEndian))
    })?;
    let bias = mapping
        .start
        .0
        .wrapping_add(own.p_offset(LittleEndian))
        .wrapping_sub(mapping.offset)
        .wrapping_sub(own.p_vaddr(LittleEndian));
    let first = loads.iter().map(|s| s.p_vaddr(LittleEndian) & !(page - 1)).min()?;
    let last = loads.iter().map(|s| s.p_vaddr(LittleEndian).wrapping_add(s.p_memsz(LittleEndian))).max()?;
    let (start, end) =
        (Addr(first.wrapping_add(bias)), Addr(last.wrapping_add(bias).checked_add(page - 1)? & !(page - 1)));
    (start <= mapping.start && mapping.start < end).then_some((bias, start, end))
}

/// Parse the headers; the place in the process is filled in by the caller.
fn parse(bytes: FileBytes, path: String) -> Option<Module> {
    let architecture = architecture(&bytes)?;
    let segments = segments(&bytes)?;
    let mut frames = FrameSections::default();
    for segment in segments.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_GNU_EH_FRAME) {
        frames.eh_frame_hdr = section_of_segment(&bytes, segment);
    }
    let header = header(&bytes)?;
    if let Ok(sections) = header.sections(LittleEndian, &*bytes) {
        for section in sections.iter().bounded(MOST_HEADERS, || "sections of a file".into(), "sections") {
            let found = || section_of_header(&bytes, section);
            match sections.section_name(LittleEndian, section) {
                Ok(b".eh_frame") => frames.eh_frame = found(),
                Ok(b".eh_frame_hdr") => frames.eh_frame_hdr = found().or(frames.eh_frame_hdr.take()),
                Ok(b".debug_frame") => frames.debug_frame = found(),
                Ok(b".text") => frames.text = section.sh_addr(LittleEndian),
                Ok(b".got") => frames.got = section.sh_addr(LittleEndian),
                _ => {}
            }
        }
    }
    if frames.eh_frame.is_none() {
        frames.eh_frame = frames.eh_frame_hdr.as_ref().and_then(|hdr| behind_header(&bytes, hdr));
    }
    let name = path.rsplit('/').next().unwrap_or(&path).into();
    let build_id = build_id(&bytes);
    Some(Module { name, path, build_id, file: Some(bytes), frames, ..Module::without_file(architecture) })
}

fn section_of_header(bytes: &[u8], section: &elf::SectionHeader64<LittleEndian>) -> Option<Section> {
    if section.sh_type(LittleEndian) == elf::SHT_NOBITS || section.sh_flags(LittleEndian).contains(elf::SHF_COMPRESSED)
    {
        return None;
    }
    checked(bytes, section.sh_addr(LittleEndian), section.sh_offset(LittleEndian), section.sh_size(LittleEndian))
}

fn section_of_segment(bytes: &[u8], segment: &elf::ProgramHeader64<LittleEndian>) -> Option<Section> {
    checked(bytes, segment.p_vaddr(LittleEndian), segment.p_offset(LittleEndian), segment.p_filesz(LittleEndian))
}

fn checked(bytes: &[u8], address: u64, offset: u64, size: u64) -> Option<Section> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (size > 0 && end <= bytes.len()).then_some(Section { address, range: start..end })
}

/// .eh_frame of a file without section headers: .eh_frame_hdr points to it, and it ends at the end of its segment.
fn behind_header(bytes: &[u8], hdr: &Section) -> Option<Section> {
    use gimli::{BaseAddresses, EhFrameHdr, NativeEndian, Pointer};
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr.address);
    let parsed = EhFrameHdr::new(bytes.get(hdr.range.clone())?, NativeEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(address) = parsed.eh_frame_ptr() else { return None };
    let segment = segments(bytes)?.iter().find(|s| {
        s.p_type(LittleEndian) == elf::PT_LOAD
            && Addr(address).within(Addr(s.p_vaddr(LittleEndian)), s.p_filesz(LittleEndian))
    })?;
    let into = address.checked_sub(segment.p_vaddr(LittleEndian))?;
    let size = segment.p_filesz(LittleEndian).checked_sub(into)?;
    checked(bytes, address, segment.p_offset(LittleEndian).checked_add(into)?, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_in_the_hole_of_another_hides_nothing_of_it() {
        let module = |(start, end): (u64, u64)| Module {
            start: Addr(start),
            end: Addr(end),
            ..Module::without_file(Architecture::Aarch64)
        };
        // The program, the loader with a hole behind its code, the vDSO in it, and what is mapped behind.
        let list: Vec<Module> =
            [(0x1000, 0x3000), (0x10000, 0x50000), (0x20000, 0x22000), (0x60000, 0x61000)].map(module).into();
        let modules = Modules::sorted(list, Vec::new());
        let at = |address: u64| modules.at(Addr(address));
        assert_eq!([0x1000, 0x2fff, 0x3000, 0xfff].map(at), [Some(0), Some(0), None, None]);
        assert_eq!(
            [0x10000, 0x20000, 0x21fff, 0x22000, 0x4ffff].map(at),
            [Some(1), Some(2), Some(2), Some(1), Some(1)]
        );
        assert_eq!([0x50000, 0x60fff, 0x61000].map(at), [None, Some(3), None]);
    }
}

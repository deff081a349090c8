//! The sections of a GPU core, by what they hold and whose they are.
//!
//! In: the bytes of the file. Out: [`Sections`]: those with tables and code, each with its parent. A core of a busy device has
//! hundreds of thousands, most of them registers of one thread: the headers are read in pieces and only what is needed is
//! kept. Sizes that the file states are checked against it.

use std::cell::RefCell;
use std::collections::HashMap;

use super::layout::{Element, FIRST_KIND, KINDS, Kind, MACHINE, STRINGS};
use crate::image::core::elf::Bytes;
use crate::image::{Gap, budget};
use crate::limits;
use crate::limits::gpu::{LARGEST_IMAGE, LARGEST_NAME, LARGEST_TABLE, MOST_SECTIONS};

/// A section header of 64-bit ELF.
const HEADER: u64 = 64;
/// Headers that are read at once.
const PIECE: u64 = 1 << 14;

/// One section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    /// Its number in the file, by which others name it as their parent.
    pub(super) number: u32,
    /// The number of the parent's section, and the index of the element in it that this belongs to.
    pub(super) parent: (u32, u32),
    offset: u64,
    size: u64,
    element: u64,
}

/// All that are needed, in the order of the file.
#[derive(Debug)]
pub(super) struct Sections<'b> {
    bytes: &'b Bytes,
    by_kind: HashMap<Kind, Vec<Section>>,
    problems: RefCell<Vec<(String, String)>>,
}

/// Whether the ELF header is that of a GPU core.
pub(super) fn is_gpu_core(bytes: &Bytes) -> bool {
    let header = bytes.slice(0, 20).unwrap_or_default();
    // ELF of 64 bits, little-endian, a core (ET_CORE) of a GPU.
    header.starts_with(b"\x7fELF\x02\x01")
        && number(&header, 16, 2) == Some(4)
        && number(&header, 18, 2) == Some(u64::from(MACHINE))
}

fn number(bytes: &[u8], offset: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(size)?)?;
    let mut word = [0; 8];
    word.get_mut(..size)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

impl<'b> Sections<'b> {
    /// Read the headers. An error says what is wrong with the file.
    pub(super) fn read(bytes: &'b Bytes) -> Result<Sections<'b>, String> {
        let header = bytes.slice(0, 64).ok_or("its ELF header is cut")?;
        let field = |offset, size| number(&header, offset, size).unwrap_or_default();
        let (offset, size, mut count) = (field(40, 8), field(58, 2), field(60, 2));
        if offset == 0 || size != HEADER {
            return Err("it has no table of sections: the driver had not finished writing it".into());
        }
        let mut sections = Sections { bytes, by_kind: HashMap::new(), problems: RefCell::new(Vec::new()) };
        if count == 0 {
            // More than the header can count: the first section says how many.
            let first = bytes.slice(offset, HEADER).ok_or("its table of sections lies outside of it")?;
            count = number(&first, 32, 8).unwrap_or_default();
        }
        if count > MOST_SECTIONS {
            limits::met(MOST_SECTIONS, format!("the {count} sections of the GPU core"), "of them");
            count = MOST_SECTIONS;
        }
        let mut done = 0;
        while done < count {
            let piece = PIECE.min(count - done);
            let at = done.checked_mul(HEADER).and_then(|into| offset.checked_add(into));
            let Some(table) = at.and_then(|at| bytes.slice(at, piece * HEADER)) else {
                sections.problem("sections of the GPU core", "the file was cut: its table of sections ends early");
                break;
            };
            for (position, header) in table.chunks_exact(HEADER as usize).enumerate() {
                sections.keep(header, done + position as u64);
            }
            done += piece;
        }
        Ok(sections)
    }

    fn keep(&mut self, header: &[u8], number_of_it: u64) {
        let field = |offset, size| number(header, offset, size).unwrap_or_default();
        let code = field(4, 4) as u32;
        let kind = match code.checked_sub(FIRST_KIND) {
            Some(code) => KINDS.iter().find(|(known, _)| *known == code).map(|(_, kind)| *kind),
            None if code == STRINGS => Some(Kind::Strings),
            None => None,
        };
        let section = Section {
            number: number_of_it as u32,
            parent: (field(40, 4) as u32, field(44, 4) as u32),
            offset: field(24, 8),
            size: field(32, 8),
            element: field(56, 8),
        };
        let Some(kind) = kind.filter(|_| section.size > 0) else { return };
        if section.offset.checked_add(section.size).is_none_or(|end| end > self.bytes.length()) {
            self.problem("parts of the GPU core", "the file was cut: some of its tables lie outside of it");
            return;
        }
        if budget::take(size_of::<Section>() as u64, || "sections of a GPU core".into()) {
            self.by_kind.entry(kind).or_default().push(section);
        }
    }

    /// Note once what is wrong.
    pub(super) fn problem(&self, what: impl Into<String>, why: impl Into<String>) {
        let problem = (what.into(), why.into());
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// The defects of the file.
    pub(super) fn gaps(&self, path: &str) -> Vec<Gap> {
        self.problems.borrow().iter().map(|(what, why)| Gap::new(format!("{what} `{path}`"), why)).collect()
    }

    /// Those of a kind.
    pub(super) fn of(&self, kind: Kind) -> &[Section] {
        self.by_kind.get(&kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// Those of a kind by the element of the parent that they belong to.
    pub(super) fn by_parent(&self, kind: Kind) -> HashMap<(u32, u32), &Section> {
        self.of(kind).iter().map(|section| (section.parent, section)).collect()
    }

    /// The elements of a table.
    pub(super) fn elements(&self, section: &Section) -> Elements {
        let size = section.element;
        let bytes = match section.size > LARGEST_TABLE {
            false => self.bytes.slice(section.offset, section.size),
            true => {
                limits::met(LARGEST_TABLE, "a table of the GPU core", "bytes of it");
                self.bytes.slice(section.offset, LARGEST_TABLE)
            }
        };
        Elements { bytes: bytes.unwrap_or_default(), size: usize::try_from(size).unwrap_or_default() }
    }

    /// The bytes of an image, whose room the caller gives back; `None` where it is too large.
    pub(super) fn image(&self, section: &Section) -> Option<Vec<u8>> {
        if section.size > LARGEST_IMAGE {
            limits::met(LARGEST_IMAGE, "a module's code in the GPU core", "bytes of it");
            return None;
        }
        if !budget::take(section.size, || "code of a GPU core".into()) {
            return None;
        }
        self.bytes.slice(section.offset, section.size)
    }

    /// Text at an index of the table of strings.
    pub(super) fn string(&self, index: u64) -> String {
        // The first table is that of names of devices; the names of sections come last (seen with 580).
        let Some(section) = self.of(Kind::Strings).first().filter(|section| index < section.size) else {
            return String::new();
        };
        let length = (section.size - index).min(LARGEST_NAME);
        let bytes = self.bytes.slice(section.offset + index, length).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
    }
}

/// The bytes of a table.
#[derive(Debug, Default)]
pub(super) struct Elements {
    bytes: Vec<u8>,
    size: usize,
}

impl Elements {
    /// Each element.
    pub(super) fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        // A table that says nothing of its elements has one.
        let size = if self.size == 0 { self.bytes.len().max(1) } else { self.size };
        self.bytes.chunks_exact(size).map(Element)
    }

    /// The bytes of a section that is no table.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

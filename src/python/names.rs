//! Python's strings and code objects.
//!
//! In: memory and a layout. Out: names, files, line tables, each code object read once. Nothing is guessed: a string
//! that is not a compact unicode object is `None`.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::layout::Layout;
use super::lines;
use crate::image::{Addr, Memory, MemoryExt, budget, saturated};
use crate::limits::python::{LARGEST_LINE_TABLE, LONGEST_TEXT};
use crate::origin::{Origin, PythonFolders};

/// The purpose of a pass over a line table, as gaps name it.
const LINES: &str = "lines of further Python frames";

/// The fields of a code object that frames need.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) function: Arc<str>,
    pub(crate) file: Arc<str>,
    pub(crate) origin: Origin,
    first_line: i64,
    table: Vec<u8>,
}

/// Code objects by address, and lines of their instructions: frames of a recursion are at one instruction.
pub(crate) struct Codes<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    folders: &'a PythonFolders,
    known: HashMap<Addr, Option<Rc<Code>>>,
    lines: HashMap<(Addr, i64), Option<u32>>,
}

impl<'a> Codes<'a> {
    pub(crate) fn new(memory: &'a dyn Memory, layout: &'a Layout, folders: &'a PythonFolders) -> Self {
        Codes { memory, layout, folders, known: HashMap::new(), lines: HashMap::new() }
    }

    /// The code object at `address`, if there is one.
    pub(crate) fn get(&mut self, address: Addr) -> Option<Rc<Code>> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let code = self.read(address).map(Rc::new);
        self.known.insert(address, code.clone());
        code
    }

    /// The line of the instruction at byte `offset` of a code object.
    pub(crate) fn line(&mut self, address: Addr, offset: i64) -> Option<u32> {
        let code = self.get(address)?;
        let find = || {
            let may = budget::may_go_over(|| LINES.into());
            budget::went_over(code.table.len() as u64);
            may.then(|| lines::line(self.layout.line_table, &code.table, code.first_line, offset)).flatten()
        };
        *self.lines.entry((address, offset)).or_insert_with(find)
    }

    fn read(&self, address: Addr) -> Option<Code> {
        let (memory, layout) = (self.memory, self.layout);
        let text = |offset| text(memory, layout, memory.pointer(address + offset).ok()?);
        let name = layout.code_qualified_name.and_then(text).or_else(|| text(layout.code_name))?;
        let file = text(layout.code_file)?;
        Some(Code {
            function: name.into(),
            origin: self.folders.of(&file),
            file: file.into(),
            first_line: i64::from(memory.i32(address + layout.code_first_line).ok()?),
            table: bytes(memory, layout, memory.pointer(address + layout.code_line_table).ok()?).unwrap_or_default(),
        })
    }
}

/// The contents of a bytes object: its size behind the head, then a hash, then the data.
pub(crate) fn bytes(memory: &dyn Memory, layout: &Layout, address: Addr) -> Option<Vec<u8>> {
    let size = memory.u64(address + layout.head).ok().filter(|s| *s <= LARGEST_LINE_TABLE)?;
    if !budget::may_go_over(|| LINES.into()) {
        return None;
    }
    budget::went_over(size);
    memory.bytes(address + layout.head + 16, saturated(size)).ok()
}

/// A unicode object's text.
pub(crate) fn text(memory: &dyn Memory, layout: &Layout, address: Addr) -> Option<String> {
    let length = memory.u64(address + layout.head).ok()?.min(LONGEST_TEXT);
    // Bits of `state`: interned 2, kind 3, compact 1, ascii 1 (Include/cpython/unicodeobject.h, 3.3 to 3.15).
    let state = memory.u32(address + layout.head + 16).ok()?;
    // Without a GIL `interned` may be a byte or two of its own, so that it can be written in one go (3.14).
    let shifts: &[u32] = if layout.free_threaded.is_some() { &[2, 8, 16] } else { &[2] };
    let (kind, ascii) = shifts.iter().find_map(|shift| {
        let bits = state >> shift;
        let (kind, is_compact) = (u64::from(bits & 7), bits & 8 != 0);
        (is_compact && matches!(kind, 1 | 2 | 4)).then_some((kind, bits & 16 != 0))
    })?;
    let data = address + if ascii { layout.unicode_ascii } else { layout.unicode_compact };
    let raw = memory.bytes(data, saturated(length * kind)).ok()?;
    Some(match kind {
        1 => raw.iter().map(|b| char::from(*b)).collect(),
        2 => {
            let units: Vec<u16> = raw.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
            String::from_utf16_lossy(&units)
        }
        _ => {
            let points = raw.as_chunks().0.iter().map(|point| u32::from_le_bytes(*point));
            points.map(|point| char::from_u32(point).unwrap_or('\u{fffd}')).collect()
        }
    })
}

//! What a Python frame holds: its variables by name, and the objects whose `with` block it is in.
//!
//! In: memory, a layout, a frame. Out: [`Frame::variables`], [`Frame::entered`]. An entered and not yet left `with` block
//! keeps its `__exit__` on the value stack, but so does one that still waits to be entered, and what was popped stays
//! behind: only the slots below the depth of the innermost protected range (or entered block, up to 3.10) count. The rule
//! was right on 11 builds; searching all slots names waiters as holders.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::PythonFrame;
use super::layout::{GeneratorFrame, Layout, Liveness, LocalNames, StackTop};
use super::names::{bytes, text};
use super::objects::Objects;
use super::walk::{instruction_offset, suspended_frame};
use crate::image::{Addr, Memory, MemoryExt, saturated};
use crate::limits::python::{MOST_BLOCKS, MOST_SLOTS};

/// `SETUP_FINALLY`: the type of the block of `with` and `try` from 3.7 to 3.10.
const ENTERED: i32 = 122;
/// The lowest bits of a reference on the stack are a tag (3.13 without a GIL, 3.14 on).
const TAG: u64 = 3;

/// What is asked of a code object.
#[derive(Debug)]
struct Shape {
    stack_size: u64,
    variables: u64,
    names: Vec<Option<String>>,
    /// Ranges of instructions in units of two bytes, with the depth of the stack in each.
    ranges: Vec<(u64, u64, u64)>,
    uses: BTreeSet<String>,
}

/// Frames of one process.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    objects: Objects<'a>,
    shapes: RefCell<HashMap<Addr, Option<Rc<Shape>>>>,
}

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Frame<'f, 'a> {
    frames: &'f Frames<'a>,
    address: Addr,
    shape: Rc<Shape>,
    /// Local variables, cells included.
    variables: u64,
    stack: Addr,
    /// Slots of the value stack that are certainly alive.
    live: u64,
    /// It is inside of a `try`, a `with` or another protected range.
    is_protected: bool,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(memory: &'a dyn Memory, layout: &'a Layout) -> Self {
        Frames { memory, layout, objects: Objects::new(memory, layout), shapes: RefCell::default() }
    }

    /// Objects of the same process.
    pub(crate) fn objects(&self) -> Objects<'a> {
        self.objects
    }

    /// The frame at `address` that runs `code`.
    pub(crate) fn at(&self, address: Addr, code: Addr) -> Option<Frame<'_, 'a>> {
        let shape = self.shape(code)?;
        let locals = address + self.layout.values.frame_locals;
        let (stack, variables, (live, is_protected)) = match self.layout.values.liveness {
            Liveness::Blocks { stack, .. } => {
                let stack = self.memory.pointer(address + stack).ok()?;
                (stack, stack.0.checked_sub(locals.0)? / 8, self.live_by_blocks(address)?)
            }
            Liveness::Ranges { .. } => {
                let word = self.memory.u64(address + self.layout.frame_instruction).ok()?;
                let offset = instruction_offset(self.memory, self.layout, address, code, word);
                let unit = u64::try_from(offset / 2).ok();
                // Ranges do not overlap; the depth of one covers all blocks around it.
                let mut ranges = shape.ranges.iter();
                let here = ranges.find(|(start, end, _)| unit.is_some_and(|unit| *start <= unit && unit < *end));
                (
                    locals + shape.variables * 8,
                    shape.variables,
                    (here.map_or(0, |(_, _, depth)| *depth), here.is_some()),
                )
            }
        };
        (variables <= MOST_SLOTS).then(|| Frame {
            frames: self,
            address,
            live: live.min(shape.stack_size),
            is_protected,
            variables,
            stack,
            shape,
        })
    }

    /// The frame and code of a generator or coroutine that has not ended.
    pub(crate) fn of_generator(&self, generator: Addr) -> Option<(Addr, Addr)> {
        let frame = match self.layout.values.generator {
            GeneratorFrame::Pointer(offset) => {
                self.memory.pointer(generator + offset).ok().filter(|frame| !frame.is_null())?
            }
            GeneratorFrame::Inside { frame, state } => {
                // FRAME_CREATED up to FRAME_EXECUTING; what has completed or was cleared is above (4 and 5; from 3.15 on 5
                // and 6, and what is created is 0).
                let state = self.memory.u8(generator + state).ok()?.cast_signed();
                (state < 4).then_some(generator + frame)?
            }
        };
        let code = Addr(self.memory.u64(frame + self.layout.frame_code).ok()? & !TAG);
        (self.objects.class_name(code).as_deref() == Some("code")).then_some((frame, code))
    }

    /// Function, file and line of a frame that is on no thread's list.
    pub(crate) fn suspended(&self, generator: Addr) -> Option<PythonFrame> {
        let (frame, code) = self.of_generator(generator)?;
        suspended_frame(self.memory, self.layout, frame, code)
    }

    /// The name of a code object.
    pub(crate) fn code_name(&self, code: Addr) -> Option<String> {
        let offset = self.layout.code_qualified_name.unwrap_or(self.layout.code_name);
        text(self.memory, self.layout, self.memory.pointer(code + offset).ok()?)
    }

    /// The names of globals and attributes that a code object uses.
    pub(crate) fn names_in(&self, code: Addr) -> Option<Vec<String>> {
        Some(self.shape(code)?.uses.iter().cloned().collect())
    }

    /// The constants of a code object, of which those of the functions defined in it are some. They stand before the names in
    /// every version (DWARF).
    pub(crate) fn constants(&self, code: Addr) -> Vec<Addr> {
        let tuple = self.memory.pointer(code + (self.layout.values.code_names - 8)).ok();
        tuple.and_then(|tuple| self.objects.sequence(tuple, MOST_SLOTS)).unwrap_or_default()
    }

    /// The file of a code object.
    pub(crate) fn code_file(&self, code: Addr) -> Option<String> {
        text(self.memory, self.layout, self.memory.pointer(code + self.layout.code_file).ok()?)
    }

    /// The line where a code object begins.
    pub(crate) fn code_line(&self, code: Addr) -> Option<u32> {
        self.memory.u32(code + self.layout.code_first_line).ok()
    }

    fn live_by_blocks(&self, frame: Addr) -> Option<(u64, bool)> {
        let Liveness::Blocks { count, blocks, .. } = self.layout.values.liveness else { return None };
        let count = self.memory.u32(frame + count).ok()?.min(MOST_BLOCKS);
        let mut live = 0;
        for block in 0..u64::from(count) {
            // Type, handler and level, four bytes each.
            let at = frame + blocks + block * 12;
            if self.memory.i32(at).ok()? == ENTERED {
                live = live.max(u64::from(self.memory.u32(at + 8).ok()?));
            }
        }
        Some((live, count > 0))
    }

    fn shape(&self, code: Addr) -> Option<Rc<Shape>> {
        if let Some(known) = self.shapes.borrow().get(&code) {
            return known.clone();
        }
        let shape = self.read_shape(code).map(Rc::new);
        self.shapes.borrow_mut().insert(code, shape.clone());
        shape
    }

    fn read_shape(&self, code: Addr) -> Option<Shape> {
        let (memory, values) = (self.memory, &self.layout.values);
        let texts = |offset: u64| {
            let tuple = memory.pointer(code + offset).ok()?;
            let names = self.objects.sequence(tuple, MOST_SLOTS)?;
            Some(names.into_iter().map(|name| text(memory, self.layout, name)).collect::<Vec<_>>())
        };
        let names = match values.local_names {
            LocalNames::One(offset) => texts(offset)?,
            LocalNames::Three(offsets) => offsets.into_iter().filter_map(texts).flatten().collect(),
        };
        let (variables, ranges) = match values.liveness {
            Liveness::Blocks { .. } => (names.len() as u64, Vec::new()),
            Liveness::Ranges { table, variables } => {
                let table = bytes(memory, self.layout, memory.pointer(code + table).ok()?)?;
                (u64::from(memory.u32(code + variables).ok()?), ranges(&table))
            }
        };
        Some(Shape {
            stack_size: u64::from(memory.u32(code + values.code_stack_size).ok()?).min(MOST_SLOTS),
            variables,
            names,
            ranges,
            uses: texts(values.code_names)?.into_iter().flatten().collect(),
        })
    }
}

impl<'a> Frame<'_, 'a> {
    /// Its variables with their values, closures' cells opened.
    pub(crate) fn variables(&self) -> Vec<(&str, Addr)> {
        let first = self.address + self.frames.layout.values.frame_locals;
        let values = self.slots(first, self.variables);
        let named = self.shape.names.iter().zip(values);
        let set = named.filter(|(_, value)| !value.is_null());
        set.filter_map(|(name, value)| Some((name.as_deref()?, self.frames.objects.out_of_cell(value)))).collect()
    }

    /// The first variable: `self` in a method.
    pub(crate) fn first(&self) -> Option<Addr> {
        let first = self.slots(self.address + self.frames.layout.values.frame_locals, 1).first().copied()?;
        (self.variables > 0 && !first.is_null()).then(|| self.frames.objects.out_of_cell(first))
    }

    /// One of its variables.
    pub(crate) fn variable(&self, name: &str) -> Option<Addr> {
        self.variables().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The dictionary of its globals.
    pub(crate) fn globals(&self) -> Option<Addr> {
        let at = self.address + self.frames.layout.values.frame_globals;
        self.frames.memory.u64(at).ok().map(|word| Addr(word & !TAG)).filter(|dict| !dict.is_null())
    }

    /// Whether its code names a global or an attribute so.
    pub(crate) fn uses(&self, name: &str) -> bool {
        self.shape.uses.contains(name)
    }

    /// Whether it is inside of a `try`, `with` or another protected range.
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// All slots of its value stack, also those that are not in use: to look for an object that must be there.
    pub(crate) fn stack(&self) -> Vec<Addr> {
        self.slots(self.stack, self.shape.stack_size)
    }

    /// What is on the value stack of a frame that does not run, a suspended generator's: the top is the last.
    pub(crate) fn suspended_stack(&self) -> Vec<Addr> {
        let memory = self.frames.memory;
        let at = |offset: u64| self.address + offset;
        let depth = match self.frames.layout.values.stack_top {
            StackTop::Pointer(offset) => {
                memory.u64(at(offset)).ok().and_then(|top| Some(top.checked_sub(self.stack.0)? / 8))
            }
            StackTop::Depth(offset) => memory.u32(at(offset)).ok().map(u64::from),
            StackTop::DepthAndVariables(offset) => {
                memory.u32(at(offset)).ok().and_then(|top| u64::from(top).checked_sub(self.variables))
            }
        };
        depth
            .filter(|depth| *depth <= self.shape.stack_size)
            .map_or_else(Vec::new, |depth| self.slots(self.stack, depth))
    }

    /// Objects whose `with` block it has entered and not left, the outermost first.
    pub(crate) fn entered(&self) -> Vec<Addr> {
        let slots = self.slots(self.stack, self.live);
        let objects = &self.frames.objects;
        let is_exit = |name: &str| matches!(name, "__exit__" | "__aexit__");
        let mut entered = Vec::new();
        for (position, slot) in slots.iter().enumerate() {
            if slot.is_null() {
                continue;
            }
            let object = match self.frames.layout.values.exit_and_object {
                false => objects.bound(*slot).filter(|bound| is_exit(&bound.name)).map(|bound| bound.object),
                true => match objects.function_name(*slot) {
                    Some(name) if is_exit(&name) => slots.get(position + 1).copied(),
                    _ => objects.bound(*slot).filter(|bound| is_exit(&bound.name)).map(|bound| bound.object),
                },
            };
            entered.extend(object.filter(|object| !object.is_null()));
        }
        entered
    }

    fn slots(&self, first: Addr, count: u64) -> Vec<Addr> {
        let memory = self.frames.memory;
        let whole = memory.bytes(first, saturated(count.saturating_mul(8))).ok();
        let word = |chunk: &[u8]| chunk.try_into().map(u64::from_le_bytes).map_or(Addr(0), |word| Addr(word & !TAG));
        match whole {
            Some(bytes) => bytes.chunks_exact(8).map(word).collect(),
            None => Vec::new(),
        }
    }
}

/// `co_exceptiontable`: start, length, target and depth with a flag, each a number of six bits a byte, the highest first.
fn ranges(table: &[u8]) -> Vec<(u64, u64, u64)> {
    let mut rest = table.iter();
    let mut number = || {
        let mut value: u64 = 0;
        loop {
            let byte = *rest.next()?;
            value = value << 6 & 0xffff_ffff | u64::from(byte & 63);
            if byte & 64 == 0 {
                return Some(value);
            }
        }
    };
    let mut list = Vec::new();
    while let (Some(start), Some(length), Some(_), Some(depth)) = (number(), number(), number(), number()) {
        list.push((start, start + length, depth >> 1));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn ranges_of_nested_with_blocks() {
        // Start, length, target, depth and flag; the first byte of an entry has the highest bit, a number goes on with the
        // next one.
        let table = [0x80 | 12, 7, 0x40 | 1, 10, 3, 0x80 | 20, 2, 30, 1];
        assert_eq!(ranges(&table), [(12, 19, 1), (20, 22, 0)]);
        assert_eq!(ranges(&[0x80]), []);
        assert_eq!(ranges(&[0x40; 100]), []);
    }
}

//! The contents of a Python frame: its variables by name, and the objects whose `with` block it is in.
//!
//! In: memory, a layout, a frame. Out: [`Frame::variables`], [`Frame::entered`]. An entered and not yet left `with` block
//! keeps its `__exit__` on the value stack, but so does one that still waits to be entered, and what was popped stays
//! behind: only the slots below the depth of the innermost protected range (or entered block, up to 3.10) count. The rule
//! was right on 11 builds; searching all slots names waiters as holders.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::PythonFrame;
use super::instructions::decode;
use super::layout::{GeneratorFrame, Layout, LineTable, Liveness, LocalNames, StackTop};
use super::lines;
use super::names::{bytes, text};
use super::objects::Objects;
use super::walk::{instruction_offset, suspended_frame};
use crate::image::{Addr, AddrMap, Memory, MemoryExt, saturated};
use crate::limits::python::{MOST_BLOCKS, MOST_SLOTS};
use crate::origin::{Origin, PythonFolders};

/// `SETUP_FINALLY`: the type of the block of `with` and `try` from 3.7 to 3.10.
const ENTERED: i32 = 122;
/// Instructions up to 3.10 (Include/opcode.h).
const SETUP_WITH: u8 = 143;
const EXTENDED_ARG: u8 = 144;
const SETUP_ASYNC_WITH: u8 = 154;
/// The lowest bits of a reference on the stack are a tag (3.13 without a GIL, 3.14 on).
const TAG: u64 = 3;

/// The needed fields of a code object.
#[derive(Debug)]
struct Shape {
    stack_size: u64,
    variables: u64,
    names: Vec<Option<String>>,
    ranges: Vec<Range>,
    uses: BTreeSet<String>,
}

impl Shape {
    /// Where an exception of this instruction leads (3.11 on).
    fn handler_of(&self, unit: u64) -> Option<u64> {
        self.ranges.iter().find(|range| range.start <= unit && unit < range.end).map(|range| range.target)
    }
}

/// A protected range of instructions, counted in units of two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    /// Where an exception leads.
    target: u64,
    /// The depth of the stack in it.
    depth: u64,
    /// Its handler gets the place of the exception as well, as that of a `with` block does.
    keeps_place: bool,
}

/// An object whose `with` block a frame has entered and not left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EnteredBlock {
    pub(crate) object: Addr,
    /// The line of the `with`.
    pub(crate) line: Option<u32>,
}

/// Frames of one process.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    folders: &'a PythonFolders,
    objects: Objects<'a>,
    shapes: RefCell<AddrMap<Option<Rc<Shape>>>>,
    /// Classes, and whether each is that of a closure's cells.
    cells: RefCell<AddrMap<bool>>,
}

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Frame<'f, 'a> {
    frames: &'f Frames<'a>,
    address: Addr,
    code: Addr,
    /// The instruction that it is at, in units of two bytes, where ranges say which blocks it is in.
    unit: Option<u64>,
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
    pub(crate) fn new(memory: &'a dyn Memory, layout: &'a Layout, folders: &'a PythonFolders) -> Self {
        Frames {
            memory,
            layout,
            folders,
            objects: Objects::new(memory, layout),
            shapes: RefCell::default(),
            cells: RefCell::default(),
        }
    }

    /// Objects of the same process.
    pub(crate) fn objects(&self) -> &Objects<'a> {
        &self.objects
    }

    /// The frame at `address` that runs `code`.
    pub(crate) fn at(&self, address: Addr, code: Addr) -> Option<Frame<'_, 'a>> {
        let shape = self.shape(code)?;
        let locals = address + self.layout.values.frame_locals;
        let (stack, variables, (live, is_protected), unit) = match self.layout.values.liveness {
            Liveness::Blocks { stack, .. } => {
                let stack = self.memory.pointer(address + stack).ok()?;
                (stack, stack.0.checked_sub(locals.0)? / 8, self.live_by_blocks(address)?, None)
            }
            Liveness::Ranges { .. } => {
                let word = self.memory.u64(address + self.layout.frame_instruction).ok()?;
                let offset = instruction_offset(self.memory, self.layout, address, code, word);
                let unit = u64::try_from(offset / 2).ok();
                // Ranges do not overlap; the depth of one covers all blocks around it.
                let mut ranges = shape.ranges.iter();
                let here = ranges.find(|range| unit.is_some_and(|unit| range.start <= unit && unit < range.end));
                (
                    locals + shape.variables * 8,
                    shape.variables,
                    (here.map_or(0, |range| range.depth), here.is_some()),
                    unit,
                )
            }
        };
        (variables <= MOST_SLOTS).then(|| Frame {
            frames: self,
            address,
            code,
            unit,
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
        suspended_frame(self.memory, self.layout, self.folders, frame, code)
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

    /// The constants of a code object, with the code objects of functions defined in it. They stand before the names in
    /// every version (DWARF).
    pub(crate) fn constants(&self, code: Addr) -> Vec<Addr> {
        let tuple = self.memory.pointer(code + (self.layout.values.code_names - 8)).ok();
        tuple.and_then(|tuple| self.objects.sequence(tuple, MOST_SLOTS)).unwrap_or_default()
    }

    /// The modules that a code object imports, each with the names that it takes from it; `None` if the instructions of
    /// this version are not known. An import instruction follows the constant with these names.
    pub(crate) fn imports(&self, code: Addr, version: (u8, u8, u8)) -> Option<Vec<(String, Vec<String>)>> {
        let import = match version {
            (3, 7..=12, _) => 108,
            (3, 13, _) => 75,
            _ => return None,
        };
        let names = self.memory.pointer(code + self.layout.values.code_names).ok()?;
        let names = self.objects.sequence(names, MOST_SLOTS)?;
        let constants = self.constants(code);
        // Beyond a byte an index takes two instructions.
        if names.len() > 256 || constants.len() > 256 {
            return None;
        }
        let instructions = self.instructions(code)?;
        let mut imports = Vec::new();
        for pair in instructions.as_chunks::<2>().0.windows(2) {
            let [[_, constant], [operation, name]] = pair else { continue };
            if *operation != import {
                continue;
            }
            let Some(taken) = constants.get(usize::from(*constant)) else { continue };
            let taken = match self.objects.class_name(*taken).as_deref() {
                Some("NoneType") => Vec::new(),
                Some("tuple") => {
                    let taken = self.objects.sequence(*taken, MOST_SLOTS).unwrap_or_default();
                    taken.into_iter().filter_map(|name| self.objects.text(name)).collect()
                }
                _ => continue,
            };
            let Some(module) = names.get(usize::from(*name)).and_then(|name| self.objects.text(*name)) else {
                continue;
            };
            imports.push((module, taken));
        }
        Some(imports)
    }

    /// The instructions of a code object, as they are in memory.
    pub(super) fn instructions(&self, code: Addr) -> Option<Vec<u8>> {
        if self.layout.line_table == LineTable::Locations {
            let size = self.objects.field(code, 0)?.0.min(MOST_SLOTS).checked_mul(2)?;
            return self.memory.bytes(code + self.layout.code_instructions, saturated(size)).ok();
        }
        // `co_code` stands before the constants and these before the names (3.7 to 3.10, DWARF).
        bytes(self.memory, self.layout, self.memory.pointer(code + (self.layout.values.code_names - 16)).ok()?)
    }

    /// The names that a code object uses, by index.
    pub(super) fn name_objects(&self, code: Addr) -> Vec<Addr> {
        let tuple = self.memory.pointer(code + self.layout.values.code_names).ok();
        tuple.and_then(|tuple| self.objects.sequence(tuple, MOST_SLOTS)).unwrap_or_default()
    }

    /// Where an exception of this instruction of a code object leads (3.11 on).
    pub(super) fn handler_of(&self, code: Addr, unit: u64) -> Option<u64> {
        self.shape(code)?.handler_of(unit)
    }

    /// How many parameters a function has; `None` if it takes any number of them or some by their names alone, or if it
    /// is a generator or coroutine.
    pub(super) fn parameters(&self, code: Addr) -> Option<usize> {
        /// CO_VARARGS, CO_VARKEYWORDS, CO_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR (Include/cpython/code.h).
        const OTHERS: u32 = 0x4 | 0x8 | 0x20 | 0x80 | 0x100 | 0x200;
        let values = &self.layout.values;
        // `PyCodeObject`: co_argcount, co_posonlyargcount, co_kwonlyargcount stand before co_stacksize, up to 3.10 with
        // co_nlocals between, and co_flags behind it; from 3.11 on behind co_exceptiontable [DWARF].
        let (first, flags) = match values.liveness {
            Liveness::Blocks { .. } => (values.code_stack_size.checked_sub(16)?, values.code_stack_size + 4),
            Liveness::Ranges { table, .. } => (values.code_stack_size.checked_sub(12)?, table + 8),
        };
        let number = |offset: u64| self.memory.u32(code + offset).ok();
        let is_plain = number(flags)? & OTHERS == 0 && number(first + 8)? == 0;
        usize::try_from(number(first)?).ok().filter(|count| is_plain && *count as u64 <= MOST_SLOTS)
    }

    /// The line of an instruction of a code object.
    fn line(&self, code: Addr, offset: i64) -> Option<u32> {
        let table = self.memory.pointer(code + self.layout.code_line_table).ok()?;
        let table = bytes(self.memory, self.layout, table)?;
        let first = i64::from(self.memory.i32(code + self.layout.code_first_line).ok()?);
        lines::line(self.layout.line_table, &table, first, offset)
    }

    /// The names of the local variables of a code object.
    pub(crate) fn variables_in(&self, code: Addr) -> Vec<String> {
        self.shape(code).map(|shape| shape.names.iter().flatten().cloned().collect()).unwrap_or_default()
    }

    /// The file of a code object.
    pub(crate) fn code_file(&self, code: Addr) -> Option<String> {
        self.objects.code_file(code)
    }

    /// Whose code a code object is; none where its file cannot be read.
    pub(crate) fn code_origin(&self, code: Addr) -> Option<Origin> {
        self.code_file(code).map(|file| self.folders.of(&file))
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

    /// The byte offset of the instruction that entered the block of this depth, up to 3.10: the one that leads to the same handler.
    fn setup_by_blocks(&self, frame: Addr, code: Addr, depth: u64) -> Option<i64> {
        let Liveness::Blocks { count, blocks, .. } = self.layout.values.liveness else { return None };
        let count = self.memory.u32(frame + count).ok()?.min(MOST_BLOCKS);
        let word = |at: Addr| self.memory.i32(at).ok();
        let entered = (0..u64::from(count)).map(|block| frame + blocks + block * 12).find(|at| {
            word(*at) == Some(ENTERED) && word(*at + 8).and_then(|level| u64::try_from(level).ok()) == Some(depth)
        })?;
        let handler = i64::from(word(entered + 4)?);
        // `co_code` stands before the constants and these before the names (3.7 to 3.10, DWARF).
        let instructions = self.memory.pointer(code + (self.layout.values.code_names - 16)).ok()?;
        let instructions = bytes(self.memory, self.layout, instructions)?;
        // From 3.10 on jumps count instructions, before bytes.
        let unit = if self.layout.line_table == LineTable::Pairs { 1 } else { 2 };
        let mut argument: i64 = 0;
        for (position, [operation, low]) in (0i64..).zip(instructions.as_chunks().0) {
            argument = argument << 8 & 0xffff_ffff | i64::from(*low);
            match *operation {
                EXTENDED_ARG => continue,
                SETUP_WITH | SETUP_ASYNC_WITH if (position + 1) * unit + argument == handler => {
                    return Some(position * 2);
                }
                _ => argument = 0,
            }
        }
        None
    }

    /// [`Objects::out_of_cell`], which reads the name of each class once.
    fn out_of_cell(&self, object: Addr) -> Addr {
        let Some(class) = self.objects.class(object) else { return object };
        let known = self.cells.borrow().get(&class).copied();
        let is_cell = known.unwrap_or_else(|| {
            let is_cell = self.objects.is_cells(class);
            self.cells.borrow_mut().insert(class, is_cell);
            is_cell
        });
        if is_cell { self.objects.in_cell(object) } else { object }
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
        set.filter_map(|(name, value)| Some((name.as_deref()?, self.frames.out_of_cell(value)))).collect()
    }

    /// The first variable: `self` in a method.
    pub(crate) fn first(&self) -> Option<Addr> {
        let first = self.slots(self.address + self.frames.layout.values.frame_locals, 1).first().copied()?;
        (self.variables > 0 && !first.is_null()).then(|| self.frames.out_of_cell(first))
    }

    /// One of its variables.
    pub(crate) fn variable(&self, name: &str) -> Option<Addr> {
        self.variables().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The code that it runs.
    pub(crate) fn code(&self) -> Addr {
        self.code
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

    /// The instructions of its code.
    pub(super) fn instructions(&self) -> Option<Vec<u8>> {
        self.frames.instructions(self.code)
    }

    /// The instruction that it is at, in units of two bytes; of a call from 3.11 on, also the last of its cache.
    pub(super) fn unit_of_call(&self) -> Option<u64> {
        let layout = self.frames.layout;
        let word = self.frames.memory.u64(self.address + layout.frame_instruction).ok()?;
        let offset = instruction_offset(self.frames.memory, layout, self.address, self.code, word);
        u64::try_from(offset / 2).ok()
    }

    /// The names that its code uses, by index.
    pub(super) fn name_objects(&self) -> Vec<Addr> {
        self.frames.name_objects(self.code)
    }

    /// A text of its process.
    pub(super) fn text(&self, object: Addr) -> Option<String> {
        self.frames.objects.text(object)
    }

    /// The line of the last call of a method of this name before where it stands; `None` if the instructions of this version are
    /// not known.
    pub(crate) fn line_of_last_call(&self, method: &str, version: (u8, u8, u8)) -> Option<u32> {
        let names = self.name_objects();
        let is_it = |index: u64| {
            let name = usize::try_from(index).ok().and_then(|index| names.get(index));
            name.and_then(|name| self.frames.objects.text(*name)).is_some_and(|name| name == method)
        };
        let unit = self.unit_of_call()?;
        let instructions = decode(version, &self.instructions()?).into_iter();
        let before = instructions.take_while(|one| one.end <= unit);
        let call = before.filter(|one| one.attribute(version).is_some_and(|(index, _)| is_it(index))).last()?;
        self.frames.line(self.code, i64::try_from(call.start).ok()? * 2)
    }

    /// The slots of its variables, cells as they are.
    pub(crate) fn raw_variables(&self) -> Vec<Addr> {
        self.slots(self.address + self.frames.layout.values.frame_locals, self.variables)
    }

    /// Where an exception of this instruction leads (3.11 on).
    pub(super) fn handler_of(&self, unit: u64) -> Option<u64> {
        self.shape.handler_of(unit)
    }

    /// The handlers of the protected ranges that it is in, the innermost last, as the frame has them: none for one that
    /// is the handler of an exception (up to 3.10).
    pub(super) fn handlers(&self) -> Vec<Option<u64>> {
        let Liveness::Blocks { count, blocks, .. } = self.frames.layout.values.liveness else { return Vec::new() };
        let memory = self.frames.memory;
        let count = memory.u32(self.address + count).map_or(0, |count| count.min(MOST_BLOCKS));
        let handler = |block: u64| {
            let at = self.address + blocks + block * 12;
            let is_range = memory.i32(at).ok()? == ENTERED;
            is_range.then(|| memory.u32(at + 4).ok().map(u64::from)).flatten()
        };
        (0..u64::from(count)).map(handler).collect()
    }

    /// Whether it is inside of a `try`, `with` or another protected range.
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// All slots of its value stack, also those that are not in use: to look for an object that must be there.
    pub(crate) fn stack(&self) -> Vec<Addr> {
        self.slots(self.stack, self.shape.stack_size)
    }

    /// The value stack of a frame that does not run, such as a suspended generator's: the top is the last. The
    /// interpreter says how much of it lives; above lies what was there before.
    pub(crate) fn suspended_stack(&self) -> Vec<Addr> {
        self.living_stack().unwrap_or_default()
    }

    /// The same of any frame: while one runs itself, the interpreter has taken that note away. From 3.14 on it makes it for each call
    /// of a function of C, too.
    pub(crate) fn living_stack(&self) -> Option<Vec<Addr>> {
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
        depth.filter(|depth| *depth <= self.shape.stack_size).map(|depth| self.slots(self.stack, depth))
    }

    /// Objects whose `with` block it has entered and not left, the outermost first.
    pub(crate) fn entered(&self) -> Vec<Addr> {
        self.entered_blocks(|_| None).into_iter().map(|block| block.object).collect()
    }

    /// The same with the lines of the `with`s.
    pub(crate) fn entered_with_lines(&self) -> Vec<EnteredBlock> {
        self.entered_blocks(|depth| self.line_of_block(depth))
    }

    /// The same for a frame that does not run, with the block that it is about to enter as the last.
    pub(crate) fn begun_with_lines(&self) -> Vec<EnteredBlock> {
        self.blocks_of(&self.suspended_stack(), |depth| self.line_of_block(depth))
    }

    /// The line of the `with` in whose block the stack has at least this depth. The handler's ranges begin right behind the
    /// instruction that entered the block, which are of its line; blocks inside of it interrupt them.
    fn line_of_block(&self, depth: u64) -> Option<u32> {
        let offset = match self.unit {
            None => self.frames.setup_by_blocks(self.address, self.code, depth)?,
            Some(unit) => {
                let ranges = self.shape.ranges.iter();
                let of_depth = ranges.filter(|range| range.keeps_place && range.depth == depth && range.start <= unit);
                let target = of_depth.max_by_key(|range| range.start)?.target;
                let first =
                    self.shape.ranges.iter().filter(|range| range.target == target).map(|range| range.start).min();
                i64::try_from(first?).ok()?.checked_mul(2)?
            }
        };
        self.frames.line(self.code, offset)
    }

    fn entered_blocks(&self, line: impl Fn(u64) -> Option<u32>) -> Vec<EnteredBlock> {
        self.blocks_of(&self.slots(self.stack, self.live), line)
    }

    fn blocks_of(&self, slots: &[Addr], line: impl Fn(u64) -> Option<u32>) -> Vec<EnteredBlock> {
        let objects = &self.frames.objects;
        let is_exit = |name: &str| matches!(name, "__exit__" | "__aexit__");
        let mut entered = Vec::new();
        for (position, slot) in slots.iter().enumerate() {
            if slot.is_null() {
                continue;
            }
            let bound = || objects.bound(*slot).filter(|bound| is_exit(&bound.name)).map(|bound| bound.object);
            // With how many slots the block began.
            let (object, depth) = match self.frames.layout.values.exit_and_object {
                false => (bound(), position + 1),
                true => match objects.function_name(*slot) {
                    Some(name) if is_exit(&name) => (slots.get(position + 1).copied(), position + 2),
                    _ => (bound(), position + 2),
                },
            };
            if let Some(object) = object.filter(|object| !object.is_null()) {
                entered.push(EnteredBlock { object, line: line(depth as u64) });
            }
        }
        entered
    }

    fn slots(&self, first: Addr, count: u64) -> Vec<Addr> {
        /// Most have no more.
        const FEW: usize = 32;
        let length = saturated(count.saturating_mul(8));
        let (mut few, mut many) = ([0; FEW * 8], Vec::new());
        let buffer = few.get_mut(..length).unwrap_or_else(|| {
            many.resize(length, 0);
            &mut many
        });
        match self.frames.memory.read_exact(first, buffer) {
            Ok(()) => buffer.as_chunks().0.iter().map(|word| Addr(u64::from_le_bytes(*word) & !TAG)).collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// `co_exceptiontable`: start, length, target and depth with a flag, each a number of six bits a byte, the highest first.
fn ranges(table: &[u8]) -> Vec<Range> {
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
    while let (Some(start), Some(length), Some(target), Some(depth)) = (number(), number(), number(), number()) {
        list.push(Range { start, end: start + length, target, depth: depth >> 1, keeps_place: depth & 1 == 1 });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::{Range, ranges};

    #[test]
    fn ranges_of_nested_with_blocks() {
        // Start, length, target, depth and flag; the first byte of an entry has the highest bit, a number goes on with the
        // next one.
        let table = [0x80 | 12, 7, 0x40 | 1, 10, 3, 0x80 | 20, 2, 30, 1];
        let range = |start, end, target, depth| Range { start, end, target, depth, keeps_place: true };
        assert_eq!(ranges(&table), [range(12, 19, 74, 1), range(20, 22, 30, 0)]);
        assert_eq!(ranges(&[0x80]), []);
        assert_eq!(ranges(&[0x40; 100]), []);
    }
}

//! Functions of Python that are executed: those that the thread is in, and those that are called on the way.
//!
//! In: a frame, or a function with its arguments. Out: an [`Activation`], with which instruction it goes on, and what its
//! variables hold. Functions that take any number of arguments, or that are generators, are none.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::value::Value;
use crate::image::Addr;
use crate::limits::python::MOST_ELEMENTS_OF_A_LOOP;
use crate::python::inspect::Inspector;
use crate::python::instructions::{Instruction, decode, in_units};
use crate::python::values::{Frame, Frames};

/// The code of a function.
pub(super) struct Code {
    pub(super) address: Addr,
    /// By where they start.
    pub(super) instructions: BTreeMap<u64, Instruction>,
    pub(super) constants: Vec<Addr>,
    pub(super) names: Vec<Addr>,
}

impl Code {
    fn new(frames: &Frames<'_>, address: Addr, version: (u8, u8, u8)) -> Option<Rc<Code>> {
        let instructions = decode(version, &frames.instructions(address)?);
        Some(Rc::new(Code {
            address,
            instructions: instructions.into_iter().map(|one| (one.start, one)).collect(),
            constants: frames.constants(address),
            names: frames.name_objects(address),
        }))
    }
}

/// A function that is executed.
pub(super) struct Activation {
    pub(super) code: Rc<Code>,
    pub(super) globals: Option<Addr>,
    /// The variables of the process's frame; none in a function that was called on the way.
    pub(super) variables: Vec<Addr>,
    /// Variables that were assigned on the way: `None` is unbound.
    pub(super) assigned: BTreeMap<u64, Option<Value>>,
    pub(super) stack: Vec<Value>,
    /// Handlers of the protected ranges around, the innermost last; none for the handler of an exception (up to 3.10).
    pub(super) blocks: Vec<Option<u64>>,
    /// It is the program itself, whose innermost scope is its module.
    pub(super) is_outermost: bool,
    /// Where it goes on.
    pub(super) next: u64,
}

/// All that decides how a function goes on.
pub(super) type State = (Addr, u64, Vec<Value>, BTreeMap<u64, Option<Value>>, Vec<Option<u64>>);

impl Activation {
    /// A function that the thread is in, at its call.
    pub(super) fn of_frame(inspector: &Inspector<'_>, frame: &Frame<'_, '_>, is_outermost: bool) -> Option<Self> {
        let version = inspector.python.version;
        let code = Code::new(inspector.frames(), frame.code(), version)?;
        let unit = frame.unit_of_call()?;
        let (start, call) = code.instructions.range(..=unit).next_back()?;
        let next = (unit < call.end).then_some(*start)?;
        let blocks = frame.handlers().into_iter().map(|handler| handler.map(|at| in_units(version, at))).collect();
        Some(Activation {
            code,
            globals: frame.globals(),
            variables: frame.raw_variables(),
            assigned: BTreeMap::new(),
            stack: Vec::new(),
            blocks,
            is_outermost,
            next,
        })
    }

    /// A function that is called with these arguments.
    pub(super) fn of_call(inspector: &Inspector<'_>, function: Addr, arguments: Vec<Value>) -> Option<Self> {
        let objects = inspector.objects();
        let parts = objects.function(function)?;
        let parameters = inspector.frames().parameters(parts.code)?;
        let missing = parameters.checked_sub(arguments.len())?;
        let defaults =
            parts.defaults.and_then(|defaults| objects.sequence(defaults, MOST_ELEMENTS_OF_A_LOOP)).unwrap_or_default();
        let defaults = defaults.get(defaults.len().checked_sub(missing)?..)?;
        let all = arguments.into_iter().chain(defaults.iter().map(|default| Value::Own(*default)));
        Some(Activation {
            code: Code::new(inspector.frames(), parts.code, inspector.python.version)?,
            globals: Some(parts.globals),
            variables: Vec::new(),
            assigned: (0..).zip(all.map(Some)).collect(),
            stack: Vec::new(),
            blocks: Vec::new(),
            is_outermost: false,
            next: 0,
        })
    }

    pub(super) fn state(&self) -> State {
        (self.code.address, self.next, self.stack.clone(), self.assigned.clone(), self.blocks.clone())
    }

    /// `None` for a value from before: code may run at the end of an object that is not known.
    pub(super) fn pop(&mut self) -> Option<Value> {
        self.stack.pop()
    }

    /// The last `count` values, in their order.
    pub(super) fn pop_many(&mut self, count: usize) -> Option<Vec<Value>> {
        Some(self.stack.split_off(self.stack.len().checked_sub(count)?))
    }

    /// Push the value at this depth once more; the last one has 1.
    pub(super) fn copy(&mut self, depth: usize) {
        let place = self.stack.len().checked_sub(depth);
        let value = place.and_then(|place| self.stack.get(place)).cloned();
        self.stack.push(value.unwrap_or(Value::Unknown));
    }

    /// Change the last value with the one at this depth.
    pub(super) fn swap(&mut self, depth: usize) -> Option<()> {
        let (last, other) = (self.stack.len().checked_sub(1)?, self.stack.len().checked_sub(depth)?);
        self.stack.swap(last, other);
        Some(())
    }

    /// Put the last value below the others of the last `count`.
    pub(super) fn rotate(&mut self, count: usize) -> Option<()> {
        let first = self.stack.len().checked_sub(count)?;
        self.stack.get_mut(first..)?.rotate_right(1);
        Some(())
    }

    pub(super) fn load(&mut self, index: u64) -> Option<()> {
        let value = match self.assigned.get(&index) {
            Some(assigned) => assigned.clone()?,
            None => {
                let object = self.variables.get(usize::try_from(index).ok()?)?;
                (!object.is_null()).then_some(Value::Own(*object))?
            }
        };
        self.stack.push(value);
        Some(())
    }

    /// Put something in the place of a variable: the object that the process's frame had there, if it is the first time.
    pub(super) fn assign(&mut self, index: u64, value: Option<Value>) -> Option<Addr> {
        let is_first = self.assigned.insert(index, value).is_none();
        let object = self.variables.get(usize::try_from(index).ok()?).copied();
        object.filter(|object| is_first && !object.is_null())
    }

    /// The objects that the process's frame has and that no other took the place of.
    pub(super) fn kept(&self) -> impl Iterator<Item = Addr> {
        let all = (0..)
            .zip(&self.variables)
            .filter(|(index, object)| !object.is_null() && !self.assigned.contains_key(index));
        all.map(|(_, object)| *object)
    }
}

//! Whether a thread that waits with a time-out asks again for the same thing for ever.
//!
//! In: the frame whose call waits, the object whose method it calls, and what that method does when its time is up
//! ([`TimedCall`]). Out: whether that never ends by itself. The code is executed here from the time-out on, as far as
//! its effect is known: constants, variables, jumps, a handler for the time-out's exception. Each call on the way must
//! be one of the same method of the same object, or only ask. A loop that returns to where it was, with the same
//! variables, does that until something changes that it has asked for: a flag, an event, the end of a thread. These
//! are the [`Change`]s. Anything else (another call, a counter, code of another version) may be a way out, and ends
//! the execution.

use std::collections::{BTreeMap, BTreeSet};

use super::inspect::Inspector;
use super::instructions::{Instruction, Operation, Way, When, decode, in_units};
use super::objects::Objects;
use super::values::Frame;
use crate::image::Addr;
use crate::limits::python::MOST_STEPS_OF_A_LOOP;

/// The effect of a method's time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeOut {
    /// It returns False.
    False,
    /// It returns None.
    Nothing,
    /// It raises an exception of the class with this name.
    Raises(&'static str),
}

/// Classes whose objects end without that any code runs.
const QUIET: &[&str] = &["NoneType", "bool", "int", "float", "str", "bytes"];

/// A call that waits with a time-out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedCall {
    /// The object whose method it is.
    pub(crate) object: Addr,
    pub(crate) method: &'static str,
    pub(crate) time_out: TimeOut,
    /// Methods of the object that only ask, and what they return for as long as the wait would last.
    pub(crate) queries: &'static [(&'static str, bool)],
}

/// A change by which other code may end the loop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// An object: one of its attributes, what it contains, or its state.
    Of(Addr),
    /// The global variable with this name, in this dictionary.
    Global(String, Option<Addr>),
    /// The thread that `threading` knows by this ident, by its end.
    End(u64),
}

/// A value on the stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// Not known, and of no effect where it is not used.
    Unknown,
    /// An object that a constant or a variable of the function has.
    Own(Addr),
    /// An object that another thread may put another one in the place of, and by which change.
    Shared(Addr, Change),
    /// The exception of the time-out.
    TimeOut,
    /// Whether a method that was called said so.
    Truth(bool),
    /// The result of a call that has none.
    Nothing,
    /// The method of the object.
    Method(String),
    /// A method of another object that only asks: its answer now, and what would change that.
    Asks(bool, Change),
}

impl Value {
    fn object(&self) -> Option<Addr> {
        match self {
            Value::Own(object) | Value::Shared(object, _) => Some(*object),
            _ => None,
        }
    }
}

/// The changes that alone would end the loop of a frame that asks again after each time-out of its call; `None` where it may end by
/// itself. `is_outermost`: no other code of Python has called it.
pub(crate) fn until(
    inspector: &Inspector<'_>,
    frame: &Frame<'_, '_>,
    call: &TimedCall,
    is_outermost: bool,
) -> Option<Vec<Change>> {
    let mut execution = Execution::new(inspector, frame, call, is_outermost)?;
    execution.run()?;
    let objects = inspector.objects();
    let is_queue = matches!(call.time_out, TimeOut::Raises("Empty" | "Full"));
    let attributes = is_queue.then(|| objects.attributes(call.object)).flatten().unwrap_or_default();
    // Code that has only the container of a queue's items can change these.
    let values = attributes.into_iter().map(|(_, value)| value);
    let containers = values.filter(|value| objects.sequence(*value, 1).is_some() || objects.items(*value).is_some());
    execution.changes.extend(containers.map(Change::Of));
    Some(execution.changes.into_iter().collect())
}

/// A function that is executed.
struct Execution<'e> {
    objects: &'e Objects<'e>,
    inspector: &'e Inspector<'e>,
    frame: &'e Frame<'e, 'e>,
    call: &'e TimedCall,
    version: (u8, u8, u8),
    /// It is the program itself, whose innermost scope is its module.
    is_outermost: bool,
    /// By where they start.
    instructions: BTreeMap<u64, Instruction>,
    constants: Vec<Addr>,
    names: Vec<Addr>,
    variables: Vec<Addr>,
    stack: Vec<Value>,
    /// Variables that were assigned on the way: `None` is unbound.
    assigned: BTreeMap<u64, Option<Value>>,
    /// Handlers of the protected ranges around, the innermost last; none for the handler of an exception (up to 3.10).
    blocks: Vec<Option<u64>>,
    /// The changes of things that the code has asked for so far.
    changes: BTreeSet<Change>,
}

impl<'e> Execution<'e> {
    fn new(
        inspector: &'e Inspector<'e>,
        frame: &'e Frame<'e, 'e>,
        call: &'e TimedCall,
        is_outermost: bool,
    ) -> Option<Self> {
        let version = inspector.python.version;
        let code = frame.instructions()?;
        let instructions = decode(version, &code).into_iter().map(|one| (one.start, one)).collect();
        let blocks = frame.handlers().into_iter().map(|handler| handler.map(|at| in_units(version, at))).collect();
        Some(Execution {
            objects: inspector.objects(),
            inspector,
            frame,
            call,
            version,
            is_outermost,
            instructions,
            constants: inspector.frames().constants(frame.code()),
            names: frame.name_objects(),
            variables: frame.raw_variables(),
            stack: Vec::new(),
            assigned: BTreeMap::new(),
            blocks,
            changes: BTreeSet::new(),
        })
    }

    /// Follow the code until it comes back to the call; `None` where its effect is not known.
    fn run(&mut self) -> Option<()> {
        let unit = self.frame.unit_of_call()?;
        let (_, here) = self.instructions.range(..=unit).next_back()?;
        let mut here = *here;
        if !matches!(here.operation, Operation::Call { .. }) || unit >= here.end {
            return None;
        }
        let mut seen = BTreeSet::new();
        let mut next = self.time_out(&here)?;
        for _ in 0..MOST_STEPS_OF_A_LOOP {
            here = *self.instructions.get(&next)?;
            next = match here.operation {
                Operation::Call { callee, names } => {
                    let arguments = here.argument + u64::from(names);
                    (0..arguments).for_each(|_| drop(self.pop()));
                    let mut slots: Vec<Value> = (0..callee).map(|_| self.pop()).collect();
                    slots.retain(|value| matches!(value, Value::Method(_) | Value::Asks(..)));
                    if let [Value::Asks(answer, change)] = slots.as_slice() {
                        self.stack.push(Value::Truth(*answer));
                        self.changes.insert(change.clone());
                        next = here.end;
                        continue;
                    }
                    let [Value::Method(name)] = slots.as_slice() else { return None };
                    if let Some((_, answer)) = self.call.queries.iter().find(|(query, _)| query == name) {
                        self.stack.push(Value::Truth(*answer));
                        here.end
                    } else if !seen.insert((here.start, self.stack.clone(), self.assigned.clone())) {
                        return Some(());
                    } else {
                        self.time_out(&here)?
                    }
                }
                _ => self.step(&here)?,
            };
        }
        None
    }

    /// The call comes back because its time is up: where the function goes on.
    fn time_out(&mut self, call: &Instruction) -> Option<u64> {
        match self.call.time_out {
            TimeOut::False => self.stack.push(Value::Truth(false)),
            TimeOut::Nothing => self.stack.push(Value::Nothing),
            TimeOut::Raises(_) => return self.raise(call),
        }
        Some(call.end)
    }

    fn raise(&mut self, call: &Instruction) -> Option<u64> {
        self.stack.clear();
        if self.version >= (3, 11, 0) {
            self.stack.extend([Value::Unknown, Value::TimeOut]);
            return self.frame.handler_of(call.end - 1);
        }
        while let Some(block) = self.blocks.pop() {
            if let Some(handler) = block {
                self.blocks.push(None);
                // The exception before, and this one: traceback, value, class.
                self.stack.extend([const { Value::Unknown }; 4]);
                self.stack.extend([Value::TimeOut, Value::TimeOut]);
                return Some(handler);
            }
        }
        None
    }

    /// Execute an instruction that is no call: where the next one is. `None` where its effect is not known.
    fn step(&mut self, here: &Instruction) -> Option<u64> {
        let argument = here.argument;
        match here.operation {
            Operation::Nothing => {}
            Operation::Unused => self.stack.push(Value::Unknown),
            Operation::LoadFast => self.load(argument)?,
            Operation::LoadTwoFast => {
                self.load(argument >> 4)?;
                self.load(argument & 15)?;
            }
            Operation::LoadConst => {
                let constant = self.constants.get(usize::try_from(argument).ok()?)?;
                self.stack.push(Value::Own(*constant));
            }
            Operation::LoadGlobal => self.load_global(argument)?,
            Operation::LoadName if self.is_outermost => self.load_of_module(argument)?,
            Operation::LoadCell => self.load_cell(argument)?,
            Operation::LoadAttribute | Operation::LoadMethod => {
                let (index, is_method) = here.attribute(self.version)?;
                self.load_attribute(index, is_method)?;
            }
            Operation::StoreFast => {
                let value = self.pop();
                self.overwrite(argument, Some(value))?;
            }
            Operation::DeleteFast => self.overwrite(argument, None)?,
            Operation::Pop => drop(self.pop()),
            Operation::Duplicate => self.copy(1),
            Operation::PushCopy => self.copy(usize::try_from(argument).ok()?),
            Operation::Not => {
                let truth = self.pop_truth()?;
                self.stack.push(Value::Truth(!truth));
            }
            Operation::ToBool => {
                let truth = self.pop_truth()?;
                self.stack.push(Value::Truth(truth));
            }
            Operation::Is => self.compare_identity(argument == 1)?,
            Operation::Compare => match argument {
                8 | 9 => self.compare_identity(argument == 9)?,
                10 => {
                    let matches = self.matches()?;
                    self.pop();
                    self.stack.push(Value::Truth(matches));
                }
                _ => return None,
            },
            Operation::Jump(way) => return here.target(way, self.version),
            Operation::JumpIf(when, way) => {
                let jumps = match when {
                    When::True => self.pop_truth()?,
                    When::False => !self.pop_truth()?,
                    When::Nothing => self.pop_is_none()?,
                    When::Something => !self.pop_is_none()?,
                };
                return if jumps { here.target(way, self.version) } else { Some(here.end) };
            }
            Operation::SetupFinally => {
                let handler = here.target(Way::Forward, self.version)?;
                self.blocks.push(Some(handler));
            }
            Operation::PopBlock => drop(self.blocks.pop()?),
            Operation::PushException => {
                let exception = self.pop();
                self.stack.extend([Value::Unknown, exception]);
            }
            Operation::MatchException => {
                let matches = self.matches()?;
                self.stack.push(Value::Truth(matches));
            }
            Operation::JumpIfNoMatch => {
                let matches = self.matches()?;
                self.pop();
                return if matches { Some(here.end) } else { here.target(Way::Absolute, self.version) };
            }
            Operation::PopExcept if self.version >= (3, 11, 0) => drop(self.pop()),
            Operation::PopExcept => {
                (0..3).for_each(|_| drop(self.pop()));
                self.blocks.pop()?;
            }
            Operation::Extended
            | Operation::Call { .. }
            | Operation::LoadName
            | Operation::StoreName
            | Operation::Branch(_)
            | Operation::End
            | Operation::Compiled
            | Operation::Other => return None,
        }
        Some(here.end)
    }

    /// Values below those of this execution are unknown.
    fn pop(&mut self) -> Value {
        self.stack.pop().unwrap_or(Value::Unknown)
    }

    fn copy(&mut self, depth: usize) {
        let place = self.stack.len().checked_sub(depth);
        let value = place.and_then(|place| self.stack.get(place)).cloned();
        self.stack.push(value.unwrap_or(Value::Unknown));
    }

    fn load(&mut self, index: u64) -> Option<()> {
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

    /// Put something in the place of a variable. The object before may end by that, and code may run at its end.
    fn overwrite(&mut self, index: u64, value: Option<Value>) -> Option<()> {
        let before = match self.assigned.insert(index, value) {
            Some(before) => before,
            None => self.variables.get(usize::try_from(index).ok()?).map(|object| Value::Own(*object)),
        };
        let ends_quietly = |object: Addr| {
            let class = self.objects.class(object).filter(|class| !self.objects.is_heap_class(*class));
            let name = class.and_then(|class| self.objects.name_of_class(class));
            object.is_null() || name.is_some_and(|name| QUIET.contains(&&*name))
        };
        match before {
            Some(Value::Own(object) | Value::Shared(object, _)) => ends_quietly(object).then_some(()),
            _ => Some(()),
        }
    }

    fn load_cell(&mut self, index: u64) -> Option<()> {
        let is_cell = |object: &Addr| self.objects.class(*object).is_some_and(|class| self.objects.is_cells(class));
        // Up to 3.10 cells are counted on their own; they stand behind the other variables.
        let first = match self.version >= (3, 11, 0) {
            true => 0,
            false => self.variables.iter().position(is_cell)?,
        };
        let cell = self.variables.get(first.checked_add(usize::try_from(index).ok()?)?).filter(|cell| is_cell(cell))?;
        self.stack.push(Value::Shared(self.objects.out_of_cell(*cell), Change::Of(*cell)));
        Some(())
    }

    fn load_global(&mut self, argument: u64) -> Option<()> {
        let (index, has_null) =
            if self.version >= (3, 11, 0) { (argument >> 1, argument & 1 == 1) } else { (argument, false) };
        self.stack.extend(has_null.then_some(Value::Unknown));
        self.load_of_module(index)
    }

    fn load_of_module(&mut self, index: u64) -> Option<()> {
        let name = self.name(index)?;
        let own = self.frame.globals().and_then(|globals| self.objects.item(globals, &name));
        let value = own.or_else(|| self.inspector.modules().builtins.get(&name).copied())?;
        self.stack.push(Value::Shared(value, Change::Global(name, self.frame.globals())));
        Some(())
    }

    fn load_attribute(&mut self, index: u64, is_method: bool) -> Option<()> {
        let name = self.name(index)?;
        let owner = self.pop();
        let object = owner.object()?;
        // Another object may come to stand in its place. Modules and classes stay.
        if let Value::Shared(_, change) = owner
            && !self.objects.is_class(object)
            && self.module_dict(object).is_none()
        {
            self.changes.insert(change);
        }
        let is_known = name == self.call.method || self.call.queries.iter().any(|(query, _)| *query == name);
        let value = match object == self.call.object && is_known && self.objects.attribute(object, &name).is_none() {
            true => Value::Method(name),
            false => match self.question(object, &name) {
                Some((answer, change)) => Value::Asks(answer, change),
                None => Value::Shared(self.attribute(object, &name)?, self.change_of(object, name)),
            },
        };
        self.stack.push(value);
        self.stack.extend(is_method.then_some(Value::Unknown));
        Some(())
    }

    /// The answer to a method of `threading`'s own that only asks, and what would change it.
    fn question(&self, object: Addr, method: &str) -> Option<(bool, Change)> {
        let (_, order) = self.objects.class_parts(self.objects.class(object)?)?;
        let has = |class: &Addr| {
            let dict = self.objects.class_parts(*class).and_then(|(dict, _)| dict);
            dict.is_some_and(|dict| self.objects.item(dict, method).is_some())
        };
        let own = self.objects.attribute(object, method).is_none().then(|| order.into_iter().find(has))??;
        let is_of = |class: &'static str| self.inspector.globals("threading", class).any(|known| known == own);
        let attribute = |name: &str| self.objects.unsigned(self.objects.attribute(object, name)?);
        match method {
            "is_set" if is_of("Event") => Some((attribute("_flag")? != 0, Change::Of(object))),
            "is_alive" if is_of("Thread") => {
                let ident = attribute("_ident")?;
                Some((self.inspector.with_ident(ident).is_some(), Change::End(ident)))
            }
            _ => None,
        }
    }

    /// How an attribute gets another value. A module's own code knows it as a global.
    fn change_of(&self, object: Addr, name: String) -> Change {
        match self.module_dict(object) {
            Some(dict) => Change::Global(name, Some(dict)),
            None => Change::Of(object),
        }
    }

    /// The dictionary of a module's globals; `None` for other objects.
    fn module_dict(&self, object: Addr) -> Option<Addr> {
        let is_module = self.objects.class_name(object).as_deref() == Some("module");
        // PyModuleObject.md_dict is the first word behind the head.
        is_module.then(|| self.objects.field(object, 0)).flatten()
    }

    /// The value of an attribute that is read without running code.
    fn attribute(&self, object: Addr, name: &str) -> Option<Addr> {
        let objects = &self.objects;
        if let Some(dict) = self.module_dict(object) {
            return objects.item(dict, name);
        }
        let (_, order) = objects.class_parts(objects.class(object)?)?;
        let computes = |class: &Addr| {
            let dict = objects.class_parts(*class).and_then(|(dict, _)| dict);
            objects.is_heap_class(*class) && dict.is_none_or(|dict| objects.item(dict, "__getattribute__").is_some())
        };
        if order.iter().any(computes) {
            return None;
        }
        let mut dicts = order.into_iter().filter_map(|class| objects.class_parts(class)?.0);
        match dicts.find_map(|dict| objects.item(dict, name)) {
            None => objects.attribute(object, name),
            Some(found) if objects.class_name(found).as_deref() == Some("member_descriptor") => {
                objects.member(object, name)
            }
            // It is the class's own, or computed.
            Some(_) => None,
        }
    }

    fn name(&self, index: u64) -> Option<String> {
        self.objects.text(*self.names.get(usize::try_from(index).ok()?)?)
    }

    fn pop_truth(&mut self) -> Option<bool> {
        match self.pop() {
            Value::Truth(truth) => Some(truth),
            Value::Nothing => Some(false),
            Value::Own(object) => self.truth(object),
            Value::Shared(object, change) => {
                self.changes.insert(change);
                self.truth(object)
            }
            _ => None,
        }
    }

    /// Whether an object counts as true: None, a number, or a container, whose contents other code may change.
    fn truth(&mut self, object: Addr) -> Option<bool> {
        if self.objects.is_none(object) {
            return Some(false);
        }
        let class = self.objects.class(object).filter(|class| !self.objects.is_heap_class(*class))?;
        match &*self.objects.name_of_class(class)? {
            // The number of its elements stands first behind the head.
            "list" | "dict" | "collections.deque" => {
                self.changes.insert(Change::Of(object));
                self.objects.field(object, 0).map(|count| count.0 != 0)
            }
            "bool" | "int" => self.objects.unsigned(object).map(|number| number != 0),
            _ => None,
        }
    }

    fn pop_is_none(&mut self) -> Option<bool> {
        match self.pop() {
            Value::Truth(_) => Some(false),
            Value::Nothing => Some(true),
            Value::Own(object) => Some(self.objects.is_none(object)),
            Value::Shared(object, change) => {
                self.changes.insert(change);
                Some(self.objects.is_none(object))
            }
            _ => None,
        }
    }

    /// `is`, where one side is None.
    fn compare_identity(&mut self, is_negated: bool) -> Option<()> {
        let (right, left) = (self.stack.last()?.clone(), self.stack.iter().rev().nth(1)?.clone());
        let is_none = |value: &Value| match value {
            Value::Nothing => true,
            Value::Own(object) | Value::Shared(object, _) => self.objects.is_none(*object),
            _ => false,
        };
        let of_other = match (is_none(&left), is_none(&right)) {
            (_, true) => left,
            (true, false) => right,
            _ => return None,
        };
        (0..2).for_each(|_| drop(self.pop()));
        self.stack.push(of_other);
        let is_none = self.pop_is_none()?;
        self.stack.push(Value::Truth(is_none != is_negated));
        Some(())
    }

    /// Pop a class: whether the exception, which is next, is of it. `None` where it is not one that certainly is.
    fn matches(&mut self) -> Option<bool> {
        let class = self.pop().object().filter(|class| self.objects.is_class(*class))?;
        let TimeOut::Raises(raised) = self.call.time_out else { return None };
        let name = self.objects.name_of_class(class)?;
        let short = name.rsplit('.').next().unwrap_or(&name);
        let is_wide = matches!(short, "Exception" | "BaseException");
        (self.stack.last() == Some(&Value::TimeOut) && (short == raised || is_wide)).then_some(true)
    }
}

//! The execution of a thread's code from a time-out on, until it waits for the same thing again.
//!
//! In: frames, a call that waits. Out: whether it comes back to the same call in the same state, and which changes of
//! other code's would keep it from that. Objects of the process are read, and never written: what is made on the way is a
//! [`Value`]. An instruction of another effect ends the execution.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::function::{Activation, State};
use super::value::{Value, ends_quietly};
use super::{Change, TimeOut, TimedCall, lookup};
use crate::image::Addr;
use crate::limits::python::{MOST_FUNCTIONS_OF_A_LOOP, MOST_STEPS_OF_A_LOOP};
use crate::python::PythonFrame;
use crate::python::inspect::Inspector;
use crate::python::instructions::{Instruction, Operation, Way, When};
use crate::python::objects::Objects;

/// A thread whose code is executed.
pub(super) struct Execution<'e, 'f> {
    inspector: &'e Inspector<'e>,
    objects: &'e Objects<'e>,
    call: &'e TimedCall,
    version: (u8, u8, u8),
    /// The functions that the thread is in, from the one that calls outwards.
    frames: &'e [&'f PythonFrame],
    /// How many of these have been taken.
    taken: usize,
    /// The functions that are executed, the innermost last.
    running: Vec<Activation>,
    /// Calls of functions by frames of the process, as code, place and function: what such a call does is known only once it was
    /// executed here.
    assumed: Vec<(Addr, u64, Addr)>,
    confirmed: BTreeSet<(Addr, u64, Addr)>,
    /// The calls that waited, as code and place. That of the process's frame is one of them, or loads the method itself.
    waited: BTreeSet<(Addr, u64)>,
    /// Names of arguments precede the next call.
    has_names: bool,
    states: BTreeSet<Vec<State>>,
    /// The changes of things that the code has asked for so far.
    pub(super) changes: BTreeSet<Change>,
}

impl<'e, 'f> Execution<'e, 'f> {
    pub(super) fn new(
        inspector: &'e Inspector<'e>,
        frames: &'e [&'f PythonFrame],
        call: &'e TimedCall,
    ) -> Option<Self> {
        let mut execution = Execution {
            inspector,
            objects: inspector.objects(),
            call,
            version: inspector.python.version,
            frames,
            taken: 0,
            running: Vec::new(),
            assumed: Vec::new(),
            confirmed: BTreeSet::new(),
            waited: BTreeSet::new(),
            has_names: false,
            states: BTreeSet::new(),
            changes: BTreeSet::new(),
        };
        execution.enter_caller()?;
        Some(execution)
    }

    /// The outermost function of the loop.
    pub(super) fn outermost(&self) -> Option<&'f PythonFrame> {
        self.frames.get(self.taken.checked_sub(1)?).copied()
    }

    /// Follow the code until it comes back to the call; `None` where its effect is not known.
    pub(super) fn run(&mut self) -> Option<()> {
        let here = self.here()?;
        if !matches!(here.operation, Operation::Call { .. }) {
            return None;
        }
        let first = (self.running.last()?.code.address, here.start);
        let is_direct = self.is_direct(&here)?;
        self.time_out(&here)?;
        for _ in 0..MOST_STEPS_OF_A_LOOP {
            let here = self.here()?;
            match here.operation {
                Operation::Call { callee, names } => {
                    if self.make_call(&here, callee.into(), names.into())? {
                        let all = self.assumed.iter().all(|assumed| self.confirmed.contains(assumed));
                        return (all && (is_direct || self.waited.contains(&first))).then_some(());
                    }
                }
                Operation::Return => {
                    let value = self.function()?.pop()?;
                    self.leave()?;
                    self.function()?.stack.push(value);
                }
                Operation::ReturnConstant => {
                    let constant = self.constant(here.argument)?;
                    self.leave()?;
                    self.function()?.stack.push(constant);
                }
                _ => {
                    let next = self.step(&here)?;
                    self.function()?.next = next;
                }
            }
        }
        None
    }

    /// The innermost function.
    fn function(&mut self) -> Option<&mut Activation> {
        self.running.last_mut()
    }

    /// Its next instruction.
    fn here(&self) -> Option<Instruction> {
        let function = self.running.last()?;
        function.code.instructions.get(&function.next).copied()
    }

    /// Whether a call of the process's frame is certainly one of the method that waits, as its instructions load nothing but the
    /// method and the arguments: code in C may call the method any number of times.
    fn is_direct(&self, call: &Instruction) -> Option<bool> {
        let names = match call.operation {
            Operation::Call { names, .. } => u64::from(names),
            _ => return None,
        };
        let mut wanted = call.argument + names;
        for before in self.running.last()?.code.instructions.range(..call.start).rev().map(|(_, one)| one) {
            let loads = match before.operation {
                Operation::Nothing | Operation::Names | Operation::Unused => 0,
                Operation::LoadFast
                | Operation::LoadConst
                | Operation::LoadGlobal
                | Operation::LoadCell
                | Operation::SmallNumber
                | Operation::LoadName => 1,
                Operation::LoadTwoFast => 2,
                Operation::LoadAttribute | Operation::LoadMethod if wanted == 0 => {
                    let (index, _) = before.attribute(self.version)?;
                    return Some(self.name(index)? == self.call.method);
                }
                _ => return Some(false),
            };
            match wanted.checked_sub(loads) {
                Some(left) => wanted = left,
                None => return Some(false),
            }
        }
        Some(false)
    }

    /// Execute a call: whether it is the one that waits, in a state that it had before.
    fn make_call(&mut self, here: &Instruction, callee: usize, names: usize) -> Option<bool> {
        let has_names = std::mem::take(&mut self.has_names) || names > 0;
        let function = self.running.last_mut()?;
        let code = function.code.address;
        function.pop_many(names)?;
        let arguments = function.pop_many(usize::try_from(here.argument).ok()?)?;
        let mut slots = function.pop_many(callee)?;
        slots.retain(|value| *value != Value::Unknown);
        let [called] = slots.as_slice() else { return None };
        let result = match called {
            Value::Asks(answer, change) => {
                self.changes.insert(change.clone());
                Value::Truth(*answer)
            }
            Value::Method(name) => match self.call.queries.iter().find(|(query, _)| query == name) {
                Some((_, answer)) => Value::Truth(*answer),
                None => {
                    self.pass(&arguments)?;
                    self.waited.insert((code, here.start));
                    let is_known = !self.states.insert(self.running.iter().map(Activation::state).collect());
                    self.time_out(here)?;
                    return Some(is_known);
                }
            },
            Value::Function(function, first) => {
                let first = first.iter().map(|first| (**first).clone());
                let arguments = first.chain(arguments).collect();
                self.enter(*function, (!has_names).then_some(arguments)?, here)?;
                return Some(false);
            }
            _ => {
                let object = called.object_that_stays(&mut self.changes)?;
                if self.objects.class_name(object).as_deref() == Some("function") {
                    self.enter(object, (!has_names).then_some(arguments)?, here)?;
                    return Some(false);
                }
                self.built_in(object, &arguments)?
            }
        };
        let function = self.function()?;
        function.stack.push(result);
        function.next = here.end;
        Some(false)
    }

    /// Arguments of the wait. An item for a queue may be anything; all others are plain, so that no code runs for them. A global
    /// among them counts as a constant.
    fn pass(&mut self, arguments: &[Value]) -> Option<()> {
        let skipped = usize::from(self.call.method == "put");
        for argument in arguments.iter().skip(skipped) {
            if let Some(object) = argument.object() {
                ends_quietly(self.objects, object).then_some(())?;
            }
            if let Value::Shared(_, change @ Change::Of(_)) = argument {
                self.changes.insert(change.clone());
            }
        }
        Some(())
    }

    /// The result of one of the interpreter's own functions.
    fn built_in(&mut self, function: Addr, arguments: &[Value]) -> Option<Value> {
        let builtins = &self.inspector.modules().builtins;
        let is = |name: &str| builtins.get(name) == Some(&function);
        match arguments {
            [value] if is("len") => value.length(self.objects, &mut self.changes).map(Value::Number),
            [Value::TimeOut, class] if is("isinstance") => self.is_of(class).then_some(Value::Truth(true)),
            [value] if is("enumerate") => {
                let elements = value.elements(self.objects, &mut self.changes)?;
                let numbered = (0..).map(Value::Number).zip(elements);
                let mut pairs: Vec<Value> = numbered.map(|(number, value)| Value::Made(vec![number, value])).collect();
                pairs.reverse();
                Some(Value::Elements(pairs))
            }
            _ => None,
        }
    }

    /// Go on in the function that is called.
    fn enter(&mut self, function: Addr, arguments: Vec<Value>, here: &Instruction) -> Option<()> {
        if self.running.len() >= MOST_FUNCTIONS_OF_A_LOOP {
            return None;
        }
        let called = Activation::of_call(self.inspector, function, arguments)?;
        let caller = self.function()?;
        let confirmed = (caller.code.address, here.start, called.code.address);
        caller.next = here.end;
        self.confirmed.insert(confirmed);
        self.running.push(called);
        Some(())
    }

    /// Leave the innermost function: its caller has its call behind it.
    fn leave(&mut self) -> Option<()> {
        let left = self.running.pop()?;
        if self.running.is_empty() {
            self.enter_caller()?;
            let call = self.here().filter(|here| matches!(here.operation, Operation::Call { .. }))?;
            let caller = self.function()?;
            let assumed = (caller.code.address, call.start, left.code.address);
            caller.next = call.end;
            self.assumed.push(assumed);
            let mut dropped = left.kept();
            return dropped.all(|object| self.outlives(object)).then_some(());
        }
        Some(())
    }

    /// Take the next function that the thread is in.
    fn enter_caller(&mut self) -> Option<()> {
        let frame = self.frames.get(self.taken)?;
        let is_outermost = self.taken + 1 == self.frames.len();
        self.taken += 1;
        self.running.push(Activation::of_frame(self.inspector, &self.inspector.frame(frame)?, is_outermost)?);
        Some(())
    }

    /// Whether no code runs because a variable of a frame does not have an object any more: none runs at its end, or a function
    /// further out, what that has as an attribute, or a module has it as well.
    pub(super) fn outlives(&self, object: Addr) -> bool {
        let outer =
            self.frames.iter().skip(self.taken.saturating_sub(1)).filter_map(|frame| self.inspector.frame(frame));
        let mut kept = outer.flat_map(|frame| {
            let variables = frame.raw_variables().into_iter().map(|variable| self.objects.out_of_cell(variable));
            let attributes = |object: Addr| self.objects.attributes(object).unwrap_or_default();
            let with_attributes = variables
                .flat_map(move |one| std::iter::once(one).chain(attributes(one).into_iter().map(|(_, value)| value)));
            let globals = frame.globals().map(|globals| self.objects.items(globals).unwrap_or_default());
            with_attributes.chain(globals.into_iter().flatten().map(|(_, value)| value)).collect::<Vec<_>>()
        });
        ends_quietly(self.objects, object) || kept.any(|one| one == object)
    }

    /// The call comes back because its time is up.
    fn time_out(&mut self, call: &Instruction) -> Option<()> {
        let value = match self.call.time_out {
            TimeOut::False => Value::Truth(false),
            TimeOut::Nothing => Value::Nothing,
            TimeOut::Raises(..) => return self.raise(call.end),
        };
        let function = self.function()?;
        function.stack.push(value);
        function.next = call.end;
        Some(())
    }

    /// The exception of the time-out leaves a call that ends there.
    fn raise(&mut self, end: u64) -> Option<()> {
        let mut end = end;
        loop {
            let (inspector, version) = (self.inspector, self.version);
            let function = self.function()?;
            // Operands end here, and those of the process's frame may be others than in this round.
            if function.stack.iter().any(|value| !matches!(value, Value::Unknown | Value::TimeOut)) {
                return None;
            }
            function.stack.clear();
            let handler = || inspector.frames().handler_of(function.code.address, end - 1);
            if let Some(handler) = (version >= (3, 11, 0)).then(handler).flatten() {
                function.stack.extend([Value::Unknown, Value::TimeOut]);
                function.next = handler;
                return Some(());
            }
            while let Some(block) = function.blocks.pop() {
                if let Some(handler) = block {
                    function.blocks.push(None);
                    // The exception before, and this one: traceback, value, class.
                    function.stack.extend([const { Value::Unknown }; 4]);
                    function.stack.extend([Value::TimeOut, Value::TimeOut]);
                    function.next = handler;
                    return Some(());
                }
            }
            self.leave()?;
            end = self.function()?.next;
        }
    }

    /// Execute an instruction that is no call: where the next one is. `None` where its effect is not known.
    fn step(&mut self, here: &Instruction) -> Option<u64> {
        let argument = here.argument;
        let count = || usize::try_from(argument).ok();
        match here.operation {
            Operation::Nothing => {}
            Operation::Names => self.has_names = true,
            Operation::Unused => self.push(Value::Unknown)?,
            Operation::SmallNumber => self.push(Value::Number(i64::try_from(argument).ok()?))?,
            Operation::LoadFast => self.function()?.load(argument)?,
            Operation::LoadTwoFast => {
                self.function()?.load(argument >> 4)?;
                self.function()?.load(argument & 15)?;
            }
            Operation::LoadConst => {
                let constant = self.constant(argument)?;
                self.push(constant)?;
            }
            Operation::LoadGlobal => self.load_global(argument)?,
            Operation::LoadName if self.running.last()?.is_outermost => self.load_of_module(argument)?,
            Operation::LoadCell => self.load_cell(argument)?,
            Operation::LoadAttribute | Operation::LoadMethod => {
                let (index, is_method) = here.attribute(self.version)?;
                self.load_attribute(index, is_method)?;
            }
            Operation::StoreFast => self.store(argument)?,
            Operation::StoreTwoFast => {
                self.store(argument >> 4)?;
                self.store(argument & 15)?;
            }
            Operation::StoreAndLoadFast => {
                self.store(argument >> 4)?;
                self.function()?.load(argument & 15)?;
            }
            Operation::DeleteFast => self.overwrite(argument, None)?,
            Operation::Pop => drop(self.function()?.pop()?),
            Operation::Duplicate => self.function()?.copy(1),
            Operation::PushCopy => self.function()?.copy(count()?),
            Operation::Swap => self.function()?.swap(count()?)?,
            Operation::Rotate(count) => self.function()?.rotate(count.into())?,
            Operation::Not => {
                let truth = self.pop_truth()?;
                self.push(Value::Truth(!truth))?;
            }
            Operation::ToBool => {
                let truth = self.pop_truth()?;
                self.push(Value::Truth(truth))?;
            }
            Operation::Is => self.compare_identity(argument == 1)?,
            Operation::Compare => self.compare(argument)?,
            Operation::Make => {
                let elements = self.function()?.pop_many(count()?)?;
                self.push(Value::Made(elements))?;
            }
            Operation::Unpack => {
                let elements = self.function()?.pop()?.elements(self.objects, &mut self.changes)?;
                let function = self.function()?;
                (elements.len() == count()?).then(|| function.stack.extend(elements.into_iter().rev()))?;
            }
            Operation::Subscript => self.subscript()?,
            // NB_SUBSCR (3.14 on).
            Operation::Binary if argument == 26 => self.subscript()?,
            Operation::Iterate => {
                let mut elements = self.function()?.pop()?;
                if !matches!(elements, Value::Elements(_)) {
                    let in_order = elements.elements(self.objects, &mut self.changes)?;
                    elements = Value::Elements(in_order.into_iter().rev().collect());
                }
                self.push(elements)?;
            }
            Operation::ForIter(way) => {
                let function = self.running.last_mut()?;
                let Some(Value::Elements(rest)) = function.stack.last_mut() else { return None };
                if let Some(next) = rest.pop() {
                    function.stack.push(next);
                    return Some(here.end);
                }
                // Up to 3.11 the iterator goes at once, later by what stands where the jump leads.
                if self.version < (3, 12, 0) {
                    function.pop()?;
                }
                return here.target(way, self.version);
            }
            // Up to 3.12 it drops the iterator and a last value, which is none here; later that value alone.
            Operation::EndFor if self.version < (3, 13, 0) => drop(self.function()?.pop()?),
            Operation::EndFor => {}
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
            Operation::JumpIfOr(when, way) => {
                let truth = self.running.last()?.stack.last()?.truth(self.objects, &mut self.changes)?;
                if truth == (when == When::True) {
                    return here.target(way, self.version);
                }
                self.function()?.pop()?;
            }
            Operation::SetupFinally => {
                let handler = here.target(Way::Forward, self.version)?;
                self.function()?.blocks.push(Some(handler));
            }
            Operation::PopBlock => drop(self.function()?.blocks.pop()?),
            Operation::BeginFinally => self.push(Value::Nothing)?,
            Operation::CallFinally => {
                self.push(Value::Number(i64::try_from(here.end).ok()?))?;
                return here.target(Way::Forward, self.version);
            }
            Operation::EndFinally => match self.function()?.pop()? {
                Value::Nothing => {}
                Value::Number(back) => return u64::try_from(back).ok(),
                _ => return None,
            },
            Operation::PushException => {
                let exception = self.function()?.pop()?;
                self.function()?.stack.extend([Value::Unknown, exception]);
            }
            Operation::MatchException => {
                let matches = self.matches()?;
                self.push(Value::Truth(matches))?;
            }
            Operation::JumpIfNoMatch => {
                let matches = self.matches()?;
                self.function()?.pop()?;
                return if matches { Some(here.end) } else { here.target(Way::Absolute, self.version) };
            }
            Operation::PopExcept if self.version >= (3, 11, 0) => drop(self.function()?.pop()?),
            Operation::PopExcept => {
                let function = self.function()?;
                function.pop_many(3)?;
                function.blocks.pop()?;
            }
            Operation::Extended
            | Operation::Call { .. }
            | Operation::Return
            | Operation::ReturnConstant
            | Operation::LoadName
            | Operation::StoreName
            | Operation::Binary
            | Operation::Branch(_)
            | Operation::End
            | Operation::Compiled
            | Operation::Other => return None,
        }
        Some(here.end)
    }

    fn push(&mut self, value: Value) -> Option<()> {
        self.function()?.stack.push(value);
        Some(())
    }

    fn constant(&self, index: u64) -> Option<Value> {
        let constants = &self.running.last()?.code.constants;
        constants.get(usize::try_from(index).ok()?).copied().map(Value::Own)
    }

    fn store(&mut self, index: u64) -> Option<()> {
        let value = self.function()?.pop()?;
        self.overwrite(index, Some(value))
    }

    /// Put something in the place of a variable. The object before may end by that, and code may run at its end.
    fn overwrite(&mut self, index: u64, value: Option<Value>) -> Option<()> {
        match self.function()?.assign(index, value) {
            Some(before) => ends_quietly(self.objects, before).then_some(()),
            None => Some(()),
        }
    }

    fn subscript(&mut self) -> Option<()> {
        let (key, container) = (self.function()?.pop()?, self.function()?.pop()?);
        let element = container.element(&key, self.objects, &mut self.changes)?;
        self.push(element)
    }

    fn load_cell(&mut self, index: u64) -> Option<()> {
        let is_cell = |object: &Addr| self.objects.class(*object).is_some_and(|class| self.objects.is_cells(class));
        let variables = &self.running.last()?.variables;
        // Up to 3.10 cells are counted on their own; they stand behind the other variables.
        let first = match self.version >= (3, 11, 0) {
            true => 0,
            false => variables.iter().position(is_cell)?,
        };
        let cell = *variables.get(first.checked_add(usize::try_from(index).ok()?)?).filter(|cell| is_cell(cell))?;
        self.push(Value::Shared(self.objects.out_of_cell(cell), Change::Of(cell)))
    }

    fn load_global(&mut self, argument: u64) -> Option<()> {
        let (index, has_null) =
            if self.version >= (3, 11, 0) { (argument >> 1, argument & 1 == 1) } else { (argument, false) };
        self.function()?.stack.extend(has_null.then_some(Value::Unknown));
        self.load_of_module(index)
    }

    fn load_of_module(&mut self, index: u64) -> Option<()> {
        let (name, globals) = (self.name(index)?, self.running.last()?.globals);
        let own = globals.and_then(|globals| self.objects.item(globals, &name));
        let value = own.or_else(|| self.inspector.modules().builtins.get(&name).copied())?;
        self.push(Value::Shared(value, Change::Global(name, globals)))
    }

    fn load_attribute(&mut self, index: u64, is_method: bool) -> Option<()> {
        let name = self.name(index)?;
        let owner = self.function()?.pop()?;
        let value = lookup::attribute(self.inspector, self.call, owner, name, &mut self.changes)?;
        self.push(value)?;
        self.function()?.stack.extend(is_method.then_some(Value::Unknown));
        Some(())
    }

    fn name(&self, index: u64) -> Option<String> {
        self.objects.text(*self.running.last()?.code.names.get(usize::try_from(index).ok()?)?)
    }

    fn pop_truth(&mut self) -> Option<bool> {
        self.function()?.pop()?.truth(self.objects, &mut self.changes)
    }

    fn pop_is_none(&mut self) -> Option<bool> {
        self.function()?.pop()?.is_none(self.objects, &mut self.changes)
    }

    /// `is`, where one side is None.
    fn compare_identity(&mut self, is_negated: bool) -> Option<()> {
        let (right, left) = (self.function()?.pop()?, self.function()?.pop()?);
        // None itself is a constant, or what a call gave back.
        let is_nothing = |value: &Value| match value {
            Value::Nothing => true,
            Value::Own(object) => self.objects.is_none(*object),
            _ => false,
        };
        let other = match (is_nothing(&left), is_nothing(&right)) {
            (_, true) => left,
            (true, false) => right,
            _ => return None,
        };
        let is_none = other.is_none(self.objects, &mut self.changes)?;
        self.push(Value::Truth(is_none != is_negated))
    }

    /// A comparison by its argument (`dis.cmp_op`); up to 3.8 of identity and classes of exceptions, too.
    fn compare(&mut self, argument: u64) -> Option<()> {
        let which = match self.version {
            (3, ..=11, _) => argument,
            (3, 12, _) => argument >> 4,
            _ => argument >> 5,
        };
        match which {
            8 | 9 => return self.compare_identity(which == 9),
            10 => {
                let matches = self.matches()?;
                self.function()?.pop()?;
                return self.push(Value::Truth(matches));
            }
            _ => {}
        }
        let (right, left) = (self.function()?.pop()?, self.function()?.pop()?);
        let order = left.order(&right, self.objects, &mut self.changes)?;
        let holds = match which {
            0 => order == Ordering::Less,
            1 => order != Ordering::Greater,
            2 => order == Ordering::Equal,
            3 => order != Ordering::Equal,
            4 => order == Ordering::Greater,
            5 => order != Ordering::Less,
            _ => return None,
        };
        self.push(Value::Truth(holds))
    }

    /// Pop a class: whether the exception, which is next, is of it. `None` where it is not one that certainly is.
    fn matches(&mut self) -> Option<bool> {
        let class = self.function()?.pop()?;
        (self.running.last()?.stack.last() == Some(&Value::TimeOut) && self.is_of(&class)).then_some(true)
    }

    /// Whether the time-out's exception is certainly of this class.
    fn is_of(&mut self, class: &Value) -> bool {
        let TimeOut::Raises(module, name) = self.call.time_out else { return false };
        let Some(class) = class.object_that_stays(&mut self.changes) else { return false };
        let mut raised = self.inspector.globals(module, name);
        raised.any(|raised| self.objects.class_parts(raised).is_some_and(|(_, order)| order.contains(&class)))
    }
}

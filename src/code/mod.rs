//! Machine code: which calls a function makes, with which arguments, and which paths lead past them.
//!
//! In: a frame with its registers, or a function with the arguments of a call, and the memory of its process. Out:
//! [`CallSite`]s in order of address, and answers about paths. Results are inferences, never exact.
//! It knows no lock and no library; its callers do.

// Its input is foreign.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod callers;
mod onwards;
mod parameters;
mod paths;
mod thread_storage;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

pub(crate) use callers::Branches;
pub(crate) use onwards::Value;
pub(crate) use paths::Goal;

use crate::arch::instructions::{Effect, Flow, Place, Target};
use crate::arch::{Architecture, Register, RegisterSet};
use crate::image::{Addr, MemoryExt, ProcessImage};
use crate::limits::code::LARGEST_FUNCTION;
use crate::symbols::{Called, Symbols, base_symbol};
use crate::unwind::NativeFrame;

/// Where the stack of a function that returned is thought to lie: what it wrote there is remembered, and no process
/// has memory there.
const IMAGINED_STACK: u64 = 0x7ff0_0000_0000_0000;

/// The known values of a call's first arguments.
pub(crate) type Arguments = [Option<u64>; 4];

/// One call instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallSite {
    /// Address of the call instruction.
    pub at: Addr,
    /// Where it goes, behind a stub of the linker.
    pub target: Option<Addr>,
    /// Name of the called function.
    pub function: Option<String>,
    /// The first arguments, where the code before the call sets them to values that are known.
    pub arguments: Arguments,
    /// The register for the address of the result. It has one only for results which registers cannot hold.
    pub result_address: Option<u64>,
}

/// The calls and the writes of one function, in order of address.
#[derive(Debug, Default)]
pub(crate) struct CallsAndWrites {
    /// Its calls.
    pub calls: Vec<CallSite>,
    /// Where it writes to memory, and to what address, if that is known.
    pub writes: Vec<(Addr, Addr)>,
    /// The call that the frame is in.
    pub current: Option<CallSite>,
    /// It uses what each thread has of its own: another thread may get other values here.
    pub is_of_thread: bool,
    /// It calls a function whose address it has in a register, and that is not known.
    pub is_open: bool,
}

/// Reads the code of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code<'a> {
    image: &'a ProcessImage,
    symbols: &'a Symbols<'a>,
}

impl<'a> Code<'a> {
    /// The code of `image`.
    pub(crate) fn new(image: &'a ProcessImage, symbols: &'a Symbols<'a>) -> Self {
        Code { image, symbols }
    }

    /// The calls that the function of `frame` makes before `frame.lookup`, in order of address. Empty when the function is unknown,
    /// too large or not readable, or when the frame's registers show that it came there on another path. `thread_pointer` is what
    /// `pthread_self` gives in that thread.
    pub(crate) fn calls_before(&self, frame: &NativeFrame, thread_pointer: Option<Addr>) -> Vec<CallSite> {
        let mut sites = self.read_around(frame, thread_pointer).calls;
        sites.retain(|site| site.at < frame.lookup);
        sites
    }

    /// All calls of the function of `frame` but the one that the frame is in, and its writes; else the same as
    /// [`Code::calls_before`].
    pub(crate) fn read_around(&self, frame: &NativeFrame, thread_pointer: Option<Addr>) -> CallsAndWrites {
        let Some(start) = self.symbols.function_start(frame.lookup) else { return CallsAndWrites::default() };
        let length = frame.lookup - start;
        if length == 0 || length > LARGEST_FUNCTION {
            return CallsAndWrites::default();
        }
        let length = self.length(frame.lookup, length);
        let values = RegisterState::of_frame(self.image.architecture, frame, thread_pointer);
        self.read(start, length, Some(frame.lookup), values)
    }

    /// The calls and writes of a function that was called with these arguments and has returned, within its first `length` bytes.
    pub(crate) fn calls_of(
        &self,
        function: Addr,
        length: usize,
        arguments: Arguments,
        thread_pointer: Option<Addr>,
    ) -> CallsAndWrites {
        let length = self.length(function, 0).min(length);
        self.read(function, length, None, RegisterState::of_call(self.image.architecture, arguments, thread_pointer))
    }

    /// How many bytes of the function that covers `within` are read: as many as its symbol says, if these are more than `least`.
    fn length(&self, within: Addr, least: u64) -> usize {
        let size = self.symbols.function(within).map(|symbol| symbol.size).filter(|size| *size > least);
        size.unwrap_or(LARGEST_FUNCTION).min(LARGEST_FUNCTION) as usize
    }

    /// All calls of the function that covers `within`, in order of address, without their arguments.
    pub(crate) fn calls_in(&self, within: Addr) -> Vec<CallSite> {
        let Some(start) = self.symbols.function_start(within) else { return Vec::new() };
        let size = self.symbols.function(within).map(|symbol| symbol.size).filter(|size| *size > 0);
        let mut code = vec![0; self.length(within, 0)];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return Vec::new() };
        let mut sites = Vec::new();
        for instruction in self.image.architecture.decoder(code.get(..read).unwrap_or_default(), start) {
            let called = match instruction.flow {
                Flow::Call(target) => Some(target),
                // A call in place of a return.
                Flow::Jump(target) => Some(target).filter(|target| self.is_last_call(*target, start)),
                _ => None,
            };
            if let Some(target) = called {
                let (target, function) = self.called(target);
                let at = instruction.address;
                sites.push(CallSite { at, target, function, arguments: Arguments::default(), result_address: None });
            }
            // Behind a jump that leads nowhere further the next function may begin.
            let ends = matches!(instruction.flow, Flow::Return | Flow::Jump(_));
            if size.is_none() && ends && self.symbols.function_start(instruction.next) != Some(start) {
                break;
            }
        }
        sites
    }

    /// The function whose call returns to `at`: the one that was called there, though it may have ended by a jump into
    /// another and have no frame of its own.
    pub(crate) fn called_before(&self, at: Addr) -> Option<String> {
        self.image.architecture.lengths_of_calls().iter().find_map(|length| {
            let from = at - *length;
            let code = self.image.memory.bytes(from, *length as usize).ok()?;
            let instruction = self.image.architecture.decoder(&code, from).next()?;
            match instruction.flow {
                Flow::Call(target) if instruction.next == at => self.called(target).1,
                _ => None,
            }
        })
    }

    /// The calls and writes in the code at `start`, up to the end of its function, as far as arguments and addresses
    /// are known. Where paths meet, a register is known if all paths from further up agree. There is no result where
    /// the registers of a frame, which stands at `place`, show that it came there on another path.
    fn read(&self, start: Addr, length: usize, place: Option<Addr>, mut values: RegisterState) -> CallsAndWrites {
        let mut code = vec![0; length];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return CallsAndWrites::default() };
        code.truncate(read);
        let architecture = self.image.architecture;
        let loops = self.loops(&code, start);
        let unknown = values.at_unknown_place();
        // The known state at the targets of branches from further up.
        let mut branches: BTreeMap<Addr, RegisterState> = BTreeMap::new();
        let mut has_ended = false;
        let mut found = CallsAndWrites::default();
        let mut decoder = architecture.decoder(&code, start);
        while let Some(instruction) = decoder.next() {
            let at = instruction.address;
            match branches.remove(&at) {
                Some(there) if has_ended => values = there,
                Some(there) => values.keep_common(&there),
                None if has_ended => {
                    let is_over = branches.range(at..).next().is_none() && place.is_none_or(|place| place < at);
                    if is_over && self.symbols.function_start(at) != Some(start) {
                        break;
                    }
                    values = unknown.clone();
                }
                None => {}
            }
            if loops.contains(&at) {
                values.forget_in_loop();
            }
            let is_at_place = place.is_some_and(|place| at <= place && place < instruction.next);
            if is_at_place && values.is_refuted() {
                return CallsAndWrites::default();
            }
            let target = match instruction.flow {
                Flow::Call(target) => target,
                // A call in place of a return.
                Flow::Jump(target) if self.is_last_call(target, start) => target,
                flow => {
                    for effect in decoder.effects().iter() {
                        found.is_of_thread |= effect.loads_of_thread(architecture.stack_guard());
                        found
                            .writes
                            .extend(effect.written().and_then(|place| values.address(place)).map(|to| (at, Addr(to))));
                        values.step(self.image, effect);
                    }
                    if let Flow::Branch(to) | Flow::Jump(Target::Code(to)) = flow
                        && to > at
                    {
                        match branches.entry(to) {
                            Entry::Vacant(entry) => drop(entry.insert(values.clone())),
                            Entry::Occupied(mut entry) => entry.get_mut().keep_common(&values),
                        }
                    }
                    has_ended = matches!(flow, Flow::Jump(_) | Flow::Return | Flow::Trap);
                    continue;
                }
            };
            let returns = self.returns(target);
            has_ended = !returns || matches!(instruction.flow, Flow::Jump(_));
            found.is_open |= matches!(target, Target::Register(register) if values.now.get(register).is_none());
            let (target, function) = self.called_with(&values, target);
            let is_self = function.as_deref().is_some_and(|name| base_symbol(name) == "pthread_self");
            let mut arguments = Arguments::default();
            for (value, register) in arguments.iter_mut().zip(architecture.arguments()) {
                *value = values.now.get(*register);
            }
            let result_address = values.now.get(architecture.result_address());
            let site = CallSite { at, target, function, arguments, result_address };
            // The frame is still in this one.
            match is_at_place {
                true => found.current = Some(site),
                false => found.calls.push(site),
            }
            values.forget_caller_saved();
            if is_self {
                found.is_of_thread = true;
                values.set(architecture.result(), values.thread_pointer);
            }
        }
        found
    }

    /// Where branches lead back to: values that are known on the way there may have changed since.
    fn loops(&self, code: &[u8], start: Addr) -> HashSet<Addr> {
        let back = self.image.architecture.decoder(code, start).filter_map(|instruction| match instruction.flow {
            Flow::Branch(to) | Flow::Jump(Target::Code(to)) if to <= instruction.address => Some(to),
            _ => None,
        });
        back.collect()
    }

    /// The function that a direct call, or an indirect one through a fixed word (`-fno-plt`), goes to, and its name.
    fn called(&self, target: Target) -> Called {
        match target {
            Target::Code(at) => self.symbols.called(target, || match self.behind_stub(at) {
                Some(slot) => self.called_through(slot),
                None => (Some(at), self.symbols.function(at).map(|symbol| symbol.name.to_string())),
            }),
            Target::Slot(slot) => self.symbols.called(target, || self.called_through(slot)),
            Target::Register(_) | Target::Unknown => (None, None),
        }
    }

    /// The function whose address stands in a word.
    fn called_through(&self, slot: Addr) -> Called {
        // Before its first call a slot leads back into the stub.
        let target = self.image.memory.pointer(slot).ok();
        match target.and_then(|at| self.symbols.function(at)) {
            Some(symbol) => (target, Some(symbol.name.to_string())),
            None => (target, self.symbols.slot(slot)),
        }
    }

    /// The same, where registers are known: compilers load the address of a function into one and call that.
    fn called_with(&self, values: &RegisterState, target: Target) -> Called {
        match target {
            Target::Register(register) => match values.now.get(register) {
                Some(at) => self.called(Target::Code(Addr(at))),
                None => (None, None),
            },
            target => self.called(target),
        }
    }

    /// The slot that the code at `at` jumps through, where that is a PLT stub.
    fn behind_stub(&self, at: Addr) -> Option<Addr> {
        let mut code = [0; 32];
        self.image.memory.read_exact(at, &mut code).ok()?;
        let architecture = self.image.architecture;
        let mut stub = architecture.decoder(&code, at).take(architecture.instructions_of_stub());
        match stub.find(|instruction| instruction.flow != Flow::Next).map(|instruction| instruction.flow) {
            Some(Flow::Jump(Target::Slot(slot))) => Some(slot),
            _ => None,
        }
    }
}

/// The known register values while reading on.
#[derive(Clone)]
struct RegisterState {
    now: RegisterSet,
    /// Values of the callee-saved registers as the frame has them: what the function keeps in them.
    kept: RegisterSet,
    /// Values that the code itself gives registers, by constants and addresses of its own.
    given: RegisterSet,
    /// The values written to the imagined stack.
    written: HashMap<u64, Option<u64>>,
    is_imagined: bool,
    thread_pointer: Option<u64>,
}

impl RegisterState {
    fn of_frame(architecture: Architecture, frame: &NativeFrame, thread_pointer: Option<Addr>) -> Self {
        let mut kept = RegisterSet::new(architecture);
        for register in architecture.callee_saved().iter().chain([&architecture.stack_pointer()]) {
            if let Some(value) = frame.registers.get(*register) {
                kept.set(*register, value);
            }
        }
        let thread_pointer = thread_pointer.map(|at| at.0);
        RegisterState {
            now: kept,
            kept,
            given: RegisterSet::new(architecture),
            written: HashMap::new(),
            is_imagined: false,
            thread_pointer,
        }
    }

    fn of_call(architecture: Architecture, arguments: Arguments, thread_pointer: Option<Addr>) -> Self {
        let unknown = RegisterSet::new(architecture);
        let thread_pointer = thread_pointer.map(|at| at.0);
        let mut values = RegisterState {
            now: unknown,
            kept: unknown,
            given: unknown,
            written: HashMap::new(),
            is_imagined: true,
            thread_pointer,
        };
        values.set(architecture.stack_pointer(), Some(IMAGINED_STACK));
        for (register, value) in architecture.arguments().iter().zip(arguments) {
            values.set(*register, value);
        }
        values
    }

    fn architecture(&self) -> Architecture {
        self.now.architecture()
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        // A callee-saved register that gets an unknown value keeps it until the frame's pc, as compilers use these
        // registers: the frame has that value.
        match value.or(self.kept.get(register)) {
            Some(value) => self.now.set(register, value),
            None => self.now.forget(register),
        }
    }

    /// The known state where the code that leads there was not seen.
    fn at_unknown_place(&self) -> Self {
        let mut there = self.clone();
        if !self.is_imagined {
            there.now = self.kept;
        }
        there.given = RegisterSet::new(self.architecture());
        there.written.clear();
        there
    }

    /// Keep what is the same on another path to the same place.
    fn keep_common(&mut self, other: &RegisterState) {
        let now = self.now;
        for (register, _) in now.iter().filter(|(register, value)| other.now.get(*register) != Some(*value)) {
            self.set(register, None);
        }
        let given = self.given;
        for (register, _) in given.iter().filter(|(register, value)| other.given.get(*register) != Some(*value)) {
            self.given.forget(register);
        }
        // A value that only one path wrote is unknown.
        for (at, value) in &mut self.written {
            *value = value.filter(|value| other.written.get(at) == Some(&Some(*value)));
        }
        for at in other.written.keys() {
            self.written.entry(*at).or_insert(None);
        }
    }

    /// Values that earlier rounds of a loop may have changed are unknown.
    fn forget_in_loop(&mut self) {
        let own = [self.architecture().stack_pointer(), self.architecture().frame_pointer()];
        let (now, is_imagined) = (self.now, self.is_imagined);
        for (register, _) in now.iter().filter(|(register, _)| !(is_imagined && own.contains(register))) {
            self.set(register, None);
        }
        self.given = RegisterSet::new(self.architecture());
        self.written.values_mut().for_each(|value| *value = None);
    }

    fn forget_caller_saved(&mut self) {
        let architecture = self.architecture();
        let before = self.now;
        for (register, _) in before.iter() {
            let is_saved = architecture.callee_saved().contains(&register) || register == architecture.stack_pointer();
            if self.kept.get(register).is_none() && !(self.is_imagined && is_saved) {
                self.now.forget(register);
            }
        }
    }

    /// The word at `at`: as the function itself wrote it, or as it is now.
    fn load(&self, image: &ProcessImage, at: u64) -> Option<u64> {
        match self.written.get(&at) {
            Some(value) => *value,
            None => image.memory.u64(Addr(at)).ok(),
        }
    }

    fn step(&mut self, image: &ProcessImage, effect: Effect) {
        let (stack_pointer, frame_pointer) = (self.architecture().stack_pointer(), self.architecture().frame_pointer());
        // The frame's own pointer is known from unwinding; where the stack pointer stood in the prologue is not.
        let is_own = match effect {
            Effect::Copy { to, from, width } => to == frame_pointer && from == stack_pointer && width.is_whole(),
            Effect::Address { to, of } => to == frame_pointer && of.is_some_and(|of| of.base == Some(stack_pointer)),
            _ => false,
        };
        let (to, value) = match effect {
            Effect::Copy { to, .. } | Effect::Address { to, .. } if is_own && !self.is_imagined => {
                (to, self.kept.get(frame_pointer))
            }
            Effect::Address { to, of } => (to, of.and_then(|of| self.address(of))),
            Effect::Copy { to, from, width } => {
                if self.now.get(from).is_none() && width.is_whole() && !self.is_imagined {
                    // An argument that is put by in a callee-saved register is what stands there now.
                    self.set(from, self.kept.get(to));
                }
                (to, self.now.get(from))
            }
            Effect::Load { to, from, width } => {
                let at = from.and_then(|from| self.address(from)).filter(|_| width.is_whole());
                (to, at.and_then(|at| self.load(image, at)))
            }
            Effect::Store { to, from, width } if self.is_imagined => {
                if let Some(at) = to.and_then(|to| self.address(to)) {
                    let value = from.and_then(|from| self.now.get(from));
                    self.written.insert(at, value.filter(|_| width.is_whole()));
                }
                return;
            }
            Effect::Push { from: Some(from), stack_pointer } if self.is_imagined => {
                let value = self.now.get(from);
                let sp = self.now.get(stack_pointer).map(|sp| sp.wrapping_sub(8));
                self.written.extend(sp.map(|sp| (sp, value)));
                (stack_pointer, sp)
            }
            Effect::Constant { to, value } => (to, Some(value)),
            Effect::Add { to, amount } => (to, self.now.get(to).map(|value| value.wrapping_add(amount))),
            Effect::Subtract { to, amount } if self.is_imagined => {
                (to, self.now.get(to).map(|value| value.wrapping_sub(amount)))
            }
            other => {
                for register in other.writes().iter() {
                    self.set(register, None);
                    self.given.forget(register);
                }
                return;
            }
        };
        self.set(to, value);
        match effect {
            Effect::Constant { value, .. } => self.given.set(to, value),
            Effect::Address { of: Some(Place { base: None, index: None, displacement, .. }), .. } => {
                self.given.set(to, displacement);
            }
            _ => self.given.forget(to),
        }
    }

    /// Whether a register that functions keep has another value in the frame than the code gave it last: the frame came to
    /// where it is on another way than the straight line.
    fn is_refuted(&self) -> bool {
        let kept = |register: &Register| self.kept.get(*register);
        let given = |register: &Register| self.given.get(*register);
        let mut registers = self.architecture().callee_saved().iter();
        registers.any(|register| given(register).zip(kept(register)).is_some_and(|(given, kept)| given != kept))
    }

    /// The address of a place, if its registers are known.
    fn address(&self, place: Place) -> Option<u64> {
        // Thread-local: the C library keeps what pthread_self() gives there.
        let thread = if place.is_thread_local { self.thread_pointer? } else { 0 };
        let base = match place.base {
            None => 0,
            Some(register) => self.now.get(register)?,
        };
        let index = match place.index {
            None => 0,
            Some((register, scale)) => self.now.get(register)?.wrapping_mul(scale),
        };
        Some(thread.wrapping_add(base).wrapping_add(index).wrapping_add(place.displacement))
    }
}

//! Machine code, read in a straight line: which calls a function makes before a place, and with which arguments.
//!
//! In: a frame with its registers, or a function with the arguments of a call, and the memory of its process. Out:
//! [`CallSite`]s in order of address. Branches are not followed, so what comes of it is an inference and never exact.
//! It knows no lock and no library; those who ask do.

// What it reads is foreign.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod onwards;
mod parameters;
mod thread_storage;

use std::collections::{HashMap, HashSet};

pub(crate) use onwards::Value;

use crate::arch::instructions::{Effect, Flow, Place, Target};
use crate::arch::{Architecture, Register, RegisterSet};
use crate::image::{Addr, MemoryExt, ProcessImage};
use crate::limits::code::{FIRST_BYTES, LARGEST_FUNCTION};
use crate::symbols::{Symbols, base_symbol};
use crate::unwind::NativeFrame;

/// Where the stack of a function that returned is thought to lie: what it wrote there is remembered, and no process
/// has memory there.
const IMAGINED_STACK: u64 = 0x7ff0_0000_0000_0000;

/// What is known of the first arguments of a call.
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

    /// The calls that the function of `frame` makes before `frame.lookup`, in order of address. Empty when the function
    /// is unknown, too large or not readable, or when the frame's registers show that it came there on another way. `thread_pointer` is what `pthread_self` gives in that thread.
    pub(crate) fn calls_before(&self, frame: &NativeFrame, thread_pointer: Option<Addr>) -> Vec<CallSite> {
        let Some(start) = self.symbols.function_start(frame.lookup) else { return Vec::new() };
        let length = frame.lookup - start;
        if length == 0 || length > LARGEST_FUNCTION {
            return Vec::new();
        }
        // The call that the frame itself is in ends at or behind `lookup`: it is not before it.
        self.read(start, length as usize, RegisterState::of_frame(self.image.architecture, frame, thread_pointer))
    }

    /// The calls of a whole function that was called with these arguments and has returned, up to its first return.
    pub(crate) fn calls_of(&self, function: Addr, arguments: Arguments, thread_pointer: Option<Addr>) -> Vec<CallSite> {
        self.read(function, FIRST_BYTES, RegisterState::of_call(self.image.architecture, arguments, thread_pointer))
    }

    /// All calls of the function that covers `within`, in order of address, without their arguments.
    pub(crate) fn calls_in(&self, within: Addr) -> Vec<CallSite> {
        let Some(start) = self.symbols.function_start(within) else { return Vec::new() };
        let size = self.symbols.function(within).map(|symbol| symbol.size).filter(|size| *size > 0);
        let mut code = vec![0; size.unwrap_or(LARGEST_FUNCTION).min(LARGEST_FUNCTION) as usize];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return Vec::new() };
        let mut sites = Vec::new();
        for instruction in self.image.architecture.decoder(code.get(..read).unwrap_or_default(), start) {
            // Behind a jump that leads nowhere further the next function may begin.
            let ends = matches!(instruction.flow, Flow::Return | Flow::Jump(_));
            if size.is_none() && ends && self.symbols.function_start(instruction.next) != Some(start) {
                break;
            }
            if let Flow::Call(target) = instruction.flow {
                let (target, function) = self.called(target);
                sites.push(CallSite { at: instruction.address, target, function, arguments: Arguments::default() });
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

    /// Whether the code at `from` can come to `to` within the function that covers both, following all branches. Calls
    /// of functions that never return end a way.
    pub(crate) fn reaches(&self, from: Addr, to: Addr) -> bool {
        self.way(from, to) == Some(true)
    }

    /// Whether no way leads from the code at `from` to `to`, as between two branches of an `if`: all were followed to their ends.
    pub(crate) fn is_elsewhere(&self, from: Addr, to: Addr) -> bool {
        self.way(from, to) == Some(false)
    }

    /// Whether a way leads from `from` to `to`; `None` where one ends in what can't be followed, a jump through a table.
    fn way(&self, from: Addr, to: Addr) -> Option<bool> {
        let start = self.symbols.function_start(to).filter(|start| *start <= from && from <= to)?;
        let mut code = vec![0; LARGEST_FUNCTION as usize];
        let read = self.image.memory.read(start, &mut code).ok()?;
        let mut seen = HashSet::new();
        let mut ahead = vec![from];
        let mut is_known = true;
        while let Some(mut at) = ahead.pop() {
            while seen.insert(at) {
                let bytes = code.get((at - start) as usize..read).unwrap_or_default();
                let Some(instruction) = self.image.architecture.decoder(bytes, at).next() else {
                    is_known = false;
                    break;
                };
                let next = instruction.next;
                if at <= to && to < next {
                    return Some(true);
                }
                match instruction.flow {
                    Flow::Next => at = next,
                    Flow::Call(target) if self.returns(target) => at = next,
                    Flow::Branch(branch) => {
                        ahead.push(branch);
                        at = next;
                    }
                    Flow::Jump(jump) if self.is_last_call(jump, start) => break,
                    Flow::Jump(Target::Code(branch)) => at = branch,
                    Flow::Call(_) | Flow::Return | Flow::Trap => break,
                    _ => {
                        is_known = false;
                        break;
                    }
                }
            }
        }
        is_known.then_some(false)
    }

    /// Whether a jump in the function at `start` goes into another one, which returns to its caller. What compilers move out
    /// of a function as hardly ever used is a part of it.
    fn is_last_call(&self, jump: Target, start: Addr) -> bool {
        let outside = match jump {
            Target::Code(to) => self.symbols.function_start(to) != Some(start),
            Target::Slot(_) => true,
            Target::Register(_) | Target::Unknown => false,
        };
        let (_, name) = if outside { self.called(jump) } else { (None, None) };
        name.is_some_and(|name| !name.contains(".cold"))
    }

    /// Whether the function that is called ever returns.
    fn returns(&self, call: Target) -> bool {
        const NEVER: [&str; 6] = ["exit", "Exit", "abort", "pthread_exit", "stack_chk_fail", "assert_fail"];
        let (_, name) = self.called(call);
        !name.is_some_and(|name| NEVER.contains(&base_symbol(&name)))
    }

    fn read(&self, start: Addr, length: usize, mut values: RegisterState) -> Vec<CallSite> {
        let mut code = vec![0; length];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return Vec::new() };
        code.truncate(read);
        let mut sites = Vec::new();
        let architecture = self.image.architecture;
        let mut decoder = architecture.decoder(&code, start);
        while let Some(instruction) = decoder.next() {
            let target = match instruction.flow {
                Flow::Return if values.is_imagined => break,
                Flow::Call(target) => target,
                _ => {
                    decoder.effects().iter().for_each(|effect| values.step(self.image, effect));
                    continue;
                }
            };
            let (target, function) = self.called_with(&values, target);
            let is_self = function.as_deref().is_some_and(|name| base_symbol(name) == "pthread_self");
            let mut arguments = Arguments::default();
            for (value, register) in arguments.iter_mut().zip(architecture.arguments()) {
                *value = values.now.get(*register);
            }
            sites.push(CallSite { at: instruction.address, target, function, arguments });
            values.forget_caller_saved();
            if is_self {
                values.set(architecture.result(), values.thread_pointer);
            }
        }
        if values.is_refuted() { Vec::new() } else { sites }
    }

    /// The function that a direct call, or an indirect one through a fixed word (`-fno-plt`), goes to, and its name.
    fn called(&self, target: Target) -> (Option<Addr>, Option<String>) {
        let target = match target {
            Target::Code(at) => self.behind_stub(at),
            Target::Slot(slot) => Ok(slot),
            Target::Register(_) | Target::Unknown => return (None, None),
        };
        let slot = match target {
            Ok(slot) => slot,
            Err(function) => {
                return (Some(function), self.symbols.function(function).map(|symbol| symbol.name.to_string()));
            }
        };
        // Before its first call a slot leads back into the stub.
        let target = self.image.memory.pointer(slot).ok();
        match target.and_then(|at| self.symbols.function(at)) {
            Some(symbol) => (target, Some(symbol.name.to_string())),
            None => (target, self.symbols.slot(slot)),
        }
    }

    /// The same, where registers are known: compilers load the address of a function into one and call that.
    fn called_with(&self, values: &RegisterState, target: Target) -> (Option<Addr>, Option<String>) {
        match target {
            Target::Register(register) => match values.now.get(register) {
                Some(at) => self.called(Target::Code(Addr(at))),
                None => (None, None),
            },
            target => self.called(target),
        }
    }

    /// The slot that a PLT stub jumps through, or else the function itself.
    fn behind_stub(&self, at: Addr) -> Result<Addr, Addr> {
        let mut code = [0; 32];
        if self.image.memory.read_exact(at, &mut code).is_err() {
            return Err(at);
        }
        let architecture = self.image.architecture;
        let mut stub = architecture.decoder(&code, at).take(architecture.instructions_of_stub());
        match stub.find(|instruction| instruction.flow != Flow::Next).map(|instruction| instruction.flow) {
            Some(Flow::Jump(Target::Slot(slot))) => Ok(slot),
            _ => Err(at),
        }
    }
}

/// What is known of the registers while reading on.
struct RegisterState {
    now: RegisterSet,
    /// Values of the callee-saved registers as the frame has them: what the function keeps in them.
    kept: RegisterSet,
    /// Values that the code itself gives registers, by constants and addresses of its own.
    given: RegisterSet,
    /// What was written to the imagined stack.
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
        // A callee-saved register that gets a value which cannot be followed keeps it until the frame's pc, as
        // compilers use them: the frame tells which value that is.
        match value.or(self.kept.get(register)) {
            Some(value) => self.now.set(register, value),
            None => self.now.forget(register),
        }
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

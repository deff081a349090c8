//! What a function on the stack was called with, long after the registers that brought it were used again.
//!
//! In: a stack and the position of a frame. Out: the value of one of the first parameters. The function's code is read
//! from its start to the call that it is in: a parameter that was put by in a callee-saved register or on the stack is
//! still there, and one that was passed on untouched is looked for in the function that was called. The code is read once, in
//! order of address, with what is known where a branch leads forward; loops are not followed, so what comes of it is an
//! inference.

use std::collections::HashMap;

use super::{Code, LARGEST_FUNCTION};
use crate::arch::instructions::{self, Effect, Flow, RegisterMask, Target, Width};
use crate::arch::{Architecture, Register};
use crate::image::{Addr, MemoryExt};
use crate::limits::code::PASSED_ON_FRAMES;
use crate::unwind::NativeFrame;

impl Code<'_> {
    /// The parameter `number`, from 0, of the function of frame `native`.
    pub(crate) fn parameter(&self, frames: &[NativeFrame], native: usize, number: usize) -> Option<u64> {
        self.followed(frames, native, number, Width::Whole)
    }

    /// The same of a parameter that is an `int`: of it only the low half is anybody's, and compilers copy no more.
    pub(crate) fn int_parameter(&self, frames: &[NativeFrame], native: usize, number: usize) -> Option<i32> {
        let value = self.followed(frames, native, number, Width::Half)?;
        let [a, b, c, d, ..] = value.to_le_bytes();
        Some(i32::from_le_bytes([a, b, c, d]))
    }

    fn followed(&self, frames: &[NativeFrame], native: usize, number: usize, width: Width) -> Option<u64> {
        let registers = self.image.architecture.arguments();
        let mut came = match registers.get(number) {
            Some(register) => Came::Register(*register),
            // Further ones lie behind each other where the caller's stack ends, 8 bytes each.
            None => Came::Stack(number.checked_sub(registers.len())? as u64 * 8),
        };
        for frame in frames.get(..=native)?.iter().rev().take(PASSED_ON_FRAMES) {
            match self.passed_in(frame, came, width)? {
                Place::Value(value) => return Some(value),
                Place::PassedOn(next) => came = Came::Register(next),
            }
        }
        None
    }

    /// Where what came into the function of `frame` is when this calls on.
    fn passed_in(&self, frame: &NativeFrame, came: Came, width: Width) -> Option<Place> {
        let start = self.symbols.function_start(frame.lookup)?;
        // `lookup` lies inside the call instruction.
        let length = (frame.lookup - start).checked_add(1).filter(|length| *length <= LARGEST_FUNCTION)?;
        let mut code = vec![0; length as usize + 16];
        let read = self.image.memory.read(start, &mut code).ok()?;
        let architecture = self.image.architecture;
        let mut now = ValueLocations::new(architecture, came, width, frame.cfa?);
        // What is known where a branch further up leads to.
        let mut branches: HashMap<Addr, ValueLocations> = HashMap::new();
        let mut ended = false;
        let mut decoder = architecture.decoder(code.get(..read).unwrap_or_default(), start);
        while let Some(instruction) = decoder.next() {
            if instruction.next > frame.lookup {
                break;
            }
            match (branches.remove(&instruction.address), ended) {
                (Some(there), true) => now = there,
                (Some(there), false) => now.keep_common(&there),
                // Padding, or code that only branches from further down lead to.
                (None, true) => continue,
                (None, false) => {}
            }
            match instruction.flow {
                Flow::Call(_) => now.call(),
                _ => decoder.effects().iter().for_each(|effect| now.step(effect)),
            }
            if let Flow::Branch(target) | Flow::Jump(Target::Code(target)) = instruction.flow {
                branches.entry(target).and_modify(|there| there.keep_common(&now)).or_insert_with(|| now.clone());
            }
            ended = matches!(instruction.flow, Flow::Jump(_) | Flow::Return);
        }
        let saved = architecture.callee_saved().iter().filter(|register| now.registers.has(**register));
        let kept = saved.filter_map(|register| frame.registers.get(*register)).next();
        let word = |at: Addr| match width {
            Width::Whole => self.image.memory.u64(at).ok(),
            Width::Half | Width::Part => self.image.memory.u32(at).ok().map(u64::from),
        };
        let on_stack = || now.stack.iter().find_map(|at| word(*at));
        if let Some(value) = kept.or_else(on_stack) {
            return Some(Place::Value(value));
        }
        architecture.arguments().iter().find(|one| now.registers.has(**one)).copied().map(Place::PassedOn)
    }
}

enum Place {
    Value(u64),
    /// In this register, when the next function is called.
    PassedOn(Register),
}

/// How a parameter comes into a function.
#[derive(Debug, Clone, Copy)]
enum Came {
    Register(Register),
    /// So many bytes behind the end of the caller's stack.
    Stack(u64),
}

/// Where one value is while a function is read.
#[derive(Debug, Clone)]
struct ValueLocations {
    architecture: Architecture,
    /// How much of a register it is: whoever copies less does not copy it.
    width: Width,
    registers: RegisterMask,
    stack: Vec<Addr>,
    /// The two pointers into the function's own stack, where known.
    stack_pointer: Option<Addr>,
    frame_pointer: Option<Addr>,
}

impl ValueLocations {
    /// `cfa` is where the stack pointer stood before the call.
    fn new(architecture: Architecture, came: Came, width: Width, cfa: Addr) -> Self {
        let (registers, stack) = match came {
            Came::Register(register) => (RegisterMask::default().with(register), Vec::new()),
            Came::Stack(behind) => (RegisterMask::default(), vec![cfa + behind]),
        };
        ValueLocations {
            architecture,
            width,
            registers,
            stack,
            stack_pointer: Some(cfa - architecture.bytes_of_call()),
            frame_pointer: None,
        }
    }

    /// Keep what is so on both of two ways.
    fn keep_common(&mut self, other: &ValueLocations) {
        self.registers = self.registers.common(other.registers);
        self.stack.retain(|at| other.stack.contains(at));
        self.stack_pointer = self.stack_pointer.filter(|at| other.stack_pointer == Some(*at));
        self.frame_pointer = self.frame_pointer.filter(|at| other.frame_pointer == Some(*at));
    }

    fn set(&mut self, register: Register, has: bool) {
        self.registers = if has { self.registers.with(register) } else { self.registers.without(register) };
        if register == self.architecture.stack_pointer() {
            self.stack_pointer = None;
        } else if register == self.architecture.frame_pointer() {
            self.frame_pointer = None;
        }
    }

    /// The address of a place on the function's own stack.
    fn own(&self, place: Option<instructions::Place>) -> Option<Addr> {
        let place = place.filter(|place| place.index.is_none() && !place.is_thread_local)?;
        let base = match place.base? {
            register if register == self.architecture.stack_pointer() => self.stack_pointer?,
            register if register == self.architecture.frame_pointer() => self.frame_pointer?,
            _ => return None,
        };
        Some(Addr(base.0.wrapping_add(place.displacement)))
    }

    /// So many bytes at `at` are written.
    fn write(&mut self, at: Option<Addr>, bytes: u64, has: bool) {
        if let Some(at) = at {
            let own = self.width.bytes();
            let apart = |known: Addr| known.0.wrapping_sub(at.0) >= bytes && at.0.wrapping_sub(known.0) >= own;
            self.stack.retain(|known| apart(*known));
            if has {
                self.stack.push(at);
            }
        }
    }

    /// Whether a move of such a width moves all of the value.
    fn carries(&self, width: Width) -> bool {
        width.bytes() >= self.width.bytes()
    }

    /// A call returned, or is on another way through the function: what it may change is not known any more.
    fn call(&mut self) {
        for register in self.architecture.caller_saved() {
            self.registers = self.registers.without(*register);
        }
    }

    fn step(&mut self, effect: Effect) {
        let is_stack_pointer = |register: Register| register == self.architecture.stack_pointer();
        match effect {
            Effect::Copy { to, from, width } => {
                let stack_pointer = self.stack_pointer;
                let is_frame = to == self.architecture.frame_pointer() && is_stack_pointer(from);
                self.set(to, self.registers.has(from) && self.carries(width));
                if is_frame {
                    self.frame_pointer = stack_pointer;
                }
            }
            Effect::Store { to, from, width } => {
                let has = from.is_some_and(|from| self.registers.has(from)) && self.carries(width);
                self.write(self.own(to), width.bytes(), has);
            }
            Effect::Load { to, from, width } => {
                let from_stack = self.own(from).is_some_and(|at| self.stack.contains(&at));
                self.set(to, from_stack && self.carries(width));
            }
            Effect::Push { from, .. } => {
                self.stack_pointer = self.stack_pointer.map(|at| Addr(at.0.wrapping_sub(8)));
                self.write(self.stack_pointer, 8, from.is_some_and(|from| self.registers.has(from)));
            }
            Effect::Pop { to, .. } => {
                let next = self.stack_pointer.map(|at| Addr(at.0.wrapping_add(8)));
                self.set(to, false);
                self.stack_pointer = next;
            }
            Effect::Add { to, amount } if is_stack_pointer(to) => {
                self.stack_pointer = self.stack_pointer.map(|at| Addr(at.0.wrapping_add(amount)));
            }
            Effect::Subtract { to, amount } if is_stack_pointer(to) => {
                self.stack_pointer = self.stack_pointer.map(|at| Addr(at.0.wrapping_sub(amount)));
            }
            other => {
                other.writes().iter().for_each(|register| self.set(register, false));
                if let Effect::Other { place, .. } = other {
                    // As much as the widest vector.
                    self.write(self.own(place), 64, false);
                }
            }
        }
    }
}

//! The arguments of a function on the stack, long after the registers that brought them were used again.
//!
//! In: a stack and the position of a frame. Out: the value of one of the first parameters. The function's code is read
//! from its start to the call that it is in. A parameter saved in a callee-saved register or on the stack is still
//! there. One that was passed on untouched is searched in the called function. The code is read once, in order of
//! address, with the known state where a branch leads forward. Loops are not followed, so the result is an inference.

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

    /// The same for a parameter that is an `int`: only its low half is defined, and compilers copy no more.
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
        // The known state at the target of a branch further up.
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
    /// How much of a register it is: a narrower copy does not copy it.
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

    /// Whether a move of this width moves all of the value.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Architecture::{Aarch64, X86_64};

    const CFA: Addr = Addr(0x1000);

    /// Where the parameter is after this code.
    fn after(architecture: Architecture, came: Came, width: Width, code: &[u8]) -> ValueLocations {
        let mut now = ValueLocations::new(architecture, came, width, CFA);
        let mut decoder = architecture.decoder(code, Addr(0x40_0000));
        while decoder.next().is_some() {
            decoder.effects().iter().for_each(|effect| now.step(effect));
        }
        now.call();
        now
    }

    fn argument(architecture: Architecture, number: usize) -> Came {
        Came::Register(architecture.arguments()[number])
    }

    /// How PMPI_Recv of MPICH 5.0.2 begins: six pushes, and between them moves of the low halves of its parameters 5, 1, 3 and 2 into
    /// callee-saved registers; 0x38 bytes more of stack, to which parameter 0 goes at 0x10 and the low half of 4 at 0x18.
    const BEGIN: [u8; 43] = [
        0x41, 0x57, 0x45, 0x89, 0xcf, 0x41, 0x56, 0x41, 0x55, 0x41, 0x89, 0xf5, 0x41, 0x54, 0x41, 0x89, 0xcc, 0x55,
        0x89, 0xd5, 0x53, 0x48, 0x83, 0xec, 0x38, 0x48, 0x8b, 0x44, 0x24, 0x70, 0x48, 0x89, 0x7c, 0x24, 0x10, 0x44,
        0x89, 0x44, 0x24, 0x18, 0x90, 0x90, 0x90,
    ];

    #[test]
    fn the_low_half_of_a_parameter_is_followed_where_only_that_is_wanted() {
        let now = |number, width| after(X86_64, argument(X86_64, number), width, &BEGIN);
        let callee_saved = |number, width| -> Vec<u16> {
            let now = now(number, width);
            X86_64.callee_saved().iter().filter(|register| now.registers.has(**register)).map(|one| one.0).collect()
        };
        assert_eq!(callee_saved(3, Width::Half), [12]);
        assert_eq!(callee_saved(5, Width::Half), [15]);
        assert!(callee_saved(3, Width::Whole).is_empty(), "the upper half is nobody's word");
        // The return address, six pushes, 0x38 bytes.
        let top = CFA.0 - 8 - 6 * 8 - 0x38;
        assert_eq!(now(4, Width::Half).stack, [Addr(top + 0x18)]);
        assert!(now(4, Width::Whole).stack.is_empty());
        assert_eq!(now(0, Width::Whole).stack, [Addr(top + 0x10)]);
        assert_eq!(now(0, Width::Half).stack, [Addr(top + 0x10)], "all of it has its low half");
    }

    #[test]
    fn what_is_written_over_a_part_of_it_ends_it() {
        let with = |more: &[u8]| {
            let code = [&BEGIN, more].concat();
            after(X86_64, argument(X86_64, 4), Width::Half, &code).stack.len()
        };
        assert_eq!(with(&[0x48, 0x89, 0x44, 0x24, 0x14]), 0, "eight bytes that end with its first four");
        assert_eq!(with(&[0x48, 0x89, 0x44, 0x24, 0x10]), 1, "those right before it");
        assert_eq!(with(&[0x48, 0x89, 0x44, 0x24, 0x1c]), 1, "those right behind it");
        assert_eq!(with(&[0x88, 0x44, 0x24, 0x19]), 0, "one byte inside");
        assert_eq!(with(&[0x0f, 0x29, 0x44, 0x24, 0x10]), 0, "a vector over it");
        // A byte of it is not it.
        let part = after(X86_64, argument(X86_64, 4), Width::Half, &[0x44, 0x88, 0xc3]);
        assert!(X86_64.callee_saved().iter().all(|register| !part.registers.has(*register)));
    }

    #[test]
    fn parameters_behind_the_last_register_lie_on_the_stack() {
        let now = after(X86_64, Came::Stack(16), Width::Half, &BEGIN);
        assert_eq!(now.stack, [CFA + 16]);
    }

    #[test]
    fn the_same_on_aarch64() {
        // A frame of 48 bytes; the low halves of parameter 3 into a callee-saved register, of 4 onto the stack at 28.
        let words: [u32; 3] = [0xa9bd_7bfd, 0x2a03_03f3, 0xb900_1fe4];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let now = |number, width| after(Aarch64, argument(Aarch64, number), width, &code);
        let is_kept = |width| {
            let now = now(3, width);
            Aarch64.callee_saved().iter().any(|register| now.registers.has(*register))
        };
        assert!(is_kept(Width::Half) && !is_kept(Width::Whole));
        assert_eq!(now(4, Width::Half).stack, [Addr(CFA.0 - 48 + 28)]);
        assert!(now(4, Width::Whole).stack.is_empty());
    }
}

//! Native stacks from call frame information.
//!
//! In: a [`ProcessImage`] and its [`Modules`]. Out: a [`NativeStack`] a thread: every
//! frame with all callee-saved registers that are known there, how the frame was found, and why the stack ended.
//! It names nothing (that is [`crate::symbols`]) and opens no file.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod cfi;
mod fallback;

use crate::arch::Architecture;
use crate::image::{Addr, ProcessImage, RegisterSet, ThreadImage, budget};
use crate::limits::unwind::{COST_OF_A_FRAME, LEAST_FRAMES, MOST_FRAMES};
use crate::modules::Modules;
pub(crate) use cfi::function_start;
use cfi::{NoStep, RowCache};

/// One native frame, innermost first in its stack.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct NativeFrame {
    /// Instruction pointer: the thread's own in frame 0 and behind a signal frame, else a return address.
    pub pc: Addr,
    /// The address to look names and lines up with: `pc` itself, or `pc - 1` for a return address, because a call
    /// that never returns may be the last instruction of its function.
    pub lookup: Addr,
    /// Stack pointer in this frame, as far as known.
    pub sp: Addr,
    /// Canonical frame address: the caller's stack pointer before the call. The frame's C variables lie in
    /// `[sp, cfa)`. `None` in the last frame, where no CFI says it.
    pub cfa: Option<Addr>,
    /// Registers known in this frame; callee-saved ones survive the unwinding, the others are forgotten.
    pub registers: RegisterSet,
    /// How this frame was found.
    pub trust: Trust,
    /// The kernel put this frame there to run a signal handler.
    pub signal: bool,
}

/// How a frame was found, best first. Whatever is unwound from a frame is known no better than that frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(crate) enum Trust {
    /// The registers of the thread itself.
    Context,
    /// Call frame information.
    Cfi,
    /// The innermost function has no call frame information and calls no other: its return address is where the call
    /// left it, and there is a call before it. As good as call frame information.
    // Saved as what readers of before knew it as; [`NativeStack::of_machine`] finds it again.
    #[serde(rename = "Scan", skip_deserializing)]
    Leaf,
    /// The chain of frame pointers.
    FramePointer,
    /// A word on the stack that points behind a call instruction: a guess.
    Scan,
}

impl Trust {
    /// Whether it is known and not guessed that the frame exists, with all that it holds.
    pub(crate) fn is_certain(self) -> bool {
        self <= Trust::Leaf
    }

    /// How far the caller of a frame of this trust can be trusted, if `step` led to it: no further than the frame.
    fn then(self, step: Trust) -> Trust {
        if self.is_certain() { step } else { self.max(step) }
    }
}

/// Why a stack ends where it ends.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum StackEnd {
    /// CFI says that the return address is undefined, or it is zero: the thread's first function.
    Bottom,
    /// No CFI for this pc, and neither frame pointers nor a scan found a caller.
    NoRule(Addr),
    /// The stack at this address could not be read.
    Unreadable(Addr),
    /// The next frame would not be further up: damaged, or a wrong rule.
    NoProgress(Addr),
    /// More frames than the limit.
    Limit(usize),
    /// The thread has no registers: it never came to a stop.
    NoRegisters,
}

impl std::fmt::Display for StackEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StackEnd::Bottom => write!(f, "first function of the thread"),
            StackEnd::NoRule(pc) => write!(f, "no unwind information for {pc} and no frame pointer there"),
            StackEnd::Unreadable(at) => write!(f, "the stack at {at} could not be read"),
            StackEnd::NoProgress(pc) => write!(f, "the caller of {pc} would lie below it"),
            StackEnd::Limit(n) => write!(f, "more than {n} frames"),
            StackEnd::NoRegisters => write!(f, "no registers of this thread"),
        }
    }
}

/// The native stack of a thread.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct NativeStack {
    /// Frames, innermost first.
    pub frames: Vec<NativeFrame>,
    /// Why there are no more.
    pub end: StackEnd,
}

impl NativeStack {
    /// Add to a loaded stack the data that were not saved with it: the machine of its registers, and the mark that
    /// distinguishes the caller of a leaf function from a frame of a stack search.
    pub(crate) fn of_machine(&mut self, architecture: Architecture) {
        for frame in &mut self.frames {
            frame.registers = frame.registers.on(architecture);
        }
        if let [leaf, caller, ..] = self.frames.as_mut_slice()
            && caller.trust == Trust::Scan
            && caller.sp == leaf.sp + architecture.bytes_of_call()
        {
            caller.trust = Trust::Leaf;
        }
    }

    /// The stack of a thread without registers.
    pub(crate) fn unknown() -> NativeStack {
        NativeStack { frames: Vec::new(), end: StackEnd::NoRegisters }
    }
}

/// The native stack of each thread, in the order of `image.threads`.
pub(crate) fn stacks(image: &ProcessImage, modules: &Modules) -> Vec<NativeStack> {
    let mut cache = RowCache::default();
    // Most threads are as deep as the one before.
    let mut depth = 0;
    // Half of the budget of the look. Each thread gets an equal part of the rest.
    let all = budget::left() / 2 / COST_OF_A_FRAME;
    let mut left = usize::try_from(all).unwrap_or(usize::MAX);
    let mut one = |(place, thread): (usize, &ThreadImage)| {
        let part = left / (image.threads.len() - place).max(1);
        let stack = stack(image, modules, &mut cache, thread, (depth, part.clamp(LEAST_FRAMES, MOST_FRAMES)));
        depth = stack.frames.len();
        left = left.saturating_sub(depth);
        stack
    };
    let stacks: Vec<NativeStack> = image.threads.iter().enumerate().map(&mut one).collect();
    let taken = all.saturating_sub(left as u64) * COST_OF_A_FRAME;
    // The budget has them: it was twice as much.
    budget::take(taken, || "frames of stacks".to_owned());
    stacks
}

/// The registers to start with: all of a stopped thread, or the two that the kernel reports for a sleeping one.
fn first_registers(architecture: Architecture, thread: &ThreadImage) -> Option<RegisterSet> {
    if let Some(registers) = thread.registers {
        return Some(registers.general);
    }
    let call = thread.syscall?;
    let mut registers = RegisterSet::new(architecture);
    registers.set_sp(call.sp);
    registers.set_pc(call.pc);
    Some(registers)
}

/// Functions that call one another and have no stack of their own: libffi's call of a function, and what that calls.
const EMPTY_IN_A_ROW: usize = 3;

/// Unwind a thread. `room` is the expected number of frames, `most` the greatest.
fn stack(
    image: &ProcessImage,
    modules: &Modules,
    cache: &mut RowCache,
    thread: &ThreadImage,
    (room, most): (usize, usize),
) -> NativeStack {
    let mut frames: Vec<NativeFrame> = Vec::with_capacity(room.min(most));
    let Some(mut registers) = first_registers(image.architecture, thread) else {
        return NativeStack { frames, end: StackEnd::NoRegisters };
    };
    let memory = &*image.memory;
    let mut trust = Trust::Context;
    // A return address belongs to the call before it; the pc of a thread and of an interrupted frame is itself.
    let mut exact_pc = true;
    // The least value of the stack pointer, where a step does not give it.
    let mut lowest = Addr(0);
    // Frames without a stack of their own, in a row.
    let mut empty = 0;
    let end = loop {
        let Some(pc) = registers.pc() else { break StackEnd::NoRegisters };
        let sp = registers.sp().unwrap_or(lowest);
        if frames.len() >= most {
            break StackEnd::Limit(most);
        }
        let lookup = if exact_pc { pc } else { pc - 1 };
        if let Some(interrupted) = image.architecture.interrupted(pc, sp, memory) {
            frames.push(NativeFrame { pc, lookup: pc, sp, cfa: None, registers, trust, signal: true });
            (registers, exact_pc, trust) = (interrupted, true, trust.then(Trust::Cfi));
            continue;
        }
        let may_be_leaf = frames.is_empty() || exact_pc && image.architecture.link().is_some();
        let step = cache.step(modules, memory, lookup, &registers);
        let cfa = step.as_ref().ok().map(|s| s.cfa);
        let signal = cache.is_signal_frame(lookup);
        frames.push(NativeFrame { pc, lookup, sp, cfa, registers, trust, signal });
        let (next, how) = match step {
            Ok(step) => (step.registers, Trust::Cfi),
            Err(NoStep::Bottom) => break StackEnd::Bottom,
            Err(NoStep::Unreadable(at)) => break StackEnd::Unreadable(at),
            Err(NoStep::NoRule | NoStep::Unknown) => match fallback::step(image, &registers, sp, may_be_leaf) {
                Some(found) => {
                    if let Some(frame) = frames.last_mut() {
                        frame.cfa = found.registers.sp();
                    }
                    lowest = found.lowest;
                    (found.registers, found.trust)
                }
                None => break StackEnd::NoRule(pc),
            },
        };
        let up = next.sp().unwrap_or(lowest);
        empty = if up == sp { empty + 1 } else { 0 };
        // A function has no stack of its own where a call puts nothing there, or where its unwind information names the register with
        // the return address (glibc's vfork). Few of these follow each other.
        let may_be_empty = image.architecture.bytes_of_call() == 0 || how == Trust::Cfi;
        let is_empty = may_be_empty && empty <= EMPTY_IN_A_ROW && next.pc() != Some(pc);
        // Only a signal frame may lead to another stack; all others lead up.
        if !signal && (up < sp || up == sp && !is_empty) {
            break StackEnd::NoProgress(pc);
        }
        exact_pc = signal;
        registers = next;
        trust = trust.then(how);
    };
    NativeStack { frames, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_guess_is_a_guess() {
        use Trust::{Cfi, Context, FramePointer, Leaf, Scan};
        let behind = |steps: &[Trust]| steps.iter().fold(Context, |trust, step| trust.then(*step));
        assert_eq!(behind(&[Cfi, Cfi]), Cfi);
        assert_eq!(behind(&[Scan, Cfi, Cfi]), Scan);
        assert_eq!(behind(&[FramePointer, Cfi]), FramePointer);
        assert_eq!(behind(&[FramePointer, Scan, FramePointer]), Scan);
        assert_eq!(behind(&[Leaf]), Leaf);
        assert_eq!(behind(&[Leaf, Cfi]), Cfi, "the return address of a leaf is no guess");
        assert_eq!(behind(&[Leaf, FramePointer, Cfi]), FramePointer);
    }

    #[test]
    fn a_leaf_is_found_again_in_a_saved_stack() {
        let architecture = Architecture::X86_64;
        let frame = |sp: u64, trust| NativeFrame {
            pc: Addr(1),
            lookup: Addr(1),
            sp: Addr(sp),
            cfa: None,
            registers: RegisterSet::new(architecture),
            trust,
            signal: false,
        };
        let saved = |second: u64, trust| {
            let frames = vec![frame(0x1000, Trust::Context), frame(second, trust)];
            let json = serde_json::to_string(&NativeStack { frames, end: StackEnd::Bottom }).expect("JSON");
            assert!(!json.contains("Leaf"), "older readers know no such word");
            let mut read: NativeStack = serde_json::from_str(&json).expect("a stack");
            read.of_machine(architecture);
            read.frames[1].trust
        };
        assert_eq!(saved(0x1008, Trust::Leaf), Trust::Leaf);
        assert_eq!(saved(0x1010, Trust::Scan), Trust::Scan);
        assert_eq!(saved(0x1008, Trust::Cfi), Trust::Cfi);
    }
}

//! Native stacks from call frame information.
//!
//! In: a [`ProcessImage`](crate::image::ProcessImage) and its [`Modules`]. Out: a [`NativeStack`] a thread: every
//! frame with all callee-saved registers that are known there, how the frame was found, and why the stack ended.
//! It names nothing (that is [`crate::symbols`]) and opens no file.

pub mod modules;

use crate::image::{Addr, RegisterSet};
pub use modules::{Module, Modules};

/// One native frame, innermost first in its stack.
#[derive(Debug, Clone)]
pub struct NativeFrame {
    /// Instruction pointer: of the thread in frame 0 and behind a signal frame, else a return address.
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

/// How a frame was found, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// The registers of the thread itself.
    Context,
    /// Call frame information.
    Cfi,
    /// The chain of frame pointers.
    FramePointer,
    /// A word on the stack that points behind a call instruction: a guess.
    Scan,
}

impl Trust {
    /// The word that the report uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Trust::Context | Trust::Cfi => "cfi",
            Trust::FramePointer => "frame-pointer",
            Trust::Scan => "scan",
        }
    }
}

/// Why a stack ends where it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackEnd {
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
#[derive(Debug, Clone)]
pub struct NativeStack {
    /// Frames, innermost first.
    pub frames: Vec<NativeFrame>,
    /// Why there are no more.
    pub end: StackEnd,
}

//! Ways from a frame to its caller: by call frame information, by frame pointer, by a word on the stack.

use super::registers::{RBP, RIP};
use crate::arch::{Register, RegisterSet};
use crate::limits::unwind::LARGEST_FRAME;
use crate::memory::{Addr, Memory, MemoryExt};

/// The return address has a column of its own (psABI, figure 3.36).
pub(in crate::arch) const RETURN_COLUMN: Register = RIP;

/// No extensions.
pub(in crate::arch) const VENDOR: gimli::Vendor = gimli::Vendor::Default;

/// Whether the code before `pc` is a call: `e8 rel32`, or `ff /2` in its lengths.
pub(in crate::arch) fn is_behind_call(pc: Addr, memory: &dyn Memory) -> bool {
    let mut code = [0u8; 7];
    if memory.read_exact(pc - 7, &mut code).is_err() {
        return false;
    }
    let [.., relative, _, _, _, _] = code;
    let indirect = |length: usize| match code.get(code.len() - length..) {
        Some([0xff, operand, ..]) => (operand >> 3) & 7 == 2,
        _ => false,
    };
    relative == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

/// `push %rbp; mov %rsp,%rbp` at the start leaves the outer frame pointer at it, and the return address behind.
pub(in crate::arch) fn step_by_frame_pointer(
    registers: &RegisterSet,
    sp: Addr,
    memory: &dyn Memory,
) -> Option<RegisterSet> {
    let frame_pointer = Addr(registers.get(RBP)?);
    if frame_pointer < sp || frame_pointer - sp > LARGEST_FRAME || !frame_pointer.0.is_multiple_of(8) {
        return None;
    }
    let outer = memory.u64(frame_pointer).ok()?;
    let pc = memory.pointer(frame_pointer + 8).ok()?;
    let mut found = RegisterSet::new(registers.architecture());
    found.set(RBP, outer);
    found.set_sp(frame_pointer + 16);
    found.set_pc(pc);
    Some(found)
}

/// The word at `at` as the return address that a call has pushed.
pub(in crate::arch) fn step_by_word(registers: &RegisterSet, at: Addr, memory: &dyn Memory) -> Option<RegisterSet> {
    let pc = memory.pointer(at).ok()?;
    let mut found = RegisterSet::new(registers.architecture());
    if let Some(frame_pointer) = registers.get(RBP) {
        found.set(RBP, frame_pointer);
    }
    found.set_sp(at + 8);
    found.set_pc(pc);
    Some(found)
}

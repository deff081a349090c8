//! Ways up a stack without call frame information: frame pointers, then a bounded scan.
//!
//! In: the registers of a frame whose code has no CFI (hand-written assembly, JIT code, musl). Out: the caller's
//! registers as far as they are known, and which way was used. A return address is believed only if it points into
//! executable memory behind a call instruction.

use super::Trust;
use crate::image::{Addr, MemoryExt, ProcessImage, Register, RegisterSet};

/// The largest frame that a frame pointer may span, in bytes.
const LARGEST_FRAME: u64 = 1 << 20;

/// How many words above the stack pointer are looked at.
const SCANNED_WORDS: u64 = 128;

/// The caller of a frame without CFI. `innermost`: its code may be a leaf function that has pushed nothing.
pub(super) fn step(image: &ProcessImage, registers: &RegisterSet, innermost: bool) -> Option<(RegisterSet, Trust)> {
    let sp = registers.sp()?;
    // System call wrappers are leaf functions: the word at the stack pointer is their return address. It is tried
    // first, since the frame pointer there is still the caller's and would skip it.
    if innermost && let Some(found) = at_word(image, registers, sp) {
        return Some((found, Trust::Scan));
    }
    by_frame_pointer(image, registers, sp)
        .map(|found| (found, Trust::FramePointer))
        .or_else(|| by_scan(image, registers, sp).map(|found| (found, Trust::Scan)))
}

fn by_frame_pointer(image: &ProcessImage, registers: &RegisterSet, sp: Addr) -> Option<RegisterSet> {
    let frame_pointer = Addr(registers.get(Register::RBP)?);
    if frame_pointer < sp || frame_pointer - sp > LARGEST_FRAME || !frame_pointer.0.is_multiple_of(8) {
        return None;
    }
    let outer = image.memory.u64(frame_pointer).ok()?;
    let pc = image.memory.pointer(frame_pointer + 8).ok()?;
    let mut found = RegisterSet::default();
    found.set(Register::RBP, outer);
    found.set(Register::RSP, (frame_pointer + 16).0);
    found.set(Register::RIP, pc.0);
    // The outermost frame of a thread has a zero there: no caller.
    is_return_address(image, pc).then_some(found)
}

fn at_word(image: &ProcessImage, registers: &RegisterSet, at: Addr) -> Option<RegisterSet> {
    let pc = image.memory.pointer(at).ok()?;
    if !is_return_address(image, pc) {
        return None;
    }
    let mut found = RegisterSet::default();
    if let Some(frame_pointer) = registers.get(Register::RBP) {
        found.set(Register::RBP, frame_pointer);
    }
    found.set(Register::RSP, (at + 8).0);
    found.set(Register::RIP, pc.0);
    Some(found)
}

fn by_scan(image: &ProcessImage, registers: &RegisterSet, sp: Addr) -> Option<RegisterSet> {
    (0..SCANNED_WORDS).find_map(|word| at_word(image, registers, sp + word * 8))
}

/// Whether `pc` lies in executable memory behind a call: `e8 rel32`, or `ff /2` in its lengths.
fn is_return_address(image: &ProcessImage, pc: Addr) -> bool {
    if !image.mapping(pc - 1).is_some_and(|m| m.execute) {
        return false;
    }
    let mut code = [0u8; 7];
    if image.memory.read_exact(pc - 7, &mut code).is_err() {
        return false;
    }
    let indirect = |length: usize| {
        let start = 7 - length;
        let (opcode, operand) = (code[start], code[start + 1]);
        opcode == 0xff && (operand >> 3) & 7 == 2
    };
    code[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

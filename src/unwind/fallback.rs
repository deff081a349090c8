//! Ways up a stack without call frame information: frame pointers, where they are known or found, then a bounded scan.
//!
//! In: the registers of a frame whose code has no CFI (hand-written assembly, JIT code, musl). Out: the caller's
//! registers as far as they are known, and which way was used. A return address is believed only if it points into
//! executable memory behind a call instruction.

use super::Trust;
use crate::image::{Addr, ProcessImage, RegisterSet};
use crate::limits::unwind::SCANNED_WORDS;

/// The caller of a frame.
pub(super) struct Found {
    /// Its registers.
    pub(super) registers: RegisterSet,
    /// The least value of its stack pointer, where they do not have it.
    pub(super) lowest: Addr,
    /// Which way was used.
    pub(super) trust: Trust,
}

/// The caller of a frame without CFI, whose stack pointer is `sp` at least. `innermost`: its code may be a leaf function that
/// has pushed nothing.
pub(super) fn step(image: &ProcessImage, registers: &RegisterSet, sp: Addr, innermost: bool) -> Option<Found> {
    let (architecture, memory) = (image.architecture, &*image.memory);
    /// The outer frame pointer and the return address.
    const PAIR: u64 = 16;
    let behind_pair = |registers: &RegisterSet| {
        registers.get(architecture.frame_pointer()).map_or(sp, |at| Addr(at.wrapping_add(PAIR)))
    };
    let is_believed = |found: &RegisterSet| found.pc().is_some_and(|pc| is_return_address(image, pc));
    // System call wrappers are leaf functions, whose return address is where the call left it. It is tried first, since
    // the frame pointer there is still the caller's and would skip it.
    if innermost && let Some(found) = architecture.step_from_leaf(registers, memory).filter(is_believed) {
        return Some(Found { registers: found, lowest: sp, trust: Trust::Leaf });
    }
    // The outermost frame of a thread has a zero there: no caller.
    if let Some(found) = architecture.step_by_frame_pointer(registers, sp, memory).filter(is_believed) {
        return Some(Found { registers: found, lowest: behind_pair(registers), trust: Trust::FramePointer });
    }
    if registers.get(architecture.frame_pointer()).is_none()
        && let Some((assumed, found)) = by_scan(image, registers, sp)
    {
        return Some(Found { registers: found, lowest: behind_pair(&assumed), trust: Trust::FramePointer });
    }
    (0..SCANNED_WORDS).find_map(|word| {
        let at = sp + word * 8;
        let found = architecture.step_by_word(registers, at, memory).filter(is_believed)?;
        Some(Found { registers: found, lowest: at + 8, trust: Trust::Scan })
    })
}

/// The caller of a frame whose frame pointer nobody has saved, as with a thread that was read asleep: the nearest place on the stack
/// from which a chain of frame pointers leads on to two callers. Its registers with that place, and the caller's.
fn by_scan(image: &ProcessImage, registers: &RegisterSet, sp: Addr) -> Option<(RegisterSet, RegisterSet)> {
    let (architecture, memory) = (image.architecture, &*image.memory);
    let step = |registers: &RegisterSet| {
        let found = architecture.step_by_frame_pointer(registers, registers.sp().unwrap_or(sp), memory)?;
        found.pc().is_some_and(|pc| is_return_address(image, pc)).then_some(found)
    };
    (0..SCANNED_WORDS).find_map(|word| {
        let mut assumed = *registers;
        assumed.set(architecture.frame_pointer(), sp.0.checked_add(word * 8)?);
        step(&assumed).filter(|found| step(found).is_some()).map(|found| (assumed, found))
    })
}

/// Whether `pc` lies in executable memory behind a call.
fn is_return_address(image: &ProcessImage, pc: Addr) -> bool {
    image.mapping(pc - 1).is_some_and(|mapping| mapping.execute)
        && image.architecture.is_behind_call(pc, &*image.memory)
}

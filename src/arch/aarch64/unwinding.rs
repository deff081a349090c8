//! Ways from a frame to its caller: by call frame information, by frame pointer, by a word on the stack, out of a signal handler.

use super::registers::{FRAME_POINTER, LINK};
use crate::arch::{Architecture, Register, RegisterSet};
use crate::limits::unwind::LARGEST_FRAME;
use crate::memory::{Addr, Memory, MemoryExt};

/// The return address is where the link register was saved, or still there.
pub(in crate::arch) const RETURN_COLUMN: Register = LINK;

/// `DW_CFA_AARCH64_negate_ra_state`.
pub(in crate::arch) const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;

/// The bits of an address in user space; above them stand the codes of pointer authentication, and tags. A kernel with
/// addresses of 52 bits gives a program none above 48 without a request (Documentation/arch/arm64/memory.rst).
const ADDRESS: u64 = (1 << 48) - 1;

/// A return address without its authentication code. One that has none stays as it is.
pub(in crate::arch) fn without_authentication(address: u64) -> Addr {
    Addr(address & ADDRESS)
}

/// Whether the code before `pc` is a call: `bl`, `blr`, or a form of `blr` that authenticates.
pub(in crate::arch) fn is_behind_call(pc: Addr, memory: &dyn Memory) -> bool {
    let is_call = |word: u32| {
        word & 0xfc00_0000 == 0x9400_0000 || word & 0xffff_fc1f == 0xd63f_0000 || word & 0xfeff_f800 == 0xd63f_0800
    };
    pc.0.is_multiple_of(4) && memory.u32(pc - 4).is_ok_and(is_call)
}

/// `stp x29, x30, [sp, #..]; mov x29, sp` leaves the outer frame pointer at the frame pointer, and the return address behind. That
/// pair lies at the bottom of a frame, so that the caller's stack pointer is not known by it.
pub(in crate::arch) fn step_by_frame_pointer(
    registers: &RegisterSet,
    sp: Addr,
    memory: &dyn Memory,
) -> Option<RegisterSet> {
    let frame_pointer = Addr(registers.get(FRAME_POINTER)?);
    if frame_pointer < sp || frame_pointer - sp > LARGEST_FRAME || !frame_pointer.0.is_multiple_of(8) {
        return None;
    }
    let mut found = RegisterSet::new(Architecture::Aarch64);
    found.set(FRAME_POINTER, memory.u64(frame_pointer).ok()?);
    found.set_pc(without_authentication(memory.u64(frame_pointer + 8).ok()?));
    Some(found)
}

/// The caller of a function that has saved nothing: the link register has the return address.
pub(in crate::arch) fn step_from_leaf(registers: &RegisterSet) -> Option<RegisterSet> {
    let mut found = *registers;
    found.set_pc(without_authentication(registers.get(LINK)?));
    found.forget(LINK);
    Some(found)
}

/// The word at `at` as a saved link register, which stands behind the frame pointer that was saved with it.
pub(in crate::arch) fn step_by_word(at: Addr, memory: &dyn Memory) -> Option<RegisterSet> {
    let mut found = RegisterSet::new(Architecture::Aarch64);
    found.set_pc(without_authentication(memory.u64(at).ok()?));
    if let Ok(outer) = memory.u64(at - 8) {
        found.set(FRAME_POINTER, outer);
    }
    Some(found)
}

/// The registers that a signal interrupted, if `pc` is where its handler returns to: code of the vDSO, for which this has no call
/// frame information.
pub(in crate::arch) fn interrupted(pc: Addr, sp: Addr, memory: &dyn Memory) -> Option<RegisterSet> {
    /// `mov x8, #139; svc #0`: rt_sigreturn.
    const RETURN_FROM_SIGNAL: u64 = 0xd400_0001_d280_1168;
    /// In `struct rt_sigframe`: the siginfo; in the ucontext behind it what stands before its mcontext; in that the address of a fault.
    const REGISTERS_AT: u64 = 128 + 176 + 8;
    if memory.u64(pc) != Ok(RETURN_FROM_SIGNAL) {
        return None;
    }
    let mut found = RegisterSet::new(Architecture::Aarch64);
    for register in Architecture::Aarch64.general_registers() {
        let at = sp + REGISTERS_AT + u64::from(register.0) * 8;
        found.set(register, memory.u64(at).ok()?);
    }
    Some(found)
}

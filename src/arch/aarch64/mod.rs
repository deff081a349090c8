//! AArch64: the 64-bit Arm architecture with its procedure call standard (AAPCS64) and the kernel's user-space interface of Linux.
//!
//! In and Out as in [`super`], which is the only caller. One file for each part of the machine.

pub(super) mod calling_convention;
pub(super) mod elf;
pub(super) mod instructions;
pub(super) mod registers;
pub(super) mod system_call_numbers;
pub(super) mod system_calls;
pub(super) mod thread_pointer;
pub(super) mod unwinding;

#[cfg(test)]
mod tests;

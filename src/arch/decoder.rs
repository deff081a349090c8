//! Code of any machine, instruction by instruction.
//!
//! In: the bytes of code, through [`Architecture::decoder`](super::Architecture::decoder). Out: what that machine's own decoder
//! says. It knows no instruction.

use super::aarch64::instructions::A64Decoder;
use super::instructions::{Effects, Instruction};
use super::x86_64::instructions::X86Decoder;

/// Reads code; ends at the first bytes that are none.
#[expect(clippy::large_enum_variant, reason = "a few live at a time, on the stack")]
pub enum Decoder<'c> {
    /// Decodes x86-64.
    X86_64(X86Decoder<'c>),
    /// Decodes AArch64.
    Aarch64(A64Decoder<'c>),
}

impl Decoder<'_> {
    /// The effects of the last returned instruction.
    pub fn effects(&mut self) -> Effects {
        match self {
            Decoder::X86_64(decoder) => Effects::one(decoder.effect()),
            Decoder::Aarch64(decoder) => decoder.effects(),
        }
    }
}

impl Iterator for Decoder<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        match self {
            Decoder::X86_64(decoder) => decoder.next(),
            Decoder::Aarch64(decoder) => decoder.next(),
        }
    }
}

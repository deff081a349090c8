//! Code of any machine, instruction by instruction.
//!
//! In: the bytes of code, through [`Architecture::decoder`](super::Architecture::decoder). Out: what that machine's own decoder
//! says. It knows no instruction.

use super::instructions::{Effect, Instruction};
use super::x86_64::instructions::X86Decoder;

/// Reads code; ends at the first bytes that are none.
pub enum Decoder<'c> {
    /// Of x86-64.
    X86_64(X86Decoder<'c>),
}

impl Decoder<'_> {
    /// What the instruction does that was given last.
    pub fn effect(&mut self) -> Effect {
        match self {
            Decoder::X86_64(decoder) => decoder.effect(),
        }
    }
}

impl Iterator for Decoder<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        match self {
            Decoder::X86_64(decoder) => decoder.next(),
        }
    }
}

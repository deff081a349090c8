//! Code, by the decoder of iced-x86.

use iced_x86::{
    DecoderOptions, FlowControl, Instruction as Decoded, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register as X86,
};

use super::registers::RSP;
use crate::arch::Register;
use crate::arch::instructions::{Effect, Flow, Instruction, Place, RegisterMask, Target, Width};
use crate::memory::Addr;

/// `call rel32` and `call *slot(%rip)`.
pub(in crate::arch) const LENGTHS_OF_CALLS: [u64; 2] = [5, 6];

/// `endbr64; jmp *slot(%rip)`.
pub(in crate::arch) const INSTRUCTIONS_OF_STUB: usize = 2;

/// DWARF number by hardware number (psABI, figure 3.36, against the encoding of instructions).
const DWARF_NUMBER: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The bytes that are a direct call or jump, wherever they stand: `call rel32`, `jmp rel32`, `jmp rel8`, and `call` and `jmp` through a
/// word at an address relative to the next instruction.
pub(in crate::arch) fn direct_branches(code: &[u8], address: Addr) -> Vec<(Target, Addr)> {
    let branch = |offset: usize| {
        let at = address + offset as u64;
        let behind = |length: u64, by: i64| Addr(at.0.wrapping_add(length).wrapping_add_signed(by));
        let long = |by: [u8; 4]| i64::from(i32::from_le_bytes(by));
        match *code.get(offset..)? {
            [0xe8 | 0xe9, a, b, c, d, ..] => Some((Target::Code(behind(5, long([a, b, c, d]))), at)),
            [0xeb, by, ..] => Some((Target::Code(behind(2, i64::from(by.cast_signed()))), at)),
            [0xff, 0x15 | 0x25, a, b, c, d, ..] => Some((Target::Slot(behind(6, long([a, b, c, d]))), at)),
            _ => None,
        }
    };
    (0..code.len()).filter_map(branch).collect()
}

/// Reads x86-64 code in order of address.
pub struct X86Decoder<'c> {
    decoder: iced_x86::Decoder<'c>,
    last: Decoded,
    /// Made at the first instruction that needs it.
    information: Option<InstructionInfoFactory>,
}

impl<'c> X86Decoder<'c> {
    /// `code` lies at `address`.
    pub(in crate::arch) fn new(code: &'c [u8], address: Addr) -> Self {
        let decoder = iced_x86::Decoder::with_ip(64, code, address.0, DecoderOptions::NONE);
        X86Decoder { decoder, last: Decoded::default(), information: None }
    }

    /// The effect of the last instruction.
    pub(in crate::arch) fn effect(&mut self) -> Effect {
        let instruction = self.last;
        let (first, second) = (instruction.op0_register(), instruction.op1_register());
        let width = |register: X86| Width::of_bytes(register.size());
        match (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register, OpKind::Register) => {
                if let (Some(to), Some(from)) = (general(first), general(second)) {
                    return Effect::Copy { to, from, width: width(first) };
                }
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Memory) => {
                if let Some(to) = general(first) {
                    return Effect::Load { to, from: place(&instruction), width: width(first) };
                }
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register) => {
                return Effect::Store { to: place(&instruction), from: general(second), width: width(second) };
            }
            (Mnemonic::Lea, OpKind::Register, OpKind::Memory) => {
                if let Some(to) = general(first) {
                    return Effect::Address { to, of: place(&instruction) };
                }
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64) => {
                if let Some(to) = general(first) {
                    return Effect::Constant { to, value: instruction.immediate(1) };
                }
            }
            (
                mnemonic @ (Mnemonic::Add | Mnemonic::Sub),
                OpKind::Register,
                OpKind::Immediate8to64 | OpKind::Immediate32to64,
            ) => {
                if let Some(to) = general(first) {
                    let amount = instruction.immediate(1);
                    let adds = mnemonic == Mnemonic::Add;
                    return if adds { Effect::Add { to, amount } } else { Effect::Subtract { to, amount } };
                }
            }
            (Mnemonic::Push, kind, _) => {
                let from = general(first).filter(|_| kind == OpKind::Register);
                return Effect::Push { from, stack_pointer: RSP };
            }
            (Mnemonic::Pop, OpKind::Register, _) => {
                if let Some(to) = general(first) {
                    return Effect::Pop { to, stack_pointer: RSP };
                }
            }
            _ => {}
        }
        let information = self.information.get_or_insert_with(InstructionInfoFactory::new).info(&instruction);
        let changed = information
            .used_registers()
            .iter()
            .filter(|used| matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite));
        let writes =
            changed.filter_map(|used| general(used.register())).fold(RegisterMask::default(), RegisterMask::with);
        let stores = instruction.op0_kind() == OpKind::Memory
            && instruction.op_count() > 1
            && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        Effect::Other { writes, place: place(&instruction).filter(|_| stores) }
    }
}

impl Iterator for X86Decoder<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        if !self.decoder.can_decode() {
            return None;
        }
        self.decoder.decode_out(&mut self.last);
        let instruction = &self.last;
        (!instruction.is_invalid()).then(|| Instruction {
            address: Addr(instruction.ip()),
            next: Addr(instruction.next_ip()),
            flow: flow(instruction),
        })
    }
}

fn flow(instruction: &Decoded) -> Flow {
    let near = instruction.op0_kind() == OpKind::NearBranch64;
    let target = match instruction.op0_kind() {
        OpKind::NearBranch64 => Target::Code(Addr(instruction.near_branch_target())),
        OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
            Target::Slot(Addr(instruction.ip_rel_memory_address()))
        }
        OpKind::Register => general(instruction.op0_register()).map_or(Target::Unknown, Target::Register),
        _ => Target::Unknown,
    };
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall if instruction.mnemonic() == Mnemonic::Call => Flow::Call(target),
        // System calls count as calls, too.
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Flow::Jump(target),
        FlowControl::ConditionalBranch if near => Flow::Branch(Addr(instruction.near_branch_target())),
        FlowControl::Return => Flow::Return,
        _ => Flow::Trap,
    }
}

/// The memory operand.
fn place(instruction: &Decoded) -> Option<Place> {
    if instruction.is_ip_rel_memory_operand() {
        let displacement = instruction.ip_rel_memory_address();
        return Some(Place { base: None, index: None, displacement, is_thread_local: false });
    }
    let is_thread_local = match instruction.segment_prefix() {
        X86::None => false,
        X86::FS => true,
        _ => return None,
    };
    let base = match instruction.memory_base() {
        X86::None => None,
        register => Some(general(register)?),
    };
    let index = match instruction.memory_index() {
        X86::None => None,
        register => Some((general(register)?, u64::from(instruction.memory_index_scale()))),
    };
    Some(Place { base, index, displacement: instruction.memory_displacement64(), is_thread_local })
}

/// The general register that `register` is, or is a part of.
fn general(register: X86) -> Option<Register> {
    let full = register.full_register();
    full.is_gpr64().then(|| DWARF_NUMBER.get(full.number()).copied().map(Register))?
}

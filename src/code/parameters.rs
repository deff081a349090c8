//! What a function on the stack was called with, long after the registers that brought it were used again.
//!
//! In: a stack and the position of a frame. Out: the value of one of the first parameters. The function's code is read
//! from its start to the call that it is in: a parameter that was put by in a callee-saved register or on the stack is
//! still there, and one that was passed on untouched is looked for in the function that was called. The code is read once, in
//! order of address, with what is known where a branch leads forward; loops are not followed, so what comes of it is an
//! inference.

use std::collections::HashMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register as X86,
};

use super::{Code, HARDWARE_NUMBER, LARGEST_FUNCTION, slot};
use crate::image::{Addr, MemoryExt, Register};
use crate::unwind::NativeFrame;

/// The registers that bring the first parameters (System V ABI, section 3.2.3), by hardware number.
const BRINGS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// rsp and rbp.
const STACK_POINTER: usize = 4;
const FRAME_POINTER: usize = 5;
/// Functions that one after the other pass a parameter on.
const MOST_FRAMES: usize = 8;

impl Code<'_> {
    /// The parameter `number`, from 0, of the function of frame `native`.
    pub fn parameter(&self, frames: &[NativeFrame], native: usize, number: usize) -> Option<u64> {
        let mut register = *BRINGS.get(number)?;
        for frame in frames.get(..=native)?.iter().rev().take(MOST_FRAMES) {
            match self.put_by(frame, register)? {
                Place::Value(value) => return Some(value),
                Place::PassedOn(next) => register = next,
            }
        }
        None
    }

    /// Where what `register` brought into the function of `frame` is when this calls on.
    fn put_by(&self, frame: &NativeFrame, register: usize) -> Option<Place> {
        let start = self.symbols.function_start(frame.lookup)?;
        // `lookup` lies inside the call instruction.
        let length = (frame.lookup - start).checked_add(1).filter(|length| *length <= LARGEST_FUNCTION)?;
        let mut code = vec![0; length as usize + 16];
        let read = self.image.memory.read(start, &mut code).ok()?;
        let mut now = Places::new(register, frame.cfa? - 8);
        let mut information = InstructionInfoFactory::new();
        // What is known where a branch further up leads to.
        let mut branches: HashMap<u64, Places> = HashMap::new();
        let mut ended = false;
        for instruction in &mut Decoder::with_ip(64, &code[..read], start.0, DecoderOptions::NONE) {
            if instruction.is_invalid() || instruction.next_ip() > frame.lookup.0 {
                break;
            }
            match (branches.remove(&instruction.ip()), ended) {
                (Some(there), true) => now = there,
                (Some(there), false) => now.keep_common(&there),
                // Padding, or code that only branches from further down lead to.
                (None, true) => continue,
                (None, false) => {}
            }
            now.follow(&instruction, &mut information);
            let flow = instruction.flow_control();
            if matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch) {
                let target = instruction.near_branch_target();
                branches.entry(target).and_modify(|there| there.keep_common(&now)).or_insert_with(|| now.clone());
            }
            ended =
                matches!(flow, FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return);
        }
        let kept = Register::CALLEE_SAVED.into_iter().find_map(|register| {
            let number = usize::from(*HARDWARE_NUMBER.get(usize::from(register.0))?);
            frame.registers.get(register).filter(|_| now.registers[number])
        });
        let on_stack = || now.stack.iter().find_map(|at| self.image.memory.u64(*at).ok());
        if let Some(value) = kept.or_else(on_stack) {
            return Some(Place::Value(value));
        }
        BRINGS.into_iter().find(|number| now.registers[*number]).map(Place::PassedOn)
    }
}

enum Place {
    Value(u64),
    /// In this register, when the next function is called.
    PassedOn(usize),
}

/// Where one value is while a function is read.
#[derive(Debug, Clone, Default)]
struct Places {
    registers: [bool; 16],
    stack: Vec<Addr>,
    /// rsp and rbp, where known.
    stack_pointer: Option<Addr>,
    frame_pointer: Option<Addr>,
}

impl Places {
    fn new(register: usize, at_entry: Addr) -> Self {
        let mut registers = [false; 16];
        registers[register] = true;
        Places { registers, stack: Vec::new(), stack_pointer: Some(at_entry), frame_pointer: None }
    }

    /// Keep what is so on both of two ways.
    fn keep_common(&mut self, other: &Places) {
        for (here, there) in self.registers.iter_mut().zip(other.registers) {
            *here &= there;
        }
        self.stack.retain(|at| other.stack.contains(at));
        self.stack_pointer = self.stack_pointer.filter(|at| other.stack_pointer == Some(*at));
        self.frame_pointer = self.frame_pointer.filter(|at| other.frame_pointer == Some(*at));
    }

    fn has(&self, register: X86) -> bool {
        slot(register).is_some_and(|number| self.registers[number])
    }

    fn set(&mut self, register: X86, has: bool) {
        if let Some(number) = slot(register) {
            self.registers[number] = has;
            match number {
                STACK_POINTER => self.stack_pointer = None,
                FRAME_POINTER => self.frame_pointer = None,
                _ => {}
            }
        }
    }

    /// The address of a memory operand on the function's own stack.
    fn own(&self, instruction: &Instruction) -> Option<Addr> {
        let base = match slot(instruction.memory_base())? {
            STACK_POINTER => self.stack_pointer?,
            FRAME_POINTER => self.frame_pointer?,
            _ => return None,
        };
        let plain = instruction.memory_index() == X86::None && instruction.segment_prefix() == X86::None;
        plain.then(|| Addr(base.0.wrapping_add(instruction.memory_displacement64())))
    }

    fn write(&mut self, at: Option<Addr>, has: bool) {
        if let Some(at) = at {
            self.stack.retain(|known| *known != at);
            if has {
                self.stack.push(at);
            }
        }
    }

    fn follow(&mut self, instruction: &Instruction, information: &mut InstructionInfoFactory) {
        let destination = instruction.op0_register();
        let immediate = || instruction.immediate(1);
        match (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register, OpKind::Register) => {
                let (source, stack_pointer) = (instruction.op1_register(), self.stack_pointer);
                self.set(destination, self.has(source) && destination.size() == 8);
                if (slot(destination), slot(source)) == (Some(FRAME_POINTER), Some(STACK_POINTER)) {
                    self.frame_pointer = stack_pointer;
                }
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register) => {
                let source = instruction.op1_register();
                self.write(self.own(instruction), self.has(source) && source.size() == 8);
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Memory) => {
                let from_stack = self.own(instruction).is_some_and(|at| self.stack.contains(&at));
                self.set(destination, from_stack && destination.size() == 8);
            }
            (Mnemonic::Push, kind, _) => {
                self.stack_pointer = self.stack_pointer.map(|at| Addr(at.0.wrapping_sub(8)));
                self.write(self.stack_pointer, kind == OpKind::Register && self.has(destination));
            }
            (Mnemonic::Pop, OpKind::Register, _) => {
                let next = self.stack_pointer.map(|at| Addr(at.0.wrapping_add(8)));
                self.set(destination, false);
                self.stack_pointer = next;
            }
            (Mnemonic::Sub | Mnemonic::Add, OpKind::Register, OpKind::Immediate8to64 | OpKind::Immediate32to64)
                if slot(destination) == Some(STACK_POINTER) =>
            {
                let by = if instruction.mnemonic() == Mnemonic::Sub { immediate().wrapping_neg() } else { immediate() };
                self.stack_pointer = self.stack_pointer.map(|at| Addr(at.0.wrapping_add(by)));
            }
            (Mnemonic::Call, ..) => {
                // It returned, or is on another way through the function: what it may change is not known any more.
                for number in [0, 1, 2, 6, 7, 8, 9, 10, 11] {
                    self.registers[number] = false;
                }
            }
            _ => {
                for used in information.info(instruction).used_registers() {
                    if matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite) {
                        self.set(used.register(), false);
                    }
                }
                let writes = instruction.op0_kind() == OpKind::Memory && instruction.op_count() > 1;
                if writes && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
                    self.write(self.own(instruction), false);
                }
            }
        }
    }
}

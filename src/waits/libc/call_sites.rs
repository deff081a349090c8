//! Which calls the code of a frame makes before the place where the frame stands, and with which first argument.
//!
//! In: a frame, its registers, the code and memory of its process. Out: [`CallSite`]s in order of address. This is
//! the evidence for locks whose holder nobody records (reader sets, spinlocks): a thread that stands between a lock
//! call and the unlock call of the same lock. Straight-line reading only: branches are not followed, so what comes
//! of it is an inference and never exact. It decides nothing about locks.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as X86,
};

use super::super::facts::{Process, ThreadFacts};
use super::super::family::Context;
use crate::image::{Addr, MemoryExt, Register};
use crate::unwind::NativeFrame;

/// The most code of one function that is read, in bytes. Lock and unlock stand close together in what people write;
/// interpreters' dispatch loops are far larger and are left alone.
const LARGEST_FUNCTION: u64 = 16 << 10;

/// One call instruction before the frame's pc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSite {
    /// Address of the call instruction.
    pub at: Addr,
    /// Name of the called function.
    pub function: String,
    /// The first argument, where the code before the call sets it to a value that is known.
    pub argument: Option<Addr>,
}

/// The calls that the function of `frame` makes before `frame.lookup`, in order of address. Empty when the function
/// is unknown, too large or not readable.
pub fn calls_before(context: &Context<'_>, frame: &NativeFrame) -> Vec<CallSite> {
    let Some(function) = context.symbols.function(frame.lookup) else { return Vec::new() };
    let length = frame.lookup - function.address;
    if length == 0 || length > LARGEST_FUNCTION {
        return Vec::new();
    }
    let Ok(code) = context.image.memory.bytes(function.address, length as usize) else { return Vec::new() };
    let mut sites = Vec::new();
    let mut values = Values::new(frame);
    let mut information = InstructionInfoFactory::new();
    for instruction in &mut Decoder::with_ip(64, &code, function.address.0, DecoderOptions::NONE) {
        // The call that the frame itself is in ends at or behind `lookup`: it is not before it.
        if instruction.is_invalid() || Addr(instruction.next_ip()) > frame.lookup {
            break;
        }
        if matches!(instruction.mnemonic(), Mnemonic::Call) {
            if let Some(name) = target(context, &instruction).and_then(|at| name_behind_stub(context, at)) {
                let argument = values.get(X86::RDI).map(Addr);
                sites.push(CallSite { at: Addr(instruction.ip()), function: name, argument });
            }
            values.forget_caller_saved();
            continue;
        }
        values.follow(context, &instruction, &mut information);
    }
    sites
}

/// A thread that stands between a lock call and the unlock call of the same lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Between {
    /// Lock calls without their unlock.
    pub depth: u32,
    /// Position of the native frame that took the lock last.
    pub native: usize,
    /// How it is known.
    pub evidence: String,
}

/// The most frames that are read, from the innermost on.
const MOST_FRAMES: usize = 64;

/// Whether the code that `thread` is in the middle of has locked `lock` by one of `locks` and not yet unlocked it by
/// one of `unlocks`. What callers did comes before what they called.
pub fn between(
    process: &Process<'_>,
    thread: &ThreadFacts<'_>,
    lock: Addr,
    locks: &[&str],
    unlocks: &[&str],
) -> Option<Between> {
    let frames = &thread.thread?.native.frames;
    let mut taken: Vec<(usize, CallSite)> = Vec::new();
    for (native, frame) in frames.iter().enumerate().take(MOST_FRAMES).rev() {
        for site in calls_before(&process.context, frame) {
            if site.argument != Some(lock) {
                continue;
            }
            let name = super::super::family::plain_name(&site.function).to_string();
            if locks.contains(&name.as_str()) {
                taken.push((native, site));
            } else if unlocks.contains(&name.as_str()) {
                taken.pop();
            }
        }
    }
    let depth = taken.len() as u32;
    let (native, site) = taken.pop()?;
    let evidence = format!(
        "frame {native} of {} called {}({lock}) at {} and no unlock of it since, reading its code in a straight line",
        thread.describe(),
        site.function,
        site.at
    );
    Some(Between { depth, native, evidence })
}

/// Where a direct call, or an indirect one through a fixed word (`-fno-plt`), goes.
fn target(context: &Context<'_>, call: &Instruction) -> Option<Addr> {
    match call.op0_kind() {
        OpKind::NearBranch64 => Some(Addr(call.near_branch_target())),
        OpKind::Memory if call.is_ip_rel_memory_operand() => {
            context.image.memory.pointer(Addr(call.ip_rel_memory_address())).ok()
        }
        _ => None,
    }
}

/// The name of the function at `at`, looking through a PLT stub: `[endbr64] [bnd] jmp *slot(%rip)`.
fn name_behind_stub(context: &Context<'_>, at: Addr) -> Option<String> {
    if let Some(symbol) = context.symbols.function(at) {
        return Some(symbol.name);
    }
    let code = context.image.memory.bytes(at, 16).ok()?;
    for instruction in Decoder::with_ip(64, &code, at.0, DecoderOptions::NONE).iter().take(2) {
        if instruction.mnemonic() == Mnemonic::Jmp && instruction.is_ip_rel_memory_operand() {
            let function = context.image.memory.pointer(Addr(instruction.ip_rel_memory_address())).ok()?;
            return Some(context.symbols.function(function)?.name);
        }
    }
    None
}

/// What is known of the registers while reading on.
struct Values {
    now: [Option<u64>; 16],
    /// Values of the callee-saved registers as the frame has them: what the function keeps in them.
    kept: [Option<u64>; 16],
}

impl Values {
    fn new(frame: &NativeFrame) -> Self {
        let mut kept = [None; 16];
        for register in Register::CALLEE_SAVED.into_iter().chain([Register::RSP]) {
            kept[usize::from(HARDWARE_NUMBER[usize::from(register.0)])] = frame.registers.get(register);
        }
        Values { now: kept, kept }
    }

    fn get(&self, register: X86) -> Option<u64> {
        slot(register).and_then(|n| self.now[n])
    }

    fn set(&mut self, register: X86, value: Option<u64>) {
        if let Some(n) = slot(register) {
            // A callee-saved register that gets a value which cannot be followed keeps it until the frame's pc, as
            // compilers use them: the frame tells which value that is.
            self.now[n] = value.or(self.kept[n]);
        }
    }

    fn forget_caller_saved(&mut self) {
        for (n, value) in self.now.iter_mut().enumerate() {
            *value = self.kept[n].and(*value);
        }
    }

    fn follow(&mut self, context: &Context<'_>, instruction: &Instruction, information: &mut InstructionInfoFactory) {
        let destination = instruction.op0_register();
        let value = match (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind()) {
            (Mnemonic::Lea, OpKind::Register, OpKind::Memory) => self.address(instruction),
            (Mnemonic::Mov, OpKind::Register, OpKind::Register) => self.get(instruction.op1_register()),
            (Mnemonic::Mov, OpKind::Register, OpKind::Memory) => self
                .address(instruction)
                .filter(|_| destination.size() == 8)
                .and_then(|at| context.image.memory.u64(Addr(at)).ok()),
            (Mnemonic::Mov, OpKind::Register, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64) => {
                Some(instruction.immediate(1))
            }
            (Mnemonic::Add, OpKind::Register, OpKind::Immediate8to64 | OpKind::Immediate32to64) => {
                self.get(destination).map(|v| v.wrapping_add(instruction.immediate(1)))
            }
            _ => {
                for used in information.info(instruction).used_registers() {
                    if matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite) {
                        self.set(used.register(), None);
                    }
                }
                return;
            }
        };
        self.set(destination, value);
    }

    /// The address of the memory operand, if its registers are known.
    fn address(&self, instruction: &Instruction) -> Option<u64> {
        if instruction.is_ip_rel_memory_operand() {
            return Some(instruction.ip_rel_memory_address());
        }
        let base = match instruction.memory_base() {
            X86::None => 0,
            register => self.get(register)?,
        };
        let index = match instruction.memory_index() {
            X86::None => 0,
            register => self.get(register)?.wrapping_mul(u64::from(instruction.memory_index_scale())),
        };
        Some(base.wrapping_add(index).wrapping_add(instruction.memory_displacement64()))
    }
}

/// Hardware number of each DWARF register 0 to 15 (System V ABI figure 3.36 against the instruction encoding).
const HARDWARE_NUMBER: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// Hardware number of a general register of any width.
fn slot(register: X86) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

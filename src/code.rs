//! Machine code, read in a straight line: which calls a function makes before a place, and with which arguments.
//!
//! In: a frame with its registers, or a function with the arguments of a call, and the memory of its process. Out:
//! [`CallSite`]s in order of address. Branches are not followed, so what comes of it is an inference and never exact.
//! It knows no lock and no library; those who ask do.

mod parameters;

use std::collections::{HashMap, HashSet};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register as X86,
};

use crate::image::{Addr, MemoryExt, ProcessImage, Register};
use crate::symbols::{Symbols, plain_name};
use crate::unwind::NativeFrame;

/// The most code of one function that is read, in bytes. What people write stays far below; interpreters' dispatch
/// loops are far larger and are left alone.
const LARGEST_FUNCTION: u64 = 16 << 10;

/// Where the stack of a function that returned is thought to lie: what it wrote there is remembered, and no process
/// has memory there.
const IMAGINED_STACK: u64 = 0x7ff0_0000_0000_0000;

/// One call instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSite {
    /// Address of the call instruction.
    pub at: Addr,
    /// Where it goes, behind a stub of the linker.
    pub target: Option<Addr>,
    /// Name of the called function.
    pub function: Option<String>,
    /// The first two arguments, where the code before the call sets them to values that are known.
    pub arguments: [Option<u64>; 2],
}

/// Reads the code of one process.
#[derive(Debug, Clone, Copy)]
pub struct Code<'a> {
    image: &'a ProcessImage,
    symbols: &'a Symbols<'a>,
}

impl<'a> Code<'a> {
    /// The code of `image`.
    pub fn new(image: &'a ProcessImage, symbols: &'a Symbols<'a>) -> Self {
        Code { image, symbols }
    }

    /// The calls that the function of `frame` makes before `frame.lookup`, in order of address. Empty when the function
    /// is unknown, too large or not readable. `thread_pointer` is what `pthread_self` gives in that thread.
    pub fn calls_before(&self, frame: &NativeFrame, thread_pointer: Option<Addr>) -> Vec<CallSite> {
        let Some(start) = self.symbols.function_start(frame.lookup) else { return Vec::new() };
        let length = frame.lookup - start;
        if length == 0 || length > LARGEST_FUNCTION {
            return Vec::new();
        }
        // The call that the frame itself is in ends at or behind `lookup`: it is not before it.
        self.read(start, length as usize, Values::of_frame(frame, thread_pointer))
    }

    /// The calls of a whole function that was called with these arguments and has returned, up to its first return.
    pub fn calls_of(&self, function: Addr, arguments: [Option<u64>; 2], thread_pointer: Option<Addr>) -> Vec<CallSite> {
        const FIRST_BYTES: usize = 1024;
        self.read(function, FIRST_BYTES, Values::of_call(arguments, thread_pointer))
    }

    /// All calls of the function that covers `within`, in order of address, without their arguments.
    pub fn calls_in(&self, within: Addr) -> Vec<CallSite> {
        let Some(start) = self.symbols.function_start(within) else { return Vec::new() };
        let size = self.symbols.function(within).map(|symbol| symbol.size).filter(|size| *size > 0);
        let mut code = vec![0; size.unwrap_or(LARGEST_FUNCTION).min(LARGEST_FUNCTION) as usize];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return Vec::new() };
        let mut sites = Vec::new();
        for instruction in &mut Decoder::with_ip(64, &code[..read], start.0, DecoderOptions::NONE) {
            let at = Addr(instruction.ip());
            // Behind a jump that leads nowhere further the next function may begin.
            let ends = matches!(instruction.mnemonic(), Mnemonic::Ret | Mnemonic::Jmp);
            if instruction.is_invalid()
                || size.is_none() && ends && self.symbols.function_start(Addr(instruction.next_ip())) != Some(start)
            {
                break;
            }
            if instruction.mnemonic() == Mnemonic::Call {
                let (target, function) = self.called(&instruction);
                sites.push(CallSite { at, target, function, arguments: [None; 2] });
            }
        }
        sites
    }

    /// The function whose call returns to `at`: the one that was called there, though it may have ended by a jump into
    /// another and have no frame of its own.
    pub fn called_before(&self, at: Addr) -> Option<String> {
        // call rel32, call *slot(%rip).
        const LENGTHS: [u64; 2] = [5, 6];
        LENGTHS.iter().find_map(|length| {
            let from = at - *length;
            let mut code = [0; 6];
            self.image.memory.read_exact(from, &mut code[..*length as usize]).ok()?;
            let instruction = Decoder::with_ip(64, &code[..*length as usize], from.0, DecoderOptions::NONE).decode();
            let is_call = instruction.mnemonic() == Mnemonic::Call && instruction.next_ip() == at.0;
            is_call.then(|| self.called(&instruction).1).flatten()
        })
    }

    /// Whether the code at `from` can come to `to` within the function that covers both, following all branches. Calls
    /// of functions that never return end a way.
    pub fn reaches(&self, from: Addr, to: Addr) -> bool {
        let Some(start) = self.symbols.function_start(to).filter(|start| *start <= from && from <= to) else {
            return false;
        };
        let mut code = vec![0; LARGEST_FUNCTION as usize];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return false };
        let mut seen = HashSet::new();
        let mut ahead = vec![from];
        while let Some(mut at) = ahead.pop() {
            while seen.insert(at) {
                let Some(bytes) = code[..read].get((at - start) as usize..).filter(|bytes| !bytes.is_empty()) else {
                    break;
                };
                let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
                let next = Addr(instruction.next_ip());
                if at <= to && to < next {
                    return true;
                }
                let branch = Addr(instruction.near_branch_target());
                match instruction.flow_control() {
                    FlowControl::Next | FlowControl::IndirectCall => at = next,
                    FlowControl::Call if self.returns(&instruction) => at = next,
                    FlowControl::ConditionalBranch => {
                        ahead.push(branch);
                        at = next;
                    }
                    FlowControl::UnconditionalBranch => at = branch,
                    _ => break,
                }
            }
        }
        false
    }

    /// Whether the function that is called ever returns.
    fn returns(&self, call: &Instruction) -> bool {
        const NEVER: [&str; 6] = ["exit", "Exit", "abort", "pthread_exit", "stack_chk_fail", "assert_fail"];
        let (_, name) = self.called(call);
        !name.is_some_and(|name| NEVER.contains(&plain_name(&name)))
    }

    fn read(&self, start: Addr, length: usize, mut values: Values) -> Vec<CallSite> {
        let mut code = vec![0; length];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return Vec::new() };
        code.truncate(read);
        let mut sites = Vec::new();
        let mut information = InstructionInfoFactory::new();
        for instruction in &mut Decoder::with_ip(64, &code, start.0, DecoderOptions::NONE) {
            if instruction.is_invalid() || (values.is_imagined && instruction.mnemonic() == Mnemonic::Ret) {
                break;
            }
            if instruction.mnemonic() != Mnemonic::Call {
                values.follow(self.image, &instruction, &mut information);
                continue;
            }
            let (target, function) = self.called(&instruction);
            let is_self = function.as_deref().is_some_and(|name| plain_name(name) == "pthread_self");
            let arguments = [values.get(X86::RDI), values.get(X86::RSI)];
            sites.push(CallSite { at: Addr(instruction.ip()), target, function, arguments });
            values.forget_caller_saved();
            if is_self {
                values.set(X86::RAX, values.thread_pointer);
            }
        }
        sites
    }

    /// The function that a direct call, or an indirect one through a fixed word (`-fno-plt`), goes to, and its name.
    fn called(&self, call: &Instruction) -> (Option<Addr>, Option<String>) {
        let target = match call.op0_kind() {
            OpKind::NearBranch64 => self.behind_stub(Addr(call.near_branch_target())),
            OpKind::Memory if call.is_ip_rel_memory_operand() => Ok(Addr(call.ip_rel_memory_address())),
            _ => return (None, None),
        };
        let slot = match target {
            Ok(slot) => slot,
            Err(function) => return (Some(function), self.symbols.function(function).map(|symbol| symbol.name)),
        };
        // Before its first call a slot leads back into the stub.
        let target = self.image.memory.pointer(slot).ok();
        match target.and_then(|at| self.symbols.function(at)) {
            Some(symbol) => (target, Some(symbol.name)),
            None => (target, self.symbols.slot(slot)),
        }
    }

    /// The slot that a PLT stub jumps through, `[endbr64] [bnd] jmp *slot(%rip)`, or else the function itself.
    fn behind_stub(&self, at: Addr) -> Result<Addr, Addr> {
        let mut code = [0; 16];
        if self.image.memory.read_exact(at, &mut code).is_err() {
            return Err(at);
        }
        let mut instructions = Decoder::with_ip(64, &code, at.0, DecoderOptions::NONE);
        let jump =
            instructions.iter().take(2).find(|one| one.mnemonic() == Mnemonic::Jmp && one.is_ip_rel_memory_operand());
        jump.map(|jump| Addr(jump.ip_rel_memory_address())).ok_or(at)
    }
}

/// What is known of the registers while reading on.
struct Values {
    now: [Option<u64>; 16],
    /// Values of the callee-saved registers as the frame has them: what the function keeps in them.
    kept: [Option<u64>; 16],
    /// What was written to the imagined stack.
    written: HashMap<u64, Option<u64>>,
    is_imagined: bool,
    thread_pointer: Option<u64>,
}

impl Values {
    fn of_frame(frame: &NativeFrame, thread_pointer: Option<Addr>) -> Self {
        let mut kept = [None; 16];
        for register in Register::CALLEE_SAVED.into_iter().chain([Register::RSP]) {
            kept[usize::from(HARDWARE_NUMBER[usize::from(register.0)])] = frame.registers.get(register);
        }
        let thread_pointer = thread_pointer.map(|at| at.0);
        Values { now: kept, kept, written: HashMap::new(), is_imagined: false, thread_pointer }
    }

    fn of_call(arguments: [Option<u64>; 2], thread_pointer: Option<Addr>) -> Self {
        let mut values = Values {
            now: [None; 16],
            kept: [None; 16],
            written: HashMap::new(),
            is_imagined: true,
            thread_pointer: thread_pointer.map(|at| at.0),
        };
        values.set(X86::RSP, Some(IMAGINED_STACK));
        values.set(X86::RDI, arguments[0]);
        values.set(X86::RSI, arguments[1]);
        values
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
        const CALLEE_SAVED: [X86; 7] = [X86::RBX, X86::RBP, X86::RSP, X86::R12, X86::R13, X86::R14, X86::R15];
        for n in 0..16 {
            let is_kept = self.kept[n].is_some()
                || (self.is_imagined && CALLEE_SAVED.iter().any(|register| slot(*register) == Some(n)));
            self.now[n] = self.now[n].filter(|_| is_kept);
        }
    }

    /// The word at `at`: as the function itself wrote it, or as it is now.
    fn load(&self, image: &ProcessImage, at: u64) -> Option<u64> {
        match self.written.get(&at) {
            Some(value) => *value,
            None => image.memory.u64(Addr(at)).ok(),
        }
    }

    fn follow(&mut self, image: &ProcessImage, instruction: &Instruction, information: &mut InstructionInfoFactory) {
        let destination = instruction.op0_register();
        let kinds = (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind());
        let value = match kinds {
            // The frame's own pointer is known from unwinding; where the stack pointer stood in the prologue is not.
            (Mnemonic::Mov | Mnemonic::Lea, ..)
                if destination == X86::RBP && !self.is_imagined && from_stack(instruction) =>
            {
                self.kept[5]
            }
            (Mnemonic::Lea, OpKind::Register, OpKind::Memory) => self.address(instruction),
            (Mnemonic::Mov, OpKind::Register, OpKind::Register) => {
                let source = instruction.op1_register();
                if self.get(source).is_none() && destination.size() == 8 && !self.is_imagined {
                    // An argument that is put by in a callee-saved register is what stands there now.
                    let put_by = slot(destination).and_then(|number| self.kept[number]);
                    self.set(source, put_by);
                }
                self.get(source)
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Memory) => {
                self.address(instruction).filter(|_| destination.size() == 8).and_then(|at| self.load(image, at))
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register) if self.is_imagined => {
                if let Some(at) = self.address(instruction) {
                    let value = self.get(instruction.op1_register());
                    self.written.insert(at, value.filter(|_| instruction.op1_register().size() == 8));
                }
                return;
            }
            (Mnemonic::Push, OpKind::Register, _) if self.is_imagined => {
                let value = self.get(destination);
                let sp = self.get(X86::RSP).map(|sp| sp.wrapping_sub(8));
                self.written.extend(sp.map(|sp| (sp, value)));
                self.set(X86::RSP, sp);
                return;
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64) => {
                Some(instruction.immediate(1))
            }
            (Mnemonic::Add, OpKind::Register, OpKind::Immediate8to64 | OpKind::Immediate32to64) => {
                self.get(destination).map(|v| v.wrapping_add(instruction.immediate(1)))
            }
            (Mnemonic::Sub, OpKind::Register, OpKind::Immediate8to64 | OpKind::Immediate32to64) if self.is_imagined => {
                self.get(destination).map(|v| v.wrapping_sub(instruction.immediate(1)))
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
        // Thread-local: pthread_self() is the word at %fs:0x10.
        let segment = match instruction.segment_prefix() {
            X86::None => 0,
            X86::FS => self.thread_pointer?,
            _ => return None,
        };
        let base = match instruction.memory_base() {
            X86::None => 0,
            register => self.get(register)?,
        };
        let index = match instruction.memory_index() {
            X86::None => 0,
            register => self.get(register)?.wrapping_mul(u64::from(instruction.memory_index_scale())),
        };
        Some(segment.wrapping_add(base).wrapping_add(index).wrapping_add(instruction.memory_displacement64()))
    }
}

/// Whether a value comes from the stack pointer.
fn from_stack(instruction: &Instruction) -> bool {
    instruction.op1_register() == X86::RSP
        || instruction.memory_base() == X86::RSP && instruction.mnemonic() == Mnemonic::Lea
}

/// Hardware number of each DWARF register 0 to 15 (System V ABI figure 3.36 against the instruction encoding).
const HARDWARE_NUMBER: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// Hardware number of a general register of any width.
fn slot(register: X86) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

//! The machine that a process runs on: registers, calling convention, system calls, unwinding, code, thread pointer.
//!
//! In: numbers, bytes of registers or code, memory. Out: what they mean on one machine, in words that fit all. An
//! [`Architecture`] is a value that comes with each captured process and not a property of the build, since a core or
//! a snapshot is read on any machine. Each machine has a folder with the same files; nothing outside of these folders
//! knows a register by name, a system call by number, or an instruction. It knows no lock, no library and no file.

// Its input is foreign.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod aarch64;
mod decoder;
pub(crate) mod instructions;
pub(crate) mod registers;
pub(crate) mod system_calls;
mod x86_64;

use instructions::Target;

use crate::memory::{Addr, Memory};
pub(crate) use decoder::Decoder;
pub(crate) use registers::{Register, RegisterSet, Registers, Syscall};
use system_calls::SystemCall;

/// A machine whose processes can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Architecture {
    /// x86-64 (AMD64, Intel 64), with 64-bit programs.
    #[serde(rename = "x86-64")]
    X86_64,
    /// AArch64, the 64-bit Arm architecture, little-endian.
    #[serde(rename = "aarch64")]
    Aarch64,
}

/// A machine that lockscope knows by name at most.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}")]
pub struct OtherMachine {
    /// Its name, or its number in ELF files.
    pub name: String,
}

/// The machine-dependent parts of the C library's description of a thread, in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadDescriptor {
    /// A word of glibc's that holds the description's own address, where there is one.
    pub glibc_self: Option<u64>,
    /// `tid` of glibc: the id that it writes into owners, in the PID namespace of the process.
    pub glibc_tid: u64,
    /// A word of musl's that holds the description's own address.
    pub musl_self: u64,
    /// `tid` of musl.
    pub musl_tid: u64,
    /// `detach_state` of musl, waited for by join.
    pub musl_detach_state: u64,
}

/// How a system call that a stop interrupted goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// Registers with which the call is made again.
    pub again: Vec<u8>,
    /// Registers with which it says EINTR instead: to be written before the thread goes on, if a signal with a handler has come
    /// meanwhile. `None` where the kernel sees to that.
    pub said: Option<Vec<u8>>,
}

impl Architecture {
    /// The machine that this lockscope runs on, and whose running processes it can stop.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Architecture = Architecture::X86_64;
    /// The machine that this lockscope runs on, and whose running processes it can stop.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Architecture = Architecture::Aarch64;

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86-64",
            Architecture::Aarch64 => "aarch64",
        }
    }

    /// The machine of a 64-bit ELF file, by `e_machine` (gabi, "Machine Architecture").
    pub fn of_elf(machine: u16) -> Result<Architecture, OtherMachine> {
        let name = match machine {
            x86_64::elf::MACHINE => return Ok(Architecture::X86_64),
            aarch64::elf::MACHINE => return Ok(Architecture::Aarch64),
            3 => "32-bit x86",
            20 => "32-bit PowerPC",
            21 => "PowerPC",
            22 => "s390",
            40 => "32-bit Arm",
            243 => "RISC-V",
            258 => "LoongArch",
            other => return Err(OtherMachine { name: format!("ELF machine {other}") }),
        };
        Err(OtherMachine { name: name.to_owned() })
    }

    /// `e_machine` of its ELF files.
    pub fn elf_machine(self) -> u16 {
        match self {
            Architecture::X86_64 => x86_64::elf::MACHINE,
            Architecture::Aarch64 => aarch64::elf::MACHINE,
        }
    }

    /// The largest size of a page, in bytes: files are mapped in units of it, or of a part of it.
    pub fn page_size(self) -> u64 {
        match self {
            Architecture::X86_64 => x86_64::elf::PAGE_SIZE,
            Architecture::Aarch64 => aarch64::elf::PAGE_SIZE,
        }
    }

    /// A register's name in assembly.
    pub fn register_name(self, register: Register) -> &'static str {
        let names: &[&str] = match self {
            Architecture::X86_64 => &x86_64::registers::NAMES,
            Architecture::Aarch64 => &aarch64::registers::NAMES,
        };
        names.get(usize::from(register.0)).copied().unwrap_or("?")
    }

    /// All general registers and the instruction pointer.
    pub fn general_registers(self) -> impl Iterator<Item = Register> {
        let count = match self {
            Architecture::X86_64 => x86_64::registers::NAMES.len(),
            Architecture::Aarch64 => aarch64::registers::NAMES.len(),
        };
        (0..).map(Register).take(count)
    }

    /// The instruction pointer.
    pub fn program_counter(self) -> Register {
        match self {
            Architecture::X86_64 => x86_64::registers::RIP,
            Architecture::Aarch64 => aarch64::registers::PROGRAM_COUNTER,
        }
    }

    /// The stack pointer.
    pub fn stack_pointer(self) -> Register {
        match self {
            Architecture::X86_64 => x86_64::registers::RSP,
            Architecture::Aarch64 => aarch64::registers::STACK_POINTER,
        }
    }

    /// The frame pointer, where a function keeps one.
    pub fn frame_pointer(self) -> Register {
        match self {
            Architecture::X86_64 => x86_64::registers::RBP,
            Architecture::Aarch64 => aarch64::registers::FRAME_POINTER,
        }
    }

    /// The registers that a function must give back as it got them, without the stack pointer.
    pub fn callee_saved(self) -> &'static [Register] {
        match self {
            Architecture::X86_64 => &x86_64::calling_convention::CALLEE_SAVED,
            Architecture::Aarch64 => &aarch64::calling_convention::CALLEE_SAVED,
        }
    }

    /// The registers that a function may change and need not give back.
    pub fn caller_saved(self) -> &'static [Register] {
        match self {
            Architecture::X86_64 => &x86_64::calling_convention::CALLER_SAVED,
            Architecture::Aarch64 => &aarch64::calling_convention::CALLER_SAVED,
        }
    }

    /// The registers that bring a function's first arguments.
    pub fn arguments(self) -> &'static [Register] {
        match self {
            Architecture::X86_64 => &x86_64::calling_convention::ARGUMENTS,
            Architecture::Aarch64 => &aarch64::calling_convention::ARGUMENTS,
        }
    }

    /// The register that brings a function's result.
    pub fn result(self) -> Register {
        match self {
            Architecture::X86_64 => x86_64::calling_convention::RESULT,
            Architecture::Aarch64 => aarch64::calling_convention::RESULT,
        }
    }

    /// The register that brings the address of a result which registers cannot hold.
    pub fn result_address(self) -> Register {
        match self {
            Architecture::X86_64 => x86_64::calling_convention::RESULT_ADDRESS,
            Architecture::Aarch64 => aarch64::calling_convention::RESULT_ADDRESS,
        }
    }

    /// The bytes that a call puts on the stack, which lie right below the caller's frame.
    pub fn bytes_of_call(self) -> u64 {
        match self {
            Architecture::X86_64 => x86_64::calling_convention::BYTES_OF_CALL,
            Architecture::Aarch64 => aarch64::calling_convention::BYTES_OF_CALL,
        }
    }

    /// Bytes below the stack pointer that a function may use without moving it.
    pub fn red_zone(self) -> u64 {
        match self {
            Architecture::X86_64 => x86_64::calling_convention::RED_ZONE,
            Architecture::Aarch64 => aarch64::calling_convention::RED_ZONE,
        }
    }

    /// The general registers as the kernel gives them: `user_regs`, as PTRACE_GETREGSET and NT_PRSTATUS have it. `None`
    /// if `bytes` is too short.
    pub fn registers(self, bytes: &[u8]) -> Option<Registers> {
        match self {
            Architecture::X86_64 => x86_64::registers::parse(bytes),
            Architecture::Aarch64 => aarch64::registers::parse(bytes),
        }
    }

    /// Registers that were read of a thread while it sleeps, by the kernel's program (`task_registers.bpf.c`): without the result of a
    /// system call that has none yet. `None` also for a thread that has never been in user space, as the kernel's own workers inside
    /// a process.
    pub fn asleep_registers(self, bytes: &[u8]) -> Option<Registers> {
        match self {
            Architecture::X86_64 => x86_64::system_calls::asleep(bytes),
            Architecture::Aarch64 => aarch64::system_calls::asleep(bytes),
        }
    }

    /// How many bytes of registers that program gives of a thread.
    pub const fn asleep_registers_size(self) -> usize {
        match self {
            Architecture::X86_64 => x86_64::system_calls::SIZE_ASLEEP,
            Architecture::Aarch64 => aarch64::system_calls::SIZE_ASLEEP,
        }
    }

    /// gdb's names for the system call's number and the thread pointer.
    #[cfg(test)]
    pub(crate) fn names_in_gdb(self) -> [&'static str; 2] {
        match self {
            Architecture::X86_64 => ["orig_rax", "fs_base"],
            Architecture::Aarch64 => ["x8", "tpidr"],
        }
    }

    /// The same in the other direction. Registers that `Registers` does not hold get the value that they have in any
    /// user program.
    pub fn user_registers(self, registers: &Registers) -> Vec<u8> {
        match self {
            Architecture::X86_64 => x86_64::registers::write(registers),
            Architecture::Aarch64 => aarch64::registers::write(registers),
        }
    }

    /// Take what a note of a core, of the kernel's kinds with the owner "LINUX", says beside these bytes.
    pub fn take_note(self, registers: &mut Registers, kind: u32, data: &[u8]) {
        match self {
            Architecture::X86_64 => {}
            Architecture::Aarch64 => aarch64::elf::take_note(registers, kind, data),
        }
    }

    /// The kind of register set to read from a stopped thread beside its general registers, for
    /// [`Architecture::take_note`].
    pub fn second_register_set(self) -> Option<u32> {
        match self {
            Architecture::X86_64 => None,
            Architecture::Aarch64 => Some(aarch64::elf::THREAD_POINTER_NOTE),
        }
    }

    /// The notes of that owner for these registers.
    pub fn notes(self, registers: &Registers) -> Vec<(u32, Vec<u8>)> {
        match self {
            Architecture::X86_64 => Vec::new(),
            Architecture::Aarch64 => aarch64::elf::notes(registers),
        }
    }

    /// Adds the facts about registers of the thread `tid` of a stopped process that only memory shows: the system call
    /// that it is in, and its [`ThreadDescriptor`]. `None` if the code at its pc is not readable.
    fn settled(self, registers: Registers, tid: i32, memory: &dyn Memory) -> Option<Registers> {
        match self {
            Architecture::X86_64 => Some(registers),
            Architecture::Aarch64 => {
                let descriptor = aarch64::thread_pointer::descriptor(&registers, tid, memory);
                aarch64::system_calls::settled(Registers { descriptor, ..registers }, memory)
            }
        }
    }

    /// [`Registers::with_call_made_again`].
    fn with_call_made_again(self, registers: Registers, memory: &dyn Memory) -> Registers {
        match self {
            Architecture::X86_64 => x86_64::system_calls::made_again(registers, memory),
            // The facts that `settled` finds there.
            Architecture::Aarch64 => registers,
        }
    }

    /// The size of these bytes.
    pub fn user_registers_size(self) -> usize {
        match self {
            Architecture::X86_64 => x86_64::registers::SIZE,
            Architecture::Aarch64 => aarch64::registers::SIZE,
        }
    }

    /// Whether these bytes of registers may belong to a thread whose system call the stop itself interrupted, and would
    /// return EINTR now. (On machines where only the code shows whether it is in a call, maybe of another one.)
    pub fn is_interrupted(self, bytes: &[u8]) -> bool {
        match self {
            Architecture::X86_64 => x86_64::system_calls::is_interrupted(bytes),
            Architecture::Aarch64 => aarch64::system_calls::is_interrupted(bytes),
        }
    }

    /// Whether [`Architecture::restarted`] needs the call that the thread slept in before the stop.
    pub fn needs_call_before(self) -> bool {
        match self {
            Architecture::X86_64 => false,
            Architecture::Aarch64 => true,
        }
    }

    /// How a thread with these bytes of registers continues the system call that the stop interrupted. `slept` is the
    /// call that it has slept in since before the stop, from /proc. `None` where that is impossible.
    pub fn restarted(self, bytes: &[u8], slept: Option<&Syscall>) -> Option<Restart> {
        match self {
            Architecture::X86_64 => x86_64::system_calls::restarted(bytes),
            Architecture::Aarch64 => aarch64::system_calls::restarted(bytes, slept?),
        }
    }

    /// Registers with which a call is made again as itself, where these bytes say that the kernel is about to let restart_syscall go on
    /// with it: a seccomp filter may not know that call. A time-out relative to now starts anew.
    pub fn made_again_as_itself(self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self {
            Architecture::X86_64 => x86_64::system_calls::made_again_as_itself(bytes),
            Architecture::Aarch64 => None,
        }
    }

    /// Whether a stop does not show which calls restart_syscall will go on with. Linux for 64-bit Arm settles that before a tracer sees
    /// the thread (`do_signal` in arch/arm64/kernel/signal.c).
    pub fn hides_restarts(self) -> bool {
        match self {
            Architecture::X86_64 => false,
            Architecture::Aarch64 => true,
        }
    }

    /// `registers` of a thread that is in a system call with these arguments and this result, as a stop shows it.
    #[cfg(test)]
    pub(crate) fn in_system_call(self, registers: Registers, result: i64, arguments: [u64; 6]) -> Registers {
        match self {
            Architecture::X86_64 => x86_64::system_calls::made(registers, result, arguments),
            Architecture::Aarch64 => aarch64::system_calls::made(registers, result, arguments),
        }
    }

    /// The system call that a thread is in, by its registers.
    fn system_call_of(self, registers: &Registers) -> Option<Syscall> {
        match self {
            Architecture::X86_64 => x86_64::system_calls::current(registers),
            Architecture::Aarch64 => aarch64::system_calls::current(registers),
        }
    }

    /// Whether the thread of this call slept in it when it was stopped: its result says that it did not finish.
    fn is_asleep(self, call: &Syscall) -> bool {
        match self {
            Architecture::X86_64 => x86_64::system_calls::is_asleep(call),
            Architecture::Aarch64 => aarch64::system_calls::is_asleep(call),
        }
    }

    /// The number that the code before a system call loads, where it does.
    pub fn number_by_code(self, call: &Syscall, memory: &dyn Memory) -> Option<i64> {
        match self {
            Architecture::X86_64 => x86_64::system_calls::number_by_code(call, memory),
            Architecture::Aarch64 => aarch64::system_calls::number_by_code(call, memory),
        }
    }

    /// The system call of a number.
    pub fn system_call(self, number: i64) -> Option<&'static SystemCall> {
        let table = self.numbers();
        let place = table.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        table.get(place).map(|(_, call)| call)
    }

    /// The number of a system call; `None` where this machine lacks it.
    pub fn number_of(self, call: &SystemCall) -> Option<i64> {
        self.numbers().iter().find(|(_, known)| known.name == call.name).map(|(number, _)| *number)
    }

    /// Whether `number` stands for a call that the kernel restarts, which hides what call it was.
    pub fn is_restart(self, number: i64) -> bool {
        self.system_call(number) == Some(&system_calls::RESTART_SYSCALL)
    }

    fn numbers(self) -> &'static [(i64, SystemCall)] {
        match self {
            Architecture::X86_64 => x86_64::system_call_numbers::NUMBERS,
            Architecture::Aarch64 => aarch64::system_call_numbers::NUMBERS,
        }
    }

    /// The column of call frame information that holds the return address.
    pub fn return_column(self) -> Register {
        match self {
            Architecture::X86_64 => x86_64::unwinding::RETURN_COLUMN,
            Architecture::Aarch64 => aarch64::unwinding::RETURN_COLUMN,
        }
    }

    /// The register in which a call leaves the return address, where it is not put on the stack: a function that calls no
    /// other has it there still.
    pub fn link(self) -> Option<Register> {
        match self {
            Architecture::X86_64 => None,
            Architecture::Aarch64 => Some(aarch64::registers::LINK),
        }
    }

    /// The code that a return address leads to.
    pub fn returned_to(self, address: u64) -> Addr {
        match self {
            Architecture::X86_64 => Addr(address),
            Architecture::Aarch64 => aarch64::unwinding::without_authentication(address),
        }
    }

    /// The registers that a signal interrupted, where `pc` is known by its code as the place that its handler returns to.
    pub fn interrupted(self, pc: Addr, sp: Addr, memory: &dyn Memory) -> Option<RegisterSet> {
        match self {
            // Call frame information describes that place.
            Architecture::X86_64 => None,
            Architecture::Aarch64 => aarch64::unwinding::interrupted(pc, sp, memory),
        }
    }

    /// Whose extensions of call frame instructions its files use.
    pub fn cfi_vendor(self) -> gimli::Vendor {
        match self {
            Architecture::X86_64 => x86_64::unwinding::VENDOR,
            Architecture::Aarch64 => aarch64::unwinding::VENDOR,
        }
    }

    /// Whether `pc` may be a return address: the code before it is a call.
    pub fn is_behind_call(self, pc: Addr, memory: &dyn Memory) -> bool {
        match self {
            Architecture::X86_64 => x86_64::unwinding::is_behind_call(pc, memory),
            Architecture::Aarch64 => aarch64::unwinding::is_behind_call(pc, memory),
        }
    }

    /// The caller's registers, for a frame that keeps a frame pointer. `sp` is the least value of its stack pointer.
    /// The caller's stays unknown where frame pointers do not show it.
    pub fn step_by_frame_pointer(self, registers: &RegisterSet, sp: Addr, memory: &dyn Memory) -> Option<RegisterSet> {
        match self {
            Architecture::X86_64 => x86_64::unwinding::step_by_frame_pointer(registers, sp, memory),
            Architecture::Aarch64 => aarch64::unwinding::step_by_frame_pointer(registers, sp, memory),
        }
    }

    /// The caller's registers, of a function that calls no other and has put nothing on the stack.
    pub fn step_from_leaf(self, registers: &RegisterSet, memory: &dyn Memory) -> Option<RegisterSet> {
        match self {
            Architecture::X86_64 => x86_64::unwinding::step_by_word(registers, registers.sp()?, memory),
            Architecture::Aarch64 => aarch64::unwinding::step_from_leaf(registers),
        }
    }

    /// The caller's registers, if the word at `at` is the return address of a frame with these registers.
    pub fn step_by_word(self, registers: &RegisterSet, at: Addr, memory: &dyn Memory) -> Option<RegisterSet> {
        match self {
            Architecture::X86_64 => x86_64::unwinding::step_by_word(registers, at, memory),
            Architecture::Aarch64 => aarch64::unwinding::step_by_word(at, memory),
        }
    }

    /// Reads code that lies at `address`.
    pub fn decoder(self, code: &[u8], address: Addr) -> Decoder<'_> {
        match self {
            Architecture::X86_64 => Decoder::X86_64(x86_64::instructions::X86Decoder::new(code, address)),
            Architecture::Aarch64 => Decoder::Aarch64(aarch64::instructions::A64Decoder::new(code, address)),
        }
    }

    /// Where the direct calls and jumps in `code`, which lies at `address`, lead, with the addresses of the instructions: those that name
    /// code, or a word with the address of code. None is left out. Where instructions have no fixed length, other bytes may look like one.
    pub fn direct_branches(self, code: &[u8], address: Addr) -> Vec<(Target, Addr)> {
        match self {
            Architecture::X86_64 => x86_64::instructions::direct_branches(code, address),
            Architecture::Aarch64 => aarch64::instructions::direct_branches(code, address),
        }
    }

    /// How many instructions the linker's stub of a function in another library has at most.
    pub fn instructions_of_stub(self) -> usize {
        match self {
            Architecture::X86_64 => x86_64::instructions::INSTRUCTIONS_OF_STUB,
            Architecture::Aarch64 => aarch64::instructions::INSTRUCTIONS_OF_STUB,
        }
    }

    /// The lengths, in bytes, of call instructions through which a function of another library is called.
    pub fn lengths_of_calls(self) -> &'static [u64] {
        match self {
            Architecture::X86_64 => &x86_64::instructions::LENGTHS_OF_CALLS,
            Architecture::Aarch64 => &aarch64::instructions::LENGTHS_OF_CALLS,
        }
    }

    /// The bytes before and behind the thread pointer that the C library's description of a thread lies in.
    pub fn around_thread_pointer(self) -> (u64, u64) {
        match self {
            Architecture::X86_64 => x86_64::thread_pointer::AROUND,
            Architecture::Aarch64 => aarch64::thread_pointer::AROUND,
        }
    }

    /// Where functions read the word with which they check their stack, in bytes from the thread pointer: `tcbhead_t.stack_guard`
    /// (sysdeps/x86_64/nptl/tls.h). On other machines it is a variable of the C library.
    pub(crate) fn stack_guard(self) -> Option<u64> {
        match self {
            Architecture::X86_64 => Some(0x28),
            Architecture::Aarch64 => None,
        }
    }

    /// Where glibc keeps the address of a thread's table of thread-local storage, in bytes from the thread pointer: `tcbhead_t.dtv`
    /// (sysdeps/x86_64/nptl/tls.h, sysdeps/aarch64/nptl/tls.h).
    pub(crate) fn glibc_storage_table(self) -> u64 {
        match self {
            Architecture::X86_64 => 8,
            Architecture::Aarch64 => 0,
        }
    }

    /// The layout of that description.
    pub fn descriptor_layout(self) -> &'static ThreadDescriptor {
        match self {
            Architecture::X86_64 => &x86_64::thread_pointer::DESCRIPTOR,
            Architecture::Aarch64 => &aarch64::thread_pointer::DESCRIPTOR,
        }
    }

    /// The size of glibc's `pthread_mutex_t`, by which what stands behind one in a structure moves.
    pub fn glibc_mutex_size(self) -> u64 {
        match self {
            Architecture::X86_64 => x86_64::thread_pointer::GLIBC_MUTEX_SIZE,
            Architecture::Aarch64 => aarch64::thread_pointer::GLIBC_MUTEX_SIZE,
        }
    }

    /// Whether this value of the lock word means that glibc's spinlock is held.
    pub fn glibc_spinlock_is_held(self, word: i32) -> bool {
        match self {
            Architecture::X86_64 => x86_64::thread_pointer::glibc_spinlock_is_held(word),
            Architecture::Aarch64 => aarch64::thread_pointer::glibc_spinlock_is_held(word),
        }
    }

    /// The register in which `pthread_spin_lock` keeps the lock while it spins.
    pub fn spinlock_register(self) -> Register {
        match self {
            Architecture::X86_64 => x86_64::calling_convention::ARGUMENTS[0],
            Architecture::Aarch64 => aarch64::thread_pointer::SPINLOCK_REGISTER,
        }
    }
}

#[cfg(test)]
mod tests;

//! Registers of a thread and of unwound frames, numbered as in the DWARF of their machine, so that CFI rows apply
//! without a table.
//!
//! In: numbers and values. Out: sets of known registers. [`Architecture`] decides which number is which register.

use super::Architecture;
use crate::memory::{Addr, Memory};

/// DWARF register number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u16);

/// Registers that have a slot: the most that any machine has, its instruction pointer included.
const SLOTS: usize = 33;

/// Values of the registers that are known; the others are marked unknown, never zero. Saved as pairs of number and
/// value.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct RegisterSet {
    known: u64,
    architecture: Architecture,
    values: [u64; SLOTS],
}

impl RegisterSet {
    /// A set without known registers.
    pub fn new(architecture: Architecture) -> RegisterSet {
        RegisterSet { known: 0, architecture, values: [0; SLOTS] }
    }

    /// The machine whose registers these are.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The same values as registers of another machine: sets are saved without theirs.
    #[must_use]
    pub fn on(self, architecture: Architecture) -> RegisterSet {
        RegisterSet { architecture, ..self }
    }

    /// The value, if known.
    pub fn get(&self, register: Register) -> Option<u64> {
        let number = usize::from(register.0);
        self.values.get(number).copied().filter(|_| self.known & (1 << number) != 0)
    }

    /// Make it known; numbers without a slot (vector registers) are ignored.
    pub fn set(&mut self, register: Register, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(register.0)) {
            *slot = value;
            self.known |= 1 << register.0;
        }
    }

    /// Make it unknown.
    pub fn forget(&mut self, register: Register) {
        if usize::from(register.0) < SLOTS {
            self.known &= !(1 << register.0);
        }
    }

    /// Instruction pointer.
    pub fn pc(&self) -> Option<Addr> {
        self.get(self.architecture.program_counter()).map(Addr)
    }

    /// Stack pointer.
    pub fn sp(&self) -> Option<Addr> {
        self.get(self.architecture.stack_pointer()).map(Addr)
    }

    /// Set the instruction pointer.
    pub fn set_pc(&mut self, pc: Addr) {
        self.set(self.architecture.program_counter(), pc.0);
    }

    /// Set the stack pointer.
    pub fn set_sp(&mut self, sp: Addr) {
        self.set(self.architecture.stack_pointer(), sp.0);
    }

    /// All known registers with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Register, u64)> + '_ {
        (0..SLOTS as u16).map(Register).filter_map(|r| Some((r, self.get(r)?)))
    }
}

/// Sets are saved without their machine, as when only one existed: the reader adds it ([`RegisterSet::on`]).
impl From<Vec<(u16, u64)>> for RegisterSet {
    fn from(pairs: Vec<(u16, u64)>) -> RegisterSet {
        let mut set = RegisterSet::new(Architecture::X86_64);
        pairs.into_iter().for_each(|(number, value)| set.set(Register(number), value));
        set
    }
}

impl From<RegisterSet> for Vec<(u16, u64)> {
    fn from(set: RegisterSet) -> Vec<(u16, u64)> {
        set.iter().map(|(register, value)| (register.0, value)).collect()
    }
}

impl std::fmt::Debug for RegisterSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(r, v)| (self.architecture.register_name(r), Addr(v)))).finish()
    }
}

/// Registers of a stopped thread. The names under which they are saved are those of the first machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Registers {
    /// General registers and the instruction pointer: all known, but for the result of a call that a thread was read asleep in.
    pub general: RegisterSet,
    /// Number of the system call at whose entry or inside which it stopped; -1 outside one.
    #[serde(rename = "orig_rax")]
    pub system_call: i64,
    /// Thread pointer.
    #[serde(rename = "fs_base")]
    pub thread_pointer: Addr,
    /// Where what the C library keeps of the thread begins, on machines where the thread pointer leads elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<Addr>,
}

/// A system call as the registers or /proc/PID/task/TID/syscall give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Syscall {
    /// Number; that of restart_syscall hides the real one after an earlier stop.
    pub number: i64,
    /// The six arguments.
    pub arguments: [u64; 6],
    /// Result register, as an errno below zero: what it says while a stop interrupts the call is the machine's matter.
    pub result: i64,
    /// Stack pointer.
    pub sp: Addr,
    /// Instruction pointer, after the instruction that makes the call.
    pub pc: Addr,
}

impl Registers {
    /// With the facts about them that only memory shows: see [`Architecture`]. The capture calls this once for each
    /// thread, with its id `tid` in its own PID namespace. `None` if the code at the thread's pc is not readable:
    /// without it, whether the thread sleeps is unknown.
    pub fn settled(self, tid: i32, memory: &dyn Memory) -> Option<Registers> {
        self.general.architecture.settled(self, tid, memory)
    }

    /// The same, in the system call that the thread is about to make again after a signal or a debugger took it out of
    /// it. These are the last registers of a thread whose process ended just there. For a living thread, its state is
    /// better evidence.
    pub fn with_call_made_again(self, memory: &dyn Memory) -> Registers {
        self.general.architecture.with_call_made_again(self, memory)
    }

    /// Where the C library's description of the thread begins: what `pthread_self()` gives.
    pub fn thread_descriptor(&self) -> Option<Addr> {
        match self.general.architecture {
            Architecture::X86_64 => Some(self.thread_pointer),
            Architecture::Aarch64 => self.descriptor,
        }
    }

    /// The system call that the thread slept in when it was stopped: the result register shows that it did not finish.
    /// For a thread that was read asleep, without a stop, the result is unknown.
    pub fn asleep(&self) -> Option<Syscall> {
        let result = self.general.get(self.general.architecture.result());
        self.syscall().filter(|call| result.is_none() || self.general.architecture.is_asleep(call))
    }

    /// The system call that the thread is in, if it is in one.
    pub fn syscall(&self) -> Option<Syscall> {
        self.general.architecture.system_call_of(self)
    }

    /// Whether the thread is in no system call: it runs code of its own.
    pub fn is_in_user_code(&self) -> bool {
        self.system_call < 0
    }
}

//! Registers of a thread and of unwound frames, numbered as in DWARF, so that CFI rows apply without a table.
//!
//! x86-64 only for now: a second architecture adds its numbering, its callee-saved set and its system call
//! convention here and nowhere else.

use super::{Addr, Memory, MemoryExt};

/// DWARF register number (System V ABI for x86-64, figure 3.36).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u16);

impl Register {
    /// Accumulator: system call result.
    pub const RAX: Register = Register(0);
    /// Third argument.
    pub const RDX: Register = Register(1);
    /// Fourth argument of functions.
    pub const RCX: Register = Register(2);
    /// Callee-saved.
    pub const RBX: Register = Register(3);
    /// Second argument.
    pub const RSI: Register = Register(4);
    /// First argument.
    pub const RDI: Register = Register(5);
    /// Frame pointer, callee-saved.
    pub const RBP: Register = Register(6);
    /// Stack pointer.
    pub const RSP: Register = Register(7);
    /// r8 is 8, and so on to r15.
    pub const R8: Register = Register(8);
    /// Sixth argument.
    pub const R9: Register = Register(9);
    /// Fourth argument of system calls.
    pub const R10: Register = Register(10);
    /// Callee-saved.
    pub const R12: Register = Register(12);
    /// Callee-saved.
    pub const R13: Register = Register(13);
    /// Callee-saved.
    pub const R14: Register = Register(14);
    /// Callee-saved.
    pub const R15: Register = Register(15);
    /// Return address column: the instruction pointer.
    pub const RIP: Register = Register(16);

    /// The registers that a callee must keep.
    pub const CALLEE_SAVED: [Register; 6] =
        [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

    /// Its name in assembly.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 17] = [
            "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
            "r15", "rip",
        ];
        NAMES.get(usize::from(self.0)).copied().unwrap_or("?")
    }
}

/// Values of the registers that are known; the others are marked unknown, never zero. Saved as pairs of number and
/// value.
#[derive(Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct RegisterSet {
    known: u32,
    values: [u64; 17],
}

impl RegisterSet {
    /// The value, if known.
    pub fn get(&self, register: Register) -> Option<u64> {
        let number = usize::from(register.0);
        (number < 17 && self.known & (1 << number) != 0).then(|| self.values[number])
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
        if register.0 < 17 {
            self.known &= !(1 << register.0);
        }
    }

    /// Instruction pointer.
    pub fn pc(&self) -> Option<Addr> {
        self.get(Register::RIP).map(Addr)
    }

    /// Stack pointer.
    pub fn sp(&self) -> Option<Addr> {
        self.get(Register::RSP).map(Addr)
    }

    /// All known registers with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Register, u64)> + '_ {
        (0..17).map(Register).filter_map(|r| Some((r, self.get(r)?)))
    }
}

impl From<Vec<(u16, u64)>> for RegisterSet {
    fn from(pairs: Vec<(u16, u64)>) -> RegisterSet {
        let mut set = RegisterSet::default();
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
        f.debug_map().entries(self.iter().map(|(r, v)| (r.name(), Addr(v)))).finish()
    }
}

/// Registers of a stopped thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Registers {
    /// General registers and the instruction pointer: all known, but for rax of a thread that was read while it slept in a
    /// system call, which has no result yet.
    pub general: RegisterSet,
    /// Number of the system call at whose entry or inside which it stopped; -1 outside one.
    pub orig_rax: i64,
    /// Thread pointer: on glibc the address of `struct pthread`, which is pthread_self().
    pub fs_base: Addr,
}

/// A system call as the registers or /proc/PID/task/TID/syscall give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Syscall {
    /// Number; 219 (restart_syscall) hides the real one after an earlier stop.
    pub number: i64,
    /// The six arguments.
    pub arguments: [u64; 6],
    /// Result register: -512, -513, -514, -516 while a stop interrupts a restartable call.
    pub result: i64,
    /// Stack pointer.
    pub sp: Addr,
    /// Instruction pointer, after the `syscall` instruction.
    pub pc: Addr,
}

impl Syscall {
    /// restart_syscall, which hides the call that is restarted.
    pub const RESTART: i64 = 219;

    /// The number that the instruction before the call loads, where it is one that does.
    pub fn number_by_code(&self, memory: &dyn Memory) -> Option<i64> {
        // mov $nr,%eax ; [xor $0x80,%sil] ; syscall
        [0u64, 4].into_iter().find_map(|gap| {
            let mut code = [0u8; 11];
            let length = 7 + gap as usize;
            memory.read_exact(self.pc - length as u64, &mut code[..length]).ok()?;
            let is_call = code[0] == 0xb8
                && code[length - 2..length] == [0x0f, 0x05]
                && (gap == 0 || code[5..9] == [0x40, 0x80, 0xf6, 0x80]);
            let number = u32::from_le_bytes([code[1], code[2], code[3], code[4]]);
            (is_call && number < 1024).then_some(i64::from(number))
        })
    }
}

impl Registers {
    /// The system call that the thread slept in when it was stopped: the result register says that it did not finish.
    pub fn asleep(&self) -> Option<Syscall> {
        // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK, and EINTR of the calls that are not
        // restarted (measured on Linux 6.18).
        const ASLEEP: [i64; 5] = [-512, -513, -514, -516, -4];
        // One that was read asleep, without a stop, has no result yet.
        let result = self.general.get(Register::RAX);
        self.syscall().filter(|call| result.is_none() || ASLEEP.contains(&call.result))
    }

    /// The system call that the thread is in, if it is in one.
    pub fn syscall(&self) -> Option<Syscall> {
        if self.orig_rax < 0 {
            return None;
        }
        let get = |r| self.general.get(r).unwrap_or(0);
        Some(Syscall {
            number: self.orig_rax,
            arguments: [
                get(Register::RDI),
                get(Register::RSI),
                get(Register::RDX),
                get(Register::R10),
                get(Register::R8),
                get(Register::R9),
            ],
            result: get(Register::RAX) as i64,
            sp: Addr(get(Register::RSP)),
            pc: Addr(get(Register::RIP)),
        })
    }
}

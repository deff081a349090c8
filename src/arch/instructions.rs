//! Machine code in words that fit all machines: where an instruction leads, and what it does to registers and memory.
//!
//! In: the bytes of code, through [`Architecture::decoder`](super::Architecture::decoder). Out: [`Instruction`]s in
//! order of address, and on request the [`Effects`] of each. For computations beyond moves and additions, only the
//! overwritten registers are reported, not the values.

use super::Register;
use crate::memory::Addr;

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub address: Addr,
    /// That of the one behind it.
    pub next: Addr,
    /// Where it leads.
    pub flow: Flow,
}

/// Where an instruction leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To the next one.
    Next,
    /// Into a function, and then to the next one.
    Call(Target),
    /// Away.
    Jump(Target),
    /// There or to the next one.
    Branch(Addr),
    /// Back to the caller.
    Return,
    /// Nowhere: a trap.
    Trap,
}

/// The target that a call or a jump names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// This code.
    Code(Addr),
    /// The code whose address stands in the word here.
    Slot(Addr),
    /// The code whose address this register has.
    Register(Register),
    /// The code at a computed address.
    Unknown,
}

/// A place in memory: base + index * scale + displacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// A register to add.
    pub base: Option<Register>,
    /// A register to add, times a number.
    pub index: Option<(Register, u64)>,
    /// The number to add; the whole address where no register is named.
    pub displacement: u64,
    /// The thread pointer is added.
    pub is_thread_local: bool,
}

impl Place {
    /// The place at this offset, in bytes, from the thread pointer.
    pub fn of_thread(displacement: u64) -> Place {
        Place { base: None, index: None, displacement, is_thread_local: true }
    }
}

/// How much of a register an instruction moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// All 64 bits.
    Whole,
    /// The low 32 bits, as an `int` has them. The state of the others is not reported: machines clear them in a
    /// register.
    Half,
    /// Fewer.
    Part,
}

impl Width {
    /// The width for a number of bytes.
    pub fn of_bytes(bytes: usize) -> Width {
        match bytes {
            8 => Width::Whole,
            4 => Width::Half,
            _ => Width::Part,
        }
    }

    /// All bits.
    pub fn is_whole(self) -> bool {
        self == Width::Whole
    }

    /// How many bytes it is at most.
    pub fn bytes(self) -> u64 {
        match self {
            Width::Whole => 8,
            Width::Half => 4,
            Width::Part => 2,
        }
    }
}

/// The effect of an instruction. A place is `None` where it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A register gets the value of another.
    Copy {
        /// It.
        to: Register,
        /// The other.
        from: Register,
        /// How much of it.
        width: Width,
    },
    /// A register gets what stands at a place.
    Load {
        /// It.
        to: Register,
        /// The place.
        from: Option<Place>,
        /// How much of it.
        width: Width,
    },
    /// A place gets the value of a register; `None` is a register that is not modelled.
    Store {
        /// The place.
        to: Option<Place>,
        /// The register.
        from: Option<Register>,
        /// How much of it.
        width: Width,
    },
    /// A register gets the address of a place.
    Address {
        /// It.
        to: Register,
        /// The place.
        of: Option<Place>,
    },
    /// A register gets a number.
    Constant {
        /// It.
        to: Register,
        /// The number.
        value: u64,
    },
    /// A number is added to a register.
    Add {
        /// It.
        to: Register,
        /// The number.
        amount: u64,
    },
    /// A number is subtracted from a register.
    Subtract {
        /// It.
        to: Register,
        /// The number.
        amount: u64,
    },
    /// The stack grows by 8 bytes, which get the value of a register; `None` is something else.
    Push {
        /// The register.
        from: Option<Register>,
        /// The stack pointer.
        stack_pointer: Register,
    },
    /// The stack shrinks by 8 bytes, whose value a register gets.
    Pop {
        /// The register.
        to: Register,
        /// The stack pointer.
        stack_pointer: Register,
    },
    /// Anything else.
    Other {
        /// The registers that it may change.
        writes: RegisterMask,
        /// The place that it writes to, if there is one and it is known.
        place: Option<Place>,
    },
}

impl Effect {
    /// The registers that it may change.
    pub fn writes(&self) -> RegisterMask {
        match *self {
            Effect::Copy { to, .. }
            | Effect::Load { to, .. }
            | Effect::Address { to, .. }
            | Effect::Constant { to, .. }
            | Effect::Add { to, .. }
            | Effect::Subtract { to, .. } => RegisterMask::default().with(to),
            Effect::Push { stack_pointer, .. } => RegisterMask::default().with(stack_pointer),
            Effect::Pop { to, stack_pointer } => RegisterMask::default().with(to).with(stack_pointer),
            Effect::Store { .. } => RegisterMask::default(),
            Effect::Other { writes, .. } => writes,
        }
    }

    /// Whether a register gets a value that each thread has of its own. The word `guard`, with which functions check their stack,
    /// says nothing.
    pub fn loads_of_thread(&self, guard: Option<u64>) -> bool {
        let (Effect::Load { from: place, .. } | Effect::Address { of: place, .. }) = self else { return false };
        place.is_some_and(|place| place.is_thread_local && guard.is_none_or(|guard| place != Place::of_thread(guard)))
    }

    /// The place in memory that it writes to, but for the stack's top.
    pub fn written(&self) -> Option<Place> {
        match *self {
            Effect::Store { to: place, .. } | Effect::Other { place, .. } => place,
            _ => None,
        }
    }
}

/// The effects of one instruction, in order: one that stores two registers and moves the stack pointer has three
/// effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects([Option<Effect>; 3]);

impl Effects {
    /// One.
    pub fn one(effect: Effect) -> Effects {
        Effects([Some(effect), None, None])
    }

    /// Two.
    pub fn two(first: Effect, second: Effect) -> Effects {
        Effects([Some(first), Some(second), None])
    }

    /// Three.
    pub fn three(first: Effect, second: Effect, third: Effect) -> Effects {
        Effects([Some(first), Some(second), Some(third)])
    }

    /// All.
    pub fn iter(&self) -> impl Iterator<Item = Effect> {
        self.0.into_iter().flatten()
    }
}

/// A set of registers by DWARF number, those below 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegisterMask(u64);

impl RegisterMask {
    /// The same with `register`.
    #[must_use]
    pub fn with(self, register: Register) -> RegisterMask {
        RegisterMask(self.0 | 1u64.checked_shl(u32::from(register.0)).unwrap_or(0))
    }

    /// The same without `register`.
    #[must_use]
    pub fn without(self, register: Register) -> RegisterMask {
        RegisterMask(self.0 & !RegisterMask::default().with(register).0)
    }

    /// The registers in both.
    #[must_use]
    pub fn common(self, other: RegisterMask) -> RegisterMask {
        RegisterMask(self.0 & other.0)
    }

    /// Whether `register` is in it.
    pub fn has(self, register: Register) -> bool {
        self.common(RegisterMask::default().with(register)) != RegisterMask::default()
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        (0..64).map(Register).filter(move |register| self.has(*register))
    }
}

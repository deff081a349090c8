//! Code: the instructions that move values, branch or touch memory (Arm Architecture Reference Manual for A-profile,
//! section C4.1). For all others, only the overwritten general register is reported, from its field in the encoding. It
//! reports too many of these rather than too few.

use super::registers::{LINK, STACK_POINTER, X0};
use crate::arch::Register;
use crate::arch::instructions::{Effect, Effects, Flow, Instruction, Place, RegisterMask, Target, Width};
use crate::memory::Addr;

/// `bl` and `blr`.
pub(in crate::arch) const LENGTHS_OF_CALLS: [u64; 1] = [4];
/// `bti c; adrp x16; ldr x17; add x16; br x17`: how many instructions a stub of the linker has at most.
pub(in crate::arch) const INSTRUCTIONS_OF_STUB: usize = 5;

/// The direct calls and jumps.
pub(in crate::arch) fn direct_branches(code: &[u8], address: Addr) -> Vec<(Target, Addr)> {
    let branch = |instruction: Instruction| match instruction.flow {
        Flow::Call(target @ (Target::Code(_) | Target::Slot(_)))
        | Flow::Jump(target @ (Target::Code(_) | Target::Slot(_))) => Some((target, instruction.address)),
        _ => None,
    };
    A64Decoder::new(code, address).filter_map(branch).collect()
}

/// Reads AArch64 code in order of address.
pub struct A64Decoder<'c> {
    code: std::slice::Iter<'c, [u8; 4]>,
    /// The address of the next instruction.
    address: Addr,
    /// The last instruction, and its address.
    last: (Word, Addr),
    /// A register that has the address of a page, and that address.
    page: Option<(Register, u64)>,
    /// A register that was loaded from a fixed place, and from which.
    slot: Option<(Register, Addr)>,
}

/// One instruction.
#[derive(Debug, Clone, Copy)]
struct Word(u32);

impl Word {
    /// Whether the bits of `mask` are those of `value`.
    fn is(self, mask: u32, value: u32) -> bool {
        self.0 & mask == value
    }

    /// `count` bits from bit `low`.
    fn bits(self, low: u32, count: u32) -> u32 {
        (self.0 >> low) & ((1u32 << count) - 1)
    }

    /// The same with a sign, in units of `1 << shift`.
    fn signed(self, low: u32, count: u32, shift: u32) -> u64 {
        let value = i64::from(self.bits(low, count));
        let sign = 1i64 << (count - 1);
        (((value ^ sign) - sign) << shift) as u64
    }

    /// A register field where 31 is the one that is always zero.
    fn general(self, low: u32) -> Option<Register> {
        Some(self.bits(low, 5)).filter(|number| *number != 31).map(|number| Register(number as u16))
    }

    /// A register field where 31 is the stack pointer.
    fn pointer(self, low: u32) -> Register {
        self.general(low).unwrap_or(STACK_POINTER)
    }

    /// The target of a branch that has `count` bits for it.
    fn target(self, at: Addr, low: u32, count: u32) -> Addr {
        Addr(at.0.wrapping_add(self.signed(low, count, 2)))
    }
}

impl<'c> A64Decoder<'c> {
    /// `code` lies at `address`.
    pub(in crate::arch) fn new(code: &'c [u8], address: Addr) -> Self {
        let code = code.as_chunks::<4>().0.iter();
        A64Decoder { code, address, last: (Word(0), address), page: None, slot: None }
    }

    /// The effects of the last instruction.
    pub(in crate::arch) fn effects(&mut self) -> Effects {
        let (word, at) = self.last;
        effects(word, at)
    }

    /// Where an instruction leads, with what the ones before it say of its register.
    fn flow(&self, word: Word, at: Addr) -> Flow {
        let through = |register: Register| match self.slot {
            Some((loaded, slot)) if loaded == register => Target::Slot(slot),
            _ => Target::Register(register),
        };
        match word {
            _ if word.is(0xfc00_0000, 0x9400_0000) => Flow::Call(Target::Code(word.target(at, 0, 26))),
            _ if word.is(0xfc00_0000, 0x1400_0000) => Flow::Jump(Target::Code(word.target(at, 0, 26))),
            // b.cond and bc.cond; "always" is a condition here, too.
            _ if word.is(0xff00_0000, 0x5400_0000) => Flow::Branch(word.target(at, 5, 19)),
            // cbz, cbnz.
            _ if word.is(0x7e00_0000, 0x3400_0000) => Flow::Branch(word.target(at, 5, 19)),
            // tbz, tbnz.
            _ if word.is(0x7e00_0000, 0x3600_0000) => Flow::Branch(word.target(at, 5, 14)),
            // With a register, and the forms that authenticate it.
            _ if word.is(0xfe00_0000, 0xd600_0000) => match word.bits(21, 4) & 7 {
                0 => Flow::Jump(through(word.pointer(5))),
                1 => Flow::Call(through(word.pointer(5))),
                2 => Flow::Return,
                _ => Flow::Trap,
            },
            // brk, hlt, dcps; what is no instruction by definition.
            _ if word.is(0xff00_0000, 0xd400_0000) && !word.is(0xffe0_001f, 0xd400_0001) => Flow::Trap,
            _ if word.is(0xffff_0000, 0) => Flow::Trap,
            _ => Flow::Next,
        }
    }

    /// Remember what the next instructions may jump through.
    fn remember(&mut self, word: Word, at: Addr) {
        let mut page = self.page;
        let mut slot = self.slot;
        for effect in effects(word, at).iter() {
            let changed = |register: Register| effect.writes().has(register);
            let loaded = match effect {
                Effect::Load {
                    to,
                    from: Some(Place { base: Some(base), index: None, displacement, .. }),
                    width: Width::Whole,
                } => page
                    .filter(|(register, _)| *register == base)
                    .map(|(_, start)| (to, Addr(start.wrapping_add(displacement)))),
                _ => None,
            };
            slot = loaded.or(slot.filter(|(register, _)| !changed(*register)));
            page = page.filter(|(register, _)| !changed(*register));
            if let Effect::Address { to, of: Some(Place { base: None, index: None, displacement, .. }) } = effect {
                page = Some((to, displacement));
            }
        }
        (self.page, self.slot) = (page, slot);
    }
}

impl Iterator for A64Decoder<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        let word = Word(u32::from_le_bytes(*self.code.next()?));
        let address = self.address;
        self.address = address + 4;
        self.last = (word, address);
        let flow = self.flow(word, address);
        self.remember(word, address);
        if !matches!(flow, Flow::Next) {
            (self.page, self.slot) = (None, None);
        }
        Some(Instruction { address, next: self.address, flow })
    }
}

/// The other changes that an instruction may make.
fn writes(registers: impl IntoIterator<Item = Option<Register>>, place: Option<Place>) -> Effect {
    let writes = registers.into_iter().flatten().fold(RegisterMask::default(), RegisterMask::with);
    Effect::Other { writes, place }
}

const NOTHING: [Option<Register>; 0] = [];

fn at(base: Register, displacement: u64) -> Place {
    Place { base: Some(base), index: None, displacement, is_thread_local: false }
}

fn fixed(address: u64) -> Place {
    Place { base: None, index: None, displacement: address, is_thread_local: false }
}

fn effects(word: Word, address: Addr) -> Effects {
    // Bits 25 to 28 say which group it is of (C4.1, table C4-1).
    match word.bits(25, 4) {
        0b1000 | 0b1001 => Effects::one(of_immediate(word, address)),
        0b1010 | 0b1011 => Effects::one(of_system(word)),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => of_memory(word, address),
        0b0101 | 0b1101 => Effects::one(of_registers(word)),
        0b0111 | 0b1111 => Effects::one(of_vectors(word)),
        _ => Effects::one(writes([word.general(0)], None)),
    }
}

/// Data processing with a number.
fn of_immediate(word: Word, address: Addr) -> Effect {
    let is_whole = word.bits(31, 1) == 1;
    // adr, adrp.
    if word.is(0x1f00_0000, 0x1000_0000) {
        let Some(to) = word.general(0) else { return writes(NOTHING, None) };
        let distance = (word.signed(5, 19, 2)) | u64::from(word.bits(29, 2));
        let of = match word.bits(31, 1) {
            0 => address.0.wrapping_add(distance),
            _ => (address.0 & !0xfff).wrapping_add(distance << 12),
        };
        return Effect::Address { to, of: Some(fixed(of)) };
    }
    // add, sub; with flags these only compare where they write to no register.
    if word.is(0x1f80_0000, 0x1100_0000) {
        let sets_flags = word.bits(29, 1) == 1;
        let to = if sets_flags { word.general(0) } else { Some(word.pointer(0)) };
        let Some(to) = to else { return writes(NOTHING, None) };
        let amount = u64::from(word.bits(10, 12)) << (12 * word.bits(22, 1));
        let (from, subtracts) = (word.pointer(5), word.bits(30, 1) == 1);
        return match (is_whole, amount, subtracts) {
            (false, ..) => writes([Some(to)], None),
            (true, 0, _) => Effect::Copy { to, from, width: Width::Whole },
            (true, _, false) if to == from => Effect::Add { to, amount },
            (true, _, true) if to == from => Effect::Subtract { to, amount },
            (true, _, false) => Effect::Address { to, of: Some(at(from, amount)) },
            (true, _, true) => Effect::Address { to, of: Some(at(from, amount.wrapping_neg())) },
        };
    }
    // and, orr, eor with a mask may set the stack pointer; ands may not, and only compares where it writes to no register.
    if word.is(0x1f80_0000, 0x1200_0000) {
        let sets_flags = word.bits(29, 2) == 0b11;
        return writes([if sets_flags { word.general(0) } else { Some(word.pointer(0)) }], None);
    }
    // movn, movz; movk keeps the other bits.
    if word.is(0x1f80_0000, 0x1280_0000)
        && let Some(to) = word.general(0)
    {
        let value = u64::from(word.bits(5, 16)) << (16 * word.bits(21, 2));
        return match (word.bits(29, 2), is_whole) {
            (0b10, _) => Effect::Constant { to, value },
            (0b00, true) => Effect::Constant { to, value: !value },
            (0b00, false) => Effect::Constant { to, value: u64::from(!value as u32) },
            _ => writes([Some(to)], None),
        };
    }
    writes([word.general(0)], None)
}

/// Branches, exceptions, system registers.
fn of_system(word: Word) -> Effect {
    match word {
        // mrs, and sysl.
        _ if word.is(0xffe0_0000, 0xd520_0000) => writes([word.general(0)], None),
        // A system call has its result there.
        _ if word.is(0xffe0_001f, 0xd400_0001) => writes([Some(X0)], None),
        _ if word.is(0xfc00_0000, 0x9400_0000) || word.is(0xfe60_0000, 0xd620_0000) => writes([Some(LINK)], None),
        _ => writes(NOTHING, None),
    }
}

/// Data processing with registers.
fn of_registers(word: Word) -> Effect {
    let is_whole = word.bits(31, 1) == 1;
    // mov: or with the register that is zero, and no shift.
    if word.is(0x7fe0_ffe0, 0x2a00_03e0)
        && let Some(to) = word.general(0)
    {
        return match word.general(16) {
            Some(from) => Effect::Copy { to, from, width: if is_whole { Width::Whole } else { Width::Half } },
            None => Effect::Constant { to, value: 0 },
        };
    }
    // add, with a shift to the left.
    if word.is(0xffe0_0000, 0x8b00_0000)
        && let (Some(to), Some(base), Some(index)) = (word.general(0), word.general(5), word.general(16))
    {
        let of = Place { index: Some((index, 1 << word.bits(10, 6))), ..at(base, 0) };
        return Effect::Address { to, of: Some(of) };
    }
    // add and sub with an extended register may set the stack pointer.
    if word.is(0x3fe0_0000, 0x0b20_0000) {
        return writes([Some(word.pointer(0))], None);
    }
    // ccmp, ccmn.
    if word.is(0x1fe0_0000, 0x1a40_0000) {
        return writes(NOTHING, None);
    }
    writes([word.general(0)], None)
}

/// Vectors and floating point: few forms write to a general register.
fn of_vectors(word: Word) -> Effect {
    // Conversions and fmov, but for scvtf, ucvtf and fmov that go the other way; umov, smov.
    let is_conversion = word.is(0x5f20_fc00, 0x1e20_0000) || word.is(0x5f20_0000, 0x1e00_0000);
    let to_vector = matches!(word.bits(16, 3), 0b010 | 0b011 | 0b111);
    let is_general = is_conversion && !to_vector || word.is(0xbfe0_ec00, 0x0e00_2c00);
    if is_general { writes([word.general(0)], None) } else { writes(NOTHING, None) }
}

/// Loads and stores.
fn of_memory(word: Word, address: Addr) -> Effects {
    let is_vector = word.bits(26, 1) == 1;
    let base = word.pointer(5);
    // Loads and stores of two registers.
    if word.is(0x3a00_0000, 0x2800_0000) {
        return of_pair(word, is_vector, base);
    }
    // At a fixed place.
    if word.is(0x3b00_0000, 0x1800_0000) {
        let from = Some(fixed(word.target(address, 5, 19).0));
        return Effects::one(match (is_vector, word.bits(30, 2), word.general(0)) {
            (false, 0b01, Some(to)) => Effect::Load { to, from, width: Width::Whole },
            (false, 0b00 | 0b10, Some(to)) => Effect::Load { to, from, width: Width::Half },
            _ => writes(NOTHING, None),
        });
    }
    let size = word.bits(30, 2);
    // An offset behind the base, in units of the size.
    if word.is(0x3b00_0000, 0x3900_0000) {
        let place = at(base, u64::from(word.bits(10, 12)) << size);
        return Effects::one(of_one(word, is_vector, Some(place)));
    }
    if word.is(0x3b20_0000, 0x3800_0000) {
        let distance = word.signed(12, 9, 0);
        // The base is moved behind the access, or before it.
        return match word.bits(10, 2) {
            0b01 => Effects::two(of_one(word, is_vector, Some(at(base, 0))), moved(base, distance)),
            0b11 => Effects::two(moved(base, distance), of_one(word, is_vector, Some(at(base, 0)))),
            _ => Effects::one(of_one(word, is_vector, Some(at(base, distance)))),
        };
    }
    // Behind the base by a register.
    if word.is(0x3b20_0c00, 0x3820_0800) {
        let scale = if word.bits(12, 1) == 1 { 1 << size } else { 1 };
        let is_plain = word.bits(13, 3) == 0b011 && !is_vector;
        let index = word.general(16).map(|index| (index, scale));
        let place = is_plain.then_some(Place { index, ..at(base, 0) });
        return Effects::one(of_one(word, is_vector, place));
    }
    // With acquire and release: plain as far as values go.
    if word.is(0x3fa0_0000, 0x0880_0000) {
        let is_load = word.bits(22, 1) == 1;
        let width = Width::of_bytes(1 << size);
        return Effects::one(match (is_load, word.general(0)) {
            (true, Some(to)) => Effect::Load { to, from: Some(at(base, 0)), width },
            (true, None) => writes(NOTHING, None),
            (false, from) => Effect::Store { to: Some(at(base, 0)), from, width },
        });
    }
    // Exclusive, compare and swap: a status or an old value, and up to two registers that are loaded.
    if word.is(0x3f00_0000, 0x0800_0000) {
        return Effects::one(writes([word.general(0), word.general(10), word.general(16)], Some(at(base, 0))));
    }
    // Tags of memory: ldg and its like load them, all others store them and may move their base.
    if word.is(0xff20_0000, 0xd920_0000) {
        let loaded = (word.bits(10, 2) == 0b00).then(|| word.general(0)).flatten();
        return Effects::one(writes([loaded, (word.bits(10, 1) == 1).then_some(base)], None));
    }
    // Structures of vectors may move their base.
    if word.is(0x3e00_0000, 0x0c00_0000) {
        let base = (word.bits(23, 1) == 1).then_some(base);
        return Effects::one(writes([base], None));
    }
    // Atomic ones, and whatever else there is.
    let old = word.general(0).filter(|_| !is_vector);
    Effects::one(writes([old], Some(at(base, 0))))
}

/// A load or store of one register.
fn of_one(word: Word, is_vector: bool, place: Option<Place>) -> Effect {
    let size = word.bits(30, 2);
    match (is_vector, word.bits(22, 2)) {
        (false, 0b00) => Effect::Store { to: place, from: word.general(0), width: Width::of_bytes(1 << size) },
        (false, 0b01) => match word.general(0) {
            Some(to) => Effect::Load { to, from: place, width: Width::of_bytes(1 << size) },
            None => writes(NOTHING, None),
        },
        // prfm.
        (false, 0b10) if size == 3 => writes(NOTHING, None),
        (false, _) => writes([word.general(0)], None),
        (true, operation) => writes(NOTHING, place.filter(|_| operation & 1 == 0)),
    }
}

/// ldp, stp and their like.
fn of_pair(word: Word, is_vector: bool, base: Register) -> Effects {
    let (operation, is_load) = (word.bits(30, 2), word.bits(22, 1) == 1);
    let size = match (is_vector, operation) {
        (true, _) => 2 + operation,
        (false, 0b10) => 3,
        (false, _) => 2,
    };
    let distance = word.signed(15, 7, size);
    let (moves, displacement) = match word.bits(23, 2) {
        0b01 => (Some(false), 0),
        0b11 => (Some(true), 0),
        _ => (None, distance),
    };
    let (first, second) = (word.general(0), word.general(10));
    let width = if operation == 0b10 { Width::Whole } else { Width::Half };
    let one = |register: Option<Register>, number: u64| {
        let place = Some(at(base, displacement.wrapping_add(number << size)));
        match (is_vector, is_load, register) {
            (true, ..) => writes(NOTHING, place.filter(|_| !is_load)),
            (false, true, Some(to)) => Effect::Load { to, from: place, width },
            (false, true, None) => writes(NOTHING, None),
            (false, false, from) => Effect::Store { to: place, from, width },
        }
    };
    // A load that overwrites the base comes last.
    let both =
        if is_load && first == Some(base) { [one(second, 1), one(first, 0)] } else { [one(first, 0), one(second, 1)] };
    let [one, other] = both;
    match moves {
        None => Effects::two(one, other),
        Some(false) => Effects::three(one, other, moved(base, distance)),
        Some(true) => Effects::three(moved(base, distance), one, other),
    }
}

/// A base that an access moves.
fn moved(base: Register, distance: u64) -> Effect {
    match distance as i64 {
        0.. => Effect::Add { to: base, amount: distance },
        _ => Effect::Subtract { to: base, amount: distance.wrapping_neg() },
    }
}

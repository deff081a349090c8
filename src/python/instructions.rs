//! Instructions of CPython by their numbers: those that a loop around a wait is made of, what stores under a name,
//! all that jump or leave the function, and the caches behind all others.
//!
//! In: a version, the bytes of a code object as they stand in memory. Out: [`Instruction`]s. From 3.11 on the
//! interpreter puts specialised instructions in place of others while a program runs; each row lists them with the one
//! that they stand for.
//!
//! scripts/check/python-instructions.py makes the rows and compares them: `opcode` and `dis` of 3.8.18, 3.9.18,
//! 3.10.13, 3.11.7, 3.12.1, 3.13.0, 3.14.10 and 3.15.2.

use Operation::{
    BeginFinally, Binary, Branch, Call, CallFinally, Compare, Compiled, DeleteFast, Duplicate, End, EndFinally, EndFor,
    Extended, ForIter, Is, Iterate, Jump, JumpIf, JumpIfNoMatch, JumpIfOr, LoadAttribute, LoadCell, LoadConst,
    LoadFast, LoadGlobal, LoadMethod, LoadName, LoadTwoFast, Make, MatchException, Names, Not, Nothing, Other, Pop,
    PopBlock, PopExcept, PushCopy, PushException, Return, ReturnConstant, Rotate, SetupFinally, SmallNumber,
    StoreAndLoadFast, StoreFast, StoreName, StoreTwoFast, Subscript, Swap, ToBool, Unpack, Unused,
};
use Way::{Absolute, Backward, Forward};

/// The effect of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// None on the value stack.
    Nothing,
    /// Higher bits of the next instruction's argument.
    Extended,
    /// The next call has names of arguments (3.11, 3.12).
    Names,
    /// Push NULL or a common constant: nothing is decided by these.
    Unused,
    /// Push a number (3.14 on).
    SmallNumber,
    /// Push a local variable; two in one instruction (3.13).
    LoadFast,
    LoadTwoFast,
    /// Push a constant.
    LoadConst,
    /// Push a global by its name.
    LoadGlobal,
    /// Code outside of functions loads the value that its innermost scope has.
    LoadName,
    /// Pop into a global, or a variable of code outside of functions.
    StoreName,
    /// Push what a closure's cell has.
    LoadCell,
    /// Put an attribute in the place of its object, or a method and its object.
    LoadAttribute,
    LoadMethod,
    /// Pop into a local variable, into two, or push another then (3.13 on); make one unbound.
    StoreFast,
    StoreTwoFast,
    StoreAndLoadFast,
    DeleteFast,
    /// Drop the top; push it once more, or one further down; change it with that, or put it below a number of others.
    Pop,
    Duplicate,
    PushCopy,
    Swap,
    Rotate(u8),
    /// Truth of the top, turned round or not.
    Not,
    ToBool,
    /// Identity of the upper two.
    Is,
    /// Order of the upper two, by its argument; also identity, or whether an exception matches (3.8).
    Compare,
    /// Make a tuple or list from its elements, or take one apart.
    Make,
    Unpack,
    /// Put an element in the place of container and key; the same by its argument (3.14 on).
    Subscript,
    Binary,
    /// Put an iterator in the place of its container; push its next element, or jump; clear up behind it (3.12 on).
    Iterate,
    ForIter(Way),
    EndFor,
    /// Call: this many slots have the callee, this many the names of arguments.
    Call {
        callee: u8,
        names: u8,
    },
    Jump(Way),
    /// Go on, or jump, with another effect on the stack.
    Branch(Way),
    /// Leave the function with a value: the top, or a constant.
    Return,
    ReturnConstant,
    /// Leave it by an exception.
    End,
    /// Pop, and jump by what that was; or pop only where it does not jump.
    JumpIf(When, Way),
    JumpIfOr(When, Way),
    /// Begin and end of a protected range (up to 3.10).
    SetupFinally,
    PopBlock,
    /// Begin and end of a `finally`, and its call (3.8).
    BeginFinally,
    EndFinally,
    CallFinally,
    /// Begin and end of an exception's handler.
    PushException,
    PopExcept,
    /// Whether the exception is of the class on top: as a value, or as a jump (3.9, 3.10).
    MatchException,
    JumpIfNoMatch,
    /// Machine code stands in the place of the instruction: of none of the others is it known where it ends.
    Compiled,
    /// Anything else.
    Other,
}

/// From where a jump counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Backward,
    Absolute,
}

/// When a conditional jump is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    True,
    False,
    Nothing,
    Something,
}

/// An instruction of some code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Where it begins, prefixes included, in units of two bytes.
    pub(super) start: u64,
    /// Where the next one begins.
    pub(super) end: u64,
    pub(super) operation: Operation,
    pub(super) argument: u64,
}

impl Instruction {
    /// The index of the attribute's name that it loads, and whether it loads a method to call it.
    pub(super) fn attribute(&self, version: (u8, u8, u8)) -> Option<(u64, bool)> {
        match self.operation {
            LoadAttribute if version >= (3, 12, 0) => Some((self.argument >> 1, self.argument & 1 == 1)),
            LoadAttribute => Some((self.argument, false)),
            LoadMethod => Some((self.argument, true)),
            _ => None,
        }
    }

    /// Where a jump of this instruction leads.
    pub(super) fn target(&self, way: Way, version: (u8, u8, u8)) -> Option<u64> {
        let argument = in_units(version, self.argument);
        match way {
            Way::Forward => self.end.checked_add(argument),
            Way::Backward => self.end.checked_sub(argument),
            Way::Absolute => Some(argument),
        }
    }
}

/// A distance in units of two bytes: from 3.10 on code has it so, before in bytes.
pub(super) fn in_units(version: (u8, u8, u8), distance: u64) -> u64 {
    if version >= (3, 10, 0) { distance } else { distance / 2 }
}

/// The instructions of a code object, in their order; none if the version's are not known.
pub(super) fn decode(version: (u8, u8, u8), code: &[u8]) -> Vec<Instruction> {
    // With the first number of an instruction that a tool watches, whose cache is not known (`MIN_INSTRUMENTED_OPCODE`).
    let (rows, first_watched) = match version {
        (3, 8, _) => (V3_8, None),
        (3, 9, _) => (V3_9, None),
        (3, 10, _) => (V3_10, None),
        (3, 11, _) => (V3_11, None),
        (3, 12, _) => (V3_12, Some(236)),
        (3, 13, _) => (V3_13, Some(236)),
        (3, 14, _) => (V3_14, Some(234)),
        (3, 15, _) => (V3_15, Some(233)),
        _ => return Vec::new(),
    };
    let known = |number: u8| {
        let row = rows.iter().find(|(_, _, numbers)| numbers.contains(&number));
        row.map_or((Other, 0), |(operation, cache, _)| (*operation, u64::from(*cache)))
    };
    let mut units = (0_u64..).zip(code.as_chunks::<2>().0);
    let (mut list, mut prefix) = (Vec::new(), None);
    while let Some((unit, [number, low])) = units.next() {
        if first_watched.is_some_and(|first| *number >= first) {
            return Vec::new();
        }
        let (operation, cache) = known(*number);
        if operation == Compiled {
            return Vec::new();
        }
        let (start, high) = prefix.take().unwrap_or((unit, 0));
        let argument = high << 8 & 0xffff_ffff | u64::from(*low);
        if operation == Extended {
            prefix = Some((start, argument));
            continue;
        }
        for _ in 0..cache {
            units.next();
        }
        list.push(Instruction { start, end: unit + 1 + cache, operation, argument });
    }
    list
}

/// An effect, units of cache behind it, and the numbers of the instructions.
type Row = (Operation, u8, &'static [u8]);

const V3_8: &[Row] = &[
    (BeginFinally, 0, &[53]),
    (Branch(Forward), 0, &[143, 154]),
    (Call { callee: 1, names: 0 }, 0, &[131]),
    (Call { callee: 1, names: 1 }, 0, &[141]),
    (Call { callee: 2, names: 0 }, 0, &[161]),
    (CallFinally, 0, &[162]),
    (Compare, 0, &[107]),
    (DeleteFast, 0, &[126]),
    (Duplicate, 0, &[4]),
    (End, 0, &[130]),
    (EndFinally, 0, &[88]),
    (Extended, 0, &[144]),
    (ForIter(Forward), 0, &[93]),
    (Iterate, 0, &[68]),
    (Jump(Absolute), 0, &[113]),
    (Jump(Forward), 0, &[110]),
    (JumpIf(When::False, Absolute), 0, &[114]),
    (JumpIf(When::True, Absolute), 0, &[115]),
    (JumpIfOr(When::False, Absolute), 0, &[111]),
    (JumpIfOr(When::True, Absolute), 0, &[112]),
    (LoadAttribute, 0, &[106]),
    (LoadCell, 0, &[136]),
    (LoadConst, 0, &[100]),
    (LoadFast, 0, &[124]),
    (LoadGlobal, 0, &[116]),
    (LoadMethod, 0, &[160]),
    (LoadName, 0, &[101]),
    (Make, 0, &[102, 103]),
    (Not, 0, &[12]),
    (Nothing, 0, &[9]),
    (Pop, 0, &[1]),
    (PopBlock, 0, &[87]),
    (PopExcept, 0, &[89]),
    (Return, 0, &[83]),
    (Rotate(2), 0, &[2]),
    (Rotate(3), 0, &[3]),
    (Rotate(4), 0, &[6]),
    (SetupFinally, 0, &[122]),
    (StoreFast, 0, &[125]),
    (StoreName, 0, &[90, 97]),
    (Subscript, 0, &[25]),
    (Unpack, 0, &[92]),
];

const V3_9: &[Row] = &[
    (Branch(Forward), 0, &[143, 154]),
    (Call { callee: 1, names: 0 }, 0, &[131]),
    (Call { callee: 1, names: 1 }, 0, &[141]),
    (Call { callee: 2, names: 0 }, 0, &[161]),
    (Compare, 0, &[107]),
    (DeleteFast, 0, &[126]),
    (Duplicate, 0, &[4]),
    (End, 0, &[48, 130]),
    (Extended, 0, &[144]),
    (ForIter(Forward), 0, &[93]),
    (Is, 0, &[117]),
    (Iterate, 0, &[68]),
    (Jump(Absolute), 0, &[113]),
    (Jump(Forward), 0, &[110]),
    (JumpIf(When::False, Absolute), 0, &[114]),
    (JumpIf(When::True, Absolute), 0, &[115]),
    (JumpIfNoMatch, 0, &[121]),
    (JumpIfOr(When::False, Absolute), 0, &[111]),
    (JumpIfOr(When::True, Absolute), 0, &[112]),
    (LoadAttribute, 0, &[106]),
    (LoadCell, 0, &[136]),
    (LoadConst, 0, &[100]),
    (LoadFast, 0, &[124]),
    (LoadGlobal, 0, &[116]),
    (LoadMethod, 0, &[160]),
    (LoadName, 0, &[101]),
    (Make, 0, &[102, 103]),
    (Not, 0, &[12]),
    (Nothing, 0, &[9]),
    (Pop, 0, &[1]),
    (PopBlock, 0, &[87]),
    (PopExcept, 0, &[89]),
    (Return, 0, &[83]),
    (Rotate(2), 0, &[2]),
    (Rotate(3), 0, &[3]),
    (Rotate(4), 0, &[6]),
    (SetupFinally, 0, &[122]),
    (StoreFast, 0, &[125]),
    (StoreName, 0, &[90, 97]),
    (Subscript, 0, &[25]),
    (Unpack, 0, &[92]),
];

const V3_10: &[Row] = &[
    (Branch(Forward), 0, &[143, 154]),
    (Call { callee: 1, names: 0 }, 0, &[131]),
    (Call { callee: 1, names: 1 }, 0, &[141]),
    (Call { callee: 2, names: 0 }, 0, &[161]),
    (Compare, 0, &[107]),
    (DeleteFast, 0, &[126]),
    (Duplicate, 0, &[4]),
    (End, 0, &[119, 130]),
    (Extended, 0, &[144]),
    (ForIter(Forward), 0, &[93]),
    (Is, 0, &[117]),
    (Iterate, 0, &[68]),
    (Jump(Absolute), 0, &[113]),
    (Jump(Forward), 0, &[110]),
    (JumpIf(When::False, Absolute), 0, &[114]),
    (JumpIf(When::True, Absolute), 0, &[115]),
    (JumpIfNoMatch, 0, &[121]),
    (JumpIfOr(When::False, Absolute), 0, &[111]),
    (JumpIfOr(When::True, Absolute), 0, &[112]),
    (LoadAttribute, 0, &[106]),
    (LoadCell, 0, &[136]),
    (LoadConst, 0, &[100]),
    (LoadFast, 0, &[124]),
    (LoadGlobal, 0, &[116]),
    (LoadMethod, 0, &[160]),
    (LoadName, 0, &[101]),
    (Make, 0, &[102, 103]),
    (Not, 0, &[12]),
    (Nothing, 0, &[9]),
    (Pop, 0, &[1]),
    (PopBlock, 0, &[87]),
    (PopExcept, 0, &[89]),
    (Return, 0, &[83]),
    (Rotate(2), 0, &[2]),
    (Rotate(3), 0, &[3]),
    (Rotate(4), 0, &[6]),
    (SetupFinally, 0, &[122]),
    (StoreFast, 0, &[125]),
    (StoreName, 0, &[90, 97]),
    (Subscript, 0, &[25]),
    (Unpack, 0, &[92]),
];

const V3_11: &[Row] = &[
    (Binary, 1, &[3, 4, 5, 6, 7, 8, 13, 14, 16, 122]),
    (Branch(Forward), 0, &[123]),
    (Call { callee: 2, names: 0 }, 4, &[22, 23, 24, 171]),
    (Compare, 2, &[26, 27, 28, 29, 107]),
    (DeleteFast, 0, &[126]),
    (End, 0, &[119, 130]),
    (Extended, 0, &[34, 144]),
    (ForIter(Forward), 0, &[93]),
    (Is, 0, &[117]),
    (Iterate, 0, &[68]),
    (Jump(Backward), 0, &[38, 134, 140]),
    (Jump(Forward), 0, &[110]),
    (JumpIf(When::False, Backward), 0, &[175]),
    (JumpIf(When::False, Forward), 0, &[114]),
    (JumpIf(When::Nothing, Backward), 0, &[174]),
    (JumpIf(When::Nothing, Forward), 0, &[129]),
    (JumpIf(When::Something, Backward), 0, &[173]),
    (JumpIf(When::Something, Forward), 0, &[128]),
    (JumpIf(When::True, Backward), 0, &[176]),
    (JumpIf(When::True, Forward), 0, &[115]),
    (JumpIfOr(When::False, Forward), 0, &[111]),
    (JumpIfOr(When::True, Forward), 0, &[112]),
    (LoadAttribute, 4, &[39, 40, 41, 42, 43, 106]),
    (LoadCell, 0, &[137]),
    (LoadConst, 0, &[44, 100]),
    (LoadFast, 0, &[45, 46, 124]),
    (LoadGlobal, 5, &[47, 48, 55, 116]),
    (LoadMethod, 10, &[56, 57, 58, 59, 62, 63, 160]),
    (LoadName, 0, &[101]),
    (Make, 0, &[102, 103]),
    (MatchException, 0, &[36]),
    (Names, 0, &[172]),
    (Not, 0, &[12]),
    (Nothing, 0, &[9, 150, 151]),
    (Nothing, 1, &[64, 65, 66, 67, 72, 73, 76, 77, 78, 79, 80, 81, 113, 121, 127, 141, 143, 166]),
    (Other, 1, &[60, 168, 169, 170]),
    (Other, 4, &[95, 153, 154, 158, 159]),
    (Pop, 0, &[1]),
    (PopExcept, 0, &[89]),
    (PushCopy, 0, &[120]),
    (PushException, 0, &[35]),
    (Return, 0, &[83]),
    (StoreFast, 0, &[125, 161, 167]),
    (StoreName, 0, &[90, 97]),
    (Subscript, 4, &[17, 18, 19, 20, 21, 25]),
    (Swap, 0, &[99]),
    (Unpack, 1, &[92, 177, 178, 179, 180]),
    (Unused, 0, &[2]),
];

const V3_12: &[Row] = &[
    (Binary, 1, &[6, 7, 8, 10, 13, 14, 16, 18, 122]),
    (Branch(Forward), 1, &[123, 168]),
    (Call { callee: 2, names: 0 }, 3, &[23, 24, 28, 29, 34, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 56, 171]),
    (Compare, 1, &[57, 58, 59, 107]),
    (DeleteFast, 0, &[126]),
    (End, 0, &[119, 130]),
    (EndFor, 0, &[4]),
    (Extended, 0, &[144]),
    (ForIter(Forward), 1, &[62, 63, 64, 65, 93]),
    (Is, 0, &[117]),
    (Iterate, 0, &[68]),
    (Jump(Backward), 0, &[134, 140]),
    (Jump(Forward), 0, &[110]),
    (JumpIf(When::False, Forward), 0, &[114]),
    (JumpIf(When::Nothing, Forward), 0, &[129]),
    (JumpIf(When::Something, Forward), 0, &[128]),
    (JumpIf(When::True, Forward), 0, &[115]),
    (LoadAttribute, 9, &[70, 72, 73, 76, 77, 78, 79, 80, 81, 82, 106]),
    (LoadCell, 0, &[137]),
    (LoadConst, 0, &[84, 100]),
    (LoadFast, 0, &[86, 88, 124, 127]),
    (LoadGlobal, 4, &[111, 112, 116]),
    (LoadName, 0, &[101]),
    (Make, 0, &[102, 103]),
    (MatchException, 0, &[36]),
    (Names, 0, &[172]),
    (Not, 0, &[12]),
    (Nothing, 0, &[9, 151]),
    (Other, 1, &[60, 66, 67, 141, 159, 160]),
    (Other, 4, &[95, 113, 148, 153]),
    (Pop, 0, &[1]),
    (PopExcept, 0, &[89]),
    (PushCopy, 0, &[120]),
    (PushException, 0, &[35]),
    (Return, 0, &[83]),
    (ReturnConstant, 0, &[121]),
    (StoreFast, 0, &[125, 154, 158]),
    (StoreName, 0, &[90, 97]),
    (Subscript, 1, &[19, 20, 21, 22, 25]),
    (Swap, 0, &[99]),
    (Unpack, 1, &[92, 161, 166, 167]),
    (Unused, 0, &[2]),
];

const V3_13: &[Row] = &[
    (Binary, 1, &[3, 45, 150, 151, 152, 153, 154, 155, 156]),
    (Branch(Forward), 1, &[104, 208]),
    (
        Call { callee: 2, names: 0 },
        3,
        &[53, 162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181],
    ),
    (Call { callee: 2, names: 1 }, 0, &[57]),
    (Compare, 1, &[58, 182, 183, 184]),
    (Compiled, 0, &[70]),
    (DeleteFast, 0, &[65]),
    (End, 0, &[101, 102]),
    (EndFor, 0, &[11]),
    (Extended, 0, &[71]),
    (ForIter(Forward), 1, &[72, 187, 188, 189, 190]),
    (Is, 0, &[76]),
    (Iterate, 0, &[19]),
    (Jump(Backward), 0, &[78]),
    (Jump(Backward), 1, &[77]),
    (Jump(Forward), 0, &[79]),
    (JumpIf(When::False, Forward), 1, &[97]),
    (JumpIf(When::Nothing, Forward), 1, &[98]),
    (JumpIf(When::Something, Forward), 1, &[99]),
    (JumpIf(When::True, Forward), 1, &[100]),
    (LoadAttribute, 9, &[82, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202]),
    (LoadCell, 0, &[84]),
    (LoadConst, 0, &[83]),
    (LoadFast, 0, &[85, 87]),
    (LoadGlobal, 4, &[91, 203, 204]),
    (LoadName, 0, &[92]),
    (LoadTwoFast, 0, &[88]),
    (Make, 0, &[47, 52]),
    (MatchException, 0, &[7]),
    (Not, 0, &[43]),
    (Nothing, 0, &[30, 149, 207]),
    (Other, 1, &[39, 59, 93, 185, 186, 205, 206, 212, 213]),
    (Other, 4, &[108, 209, 210, 211]),
    (Pop, 0, &[32]),
    (PopExcept, 0, &[31]),
    (PushCopy, 0, &[61]),
    (PushException, 0, &[33]),
    (Return, 0, &[36]),
    (ReturnConstant, 0, &[103]),
    (StoreAndLoadFast, 0, &[111]),
    (StoreFast, 0, &[110]),
    (StoreName, 0, &[113, 114]),
    (StoreTwoFast, 0, &[112]),
    (Subscript, 1, &[5, 157, 158, 159, 160, 161]),
    (Swap, 0, &[115]),
    (ToBool, 3, &[40, 214, 215, 216, 217, 218, 219]),
    (Unpack, 1, &[117, 220, 221, 222]),
    (Unused, 0, &[34]),
];

const V3_14: &[Row] = &[
    (Binary, 5, &[3, 44, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142]),
    (Branch(Backward), 0, &[68]),
    (Branch(Forward), 0, &[237, 248]),
    (Branch(Forward), 1, &[106, 197]),
    (
        Call { callee: 2, names: 0 },
        3,
        &[52, 143, 144, 145, 146, 147, 148, 149, 150, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165],
    ),
    (Call { callee: 2, names: 1 }, 3, &[55, 151, 152, 153]),
    (Compare, 1, &[56, 166, 167, 168]),
    (Compiled, 0, &[255]),
    (DeleteFast, 0, &[63]),
    (End, 0, &[104, 105]),
    (EndFor, 0, &[9]),
    (Extended, 0, &[69]),
    (ForIter(Forward), 1, &[70, 171, 172, 173, 174]),
    (Is, 0, &[74]),
    (Iterate, 0, &[16]),
    (Jump(Backward), 0, &[76]),
    (Jump(Backward), 1, &[75, 175, 176]),
    (Jump(Forward), 0, &[77]),
    (JumpIf(When::False, Forward), 1, &[100]),
    (JumpIf(When::Nothing, Forward), 1, &[101]),
    (JumpIf(When::Something, Forward), 1, &[102]),
    (JumpIf(When::True, Forward), 1, &[103]),
    (LoadAttribute, 9, &[80, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189]),
    (LoadCell, 0, &[83]),
    (LoadConst, 0, &[82, 190, 191]),
    (LoadFast, 0, &[84, 86, 88]),
    (LoadGlobal, 4, &[92, 192, 193]),
    (LoadName, 0, &[93]),
    (LoadTwoFast, 0, &[87, 89]),
    (Make, 0, &[46, 51]),
    (MatchException, 0, &[6]),
    (Not, 0, &[42]),
    (Nothing, 0, &[27, 28, 128, 196]),
    (Other, 1, &[38, 57, 96, 169, 170, 194, 195, 201, 202]),
    (Other, 4, &[110, 198, 199, 200]),
    (Pop, 0, &[30, 31]),
    (PopExcept, 0, &[29]),
    (PushCopy, 0, &[59]),
    (PushException, 0, &[32]),
    (Return, 0, &[35]),
    (SmallNumber, 0, &[94]),
    (StoreAndLoadFast, 0, &[113]),
    (StoreFast, 0, &[112]),
    (StoreName, 0, &[115, 116]),
    (StoreTwoFast, 0, &[114]),
    (Swap, 0, &[117]),
    (ToBool, 3, &[39, 203, 204, 205, 206, 207, 208]),
    (Unpack, 1, &[119, 209, 210, 211]),
    (Unused, 0, &[33, 81]),
];

const V3_15: &[Row] = &[
    (Binary, 5, &[3, 42, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143]),
    (Branch(Backward), 0, &[66]),
    (Branch(Forward), 0, &[236, 247]),
    (Branch(Forward), 1, &[105, 202, 203, 204]),
    (
        Call { callee: 2, names: 0 },
        3,
        &[50, 144, 145, 146, 147, 148, 149, 150, 153, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168],
    ),
    (Call { callee: 2, names: 1 }, 3, &[53, 154, 155, 156]),
    (Compare, 1, &[54, 169, 170, 171]),
    (Compiled, 0, &[254]),
    (DeleteFast, 0, &[61]),
    (End, 0, &[103, 104]),
    (EndFor, 0, &[9]),
    (Extended, 0, &[67]),
    (ForIter(Forward), 1, &[68, 174, 175, 176, 177, 178]),
    (Is, 0, &[73]),
    (Iterate, 1, &[70, 179, 180]),
    (Jump(Backward), 0, &[75]),
    (Jump(Backward), 1, &[74, 181, 182]),
    (Jump(Forward), 0, &[76]),
    (JumpIf(When::False, Forward), 1, &[99]),
    (JumpIf(When::Nothing, Forward), 1, &[100]),
    (JumpIf(When::Something, Forward), 1, &[101]),
    (JumpIf(When::True, Forward), 1, &[102]),
    (LoadAttribute, 9, &[79, 183, 184, 185, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195]),
    (LoadCell, 0, &[82]),
    (LoadConst, 0, &[81]),
    (LoadFast, 0, &[83, 85, 87]),
    (LoadGlobal, 4, &[91, 196, 197]),
    (LoadName, 0, &[92]),
    (LoadTwoFast, 0, &[86, 88]),
    (Make, 0, &[44, 49]),
    (MatchException, 0, &[6]),
    (Not, 0, &[40]),
    (Nothing, 0, &[25, 26]),
    (Nothing, 1, &[128, 200, 201]),
    (Other, 1, &[4, 36, 55, 95, 151, 152, 172, 173, 198, 199, 208, 209]),
    (Other, 4, &[109, 205, 206, 207]),
    (Pop, 0, &[28, 29]),
    (PopExcept, 0, &[27]),
    (PushCopy, 0, &[57]),
    (PushException, 0, &[30]),
    (Return, 0, &[33]),
    (SmallNumber, 0, &[93]),
    (StoreAndLoadFast, 0, &[112]),
    (StoreFast, 0, &[111]),
    (StoreName, 0, &[114, 115]),
    (StoreTwoFast, 0, &[113]),
    (Swap, 0, &[116]),
    (ToBool, 3, &[37, 210, 211, 212, 213, 214, 215]),
    (Unpack, 1, &[118, 216, 217, 218]),
    (Unused, 0, &[31, 80]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_caches_belong_to_their_instruction() {
        // 3.11: EXTENDED_ARG 1, LOAD_CONST 2, a specialised LOAD_GLOBAL with its cache, POP_TOP.
        let code = [144, 1, 100, 2, 47, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 0];
        let [constant, global, pop] = decode((3, 11, 7), &code)[..] else { panic!("three instructions") };
        assert_eq!(constant, Instruction { start: 0, end: 2, operation: LoadConst, argument: 258 });
        assert_eq!(global, Instruction { start: 2, end: 8, operation: LoadGlobal, argument: 3 });
        assert_eq!(pop, Instruction { start: 8, end: 9, operation: Pop, argument: 0 });
        // Code that a tool watches, and code of a version without a table.
        assert_eq!(decode((3, 12, 1), &[244, 0]), []);
        assert_eq!(decode((3, 99, 0), &code), []);
    }
}

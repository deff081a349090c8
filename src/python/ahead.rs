//! The code that a frame can still come to, from the instruction where it stands.
//!
//! In: a frame. Out: the names and constants of the instructions that can follow: by going on, by jumps, and by the handlers of
//! exceptions. An instruction whose meaning is not known may use every name that its argument could stand for. No condition is
//! evaluated: code behind one that is never true counts, too.

use std::collections::{HashMap, HashSet};

use super::instructions::{Instruction, Operation, Way, decode, in_units};
use super::values::Frame;
use crate::image::Addr;

/// The names and constants that a frame's code can still use.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) names: HashSet<String>,
    /// Names of globals that it puts something else in the place of.
    pub(crate) stored: HashSet<String>,
    pub(crate) constants: Vec<Addr>,
}

/// The code ahead of a frame that stands at this instruction; `None` where the instructions of this version are not known.
pub(crate) fn of_frame(frame: &Frame<'_, '_>, unit: u64, constants: &[Addr], version: (u8, u8, u8)) -> Option<Ahead> {
    let instructions = decode(version, &frame.instructions()?);
    let entered: Vec<u64> = frame.handlers().into_iter().flatten().map(|at| in_units(version, at)).collect();
    let ahead = from(&instructions, unit, version, |unit| frame.handler_of(unit), &entered)?;
    let (mut used, mut stored) = (HashSet::new(), HashSet::new());
    let mut loaded = HashSet::new();
    for one in ahead {
        let indices = |shifts: &'static [u32]| shifts.iter().map(move |shift| one.argument >> shift);
        match one.operation {
            Operation::LoadGlobal if version >= (3, 11, 0) => used.extend(indices(&[1])),
            Operation::LoadGlobal | Operation::LoadName => used.extend(indices(&[0])),
            Operation::LoadAttribute | Operation::LoadMethod => {
                used.extend(one.attribute(version).map(|(index, _)| index));
            }
            Operation::StoreName => stored.extend(indices(&[0])),
            Operation::LoadConst => drop(loaded.insert(one.argument)),
            // Instructions that load attributes of `super()`, and imports, have further bits below the index.
            Operation::Other => used.extend(indices(&[0, 1, 2])),
            _ => {}
        }
    }
    let texts = frame.name_objects();
    let at = |list: &[Addr], index: u64| list.get(usize::try_from(index).ok()?).copied();
    let named =
        |indices: HashSet<u64>| indices.into_iter().filter_map(|index| frame.text(at(&texts, index)?)).collect();
    Some(Ahead {
        names: named(used),
        stored: named(stored),
        constants: loaded.into_iter().filter_map(|index| at(constants, index)).collect(),
    })
}

/// The instructions that can follow this one, and it itself; `None` where it is not known where one of them leads.
fn from(
    instructions: &[Instruction],
    unit: u64,
    version: (u8, u8, u8),
    handlers: impl Fn(u64) -> Option<u64>,
    entered: &[u64],
) -> Option<Vec<Instruction>> {
    let at: HashMap<u64, usize> = instructions.iter().enumerate().map(|(index, one)| (one.start, index)).collect();
    let mut todo = vec![instructions.iter().position(|one| one.end > unit)?];
    for handler in entered {
        todo.push(*at.get(handler)?);
    }
    let mut seen = HashSet::new();
    while let Some(index) = todo.pop() {
        let Some(one) = instructions.get(index).filter(|_| seen.insert(index)) else { continue };
        let (goes_on, jumps) = match one.operation {
            Operation::Jump(way) => (false, Some(one.target(way, version)?)),
            Operation::JumpIf(_, way)
            | Operation::JumpIfOr(_, way)
            | Operation::ForIter(way)
            | Operation::Branch(way) => (true, Some(one.target(way, version)?)),
            Operation::SetupFinally | Operation::CallFinally => (true, Some(one.target(Way::Forward, version)?)),
            Operation::JumpIfNoMatch => (true, Some(one.target(Way::Absolute, version)?)),
            Operation::Return | Operation::ReturnConstant | Operation::End => (false, None),
            _ => (true, None),
        };
        todo.extend(goes_on.then_some(index + 1));
        for leads in jumps.into_iter().chain(handlers(one.start)) {
            todo.push(*at.get(&leads)?);
        }
    }
    Some(seen.into_iter().filter_map(|index| instructions.get(index)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(code: &[u8], unit: u64) -> Option<Vec<u64>> {
        let version = (3, 11, 7);
        let instructions = decode(version, code);
        // An exception of the last but two leads to the last.
        let handler = |unit| (unit == 4).then_some(6);
        let mut starts: Vec<u64> =
            from(&instructions, unit, version, handler, &[])?.iter().map(|one| one.start).collect();
        starts.sort_unstable();
        Some(starts)
    }

    #[test]
    fn a_jump_back_brings_the_body_of_its_loop_and_a_call_its_handler() {
        // LOAD_CONST, LOAD_CONST, LOAD_CONST, JUMP_BACKWARD to the second, LOAD_CONST, RETURN_VALUE, RETURN_VALUE.
        let code = [100, 0, 100, 1, 100, 2, 140, 3, 100, 0, 83, 0, 83, 0];
        assert_eq!(ahead(&code, 2), Some(vec![1, 2, 3]));
        assert_eq!(ahead(&code, 0), Some(vec![0, 1, 2, 3]));
        assert_eq!(ahead(&code, 4), Some(vec![4, 5, 6]));
        assert_eq!(ahead(&code, 5), Some(vec![5]));
        assert_eq!(ahead(&code, 7), None);
        // A jump that leads nowhere.
        assert_eq!(ahead(&[100, 0, 140, 9], 0), None);
    }
}

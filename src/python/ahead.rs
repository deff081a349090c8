//! What the code of a frame can still come to, from the instruction where it stands.
//!
//! In: a frame. Out: the names and constants of the instructions that can follow: by going on, by jumps,
//! and by the handlers of exceptions. An instruction whose meaning is not known may use every name that its argument could stand for.
//! What it does not do: it evaluates no condition, so code behind one that is never true counts, too.

use std::collections::{HashMap, HashSet};

use super::instructions::{Instruction, Operation, Way, decode, in_units};
use super::values::Frame;
use crate::image::Addr;

/// The names and constants that a frame's code can still use.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) names: HashSet<String>,
    pub(crate) constants: Vec<Addr>,
    /// Where the frame stands, in units of two bytes.
    pub(crate) unit: u64,
}

/// What is ahead of a frame; `None` where its position, or the instructions of this version, are not known.
pub(crate) fn of_frame(frame: &Frame<'_, '_>, constants: &[Addr], version: (u8, u8, u8)) -> Option<Ahead> {
    let unit = frame.unit_of_call()?;
    let instructions = decode(version, &frame.instructions()?);
    let entered: Vec<u64> = frame.handlers().into_iter().flatten().map(|at| in_units(version, at)).collect();
    let ahead = from(&instructions, unit, version, |unit| frame.handler_of(unit), &entered)?;
    let texts = frame.name_objects();
    let mut names = HashSet::new();
    let mut own = HashSet::new();
    for one in ahead {
        let indices = |shifts: &[u32]| shifts.iter().map(|shift| one.argument >> shift).collect::<Vec<u64>>();
        let used = match one.operation {
            Operation::LoadGlobal if version >= (3, 11, 0) => indices(&[1]),
            Operation::LoadGlobal | Operation::LoadName => indices(&[0]),
            Operation::LoadAttribute | Operation::LoadMethod => {
                one.attribute(version).map(|(index, _)| index).into_iter().collect()
            }
            Operation::LoadConst => {
                own.extend(usize::try_from(one.argument).ok().and_then(|index| constants.get(index)).copied());
                Vec::new()
            }
            // Instructions that load attributes of `super()`, and imports, have further bits below the index.
            Operation::Other => indices(&[0, 1, 2]),
            _ => Vec::new(),
        };
        let known = used.into_iter().filter_map(|index| texts.get(usize::try_from(index).ok()?));
        names.extend(known.filter_map(|name| frame.text(*name)));
    }
    Some(Ahead { names, constants: own.into_iter().collect(), unit })
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
            Operation::JumpIf(_, way) | Operation::Branch(way) => (true, Some(one.target(way, version)?)),
            Operation::SetupFinally => (true, Some(one.target(Way::Forward, version)?)),
            Operation::JumpIfNoMatch => (true, Some(one.target(Way::Absolute, version)?)),
            Operation::End => (false, None),
            _ => (true, None),
        };
        todo.extend(goes_on.then_some(index + 1));
        for leads in jumps.into_iter().chain(handlers(one.start)) {
            todo.push(*at.get(&leads)?);
        }
    }
    let mut ahead: Vec<Instruction> = seen.into_iter().filter_map(|index| instructions.get(index)).copied().collect();
    ahead.sort_by_key(|one| one.start);
    Some(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(code: &[u8], unit: u64) -> Option<Vec<u64>> {
        let version = (3, 11, 7);
        let instructions = decode(version, code);
        // An exception of the last but two leads to the last.
        let handler = |unit| (unit == 4).then_some(6);
        from(&instructions, unit, version, handler, &[]).map(|ahead| ahead.iter().map(|one| one.start).collect())
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

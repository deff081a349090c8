//! Which functions of a module lead to certain calls: the question that reading forward would answer function by function.
//!
//! In: the code of a module, and a test for names of functions. Out: the functions from which a chain of direct calls inside
//! of the module leads to such a call, with the length of the shortest chain. Bytes that only look like a call count as one, so a function
//! may be named that calls nothing of it; one that is not named calls nothing of it. Calls through registers are not seen.

use std::collections::{BTreeSet, HashMap};

use super::Code;
use crate::arch::instructions::Target;
use crate::image::{Addr, Mapping, MemoryExt};
use crate::limits::code::{LARGEST_TEXT, MOST_CALLERS};

/// Bytes that a short jump leads over at most.
const NEAR: u64 = 130;

/// The direct calls and jumps of a module, in order of where they lead: the target, and the address of the instruction.
#[derive(Debug)]
pub(crate) struct Branches {
    list: Vec<(Target, Addr)>,
}

impl Code<'_> {
    /// The direct calls and jumps of a module; `None` where its code is too large, or is not at hand as a whole.
    pub(crate) fn branches(&self, module: usize) -> Option<Branches> {
        let modules = self.symbols.modules();
        let is_of_it = |mapping: &&Mapping| mapping.execute && modules.at(mapping.start) == Some(module);
        let texts: Vec<&Mapping> = self.image.mappings.iter().filter(is_of_it).collect();
        let size = texts.iter().fold(0_u64, |sum, text| sum.saturating_add(text.end.0.saturating_sub(text.start.0)));
        if size > LARGEST_TEXT {
            return None;
        }
        let mut list = Vec::new();
        for text in &texts {
            let code = self.image.memory.bytes(text.start, usize::try_from(text.end - text.start).ok()?).ok()?;
            let is_call = |(target, at): &(Target, Addr)| match target {
                // A short jump stays within its function, or is no instruction, unless a function or its stub begins there.
                Target::Code(to) if to.0.abs_diff(at.0) <= NEAR => {
                    self.symbols.begins_function(*to) || self.behind_stub(*to).is_some()
                }
                Target::Code(to) | Target::Slot(to) => modules.at(*to) == Some(module),
                Target::Register(_) | Target::Unknown => false,
            };
            list.extend(self.image.architecture.direct_branches(&code, text.start).into_iter().filter(is_call));
        }
        list.sort_unstable();
        Some(Branches { list })
    }

    /// For each function that leads to a call of a function with such a name, over how many calls: 0 where it makes one itself.
    /// At most `depth` calls are followed. `None` where there are too many.
    pub(crate) fn leading_to(
        &self,
        branches: &Branches,
        is_wanted: impl Fn(&str) -> bool,
        depth: usize,
    ) -> Option<HashMap<Addr, usize>> {
        let leads_there = |target: &Target| self.called(*target).1.is_some_and(|name| is_wanted(&name));
        let groups = branches.list.chunk_by(|one, next| one.0 == next.0);
        let direct = groups.filter(|group| group.first().is_some_and(|(target, _)| leads_there(target)));
        let mut found: HashMap<Addr, usize> = HashMap::new();
        let mut next: BTreeSet<Addr> =
            direct.flatten().filter_map(|(_, at)| self.symbols.function_start(*at)).collect();
        for calls in 0..=depth {
            next.retain(|function| !found.contains_key(function));
            found.extend(next.iter().map(|function| (*function, calls)));
            if found.len() > MOST_CALLERS {
                return None;
            }
            next = next
                .iter()
                .flat_map(|function| branches.to(*function))
                .filter_map(|at| self.symbols.function_start(at))
                .collect();
        }
        Some(found)
    }
}

impl Branches {
    /// Where the function at `function` is called.
    fn to(&self, function: Addr) -> impl Iterator<Item = Addr> {
        let target = Target::Code(function);
        let first = self.list.partition_point(|(to, _)| *to < target);
        self.list.iter().skip(first).take_while(move |(to, _)| *to == target).map(|(_, at)| *at)
    }
}

//! Paths through one function: whether the code at one place can come to another, and past which calls.
//!
//! In: addresses of one function. Out: yes, no, or unknown where a path ends in a jump through a table. Both sides of each
//! branch are followed; calls of functions that never return end a path. It reads no values and knows no lock.

use std::collections::HashSet;

use super::Code;
use crate::arch::instructions::{Flow, Target};
use crate::image::Addr;
use crate::limits::code::STEPS_OF_PATHS;
use crate::symbols::base_symbol;

/// Bytes that hold any one instruction.
const ONE_INSTRUCTION: usize = 16;

/// Where a path is to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Goal {
    /// To the instruction that covers this address.
    Place(Addr),
    /// To a return of the function, or to a call in place of one.
    Return,
}

impl Code<'_> {
    /// Whether the code at `from` can come to `to` within the function that covers both.
    pub(crate) fn reaches(&self, from: Addr, to: Addr) -> bool {
        self.path(from, Goal::Place(to), &[]) == Some(true)
    }

    /// Whether no path leads from the code at `from` to `to`, as between two branches of an `if`.
    pub(crate) fn is_elsewhere(&self, from: Addr, to: Addr) -> bool {
        self.path(from, Goal::Place(to), &[]) == Some(false)
    }

    /// Whether a path leads from `from` to the goal without an instruction at one of `avoiding`; `from` itself may be
    /// one of these. `None` where it is unknown.
    pub(crate) fn path(&self, from: Addr, goal: Goal, avoiding: &[Addr]) -> Option<bool> {
        let start = self.symbols.function_start(from)?;
        if let Goal::Place(to) = goal
            && self.symbols.function_start(to) != Some(start)
        {
            return None;
        }
        let mut code = vec![0; self.length(start, 0) + ONE_INSTRUCTION];
        let read = self.image.memory.read(start, &mut code).ok()?;
        code.truncate(read);
        let mut seen = HashSet::new();
        let mut ahead = vec![from];
        let mut is_known = true;
        while let Some(mut at) = ahead.pop() {
            while at == from || !avoiding.contains(&at) {
                if seen.len() >= STEPS_OF_PATHS {
                    return None;
                }
                if !seen.insert(at) {
                    break;
                }
                let Some((flow, next)) = self.instruction(&code, start, at) else {
                    is_known = false;
                    break;
                };
                if matches!(goal, Goal::Place(to) if at <= to && to < next) {
                    return Some(true);
                }
                match flow {
                    Flow::Next => at = next,
                    Flow::Call(target) if self.returns(target) => at = next,
                    Flow::Branch(branch) => {
                        ahead.push(branch);
                        at = next;
                    }
                    Flow::Jump(jump) if self.is_last_call(jump, start) => {
                        if goal == Goal::Return && self.returns(jump) {
                            return Some(true);
                        }
                        break;
                    }
                    Flow::Jump(Target::Code(branch)) => at = branch,
                    Flow::Return if goal == Goal::Return => return Some(true),
                    Flow::Call(_) | Flow::Return | Flow::Trap => break,
                    Flow::Jump(_) => {
                        is_known = false;
                        break;
                    }
                }
            }
        }
        is_known.then_some(false)
    }

    /// The target of the instruction at `at`, and the address behind it. Compilers move rare parts of a function
    /// elsewhere, so not all of it lies in `code`, which begins at `start`.
    fn instruction(&self, code: &[u8], start: Addr, at: Addr) -> Option<(Flow, Addr)> {
        let architecture = self.image.architecture;
        let offset = at.0.checked_sub(start.0).and_then(|offset| usize::try_from(offset).ok());
        let here = offset.and_then(|offset| code.get(offset..)).filter(|code| code.len() >= ONE_INSTRUCTION);
        let found = match here {
            Some(code) => architecture.decoder(code, at).next(),
            None => {
                let mut elsewhere = [0; ONE_INSTRUCTION];
                let read = self.image.memory.read(at, &mut elsewhere).ok()?;
                architecture.decoder(elsewhere.get(..read)?, at).next()
            }
        };
        found.map(|instruction| (instruction.flow, instruction.next))
    }

    /// Whether a jump in the function at `start` goes into another one, which returns to its caller. The rare parts that compilers
    /// move out of a function belong to it.
    pub(super) fn is_last_call(&self, jump: Target, start: Addr) -> bool {
        let outside = match jump {
            Target::Code(to) => self.symbols.function_start(to) != Some(start),
            Target::Slot(_) => true,
            Target::Register(_) | Target::Unknown => false,
        };
        let (_, name) = if outside { self.called(jump) } else { (None, None) };
        name.is_some_and(|name| !name.contains(".cold"))
    }

    /// Whether the function that is called ever returns.
    pub(super) fn returns(&self, call: Target) -> bool {
        const NEVER: [&str; 14] = [
            "exit",
            "Exit",
            "quick_exit",
            "abort",
            "pthread_exit",
            "longjmp",
            "siglongjmp",
            "longjmp_chk",
            "stack_chk_fail",
            "assert_fail",
            "cxa_throw",
            "cxa_rethrow",
            "Unwind_Resume",
            "std::terminate()",
        ];
        let (_, name) = self.called(call);
        !name.is_some_and(|name| NEVER.contains(&base_symbol(&name)))
    }
}

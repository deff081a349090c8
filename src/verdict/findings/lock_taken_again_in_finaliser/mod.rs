//! `lock-taken-again-in-finaliser`: a finaliser waits for what the code has that its object was dropped in.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::threads::{Frame, FrameKind};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "lock-taken-again-in-finaliser",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "lock_taken_again_in_finaliser.py",
        program: include_str!("example.py"),
        command: "python3 lock_taken_again_in_finaliser.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts =
        context.cycle_drafts(|cycle| context.between(cycle).is_some_and(|frames| finaliser(frames).is_some()));
    for draft in &mut drafts {
        let cycle = draft.cycle.and_then(|cycle| context.cycles.get(cycle));
        if let Some(name) = cycle.and_then(|cycle| finaliser(context.between(cycle)?)) {
            draft.message += &format!(" The second time is in the finaliser {name}.");
        }
    }
    drafts
}

/// The finaliser among the frames between the wait and the code that has the lock.
fn finaliser(frames: &[Frame]) -> Option<String> {
    /// Functions of CPython that call finalisers and callbacks.
    const CALLERS: &[&str] = &[
        "PyObject_CallFinalizer",
        "slot_tp_finalize",
        "subtype_dealloc",
        "handle_weakrefs",
        "PyObject_ClearWeakRefs",
        "gc_collect",
    ];
    let is_finaliser = |name: &str| name == "__del__" || name.ends_with(".__del__");
    let python = frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    let by_name = python.filter_map(|frame| frame.function.as_deref()).find(|name| is_finaliser(name));
    by_name.map(str::to_owned).or_else(|| Some(super::rule::called_by(frames, CALLERS)?.1))
}

//! `finalizing-interpreter`: at its end a program waits for what a daemon thread took with it.
//!
//! In: the judged sample. Out: drafts of the finding. Whose interpreter is being finalised is known to the sample.

use super::rule::{Context, Draft, Example, Orphan, Requirement, Rule};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "finalizing-interpreter",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "finalizing_interpreter.py",
        program: include_str!("example.py"),
        command: "python3 finalizing_interpreter.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts_of(context.orphans.iter().filter(|orphan| is_its(context, orphan)))
}

/// Whether the lock's owner is gone from a process whose interpreter is being finalised.
pub(super) fn is_its(context: &Context<'_>, orphan: &Orphan) -> bool {
    let input = context.input;
    let resource = context.names.described(&input.observations.holds[orphan.hold].resource);
    let python = resource.and_then(|resource| input.python.get(resource.process)?.as_ref());
    orphan.gone == Gone::Exited && python.is_some_and(|python| python.finalizing.is_some())
}

//! `owner-exited`: the thread that holds a lock has ended.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule, finalizing_interpreter};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "owner-exited",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "owner_exited.c",
        program: include_str!("example.c"),
        command: "cc -g -pthread owner_exited.c -o hang && ./hang",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    // What the end of an interpreter has stopped is told as that.
    let exited = context.orphans.iter().filter(|orphan| orphan.gone == Gone::Exited);
    context.orphan_drafts_of(exited.filter(|orphan| !finalizing_interpreter::is_its(context, orphan)))
}

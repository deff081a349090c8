//! `self-deadlock`: a thread waits for what it holds.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "self-deadlock",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "self_deadlock.c",
        program: include_str!("example.c"),
        command: "cc -g -pthread self_deadlock.c -o hang && ./hang",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let drafts = context.cycle_drafts(|cycle| cycle.edges.len() == 1);
    context.titled(drafts, |cycle| Some(format!("{}, which it holds itself", context.again(cycle)?)))
}

//! `dead-process-holds-lock`: the lock lies in memory that several processes share.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "dead-process-holds-lock",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "dead_process_holds_lock.c",
        program: include_str!("example.c"),
        command: "cc -g -pthread dead_process_holds_lock.c -o hang && ./hang",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts(Gone::ProcessDead)
}

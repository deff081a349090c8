//! `nobody-left-to-wake`: a thread waits to be woken, and nothing is left that could wake it.
//!
//! In: the judged look. Out: drafts of the finding. Who could wake whom is known to the lock families, not here.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "nobody-left-to-wake",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "nobody_left_to_wake.py",
        program: include_str!("example.py"),
        command: "python3 nobody_left_to_wake.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    // A native lock whose holder is not known is nothing that a thread is to be woken for.
    context.dead_end_drafts(|kind| !kind.has_two_ends() && !kind.is_native_lock_with_holder())
}

//! `fork-orphaned-lock`: fork copies memory with all locks in it, but only the thread that called it.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "fork-orphaned-lock",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "fork_orphaned_lock.py",
        program: include_str!("example.py"),
        command: "python3 fork_orphaned_lock.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts(Gone::LeftInParent)
}

//! `join-cycle`: a thread is joined that can not end, or a task.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "join-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "join_cycle.py",
        program: include_str!("example.py"),
        command: "python3 join_cycle.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::Thread) || cycle.is_about(Topic::Task))
}

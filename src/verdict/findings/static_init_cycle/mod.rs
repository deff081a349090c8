//! `static-init-cycle`: initialisers of static variables, or once functions, that wait for each other.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "static-init-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "static_init_cycle.cpp",
        program: include_str!("example.cpp"),
        command: "c++ -g -pthread static_init_cycle.cpp -o hang && ./hang",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::Initialiser))
}

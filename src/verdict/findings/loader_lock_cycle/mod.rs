//! `loader-lock-cycle`: a cycle through the lock of the dynamic loader.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "loader-lock-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "loader_lock_cycle.c",
        program: include_str!("example.c"),
        command: "cc -g -shared -fPIC -pthread -DPLUGIN loader_lock_cycle.c -o plugin.so && cc -g loader_lock_cycle.c -o hang -ldl && ./hang",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::LoaderLock))
}

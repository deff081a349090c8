//! `executor-self-wait`: the threads of a pool wait for work that stands in the pool's own queue.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::graph::Cycle;
use crate::report::Severity;
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "executor-self-wait",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "executor_self_wait.py",
        program: include_str!("example.py"),
        command: "python3 executor_self_wait.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let is_queued = |cycle: &Cycle| {
        cycle.edges.iter().any(|edge| {
            let resource = context.names.described(&edge.resource);
            resource.is_some_and(|resource| resource.role == Some(Role::QueuedFuture))
        })
    };
    context.cycle_drafts(is_queued)
}

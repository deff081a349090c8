//! `pool-work-cycle`: a thread waits for work of a library's threads, and has what one of these needs for it.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::graph::{Cycle, CycleEdge};
use crate::report::Severity;
use crate::waits::kinds::Topic;
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "pool-work-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "pool_work_cycle.c",
        program: include_str!("example.c"),
        command: "cc -g -fopenmp pool_work_cycle.c -o hang && ./hang",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    // If the wait is for a future in the queue of a pool, the pool waits for itself.
    let role = |edge: &CycleEdge| context.names.described(&edge.resource)?.role;
    let is_run = |cycle: &Cycle| cycle.edges.iter().any(|edge| role(edge) == Some(Role::Future));
    context.cycle_drafts(|cycle| cycle.is_about(Topic::PoolWork) || is_run(cycle) && !cycle.is_about(Topic::Task))
}

//! `pool-worker-died`: a result of a pool of processes will not come, as the worker that had its task is gone.
//!
//! In: the judged look. Out: drafts of the finding. What shows that a task is lost is known to the family of CPython.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "pool-worker-died",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "pool_worker_died.py",
        program: include_str!("example.py"),
        command: "python3 pool_worker_died.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.drafts_of_dead_ends(|key| context.is_lost_task(key))
}

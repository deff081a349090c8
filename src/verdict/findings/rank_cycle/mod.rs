//! `rank-cycle`: ranks of a job wait for each other.
//!
//! In: nothing. Out: no draft: one look at processes says only what each rank waits for, and the verdict over a job
//! ([`job`](crate::job)) joins that. Its explanation stands here, with those of all others.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "rank-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "rank_cycle.py",
        program: include_str!("example.py"),
        command: "mpirun -n 2 python3 rank_cycle.py",
        needs: Requirement::Mpi,
    },
    rule,
};

fn rule(_context: &Context<'_>) -> Vec<Draft> {
    Vec::new()
}

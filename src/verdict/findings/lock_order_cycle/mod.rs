//! `lock-order-cycle`: locks are taken in different orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::graph::CycleEdge;
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "lock-order-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "lock_order_cycle.py",
        program: include_str!("example.py"),
        command: "python3 lock_order_cycle.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| {
        cycle.edges.len() > 1
            && !cycle.is_about(Topic::Gil)
            && cycle.edges.iter().filter(|edge| is_wait_for_lock(edge) || is_gpu(edge)).count() >= 2
    });
    for draft in &mut drafts {
        let cycle = draft.cycle.and_then(|position| context.cycles.get(position));
        if cycle.is_some_and(|cycle| cycle.edges.iter().any(is_gpu)) {
            draft.help = vec![
                "take no lock in a host function that a thread may have while it waits for the stream".into(),
                "release the lock before the synchronising call".into(),
            ];
        }
    }
    drafts
}

/// A wait for the GPU, which waits for a host function.
fn is_gpu(edge: &CycleEdge) -> bool {
    edge.resource.kind.is_gpu()
}

fn is_wait_for_lock(edge: &CycleEdge) -> bool {
    edge.resource.kind.is_lock()
}

//! `lock-order-cycle`: locks are taken in different orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::graph::CycleEdge;
use crate::report::Severity;
use crate::waits::{Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "lock-order-cycle",
        title: "locks are taken in different orders",
        severity: Severity::Error,
        text: "Each thread holds one lock and waits for the next one, which another of them holds. Code that takes the same locks in different orders does this as soon as two threads are in it at the same time.",
        help: &[
            "take the locks in one order everywhere",
            "take several at once: std::scoped_lock(a, b), std::lock",
            "hold only one at a time: copy what is needed, release, then take the other",
        ],
        references: &["rapidsai/dask-cuda#501"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| {
        cycle.edges.len() > 1
            && !cycle.has_kind("gil")
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
    cuda::KINDS.contains(&edge.resource.kind)
}

/// A task of asyncio waits for locks of asyncio only, which have no kind of their own.
fn is_wait_for_lock(edge: &CycleEdge) -> bool {
    let is_task = matches!(&edge.waiter, Party::Resource(key) if key.kind == "asyncio_task");
    super::is_lock(edge.resource.kind) || is_task && edge.resource.kind == "other"
}

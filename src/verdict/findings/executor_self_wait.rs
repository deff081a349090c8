//! `executor-self-wait`: the threads of a pool wait for work that stands in the pool's own queue.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::graph::Cycle;
use crate::report::Severity;
use crate::waits::cpython::QUEUED;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "executor-self-wait",
        title: "a pool's threads wait for work that only they could do",
        severity: Severity::Error,
        text: "A task that runs in a pool of threads submits another task to the same pool and waits for its result. The new task stands in the queue of the pool until a thread is free; when every thread of the pool waits so, none ever is. With few tasks at a time it works, and under load it hangs.",
        help: &[
            "do not wait in a task for tasks of the same pool: call the function directly, or return the future and let the caller chain it",
            "use a second pool for the inner tasks, one for each level",
            "a larger max_workers only moves the number of tasks at which it hangs",
        ],
        references: &["python/cpython#141617", "TileDB-Inc/TileDB#1757"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let is_queued = |cycle: &Cycle| {
        cycle.edges.iter().any(|edge| {
            let resource = context.look.observations.resource(&edge.resource);
            resource.is_some_and(|resource| resource.word(QUEUED).is_some())
        })
    };
    context.cycle_drafts(is_queued)
}

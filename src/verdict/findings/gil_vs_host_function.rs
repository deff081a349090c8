//! `gil-vs-host-function`: a host function of a stream needs the GIL while its holder waits for the stream.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::cuda;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-vs-host-function",
        title: "Python GIL <-> host function on a CUDA stream",
        severity: Severity::Error,
        text: "cuLaunchHostFunc and cuStreamAddCallback run a function on a thread of the driver when the stream comes to it. The function is Python and needs the GIL. A thread that holds the GIL waits for that stream or for the driver, so the function never returns and the stream never moves on.",
        help: &[
            "release the GIL around the synchronising call",
            "do no Python in a host function: set a flag or write to a descriptor in native code, and let a Python thread wait for that",
        ],
        references: &["NVIDIA/numba-cuda#317", "NVIDIA/numba-cuda#321", "LMCache/LMCache#2952"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| {
        let through_gpu = cycle.edges.iter().any(|edge| cuda::KINDS.contains(&edge.resource.kind));
        context.gil_waiter(cycle).is_some_and(|edge| through_gpu || context.on_driver_thread(edge))
    })
}

//! `cuda-call-in-host-function`: a host function calls the CUDA API, and waits in it.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule, is_libc};
use crate::graph::CycleEdge;
use crate::report::Severity;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "cuda-call-in-host-function",
        title: "a host function of a CUDA stream calls CUDA",
        severity: Severity::Error,
        text: "cuLaunchHostFunc, cudaLaunchHostFunc and the stream callbacks run a function when the stream comes to it, and the stream goes on when that returns. Such a function must not call CUDA: a call that waits for the stream waits for the function itself, and others may need a lock that is held while the function runs. Some calls return cudaErrorNotPermitted (800), and others just never return.",
        help: &[
            "call no CUDA in a host function: set a flag, post a semaphore or write to a descriptor, and let another thread do the rest",
            "put what is to follow into the stream itself, or wait for an event from a thread of the program's own",
        ],
        references: &[
            "CUDA Runtime API: cudaLaunchHostFunc",
            "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EXECUTION.html",
        ],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    // The driver runs it, and it waits for a lock of the driver or for the GPU inside a call that it made.
    let mut drafts = context.cycle_drafts(|cycle| {
        cycle.edges.iter().any(|edge| waits_in_driver(context, edge) && context.on_driver_thread(edge))
    });
    for draft in &mut drafts {
        let Some(cycle) = draft.cycle.and_then(|position| context.cycles.get(position)) else { continue };
        let Some(edge) = cycle.edges.iter().find(|edge| waits_in_driver(context, edge)) else { continue };
        let who = context.names.party_in_full(&edge.waiter);
        let wait = edge.wait.map(|wait| &context.look.observations.waits[wait]);
        let call = context.names.call(&edge.waiter, wait.and_then(|wait| wait.frame)).phrase();
        if let ([_], Party::Thread(..)) = (cycle.edges.as_slice(), &edge.waiter) {
            draft.message = format!(
                "{who} runs a host function and waits{call} for {}, which goes on only when this function returns.",
                context.names.resource(&edge.resource),
            );
        }
    }
    drafts
}

/// Whether the wait is the driver's own: the first frame out from it that is not the C library's is the driver's.
fn waits_in_driver(context: &Context<'_>, edge: &CycleEdge) -> bool {
    let mut frames =
        context.names.frames(&edge.waiter).iter().skip(context.frame_of(edge)).skip_while(|frame| is_libc(frame));
    edge.resource.kind != "gil" && frames.next().is_some_and(|frame| context.names.is_driver(frame))
}

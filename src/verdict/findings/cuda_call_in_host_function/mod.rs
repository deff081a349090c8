//! `cuda-call-in-host-function`: a host function calls the CUDA API, and waits in it.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule, is_libc};
use crate::graph::CycleEdge;
use crate::report::Severity;
use crate::waits::Party;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "cuda-call-in-host-function",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "cuda_call_in_host_function.py",
        program: include_str!("example.py"),
        command: "python3 cuda_call_in_host_function.py",
        needs: Requirement::Gpu,
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
        let wait = edge.wait.map(|wait| &context.input.observations.waits[wait]);
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
    edge.resource.kind.topic != Topic::Gil && frames.next().is_some_and(|frame| context.names.is_driver(frame))
}

//! `gil-vs-host-function`: a host function of a stream needs the GIL while its holder waits for the stream.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "gil-vs-host-function",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "gil_vs_host_function.py",
        program: include_str!("example.py"),
        command: "python3 gil_vs_host_function.py",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| {
        let through_gpu = cycle.edges.iter().any(|edge| edge.resource.kind.is_gpu());
        context.gil_waiter(cycle).is_some_and(|edge| through_gpu || context.on_driver_thread(edge))
    })
}

//! `gil-held-in-blocking-cuda-call`: the GIL is held while its holder waits for the GPU, and others want it.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;

use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "gil-held-in-blocking-cuda-call",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "gil_held_in_blocking_cuda_call.py",
        program: include_str!("example.py"),
        command: "python3 gil_held_in_blocking_cuda_call.py",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| wait.resource.kind.is_gpu()) {
        let in_cycle = context.cycles.iter().any(|cycle| cycle.parties().any(|party| party == wait.waiter));
        let gil = seen.holds.iter().find(|hold| hold.holder == wait.waiter && hold.resource.kind.topic == Topic::Gil);
        let Some(gil) = gil.filter(|_| !in_cycle) else { continue };
        let others = seen.waits.iter().filter(|other| other.resource == gil.resource);
        let others: Vec<_> = others.map(|other| other.waiter.clone()).collect();
        if others.is_empty() {
            continue;
        }
        let count = match others.len() {
            1 => "1 thread waits".to_owned(),
            count => format!("{count} threads wait"),
        };
        let names = context.names;
        drafts.push(Draft {
            message: format!(
                "{} holds the GIL and waits for {}{}; {count} for the GIL.",
                names.party_in_full(&wait.waiter),
                names.waited_for(wait),
                names.call(&wait.waiter, wait.frame).phrase(),
            ),
            parties: std::iter::once(wait.waiter.clone()).chain(others).collect(),
            resources: vec![wait.resource.clone(), gil.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

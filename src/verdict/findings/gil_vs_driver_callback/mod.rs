//! `gil-vs-driver-callback`: a driver callback needs the GIL while its holder waits for the driver.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "gil-vs-driver-callback",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "gil_vs_driver_callback.py",
        program: include_str!("example.py"),
        command: "python3 gil_vs_driver_callback.py",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| {
        context.gil_waiter(cycle).is_some_and(|edge| context.callback(edge).is_some())
            && cycle.edges.iter().any(|edge| edge.resource.kind.topic != Topic::Gil && context.in_driver(edge))
    });
    for draft in &mut drafts {
        let Some(cycle) = draft.cycle.and_then(|position| context.cycles.get(position)) else { continue };
        let Some(edge) = context.gil_waiter(cycle) else { continue };
        if let Some(callback) = context.callback(edge) {
            draft.message += &format!(
                " {} is inside {}, which the driver called from {}.",
                context.names.party(&edge.waiter),
                callback.function,
                callback.api
            );
        }
        if let Some(other) =
            cycle.edges.iter().find(|edge| edge.resource.kind.topic != Topic::Gil && context.in_driver(edge))
        {
            let who = context.names.party_by_name(&other.waiter);
            let general = super::explain(RULE.code).and_then(|told| told.help.first().cloned());
            let closer = format!("release the GIL around the driver call that {who} makes");
            draft.help = general.into_iter().chain([closer]).collect();
        }
    }
    drafts
}

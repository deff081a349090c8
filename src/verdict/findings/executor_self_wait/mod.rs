//! `executor-self-wait`: the threads of a pool wait for work that stands in the pool's own queue. An event loop is such a pool.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::graph::CycleEdge;
use crate::report::Severity;
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "executor-self-wait",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "executor_self_wait.py",
        program: include_str!("example.py"),
        command: "python3 executor_self_wait.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let is_queued = |edge: &CycleEdge| {
        let resource = context.names.described(&edge.resource);
        resource.is_some_and(|resource| resource.role == Some(Role::QueuedFuture))
    };
    let mut drafts = context.cycle_drafts(|cycle| cycle.edges.iter().any(is_queued));
    for draft in &mut drafts {
        let Some(cycle) = draft.cycle.and_then(|position| context.cycles.get(position)) else { continue };
        if !cycle.edges.iter().all(|edge| is_queued(edge) && context.runs_a_loop(&edge.waiter)) {
            continue;
        }
        let names: Vec<String> = cycle.edges.iter().map(|edge| context.names.party_by_name(&edge.waiter)).collect();
        let (whose, act) = match names.len() {
            1 => ("which it runs itself", "waits"),
            _ => ("which wait for each other", "wait"),
        };
        let loops = if names.len() == 1 { "the event loop" } else { "the event loops" };
        draft.title = Some(format!("{} {act} in result() for work of {loops} {whose}", names.join(" and ")));
        draft.help = vec![
            "await the coroutine, or asyncio.wrap_future(future): result() in a loop's own thread keeps the loop from running \
             what is given to it"
                .into(),
            "call run_coroutine_threadsafe(...).result() in other threads only: await asyncio.to_thread(function)".into(),
        ];
    }
    drafts
}

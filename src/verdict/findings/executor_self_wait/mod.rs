//! `executor-self-wait`: the threads of a pool wait for work that stands in the pool's own queue. An event loop is such a pool.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::graph::{Cycle, CycleEdge};
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
        let of_loops = |edge: &CycleEdge| context.runs_a_loop(&edge.holder);
        if !cycle.edges.iter().filter(|edge| is_queued(edge)).all(of_loops) {
            continue;
        }
        let (title, help) = told_of_loops(context, cycle, is_queued);
        draft.title = title;
        draft.help = help.map(str::to_owned).to_vec();
    }
    drafts
}

/// The title and the advice where event loops are to do the work.
fn told_of_loops(
    context: &Context<'_>,
    cycle: &Cycle,
    is_queued: impl Fn(&CycleEdge) -> bool,
) -> (Option<String>, [&'static str; 2]) {
    let names: Vec<String> = cycle.edges.iter().map(|edge| context.names.party_by_name(&edge.waiter)).collect();
    let names = names.join(" and ");
    if let Some(other) = cycle.edges.iter().find(|edge| !is_queued(edge)) {
        let waits_for_loop = cycle.edges.iter().find(|edge| is_queued(edge) && edge.holder == other.waiter);
        let title = waits_for_loop.map(|edge| {
            let (who, loops) = (context.names.party_by_name(&edge.waiter), context.names.party_by_name(&edge.holder));
            let thing = context.names.resource(&other.resource);
            format!("{who} waits in result() for work of the event loop of {loops}, which waits for {thing}")
        });
        let help = [
            "take no lock in a coroutine that another thread keeps while it waits for the loop: await asyncio.to_thread(function) \
             for the part that needs it",
            "release the lock before run_coroutine_threadsafe(...).result()",
        ];
        return (title, help);
    }
    let title = match cycle.edges.len() {
        1 => format!("{names} waits in result() for work of the event loop which it runs itself"),
        _ => format!("{names} wait in result() for work of the event loops which wait for each other"),
    };
    let help = [
        "await the coroutine, or asyncio.wrap_future(future): result() in a loop's own thread keeps the loop from running what is \
         given to it",
        "call run_coroutine_threadsafe(...).result() in other threads only: await asyncio.to_thread(function)",
    ];
    (Some(title), help)
}

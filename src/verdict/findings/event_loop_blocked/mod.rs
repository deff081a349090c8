//! `event-loop-blocked`: a thread waits inside of a callback of its event loop, and none of the loop's tasks goes on.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::graph::Cycle;
use crate::report::Severity;
use crate::verdict::DeadEnd;
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "event-loop-blocked",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "event_loop_blocked.py",
        program: include_str!("example.py"),
        command: "python3 event_loop_blocked.py",
        needs: Requirement::Nothing,
    },
    rule,
};

/// Advice for a call that waits for something outside.
const ELSEWHERE: &str = "call it by `await asyncio.to_thread(function)`, or use a client that is made for coroutines, and give it a time-out";
/// Shows such calls before they hang.
const LOGGED: &str = "asyncio.run(main(), debug=True) logs every callback that takes longer than 0.1 s";

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let loops = seen.resources.iter().filter_map(|resource| {
        let Some(Role::EventLoop { tasks }) = resource.role else { return None };
        let hold = seen.holds.iter().find(|hold| hold.resource == resource.key)?;
        let wait = seen.waits.iter().find(|wait| wait.waiter == hold.holder)?;
        // The report's own reader: a program that looks at itself.
        if context.names.described(&wait.resource).is_some_and(|one| one.role == Some(Role::ThisReport)) {
            return None;
        }
        // A wait that never ends has a finding of its own, which says this too.
        let is_reportable =
            |end: &DeadEnd| seen.known_wakers.get(end.known_wakers).is_some_and(|one| one.resource == wait.resource);
        if context.names.described(&wait.resource).is_some_and(|one| one.role == Some(Role::Future))
            && context.dead_ends.iter().any(is_reportable)
        {
            return None;
        }
        // Nor is there more to say of loops that wait for each other.
        let in_cycle = |cycle: &Cycle| cycle.edges.iter().any(|edge| edge.resource == wait.resource);
        if context.names.described(&wait.resource).is_some_and(|one| one.role == Some(Role::QueuedFuture))
            && context.cycles.iter().any(in_cycle)
        {
            return None;
        }
        let names = context.names;
        let who = names.party_by_name(&hold.holder);
        let (waits_for, call) = (names.waited_for(wait), names.call(&hold.holder, wait.frame).phrase());
        let stops = match tasks {
            0 => "so its event loop stands still".to_owned(),
            1 => "so the only task of its event loop stands still".to_owned(),
            _ => format!("so all {tasks} tasks of its event loop stand still"),
        };
        let is_again = |cycle: &Cycle| matches!(cycle.edges.as_slice(), [edge] if edge.waiter == hold.holder);
        let help: &[&str] = match wait.resource.kind.is_lock() {
            // The finding about that lock says what to use instead.
            true if context.cycles.iter().any(is_again) => &[LOGGED],
            true => &[],
            false => &[ELSEWHERE, LOGGED],
        };
        Some(Draft {
            title: Some(format!("{who} waits for {waits_for}{call}, {stops}")),
            message: "It is in a callback of its event loop, which runs no other task until that returns.".into(),
            help: help.iter().map(|help| (*help).to_owned()).collect(),
            parties: vec![hold.holder.clone()],
            resources: vec![resource.key.clone()],
            ..Draft::default()
        })
    });
    loops.collect()
}

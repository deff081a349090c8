//! `event-loop-blocked`: a thread waits inside of a callback of its event loop, and none of the loop's tasks goes on.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
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

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let loops = seen.resources.iter().filter_map(|resource| {
        let Some(Role::EventLoop { tasks }) = resource.role else { return None };
        let hold = seen.holds.iter().find(|hold| hold.resource == resource.key)?;
        let wait = seen.waits.iter().find(|wait| wait.waiter == hold.holder)?;
        // A wait that never ends has a finding of its own, which says this too.
        let is_reportable =
            |end: &DeadEnd| seen.known_wakers.get(end.known_wakers).is_some_and(|one| one.resource == wait.resource);
        if context.names.described(&wait.resource).is_some_and(|one| one.role == Some(Role::Future))
            && context.dead_ends.iter().any(is_reportable)
        {
            return None;
        }
        let names = context.names;
        let message = format!(
            "{} runs an event loop and waits for {}{} in a callback of it; {tasks} task{} of the loop cannot go on.",
            names.party_in_full(&hold.holder),
            names.waited_for(wait),
            names.call(&hold.holder, wait.frame).phrase(),
            if tasks == 1 { "" } else { "s" },
        );
        Some(Draft {
            message,
            parties: vec![hold.holder.clone()],
            resources: vec![resource.key.clone()],
            ..Draft::default()
        })
    });
    loops.collect()
}

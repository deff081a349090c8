//! `lock-order-cycle`: locks are taken in different orders.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::graph::{Cycle, CycleEdge};
use crate::report::{Severity, short_function, short_path};
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "lock-order-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "lock_order_cycle.py",
        program: include_str!("example.py"),
        command: "python3 lock_order_cycle.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| {
        cycle.edges.len() > 1
            && !cycle.is_about(Topic::Gil)
            && cycle.edges.iter().filter(|edge| is_wait_for_lock(edge) || is_gpu(edge)).count() >= 2
    });
    drafts = context.titled(drafts, |cycle| {
        let are_locks = cycle.edges.iter().all(is_wait_for_lock);
        let title = || match is_one_lock(cycle) {
            true => format!(
                "{} threads share {}, and each waits to have it alone",
                cycle.edges.len(),
                context.things_of(cycle)
            ),
            false => format!("{} are taken in different orders", context.things_of(cycle)),
        };
        are_locks.then(title)
    });
    for draft in &mut drafts {
        let cycle = draft.cycle.and_then(|position| context.cycles.get(position));
        if cycle.is_some_and(|cycle| cycle.edges.iter().any(is_gpu)) {
            draft.help = vec![
                "take no lock in a host function that a thread may have while it waits for the stream".into(),
                "release the lock before the synchronising call".into(),
            ];
        }
        if cycle.is_some_and(is_one_lock) {
            draft.help = vec![
                "give the read lock back before you ask for the write lock, and check again what you have read".into(),
                "take the write lock at once where a write may follow".into(),
            ];
        }
        draft.first_help = cycle.and_then(|cycle| one_order(context, cycle));
    }
    drafts
}

/// Which function takes which of two locks first, where both have names and the functions are two.
fn one_order(context: &Context<'_>, cycle: &Cycle) -> Option<String> {
    let [one, other] = cycle.edges.as_slice() else { return None };
    // The waiter of one edge holds the resource of the other.
    let taken = |edge: &CycleEdge| {
        let hold = context.input.observations.holds.get(edge.hold?)?;
        let name = context.names.label(&edge.resource).name.as_ref().map(|_| context.names.bare(&edge.resource))?;
        Some((short_function(&hold.taken.as_ref()?.function), name))
    };
    let ((first, has), (second, has_other)) = (taken(other)?, taken(one)?);
    if is_wait_for_lock(one) && is_wait_for_lock(other) && first == second {
        return by_arguments(context, one, other);
    }
    let is_reportable = is_wait_for_lock(one) && is_wait_for_lock(other) && first != second && has != has_other;
    is_reportable
        .then(|| format!("take both locks in one order everywhere: {first} takes {has} first, {second} {has_other}"))
}

/// One line takes the first lock of both threads and another line the second: the order is that of the function's arguments.
fn by_arguments(context: &Context<'_>, one: &CycleEdge, other: &CycleEdge) -> Option<String> {
    let seen = context.input.observations;
    let lines = |edge: &CycleEdge, of_other: &CycleEdge| {
        let taken = seen.holds.get(of_other.hold?)?.taken.as_ref()?;
        let wait = seen.waits.get(edge.wait?)?;
        let call = context.names.call(&wait.waiter, wait.frame);
        let is_its = call.function.as_deref() == Some(short_function(&taken.function).as_str());
        let line = call.line.filter(|_| is_its)?;
        Some((short_function(&taken.function), format!("{}:{}", short_path(&taken.file), taken.line), line))
    };
    let (function, taken, waits) = lines(one, other)?;
    (lines(other, one)? == (function.clone(), taken.clone(), waits.clone()) && taken != waits).then(|| {
        format!(
            "{function} takes one lock at {taken} and one at {waits}, in the order of its arguments: sort the locks by a key first"
        )
    })
}

/// Whether all wait for the same lock, so that each of its readers wants to write.
fn is_one_lock(cycle: &Cycle) -> bool {
    cycle.edges.windows(2).all(|pair| matches!(pair, [one, next] if one.resource == next.resource))
}

/// A wait for the GPU, which waits for a host function.
fn is_gpu(edge: &CycleEdge) -> bool {
    edge.resource.kind.is_gpu()
}

fn is_wait_for_lock(edge: &CycleEdge) -> bool {
    edge.resource.kind.is_lock()
}

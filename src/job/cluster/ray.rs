//! Ray's own links between the processes of a cluster: the ids of an actor's tasks lead to its process.
//!
//! In: [`Members`]. Out: the threads that keep a task from being done, and names of tasks. This module judges nothing.
//! Tasks of actors stay with their actor, so an actor whose threads all wait takes no other task.

use std::collections::BTreeMap;

use super::link::{By, Link, Thread};
use super::members::{Lasted, Members};
use super::ray_tasks::{OVER, WITH_ITS_ACTOR, actor_of, short};
use crate::report::ClusterRequest;

/// Whether the task of this id is done or not, where a witness says so.
fn is_over(members: &Members<'_>, task: &str) -> Option<bool> {
    members.tasks.get(task).map(|told| OVER.contains(&told.state.as_str()))
}

/// Whether the result that a request waits for is known to be undone, so that its bytes are not on their way.
pub(super) fn is_undone(members: &Members<'_>, request: &ClusterRequest, task: &str) -> bool {
    request.is_undone || is_over(members, task) == Some(false)
}

/// Whether an actor's threads are counted.
pub(super) fn knows_threads(members: &Members<'_>, place: usize) -> bool {
    threads(members, place).is_some()
}

fn threads(members: &Members<'_>, place: usize) -> Option<u32> {
    members.list.get(place)?.cluster.roles.iter().find_map(|role| role.threads)
}

/// Threads that keep the task of this id from being done, in one or two ways: all of its actor's, or the one that runs it.
pub(super) fn ways(members: &Members<'_>, running: &BTreeMap<&str, Thread>, task: &str) -> Vec<Vec<Link>> {
    if is_over(members, task) == Some(true) {
        return Vec::new();
    }
    let lasted = |place: usize| {
        members.list.get(place).filter(|one| one.before.is_some()).map_or(Lasted::Unknown, |_| Lasted::Yes)
    };
    let link = |to: Thread, by: By| Link { to, by, lasted: lasted(to.0) };
    let running = running.get(task).map(|thread| vec![link(*thread, By::Runs(task.to_owned()))]);
    let occupied = place_of(members, task).and_then(|place| {
        let own = &members.list.get(place)?.cluster.running;
        let waits_there = members.tasks.get(task).is_some_and(|told| told.state == WITH_ITS_ACTOR);
        let is_full = threads(members, place).map_or(waits_there, |count| own.len() >= count as usize);
        let links = || own.iter().map(|one| link((place, one.tid), By::Occupies(task.to_owned()))).collect();
        (is_full && !own.is_empty()).then(links)
    });
    occupied.into_iter().chain(running).collect()
}

/// The thread that a wait for this task comes to, where it is one.
pub(super) fn leads_to(members: &Members<'_>, running: &BTreeMap<&str, Thread>, task: &str) -> Option<(Thread, By)> {
    if let Some(thread) = running.get(task) {
        return Some((*thread, By::Runs(task.to_owned())));
    }
    let place = place_of(members, task)?;
    match members.list.get(place)?.cluster.running.as_slice() {
        [only] => Some(((place, only.tid), By::Occupies(task.to_owned()))),
        _ => None,
    }
}

/// "task `Partner.answer`", "a task of actor Partner 7f037e7e", "task 16310a0f".
pub(super) fn called(members: &Members<'_>, task: &str) -> String {
    if let Some(told) = members.tasks.get(task).filter(|told| !told.name.is_empty()) {
        return match actor_of(task).and_then(|actor| whose(members, actor)) {
            Some(actor) => format!("task `{}` of {actor}", told.name),
            None => format!("task `{}`", told.name),
        };
    }
    match actor_of(task) {
        Some(actor) => {
            format!("a task of {}", whose(members, actor).unwrap_or_else(|| format!("actor {}", short(actor))))
        }
        None => format!("task {}", short(task)),
    }
}

/// The place of the actor whose task this is.
fn place_of(members: &Members<'_>, task: &str) -> Option<usize> {
    members.actors.get(actor_of(task)?).copied()
}

/// The process that is this actor.
fn whose(members: &Members<'_>, actor: &str) -> Option<String> {
    members.actors.get(actor).and_then(|place| members.list.get(*place)).map(|one| one.called.clone())
}

/// Tasks that threads of an actor wait for and that the actor itself would have to run.
pub(super) fn ready(members: &Members<'_>, place: usize) -> Vec<String> {
    let Some(one) = members.list.get(place) else { return Vec::new() };
    let own = one.cluster.roles.iter().find_map(|role| role.actor.as_deref());
    let wanted = one.cluster.requests.iter().flat_map(|request| &request.names);
    let of_itself = wanted.filter(|task| own.is_some() && actor_of(task) == own);
    let name = |task: &String| match members.tasks.get(task.as_str()).filter(|told| !told.name.is_empty()) {
        Some(told) => format!("`{}`", told.name),
        None => short(task).to_owned(),
    };
    of_itself.map(name).collect()
}

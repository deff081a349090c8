//! Ray, as one of its processes sees it: the tasks that its threads run, and the tasks whose results they wait for.
//!
//! In: the Python objects of a process. Out: waits for results of tasks, by their ids; a
//! [`ClusterMember`](crate::waits::cluster::ClusterMember) of each process, by which others join it. The id of a task
//! that an actor runs names the actor, so the awaited process is known without Ray's answer. It queries no other
//! process, and does not know of tasks that concern no thread of this one.

mod ids;
mod members;
mod requests;

use crate::image::Addr;
use crate::waits::blocked_on::{BlockedOn, Ownership};
use crate::waits::kinds;
use crate::waits::label::Label;
use crate::waits::model::{Resource, ResourceKey, Scope};
use crate::waits::thread::{Process, ThreadView};

use super::Facts;

pub(super) use members::member;

/// A thread that waits for results, in `ray.get` or `ray.wait`.
pub(super) fn decode(
    process: &Process<'_>,
    facts: &Facts<'_>,
    thread: &ThreadView<'_>,
    below: &BlockedOn,
) -> Option<BlockedOn> {
    let request = requests::find(process, facts, thread)?;
    let tasks: Vec<&str> = request.wanted.iter().map(|wanted| wanted.task.as_str()).collect();
    let first = request.wanted.first();
    let more = tasks.len().saturating_sub(1);
    let detail = match (first.and_then(|wanted| wanted.actor.as_ref()), more) {
        (Some(actor), 0) => Some(format!("of actor {actor}")),
        (Some(actor), more) => Some(format!("of actor {actor} and {more} more")),
        (None, 0) => None,
        (None, more) => Some(format!("and {more} more")),
    };
    let resource = Resource {
        key: ResourceKey {
            kind: kinds::RAY_TASK,
            scope: Scope::System(format!("ray:{}", tasks.join(" "))),
            address: Addr(0),
        },
        process: process.context.process,
        label: Label::from(kinds::RAY_TASK.noun).named(first.map(|wanted| wanted.task.clone())).with_detail(detail),
        state: Vec::new(),
        role: None,
    };
    let word = if request.is_undone { ", whose end has not been told here" } else { "" };
    let told = |wanted: &ids::Wanted| match &wanted.actor {
        Some(actor) => {
            format!("its reference is to result {} of task {} of actor {actor}{word}", wanted.number, wanted.task)
        }
        None => format!("its reference is to result {} of task {}{word}", wanted.number, wanted.task),
    };
    let mut decoded = below.refined(resource, &[], first.map(told).into_iter().collect());
    decoded.timed = request.timed;
    decoded.at = request.frame.and_then(|frame| thread.merged_python(frame));
    decoded.ownership = Ownership::Unknown;
    decoded.gaps.extend(request.gap);
    Some(decoded)
}

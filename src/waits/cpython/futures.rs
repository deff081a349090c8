//! Futures of thread pools: which thread runs what will set one, or in whose queue it waits.
//!
//! In: a `concurrent.futures.Future` that somebody waits for. Out: [`Pending`]. The thread that runs its work item has it in
//! `_WorkItem.run`; an item that no thread runs yet stands in the queue of a pool, which the frames of the pool's threads
//! name. Futures that other code sets (process pools, asyncio) are set by nobody that is known here.

use super::composites::method;
use crate::image::Addr;
use crate::python::PythonFrame;
use crate::python::inspect::{Inspector, frames_of};
use crate::python::objects::Objects;

/// Items of a queue that are searched for a future.
const MOST_ITEMS: u64 = 1 << 14;

// `simplequeueobject` behind the head: a list and the position of its first item (up to 3.12), or a ring of items with the
// positions for putting and getting (from 3.13 on) [DWARF of 3.11.7, 3.13.0].
const LIST: u64 = 16;
const RING_GET: u64 = 16;
const RING_ITEMS: u64 = 24;
const RING_CAPACITY: u64 = 32;
const RING_COUNT: u64 = 40;

/// Who will set a future.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// For the label: " of outer (queued)".
    pub(super) detail: Option<String>,
    pub(super) evidence: Vec<String>,
    /// Positions of thread states: the one that runs it, or all that take items from the queue that it stands in.
    pub(super) workers: Vec<(usize, Addr)>,
    /// It stands in a queue: any of the workers may take it.
    pub(super) is_queued: bool,
}

/// Look for the work of a future.
pub(super) fn look(inspector: &Inspector<'_>, future: Addr) -> Pending {
    let objects = inspector.objects();
    let mut queues: Vec<(Addr, Vec<(usize, Addr)>)> = Vec::new();
    for (state, thread) in inspector.python.threads.iter().enumerate().filter(|(_, thread)| thread.tid.is_some()) {
        for frame in frames_of(thread).filter(|frame| frame.file.ends_with("/concurrent/futures/thread.py")) {
            if method(frame) == "run" && is_work(inspector, frame, future) {
                let function =
                    inspector.frame(frame).and_then(|frame| frame.first()).and_then(|item| work(&objects, item));
                return Pending {
                    detail: Some(format!(" of {} (running)", function.as_deref().unwrap_or("a task"))),
                    evidence: vec![format!(
                        "the Future at {future} is that of the work item that {} runs",
                        frame.function
                    )],
                    workers: vec![(state, frame.address)],
                    is_queued: false,
                };
            }
            if method(frame) == "_worker"
                && let Some(queue) = inspector.frame(frame).and_then(|frame| frame.variable("work_queue"))
            {
                match queues.iter_mut().find(|(known, _)| *known == queue) {
                    Some((_, workers)) => workers.push((state, frame.address)),
                    None => queues.push((queue, vec![(state, frame.address)])),
                }
            }
        }
    }
    for (queue, workers) in queues {
        let items = contents(&objects, queue);
        let own = items.into_iter().find(|item| objects.attribute(*item, "future") == Some(future));
        if let Some(item) = own {
            let function = work(&objects, item);
            return Pending {
                detail: Some(format!(" of {} (queued)", function.as_deref().unwrap_or("a task"))),
                evidence: vec![format!(
                    "its work item stands in the queue at {queue}, which {} thread{} of the pool take from",
                    workers.len(),
                    if workers.len() == 1 { "" } else { "s" }
                )],
                workers,
                is_queued: true,
            };
        }
    }
    Pending::default()
}

fn is_work(inspector: &Inspector<'_>, frame: &PythonFrame, future: Addr) -> bool {
    let item = inspector.frame(frame).and_then(|frame| frame.first());
    item.and_then(|item| inspector.objects().attribute(item, "future")) == Some(future)
}

/// The name of the function of a work item: `fn` up to 3.13, the first of `task` from 3.14 on.
fn work(objects: &Objects<'_>, item: Addr) -> Option<String> {
    let function = objects
        .attribute(item, "fn")
        .or_else(|| objects.sequence(objects.attribute(item, "task")?, 1)?.first().copied())?;
    objects.function_name(function).or_else(|| objects.bound(function).map(|bound| bound.name))
}

/// The items of a `SimpleQueue`.
fn contents(objects: &Objects<'_>, queue: Addr) -> Vec<Addr> {
    let list = || objects.sequence(objects.field(queue, LIST)?, MOST_ITEMS);
    let ring = || {
        let field = |offset| objects.field(queue, offset).map(|word| word.0);
        let (get, capacity, count) = (field(RING_GET)?, field(RING_CAPACITY)?, field(RING_COUNT)?);
        let items = objects.field(queue, RING_ITEMS)?;
        let fits = capacity.is_power_of_two() && capacity <= MOST_ITEMS && count <= capacity && get < capacity;
        let at = |position: u64| objects.pointer(items + (get + position) % capacity * 8);
        fits.then(|| (0..count).filter_map(at).collect())
    };
    list().or_else(ring).unwrap_or_default()
}

//! Futures of thread pools: which thread runs what will set one, or in whose queue it waits.
//!
//! In: the frames of a process's threads. Out: [`Work`]. The thread that runs its work item has it in `_WorkItem.run`.
//! An item that no thread runs yet stands in the queue of a pool, which the frames of the pool's threads name. The
//! setters of other futures (process pools, asyncio) are not known here.

use std::collections::{BTreeMap, HashMap};

use super::threading_objects::method;
use crate::image::Addr;
use crate::limits;
use crate::limits::cpython::QUEUE_ITEMS;
use crate::python::inspect::{Inspector, frames_of};
use crate::python::objects::Objects;

// `simplequeueobject` behind the head: a list and the position of its first item (up to 3.12), or a ring of items with the
// positions for putting and getting (from 3.13 on) [DWARF of 3.11.7, 3.13.0].
const LIST: u64 = 16;
const RING_GET: u64 = 16;
const RING_ITEMS: u64 = 24;
const RING_CAPACITY: u64 = 32;
const RING_COUNT: u64 = 40;

/// The threads that will set a future.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    /// The function that gives the result.
    pub(super) function: Option<String>,
    pub(super) evidence: String,
    /// Positions of thread states, and their frames: the one that runs it, or all that take items from the queue that it
    /// stands in.
    pub(super) workers: Vec<(usize, Addr)>,
    /// It stands in a queue: any of the workers may take it.
    pub(super) is_queued: bool,
}

/// The work of all thread pools of a process, by future.
#[derive(Debug, Default)]
pub(super) struct Work(HashMap<Addr, Pending>);

impl Work {
    /// The work that the threads of pools run, and the content of the queues that they take from.
    pub(super) fn find(inspector: &Inspector<'_>) -> Work {
        let objects = inspector.objects();
        let mut queues: BTreeMap<Addr, Vec<(usize, Addr)>> = BTreeMap::new();
        let mut work = HashMap::new();
        for (state, thread) in inspector.living() {
            for frame in frames_of(thread).filter(|frame| frame.file.ends_with("/concurrent/futures/thread.py")) {
                let Some(open) = inspector.frame(frame) else { continue };
                let item = open.first().filter(|_| method(frame) == "run");
                if let Some((item, future)) = item.and_then(|item| Some((item, objects.attribute(item, "future")?))) {
                    let evidence =
                        format!("the Future at {future} is that of the work item that {} runs", frame.function);
                    let workers = vec![(state, frame.address)];
                    work.insert(
                        future,
                        Pending { function: function(&objects, item), evidence, workers, is_queued: false },
                    );
                }
                if let Some(queue) = open.variable("work_queue").filter(|_| method(frame) == "_worker") {
                    queues.entry(queue).or_default().push((state, frame.address));
                }
            }
        }
        for (queue, workers) in queues {
            let threads =
                if workers.len() == 1 { "1 thread of the pool takes" } else { "the threads of the pool take" };
            for item in contents(&objects, queue) {
                let Some(future) = objects.attribute(item, "future") else { continue };
                work.entry(future).or_insert_with(|| Pending {
                    function: function(&objects, item),
                    evidence: format!("its work item stands in the queue at {queue}, which {threads} from"),
                    workers: workers.clone(),
                    is_queued: true,
                });
            }
        }
        Work(work)
    }

    /// The threads that will set `future`, if a thread of a pool will.
    pub(super) fn of(&self, future: Addr) -> Option<&Pending> {
        self.0.get(&future)
    }
}

/// The name of the function of a work item: `fn` up to 3.13, the first of `task` from 3.14 on.
fn function(objects: &Objects<'_>, item: Addr) -> Option<String> {
    let function = objects
        .attribute(item, "fn")
        .or_else(|| objects.sequence(objects.attribute(item, "task")?, 1)?.first().copied())?;
    objects.function_name(function).or_else(|| objects.bound(function).map(|bound| bound.name))
}

/// The items of a `SimpleQueue`.
fn contents(objects: &Objects<'_>, queue: Addr) -> Vec<Addr> {
    let what = || format!("futures in the queue of a pool at {queue}");
    let list = || objects.bounded_sequence(objects.field(queue, LIST)?, QUEUE_ITEMS, what);
    let ring = || {
        let field = |offset| objects.field(queue, offset).map(|word| word.0);
        let (get, capacity, count) = (field(RING_GET)?, field(RING_CAPACITY)?, field(RING_COUNT)?);
        let items = objects.field(queue, RING_ITEMS)?;
        if capacity.is_power_of_two() && capacity > QUEUE_ITEMS {
            limits::met(QUEUE_ITEMS, what(), "items of one queue");
        }
        let fits = capacity.is_power_of_two() && capacity <= QUEUE_ITEMS && count <= capacity && get < capacity;
        let at = |position: u64| objects.pointer(items + (get + position) % capacity * 8);
        fits.then(|| (0..count).filter_map(at).collect())
    };
    list().or_else(ring).unwrap_or_default()
}

//! Futures of thread pools and event loops: which thread runs what will set one, or in whose queue it waits.
//!
//! In: the frames of a process's threads, event loops and their tasks. Out: [`Work`]. The thread that runs its work item has it
//! in `_WorkItem.run`. An item that no thread runs yet stands in the queue of a pool, which the frames of the pool's threads
//! name. An event loop is a pool of one thread: while that is inside of a callback, it runs none of the coroutines that were
//! given to it by `run_coroutine_threadsafe`. The setters of other futures (process pools) are not known here.

use std::collections::{BTreeMap, HashMap};

use super::Facts;
use super::process_pools::POOL;
use super::task_reach::{at_hand, called_at_end};
use super::threading_objects::method;
use crate::image::Addr;
use crate::limits::cpython::QUEUE_ITEMS;
use crate::python::inspect::{Inspector, frames_of};
use crate::python::objects::Objects;

/// The threads that will set a future, or the result of a `multiprocessing.pool.ThreadPool`.
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
    /// The work of thread pools and of event loops.
    pub(super) fn find(facts: &Facts<'_>) -> Work {
        let mut work = Work::of_pools(&facts.inspector);
        work.of_event_loops(facts);
        work
    }

    /// The work that event loops whose threads are inside of callbacks would go on with: coroutines that are to begin, and tasks.
    fn of_event_loops(&mut self, facts: &Facts<'_>) {
        let objects = facts.inspector.objects();
        for event_loop in facts.loops().iter().filter(|one| !one.is_idle && !one.turn.is_null()) {
            let Some((state, _)) = facts.inspector.states(event_loop.tid).next() else { continue };
            let is_future = |object: &Addr| objects.class_name(*object).as_deref() == Some("Future");
            let mut add = |given: Vec<Addr>, function: Option<String>, what: &str| {
                for future in given.into_iter().filter(is_future) {
                    self.0.entry(future).or_insert_with(|| Pending {
                        function: function.clone(),
                        evidence: format!(
                            "{what} of the event loop at {}, whose thread is inside of another callback",
                            event_loop.object
                        ),
                        workers: vec![(state, event_loop.turn)],
                        is_queued: true,
                    });
                }
            };
            for handle in event_loop.runs.iter().flatten() {
                let Some(callback) = objects.member(*handle, "_callback") else { continue };
                let given = at_hand(facts, callback);
                let function = given.iter().find_map(|object| coroutine(facts, *object));
                add(given, function, "what sets it stands in the queue");
            }
            for task in facts.tasks_of(event_loop) {
                let function = task.coroutines.first().and_then(|outer| coroutine(facts, *outer));
                add(called_at_end(facts, task).into_iter().collect(), function, "what sets it is a task");
            }
        }
    }

    /// The work that the threads of pools run, and the content of the queues that they take from.
    fn of_pools(inspector: &Inspector<'_>) -> Work {
        let objects = inspector.objects();
        let mut queues: BTreeMap<Addr, Vec<(usize, Addr)>> = BTreeMap::new();
        let mut work = of_thread_pools(inspector);
        for (state, thread) in inspector.living() {
            for frame in frames_of(thread).filter(|frame| frame.origin.is_stdlib("concurrent.futures.thread")) {
                let Some(open) = inspector.frame(frame) else { continue };
                let item = open.first().filter(|_| method(frame) == "run");
                if let Some((item, future)) = item.and_then(|item| Some((item, objects.attribute(item, "future")?))) {
                    let evidence =
                        format!("the Future at {future} is that of the work item that {} runs", frame.function);
                    let workers = vec![(state, frame.address)];
                    work.insert(
                        future,
                        Pending { function: function(objects, item), evidence, workers, is_queued: false },
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
            for item in contents(objects, queue) {
                let Some(future) = objects.attribute(item, "future") else { continue };
                work.entry(future).or_insert_with(|| Pending {
                    function: function(objects, item),
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

/// The name of a coroutine's function.
fn coroutine(facts: &Facts<'_>, object: Addr) -> Option<String> {
    let is_one = facts.inspector.objects().class_name(object).as_deref() == Some("coroutine");
    let (_, code) = is_one.then(|| facts.inspector.frames().of_generator(object))??;
    facts.inspector.frames().code_name(code)
}

/// The work of `multiprocessing.pool.ThreadPool`: its threads have the number of their job in a variable while they run it, and
/// the thread that takes their answers has the results by these numbers.
fn of_thread_pools(inspector: &Inspector<'_>) -> HashMap<Addr, Pending> {
    let objects = inspector.objects();
    let mut results: HashMap<Addr, HashMap<u64, Addr>> = HashMap::new();
    let mut workers = Vec::new();
    for (state, thread) in inspector.living() {
        for frame in frames_of(thread).filter(|frame| frame.origin.is_stdlib(POOL)) {
            let Some(open) = inspector.frame(frame) else { continue };
            match (method(frame), open.variable("outqueue")) {
                ("_handle_results", Some(answers)) => {
                    let table = open.variable("cache").and_then(|cache| objects.items(cache)).unwrap_or_default();
                    let by_number = |(job, result)| Some((objects.unsigned(job)?, result));
                    results.insert(answers, table.into_iter().filter_map(by_number).collect());
                }
                ("worker", Some(answers)) => workers.push((state, frame, open, answers)),
                _ => {}
            }
        }
    }
    let mut work: HashMap<Addr, Pending> = HashMap::new();
    let mut queues: BTreeMap<Addr, (Addr, Vec<(usize, Addr)>)> = BTreeMap::new();
    for (state, frame, open, answers) in workers {
        if let Some(tasks) = open.variable("inqueue") {
            queues.entry(tasks).or_insert_with(|| (answers, Vec::new())).1.push((state, frame.address));
        }
        let job = open.variable("job").and_then(|job| objects.unsigned(job));
        let Some(result) = job.and_then(|job| results.get(&answers)?.get(&job)) else { continue };
        let one = work.entry(*result).or_insert_with(|| Pending {
            function: open.variable("func").and_then(|function| called_by(objects, function, open.variable("args"))),
            evidence: format!("the result at {result} is that of the job that {} runs", frame.function),
            workers: Vec::new(),
            is_queued: false,
        });
        one.workers.push((state, frame.address));
    }
    for (queue, (answers, workers)) in queues {
        for task in contents(objects, queue) {
            let parts = objects.sequence(task, 4).unwrap_or_default();
            let (Some(job), Some(function)) = (parts.first().and_then(|job| objects.unsigned(*job)), parts.get(2))
            else {
                continue;
            };
            let Some(result) = results.get(&answers).and_then(|table| table.get(&job)) else { continue };
            work.entry(*result).or_insert_with(|| Pending {
                function: called_by(objects, *function, parts.get(3).copied()),
                evidence: format!("its task stands in the queue at {queue}, which the threads of the pool take from"),
                workers: workers.clone(),
                is_queued: true,
            });
        }
    }
    work
}

/// The name of the function that a job calls; `map` has it in the arguments of a function of its own.
fn called_by(objects: &Objects<'_>, function: Addr, arguments: Option<Addr>) -> Option<String> {
    let name = objects.function_name(function).or_else(|| objects.bound(function).map(|bound| bound.name))?;
    let of_map = || objects.sequence(*objects.sequence(arguments?, 1)?.first()?, 1)?.first().copied();
    let inner = of_map().filter(|_| name == "mapstar" || name == "starmapstar");
    inner.and_then(|inner| objects.function_name(inner)).or(Some(name))
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
    objects.bounded_sequence(queue, QUEUE_ITEMS, what).unwrap_or_default()
}

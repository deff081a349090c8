//! `multiprocessing.Pool`: results that no process is left to give.
//!
//! In: waits for results of a pool, and the frames of the pool's own threads and of its workers. Out: the results as
//! [`KnownWakers`], where every task was handed out and no answer is on its way: the pool's threads wait for a task and for an
//! answer, and each worker that it has now waits for its next task. A pool replaces a worker that died and does not hand out its
//! task again. Nor is there one left where the thread that takes the pool's answers has ended, as it does after an answer that
//! cannot be unpickled. That a worker is younger than the pool proves nothing: it may have had its `maxtasksperchild`.

use super::threading_objects::method;
use super::{Cpython, Facts};
use crate::image::Addr;
use crate::limits::cpython::POOL_WORKERS;
use crate::python::PythonFrame;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::Blocked;
use crate::waits::kinds;
use crate::waits::model::{Certainty, KnownWakers, Role};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Classes of results.
const RESULTS: [&str; 4] = ["ApplyResult", "AsyncResult", "MapResult", "IMapIterator"];
pub(super) const POOL: &str = "multiprocessing.pool";

/// Add the results that no process is left to give.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for wait in blocked.waits() {
        let process = blocked.process(wait);
        let Some(facts) = family.facts(process) else { continue };
        let key = &wait.blocked_on.resource.key;
        let is_known = out.known_wakers.iter().any(|one| one.resource == *key);
        if wait.blocked_on.timed || key.kind != kinds::PY_CONDITION || is_known {
            continue;
        }
        let Some(why) = lost(family, facts, blocked, wait) else { continue };
        if let Some(resource) = out.resources.iter_mut().find(|resource| resource.key == *key) {
            resource.role = Some(Role::LostTask);
        }
        out.known_wakers.push(KnownWakers {
            resource: key.clone(),
            why,
            certainty: Certainty::Inferred,
            ruled_out: Vec::new(),
            whole_process: false,
            is_reportable: true,
        });
    }
}

/// How it is known that the result that `wait` waits for will not come.
fn lost(family: &Cpython<'_>, facts: &Facts<'_>, blocked: &Blocked<'_>, wait: &ThreadWait) -> Option<String> {
    let process = blocked.process(wait);
    let objects = facts.inspector.objects();
    let result = result(facts, process.threads.get(wait.thread)?.image.tid)?;
    let cache = objects.attribute(result, "_cache")?;
    if let Some(why) = takes_no_answers(facts, result) {
        return Some(why);
    }
    let workers = at_rest(facts, blocked, wait.process, cache)?;
    let children = objects.bounded_sequence(workers, POOL_WORKERS, || format!("workers of the pool at {workers}"))?;
    let mut readers = 0;
    for child in &children {
        let pid =
            objects.attribute(objects.attribute(*child, "_popen")?, "pid").and_then(|pid| objects.unsigned(pid))?;
        let is_it = |one: &&Process<'_>| {
            one.context.image.ns_pid as u64 == pid && one.context.image.parent == Some(process.context.image.pid)
        };
        let worker = blocked.processes().iter().find(is_it)?;
        readers += usize::from(waits_for_task(family.facts(worker)?, blocked, worker)? == kinds::PIPE);
    }
    let left = objects.attribute(result, "_number_left").and_then(|left| objects.unsigned(left));
    let left = left.filter(|left| *left > 0).map_or("the task".to_owned(), |left| match left {
        1 => "1 part of the work".to_owned(),
        several => format!("{several} parts of the work"),
    });
    let rest = match readers {
        0 => "in a wait for the lock of its pipe, which none has",
        _ => "in a wait for the next task, and no task or answer is on its way",
    };
    let workers = match children.len() {
        1 => "the one worker that there is stands".to_owned(),
        several => format!("the {several} workers that there are stand"),
    };
    (!children.is_empty()).then(|| {
        format!(
            "{left} went to a worker of the pool that ended before it answered: {workers} {rest}, and a pool hands \
             out no task twice"
        )
    })
}

/// How it is known that the pool of a result takes no more answers: no thread has the ident of the one that does.
fn takes_no_answers(facts: &Facts<'_>, result: Addr) -> Option<String> {
    let objects = facts.inspector.objects();
    let handler = objects.attribute(objects.attribute(result, "_pool")?, "_result_handler")?;
    let ident = objects.unsigned(objects.attribute(handler, "_ident")?)?;
    facts.inspector.with_ident(ident).is_none().then(|| {
        format!(
            "the thread that takes the pool's answers has ended (ident {ident:#x}): by an answer that cannot be unpickled, or \
             by the end of the pool"
        )
    })
}

/// The result of a pool that a thread waits for.
fn result(facts: &Facts<'_>, tid: i32) -> Option<Addr> {
    let objects = facts.inspector.objects();
    let frames = facts.inspector.stack(tid).take_while(|frame| is_of_waiting(frame));
    let firsts =
        frames.filter(|frame| frame.origin.is_stdlib(POOL)).filter_map(|frame| facts.inspector.frame(frame)?.first());
    let is_result = |object: &Addr| {
        let class = objects.class_name(*object).unwrap_or_default();
        RESULTS.contains(&class.rsplit('.').next().unwrap_or(&class))
    };
    firsts.into_iter().find(is_result)
}

fn is_of_waiting(frame: &PythonFrame) -> bool {
    frame.origin.is_stdlib(POOL) || frame.origin.is_stdlib("threading")
}

/// The list of workers of the pool with this table of results, whose own threads wait for the next task and the next answer.
fn at_rest(facts: &Facts<'_>, blocked: &Blocked<'_>, process: usize, cache: Addr) -> Option<Addr> {
    let (mut workers, mut waits_for_answers) = (None, false);
    for wait in blocked.waits_of(process) {
        let thread = blocked.process(wait).threads.get(wait.thread)?;
        let kind = wait.blocked_on.resource.key.kind;
        let stack = || facts.inspector.stack(thread.image.tid);
        let Some(frame) = stack().find(|frame| frame.origin.is_stdlib(POOL)) else { continue };
        let variable = |name: &str| facts.inspector.frame(frame)?.variable(name);
        if variable("cache") != Some(cache) || wait.blocked_on.timed {
            continue;
        }
        match method(frame) {
            // The queue is one of C: no frame of Python stands further in.
            "_handle_tasks" if kind == kinds::PY_CONDITION && stack().next().map(method) == Some(method(frame)) => {
                workers = variable("pool")
            }
            "_handle_results" => waits_for_answers |= kind == kinds::PIPE,
            _ => {}
        }
    }
    workers.filter(|_| waits_for_answers)
}

/// The wait of a worker that wants its next task.
fn waits_for_task(facts: &Facts<'_>, blocked: &Blocked<'_>, worker: &Process<'_>) -> Option<&'static kinds::Kind> {
    let main = worker.threads.iter().find(|thread| thread.image.tid == worker.context.image.pid)?;
    let stack: Vec<&PythonFrame> = facts.inspector.stack(main.image.tid).collect();
    let at = stack.iter().position(|frame| frame.origin.is_stdlib(POOL) && method(frame) == "worker")?;
    let get = stack.get(at.checked_sub(1)?)?;
    let wants_one = get.origin.is_stdlib("multiprocessing.queues") && method(get) == "get";
    let waits = blocked.waits_of(worker.context.process).iter();
    let wait =
        waits.filter(|wait| wait.thread == main.position && wants_one).map(|wait| wait.blocked_on.resource.key.kind);
    wait.into_iter().find(|kind| **kind == *kinds::PIPE || **kind == *kinds::MP_LOCK)
}

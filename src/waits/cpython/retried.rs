//! Waits with a time-out that are made again and again: whether code of Python asks for the same thing for ever.
//!
//! In: the purpose of a wait, the frames of its thread. Out: [`Retried`], where the function that waits does nothing
//! after each time-out but ask again. The wait then ends as one without a time-out does, or by a change that the loop
//! asks for besides. One sample shows it by code alone, so it is no more than inferred; samples that are further
//! apart see it begin anew ([`crate::run`]).

use super::lock_object::{LockObject, What};
use super::threading_objects::{Purpose, method};
use super::{Facts, HolderRule};
use crate::image::Addr;
use crate::limits::cpython::LIBRARY_FRAMES;
use crate::python::PythonFrame;
use crate::python::inspect::Inspector;
use crate::python::retries::{self, Change, Loop, TimeOut, TimedCall};
use crate::waits::kinds;

/// Classes of the standard library, their methods that take a time-out, what these do when it is up, and the methods
/// that only ask.
type Row = (&'static [&'static str], &'static str, TimeOut, &'static [(&'static str, bool)]);

/// By the classes in Lib/threading.py, Lib/queue.py, Lib/concurrent/futures/_base.py and Lib/multiprocessing/pool.py,
/// 3.8 to 3.13. A Barrier is broken by its time-out.
const CLASSES: &[Row] = &[
    (&["Event"], "wait", TimeOut::False, &[("is_set", false)]),
    (&["Condition"], "wait", TimeOut::False, &[]),
    (&["Semaphore", "BoundedSemaphore"], "acquire", TimeOut::False, &[]),
    (QUEUES, "get", TimeOut::Raises("queue", "Empty"), &[("empty", true)]),
    (QUEUES, "put", TimeOut::Raises("queue", "Full"), &[("full", true)]),
    (&["Future"], "result", TimeOut::Raises("concurrent.futures._base", "TimeoutError"), &[("done", false)]),
    (&["Future"], "exception", TimeOut::Raises("concurrent.futures._base", "TimeoutError"), &[("done", false)]),
    (RESULTS, "get", TimeOut::Raises("multiprocessing.context", "TimeoutError"), &[("ready", false)]),
    (RESULTS, "wait", TimeOut::Nothing, &[("ready", false)]),
];
const QUEUES: &[&str] = &["Queue", "LifoQueue", "PriorityQueue"];
const RESULTS: &[&str] = &["ApplyResult", "MapResult", "AsyncResult"];

/// A wait with a time-out that is made again after each.
pub(super) struct Retried {
    pub(super) evidence: String,
    /// The changes that would end the loop around it.
    pub(super) until: Vec<Change>,
    /// The object that it waits for.
    object: Addr,
}

impl Retried {
    /// Whether the collector, which may run while the loop does, could end it by a finaliser.
    pub(super) fn may_be_ended_by_collector(&self, facts: &Facts<'_>) -> bool {
        facts.finalisers().iter().any(|finaliser| {
            let reached = &finaliser.reached;
            let changes = |change: &Change| matches!(change, Change::Of(object) if reached.has(*object));
            reached.has(self.object) || self.until.iter().any(changes)
        })
    }
}

/// Whether a wait with a time-out is made again for ever, or until something changes.
pub(super) fn retried(
    inspector: &Inspector<'_>,
    tid: i32,
    purpose: &Purpose,
    behind: Option<&LockObject>,
) -> Option<Retried> {
    let stack: Vec<&PythonFrame> = inspector.stack(tid).collect();
    let mut inner = stack.iter().take(LIBRARY_FRAMES);
    let call_at = purpose.frame.and_then(|address| inner.position(|frame| frame.address == address))?;
    let (call, caller) = match behind.map(|behind| (&behind.what, behind.object)) {
        // Code in C: the innermost function is the one that calls it.
        Some((What::Lock | What::RecursiveLock, object)) if is_lock(purpose) => {
            (timed(object, "acquire", TimeOut::False, &[("locked", true)]), call_at)
        }
        Some((What::SimpleQueue, object)) => {
            (timed(object, "get", TimeOut::Raises("_queue", "Empty"), &[("empty", true)]), call_at)
        }
        _ => (of_method(inspector, purpose, stack.get(call_at)?)?, call_at + 1),
    };
    let put = stack.get(call_at).filter(|_| call.method == "put").and_then(|frame| inspector.frame(frame));
    let item = put.and_then(|frame| frame.variable("item"));
    let Loop { frame, until } = retries::around(inspector, stack.get(caller..)?, &call, item)?;
    // Only for waits that no holder ends is it asked who could change these things.
    let is_asked = matches!(purpose.rule, Some(HolderRule::Wakers { .. }));
    (until.is_empty() || is_asked).then(|| {
        let function = &frame.function;
        let but = if until.is_empty() { "" } else { ", as long as nothing changes that the loop asks for" };
        let evidence = format!(
            "after each time-out {function} does nothing but call {} of the same object again{but}",
            call.method
        );
        Retried { evidence, until, object: call.object }
    })
}

fn is_lock(purpose: &Purpose) -> bool {
    purpose.kind == kinds::PY_LOCK || purpose.kind == kinds::PY_RLOCK
}

fn timed(object: Addr, method: &'static str, time_out: TimeOut, queries: &'static [(&'static str, bool)]) -> TimedCall {
    TimedCall { object, method, time_out, queries }
}

/// The call that a frame of the standard library's runs.
fn of_method(inspector: &Inspector<'_>, purpose: &Purpose, frame: &PythonFrame) -> Option<TimedCall> {
    if !frame.origin.waits_for_caller() {
        return None;
    }
    let object = inspector.frame(frame)?.first()?;
    if purpose.kind == kinds::PY_THREAD {
        let is_join = method(frame) == "join";
        return is_join.then(|| timed(object, "join", TimeOut::Nothing, &[("is_alive", true)]));
    }
    let class = inspector.objects().class_name(object)?;
    let class = class.rsplit('.').next().unwrap_or(&class);
    let row = CLASSES.iter().find(|(classes, name, ..)| classes.contains(&class) && *name == method(frame))?;
    Some(timed(object, row.1, row.2, row.3))
}

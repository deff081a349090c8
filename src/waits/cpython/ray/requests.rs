//! The target of a thread's wait in `ray.get` and `ray.wait`: results of tasks, by the references that it passed.
//!
//! In: the frames of a thread. Out: a [`Request`] with the ids of the tasks. A task is done once, so a thread that waits for the same
//! task in two looks has waited all the time. Whether a result of several is there already is not known here.

use super::super::Facts;
use super::super::dask::{module_of, place};
use super::super::threading_objects::method;
use super::ids::{self, Wanted};
use crate::image::{Addr, Gap};
use crate::limits::cpython::{GATHERED_FUTURES, LIBRARY_FRAMES};
use crate::python::PythonFrame;
use crate::python::inspect::Inspector;
use crate::waits::cluster::ClusterThing;
use crate::waits::thread::{Process, ThreadView};

/// Where `get` and `wait` are.
const WORKER: &str = "ray._private.worker";
/// The store into which the word comes that a task is done; a result whose bytes are on their way is awaited elsewhere
/// (src/ray/core_worker/store_provider/memory_store).
const STORE: &str = "ray::core::CoreWorkerMemoryStore::Get";
/// The time that `ray.wait` uses for a missing time-out, in seconds.
const NO_TIME: u64 = 1_000_000;

/// A function of Ray's that waits: its name, and the variables with the references and the time.
const CALLS: [(&str, &str); 2] = [("get_objects", "object_refs"), ("wait", "ray_waitables")];

/// One request of a thread.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// Results, or one of several.
    pub(super) what: ClusterThing,
    pub(super) wanted: Vec<Wanted>,
    /// It gives up by itself.
    pub(super) timed: bool,
    /// It is lockscope's own request, made for the current sample.
    pub(super) is_of_the_look: bool,
    /// There is one task, and the thread waits for the word that it is done.
    pub(super) is_undone: bool,
    /// The frame of the call that a person knows.
    pub(super) frame: Option<Addr>,
    /// The line of the program.
    pub(super) place: String,
    pub(super) gap: Option<Gap>,
}

/// The request that a thread waits for, if it does.
pub(super) fn find(process: &Process<'_>, facts: &Facts<'_>, thread: &ThreadView<'_>) -> Option<Request> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let stack: Vec<&PythonFrame> = inspector.stack(thread.image.tid).take(4 * LIBRARY_FRAMES).collect();
    let inner = *stack.first()?;
    if !inner.origin.is_package(WORKER) {
        return None;
    }
    let (call, references) = CALLS.iter().find(|(name, _)| method(inner) == *name)?;
    let open = inspector.frame(inner)?;
    let what = || "results of tasks that a thread waits for".to_owned();
    let list = open.variable(references).and_then(|list| objects.bounded_sequence(list, GATHERED_FUTURES, what));
    let list = list.unwrap_or_default();
    let memory = process.memory();
    let wanted: Vec<Wanted> = list.iter().filter_map(|object| ids::wanted(memory, objects, *object)).collect();
    let gap = (wanted.is_empty() || wanted.len() < list.len()).then(|| {
        Gap::new(
            format!("which results {} waits for in Ray", thread.describe()),
            "its references do not have the shape of the versions that are known",
        )
    });
    let number = |name: &str| open.variable(name).and_then(|value| objects.unsigned(value));
    let timeout = open.variable("timeout").filter(|value| !objects.is_none(*value));
    let timed = timeout.is_some_and(|value| objects.unsigned(value) != Some(NO_TIME) || *call == "get_objects");
    let is_any = *call == "wait" && number("num_returns") != Some(list.len() as u64);
    let own = stack.iter().take_while(|frame| is_own(inspector, frame)).count();
    let program = stack.get(own);
    let waits_for_word = || {
        let frames = thread.frames();
        frames.iter().filter_map(|frame| frame.function.as_deref()).any(|function| function.starts_with(STORE))
    };
    Some(Request {
        what: if is_any { ClusterThing::Wait } else { ClusterThing::Result },
        is_undone: list.len() == 1 && wanted.len() == 1 && waits_for_word(),
        wanted,
        timed,
        is_of_the_look: program.is_some_and(|frame| is_of_the_look(inspector, frame)),
        frame: stack.get(own.saturating_sub(1)).map(|frame| frame.address),
        place: program.map(|frame| place(frame)).unwrap_or_default(),
        gap,
    })
}

/// Whether a frame is Ray's own, by the module that its code is of.
pub(super) fn is_own(inspector: &Inspector<'_>, frame: &PythonFrame) -> bool {
    module_of(inspector, frame).is_some_and(|module| module.split('.').next() == Some("ray"))
}

/// Whether it is of the part of lockscope that works inside of Ray's processes.
pub(super) fn is_of_the_look(inspector: &Inspector<'_>, frame: &PythonFrame) -> bool {
    module_of(inspector, frame).as_deref() == Some("lockscope.ray")
}

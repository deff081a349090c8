//! The target of a thread's wait in `distributed.utils.sync`: all blocking calls of Dask run a coroutine in the event
//! loop and wait there for an `Event`.
//!
//! In: the frames of a thread. Out: a [`Request`]: the coroutine's method and object, or the scheduler's operation, say what it is;
//! names are read from these. The task of the event loop has a number that no other has, and an acquire draws a lease's name: two
//! looks that see the same ones saw the same request. It says nothing of who could answer.

use super::super::Facts;
use super::super::tasks::{self, chain};
use super::super::threading_objects::method;
use super::{class_of, is_own, key_text, module_of, place};
use crate::image::{Addr, Gap};
use crate::limits::cpython::{GATHERED_FUTURES, LIBRARY_FRAMES};
use crate::python::PythonFrame;
use crate::python::objects::Objects;
use crate::waits::cluster::ClusterThing;

/// Where `sync` is.
const UTILITIES: &str = "distributed.utils";

/// One request of a thread to the cluster.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// The kind of thing that it asks for.
    pub(super) what: ClusterThing,
    /// The names of the awaited objects, or the keys of tasks.
    pub(super) names: Vec<String>,
    /// A mark that no other request has.
    pub(super) mark: String,
    /// It gives up by itself.
    pub(super) timed: bool,
    /// It is lockscope's own request, made for the current sample.
    pub(super) is_of_the_look: bool,
    /// It has been answered.
    pub(super) is_over: bool,
    /// The frame of the call that a person knows.
    pub(super) frame: Option<Addr>,
    /// The line of the program.
    pub(super) place: String,
    pub(super) evidence: String,
    pub(super) gap: Option<Gap>,
}

/// The coroutine's purpose.
struct Wanted {
    what: ClusterThing,
    names: Vec<String>,
    gap: Option<Gap>,
}

/// The request that a thread waits for, if it does.
pub(super) fn find(facts: &Facts<'_>, tid: i32) -> Option<Request> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let stack: Vec<&PythonFrame> = inspector.stack(tid).take(4 * LIBRARY_FRAMES).collect();
    let inner = *stack.first()?;
    if !inner.origin.is_stdlib("threading") || method(inner) != "wait" {
        return None;
    }
    let at = stack
        .iter()
        .take(LIBRARY_FRAMES)
        .position(|frame| frame.origin.is_package(UTILITIES) && method(frame) == "sync")?;
    let between = stack.get(..at)?;
    if !between.iter().all(|frame| frame.origin.is_stdlib("threading") || frame.origin.is_package(UTILITIES)) {
        return None;
    }
    let open = inspector.frame(stack[at])?;
    let variable = |name: &str| open.variable(name);
    let (function, event) = (variable("func")?, variable("e")?);
    let is_over = objects.attribute(event, "_flag").and_then(|flag| objects.unsigned(flag)) == Some(1);
    let arguments = variable("args").and_then(|tuple| objects.sequence(tuple, 8)).unwrap_or_default();
    let named = variable("kwargs").and_then(|dict| objects.items(dict)).unwrap_or_default();
    let argument =
        |name: &str| named.iter().find(|(key, _)| objects.text(*key).as_deref() == Some(name)).map(|(_, value)| *value);
    let given = |value: Option<Addr>| value.is_some_and(|value| !objects.is_none(value));
    let wanted = wanted(objects, function, &arguments, &argument, || {
        // The outermost of Dask's own methods: `Client.run`.
        let own = stack.get(at..)?.iter().take_while(|frame| is_own(inspector, frame));
        own.last().map(|frame| frame.function.to_string())
    });
    let own = stack.get(at..)?.iter().take_while(|frame| is_own(inspector, frame)).count();
    let program = stack.get(at + own);
    let mark = mark(facts, variable("future"), event);
    let told = format!("it is in distributed.utils.sync for {}", mark.1);
    Some(Request {
        what: wanted.what,
        names: wanted.names,
        mark: mark.0,
        timed: given(variable("timeout")) || given(argument("timeout")),
        is_of_the_look: program.and_then(|frame| module_of(inspector, frame)).as_deref() == Some("lockscope.dask"),
        is_over,
        frame: stack.get(at + own.saturating_sub(1)).map(|frame| frame.address),
        place: program.map(|frame| place(frame)).unwrap_or_default(),
        evidence: told,
        gap: wanted.gap,
    })
}

/// The purpose of the function that `sync` runs.
fn wanted(
    objects: &Objects<'_>,
    function: Addr,
    arguments: &[Addr],
    argument: &dyn Fn(&str) -> Option<Addr>,
    call: impl Fn() -> Option<String>,
) -> Wanted {
    let one = |what: ClusterThing, name: Option<String>| {
        let gap = name.is_none().then(|| {
            Gap::new(
                format!("the name of a {}", what.kind_of_dask().noun),
                "its object does not have the shape of the versions that are known",
            )
        });
        Wanted { what, names: name.into_iter().collect(), gap }
    };
    let name_of = |object: Addr| objects.member(object, "name").and_then(|name| key_text(objects, name));
    if let Some(bound) = objects.bound(function) {
        let object = bound.object;
        let class = class_of(objects, object);
        match bound.name.as_str() {
            "_acquire" if objects.member(object, "_leases").is_some() => {
                let most = objects.member(object, "max_leases").and_then(|most| objects.unsigned(most));
                let is_lock = most == Some(1) && class == "Lock";
                let what = if is_lock { ClusterThing::Lock } else { ClusterThing::Semaphore };
                return one(what, name_of(object));
            }
            "_result" | "_exception" | "_traceback" => {
                let key = objects.member(object, "key").and_then(|key| key_text(objects, key));
                return one(ClusterThing::Result, key);
            }
            "_gather" => return results(objects, arguments.first().copied()),
            "_get" | "_put" if class == "Queue" => return one(ClusterThing::Queue, name_of(object)),
            "_get" if class == "Variable" => return one(ClusterThing::Variable, name_of(object)),
            _ => {}
        }
    } else if objects.function_name(function).as_deref() == Some("_wait") {
        return results(objects, arguments.first().copied());
    } else if let Some(operation) = operation(objects, function) {
        let name = || argument("name").and_then(|name| key_text(objects, name));
        match operation.as_str() {
            "event_wait" => return one(ClusterThing::Event, name()),
            // Before locks were semaphores (from distributed 2024.7.1 on they are).
            "lock_acquire" => return one(ClusterThing::Lock, name()),
            _ => {}
        }
    }
    Wanted { what: ClusterThing::Answer, names: call().into_iter().collect(), gap: None }
}

/// The results of tasks: of those futures that have none yet.
fn results(objects: &Objects<'_>, futures: Option<Addr>) -> Wanted {
    let what = || "results of tasks that a thread gathers".to_owned();
    let list = futures.and_then(|list| objects.bounded_sequence(list, GATHERED_FUTURES, what));
    let list = list.or_else(|| futures.map(|future| vec![future])).unwrap_or_default();
    let key = |future: Addr| {
        let state = objects.member(future, "_state")?;
        let status = objects.member(state, "status").and_then(|status| objects.text(status))?;
        let key = objects.member(future, "key").and_then(|key| key_text(objects, key))?;
        Some((status == "pending", key))
    };
    let known: Vec<(bool, String)> = list.iter().filter_map(|future| key(*future)).collect();
    let gap = (known.len() < list.len() || list.is_empty()).then(|| {
        Gap::new(
            "which results a thread gathers",
            "they lie in containers that are not opened, or are of no known shape",
        )
    });
    let names = known.into_iter().filter(|(is_pending, _)| *is_pending).map(|(_, key)| key).collect();
    Wanted { what: ClusterThing::Result, names, gap }
}

/// The operation that a call to the scheduler requests: `send_recv_from_rpc` has it in its closure.
fn operation(objects: &Objects<'_>, function: Addr) -> Option<String> {
    if objects.function_name(function)? != "send_recv_from_rpc" {
        return None;
    }
    let brings = objects.function(function)?.brings;
    let cells = brings.into_iter().filter_map(|part| objects.sequence(part, 8)).flatten();
    cells
        .filter(|cell| objects.class_name(*cell).as_deref() == Some("cell"))
        .find_map(|cell| objects.text(objects.out_of_cell(cell)))
}

/// A unique mark of the request, and the same for people: the number of the task that runs the coroutine, and the lease
/// that it requests.
fn mark(facts: &Facts<'_>, future: Option<Addr>, event: Addr) -> (String, String) {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let task = future.and_then(|task| tasks::of_object(inspector, task));
    let Some((name, coroutine)) = task else {
        return (format!("event {event}"), format!("the Event at {event}"));
    };
    let frames = inspector.frames();
    let asked = chain(inspector, coroutine).into_iter().find_map(|coroutine| {
        let (frame, code) = frames.of_generator(coroutine)?;
        let lease = frames.at(frame, code)?.variable("lease_id")?;
        objects.text(lease)
    });
    match asked {
        Some(lease) => (format!("{name} {lease}"), format!("{name}, which asks for the lease {lease}")),
        None => (format!("{name} {event}"), name),
    }
}

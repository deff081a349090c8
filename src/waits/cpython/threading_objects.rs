//! The purpose of a Python lock: the queue, event or thread whose method waits, and the program's name for it.
//!
//! In: the object that a thread sleeps on, its Python frames. Out: [`Purpose`]: kind, address and label of the resource,
//! and the frame of the call that a person knows. Classes of the standard library are known by their name and by the file
//! of the method that runs; anything else is a plain lock.

use super::lock_object::{LockObject, What, noun};
use super::{Facts, HolderRule, multiprocessing};
use crate::image::Addr;
use crate::limits::cpython::{LIBRARY_FRAMES, POOL_WORKERS};
use crate::python::PythonFrame;
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;
use crate::waits::kinds::{self, Kind};
use crate::waits::label::Label;
use crate::waits::model::{Completion, Role};
use crate::waits::thread::ThreadView;

/// Classes of the standard library that are waited for as a whole.
const THINGS: &[&str] = &[
    "Condition",
    "Event",
    "Semaphore",
    "BoundedSemaphore",
    "Barrier",
    "Queue",
    "LifoQueue",
    "PriorityQueue",
    "JoinableQueue",
    "Future",
    "ApplyResult",
    "MapResult",
    "AsyncResult",
    "IMapIterator",
];

/// The purpose of a wait.
#[derive(Debug, Clone)]
pub(super) struct Purpose {
    pub(super) kind: &'static Kind,
    pub(super) address: Addr,
    pub(super) label: Label,
    /// Words read from it, for people.
    pub(super) state: Vec<(&'static str, i64)>,
    /// Its role for the verdict.
    pub(super) role: Option<Role>,
    /// How its holder is found.
    pub(super) rule: Option<HolderRule>,
    /// The frame of the call.
    pub(super) frame: Option<Addr>,
    pub(super) evidence: Vec<String>,
    /// One of several holders is enough.
    pub(super) needs_any: bool,
}

/// The name of a function without the class.
pub(super) fn method(frame: &PythonFrame) -> &str {
    frame.function.rsplit('.').next().unwrap_or(&frame.function)
}

/// The purpose of the wait of `thread`, given the object that it sleeps on, if that is known.
pub(super) fn purpose(facts: &Facts<'_>, thread: &ThreadView<'_>, behind: Option<&LockObject>) -> Option<Purpose> {
    let inspector = &facts.inspector;
    let tid = thread.image.tid;
    let stack: Vec<&PythonFrame> = inspector.stack(tid).take(4 * LIBRARY_FRAMES).collect();
    let inner = *stack.first()?;
    if let Some(behind) = behind.filter(|behind| behind.what != What::Lock) {
        return of_object(inspector, &stack, behind);
    }
    if inner.origin.is_stdlib("threading") && method(inner) == "wait" {
        return condition(facts, &stack);
    }
    if &*inner.file == "<frozen importlib._bootstrap>" && method(inner) == "acquire" {
        return import_lock(inspector, inner);
    }
    let behind = behind?;
    if let Some(thread) = inspector.joinable().get(&behind.object) {
        let objects = inspector.objects();
        let ident = objects.attribute(*thread, "_ident").and_then(|ident| objects.unsigned(ident)).unwrap_or(0);
        let evidence = format!("the lock at {} is the _tstate_lock of the Thread at {thread}", behind.object);
        return Some(join(inspector, &stack, ident, behind.object, vec![evidence]));
    }
    of_object(inspector, &stack, behind)
}

/// A lock or another object that is itself what is waited for.
fn of_object(inspector: &Inspector<'_>, stack: &[&PythonFrame], behind: &LockObject) -> Option<Purpose> {
    let (kind, rule) = match &behind.what {
        What::Lock => (kinds::PY_LOCK, Some(HolderRule::Lock)),
        What::File(ident) => (kinds::PY_LOCK, Some(HolderRule::FileOwner(*ident))),
        What::RecursiveLock | What::Recursive(_) => (kinds::PY_RLOCK, Some(HolderRule::OwnerField)),
        What::SimpleQueue => (kinds::PY_CONDITION, Some(HolderRule::Wakers { object: None, until: Vec::new() })),
        What::SharedLock => (kinds::MP_LOCK, Some(HolderRule::Multiprocessing)),
        What::Other(_) | What::Mutex => (kinds::PY_MUTEX, None),
        What::End(ident) => {
            return Some(join(inspector, stack, *ident, behind.object, Vec::new()));
        }
    };
    let role = match behind.what {
        What::Recursive(_) => Some(Role::ExtensionLock),
        What::SimpleQueue => Some(Role::Completed(Completion::Put)),
        _ => None,
    };
    // The program has the wrapper of `multiprocessing.synchronize`.
    let name = called(inspector, stack, behind.object);
    let name = name.as_deref().map(|name| name.strip_suffix("._semlock").unwrap_or(name));
    let noun = match behind.what {
        What::SharedLock if multiprocessing::is_semaphore(inspector, behind.object) => "multiprocessing semaphore",
        _ => noun(&behind.what),
    };
    Some(Purpose {
        kind,
        address: behind.object,
        label: Label::from(noun).named(name),
        state: Vec::new(),
        role,
        rule,
        // Code in C takes a mutex of its own: the innermost function of Python only called it.
        frame: stack.first().filter(|_| behind.what != What::Mutex).map(|frame| frame.address),
        evidence: Vec::new(),
        needs_any: false,
    })
}

/// The name that the program has for an object; else that of the library's functions that wait.
fn called(inspector: &Inspector<'_>, stack: &[&PythonFrame], object: Addr) -> Option<String> {
    let library = stack.iter().take(LIBRARY_FRAMES).take_while(|frame| frame.origin.waits_for_caller()).count();
    let (inside, outside) = stack.split_at(library);
    let name = |frames: &[&PythonFrame]| inspector.name_of(object, frames.iter().copied());
    name(outside).or_else(|| name(inside))
}

/// Inside `Condition.wait`: the condition, or what uses it.
fn condition(facts: &Facts<'_>, stack: &[&PythonFrame]) -> Option<Purpose> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let condition = inspector.frame(stack[0])?.first()?;
    let mut thing = (condition, stack[0], "Condition".to_owned());
    let library = stack.iter().take(LIBRARY_FRAMES).take_while(|frame| frame.origin.waits_for_caller());
    for frame in library.clone() {
        let Some(first) = inspector.frame(frame).and_then(|frame| frame.first()) else { continue };
        let Some(class) = objects.class_name(first) else { continue };
        let class = class.rsplit('.').next().unwrap_or(&class);
        if THINGS.contains(&class) {
            thing = (first, frame, class.to_owned());
        }
    }
    let (object, frame, class) = thing;
    let outside = stack.iter().skip(library.count()).copied();
    let label = Label::from(class.as_str()).named(inspector.name_of(object, outside));
    let number = |name: &str| objects.attribute(object, name).and_then(|value| objects.unsigned(value));
    let mut purpose = Purpose {
        kind: kinds::PY_CONDITION,
        address: condition,
        label,
        state: Vec::new(),
        role: ended_by(&class, method(frame)).map(Role::Completed),
        rule: Some(HolderRule::Wakers { object: Some(object), until: Vec::new() }),
        frame: Some(frame.address),
        evidence: vec![match object == condition {
            true => format!("it is in {} of the {class} at {object}", frame.function),
            false => {
                format!("it is in {} of the {class} at {object}, whose condition is at {condition}", frame.function)
            }
        }],
        needs_any: false,
    };
    let detail = match class.as_str() {
        "Queue" | "LifoQueue" | "PriorityQueue" | "JoinableQueue" => {
            let held = objects.attribute(object, "queue").and_then(|queue| objects.field(queue, 0)).map(|size| size.0);
            let most = number("maxsize").filter(|most| *most > 0);
            match (method(frame), held, most) {
                ("join", ..) => number("unfinished_tasks").map(|left| {
                    purpose.role = Some(Role::UnfinishedItems { count: left });
                    format!("{left} unfinished")
                }),
                (_, Some(0), _) => Some("empty".into()),
                (_, Some(held), Some(most)) if held >= most => Some(format!("maxsize {most}, full")),
                (_, Some(held), _) => Some(format!("{held} in it")),
                _ => None,
            }
        }
        "Semaphore" | "BoundedSemaphore" => number("_value").map(|value| format!("value {value}")),
        "Barrier" => number("_parties").zip(number("_count")).map(|(parties, here)| {
            purpose.state.extend([("parties", parties as i64), ("waiting", here as i64)]);
            format!("{here} of {parties} parties here")
        }),
        "ApplyResult" | "MapResult" | "AsyncResult" | "IMapIterator" if facts.work().of(object).is_none() => {
            replaced_workers(objects, object)
        }
        "Future" | "ApplyResult" | "MapResult" | "AsyncResult" | "IMapIterator" => {
            purpose.rule = Some(HolderRule::Future(object));
            purpose.role = Some(Role::Future);
            facts.work().of(object).map(|pending| {
                purpose.needs_any = pending.is_queued;
                if pending.is_queued {
                    purpose.role = Some(Role::QueuedFuture);
                }
                purpose.evidence.push(pending.evidence.clone());
                let function = pending.function.as_deref().unwrap_or("a task");
                purpose.label.function = Some(function.to_owned());
                if pending.is_queued { "queued".into() } else { "running".into() }
            })
        }
        _ => None,
    };
    purpose.label.detail = detail;
    Some(purpose)
}

/// What a pool of processes whose workers need not end says of those that did, where they are many times as many as it has.
fn replaced_workers(objects: &Objects<'_>, result: Addr) -> Option<String> {
    const TIMES: u64 = 10;
    let pool = objects.attribute(result, "_pool")?;
    let size = objects.unsigned(objects.attribute(pool, "_processes")?)?;
    let workers = objects.sequence(objects.attribute(pool, "_pool")?, POOL_WORKERS)?;
    let number = |worker: &Addr| {
        objects.unsigned(*objects.sequence(objects.attribute(*worker, "_identity")?, POOL_WORKERS)?.last()?)
    };
    let last = workers.iter().filter_map(number).max()?;
    let may_end = !objects.is_none(objects.attribute(pool, "_maxtasksperchild")?);
    let many = last > size * TIMES && !may_end;
    many.then(|| format!("its pool of {size} has come to worker {last}: they end as soon as they start"))
}

/// The act that ends a wait in this method of a class of the standard library.
fn ended_by(class: &str, method: &str) -> Option<Completion> {
    match class {
        "Queue" | "LifoQueue" | "PriorityQueue" | "JoinableQueue" if method == "put" => Some(Completion::Get),
        "Queue" | "LifoQueue" | "PriorityQueue" | "JoinableQueue" => Some(Completion::Put),
        "Event" => Some(Completion::Set),
        "Condition" => Some(Completion::Notify),
        "Semaphore" | "BoundedSemaphore" => Some(Completion::Release),
        "Barrier" => Some(Completion::Arrive),
        "ApplyResult" | "MapResult" | "AsyncResult" | "IMapIterator" => Some(Completion::Resolve),
        _ => None,
    }
}

/// Inside `_ModuleLock.acquire`.
fn import_lock(inspector: &Inspector<'_>, inner: &PythonFrame) -> Option<Purpose> {
    let objects = inspector.objects();
    let lock = inspector.frame(inner)?.first()?;
    if objects.class_name(lock)?.rsplit('.').next() != Some("_ModuleLock") {
        return None;
    }
    let name = objects.attribute(lock, "name").and_then(|name| objects.text(name));
    let owner = objects.attribute(lock, "owner").and_then(|owner| objects.unsigned(owner));
    Some(Purpose {
        kind: kinds::PY_IMPORT_LOCK,
        address: lock,
        label: match name {
            Some(name) => Label::from("import lock of module").named(Some(name)),
            None => "import lock".into(),
        },
        state: Vec::new(),
        role: None,
        rule: Some(HolderRule::NotedOwner(owner)),
        frame: Some(inner.address),
        evidence: vec![format!("it is in {} of the _ModuleLock at {lock}", inner.function)],
        needs_any: false,
    })
}

/// The end of the thread with this ident: the lock that its `Thread` keeps until then (up to 3.12), or its handle.
fn join(
    inspector: &Inspector<'_>,
    stack: &[&PythonFrame],
    ident: u64,
    address: Addr,
    evidence: Vec<String>,
) -> Purpose {
    let library = stack.iter().take(LIBRARY_FRAMES).take_while(|frame| frame.origin.is_stdlib("threading"));
    let name = inspector.with_ident(ident).and_then(|state| state.name.as_deref());
    Purpose {
        kind: kinds::PY_THREAD,
        address,
        label: Label::from(if name.is_some() { "thread" } else { "a thread" }).named(name),
        state: Vec::new(),
        role: None,
        rule: Some(HolderRule::End(ident)),
        frame: library.last().or(stack.first()).map(|frame| frame.address),
        evidence,
        needs_any: false,
    }
}

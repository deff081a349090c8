//! The reach of a task of an event loop: it can run its code, and at its end it calls the registered callbacks.
//!
//! In: a task. Out: its reach, and the [`CodeAtHand`] of its own coroutines. Whether it could end another wait by that is found
//! in [`task_waits`](super::task_waits). A group cancels its other tasks when one fails, and only then. So a task whose code never
//! raises by design reaches the others of its group by its own code alone.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use super::Facts;
use super::tasks::Task;
use crate::image::Addr;
use crate::limits::cpython::TASKS_WAITING;
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;
use crate::python::reach::{self, Reached};
use crate::waits::kinds;
use crate::waits::model::TakenAt;

/// Names by which code reaches each task of a loop, or ends the loop or the process.
const ENDS_ALL: &[&str] = &[
    "all_tasks",
    "_all_tasks",
    "stop",
    "kill",
    "raise_signal",
    "interrupt_main",
    "abort",
    "_exit",
    "exit",
    "SystemExit",
    "KeyboardInterrupt",
];
/// Those of them by which code has every task of a loop at hand.
pub(super) const NAMES_TASKS: &[&str] = &["all_tasks", "_all_tasks"];
/// Those of them that any thread may use.
const ENDS_PROCESS: &[&str] = &["kill", "pthread_kill", "raise_signal", "interrupt_main", "abort", "_exit"];
/// Names by which code ends a task that it has at hand, or calls into the loop that it has at hand.
const ENDS: &[&str] = &["cancel", "throw", "get_coro", "call_soon_threadsafe", "run_coroutine_threadsafe", "stop"];

/// The attribute in which both ends of a memory channel of trio and anyio have what they share.
pub(super) const SHARED_BY_ENDS: &str = "_state";
/// Calls that raise in the code that makes them when a time is over.
const RAISES: &[&str] = &["fail_after", "fail_at", "timeout", "timeout_at", "wait_for"];
/// Callbacks for the end of a task by which a library ends others if this one failed, and only counts it otherwise: of
/// `TaskGroup`, `gather`, and anyio's groups.
const TELLS_OF_FAILURE: &[&str] = &["_on_task_done", "_done_callback", "task_done"];

/// The callbacks for the end of a task of C, behind the head: the first, and the list of the others with their contexts.
const FIRST_CALLBACK: u64 = 8;
const CALLBACKS: u64 = 24;

/// Whether code may end by an exception, as far as its design shows: it names one, has a limit, or uses a descriptor whose other
/// end may close.
pub(super) fn may_fail(reached: &Reached) -> bool {
    reached.anything.is_some()
        || reached.may_raise()
        || reached.has_some_descriptor()
        || RAISES.iter().any(|name| reached.uses(name))
}

/// The name by which code reaches every task, if it uses one.
pub(super) fn ends_all(reached: &Reached) -> Option<&'static str> {
    reached.names_or_has(ENDS_ALL)
}

/// Whether code ends the process, or sends a signal to a thread of it.
pub(super) fn ends_process(reached: &Reached) -> bool {
    reached.names_or_has(ENDS_PROCESS).is_some()
}

/// Whether code uses a name by which a task or a loop is ended.
pub(super) fn names_end(reached: &Reached) -> bool {
    reached.names_or_has(ENDS).is_some()
}

/// Whether callbacks or coroutines have a task at hand and may end it, by such a name or by a computed one. The reach of a whole
/// thread is too wide for the latter: some code in it always computes names.
pub(super) fn may_end(reached: &Reached, one: Addr) -> bool {
    reached.has(one) && (names_end(reached) || reached.computes_names())
}

/// A task and its reach, which is found when it is first needed.
pub(super) struct OfTask<'f> {
    facts: &'f Facts<'f>,
    pub(super) task: &'f Task,
    reached: OnceCell<Reached>,
    code: OnceCell<Vec<CodeAtHand>>,
}

/// One of the program's coroutines that a task is in.
pub(super) struct CodeAtHand {
    pub(super) function: String,
    /// The names of attributes and globals that its code uses.
    pub(super) names: Vec<String>,
    /// Where it called `acquire()`, if it is in a protected range of code that calls `release()`, too: it has what it took.
    pub(super) acquired: Option<TakenAt>,
    /// Its variables, the globals and attributes that its code names, and the parts of library objects among these.
    pub(super) objects: HashSet<Addr>,
}

impl<'f> OfTask<'f> {
    pub(super) fn new(facts: &'f Facts<'f>, task: &'f Task) -> Self {
        OfTask { facts, task, reached: OnceCell::new(), code: OnceCell::new() }
    }

    /// All that it can reach; the reason alone if that may be anything.
    pub(super) fn reached(&self) -> &Reached {
        self.reached.get_or_init(|| {
            let inspector = &self.facts.inspector;
            let (of_failure, others): (Vec<Addr>, Vec<Addr>) =
                callbacks(self.facts, self.task).into_iter().partition(|one| tells_of_failure(self.facts, *one));
            if of_failure.is_empty() {
                return reach::from_or_open(inspector, roots(self.facts, self.task));
            }
            let objects = inspector.objects();
            let lists = [FIRST_CALLBACK, CALLBACKS].map(|offset| objects.field(self.task.object, offset));
            let mut own = roots(self.facts, self.task);
            own.retain(|root| !lists.contains(&Some(*root)));
            let mut reached = reach::from_or_open(inspector, own.into_iter().chain(others));
            if may_fail(&reached) {
                return reach::from_cancelling(inspector, roots(self.facts, self.task));
            }
            // The end of all of a group lets those go on that wait for it.
            reached.also(completed_by(self.facts, of_failure));
            reached
        })
    }

    pub(super) fn inspector(&self) -> &Inspector<'_> {
        &self.facts.inspector
    }

    /// The names that the code of its own coroutines uses, and the objects that it has at hand.
    pub(super) fn code_at_hand(&self) -> &[CodeAtHand] {
        let of = |coroutine: &Addr| code_at_hand(self.inspector(), *coroutine);
        self.code.get_or_init(|| self.task.coroutines.iter().filter_map(of).collect())
    }
}

fn code_at_hand(inspector: &Inspector<'_>, coroutine: Addr) -> Option<CodeAtHand> {
    let (frames, objects) = (inspector.frames(), inspector.objects());
    let (frame, code) = frames.of_generator(coroutine)?;
    if frames.code_origin(code).is_none_or(|of| of.waits_for_caller()) {
        return None;
    }
    let open = frames.at(frame, code)?;
    let is_guarded = open.is_protected() && open.uses("acquire") && open.uses("release");
    let line = open.line_of_last_call("acquire", inspector.python.version).filter(|_| is_guarded);
    let acquired =
        line.zip(frames.suspended(coroutine)).map(|(line, frame)| TakenAt::at(&*frame.file, line, &*frame.function));
    let variables = open.variables().into_iter().map(|(_, value)| value);
    let mut found: HashSet<Addr> =
        variables.chain(inspector.named_globals(&open).iter().map(|(_, value)| *value)).collect();
    let named = |(key, value): (Addr, Addr)| open.uses(&objects.text(key)?).then_some(value);
    let owners = found.clone().into_iter().filter(|one| !inspector.is_plain(*one));
    let attributes: Vec<Addr> =
        owners.flat_map(|one| objects.attributes(one).unwrap_or_default()).filter_map(named).collect();
    found.extend(attributes);
    let parts: Vec<Addr> = found.iter().filter_map(|one| objects.attribute(*one, SHARED_BY_ENDS)).collect();
    found.extend(parts);
    Some(CodeAtHand { function: frames.code_name(code)?, acquired, names: frames.names_in(code)?, objects: found })
}

/// The reach of a task, which does not end where it may be anything.
pub(super) fn all_of_task(facts: &Facts<'_>, task: &Task) -> Reached {
    reach::from(&facts.inspector, roots(facts, task), false)
}

/// Its code, and the callbacks for its end.
fn roots(facts: &Facts<'_>, task: &Task) -> Vec<Addr> {
    let objects = facts.inspector.objects();
    if task.kind == kinds::TRIO_TASK {
        // Its object leads to its nursery and its run, which leads everywhere. Other code finds the effects of its end.
        return task.coroutines.clone();
    }
    let left_out = [objects.field(task.object, 0), reach::awaited_by(&facts.inspector, task.object)];
    let own = objects.words_of(task.object).into_iter().filter(|word| !left_out.contains(&Some(*word)));
    own.chain(task.coroutines.iter().copied()).collect()
}

/// The callbacks for the end of a task of asyncio, or of a future.
fn callbacks(facts: &Facts<'_>, task: &Task) -> Vec<Addr> {
    if task.kind == kinds::TRIO_TASK { Vec::new() } else { callbacks_of(facts.inspector.objects(), task.object) }
}

fn callbacks_of(objects: &Objects<'_>, future: Addr) -> Vec<Addr> {
    let list = |object: Addr| objects.sequence(object, TASKS_WAITING as u64).unwrap_or_default();
    let more = objects.field(future, CALLBACKS).map(list).unwrap_or_default();
    let first = objects.field(future, FIRST_CALLBACK).filter(|first| !first.is_null()).into_iter();
    first.chain(more.into_iter().filter_map(|pair| list(pair).first().copied())).collect()
}

/// Whether a callback is one of a library by which others are ended if the task failed.
fn tells_of_failure(facts: &Facts<'_>, callback: Addr) -> bool {
    let objects = facts.inspector.objects();
    let function = if objects.class_name(callback).as_deref() == Some("method") {
        objects.field(callback, 0)
    } else {
        Some(callback)
    };
    let is_of_library = |function: &Addr| {
        let code = objects.function(*function).map(|function| function.code);
        code.and_then(|code| facts.inspector.frames().code_origin(code)).is_some_and(|of| of.waits_for_caller())
    };
    let name = function.filter(is_of_library).and_then(|function| objects.function_name(function));
    name.is_some_and(|name| TELLS_OF_FAILURE.contains(&name.as_str()))
}

/// The futures that are completed when all tasks of a group have ended, and those that this completes.
fn completed_by(facts: &Facts<'_>, callbacks: Vec<Addr>) -> BTreeSet<Addr> {
    let objects = facts.inspector.objects();
    let is_future = |object: &Addr| objects.class_name(*object).is_some_and(|class| class.ends_with("Future"));
    let (mut found, mut todo) = (BTreeSet::new(), callbacks);
    while let Some(callback) = todo.pop().filter(|_| found.len() < TASKS_WAITING) {
        for future in at_hand(facts, callback).into_iter().filter(is_future) {
            if found.insert(future) {
                todo.extend(callbacks_of(objects, future));
            }
        }
    }
    found
}

/// The objects that the callbacks for the end of a task have at hand.
pub(super) fn called_at_end(facts: &Facts<'_>, task: &Task) -> BTreeSet<Addr> {
    callbacks(facts, task).into_iter().flat_map(|callback| at_hand(facts, callback)).collect()
}

/// The objects that a callback has at hand, and attributes of the object that a method is of.
pub(super) fn at_hand(facts: &Facts<'_>, callback: Addr) -> Vec<Addr> {
    let objects = facts.inspector.objects();
    let list = |object: Addr| objects.sequence(object, TASKS_WAITING as u64).unwrap_or_default();
    let of = |object: Addr| objects.attributes(object).unwrap_or_default().into_iter().map(|(_, value)| value);
    if let Some(bound) = objects.bound(callback) {
        of(bound.object).collect()
    } else if let Some(function) = objects.function(callback) {
        let cells = function.brings.into_iter().flat_map(list).map(|cell| objects.out_of_cell(cell));
        // A function of a library that is defined in a method has the object that the method is of.
        let is_of_library = facts.inspector.frames().code_origin(function.code).is_some_and(|of| of.waits_for_caller());
        let cells: Vec<Addr> = cells.collect();
        let behind: Vec<Addr> = cells.iter().filter(|_| is_of_library).flat_map(|cell| of(*cell)).collect();
        cells.into_iter().chain(behind).collect()
    } else if objects.class_name(callback).as_deref() == Some("functools.partial") {
        objects.words_of(callback).into_iter().flat_map(list).collect()
    } else {
        Vec::new()
    }
}

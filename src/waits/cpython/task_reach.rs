//! The reach of a task of an event loop: it can run its code, and at its end it calls the registered callbacks.
//!
//! In: a task. Out: its reach, and the [`CodeAtHand`] of its own coroutines. Whether it could end another wait by that is found
//! in [`task_waits`](super::task_waits).

use std::cell::OnceCell;
use std::collections::HashSet;

use super::Facts;
use super::tasks::Task;
use crate::image::Addr;
use crate::python::inspect::Inspector;
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
/// Those of them that any thread may use.
const ENDS_PROCESS: &[&str] = &["kill", "pthread_kill", "raise_signal", "interrupt_main", "abort", "_exit"];
/// Names by which code ends a task that it has at hand, or calls into the loop that it has at hand.
const ENDS: &[&str] = &["cancel", "throw", "get_coro", "call_soon_threadsafe", "run_coroutine_threadsafe", "stop"];

/// The attribute in which both ends of a memory channel of trio and anyio have what they share.
pub(super) const SHARED_BY_ENDS: &str = "_state";

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
        self.reached.get_or_init(|| reach::from_or_open(&self.facts.inspector, roots(self.facts, self.task)))
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
    let event_loop = objects.field(task.object, 0);
    let own = objects.words_of(task.object).into_iter().filter(|word| Some(*word) != event_loop);
    own.chain(task.coroutines.iter().copied()).collect()
}

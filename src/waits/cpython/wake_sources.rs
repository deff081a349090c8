//! The wake sources of Python waits beside the holders: threads that reach the object, handlers that raise, timers of
//! event loops.
//!
//! In: waits and holds. Out: [`Way`]s for the objects without a known holder, and [`WakeSource`]s for those with one.
//! Another thread than the taker may release a plain lock, as in a program that uses it for an event. A wait of the
//! main thread ends when a handler raises. A task ends when code that its loop may still run cancels it.

use std::collections::BTreeSet;

use super::greenlet_waits;
use super::loops;
use super::signals;
use super::task_reach::{NAMES_TASKS, OfTask, all_of_task, ends_all, ends_process, may_end, may_fail, names_end};
use super::task_waits;
use super::tasks::Task;
use super::trio_wake_sources;
use super::wakers::WAKING;
use super::{Cpython, Facts, HolderRule, lasts};
use crate::image::{Addr, TaskState};
use crate::limits::cpython::TASKS_WAITING;
use crate::limits::waits::MOST_ASKED;
use crate::origin::OriginKind;
use crate::python::inspect::frames_of;
use crate::python::reach::{self, Reached, USES_DESCRIPTORS};
use crate::python::retries::Change;
use crate::threads::{Frame, FrameKind};
use crate::waits::blocked_on::{Ownership, ThreadWait};
use crate::waits::family::{Way, signal_name};
use crate::waits::holders::Blocked;
use crate::waits::holders::rings::{behind, rings};
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::model::{Hold, Party, Strength, WakeSource, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// The module of lockscope's plugin for pytest that has a thread of its own.
const OWN_THREAD: &str = "lockscope._coverage";
/// Libraries of C that the interpreter's own modules call, and that make no callbacks.
const PLAIN_LIBRARIES: &[&str] = &["libpython", "python", "[vdso]", "libssl", "libcrypto", "libm.", "libz."];
/// The last of the descriptors that each process begins with.
const STANDARD_ERROR: i32 = 2;
/// Modules of the standard library, written in C, that wait or compute for their caller.
const PLAIN_MODULES: &[&str] = &[
    "_queue",
    "select",
    "_socket",
    "_ssl",
    "math",
    "_math",
    "_random",
    "_datetime",
    "_posixsubprocess",
    "_multiprocessing",
    "_asyncio",
    "fcntl",
    "mmap",
    "resource",
    "array",
    "_struct",
    "_hashlib",
    "_zoneinfo",
    "_bisect",
    "_heapq",
    "time",
];

impl Facts<'_> {
    /// The objects that stand for what a thread waits for.
    pub(super) fn targets(&self, wait: &ThreadWait) -> impl Iterator<Item = Addr> {
        let object = match rule(wait) {
            Some(HolderRule::Wakers { object, .. }) => *object,
            Some(HolderRule::Future(future)) => Some(*future),
            _ => None,
        };
        std::iter::once(wait.blocked_on.resource.key.address).chain(object)
    }

    /// How code with this reach could end the loop around a wait with a time-out.
    pub(super) fn ends_loop(&self, reached: &Reached, wait: &ThreadWait) -> Option<String> {
        let until = until(wait);
        let ends = |change: &&Change| match change {
            Change::Of(object) => reached.has(*object),
            Change::Global(name, dict) => reached.changes_global(name) || dict.is_some_and(|dict| reached.has(dict)),
            Change::End(_) => false,
        };
        let by_unknown = || reached.anything.clone().filter(|_| !until.is_empty());
        let found =
            until.iter().find(ends).map(|_| "it can reach what the loop asks for after each time-out".to_owned());
        found.or_else(by_unknown)
    }

    /// Whether the loop around a wait with a time-out asks for the end of the thread with this state.
    fn asks_for_end(&self, state: usize, wait: &ThreadWait) -> bool {
        let ident = self.inspector.python.threads.get(state).map(|state| state.ident);
        ident.is_some_and(|ident| until(wait).contains(&Change::End(ident)))
    }
}

/// The family's rule for the holder of the thing that a thread waits for.
fn rule(wait: &ThreadWait) -> Option<&HolderRule> {
    match &wait.blocked_on.ownership {
        Ownership::Private(rule) => rule.get(),
        _ => None,
    }
}

/// The changes that would end the loop around a wait with a time-out.
fn until(wait: &ThreadWait) -> &[Change] {
    match rule(wait) {
        Some(HolderRule::Wakers { until, .. }) => until,
        _ => &[],
    }
}

/// The other threads of a process that go on, with their positions.
fn others<'p, 's>(
    process: &'p Process<'s>,
    own: &'p [ThreadWait],
    wait: &'p ThreadWait,
) -> impl Iterator<Item = (usize, &'p ThreadView<'s>)> {
    process.threads.iter().enumerate().filter(|(position, thread)| {
        thread.image.state != TaskState::Zombie && *position != wait.thread && !lasts(own, *position)
    })
}

/// Whether a thread could give what `wait` waits for.
pub(super) fn giver(facts: &Facts<'_>, process: &Process<'_>, thread: usize, wait: &ThreadWait) -> Option<Way> {
    let kind = wait.blocked_on.resource.key.kind;
    if kind != kinds::PY_CONDITION && kind != kinds::PY_LOCK {
        return None;
    }
    let states = match code_of(facts, process, thread)? {
        Ok(states) => states,
        Err(way) => return Some(way),
    };
    if states.iter().any(|state| facts.asks_for_end(*state, wait)) {
        return Some(Way::Open("the loop around it asks after each time-out whether that thread has ended".into()));
    }
    if let Some(tasks) = by_tasks(facts, process, process.threads.get(thread)?.image.tid, wait) {
        let way = by_collector(facts, wait);
        return Some(way.unwrap_or(Way::By(tasks)));
    }
    for state in states {
        let reached = facts.reached_or_open(state);
        if let Some(why) = reached.anything.clone().or_else(|| facts.ends_loop(&reached, wait)) {
            return Some(Way::Open(why));
        }
        // Code that calls the method releases a plain lock, or a block that a generator is in.
        let method =
            |target: Addr| reached.method_of(target, WAKING).or_else(|| reached.method_of(target, &["__exit__"]));
        if let Some(name) = facts.targets(wait).find_map(method) {
            return Some(Way::Open(format!("it can reach it, and it has a reference to {name} of it")));
        }
        let has = facts.targets(wait).any(|target| reached.has(target));
        let calls = WAKING.iter().copied().find(|name| reached.uses_anywhere(name));
        match calls {
            Some(name) if has => return Some(Way::Open(format!("it can reach it, and its code uses {name}"))),
            // Objects built of locks are released in many ways: by a block that ends, by a participant that comes, by
            // code of libraries.
            None if has && kind == kinds::PY_CONDITION => return Some(Way::Open("it can reach it".into())),
            _ => {}
        }
    }
    Some(
        by_collector(facts, wait).unwrap_or_else(|| {
            Way::Shut("goes on and cannot reach it: nothing that its code names leads there".into())
        }),
    )
}

/// The tasks through which alone a thread that rests in its event loop may give what `wait` waits for: those that can reach it, and
/// the one at whose end the loop stops. `None` where the loop may do so by itself, or is not known well enough.
fn by_tasks(facts: &Facts<'_>, process: &Process<'_>, tid: i32, wait: &ThreadWait) -> Option<Vec<(Party, String)>> {
    let mut own = facts.loops().iter().filter(|one| one.tid == tid);
    let event_loop = own.next().filter(|one| one.is_idle)?;
    let tasks: Vec<&Task> = facts.tasks_of(event_loop).collect();
    let root = tasks.iter().find(|task| Some(task.object) == event_loop.root)?;
    if own.next().is_some() || tasks.len() > TASKS_WAITING {
        return None;
    }
    let reaches = |reached: &Reached| {
        let has = facts.targets(wait).any(|target| reached.has(target)) || facts.ends_loop(reached, wait).is_some();
        has || reached.anything.is_some() || ends_all(reached).is_some()
    };
    let runs = event_loop.runs.as_ref()?.iter().copied().chain(event_loop.signal_handlers);
    if reaches(&reach::from_or_open(&facts.inspector, runs)) {
        return None;
    }
    let party = |task: &Task| Party::Resource(key(process, task.kind, task.object));
    // The effects of a library's own task on other threads are found through those threads.
    let run = facts.trio().iter().find(|run| run.runner == event_loop.object);
    let is_own = |task: &Task| run.is_some_and(|run| trio_wake_sources::is_of_trio(facts, run, task));
    let may_give =
        |task: &&&Task| task.object == root.object || !is_own(task) && reaches(OfTask::new(facts, task).reached());
    let giving = tasks.iter().filter(may_give);
    Some(giving.map(|task| (party(task), format!("task {} goes on and could give it", task.name))).collect())
}

/// The finalisers that a thread may call by creating objects: the collector runs on any thread that does.
fn by_collector(facts: &Facts<'_>, wait: &ThreadWait) -> Option<Way> {
    facts.finalisers().iter().find_map(|finaliser| {
        let reached = &finaliser.reached;
        let has = || facts.targets(wait).any(|target| reached.has(target));
        let bound = facts.targets(wait).find_map(|target| reached.method_of(target, WAKING));
        let used = || WAKING.iter().copied().find(|name| reached.uses_anywhere(name));
        let named = if has() { used() } else { None };
        let how = match (bound.or(named), reached.anything.is_some() || facts.ends_loop(reached, wait).is_some()) {
            (Some(name), _) => format!("uses {name}"),
            (None, true) => "may reach it".to_owned(),
            (None, false) => return None,
        };
        Some(Way::Open(format!("the collector may run {} on it, which {how}", finaliser.name)))
    })
}

/// Whether a thread could read, write or close one of these descriptors, or hand it on.
pub(super) fn user(facts: &Facts<'_>, process: &Process<'_>, thread: usize, descriptors: &[i32]) -> Option<Way> {
    let states = match code_of(facts, process, thread)? {
        Ok(states) => states,
        Err(way) => return Some(way),
    };
    // All code that prints uses these, and so does the interpreter for exceptions that no code catches.
    if descriptors.iter().any(|number| *number <= STANDARD_ERROR) {
        return Some(Way::Open("it is the process's standard input or output, which all code has".into()));
    }
    for state in states {
        let reached = facts.reached_or_open(state);
        let name = USES_DESCRIPTORS.iter().find(|name| reached.uses(name));
        let how = reached.anything.clone().or_else(|| reached.has_descriptor(descriptors));
        if let Some(how) = how.or_else(|| name.map(|name| format!("its code uses {name}"))) {
            return Some(Way::Open(how));
        }
    }
    Some(Way::Shut("goes on and can do nothing with it: its code uses no descriptor".into()))
}

/// The states of a thread that runs code of Python which can be walked, or what is known without that.
fn code_of(facts: &Facts<'_>, process: &Process<'_>, thread: usize) -> Option<Result<Vec<usize>, Way>> {
    let view = process.threads.get(thread)?;
    let states: Vec<usize> = facts.inspector.states(view.image.tid).map(|(state, _)| state).collect();
    if states.is_empty() || facts.inspector.states(view.image.tid).all(|(_, state)| frames_of(state).next().is_none()) {
        return None;
    }
    if is_own(view) {
        let why = "is of lockscope's plugin, and only saves what coverage was measured";
        return Some(Err(Way::Shut(why.into())));
    }
    Some(match foreign(view) {
        Some(library) => Err(Way::Open(format!("it is in {library}, which may call anything"))),
        None => Ok(states),
    })
}

/// Whether a thread runs nothing but lockscope's own code: that of its plugin for pytest.
fn is_own(thread: &ThreadView<'_>) -> bool {
    let frames = thread.frames();
    let mut python = frames.iter().filter(|frame| frame.kind == FrameKind::Python).peekable();
    python.peek().is_some() && python.all(|frame| frame.origin.is_lockscope(OWN_THREAD))
}

/// A library on the stack of a thread that is neither the interpreter's nor known to make no callbacks.
fn foreign(thread: &ThreadView<'_>) -> Option<String> {
    let frames = thread.frames();
    let native = frames.iter().filter(|frame| frame.kind == FrameKind::Native);
    let is_plain = |frame: &&Frame| {
        let module = frame.module.as_deref().unwrap_or_default();
        let stem = module.split('.').next().unwrap_or(module);
        frame.origin.kind == OriginKind::CLibrary
            || PLAIN_LIBRARIES.iter().any(|plain| module.starts_with(plain))
            || module.ends_with(".so") && PLAIN_MODULES.contains(&stem)
    };
    let foreign = native.into_iter().find(|frame| !is_plain(frame))?;
    Some(foreign.module.as_deref().unwrap_or("code of no file").to_owned())
}

/// Add what could end waits whose holders are known.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    if blocked.processes().iter().all(|process| family.facts(process).is_none()) {
        return;
    }
    let rings = rings(out);
    if rings.is_empty() {
        return;
    }
    greenlet_waits::wake_sources(&rings, out);
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        let own = blocked.waits_of(process.context.process);
        let party = |wait: &ThreadWait| Party::Thread(wait.process, process.threads[wait.thread].image.tid);
        for wait in own.iter().filter(|wait| rings.contains(&party(wait))) {
            releasers(facts, process, blocked, wait, out);
            completers(facts, process, own, wait, out);
            changers(facts, process, own, wait, out);
            interruptions(facts, process, wait, out);
        }
        of_tasks(facts, process, own, &rings, out);
        trio_wake_sources::find(facts, process, own, &rings, out);
    }
}

fn wake_source(wait: &ThreadWait, waiter: Option<Party>, by: Waker, what: String) -> WakeSource {
    WakeSource { resource: wait.blocked_on.resource.key.clone(), waiter, by, what }
}

/// Threads that go on and release a plain lock which they did not take.
fn releasers(
    facts: &Facts<'_>,
    process: &Process<'_>,
    blocked: &Blocked<'_>,
    wait: &ThreadWait,
    out: &mut Observations,
) {
    let key = &wait.blocked_on.resource.key;
    if key.kind != kinds::PY_LOCK || out.wake_sources.iter().any(|wake_source| wake_source.resource == *key) {
        return;
    }
    let holders: BTreeSet<Party> = out
        .holds
        .iter()
        .filter(|hold| hold.resource == *key && hold.closes_cycles() && hold.gone.is_none())
        .map(|hold| hold.holder.clone())
        .collect();
    if holders.is_empty() {
        return;
    }
    let party = |thread: &ThreadView<'_>| Party::Thread(process.context.process, thread.image.tid);
    let own = blocked.waits_of(wait.process);
    let others = process.threads.iter().enumerate().filter(|(position, thread)| {
        thread.image.state != TaskState::Zombie && !holders.contains(&party(thread)) && !lasts(own, *position)
    });
    let others: Vec<(usize, &ThreadView<'_>)> = others.take(MOST_ASKED + 1).collect();
    // A candidate holder proves no more than that: other threads that can reach the lock may have it, too.
    let is_known = |hold: &Hold| hold.resource == *key && hold.is_known();
    if !out.holds.iter().any(is_known) {
        let reaches = |reached: &Reached| reached.has(key.address) || reached.anything.is_some();
        let may_have = |thread: &ThreadView<'_>| {
            facts.inspector.states(thread.image.tid).any(|(state, _)| reaches(&facts.reached_or_open(state)))
        };
        if others.len() > MOST_ASKED || others.iter().any(|(_, thread)| may_have(thread)) {
            let own = out.holds.iter_mut().filter(|hold| hold.resource == *key);
            own.for_each(|hold| hold.strength = Strength::Candidate);
        }
        return;
    }
    if others.len() > MOST_ASKED {
        return;
    }
    for (_, thread) in others {
        let releases = |reached: &Reached| {
            // Code that takes a lock itself releases that one; only a whole walk shows that it takes none.
            let is_whole = reached.anything.is_none();
            let only_releases = is_whole && reached.uses("release") && !reached.uses("acquire");
            reached.calls("release", key.address) || only_releases && reached.has(key.address)
        };
        let mut states = facts.inspector.states(thread.image.tid);
        // Only a thread that has the method at hand can release it in ways that no name shows.
        let is_bound = facts.may_be_bound("release", key.address);
        let reached = |state| if is_bound { facts.reached_by(state) } else { facts.reached_or_open(state) };
        if states.any(|(state, _)| releases(&reached(state))) {
            let what = format!("{} can release it, though it did not take it", thread.describe());
            out.wake_sources.push(wake_source(wait, None, Waker::Party(party(thread)), what));
            // Memory that changed during the read may make it look as if the thread takes no lock.
            out.read_of.push((process.context.process, Some(thread.image.tid)));
        }
    }
}

/// Names by which code ends a wait for a future that a pool would complete.
const COMPLETES: &[&str] = &["cancel", "set_result", "set_exception", "shutdown"];

/// Threads that go on and could cancel or complete a future whose work waits for a thread of a pool.
fn completers(facts: &Facts<'_>, process: &Process<'_>, own: &[ThreadWait], wait: &ThreadWait, out: &mut Observations) {
    let Some(HolderRule::Future(future)) = rule(wait) else { return };
    for (_, thread) in others(process, own, wait).take(MOST_ASKED) {
        let completes = |reached: &Reached| {
            let names = COMPLETES.iter().any(|name| reached.uses(name));
            reached.has(*future) && names || reached.method_of(*future, COMPLETES).is_some()
        };
        let mut states = facts.inspector.states(thread.image.tid);
        if states.any(|(state, _)| completes(&facts.reached_by(state))) {
            let party = Party::Thread(process.context.process, thread.image.tid);
            let what = format!("{} can reach the future, and may cancel or complete it", thread.describe());
            out.wake_sources.push(wake_source(wait, None, Waker::Party(party), what));
            out.read_of.push((process.context.process, Some(thread.image.tid)));
        }
    }
}

/// Threads that go on, and handlers, that could end the loop around a wait with a time-out.
fn changers(facts: &Facts<'_>, process: &Process<'_>, own: &[ThreadWait], wait: &ThreadWait, out: &mut Observations) {
    if until(wait).is_empty() {
        return;
    }
    let ends = |position: usize| match code_of(facts, process, position) {
        None | Some(Err(Way::Shut(_))) => false,
        Some(Err(_)) => true,
        Some(Ok(states)) => {
            let ends = |state: usize| {
                facts.asks_for_end(state, wait) || facts.ends_loop(&facts.reached_or_open(state), wait).is_some()
            };
            states.into_iter().any(ends) || by_collector(facts, wait).is_some()
        }
    };
    for (asked, (position, thread)) in others(process, own, wait).enumerate() {
        if asked >= MOST_ASKED || ends(position) {
            let party = Party::Thread(process.context.process, thread.image.tid);
            let what = format!("{} can reach what the loop asks for after each time-out", thread.describe());
            out.wake_sources.push(wake_source(wait, None, Waker::Party(party), what));
            out.read_of.push((process.context.process, Some(thread.image.tid)));
        }
    }
    for (by, what) in signals::that_end_loops(facts, process, wait) {
        out.wake_sources.push(wake_source(wait, None, by, what));
    }
}

/// Handlers of Python that may raise in the main thread while it waits for a lock.
fn interruptions(facts: &Facts<'_>, process: &Process<'_>, wait: &ThreadWait, out: &mut Observations) {
    let tid = process.threads[wait.thread].image.tid;
    let kind = wait.blocked_on.resource.key.kind;
    let can_be_interrupted = kind.world == kinds::World::Python && kind != kinds::GIL && kind != kinds::PY_MUTEX;
    if tid != process.context.image.pid || !can_be_interrupted {
        return;
    }
    let Some(handled) = process.handled() else { return };
    for signal in (1..=64u32).filter(|signal| handled >> (signal - 1) & 1 == 1) {
        if let Some(handler) = signals::interrupts(facts, process, signal, wait) {
            let by = if signals::TIMERS.contains(&signal) { Waker::ByItself } else { Waker::OnRequest };
            let what = format!("the handler {} ({}) may raise or release it", handler.label, signal_name(signal));
            out.wake_sources.push(wake_source(wait, Some(Party::Thread(process.context.process, tid)), by, what));
        }
    }
}

/// The code that the event loops of tasks may still run.
fn of_tasks(
    facts: &Facts<'_>,
    process: &Process<'_>,
    own: &[ThreadWait],
    rings: &BTreeSet<Party>,
    out: &mut Observations,
) {
    let of_tasks = |party: &&Party| matches!(party, Party::Resource(key) if key.kind == kinds::ASYNCIO_TASK);
    let waiting: BTreeSet<Party> = rings.iter().filter(of_tasks).cloned().collect();
    if waiting.is_empty() {
        return;
    }
    let behind = behind(&waiting, out);
    let objects = facts.inspector.objects();
    let tasks: Vec<&Task> = facts.tasks().iter().take(TASKS_WAITING).collect();
    // The loop stands first behind the head of a task.
    let loops: BTreeSet<Addr> = tasks.iter().filter_map(|task| objects.field(task.object, 0)).collect();
    for event_loop in loops {
        let items = |name: &str| {
            let list = objects.attribute(event_loop, name)?;
            objects.sequence(list, TASKS_WAITING as u64)
        };
        let watched = || {
            let map = objects.attribute(objects.attribute(event_loop, "_selector")?, "_fd_to_key")?;
            Some(objects.items(map)?.into_iter().map(|(_, watched)| watched).collect::<Vec<_>>())
        };
        let roots = match (items("_scheduled"), items("_ready")) {
            (Some(scheduled), Some(ready)) => {
                let runs = scheduled.into_iter().chain(ready).chain(watched().unwrap_or_default());
                loops::with_handler_of_exceptions(objects, event_loop, runs.collect())
            }
            _ => Vec::new(),
        };
        let is_read = items("_scheduled").is_some();
        let handlers = objects.attribute(event_loop, "_signal_handlers");
        let by_signals = reach::from(&facts.inspector, handlers, false);
        let by_library = reach::from(&facts.inspector, roots.iter().copied(), true);
        let by_all = reach::from(&facts.inspector, roots.iter().copied(), false);
        let is_behind = |task| behind.contains(&Party::Resource(key(process, kinds::ASYNCIO_TASK, task)));
        let is_waiting = |other: &Task| is_behind(other.object);
        let of_loop = |other: &&&Task| objects.field(other.object, 0) == Some(event_loop);
        // Tasks that go on, with what they and the callbacks for their ends reach.
        let others: Vec<(&str, Reached)> = tasks
            .iter()
            .filter(|other| of_loop(other) && !is_waiting(other))
            .map(|other| (other.name.as_str(), all_of_task(facts, other)))
            .collect();
        let afterwards = code_after_loop(facts, event_loop, is_behind);
        let ends_afterwards = |task: &Task| {
            afterwards.as_ref().is_some_and(|reached| {
                may_end(reached, task.object) || reached.has(event_loop) && reached.names_or_has(NAMES_TASKS).is_some()
            })
        };
        for task in tasks.iter().filter(|task| objects.field(task.object, 0) == Some(event_loop)) {
            let party = Party::Resource(key(process, kinds::ASYNCIO_TASK, task.object));
            if !waiting.contains(&party) {
                continue;
            }
            if may_end(&by_signals, task.object) {
                let what = "a handler for a signal that its event loop has can reach it and may end it";
                out.wake_source_for(&party, Waker::OnRequest, what);
            }
            for (by, what) in signals::that_end_tasks(facts, process, &[task.object, event_loop], task.tid) {
                out.wake_source_for(&party, by, &what);
            }
            let cancels = may_end(&by_all, task.object);
            let by_other = others.iter().find(|(_, reached)| may_end(reached, task.object));
            let what = if !is_read {
                task_waits::unknown_loop(process, facts, task, out);
                let class = objects.class_name(event_loop).unwrap_or_default();
                format!("what its event loop, a {class}, may still run could not be read")
            } else if by_library.has(task.object) || cancels {
                "something that its event loop may still run, as a timer, can reach it and may end it".to_owned()
            } else if let Some(thread) = reached_from_outside(facts, process, own, task, event_loop) {
                format!("{thread} can reach it or its loop, and may end it")
            } else if let Some((other, _)) = by_other {
                format!("task {other} goes on and may end it, or a callback for its end may")
            } else if ends_afterwards(task) {
                "the code that goes on when its event loop stops can reach it and may end it".to_owned()
            } else if let Some(other) = raised_beside(facts, &tasks, task, is_waiting) {
                format!("task {other} goes on and may raise, of which whoever awaits both is told")
            } else if let Some(name) = ends_all(&by_all) {
                format!("something that its event loop may still run uses {name}, which reaches every task")
            } else {
                continue;
            };
            out.wake_source_for(&party, Waker::ByItself, &what);
            out.read_of.push((process.context.process, task.tid));
        }
    }
}

/// The reach of the program's code that goes on when a loop stops, unless the task that it runs for waits itself. The frames of the
/// library around a loop end the tasks that are left, too, but by then the program is over.
fn code_after_loop(facts: &Facts<'_>, event_loop: Addr, waits: impl Fn(Addr) -> bool) -> Option<Reached> {
    let one = facts.loops().iter().find(|one| one.object == event_loop)?;
    one.root.filter(|root| !waits(*root))?;
    let around = facts.inspector.stack(one.tid).skip_while(|frame| frame.address != one.turn);
    Some(reach::from_frames(&facts.inspector, around.filter(|frame| !frame.origin.waits_for_caller())))
}

/// A task that goes on and raises by design, and whose end the library reports to an object that has this task, too. The object
/// is a group, which cancels the task, or a gathering of both, whose waiter raises.
fn raised_beside(
    facts: &Facts<'_>,
    tasks: &[&Task],
    task: &Task,
    waits_for_others: impl Fn(&Task) -> bool,
) -> Option<String> {
    let objects = facts.inspector.objects();
    let event_loop = objects.field(task.object, 0);
    let is_reportable = |other: &Task| {
        let own = |word: &Addr| {
            Some(*word) == event_loop || Some(*word) == other.waits_for || other.coroutines.contains(word)
        };
        let told = objects.words_of(other.object).into_iter().filter(|word| !own(word));
        reach::from(&facts.inspector, told, true).has(task.object)
    };
    let may_raise = |other: &Task| may_fail(&reach::from(&facts.inspector, other.coroutines.clone(), false));
    let others = tasks.iter().filter(|other| other.object != task.object && !waits_for_others(other));
    let mut others = others.filter(|other| objects.field(other.object, 0) == event_loop);
    others.find(|other| is_reportable(other) && may_raise(other)).map(|other| other.name.clone())
}

/// Another thread than the loop's that goes on and can end a task, or call into its loop.
fn reached_from_outside(
    facts: &Facts<'_>,
    process: &Process<'_>,
    own: &[ThreadWait],
    task: &Task,
    event_loop: Addr,
) -> Option<String> {
    let others = process.threads.iter().enumerate().filter(|(position, thread)| {
        Some(thread.image.tid) != task.tid && thread.image.state != TaskState::Zombie && !lasts(own, *position)
    });
    others.take(MOST_ASKED).find_map(|(_, thread)| {
        let mut states = facts.inspector.states(thread.image.tid);
        let reaches = |reached: &Reached| {
            let ends = |one: Addr| reached.has(one) && names_end(reached);
            ends(task.object) || ends(event_loop) || ends_process(reached)
        };
        states.any(|(state, _)| reaches(&facts.reached_by(state))).then(|| thread.describe())
    })
}

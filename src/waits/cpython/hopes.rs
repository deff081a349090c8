//! What could end waits of Python beside the holders: threads that reach the object, handlers that raise, timers of event loops.
//!
//! In: waits and holds. Out: [`Way`]s for the things that nobody is known to hold, and [`Hope`]s for those that somebody holds: a
//! plain lock may be released by another thread than took it, as one does that uses it for an event; a wait of the main
//! thread ends when a handler raises; a task ends when something that its loop may still run cancels it.

use std::collections::{BTreeSet, HashMap};

use super::signals;
use super::tasks::Task;
use super::wakers::WAKING;
use super::{Cpython, Facts, HolderRule};
use crate::image::{Addr, TaskState};
use crate::limits::cpython::TASKS_WAITING;
use crate::limits::waits::MOST_ASKED;
use crate::python::inspect::frames_of;
use crate::python::reach::{self, Reached};
use crate::threads::FrameKind;
use crate::waits::blocked_on::{Ownership, ThreadWait};
use crate::waits::c_library::is_c_library;
use crate::waits::family::{Way, signal_name};
use crate::waits::holders::Blocked;
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::model::{Certainty, Hope, Hoped, Party, ResourceKey};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// Signals of timers, which may be pending: SIGALRM, SIGVTALRM, SIGPROF.
const TIMERS: [u32; 3] = [14, 26, 27];
/// Names by which code reaches into a loop from outside, or ends a task.
const ENDS_TASKS: &[&str] = &["cancel", "call_soon_threadsafe", "run_coroutine_threadsafe", "stop"];
/// Libraries of C that the interpreter's own modules call, which call nobody back.
const PLAIN_LIBRARIES: &[&str] = &["libpython", "python", "[vdso]", "libssl", "libcrypto", "libm.", "libz."];
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
    pub(super) fn targets(&self, found: &ThreadWait) -> impl Iterator<Item = Addr> {
        let object = match &found.blocked_on.ownership {
            Ownership::Private(rule) => match rule.get::<HolderRule>() {
                Some(HolderRule::Wakers { object }) => *object,
                Some(HolderRule::Future(future)) => Some(*future),
                _ => None,
            },
            _ => None,
        };
        std::iter::once(found.blocked_on.resource.key.address).chain(object)
    }
}

/// Whether a thread could give what `found` waits for.
pub(super) fn giver(facts: &Facts<'_>, process: &Process<'_>, thread: usize, found: &ThreadWait) -> Option<Way> {
    let kind = found.blocked_on.resource.key.kind;
    if kind != kinds::PY_CONDITION && kind != kinds::PY_LOCK {
        return None;
    }
    let view = process.threads.get(thread)?;
    let states: Vec<usize> = facts.inspector.states(view.image.tid).map(|(state, _)| state).collect();
    if states.is_empty() || facts.inspector.states(view.image.tid).all(|(_, state)| frames_of(state).next().is_none()) {
        return None;
    }
    if let Some(library) = foreign(view) {
        return Some(Way::Open(format!("it is in {library}, which may call anything")));
    }
    for state in states {
        let reached = facts.reached_by(state);
        if let Some(why) = &reached.anything {
            return Some(Way::Open(why.clone()));
        }
        let calls = WAKING.iter().copied().find(|name| reached.uses(name));
        let has = facts.targets(found).any(|target| reached.has(target));
        let method = facts.targets(found).find_map(|target| reached.method_of(target, WAKING));
        if let Some(name) = calls.filter(|_| has).or(method) {
            return Some(Way::Open(format!("it can reach it, and its code uses {name}")));
        }
    }
    Some(Way::Shut("goes on and cannot reach it: nothing that its code names leads there".into()))
}

/// A library on the stack of a thread that is neither the interpreter's nor known to call nobody back.
fn foreign(thread: &ThreadView<'_>) -> Option<String> {
    let frames = thread.thread.map(|thread| thread.frames.as_slice()).unwrap_or_default();
    let native = frames.iter().filter(|frame| frame.kind == FrameKind::Native);
    let modules = native.map(|frame| frame.module.as_deref().unwrap_or("code of no file"));
    let is_plain = |module: &str| {
        let stem = module.split('.').next().unwrap_or(module);
        is_c_library(module)
            || PLAIN_LIBRARIES.iter().any(|plain| module.starts_with(plain))
            || module.ends_with(".so") && PLAIN_MODULES.contains(&stem)
    };
    modules.into_iter().find(|module| !is_plain(module)).map(str::to_owned)
}

/// Add what could end waits whose holders are known.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    let rings = rings(out);
    if rings.is_empty() {
        return;
    }
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        let own = blocked.waits_of(process.context.process);
        let party = |found: &ThreadWait| Party::Thread(found.process, process.threads[found.thread].image.tid);
        for found in own.iter().filter(|found| rings.contains(&party(found))) {
            releasers(facts, process, blocked, found, out);
            interruptions(facts, process, found, out);
        }
        of_tasks(facts, process, own, &rings, out);
    }
}

/// Those who may be in a ring: each waits for what another of them has. Only there does it matter what else could end a wait
/// whose holder is known; to find that out is dear.
fn rings(out: &Observations) -> BTreeSet<Party> {
    let mut holders: HashMap<&ResourceKey, Vec<&Party>> = HashMap::new();
    for hold in out.holds.iter().filter(|hold| hold.certainty > Certainty::Candidate) {
        holders.entry(&hold.resource).or_default().push(&hold.holder);
    }
    let mut left: BTreeSet<Party> = out.waits.iter().map(|wait| wait.waiter.clone()).collect();
    loop {
        let waits_for_one = |party: &Party, left: &BTreeSet<Party>| {
            out.waits.iter().filter(|wait| wait.waiter == *party).any(|wait| {
                let held = holders.get(&wait.resource).into_iter().flatten();
                let is_left = |holder: &Party| match holder {
                    Party::Process(process) => {
                        left.iter().any(|one| matches!(one, Party::Thread(of, _) if of == process))
                    }
                    other => left.contains(other),
                };
                left.contains(&Party::Resource(wait.resource.clone())) || held.into_iter().any(|holder| is_left(holder))
            })
        };
        let next: BTreeSet<Party> = left.iter().filter(|party| waits_for_one(party, &left)).cloned().collect();
        if next.len() == left.len() {
            return next;
        }
        left = next;
    }
}

fn hope(found: &ThreadWait, waiter: Option<Party>, by: Hoped, what: String) -> Hope {
    Hope { resource: found.blocked_on.resource.key.clone(), waiter, by, what }
}

/// Threads that go on and release a plain lock which they did not take.
fn releasers(
    facts: &Facts<'_>,
    process: &Process<'_>,
    blocked: &Blocked<'_>,
    found: &ThreadWait,
    out: &mut Observations,
) {
    let key = &found.blocked_on.resource.key;
    if key.kind != kinds::PY_LOCK || out.hopes.iter().any(|hope| hope.resource == *key) {
        return;
    }
    let holders: BTreeSet<Party> = out
        .holds
        .iter()
        .filter(|hold| hold.resource == *key && hold.certainty > Certainty::Candidate && hold.gone.is_none())
        .map(|hold| hold.holder.clone())
        .collect();
    if holders.is_empty() {
        return;
    }
    let party = |thread: &ThreadView<'_>| Party::Thread(process.context.process, thread.image.tid);
    let own = blocked.waits_of(found.process);
    let others = process.threads.iter().enumerate().filter(|(position, thread)| {
        thread.image.state != TaskState::Zombie && !holders.contains(&party(thread)) && !lasts(own, *position)
    });
    let others: Vec<(usize, &ThreadView<'_>)> = others.take(MOST_ASKED + 1).collect();
    if others.len() > MOST_ASKED {
        return;
    }
    for (_, thread) in others {
        let releases = |reached: &Reached| {
            // Who takes a lock itself releases what it took.
            let only_releases = reached.uses("release") && !reached.uses("acquire");
            reached.calls("release", key.address) || only_releases && reached.has(key.address)
        };
        let mut states = facts.inspector.states(thread.image.tid);
        if states.any(|(state, _)| releases(&facts.reached_by(state))) {
            let what = format!("{} can release it, though it did not take it", thread.describe());
            out.hopes.push(hope(found, None, Hoped::Party(party(thread)), what));
        }
    }
}

/// Handlers of Python that may raise in the main thread while it waits for a lock.
fn interruptions(facts: &Facts<'_>, process: &Process<'_>, found: &ThreadWait, out: &mut Observations) {
    let tid = process.threads[found.thread].image.tid;
    let kind = found.blocked_on.resource.key.kind;
    let can_be_interrupted = kind.world == kinds::World::Python && kind != kinds::GIL && kind != kinds::PY_MUTEX;
    if tid != process.context.image.pid || !can_be_interrupted {
        return;
    }
    let kernel = &process.context.all.kernel;
    let Some((_, handled)) = kernel.handled.iter().find(|(pid, _)| *pid == tid) else { return };
    for signal in (1..=64u32).filter(|signal| handled >> (signal - 1) & 1 == 1) {
        if let Some(handler) = signals::interrupts(facts, process, signal, found) {
            let by = if TIMERS.contains(&signal) { Hoped::Coming } else { Hoped::Asked };
            let what = format!("the handler {} ({}) may raise or release it", handler.label, signal_name(signal));
            out.hopes.push(hope(found, Some(Party::Thread(process.context.process, tid)), by, what));
        }
    }
}

/// What the loops of tasks may still run.
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
                scheduled.into_iter().chain(ready).chain(watched().unwrap_or_default()).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        };
        let is_read = items("_scheduled").is_some();
        let by_library = reach::from(&facts.inspector, roots.iter().copied(), true);
        let by_all = reach::from(&facts.inspector, roots.iter().copied(), false);
        for task in tasks.iter().filter(|task| objects.field(task.object, 0) == Some(event_loop)) {
            let party = Party::Resource(key(process, kinds::ASYNCIO_TASK, task.object));
            if !waiting.contains(&party) {
                continue;
            }
            let cancels = by_all.has(task.object) && ENDS_TASKS.iter().any(|name| by_all.uses(name));
            let what = if !is_read {
                let class = objects.class_name(event_loop).unwrap_or_default();
                format!("what its event loop, a {class}, may still run could not be read")
            } else if by_library.has(task.object) || cancels {
                "something that its event loop may still run, as a timer, can reach it and may end it".to_owned()
            } else if let Some(thread) = reached_from_outside(facts, process, own, task, event_loop) {
                format!("{thread} can reach it or its loop, and may end it")
            } else {
                continue;
            };
            let waits: Vec<_> =
                out.waits.iter().filter(|wait| wait.waiter == party).map(|wait| wait.resource.clone()).collect();
            for resource in waits {
                let (waiter, by) = (Some(party.clone()), Hoped::Coming);
                out.hopes.push(Hope { resource, waiter, by, what: what.clone() });
            }
        }
    }
}

/// Whether a thread waits without a time-out for what is given inside of the process: it goes on only if another one does.
fn lasts(own: &[ThreadWait], position: usize) -> bool {
    own.iter().any(|found| {
        let on = &found.blocked_on;
        found.thread == position && !on.timed && on.resource.key.kind.giver != kinds::Giver::Outside
    })
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
            let to = reached.has(task.object) || reached.has(event_loop);
            to && ENDS_TASKS.iter().any(|name| reached.uses(name))
        };
        states.any(|(state, _)| reaches(&facts.reached_by(state))).then(|| thread.describe())
    })
}

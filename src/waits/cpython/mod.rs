//! CPython's own waits: the GIL, the locks of `threading`, what the standard library builds from them.
//!
//! In: the [`Python`] of a process and what the libc family saw. Out: waits for and holds of
//! interpreter locks and Python objects. A wait is first traced to an object (`behind`), then to what that is for
//! (`composites`); holders are looked for once all waits are known (`holders`).

mod event_loops;
mod futures;
mod generators;
pub(crate) mod gil;
mod holders;
mod hopes;
mod lock_object;
mod multiprocessing;
mod process_pools;
mod signals;
mod stop_the_world;
mod tasks;
mod threading_objects;
mod wakers;
mod with_blocks;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::image::{Addr, Memory};
use crate::python::Python;
use crate::python::inspect::{Inspector, frames_of};
use crate::python::library::is_library;
use crate::python::reach::{self, Reached};
use crate::waits::blocked_on::{BlockedOn, Ownership, ThreadWait};
use crate::waits::circumstances::Handled;
use crate::waits::family::{Family, Registered, Way};
use crate::waits::holders::Blocked;
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::model::{Certainty, Needs, Party, Resource};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};
use futures::Work;
use tasks::Task;
use with_blocks::Held;

/// How the holder of what this family decoded is found.
#[derive(Debug, Clone, Copy)]
enum HolderRule {
    /// By the ident in the owner field of the recursive lock.
    OwnerField,
    /// The thread with the ident that an import lock has noted, if it has.
    NotedOwner(Option<u64>),
    /// The thread with the ident that a file object has noted; 0 for nobody.
    FileOwner(u64),
    /// A `threading.Lock`: by entered `with` blocks, or who has it at hand.
    Lock,
    /// The thread with this ident, until it ends.
    End(u64),
    /// Whoever could wake what waits for the condition, or for the object that has it.
    Wakers {
        /// The event, queue, barrier, ...
        object: Option<Addr>,
    },
    /// Whoever runs what will set the future.
    Future(Addr),
    /// The process that counts the lock as taken.
    Multiprocessing,
    /// All threads that have not paused.
    Pause,
    /// The thread that asked for the pause.
    PauseEnd,
}

/// What the family keeps of one process.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    inspector: Inspector<'a>,
    held: OnceCell<Vec<Held>>,
    suspended: OnceCell<generators::Found>,
    tasks: OnceCell<Vec<Task>>,
    shared: OnceCell<Vec<Addr>>,
    work: OnceCell<Work>,
    handlers: OnceCell<Option<Vec<Addr>>>,
    reached: RefCell<HashMap<usize, Rc<Reached>>>,
    reached_by_handlers: RefCell<HashMap<Addr, Rc<Reached>>>,
}

impl<'a> Facts<'a> {
    /// `None` for a build whose structures are not known.
    fn new(memory: &'a dyn Memory, python: &'a Python) -> Option<Self> {
        Some(Facts {
            inspector: Inspector::new(memory, python)?,
            held: OnceCell::new(),
            suspended: OnceCell::new(),
            tasks: OnceCell::new(),
            shared: OnceCell::new(),
            work: OnceCell::new(),
            handlers: OnceCell::new(),
            reached: RefCell::default(),
            reached_by_handlers: RefCell::default(),
        })
    }

    /// Position of the thread that `threading` knows by this ident. Of a thread that was not stopped the thread pointer is
    /// not known, but its thread state is.
    fn thread_with_ident(&self, process: &Process<'_>, ident: u64) -> Option<usize> {
        let state = || self.inspector.python.threads.iter().find(|state| state.ident == ident && state.tid.is_some());
        process.pthread(Addr(ident)).or_else(|| process.position(state()?.tid?))
    }

    /// What the thread of a state can reach.
    fn reached_by(&self, state: usize) -> Rc<Reached> {
        let known = self.reached.borrow().get(&state).cloned();
        known.unwrap_or_else(|| {
            let reached = Rc::new(reach::by_thread(&self.inspector, state));
            self.reached.borrow_mut().insert(state, Rc::clone(&reached));
            reached
        })
    }

    /// What a handler for a signal can reach.
    fn reached_by_handler(&self, callable: Addr) -> Rc<Reached> {
        let known = self.reached_by_handlers.borrow().get(&callable).cloned();
        known.unwrap_or_else(|| {
            let reached = Rc::new(reach::from(&self.inspector, [callable], false));
            self.reached_by_handlers.borrow_mut().insert(callable, Rc::clone(&reached));
            reached
        })
    }

    /// The interpreter's table of handlers for signals.
    fn handlers(&self, process: &Process<'_>) -> Option<&[Addr]> {
        self.handlers.get_or_init(|| signals::table(process, &self.inspector)).as_deref()
    }

    /// Locks that entered `with` blocks have.
    fn held(&self) -> &[Held] {
        self.held.get_or_init(|| with_blocks::all(&self.inspector))
    }

    /// Generators within reach that have locks.
    fn suspended(&self) -> &generators::Found {
        self.suspended.get_or_init(|| generators::all(&self.inspector))
    }

    /// Locks of `multiprocessing` at hand.
    fn shared(&self) -> &[Addr] {
        self.shared.get_or_init(|| multiprocessing::all(self))
    }

    /// What thread pools run and are to run.
    fn work(&self) -> &Work {
        self.work.get_or_init(|| Work::find(&self.inspector))
    }

    /// Tasks of event loops.
    fn tasks(&self) -> &[Task] {
        self.tasks.get_or_init(|| tasks::all(&self.inspector))
    }
}

/// Ask for all that is read of objects beside the walk: for the fuzzers.
pub(crate) fn ask_everything(memory: &dyn Memory, python: &Python) {
    let Some(facts) = Facts::new(memory, python) else { return };
    let _ = (facts.held(), facts.suspended(), facts.tasks(), facts.shared(), facts.inspector.joinable());
    let _ = facts.work();
    for frame in python.threads.iter().flat_map(frames_of) {
        let Some(first) = facts.inspector.frame(frame).and_then(|open| open.first()) else { continue };
        facts.inspector.living().for_each(|(_, state)| drop(facts.inspector.handled(state)));
        let _ = (facts.inspector.name_of(first, std::iter::once(frame)), facts.inspector.referrers(first));
    }
}

/// The family, with the Python of each process whose build is known.
#[derive(Debug)]
struct Cpython<'s>(Vec<Option<Facts<'s>>>);

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered {
    kinds: &[
        kinds::GIL,
        kinds::PY_LOCK,
        kinds::PY_RLOCK,
        kinds::PY_MUTEX,
        kinds::PY_IMPORT_LOCK,
        kinds::PY_CONDITION,
        kinds::PY_THREAD,
        kinds::PY_STOP_THE_WORLD,
        kinds::PY_GENERATOR,
        kinds::MP_LOCK,
        kinds::ASYNCIO_TASK,
        kinds::ASYNCIO_LOCK,
        kinds::EVENT_LOOP,
    ],
    open,
};

/// Open the family.
fn open<'s>(processes: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    let facts = |process: &'s Process<'s>| Facts::new(process.memory(), process.context.python?);
    Box::new(Cpython(processes.iter().map(facts).collect()))
}

impl<'s> Cpython<'s> {
    /// What is kept of a process; `None` where it has no Python, or one of an unknown build.
    fn facts(&self, process: &Process<'_>) -> Option<&Facts<'s>> {
        self.0.get(process.context.process)?.as_ref()
    }
}

impl Family for Cpython<'_> {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        gil::decode(process, thread, below)
            .or_else(|| stop_the_world::decode(process, thread, below))
            .or_else(|| object(process, self.facts(process)?, thread, below?))
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for process in blocked.processes() {
            exceptions(process, self.facts(process), out);
            gil::holds(process, out);
        }
        for (found, rule) in blocked.by_rule::<HolderRule>() {
            holders::find(self, blocked, found, *rule, out);
        }
        names_of_holders(self, blocked, out);
        process_pools::find(self, blocked, out);
        event_loops::find(self, blocked, out);
    }

    fn giver(&self, process: &Process<'_>, thread: usize, found: &ThreadWait) -> Option<Way> {
        hopes::giver(self.facts(process)?, process, thread, found)
    }

    fn handler(&self, process: &Process<'_>, signal: u32, found: &ThreadWait) -> Option<Way> {
        signals::way(self.facts(process)?, process, signal, found)
    }

    fn hopes(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        hopes::find(self, blocked, out);
    }
}

/// A lock is called what its holder calls it, where the waiter has a name for it that reaches less far.
fn names_of_holders(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for resource in out.resources.iter_mut().filter(|one| [kinds::PY_LOCK, kinds::PY_RLOCK].contains(&one.key.kind)) {
        let process = blocked.processes().get(resource.process);
        let Some(facts) = process.and_then(|process| family.facts(process)) else { continue };
        let name = |party: &Party| match party {
            Party::Thread(of, tid) if *of == resource.process => {
                let frames = facts.inspector.stack(*tid).filter(|frame| !is_library(&frame.file));
                facts.inspector.name_and_reach(resource.key.address, frames)
            }
            _ => None,
        };
        let holders = out.holds.iter().filter(|hold| hold.resource == resource.key);
        let by_holder =
            holders.filter(|hold| hold.certainty > Certainty::Candidate).find_map(|hold| name(&hold.holder));
        let by_waiter =
            out.waits.iter().filter(|wait| wait.resource == resource.key).find_map(|wait| name(&wait.waiter));
        let Some((reach, by_holder)) = by_holder else { continue };
        if by_waiter.is_none_or(|(of_waiter, _)| reach <= of_waiter) {
            resource.label.name = Some(by_holder);
        }
    }
}

/// The exceptions that threads handle.
fn exceptions(process: &Process<'_>, facts: Option<&Facts<'_>>, out: &mut Observations) {
    let Some(facts) = facts else { return };
    for (_, state) in facts.inspector.living() {
        if let (Some((class, text)), Some(tid)) = (facts.inspector.handled(state), state.tid) {
            let thread = Party::Thread(process.context.process, tid);
            out.handled.push(Handled { thread, class, text });
        }
    }
}

/// A wait for an object of Python.
fn object(process: &Process<'_>, facts: &Facts<'_>, thread: &ThreadView<'_>, below: &BlockedOn) -> Option<BlockedOn> {
    below.futex?;
    let behind = lock_object::find(process, &facts.inspector, thread, below);
    let purpose = threading_objects::purpose(facts, thread, behind.as_ref())?;
    let mut resource = Resource {
        key: key(process, purpose.kind, purpose.address),
        process: process.context.process,
        label: purpose.label,
        state: purpose.state,
        role: purpose.role,
    };
    if purpose.kind == kinds::MP_LOCK {
        // The same lock has an object in each process, and one place in shared memory.
        resource.key.scope = below.resource.key.scope.clone();
        resource.key.address = below.resource.key.address;
    }
    let on_its_way = behind.as_ref().is_some_and(|behind| behind.is_on_its_way);
    let mut evidence = behind.map(|behind| behind.evidence).unwrap_or_default();
    evidence.extend(purpose.evidence);
    let frame = purpose.frame.and_then(|frame| thread.merged_python(frame));
    Some(BlockedOn {
        needs: if purpose.needs_any { Needs::Any } else { Needs::All },
        transient: below.transient || on_its_way,
        at: frame,
        ownership: purpose.rule.map_or(Ownership::Unknown, Ownership::private),
        ..below.refined(resource, &[], evidence)
    })
}

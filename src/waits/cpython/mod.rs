//! CPython's own waits: the GIL, the locks of `threading`, what the standard library builds from them.
//!
//! In: the [`Python`] of a process and the observations of the libc family. Out: waits for and holds of interpreter
//! locks and Python objects. A wait is first traced to an object (`behind`), then to that object's purpose
//! (`composites`). The search for holders begins once all waits are known (`holders`).

mod critical_sections;
mod dask;
mod event_loops;
mod executors;
mod futures;
mod generators;
pub(crate) mod gil;
mod greenlet_waits;
mod greenlets;
mod holders;
mod lock_names;
mod lock_object;
mod loops;
mod managers;
mod multiprocessing;
mod process_groups;
mod process_pools;
mod ray;
mod retried;
mod signals;
mod stop_the_world;
mod task_holders;
mod task_reach;
mod task_waits;
mod tasks;
mod threading_objects;
mod trio;
mod trio_wake_sources;
mod wake_sources;
mod wakers;
mod with_blocks;

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::image::{Addr, Memory};
use crate::python::finalisers::{self, Finaliser};
use crate::python::greenlets::Greenlet;
use crate::python::heap;
use crate::python::inspect::{Inspector, frames_of};
use crate::python::reach::{self, Reached};
use crate::python::retries::Change;
use crate::python::{self, Python};
use crate::waits::blocked_on::{BlockedOn, Ownership, ThreadWait};
use crate::waits::circumstances::Handled;
use crate::waits::family::{Family, Registered, Way};
use crate::waits::holders::Blocked;
use crate::waits::identity::{key, label};
use crate::waits::kinds;
use crate::waits::model::{Needs, Party, Resource};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};
use critical_sections::Section;
use futures::Work;
use lock_object::{What, noun};
use loops::Loop;
use tasks::Task;
use with_blocks::Held;

/// The rule that finds the holder of a resource of this family.
#[derive(Debug, Clone)]
enum HolderRule {
    /// By the ident in the owner field of the recursive lock.
    OwnerField,
    /// The thread with the ident that an import lock has noted, if it has.
    NotedOwner(Option<u64>),
    /// The thread with the ident that a file object has noted; 0 if it has noted none.
    FileOwner(u64),
    /// A `threading.Lock`: by entered `with` blocks, or who has it at hand.
    Lock,
    /// The thread with this ident, until it ends.
    End(u64),
    /// Every thread that could wake waiters for the condition, or for the object that has it.
    Wakers {
        /// The event, queue, barrier, ...
        object: Option<Addr>,
        /// The changes that would end the loop around a wait with a time-out.
        until: Vec<Change>,
    },
    /// The thread that runs the code that will set the future.
    Future(Addr),
    /// The process that counts the lock as taken.
    Multiprocessing,
    /// All threads that have not paused.
    Pause,
    /// The thread that requested the pause.
    PauseEnd,
    /// The cluster member with the lease, in any process.
    Lease,
    /// The thread in a critical section that has locked this mutex.
    CriticalSection(Addr),
}

/// The family's data about one process.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    inspector: Inspector<'a>,
    held: OnceCell<Vec<Held>>,
    suspended: OnceCell<generators::Found>,
    tasks: OnceCell<Vec<Task>>,
    loops: OnceCell<Vec<Loop>>,
    trio: OnceCell<Vec<trio::Run>>,
    shared: OnceCell<Vec<Addr>>,
    work: OnceCell<Work>,
    handlers: OnceCell<Option<Vec<Addr>>>,
    cluster: OnceCell<Option<dask::Cluster>>,
    leases: OnceCell<Vec<dask::Lease>>,
    reached: RefCell<HashMap<usize, Rc<Reached>>>,
    /// For threads that may reach anything: the part that was read.
    open: RefCell<HashMap<usize, Rc<Reached>>>,
    reached_by_handlers: RefCell<HashMap<Addr, Rc<Reached>>>,
    finalisers: OnceCell<Vec<Finaliser>>,
    bound: OnceCell<Option<HashSet<(String, Addr)>>>,
    sections: OnceCell<Vec<Section>>,
    led_to: OnceCell<Vec<HashSet<Addr>>>,
    greenlets: OnceCell<Option<Vec<Greenlet>>>,
}

impl<'a> Facts<'a> {
    /// `None` for a build whose structures are not known.
    fn new(memory: &'a dyn Memory, python: &'a Python) -> Option<Self> {
        Some(Facts {
            inspector: Inspector::new(memory, python)?,
            held: OnceCell::new(),
            suspended: OnceCell::new(),
            tasks: OnceCell::new(),
            loops: OnceCell::new(),
            trio: OnceCell::new(),
            shared: OnceCell::new(),
            work: OnceCell::new(),
            handlers: OnceCell::new(),
            cluster: OnceCell::new(),
            leases: OnceCell::new(),
            open: RefCell::default(),
            reached: RefCell::default(),
            reached_by_handlers: RefCell::default(),
            finalisers: OnceCell::new(),
            bound: OnceCell::new(),
            sections: OnceCell::new(),
            led_to: OnceCell::new(),
            greenlets: OnceCell::new(),
        })
    }

    /// Position of the thread that `threading` knows by this ident. The thread pointer of a thread that was not stopped
    /// is unknown, but its thread state is known.
    fn thread_with_ident(&self, process: &Process<'_>, ident: u64) -> Option<usize> {
        process.pthread(Addr(ident)).or_else(|| process.position(self.inspector.with_ident(ident)?.tid?))
    }

    /// The greenlets that are switched out, where a thread runs their hub.
    fn greenlets(&self) -> &[Greenlet] {
        self.greenlets_if_known().unwrap_or_default()
    }

    /// The same; `None` where they cannot be listed.
    fn greenlets_if_known(&self) -> Option<&[Greenlet]> {
        let find = || {
            let mut tids = self.inspector.living().filter_map(|(_, state)| state.tid);
            match tids.any(|tid| greenlets::hub(self, tid).is_some()) {
                true => python::greenlets::suspended(&self.inspector),
                false => Some(Vec::new()),
            }
        };
        self.greenlets.get_or_init(find).as_deref()
    }

    /// The objects that the thread of a state can reach.
    fn reached_by(&self, state: usize) -> Rc<Reached> {
        let known = self.reached.borrow().get(&state).cloned();
        known.unwrap_or_else(|| {
            let reached = Rc::new(reach::by_thread(&self.inspector, state));
            self.reached.borrow_mut().insert(state, Rc::clone(&reached));
            reached
        })
    }

    /// The same, or as soon as that may be anything why.
    fn reached_or_open(&self, state: usize) -> Rc<Reached> {
        let known = self.reached.borrow().get(&state).or(self.open.borrow().get(&state)).cloned();
        known.unwrap_or_else(|| {
            let reached = Rc::new(reach::by_thread_or_open(&self.inspector, state));
            // A walk that came to its end is whole.
            let memo = if reached.anything.is_some() { &self.open } else { &self.reached };
            memo.borrow_mut().insert(state, Rc::clone(&reached));
            reached
        })
    }

    /// The objects that a handler for a signal can reach.
    fn reached_by_handler(&self, callable: Addr) -> Rc<Reached> {
        let known = self.reached_by_handlers.borrow().get(&callable).cloned();
        known.unwrap_or_else(|| {
            let reached = Rc::new(reach::from(&self.inspector, [callable], false));
            self.reached_by_handlers.borrow_mut().insert(callable, Rc::clone(&reached));
            reached
        })
    }

    /// Whether any frame may have this method of an object at hand.
    fn may_be_bound(&self, method: &str, object: Addr) -> bool {
        let bound = self.bound.get_or_init(|| heap::bound_methods(&self.inspector));
        bound.as_ref().is_none_or(|bound| bound.contains(&(method.to_owned(), object)))
    }

    /// The finalisers that the garbage collector may call. A loop that runs is no garbage, nor are the tasks that it
    /// runs, nor what these keep.
    fn finalisers(&self) -> &[Finaliser] {
        self.finalisers.get_or_init(|| {
            let tasks = self.tasks().iter().chain(self.trio().iter().flat_map(|run| &run.tasks));
            let kept = heap::kept_by(&self.inspector, tasks.clone().flat_map(|task| task.coroutines.iter().copied()));
            let objects = self.loops().iter().map(|one| one.object).chain(tasks.map(|task| task.object));
            let alive: HashSet<Addr> = objects.chain(kept).collect();
            finalisers::all(&self.inspector, &alive)
        })
    }

    /// Critical sections that threads are in, in a build without a GIL.
    fn sections(&self, process: &Process<'_>) -> &[Section] {
        self.sections.get_or_init(|| critical_sections::all(&self.inspector, process.memory()))
    }

    /// The objects that those of the first entered blocks lead to.
    fn led_to(&self) -> &[HashSet<Addr>] {
        self.led_to.get_or_init(|| wakers::led_to(&self.inspector))
    }

    /// The interpreter's table of handlers for signals.
    fn handlers(&self, process: &Process<'_>) -> Option<&[Addr]> {
        self.handlers.get_or_init(|| signals::table(process, &self.inspector)).as_deref()
    }

    /// The process's role in a cluster of Dask.
    fn cluster(&self) -> Option<&dask::Cluster> {
        self.cluster.get_or_init(|| dask::find(&self.inspector)).as_ref()
    }

    /// Locks of its cluster that it has.
    fn leases(&self) -> &[dask::Lease] {
        self.leases.get_or_init(|| if self.cluster().is_some() { dask::held(self) } else { Vec::new() })
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

    /// The work of thread pools and of event loops: running and queued.
    fn work(&self) -> &Work {
        self.work.get_or_init(|| Work::find(self))
    }

    /// Tasks of asyncio's event loops.
    fn tasks(&self) -> &[Task] {
        self.tasks.get_or_init(|| tasks::all(&self.inspector))
    }

    /// Event loops of asyncio that threads run.
    fn loops(&self) -> &[Loop] {
        self.loops.get_or_init(|| {
            let runs = self.trio().iter().filter_map(|run| {
                let tid = run.tasks.iter().find_map(|task| task.tid)?;
                loops::of_trio(&self.inspector, run.runner, tid)
            });
            loops::all(&self.inspector).into_iter().chain(runs).collect()
        })
    }

    /// The tasks of an event loop.
    fn tasks_of(&self, event_loop: &Loop) -> impl Iterator<Item = &Task> {
        let objects = self.inspector.objects();
        let object = event_loop.object;
        let of_asyncio = self.tasks().iter().filter(move |task| objects.field(task.object, 0) == Some(object));
        of_asyncio.chain(self.trio().iter().filter(move |run| run.runner == object).flat_map(|run| &run.tasks))
    }

    /// The runs of trio.
    fn trio(&self) -> &[trio::Run] {
        self.trio.get_or_init(|| trio::all(&self.inspector))
    }
}

/// Read all that is read of objects beside the walk: for the fuzzers.
pub(crate) fn ask_everything(memory: &dyn Memory, python: &Python) {
    let Some(facts) = Facts::new(memory, python) else { return };
    let _ = (facts.held(), facts.suspended(), facts.tasks(), facts.shared(), facts.inspector.joinable());
    let _ = (facts.work(), facts.trio(), facts.leases());
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
        kinds::TRIO_TASK,
        kinds::TRIO_LOCK,
        kinds::TRIO_LIMITER,
        kinds::GREENLET,
        kinds::GREENLET_LOCK,
        kinds::EVENT_LOOP,
        kinds::TASK_EVENT,
        kinds::DASK_LOCK,
        kinds::DASK_SEMAPHORE,
        kinds::DASK_EVENT,
        kinds::DASK_RESULT,
        kinds::DASK_QUEUE,
        kinds::DASK_VARIABLE,
        kinds::DASK_ANSWER,
        kinds::RAY_TASK,
    ],
    open,
};

/// Open the family.
fn open<'s>(processes: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    let facts = |process: &'s Process<'s>| Facts::new(process.memory(), process.context.python?);
    Box::new(Cpython(processes.iter().map(facts).collect()))
}

impl<'s> Cpython<'s> {
    /// The data about a process; `None` where it has no Python, or one of an unknown build.
    fn facts(&self, process: &Process<'_>) -> Option<&Facts<'s>> {
        self.0.get(process.context.process)?.as_ref()
    }
}

impl Family for Cpython<'_> {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        gil::decode(process, thread, below)
            .or_else(|| stop_the_world::decode(process, thread, below))
            .or_else(|| greenlets::decode(process, self.facts(process)?, thread, below?))
            .or_else(|| dask::decode(process, self.facts(process)?, thread, below?))
            .or_else(|| ray::decode(process, self.facts(process)?, thread, below?))
            .or_else(|| task_waits::decode(process, self.facts(process)?, thread, below?))
            .or_else(|| object(process, self.facts(process)?, thread, below?))
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for process in blocked.processes() {
            exceptions(process, self.facts(process), out);
            gil::holds(process, out);
        }
        managers::find(self, blocked, out);
        for (wait, rule) in blocked.by_rule::<HolderRule>() {
            holders::find(self, blocked, wait, rule, out);
        }
        process_pools::find(self, blocked, out);
        event_loops::find(self, blocked, out);
        trio::find(self, blocked, out);
        task_waits::find(self, blocked, out);
        greenlet_waits::find(self, blocked, out);
        lock_names::find(self, blocked, out);
        clusters(self, blocked, out);
    }

    fn giver(&self, process: &Process<'_>, thread: usize, wait: &ThreadWait) -> Option<Way> {
        wake_sources::giver(self.facts(process)?, process, thread, wait)
    }

    fn user(&self, process: &Process<'_>, thread: usize, descriptors: &[i32]) -> Option<Way> {
        wake_sources::user(self.facts(process)?, process, thread, descriptors)
    }

    fn handler(&self, process: &Process<'_>, signal: u32, wait: &ThreadWait) -> Option<Way> {
        signals::way(self.facts(process)?, process, signal, wait)
    }

    fn handled(&self, process: &Process<'_>, wait: &ThreadWait) -> Option<u64> {
        signals::handled(self.facts(process)?, process, wait)
    }

    fn wake_sources(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        wake_sources::find(self, blocked, out);
    }
}

/// Each process's own account of its membership in a cluster of workers, and of its rank in a job.
fn clusters(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        if let Some(member) = dask::member(facts, process).or_else(|| ray::member(facts, process)) {
            out.clusters.push((process.context.process, member));
        }
        if let Some(rank) = process_groups::own_rank(facts, process) {
            out.ranks.push((process.context.process, rank));
        }
    }
}

/// Whether a thread waits without a time-out for what is given inside of the process: it goes on only if another one does.
fn lasts(own: &[ThreadWait], position: usize) -> bool {
    own.iter().any(|wait| {
        let on = &wait.blocked_on;
        wait.thread == position && !on.timed && on.resource.key.kind.giver != kinds::Giver::Outside
    })
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
    let mut purpose = threading_objects::purpose(facts, thread, behind.as_ref())?;
    let retried = match below.timed {
        true => retried::retried(&facts.inspector, thread.image.tid, &purpose, behind.as_ref())
            .filter(|retried| !retried.may_be_ended_by_collector(facts)),
        false => None,
    };
    if let (Some(HolderRule::Wakers { until, .. }), Some(retried)) = (&mut purpose.rule, &retried) {
        until.clone_from(&retried.until);
    }
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
    let ownership = match (purpose.rule, behind.as_ref()) {
        (Some(rule), _) => Ownership::private(rule),
        (None, Some(behind)) if purpose.kind == kinds::PY_MUTEX => {
            critical_sections::ownership(process, facts, &behind.what, behind.object)
        }
        _ => Ownership::Unknown,
    };
    if behind.as_ref().is_some_and(|behind| behind.what == What::Mutex) {
        resource.label = label(process, thread, noun(&What::Mutex), purpose.address);
    }
    let mut evidence = behind.map(|behind| behind.evidence).unwrap_or_default();
    evidence.extend(purpose.evidence);
    let frame = purpose.frame.and_then(|frame| thread.merged_python(frame));
    let decoded = BlockedOn {
        needs: if purpose.needs_any { Needs::Any } else { Needs::All },
        transient: below.transient || on_its_way,
        at: frame.or(below.at),
        ownership,
        ..below.refined(resource, &[], evidence)
    };
    Some(match retried {
        Some(retried) => decoded.retried(retried.evidence),
        None => decoded,
    })
}

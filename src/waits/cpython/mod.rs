//! CPython's own waits: the GIL, the locks of `threading`, what the standard library builds from them.
//!
//! In: the [`Python`] of a process and what the libc family saw. Out: waits for and holds of
//! interpreter locks and Python objects. A wait is first traced to an object (`behind`), then to what that is for
//! (`composites`); holders are looked for once all waits are known (`holders`).

mod behind;
mod composites;
mod event_loops;
mod futures;
pub mod gil;
mod holders;
mod shared;
mod suspended;
mod tasks;
mod wakers;
mod with_blocks;
mod world;

use std::cell::OnceCell;

use super::facts::{Process, ThreadFacts};
use super::family::{Decoded, Family, Found, Look, key, waited};
use super::{Handled, Needs, Observations, Party, Resource};
use crate::image::{Addr, Memory};
use crate::python::Python;
use crate::python::inspect::{Inspector, frames_of};
use crate::waits::{Kind, kinds};
use futures::Work;
use suspended::Suspended;
use tasks::Task;
use with_blocks::Held;

/// Kinds of this family's resources that threads wait for.
const KINDS: &[&Kind] =
    &[kinds::PY_LOCK, kinds::PY_RLOCK, kinds::PY_CONDITION, kinds::PY_THREAD, kinds::PY_IMPORT_LOCK, kinds::PY_MUTEX];

/// In the state of a future whose work stands in the queue of a pool.
pub(crate) const QUEUED: &str = "queued";

/// In the state of a lock that is an extension's own.
pub(crate) const EXTENSION: &str = "extension";

/// In the state of a resource that is an event loop: how many tasks it has.
pub(crate) const EVENT_LOOP: &str = "tasks";

/// What the family keeps of one process.
#[derive(Debug)]
pub struct Facts<'a> {
    inspector: Inspector<'a>,
    held: OnceCell<Vec<Held>>,
    suspended: OnceCell<Vec<Suspended>>,
    tasks: OnceCell<Vec<Task>>,
    shared: OnceCell<Vec<Addr>>,
    work: OnceCell<Work>,
}

impl<'a> Facts<'a> {
    /// `None` for a build whose structures are not known.
    pub(super) fn new(memory: &'a dyn Memory, python: &'a Python) -> Option<Self> {
        Some(Facts {
            inspector: Inspector::new(memory, python)?,
            held: OnceCell::new(),
            suspended: OnceCell::new(),
            tasks: OnceCell::new(),
            shared: OnceCell::new(),
            work: OnceCell::new(),
        })
    }

    /// Locks that entered `with` blocks have.
    fn held(&self) -> &[Held] {
        self.held.get_or_init(|| with_blocks::all(&self.inspector))
    }

    /// Generators within reach that have locks.
    fn suspended(&self) -> &[Suspended] {
        self.suspended.get_or_init(|| suspended::all(&self.inspector))
    }

    /// Locks of `multiprocessing` at hand.
    fn shared(&self) -> &[Addr] {
        self.shared.get_or_init(|| shared::all(self))
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
        let _ = (facts.inspector.name_of(first, std::iter::once(frame)), facts.inspector.at_hand(first));
    }
}

/// The family.
#[derive(Debug)]
pub struct Cpython;

impl Family for Cpython {
    fn name(&self) -> &'static str {
        "cpython"
    }

    fn kinds(&self) -> &'static [&'static Kind] {
        &[
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
        ]
    }

    fn decode(&self, process: &Process<'_>, thread: &ThreadFacts<'_>, below: Option<&Decoded>) -> Option<Decoded> {
        gil::decode(process, thread, below)
            .or_else(|| world::decode(process, thread, below))
            .or_else(|| object(process, thread, below?))
    }

    fn holds(&self, look: &Look<'_>, waits: &[Found], out: &mut Observations) {
        for process in &look.processes {
            exceptions(process, out);
            gil::holds(process, out);
        }
        for found in waited(waits, KINDS) {
            holders::find(look, waits, found, out);
        }
        for found in waited(waits, &[kinds::MP_LOCK]) {
            shared::find(look, found, out);
        }
        event_loops::find(look, waits, out);
        for found in waited(waits, &[kinds::PY_STOP_THE_WORLD]) {
            world::holders(&look.processes[found.process], found, out);
        }
    }
}

/// The exceptions that threads handle.
fn exceptions(process: &Process<'_>, out: &mut Observations) {
    let Some(facts) = &process.python else { return };
    for (_, state) in facts.inspector.living() {
        if let (Some((class, text)), Some(tid)) = (facts.inspector.handled(state), state.tid) {
            let thread = Party::Thread(process.context.process, tid);
            out.handled.push(Handled { thread, class, text });
        }
    }
}

/// A wait for an object of Python.
fn object(process: &Process<'_>, thread: &ThreadFacts<'_>, below: &Decoded) -> Option<Decoded> {
    let facts = process.python.as_ref()?;
    below.futex?;
    let behind = behind::find(process, &facts.inspector, thread, below);
    let purpose = composites::purpose(facts, thread, behind.as_ref())?;
    let mut resource = Resource {
        key: key(process, purpose.kind, purpose.address),
        process: process.context.process,
        label: purpose.label,
        state: purpose.state,
    };
    if purpose.kind == kinds::MP_LOCK {
        // The same lock has an object in each process, and one place in shared memory.
        resource.key.scope = below.resource.key.scope.clone();
        resource.key.address = below.resource.key.address;
        resource.state.push(("object", purpose.address.0 as i64));
    }
    let on_its_way = behind.as_ref().is_some_and(|behind| behind.is_on_its_way);
    let mut evidence = behind.map(|behind| behind.evidence).unwrap_or_default();
    evidence.extend(purpose.evidence);
    let frame = purpose.frame.and_then(|frame| thread.merged_python(frame));
    Some(Decoded {
        needs: if purpose.needs_any { Needs::Any } else { Needs::All },
        transient: below.transient || on_its_way,
        at: frame,
        ..below.refined(resource, &[], evidence)
    })
}

//! The pause of all threads in a process without a GIL: its requester, and the threads that have not come to it.
//!
//! In: the requested pauses, and the states of threads. Out: the wait of the requester for the threads that still run
//! attached to the interpreter, and the waits of paused threads for the requester. The requester tries again every
//! millisecond for ever, so its time-out does not end the wait.

use super::{HolderRule, lock_object};
use crate::image::MemoryExt;
use crate::python::{Python, PythonThread, StopTheWorld};
use crate::waits::blocked_on::{BlockedOn, Ownership, ThreadWait};
use crate::waits::holders::exact_hold;
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::label::{Label, Wanted};
use crate::waits::model::{Party, Resource};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// `PyThreadState.state`: attached to the interpreter, running or about to.
const ATTACHED: i32 = 1;
const PAUSE: &str = "the pause of all Python threads";

/// Whether a thread waits for a pause of all or in one.
pub(super) fn decode(process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
    let python = process.context.python.filter(|python| !python.stops.is_empty())?;
    let own = || python.threads.iter().filter(|state| state.tid == Some(thread.image.tid));
    let asked = python.stops.iter().find(|stop| !stop.is_stopped && own().any(|state| state.tstate == stop.requester));
    if let Some(stop) = asked {
        let evidence = format!(
            "stop-the-world at {} is requested by its thread state {}; threads that have not paused: {}",
            stop.event, stop.requester, stop.countdown
        );
        let resource = Resource {
            key: key(process, kinds::PY_STOP_THE_WORLD, stop.event),
            process: process.context.process,
            label: PAUSE.into(),
            state: vec![("countdown", stop.countdown)],
            role: None,
        };
        let ownership = Ownership::private(HolderRule::Pause);
        let decoded = BlockedOn::of(resource, below, vec![evidence]).owned(ownership);
        return Some(BlockedOn { timed: false, transient: false, ..decoded });
    }
    let word = below?.futex?.word;
    let entry = lock_object::entry(process, thread, word)?;
    let offset = python.layout.as_ref()?.free_threaded?.thread_state;
    let paused = own().find(|state| state.tstate + offset == entry.address)?;
    let stop = python.stops.iter().find(|stop| concerns(stop, paused))?;
    let resource = Resource {
        key: key(process, kinds::PY_STOP_THE_WORLD, stop.event + 1),
        process: process.context.process,
        label: Label::from(PAUSE).wanted(Wanted::End),
        state: Vec::new(),
        role: None,
    };
    let evidence = format!("it is parked at its own thread state {}, as it is to pause", paused.tstate);
    let ownership = Ownership::private(HolderRule::PauseEnd);
    Some(BlockedOn { timed: false, ..BlockedOn::of(resource, below, vec![evidence]).owned(ownership) })
}

/// The threads that keep the requester of the pause waiting: all that have not come to it.
pub(super) fn attached(process: &Process<'_>, wait: &ThreadWait, out: &mut Observations) {
    add(process, wait, out, |python, stop, state| {
        let runs = state.tstate != stop.requester && concerns(stop, state) && is_attached(process, python, state);
        runs.then(|| format!("its thread state {} is attached: it has not paused, and is to", state.tstate))
    });
}

/// The thread that keeps a paused thread waiting: the requester.
pub(super) fn requester(process: &Process<'_>, wait: &ThreadWait, out: &mut Observations) {
    add(process, wait, out, |_, stop, state| {
        let asked = state.tstate == stop.requester;
        asked.then(|| format!("its thread state {} is the one that asked for the pause", state.tstate))
    });
}

/// Add as holders the thread states for which there is evidence.
fn add(
    process: &Process<'_>,
    wait: &ThreadWait,
    out: &mut Observations,
    evidence: impl Fn(&Python, &StopTheWorld, &PythonThread) -> Option<String>,
) {
    let Some(python) = process.context.python else { return };
    let key = &wait.blocked_on.resource.key;
    let own = |stop: &&StopTheWorld| stop.event == key.address || stop.event + 1 == key.address;
    let Some(stop) = python.stops.iter().find(own) else { return };
    for state in python.threads.iter() {
        if let (Some(evidence), Some(tid)) = (evidence(python, stop, state), state.tid) {
            out.holds.push(exact_hold(key, Party::Thread(process.context.process, tid), None, vec![evidence]));
        }
    }
}

fn concerns(stop: &StopTheWorld, state: &PythonThread) -> bool {
    stop.interpreter.is_none_or(|interpreter| interpreter == state.interpreter)
}

fn is_attached(process: &Process<'_>, python: &Python, state: &PythonThread) -> bool {
    let offset = python.layout.as_ref().and_then(|layout| layout.free_threaded).map(|offsets| offsets.thread_state);
    offset.is_some_and(|offset| process.memory().i32(state.tstate + offset) == Ok(ATTACHED))
}

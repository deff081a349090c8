//! The pause of all threads in a process without a GIL: who asked for it, who has not come to it.
//!
//! In: the pauses that are asked for, the states of threads. Out: the wait of the one who asked for the threads that still
//! run attached to the interpreter, and the waits of those that have paused for the one who asked. It asks again every
//! millisecond for ever, so that its time-out is no end.

use super::super::facts::{Process, ThreadFacts};
use super::super::family::{Decoded, Found, exact_hold, key};
use super::super::{Observations, Party, Resource};
use super::behind;
use crate::image::MemoryExt;
use crate::python::{Python, PythonThread, StopTheWorld};
use crate::waits::kinds;

/// `PyThreadState.state`: attached to the interpreter, running or about to.
const ATTACHED: i32 = 1;
/// What waits for the pause, and what waits for its end, in the resource's state.
const PAUSE: &str = "countdown";
const END: &str = "paused";

/// Whether a thread waits for a pause of all or in one.
pub(super) fn decode(process: &Process<'_>, thread: &ThreadFacts<'_>, below: Option<&Decoded>) -> Option<Decoded> {
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
            label: "the pause of all Python threads".into(),
            state: vec![(PAUSE, stop.countdown)],
        };
        return Some(Decoded { timed: false, transient: false, ..Decoded::of(resource, below, vec![evidence]) });
    }
    let word = below?.futex?.word;
    let entry = behind::entry(process, thread, word)?;
    let offset = python.layout.as_ref()?.free_threaded?.thread_state;
    let paused = own().find(|state| state.tstate + offset == entry.address)?;
    let stop = python.stops.iter().find(|stop| concerns(stop, paused))?;
    let resource = Resource {
        key: key(process, kinds::PY_STOP_THE_WORLD, stop.event + 1),
        process: process.context.process,
        label: "the end of the pause of all Python threads".into(),
        state: vec![(END, 1)],
    };
    let evidence = format!("it is parked at its own thread state {}, as it is to pause", paused.tstate);
    Some(Decoded { timed: false, ..Decoded::of(resource, below, vec![evidence]) })
}

/// Who keeps a thread waiting.
pub(super) fn holders(process: &Process<'_>, found: &Found, out: &mut Observations) {
    let Some(python) = process.context.python else { return };
    let key = &found.decoded.resource.key;
    let is_pause = found.decoded.resource.word(PAUSE).is_some();
    let own = |stop: &&StopTheWorld| stop.event == key.address || stop.event + 1 == key.address;
    let Some(stop) = python.stops.iter().find(own) else { return };
    for state in python.threads.iter() {
        let evidence = match is_pause {
            true if state.tstate == stop.requester
                || !concerns(stop, state)
                || !is_attached(process, python, state) =>
            {
                continue;
            }
            true => format!("its thread state {} is attached: it has not paused, and is to", state.tstate),
            false if state.tstate != stop.requester => continue,
            false => format!("its thread state {} is the one that asked for the pause", state.tstate),
        };
        if let Some(tid) = state.tid {
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

//! The GIL: who waits for it and who has it.
//!
//! In: the addresses in [`Gil`], the futex that a thread sleeps on. Out: a wait by address alone (no symbol is
//! needed, cpython.md section 2), and the hold of `last_holder` while `locked` is 1. A free-threaded process has none.

use crate::image::Addr;
use crate::limits::cpython::GIL_FRAMES;
use crate::python::{Gil, Python};
use crate::waits::blocked_on::BlockedOn;
use crate::waits::holders::{add_resource, exact_hold};
use crate::waits::identity::private_scope;
use crate::waits::kinds;
use crate::waits::model::{Party, Resource, ResourceKey};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// `pthread_cond_t`.
const COND_SIZE: u64 = 48;
/// The size of `switch_cond` and `switch_mutex`, which stand side by side.
fn switch_size(process: &Process<'_>) -> u64 {
    COND_SIZE + process.architecture().glibc_mutex_size()
}

/// The size of `struct _gil_runtime_state` from `gil` on: these two, and what stands before them.
fn gil_size(process: &Process<'_>, gil: &Gil) -> u64 {
    gil.switch_cond - gil.address + switch_size(process)
}

/// Functions that take the GIL. In a stripped build `take_gil` has no name and its exported callers do.
const TAKERS: &[&str] = &["take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyGILState_Ensure"];

/// Whether a thread waits for a GIL.
pub(crate) fn decode(process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
    let python = process.context.python?;
    let futex = below.and_then(|b| b.futex.map(|f| (b, f)));
    for gil in python.gils.iter().filter(|gil| gil.locked >= 0) {
        if holder(python, gil) == Some(thread.image.tid) {
            continue;
        }
        if let Some((below, futex)) = futex {
            let word = futex.word;
            if word.within(gil.cond, COND_SIZE) {
                let evidence =
                    vec![format!("futex word {word} lies in the GIL's condition variable ({})", gil.cond), state(gil)];
                return Some(wait(process, python, gil, evidence, Some(below)));
            }
            // The GIL's own mutex is held for an instant; a thread on switch_cond has just dropped the GIL and
            // takes it again at once. Both are on their way and no edge.
            if word == gil.mutex || word.within(gil.switch_cond, switch_size(process)) {
                return Some(BlockedOn { transient: true, ..wait(process, python, gil, Vec::new(), Some(below)) });
            }
        } else if below.is_none()
            && let Some(evidence) = taking(process, thread, gil)
        {
            return Some(wait(process, python, gil, evidence, None));
        }
    }
    None
}

/// The hold of each GIL that is held.
pub(crate) fn holds(process: &Process<'_>, out: &mut Observations) {
    let Some(python) = process.context.python else { return };
    for gil in python.gils.iter().filter(|gil| gil.locked == 1) {
        let resource = resource(process, python, gil);
        let known = python.threads.iter().find(|t| t.tstate == gil.last_holder);
        match known.and_then(|t| t.tid) {
            Some(tid) => {
                let evidence = vec![format!(
                    "gil->locked = 1 at {}, last_holder = {} is the thread state of {tid}",
                    gil.address, gil.last_holder
                )];
                add_resource(out, &resource);
                out.holds.push(exact_hold(&resource.key, Party::Thread(process.context.process, tid), None, evidence));
            }
            None => out.nobody_named(
                &resource,
                match known {
                    Some(_) => format!("the thread of its thread state {} is gone", gil.last_holder),
                    None => format!("last_holder = {} is no known thread state", gil.last_holder),
                },
            ),
        }
    }
}

/// The thread that has it.
fn holder(python: &Python, gil: &Gil) -> Option<i32> {
    (gil.locked == 1).then(|| python.threads.iter().find(|t| t.tstate == gil.last_holder)?.tid).flatten()
}

/// A thread in user code that takes the GIL: waiters wake every 5 ms to try again, and a few in a hundred samples catch
/// them at it (cpython.md section 2). One of its innermost frames must be a taker and it must have an address of the
/// GIL at hand.
fn taking(process: &Process<'_>, thread: &ThreadView<'_>, gil: &Gil) -> Option<Vec<String>> {
    let (native, name) =
        thread.names(GIL_FRAMES).find(|(_, name)| TAKERS.iter().any(|taker| name.trim_start_matches('_') == *taker))?;
    let hit = |value: u64| {
        let value = Addr(value);
        value.within(gil.address, gil_size(process, gil)) || value.within(gil.cond, COND_SIZE) || value == gil.mutex
    };
    let place = thread
        .registers(native + 1)
        .into_iter()
        .find(|&(_, _, value)| hit(value))
        .map(|(frame, register, value)| {
            format!("{} = {value:#x} in frame {frame}", process.context.image.architecture.register_name(register))
        })
        .or_else(|| {
            let cfa = thread.thread.and_then(|t| t.native.frames.get(native)?.cfa)?;
            let mut words = thread.words(process).iter().filter(|(at, value)| *at < cfa && hit(*value));
            words.next().map(|(at, value)| format!("the stack word at {at} is {value:#x}"))
        })?;
    Some(vec![format!("the thread is inside {name}, between two waits; {place} lies in the GIL"), state(gil)])
}

/// The wait. Its 5 ms time-out is no end: `take_gil` tries again for ever.
fn wait(
    process: &Process<'_>,
    python: &Python,
    gil: &Gil,
    evidence: Vec<String>,
    below: Option<&BlockedOn>,
) -> BlockedOn {
    let resource = resource(process, python, gil);
    BlockedOn {
        timed: false,
        transient: false,
        spinning: false,
        entry_points: TAKERS,
        ..BlockedOn::of(resource, below, evidence)
    }
}

/// The GIL as a resource.
fn resource(process: &Process<'_>, python: &Python, gil: &Gil) -> Resource {
    let label = match (python.gils.len(), gil.interpreters.first()) {
        (2.., Some(interpreter)) => format!("GIL of interpreter {interpreter}").into(),
        _ => "GIL".into(),
    };
    Resource {
        key: ResourceKey { kind: kinds::GIL, scope: private_scope(process), address: gil.address },
        process: process.context.process,
        label,
        state: vec![
            ("locked", i64::from(gil.locked)),
            ("last_holder", gil.last_holder.0 as i64),
            ("switch_number", gil.switch_number as i64),
        ],
        role: None,
    }
}

/// The words that say who has it.
fn state(gil: &Gil) -> String {
    format!("gil->locked = {} at {}, last_holder = {}", gil.locked, gil.address, gil.last_holder)
}

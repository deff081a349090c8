//! Critical sections: who has the mutex of an object in a build without a GIL.
//!
//! In: the states of threads. Out: the mutexes of the sections that threads are in ([`all`]), and holds by them. A
//! thread keeps its sections in a list that begins in its state. A thread that waits detached from the interpreter has
//! released its sections that are marked as suspended: these are left out here. A mutex that code takes without a
//! section records no holder, and is not found.

use std::collections::BTreeSet;

use super::lock_object::{self, What};
use super::{Facts, HolderRule};
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits;
use crate::limits::cpython::CRITICAL_SECTIONS;
use crate::python::inspect::Inspector;
use crate::waits::blocked_on::{Guards, LockCalls, Ownership, ThreadWait, Unrecorded};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Hold, Party};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

// `PyCriticalSection` and `PyCriticalSection2` of Include/cpython/critical_section.h [headers of 3.13.5, 3.14.10 and 3.15.2].
const PREVIOUS: u64 = 0;
const MUTEX: u64 = 8;
const SECOND_MUTEX: u64 = 16;
/// Marks in the two low bits of a pointer to a section: its mutexes were given back; it has two.
const IS_SUSPENDED: u64 = 1;
const HAS_TWO: u64 = 2;

/// `PyMutex`: a byte.
const MUTEX_SIZE: u64 = 1;

/// By which an extension takes and gives back a mutex of its own; the headers inline the way without a wait around them.
const CALLS: LockCalls = LockCalls {
    mode: None,
    locks: &["PyMutex_Lock"],
    may_fail: &[],
    unlocks: &["PyMutex_Unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};

/// A section that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    /// Position of the thread state.
    state: usize,
    /// Where it lies, on the thread's stack.
    address: Addr,
    /// The locked mutex.
    mutex: Addr,
}

/// The sections that are not suspended, of all threads.
pub(super) fn all(inspector: &Inspector<'_>, memory: &dyn Memory) -> Vec<Section> {
    let Some(offsets) = inspector.python.layout.as_ref().and_then(|layout| layout.free_threaded) else {
        return Vec::new();
    };
    let mut sections = Vec::new();
    for (state, thread) in inspector.living() {
        let mut next = memory.u64(thread.tstate + offsets.thread_critical_section).unwrap_or(0);
        let mut seen = BTreeSet::new();
        while next != 0 && seen.insert(next) {
            if seen.len() > CRITICAL_SECTIONS {
                limits::met(CRITICAL_SECTIONS, "critical sections of a thread", "inside each other");
                break;
            }
            let address = Addr(next & !(IS_SUSPENDED | HAS_TWO));
            let mutexes: &[u64] = match (next & IS_SUSPENDED, next & HAS_TWO) {
                (0, 0) => &[MUTEX],
                (0, _) => &[MUTEX, SECOND_MUTEX],
                _ => &[],
            };
            for offset in mutexes {
                // The field is empty in a section whose object a section further out already locked, and while the
                // section is being entered.
                let mutex = memory.pointer(address + *offset).ok().filter(|mutex| !mutex.is_null());
                sections.extend(mutex.map(|mutex| Section { state, address, mutex }));
            }
            next = memory.u64(address + PREVIOUS).unwrap_or(0);
        }
    }
    sections
}

/// Add who is in a section with the mutex that `wait` waits for.
pub(super) fn holders(
    blocked: &Blocked<'_>,
    facts: &Facts<'_>,
    wait: &ThreadWait,
    mutex: Addr,
    out: &mut Observations,
) {
    let process = blocked.process(wait);
    let resource = &wait.blocked_on.resource;
    let before = out.holds.len();
    for section in facts.sections(process).iter().filter(|section| section.mutex == mutex) {
        let state = facts.inspector.python.threads.get(section.state);
        let Some(position) = state.and_then(|state| process.position(state.tid?)) else { continue };
        let thread = &process.threads[position];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let evidence = format!(
            "{} is in the critical section at {}, which has locked {mutex}",
            thread.describe(),
            section.address
        );
        let frame = thread.native_frame(section.address).and_then(|native| thread.merged(native));
        out.holds.push(Hold { frame, ..exact_hold(&resource.key, holder, None, vec![evidence]) });
    }
    if out.holds.len() == before {
        out.nobody_named(resource, "a PyMutex records no owner, and no thread is in a critical section that has it");
    }
}

/// How the holder of the mutex of `object` is found, or of the mutex that `object` is. One that is in no object and in no
/// section may be an extension's own: whose code has taken it has it, else who has its address at hand is a candidate.
pub(super) fn ownership(process: &Process<'_>, facts: &Facts<'_>, what: &What, object: Addr) -> Ownership {
    let is_object = matches!(what, What::Other(_));
    let mutex = if is_object { lock_object::mutex_of(object) } else { object };
    match is_object || facts.sections(process).iter().any(|section| section.mutex == mutex) {
        true => Ownership::private(HolderRule::CriticalSection(mutex)),
        false => Ownership::Unrecorded(Unrecorded { lock: mutex, size: MUTEX_SIZE, calls: &CALLS }),
    }
}

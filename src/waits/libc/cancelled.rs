//! Threads that may cancel another one: its wait ends then, if that is a call that `pthread_cancel` ends.
//!
//! In: waits inside rings. Out: a wake source for each thread with such a call ahead of where it stands. The graph finds whether that
//! thread can get there.

use std::collections::HashMap;

use crate::waits::blocked_on::{Guards, LockCalls, ThreadWait};
use crate::waits::holders::Blocked;
use crate::waits::holders::by_critical_section;
use crate::waits::holders::rings::rings;
use crate::waits::kinds::{self, Kind};
use crate::waits::model::Party;
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// The call that ends the wait of the thread with this descriptor, as one that gives something back.
const CANCEL: LockCalls = LockCalls {
    mode: None,
    locks: &[],
    may_fail: &[],
    unlocks: &["pthread_cancel"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};

/// Whether waits for this are in calls that end when the thread is cancelled (pthreads(7), "Cancellation points"): of locks, only
/// semaphores'.
fn is_cancelled(kind: &Kind) -> bool {
    !kind.is_lock() || *kind == *kinds::SEMAPHORE
}

/// Whether some code of a process may call it by its name: reading what lies ahead of all threads takes long.
fn cancels(process: &Process<'_>) -> bool {
    const CALL: &str = "pthread_cancel";
    let symbols = process.context.symbols;
    let modules = || 0..symbols.modules().list.len();
    let is_static = || !modules().any(|module| symbols.exports(module, CALL));
    symbols.has_met_slot(CALL)
        || modules().any(|module| symbols.imports(module, CALL))
        || is_static() && modules().any(|module| symbols.find(module, CALL).is_some())
}

/// Add the threads that may cancel a waiter inside a ring.
pub(super) fn wake_sources(blocked: &Blocked<'_>, out: &mut Observations) {
    let may_end = |wait: &&ThreadWait| is_cancelled(wait.blocked_on.resource.key.kind);
    if !blocked.waits().iter().any(|wait| may_end(&wait)) {
        return;
    }
    let rings = rings(out);
    let mut may_cancel: HashMap<usize, bool> = HashMap::new();
    for wait in blocked.waits().iter().filter(may_end) {
        let process = blocked.process(wait);
        let thread = &process.threads[wait.thread];
        let waiter = Party::Thread(process.context.process, thread.image.tid);
        let Some(descriptor) = thread.pthread.filter(|_| rings.contains(&waiter)) else { continue };
        if !*may_cancel.entry(wait.process).or_insert_with(|| cancels(process)) {
            continue;
        }
        let key = &wait.blocked_on.resource.key;
        for source in by_critical_section::givers(blocked, process, descriptor, key, &CANCEL) {
            out.wake_source_for(&waiter, source.by, &source.what);
        }
    }
}

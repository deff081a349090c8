//! Locks of `multiprocessing`: which process has taken one.
//!
//! In: a wait for a semaphore in shared memory that belongs to a `SemLock`. Out: holds. Each process has an object of its own
//! for the same semaphore, with the count of how often this process has taken it and the thread that did last; fork copies
//! the thread's ident but sets the count to 0, so that the count decides. The objects are found from the frames of each
//! process: what is neither in a variable nor in an attribute or global at hand is not found.

use std::collections::HashSet;

use super::{Cpython, Facts};
use crate::image::{Addr, Gap, MemoryExt};
use crate::limits;
use crate::limits::cpython::SHARED_OBJECTS;
use crate::python::inspect::frames_of;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::identity::key;
use crate::waits::model::Party;
use crate::waits::observations::Observations;

/// `SemLockObject` of Modules/_multiprocessing/semaphore.c behind the head: handle, last_tid, count [live on 3.8 to 3.14].
const HANDLE: u64 = 0;
const LAST_THREAD: u64 = 8;
const COUNT: u64 = 16;

/// Add who has the lock that `found` waits for.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, found: &ThreadWait, out: &mut Observations) {
    let resource = &found.blocked_on.resource;
    let before = out.holds.len();
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        let objects = facts.inspector.objects();
        for object in facts.shared() {
            let Some(handle) = objects.field(*object, HANDLE) else { continue };
            let count = process.memory().i32(*object + objects.head() + COUNT).unwrap_or(0);
            let own = key(process, resource.key.kind, handle);
            if (&own.scope, own.address) != (&resource.key.scope, resource.key.address) || count <= 0 {
                continue;
            }
            let ident = objects.field(*object, LAST_THREAD).map_or(0, |ident| ident.0);
            let evidence = format!(
                "the SemLock at {object} in process {} says count = {count}, last_tid = {ident:#x}",
                process.context.image.pid
            );
            let holder = match facts.thread_with_ident(process, ident) {
                Some(position) => Party::Thread(process.context.process, process.threads[position].image.tid),
                None => Party::Process(process.context.process),
            };
            out.holds.push(exact_hold(&resource.key, holder, None, vec![evidence]));
        }
    }
    if out.holds.len() == before {
        out.gaps.push(Gap::new(
            format!("holder of {}", resource.label),
            "no captured process has an object of it at hand that says it has taken it: its holder is another process \
             (capture that too), or has ended",
        ));
    }
}

/// The `SemLock` objects that the frames of a process have at hand.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Addr> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let mut roots = Vec::new();
    for (_, thread) in inspector.living() {
        for frame in frames_of(thread).filter_map(|frame| inspector.frame(frame)) {
            roots.extend(frame.variables().into_iter().map(|(_, value)| value));
            roots.extend(frame.entered());
            roots.extend(inspector.named_globals(&frame).into_iter().map(|(_, value)| value));
        }
    }
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut take = |object: Addr| {
        let lock = objects.attribute(object, "_semlock").unwrap_or(object);
        let is_lock = objects.class_name(lock).as_deref() == Some("_multiprocessing.SemLock");
        if is_lock && !found.contains(&lock) {
            found.push(lock);
        }
    };
    for root in roots {
        if seen.len() >= SHARED_OBJECTS {
            limits::met(SHARED_OBJECTS, "locks of multiprocessing that a process has at hand", "objects");
            break;
        }
        if !seen.insert(root) || inspector.is_plain(root) {
            continue;
        }
        take(root);
        for (_, value) in objects.attributes(root).unwrap_or_default() {
            if seen.len() < SHARED_OBJECTS && seen.insert(value) && !inspector.is_plain(value) {
                take(value);
            }
        }
    }
    found
}

//! Locks of the driver: whose call has one.
//!
//! In: the holds that the families below found. Out: the frame of the driver call that took a lock, where nothing else
//! shows it. Also out: the threads in calls that take a lock for reading, as candidates for a lock that readers have.

use std::collections::HashSet;

use super::calls::{self, Mode};
use super::stacks::Stack;
use crate::origin::is_cuda_call;
use crate::waits::blocked_on::{Ownership, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Hold, Party, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// Refine the holds of locks that threads in driver calls wait for.
pub(super) fn refine<'k>(blocked: &Blocked<'_>, stacks: impl Fn(&Process<'_>) -> &'k [Stack], out: &mut Observations) {
    let mut counted: Vec<&ThreadWait> = Vec::new();
    let mut seen = HashSet::new();
    for wait in blocked.waits() {
        let process = blocked.process(wait);
        match &wait.blocked_on.ownership {
            Ownership::Tid(_) => taking_call(process, wait, out),
            Ownership::Readers(_) if seen.insert(&wait.blocked_on.resource.key) => counted.push(wait),
            _ => {}
        }
    }
    for wait in counted {
        let process = blocked.process(wait);
        readers(process, stacks(process), wait, out);
    }
}

/// A driver keeps its locks behind pointers that leave no trace in its callers' frames: when both threads are in driver
/// calls, the owner's call is where the lock was taken.
fn taking_call(process: &Process<'_>, wait: &ThreadWait, out: &mut Observations) {
    let key = &wait.blocked_on.resource.key;
    let waiter = &process.threads[wait.thread];
    // First, since few are: all holds are gone through for each that is.
    if driver_call(waiter).is_none() {
        return;
    }
    for hold in out.holds.iter_mut().filter(|hold| hold.resource == *key && hold.frame.is_none() && hold.gone.is_none())
    {
        let Party::Thread(position, tid) = hold.holder else { continue };
        if position != process.context.process || tid == waiter.image.tid {
            continue;
        }
        let Some(owner) = process.position(tid).and_then(|position| process.threads.get(position)) else { continue };
        if let Some((native, name)) = driver_call(owner) {
            hold.frame = owner.merged(native);
            hold.evidence.push(format!("{tid} is in the driver call {name}"));
        }
    }
}

/// The outermost call of the CUDA driver or runtime on a thread's stack.
fn driver_call<'t>(thread: &'t ThreadView<'_>) -> Option<(usize, &'t str)> {
    thread.names(usize::MAX).filter(|(_, name)| is_cuda_call(name)).last()
}

/// A lock of the driver that readers have: those in calls that take it for reading.
fn readers(process: &Process<'_>, stacks: &[Stack], wait: &ThreadWait, out: &mut Observations) {
    let is_drivers = stacks.get(wait.thread).is_some_and(|stack| stack.entry.is_some());
    if !is_drivers {
        return;
    }
    let key = &wait.blocked_on.resource.key;
    for (position, stack) in stacks.iter().enumerate().filter(|(position, _)| *position != wait.thread) {
        let thread = &process.threads[position];
        let Some(entry) = stack.entry.as_ref().filter(|entry| calls::mode(&entry.name) == Some(Mode::Read)) else {
            continue;
        };
        let holder = Party::Thread(process.context.process, thread.image.tid);
        if out.holds.iter().any(|hold| hold.resource == *key && hold.holder == holder) {
            continue;
        }
        let evidence = vec![format!(
            "{} is in {}, which takes the lock of its context for reading ({}): a candidate",
            thread.describe(),
            entry.name,
            calls::MEASURED_ON
        )];
        let hold = exact_hold(key, holder, Some("read"), evidence);
        out.holds.push(Hold { strength: Strength::Candidate, frame: thread.merged(entry.native), ..hold });
    }
}

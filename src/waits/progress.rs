//! Threads inside a call of a library that polls for messages from other processes, on a processor or between short
//! sleeps.
//!
//! In: a thread, what the families below saw of it, and the name of the call. Out: [`Progress`], if it is there to wait and for no lock.
//! Which calls wait so, and for whom, is known elsewhere.

use super::blocked_on::BlockedOn;
use super::kinds::{self, Kind};
use super::thread::{Process, ThreadView};
use crate::arch::system_calls::SCHED_YIELD;
use crate::image::TaskState;

/// Share of a processor in percent from which on a thread polls, even if the sample found it asleep: a thread that
/// sleeps with a time-out in between polls.
const LEAST_OF_POLLING: u64 = 5;

/// How a thread waits inside of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// It burns CPU.
    pub(super) spinning: bool,
    /// The evidence.
    pub(super) evidence: String,
}

/// How `thread` waits inside the call `name`; `None` where it sleeps on a lock, or is seen neither asleep nor at work.
pub(super) fn progress(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    below: Option<&BlockedOn>,
    name: &str,
) -> Option<Progress> {
    let yields =
        |below: &BlockedOn| below.call.is_some_and(|call| call.row(process.architecture()) == Some(&SCHED_YIELD));
    let asleep = below.filter(|below| !yields(below));
    if asleep.is_some_and(|below| !is_without_owner(below)) {
        return None;
    }
    let runs = thread.image.state == TaskState::Running && thread.image.registers.is_some();
    if below.is_none() && !runs && !thread.image.was_at_work() {
        return None;
    }
    let used = thread.image.cpu_used.map_or(0, |(used, elapsed)| used.saturating_mul(100) / elapsed.max(1));
    Some(Progress {
        spinning: asleep.is_none() || used >= LEAST_OF_POLLING,
        evidence: match (asleep, below) {
            (Some(below), _) => format!("it sleeps in {name} on {}", below.resource.label),
            (None, Some(_)) => format!("it calls sched_yield again and again inside {name}"),
            (None, None) => format!("it polls inside {name}"),
        },
    })
}

/// Whether the families below found only something that a library sleeps on, and no lock.
fn is_without_owner(below: &BlockedOn) -> bool {
    const KINDS: [&Kind; 10] = [
        kinds::FUTEX,
        kinds::SEMAPHORE,
        kinds::PTHREAD_COND,
        kinds::TIMER,
        kinds::EVENTFD,
        kinds::SOCKET,
        kinds::DESCRIPTOR,
        kinds::SIGNAL,
        kinds::EVENTS,
        kinds::SYSTEM_CALL,
    ];
    KINDS.contains(&below.resource.key.kind)
}

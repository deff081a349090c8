//! `sem_t`: a thread waits for a post. A semaphore has no owner.
//!
//! In: a [`Case`]. Out: the semaphore, and that code which uses it as a lock shows the holder. Its words say little
//! (value 0, some waiters), so this comes after everything with a stronger shape.

use super::Case;
use super::lock_calls::SEMAPHORE;
use crate::limits::libc::SEMAPHORE_WAITERS;
use crate::waits::blocked_on::{BlockedOn, Ownership};
use crate::waits::kinds;

/// Calls that wait for a semaphore.
pub(super) const ENTRY_POINTS: &[&str] = &["sem_", "new_sem_", "PyThread_acquire_lock"];

/// Decode a semaphore wait: 64 bits, value below and number of waiters above (nptl/sem_waitcommon.c).
pub(super) fn decode(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    let base = futex.word;
    let waiters = case.word(base, 4)?;
    if futex.command != 9
        || futex.value != 0
        || case.word(base, 0)? != 0
        || waiters == 0
        || waiters >= SEMAPHORE_WAITERS
    {
        return None;
    }
    let shared = case.word(base, 8).unwrap_or(0);
    let state = vec![("value", 0), ("waiters", i64::from(waiters)), ("shared", i64::from(shared != 0))];
    let evidence = vec![case.word_is("semaphore", base, "value = 0"), format!("nwaiters = {waiters} at {}", base + 4)];
    let decoded = case.below.refined(case.resource(kinds::SEMAPHORE, "semaphore", base, state), ENTRY_POINTS, evidence);
    Some(decoded.owned(Ownership::LockedInCode(base, &SEMAPHORE)))
}

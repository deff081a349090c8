//! Names of the calls that take and give back locks of the C library whose holder nobody records.
//!
//! In: nothing. Out: tables for [`by_critical_section`](crate::waits::holders::by_critical_section).

use crate::waits::blocked_on::{Guards, LockCalls};

/// `pthread_mutex_t`.
pub(super) const MUTEX: LockCalls = LockCalls {
    mode: None,
    locks: &["pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_timedlock"],
    unlocks: &["pthread_mutex_unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
};
/// `pthread_rwlock_t`, for reading.
pub(super) const READERS: LockCalls = LockCalls {
    mode: Some("read"),
    locks: &["pthread_rwlock_rdlock", "pthread_rwlock_timedrdlock", "pthread_rwlock_clockrdlock"],
    unlocks: &["pthread_rwlock_unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
};
/// `pthread_rwlock_t`, for writing.
pub(super) const WRITERS: LockCalls = LockCalls {
    mode: Some("write"),
    locks: &["pthread_rwlock_wrlock", "pthread_rwlock_timedwrlock", "pthread_rwlock_trywrlock"],
    unlocks: &["pthread_rwlock_unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
};
/// `pthread_spinlock_t`.
pub(super) const SPINLOCK: LockCalls = LockCalls {
    mode: None,
    locks: &["pthread_spin_lock"],
    unlocks: &["pthread_spin_unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
};
/// Guards of static variables.
pub(super) const GUARD: LockCalls = LockCalls {
    mode: None,
    locks: &["cxa_guard_acquire"],
    unlocks: &["cxa_guard_release", "cxa_guard_abort"],
    guards: Guards::NONE,
    is_ambiguous: false,
};
/// `sem_t`, used as a lock: what one thread takes another may give.
pub(super) const SEMAPHORE: LockCalls = LockCalls {
    mode: None,
    locks: &["sem_wait", "sem_timedwait", "sem_clockwait", "sem_trywait"],
    unlocks: &["sem_post"],
    guards: Guards::NONE,
    is_ambiguous: true,
};

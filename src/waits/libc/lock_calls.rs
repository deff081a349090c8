//! Names of the calls that take and give back locks of the C library without a recorded holder.
//!
//! In: nothing. Out: tables for [`by_critical_section`](crate::waits::holders::by_critical_section).

use crate::waits::blocked_on::{Guards, LockCalls};

/// `pthread_mutex_t`.
pub(super) const MUTEX: LockCalls = LockCalls {
    mode: None,
    locks: &["pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_timedlock"],
    may_fail: &["pthread_mutex_trylock", "pthread_mutex_timedlock"],
    unlocks: &["pthread_mutex_unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};
/// `pthread_rwlock_t`, for reading.
pub(super) const READERS: LockCalls = LockCalls {
    mode: Some("read"),
    locks: &["pthread_rwlock_rdlock", "pthread_rwlock_timedrdlock", "pthread_rwlock_clockrdlock"],
    may_fail: &["pthread_rwlock_timedrdlock", "pthread_rwlock_clockrdlock"],
    unlocks: &["pthread_rwlock_unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};
/// `pthread_rwlock_t`, for writing.
pub(super) const WRITERS: LockCalls = LockCalls {
    mode: Some("write"),
    locks: &["pthread_rwlock_wrlock", "pthread_rwlock_timedwrlock", "pthread_rwlock_trywrlock"],
    may_fail: &["pthread_rwlock_timedwrlock", "pthread_rwlock_trywrlock"],
    unlocks: &["pthread_rwlock_unlock"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};
/// `pthread_spinlock_t`.
pub(super) const SPINLOCK: LockCalls = LockCalls {
    mode: None,
    locks: &["pthread_spin_lock"],
    may_fail: &[],
    // glibc has one function by both names, and both leave it free.
    unlocks: &["pthread_spin_unlock", "pthread_spin_init"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};
/// Guards of static variables.
pub(super) const GUARD: LockCalls = LockCalls {
    mode: None,
    locks: &["cxa_guard_acquire"],
    may_fail: &[],
    unlocks: &["cxa_guard_release", "cxa_guard_abort"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};
/// `sem_t`, used as a lock: what one thread takes another may give.
pub(super) const SEMAPHORE: LockCalls = LockCalls {
    mode: None,
    locks: &["sem_wait", "sem_timedwait", "sem_clockwait", "sem_trywait"],
    may_fail: &["sem_timedwait", "sem_clockwait", "sem_trywait"],
    unlocks: &["sem_post"],
    guards: Guards::NONE,
    is_ambiguous: true,
    is_only: false,
    lock: 0,
};
/// OpenMP's locks, and its critical sections with a name: GCC makes a word for each, and passes its address.
pub(super) const OPENMP: LockCalls = LockCalls {
    mode: None,
    locks: &["GOMP_critical_name_start", "omp_set_lock", "omp_set_nest_lock"],
    may_fail: &[],
    unlocks: &["GOMP_critical_name_end", "omp_unset_lock", "omp_unset_nest_lock"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};
/// OpenMP's critical sections without a name, which are one (`default_lock` in libgomp/critical.c).
pub(super) const OPENMP_NAMELESS: LockCalls = LockCalls {
    mode: None,
    locks: &["GOMP_critical_start"],
    may_fail: &[],
    unlocks: &["GOMP_critical_end"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: true,
    lock: 0,
};
/// Critical sections as clang makes them: the lock is the third argument, behind a place in the source and the number of the thread.
pub(super) const LLVM_CRITICAL: LockCalls = LockCalls {
    mode: None,
    locks: &["kmpc_critical", "kmpc_critical_with_hint"],
    may_fail: &[],
    unlocks: &["kmpc_end_critical"],
    guards: Guards::NONE,
    is_ambiguous: false,
    is_only: false,
    lock: 2,
};

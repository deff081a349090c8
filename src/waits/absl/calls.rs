//! Names of the calls of Abseil that wait, and that take and give back a mutex.
//!
//! In: nothing. Out: tables of patterns ([`crate::symbols::is_named`]). Names since 2025 are lower case, and guards take a
//! reference there (absl/synchronization/mutex.h).

use crate::waits::blocked_on::{Guards, LockCalls};

/// Calls that wait for a mutex or at a condition.
pub(super) const ENTRY_POINTS: &[&str] = &[
    "absl::*::Mutex::",
    "absl::*::MutexLock::MutexLock(",
    "absl::*::ReaderMutexLock::ReaderMutexLock(",
    "absl::*::WriterMutexLock::WriterMutexLock(",
    "absl::*::MutexLockMaybe::MutexLockMaybe(",
    "absl::*::ReleasableMutexLock::ReleasableMutexLock(",
    "absl::*::CondVar::",
    "absl::*::synchronization_internal::",
    "AbslInternalPerThreadSemWait",
];

/// For writing.
pub(super) const WRITERS: LockCalls = LockCalls {
    mode: Some("write"),
    locks: &[
        "absl::*::Mutex::Lock()",
        "absl::*::Mutex::lock()",
        "absl::*::Mutex::TryLock()",
        "absl::*::Mutex::try_lock()",
        "absl::*::Mutex::WriterLock()",
        "absl::*::Mutex::WriterTryLock()",
        "absl::*::Mutex::LockWhen(absl::*::Condition const&)",
        "absl::*::Mutex::WriterLockWhen(absl::*::Condition const&)",
    ],
    may_fail: &["absl::*::Mutex::TryLock()", "absl::*::Mutex::try_lock()", "absl::*::Mutex::WriterTryLock()"],
    unlocks: &["absl::*::Mutex::Unlock()", "absl::*::Mutex::unlock()", "absl::*::Mutex::WriterUnlock()"],
    guards: Guards {
        begin: &[
            "absl::*::MutexLock::MutexLock(absl::*::Mutex*)",
            "absl::*::MutexLock::MutexLock(absl::*::Mutex&)",
            "absl::*::MutexLock::MutexLock(absl::*::Mutex*, absl::*::Condition const&)",
            "absl::*::MutexLock::MutexLock(absl::*::Mutex&, absl::*::Condition const&)",
            "absl::*::WriterMutexLock::WriterMutexLock(absl::*::Mutex*)",
            "absl::*::WriterMutexLock::WriterMutexLock(absl::*::Mutex&)",
            "absl::*::MutexLockMaybe::MutexLockMaybe(absl::*::Mutex*)",
            "absl::*::ReleasableMutexLock::ReleasableMutexLock(absl::*::Mutex*)",
            "absl::*::ReleasableMutexLock::ReleasableMutexLock(absl::*::Mutex&)",
        ],
        end: &[
            "absl::*::MutexLock::~MutexLock()",
            "absl::*::WriterMutexLock::~WriterMutexLock()",
            "absl::*::MutexLockMaybe::~MutexLockMaybe()",
            "absl::*::ReleasableMutexLock::~ReleasableMutexLock()",
            "absl::*::ReleasableMutexLock::Release()",
        ],
    },
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};

/// For reading.
pub(super) const READERS: LockCalls = LockCalls {
    mode: Some("read"),
    locks: &[
        "absl::*::Mutex::ReaderLock()",
        "absl::*::Mutex::lock_shared()",
        "absl::*::Mutex::ReaderTryLock()",
        "absl::*::Mutex::try_lock_shared()",
        "absl::*::Mutex::ReaderLockWhen(absl::*::Condition const&)",
    ],
    may_fail: &["absl::*::Mutex::ReaderTryLock()", "absl::*::Mutex::try_lock_shared()"],
    unlocks: &["absl::*::Mutex::ReaderUnlock()", "absl::*::Mutex::unlock_shared()"],
    guards: Guards {
        begin: &[
            "absl::*::ReaderMutexLock::ReaderMutexLock(absl::*::Mutex*)",
            "absl::*::ReaderMutexLock::ReaderMutexLock(absl::*::Mutex&)",
            "absl::*::ReaderMutexLock::ReaderMutexLock(absl::*::Mutex*, absl::*::Condition const&)",
            "absl::*::ReaderMutexLock::ReaderMutexLock(absl::*::Mutex&, absl::*::Condition const&)",
        ],
        end: &["absl::*::ReaderMutexLock::~ReaderMutexLock()"],
    },
    is_ambiguous: false,
    is_only: false,
    lock: 0,
};

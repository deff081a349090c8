//! The words of `absl::Mutex`, and of the identity that Abseil gives each thread (64 bits).
//!
//! Sources: absl/synchronization/mutex.cc (`kMu*`, `kCv*`, `SynchWaitParams`, `SynchLocksHeld`) and
//! absl/base/internal/thread_identity.h (`PerThreadSynch`). Seen live in LTS 20220623 (Debian 12) and in 20260526 (inside
//! grpcio 1.85.1): between these only the place of the futex word differs.

/// `kMuReader`: readers hold it.
pub(super) const READER: u64 = 0x01;
/// `kMuWait`: at least one thread waits.
pub(super) const WAIT: u64 = 0x04;
/// `kMuWriter`: a writer holds it.
pub(super) const WRITER: u64 = 0x08;
/// `kMuHigh`: the bits above the flags point to the last waiter's `PerThreadSynch`. The same holds for a condition
/// variable, which has fewer flags.
pub(super) const HIGH: u64 = !0xff;
/// `kMuOne`: one reader, where readers are counted.
pub(super) const ONE_READER: u64 = 0x100;
/// `kCvLow`: all flags that the word of a condition variable may have.
pub(super) const CONDITION_FLAGS: u64 = 0x03;
/// Bytes of a mutex: one word.
pub(super) const SIZE: u64 = 8;

/// `PerThreadSynch`, the first member of `ThreadIdentity`.
pub(super) mod identity {
    use std::ops::Range;

    /// `kAlignment`.
    pub(in crate::waits::absl) const ALIGNMENT: u64 = 256;
    /// `next`: the ring of those who wait for one thing.
    pub(in crate::waits::absl) const NEXT: u64 = 0;
    /// `cond_waiter`: it gave its mutex back before it was queued, to wait for a condition, and now is to take it again (`kMuIsCond`).
    pub(in crate::waits::absl) const HAS_GIVEN_BACK: u64 = 18;
    /// `state`.
    pub(in crate::waits::absl) const STATE: u64 = 28;
    /// `kQueued`.
    pub(in crate::waits::absl) const QUEUED: u32 = 1;
    /// `waitp`: what it waits for.
    pub(in crate::waits::absl) const WAIT_PARAMETERS: u64 = 32;
    /// `readers`: of the last waiter of a mutex, how many hold it, times [`ONE_READER`](super::ONE_READER).
    pub(in crate::waits::absl) const READERS: u64 = 40;
    /// `all_locks`: what it holds, where Abseil's own detection of deadlocks is on.
    pub(in crate::waits::absl) const ALL_LOCKS: u64 = 56;
    /// Where the futex word may lie: behind `PerThreadSynch`, in `waiter_state`. At 64 in 20220623, at 128 in 20260526.
    pub(in crate::waits::absl) const WAITER_STATE: Range<u64> = 64..192;
}

/// `SynchWaitParams`, on the waiter's stack.
pub(super) mod parameters {
    /// `how`: a `MuHowS`.
    pub(in crate::waits::absl) const HOW: u64 = 0;
    /// `cond`: a condition that must hold as well.
    pub(in crate::waits::absl) const CONDITION: u64 = 8;
    /// `cvmu`: for who waits at a condition variable, the mutex that it gave back.
    pub(in crate::waits::absl) const MUTEX: u64 = 24;
    /// `thread`: the waiter itself.
    pub(in crate::waits::absl) const THREAD: u64 = 32;
    /// Its size.
    pub(in crate::waits::absl) const SIZE: u64 = 56;
    /// `MuHowS::fast_add`: what the word grows by; a reader adds one.
    pub(in crate::waits::absl) const FAST_ADD: u64 = 16;
}

/// `SynchLocksHeld`.
pub(super) mod held {
    /// `n`.
    pub(in crate::waits::absl) const COUNT: u64 = 0;
    /// `locks`: {mutex, count, id}.
    pub(in crate::waits::absl) const LOCKS: u64 = 8;
    /// Bytes of one.
    pub(in crate::waits::absl) const ENTRY: u64 = 24;
}

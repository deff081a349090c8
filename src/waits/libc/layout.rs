//! Offsets inside the objects of glibc (2.27 to 2.43) and musl (1.2.3).
//!
//! The same on all 64-bit machines unless noted; `pthread_mutex_t` is longer on some
//! ([`glibc_mutex_size`](crate::arch::Architecture::glibc_mutex_size)).
//!
//! Sources: libc.md sections 1, 3 and 5, measured on glibc 2.27, 2.31, 2.36, 2.41, 2.43 and musl 1.2.3, and checked by
//! scripts/check/libc-layouts.py, for aarch64 by scripts/check/aarch64-layouts; names from
//! sysdeps/nptl/bits/struct_mutex.h, struct_rwlock.h, thread-shared-types.h, nptl/descr.h.

/// Where `pd->joinstate` of glibc 2.43 may stand (commit 5da15b15ad), counted from `pd->tid`: at 0x358 on x86-64 and aarch64, and
/// builds pad `struct pthread` differently.
pub(super) const JOINSTATE_BEHIND_TID: std::ops::Range<u64> = 0x330..0x430;

/// The owner's id in a priority-inheriting or robust lock word (FUTEX_TID_MASK).
pub(super) const TID_MASK: u32 = 0x3fff_ffff;
/// The owner died (FUTEX_OWNER_DIED).
pub(super) const OWNER_DIED: u32 = 0x4000_0000;
/// A thread waits (FUTEX_WAITERS).
pub(super) const WAITERS: u32 = 0x8000_0000;

/// `pthread_mutex_t`.
pub(super) mod mutex {
    /// `__count`.
    pub(crate) const COUNT: u64 = 4;
    /// PTHREAD_MUTEX_ELISION_NP in `__kind`; beside it, 0x200 says the opposite and is seen on any machine.
    pub(crate) const ELISION: u32 = 0x100;
    /// `__owner`.
    pub(crate) const OWNER: u64 = 8;
    /// `__nusers`.
    pub(crate) const USERS: u64 = 12;
    /// `__kind`.
    pub(crate) const KIND: u64 = 16;
    /// Bits that `__kind` may have: type 3, robust 0x10, PI 0x20, ceiling 0x40, shared 0x80, elision 0x300.
    pub(crate) const KIND_BITS: u32 = 0x3f3;
    /// Robust.
    pub(crate) const ROBUST: u32 = 0x10;
    /// Priority-inheriting.
    pub(crate) const INHERIT: u32 = 0x20;
    /// `__owner` of a robust mutex whose owner died and that was not made consistent, or never can be.
    pub(crate) const SPECIAL_OWNERS: [u32; 2] = [0x7fff_ffff, 0x7fff_fffe];
}

/// `pthread_rwlock_t`.
pub(super) mod rwlock {
    /// Size.
    pub(crate) const SIZE: u64 = 56;
    /// `__writers`.
    pub(crate) const WRITERS: u64 = 4;
    /// `__wrphase_futex`.
    pub(crate) const PHASE_FUTEX: u64 = 8;
    /// `__writers_futex`.
    pub(crate) const WRITERS_FUTEX: u64 = 12;
    /// `__cur_writer`.
    pub(crate) const CURRENT_WRITER: u64 = 24;
    /// `__flags`: the kind, 0 to 2.
    pub(crate) const FLAGS: u64 = 48;
    /// `__readers`: it is a write phase.
    pub(crate) const WRITE_PHASE: u32 = 1;
    /// `__readers`: a primary writer exists.
    pub(crate) const WRITE_LOCKED: u32 = 2;
    /// `__readers`: readers wait for the end of a writer's turn.
    pub(crate) const READERS_WAIT: u32 = 4;
    /// `__readers`: above this shift, their number.
    pub(crate) const READERS_SHIFT: u32 = 3;
}

/// `pthread_cond_t`, two layouts that the offset of the futex word distinguishes.
pub(super) mod condition {
    /// Offsets of `__g_signals[2]` and of `__wrefs`, with the versions that have them.
    pub(crate) const LAYOUTS: [([u64; 2], u64, &str); 2] =
        [([40, 44], 36, "glibc up to 2.40"), ([32, 36], 28, "glibc 2.41 and later")];
    /// `__wrefs >> 3` is the number of waiters.
    pub(crate) const WAITERS_SHIFT: u32 = 3;
}

/// `std::sys::sync::rwlock::futex::RwLock` {state, writer_notify} in `std::sync::RwLock` {inner, poison, data}
/// (library/std/src/sys/sync/rwlock/futex.rs and library/std/src/sync/poison/rwlock.rs, Rust 1.62 to 1.95).
pub(super) mod rust_rwlock {
    /// The word that a writer sleeps on.
    pub(crate) const WRITER_NOTIFY: u64 = 4;
    /// The readers in the state.
    pub(crate) const COUNT: u32 = (1 << 30) - 1;
    /// That many mean a writer.
    pub(crate) const WRITE_LOCKED: u32 = COUNT;
}

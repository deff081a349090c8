//! Offsets inside the objects of glibc (x86-64, 2.27 to 2.43) and musl (1.2.3).
//!
//! Sources: libc.md sections 1, 3 and 5, measured on glibc 2.27, 2.31, 2.36, 2.41, 2.43 and musl 1.2.3; names from
//! sysdeps/nptl/bits/struct_mutex.h, struct_rwlock.h, thread-shared-types.h, nptl/descr.h.

use super::super::facts::CLibrary;
use crate::arch::Architecture;

/// `pd->joinstate` of glibc 2.43 (commit 5da15b15ad).
pub const PTHREAD_JOINSTATE: u64 = 0x628;
/// Builds pad `struct pthread` differently: where joinstate may stand.
pub const PTHREAD_JOINSTATE_RANGE: (u64, u64) = (0x600, 0x700);
/// Where `library` keeps a thread's id.
pub fn tid_offset(architecture: Architecture, library: CLibrary) -> u64 {
    let layout = architecture.descriptor_layout();
    match library {
        CLibrary::Glibc => layout.glibc_tid,
        CLibrary::Musl => layout.musl_tid,
    }
}

/// The owner's id in a priority-inheriting or robust lock word (FUTEX_TID_MASK).
pub const TID_MASK: u32 = 0x3fff_ffff;
/// The owner died (FUTEX_OWNER_DIED).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// Somebody waits (FUTEX_WAITERS).
pub const WAITERS: u32 = 0x8000_0000;

/// `pthread_mutex_t`.
pub mod mutex {
    /// Size.
    pub const SIZE: u64 = 40;
    /// `__count`.
    pub const COUNT: u64 = 4;
    /// PTHREAD_MUTEX_ELISION_NP in `__kind`; beside it, 0x200 says the opposite and is seen on any machine.
    pub const ELISION: u32 = 0x100;
    /// `__owner`.
    pub const OWNER: u64 = 8;
    /// `__nusers`.
    pub const USERS: u64 = 12;
    /// `__kind`.
    pub const KIND: u64 = 16;
    /// Bits that `__kind` may have: type 3, robust 0x10, PI 0x20, ceiling 0x40, shared 0x80, elision 0x300.
    pub const KIND_BITS: u32 = 0x3f3;
    /// Robust.
    pub const ROBUST: u32 = 0x10;
    /// Priority-inheriting.
    pub const INHERIT: u32 = 0x20;
    /// `__owner` of a robust mutex whose owner died and that was not made consistent, or never can be.
    pub const SPECIAL_OWNERS: [u32; 2] = [0x7fff_ffff, 0x7fff_fffe];
}

/// `pthread_rwlock_t`.
pub mod rwlock {
    /// Size.
    pub const SIZE: u64 = 56;
    /// `__writers`.
    pub const WRITERS: u64 = 4;
    /// `__wrphase_futex`.
    pub const PHASE_FUTEX: u64 = 8;
    /// `__writers_futex`.
    pub const WRITERS_FUTEX: u64 = 12;
    /// `__cur_writer`.
    pub const CURRENT_WRITER: u64 = 24;
    /// `__flags`: the kind, 0 to 2.
    pub const FLAGS: u64 = 48;
    /// `__readers`: it is a write phase.
    pub const WRITE_PHASE: u32 = 1;
    /// `__readers`: a primary writer exists.
    pub const WRITE_LOCKED: u32 = 2;
    /// `__readers`: readers wait for the end of a writer's turn.
    pub const READERS_WAIT: u32 = 4;
    /// `__readers`: above this shift, their number.
    pub const READERS_SHIFT: u32 = 3;
}

/// `pthread_cond_t`, two layouts that the offset of the futex word tells apart.
pub mod condition {
    /// Offsets of `__g_signals[2]` and of `__wrefs`, with the versions that have them.
    pub const LAYOUTS: [([u64; 2], u64, &str); 2] =
        [([40, 44], 36, "glibc up to 2.40"), ([32, 36], 28, "glibc 2.41 and later")];
    /// `__wrefs >> 3` is the number of waiters.
    pub const WAITERS_SHIFT: u32 = 3;
    /// More waiters than any process has threads mean that it is no condition.
    pub const MOST_WAITERS: u32 = 1 << 20;
    /// Bytes above the stack pointer in which the clean-up buffer {.., cond, mutex, ..} was found (at most 0x70 plus
    /// three hidden frames).
    pub const CLEANUP_RANGE: u64 = 768;
}

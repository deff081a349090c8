//! Where the thread pointer (the base of segment fs) leads: TLS variant II (psABI section 3.4.6; "ELF Handling For
//! Thread-Local Storage", section 3.4.6): the C library's own description of the thread begins there.
//!
//! Offsets: measured on glibc 2.27, 2.31, 2.36, 2.41, 2.43 and musl 1.2.3; names from glibc's nptl/descr.h and musl's
//! src/internal/pthread_impl.h.

use crate::arch::ThreadDescriptor;

/// The description is its own thread control block.
pub(in crate::arch) const AROUND: (u64, u64) = (0, 0x700);

/// `__SIZEOF_PTHREAD_MUTEX_T` (glibc, sysdeps/x86/nptl/bits/pthreadtypes-arch.h).
pub(in crate::arch) const GLIBC_MUTEX_SIZE: u64 = 40;

pub(in crate::arch) const DESCRIPTOR: ThreadDescriptor = ThreadDescriptor {
    // tcbhead_t.self.
    glibc_self: Some(0x10),
    glibc_tid: 0x2d0,
    musl_self: 0,
    musl_tid: 48,
    musl_detach_state: 56,
};

/// 1 is free, 0 and below is held (glibc, sysdeps/x86_64/nptl/pthread_spin_lock.S).
pub(in crate::arch) fn glibc_spinlock_is_held(word: i32) -> bool {
    word <= 0
}

//! Where the thread pointer (tpidr_el0) leads: TLS variant I (AAPCS64, "Thread Local Storage"): the program's own variables lie behind
//! it, and the C library's description of the thread ends shortly before them.
//!
//! Offsets come from the debug information of Debian's glibc 2.31, 2.36, 2.41 and 2.43, and from the code of its musl
//! 1.2.2, 1.2.3, 1.2.5 and 1.2.6 (scripts/check/aarch64-layouts). Only glibc 2.41 was seen running. Names come from
//! glibc's nptl/descr.h and musl's src/internal/pthread_impl.h (where TLS_ABOVE_TP leaves out the words that x86-64 has
//! more).

use crate::arch::{Register, Registers, ThreadDescriptor};
use crate::memory::{Addr, Memory, MemoryExt};

/// `__SIZEOF_PTHREAD_MUTEX_T` (glibc, sysdeps/aarch64/nptl/bits/pthreadtypes-arch.h).
pub(in crate::arch) const GLIBC_MUTEX_SIZE: u64 = 48;

pub(in crate::arch) const DESCRIPTOR: ThreadDescriptor =
    ThreadDescriptor { glibc_self: None, glibc_tid: 0xd0, musl_self: 0, musl_tid: 32, musl_detach_state: 40 };

/// Sizes that glibc's `struct pthread` may have, which ends at the thread pointer: 0x700 in 2.31, 0x740 in 2.36, 0x720 in 2.41
/// and 2.43.
const GLIBC_SIZES: std::ops::Range<u64> = 0x600..0x900;
/// Their alignment.
const GLIBC_ALIGNMENT: usize = 16;
/// Size of musl's, which ends at the thread pointer as well.
const MUSL_SIZE: u64 = 200;

/// The bytes around the thread pointer that hold the description: before it and behind it.
pub(in crate::arch) const AROUND: (u64, u64) = (GLIBC_SIZES.end, 0x40);

/// Where the description of the thread `tid` begins: musl's says where it is itself, glibc's has the thread's id at its place.
pub(in crate::arch) fn descriptor(registers: &Registers, tid: i32, memory: &dyn Memory) -> Option<Addr> {
    let before = |size: u64| registers.thread_pointer.0.checked_sub(size).map(Addr);
    let is_own = |at: &Addr| memory.u64(*at + DESCRIPTOR.musl_self) == Ok(at.0);
    let has_id = |at: &Addr| memory.i32(*at + DESCRIPTOR.glibc_tid) == Ok(tid);
    before(MUSL_SIZE).filter(is_own).or_else(|| GLIBC_SIZES.step_by(GLIBC_ALIGNMENT).filter_map(before).find(has_id))
}

/// Where glibc (2.31 to 2.43, by its code) keeps the lock while it spins: the function calls helpers for atomic instructions.
pub(in crate::arch) const SPINLOCK_REGISTER: Register = Register(19);

/// 0 is free (glibc, sysdeps/aarch64/nptl has none of its own: nptl/pthread_spin_lock.c).
pub(in crate::arch) fn glibc_spinlock_is_held(word: i32) -> bool {
    word != 0
}

//! `pthread_spinlock_t`: a waiter that burns CPU, and no recorded holder.
//!
//! In: a thread that runs in `pthread_spin_lock`. Out: the lock from its first argument register, which that function
//! leaves alone; the holder by the code between lock and unlock calls ([`by_critical_section`](crate::waits::holders::by_critical_section)), inferred.

use super::lock_calls::SPINLOCK;
use crate::image::{Addr, MemoryExt};
use crate::symbols::base_symbol;
use crate::waits::blocked_on::{BlockedOn, Ownership};
use crate::waits::c_library::CLibrary;
use crate::waits::identity::{key, label};
use crate::waits::kinds;
use crate::waits::model::Resource;
use crate::waits::thread::{Process, ThreadView};

const ENTRY_POINTS: &[&str] = &["pthread_spin_lock"];

/// Decode a spinning thread: one that is in no system call, in `pthread_spin_lock`, at a word that says locked.
pub(super) fn decode(process: &Process<'_>, thread: &ThreadView<'_>) -> Option<BlockedOn> {
    let registers = thread.image.registers.filter(|registers| registers.is_in_user_code())?;
    let frame = thread.thread?.native.frames.first()?;
    let function = process.context.symbols.function(frame.lookup)?;
    if base_symbol(&function.name) != ENTRY_POINTS[0] {
        return None;
    }
    let architecture = process.architecture();
    let register = architecture.spinlock_register();
    let lock = Addr(registers.general.get(register)?);
    // musl: 0 is free, EBUSY is held.
    const EBUSY: i32 = 16;
    let is_held = |word: &i32| match process.library {
        CLibrary::Glibc => architecture.glibc_spinlock_is_held(*word),
        CLibrary::Musl => *word == EBUSY,
    };
    let word = process.memory().i32(lock).ok().filter(is_held)?;
    let resource = Resource {
        key: key(process, kinds::PTHREAD_SPINLOCK, lock),
        process: process.context.process,
        label: label(process, thread, "spinlock", lock),
        state: vec![("lock", i64::from(word))],
        role: None,
    };
    let evidence = vec![format!(
        "it runs in pthread_spin_lock with {} = {lock}; the word there is {word}: held",
        architecture.register_name(register)
    )];
    Some(BlockedOn {
        entry_points: ENTRY_POINTS,
        spinning: true,
        ownership: Ownership::LockedInCode(lock, &SPINLOCK),
        ..BlockedOn::of(resource, None, evidence)
    })
}

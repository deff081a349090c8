//! The same objects in musl (1.2.3): other words, and no owner in an ordinary mutex.
//!
//! In: a [`Case`]. Out: as for glibc. Its semaphore and its write-held rwlock have equal words; only a name tells
//! them apart, and without one the futex stays a futex.

use super::super::family::Decoded;
use super::super::owner::{Owner, Ownership};
use super::Case;
use super::layout::{MUSL_DETACH_STATE, OWNER_DIED, TID_MASK, WAITERS};
use super::{condition, join, mutex, rwlock, semaphore};
use crate::image::{Addr, Gap};

/// The mutex's lock word.
const LOCK: u64 = 4;
/// Bits of `_m_type` (src/internal/pthread_impl.h): type 3, robust 4, PI 8, shared 0x80.
const TYPE_BITS: u32 = 0x8f;
/// EBUSY: the word of an ordinary mutex that is locked.
const LOCKED: u32 = 16;
/// A write-held rwlock, and a semaphore with waiters.
const ALL_BITS: u32 = 0xffff_ffff;
const SIZE: u64 = 40;

/// Decode a wait of a musl process.
pub fn decode(case: &Case<'_, '_>) -> Option<Decoded> {
    let futex = case.futex;
    if futex.inherits_priority() {
        return lock(case, case.word(futex.word, 0)?);
    }
    for (pd, position) in case.process.pthreads() {
        if futex.word == pd + MUSL_DETACH_STATE && futex.value == 2 {
            return Some(join::joined(case, pd, position, "detach_state"));
        }
    }
    let value = futex.value;
    if value == 2 && (case.thread.on_own_stack(futex.word) || case.inside(condition::API)) {
        let resource = case.resource("pthread_cond", "condition (its waiter's node)", futex.word, Vec::new());
        let evidence = vec![case.word_is("the waiter's node", futex.word, "barrier")];
        return Some(case.below.refined(resource, condition::API, evidence));
    }
    if value & WAITERS == 0 {
        return None;
    }
    let is = |names: &[&str]| case.inside(names);
    if is(semaphore::API) {
        let waiters = case.word(futex.word, 4)?;
        let resource = case.resource("semaphore", "semaphore", futex.word, vec![("waiters", i64::from(waiters))]);
        return Some(case.below.refined(
            resource,
            semaphore::API,
            vec![case.word_is("semaphore", futex.word, "value")],
        ));
    }
    if is(rwlock::API) {
        return Some(readers_writer(case));
    }
    if value == ALL_BITS {
        return None;
    }
    let kind = case.word(futex.word - LOCK, 0)?;
    let tid = (value & TID_MASK) as i32;
    let owned = kind & 3 != 0 || kind & 12 != 0;
    let looks_like_mutex = kind & !TYPE_BITS == 0 && if owned { tid != 0 } else { value == WAITERS | LOCKED };
    if looks_like_mutex {
        return lock(case, value);
    }
    None
}

/// A mutex: `_m_type` +0, `_m_lock` +4.
fn lock(case: &Case<'_, '_>, word: u32) -> Option<Decoded> {
    let base = case.futex.word - LOCK;
    let kind = case.word(base, 0)?;
    let tid = (word & TID_MASK) as i32;
    let mut state = vec![("lock", i64::from(word)), ("kind", i64::from(kind))];
    let evidence = vec![case.word_is("mutex", base, "_m_lock"), format!("_m_lock = {word:#x}, _m_type = {kind:#x}")];
    if kind & 15 == 0 || tid == 0 {
        let why = "musl records no owner of an ordinary mutex";
        let resource = case.resource("pthread_mutex", "mutex", base, state);
        let gap = Gap::new(format!("owner of {}", resource.label), why);
        return Some(case.below.refined(resource, mutex::API, evidence).with_gap(gap));
    }
    state.push(("owner", i64::from(tid)));
    let owner = Owner {
        tid,
        died: word & OWNER_DIED != 0,
        mode: None,
        lock: base,
        size: SIZE,
        evidence: vec![format!("_m_lock = {word:#x} at {}, owner bits {tid}", Addr(base.0 + LOCK))],
    };
    let resource = case.resource("pthread_mutex", "mutex", base, state);
    Some(case.below.refined(resource, mutex::API, evidence).owned(Ownership::Tid(owner)))
}

/// An rwlock: `_rw_lock` +0, waiters +4; no owner.
fn readers_writer(case: &Case<'_, '_>) -> Decoded {
    let (base, value) = (case.futex.word, case.futex.value);
    let written = value == ALL_BITS;
    let count = if written { 0 } else { value & !WAITERS };
    let state = vec![("readers", i64::from(count)), ("write_held", i64::from(written))];
    let resource = case.resource("pthread_rwlock", "rwlock", base, state);
    let evidence = vec![case.word_is("rwlock", base, "_rw_lock"), format!("_rw_lock = {value:#x}")];
    let gap = Gap::new(format!("owner of {}", resource.label), "musl records no owner of an rwlock");
    let mode = if case.inside(&["pthread_rwlock_rdlock", "pthread_rwlock_timedrdlock"]) { "read" } else { "write" };
    let decoded = case.below.refined(resource, rwlock::API, evidence).with_mode(mode);
    if count > 0 { decoded.owned(Ownership::Readers(count, base)) } else { decoded.with_gap(gap) }
}

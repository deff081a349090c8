//! The same objects in musl (1.2.3): other words, and no owner in an ordinary mutex.
//!
//! In: a [`Case`]. Out: as for glibc. Its semaphore and its write-held rwlock have equal words. Only a name
//! distinguishes them, and without one the futex stays a futex.

use super::Case;
use super::layout::{OWNER_DIED, TID_MASK, WAITERS};
use super::{by_function, condition, join, lock_calls, mutex, rwlock, semaphore};
use crate::image::{Addr, TaskState};
use crate::limits::libc::{CLEANUP_RANGE, LOWEST_ADDRESS, MUSL_WAITERS, PARKED_FRAMES};
use crate::waits::blocked_on::{BlockedOn, Owner, Ownership};
use crate::waits::c_library::CLibrary;
use crate::waits::kinds;

/// The mutex's lock word.
const LOCK: u64 = 4;
/// Bits of `_m_type` (src/internal/pthread_impl.h): type 3, robust 4, PI 8, shared 0x80.
const TYPE_BITS: u32 = 0x8f;
/// EBUSY: the word of an ordinary mutex that is locked.
const LOCKED: u32 = 16;
/// A write-held rwlock, and a semaphore with waiters.
const ALL_BITS: u32 = 0xffff_ffff;
const SIZE: u64 = 40;
/// The lock in a FILE, and its bit for waiters (MAYBE_WAITERS, src/internal/stdio_impl.h).
const FILE_LOCK: u64 = 140;
const FILE_WAITERS: u32 = 0x4000_0000;
/// `_c_seq` and `_c_tail` of a condition.
const SEQUENCE: u64 = 8;
const TAIL: u64 = 40;
/// struct waiter { prev, next, state, barrier, notify }, a node of a condition's list.
const NODE_NEXT: u64 = 8;
const NODE_BARRIER: u64 = 20;

/// Decode a wait of a musl process.
pub(super) fn decode(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    if futex.inherits_priority() {
        return lock(case, case.word(futex.word, 0)?);
    }
    let detach_state = case.process.context.image.architecture.descriptor_layout().musl_detach_state;
    for (pd, position) in case.process.pthreads() {
        if futex.word == pd + detach_state && futex.value == 2 {
            return Some(join::joined(case, pd, position, "detach_state"));
        }
    }
    let value = futex.value;
    if case.inside(condition::ENTRY_POINTS) && value & WAITERS == 0
        || value == 2 && case.thread.on_own_stack(futex.word)
    {
        return Some(waits_for_signal(case));
    }
    if let Some(decoded) = file(case) {
        return Some(decoded);
    }
    if value & WAITERS == 0 {
        return by_function::decode(case);
    }
    let is = |names: &'static [&'static str]| case.inside(names);
    if is(semaphore::ENTRY_POINTS) {
        let waiters = case.word(futex.word, 4)?;
        let resource = case.resource(kinds::SEMAPHORE, "semaphore", futex.word, vec![("waiters", i64::from(waiters))]);
        let evidence = vec![case.word_is("semaphore", futex.word, "value")];
        let decoded = case.below.refined(resource, semaphore::ENTRY_POINTS, evidence);
        return Some(decoded.owned(Ownership::LockedInCode(futex.word, &lock_calls::SEMAPHORE)));
    }
    if is(rwlock::ENTRY_POINTS) {
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

/// Conditions and barriers that processes share change their word for all waiters and wake one: the others sleep on
/// with a value that the word no longer has. A thread that was woken would have run between the samples.
pub(super) fn left_asleep(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let image = case.thread.image;
    let is_left = case.process.library == CLibrary::Musl
        && image.state == TaskState::Sleeping
        && image.cpu_used.is_some_and(|(used, _)| used == 0)
        && case.inside(&["pthread_cond_", "pthread_barrier_wait"]);
    let blocked_on = is_left.then(|| decode(case)).flatten()?;
    Some(BlockedOn { transient: false, ..blocked_on })
}

/// A condition. Its waiters are a list of nodes, each on its waiter's stack, whose oldest the condition names; one that
/// processes share is waited for by its sequence number (src/thread/pthread_cond_timedwait.c).
fn waits_for_signal(case: &Case<'_, '_>) -> BlockedOn {
    let word = case.futex.word;
    if !case.thread.on_own_stack(word) {
        let base = word - SEQUENCE;
        let resource = case.resource(kinds::PTHREAD_COND, "condition", base, Vec::new());
        return case.below.refined(resource, condition::ENTRY_POINTS, vec![case.word_is("condition", base, "_c_seq")]);
    }
    let (resource, known) = match listed_in(case, word - NODE_BARRIER) {
        Some(base) => {
            let known = format!("the list of condition {base} has the waiter's node at {}", word - NODE_BARRIER);
            (case.resource(kinds::PTHREAD_COND, "condition", base, Vec::new()), known)
        }
        None => {
            let known = case.word_is("the waiter's node", word, "barrier");
            (case.resource(kinds::PTHREAD_COND, "condition (its waiter's node)", word, Vec::new()), known)
        }
    };
    case.below.refined(resource, condition::ENTRY_POINTS, vec![known])
}

/// The condition, by a register or stack word of the waiter, in whose list this node is.
fn listed_in(case: &Case<'_, '_>, node: Addr) -> Option<Addr> {
    use crate::image::MemoryExt;
    let memory = case.process.memory();
    let next = |node: &Addr| memory.pointer(*node + NODE_NEXT).ok().filter(|next| !next.is_null());
    let oldest = std::iter::successors(Some(node), next).take(MUSL_WAITERS).last()?;
    let registers = case.thread.registers(PARKED_FRAMES).into_iter().map(|(_, _, value)| value);
    let words = case.thread.top(case.process, CLEANUP_RANGE).into_iter().map(|(_, word)| word);
    let names_it = |base: &Addr| memory.pointer(*base + TAIL).is_ok_and(|tail| tail == oldest);
    registers.chain(words).filter(|value| *value >= LOWEST_ADDRESS && value % 8 == 0).map(Addr).find(names_it)
}

/// The lock in a FILE: the owner's id, and a bit for waiters (src/stdio/__lockfile.c).
fn file(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let value = case.futex.value;
    let position = case.process.libc_tid((value & !FILE_WAITERS) as i32).filter(|_| value & FILE_WAITERS != 0)?;
    let base = case.futex.word - FILE_LOCK;
    let known = format!("lock = {value:#x} at {}: owner {}", case.futex.word, value & !FILE_WAITERS);
    let resource = case.resource(kinds::STDIO_FILE, "FILE lock", base, vec![("lock", i64::from(value))]);
    let evidence = vec![case.word_is("FILE", base, "lock"), known.clone()];
    Some(
        case.below
            .refined(resource, mutex::FILE_ENTRY_POINTS, evidence)
            .owned(Ownership::Thread(position, vec![known])),
    )
}

/// A mutex: `_m_type` +0, `_m_lock` +4.
fn lock(case: &Case<'_, '_>, word: u32) -> Option<BlockedOn> {
    let base = case.futex.word - LOCK;
    let kind = case.word(base, 0)?;
    let tid = (word & TID_MASK) as i32;
    let mut state = vec![("lock", i64::from(word)), ("kind", i64::from(kind))];
    let evidence = vec![case.word_is("mutex", base, "_m_lock"), format!("_m_lock = {word:#x}, _m_type = {kind:#x}")];
    if kind & 15 == 0 || tid == 0 {
        let resource = case.resource(kinds::PTHREAD_MUTEX, "mutex", base, state);
        let decoded = case.below.refined(resource, mutex::ENTRY_POINTS, evidence);
        return Some(decoded.owned(Ownership::LockedInCode(base, &lock_calls::MUTEX)));
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
    let resource = case.resource(kinds::PTHREAD_MUTEX, "mutex", base, state);
    Some(case.below.refined(resource, mutex::ENTRY_POINTS, evidence).owned(Ownership::Tid(owner)))
}

/// An rwlock: `_rw_lock` +0, waiters +4; no owner.
fn readers_writer(case: &Case<'_, '_>) -> BlockedOn {
    let (base, value) = (case.futex.word, case.futex.value);
    let written = value == ALL_BITS;
    let count = if written { 0 } else { value & !WAITERS };
    let state = vec![("readers", i64::from(count)), ("write_held", i64::from(written))];
    let resource = case.resource(kinds::PTHREAD_RWLOCK, "rwlock", base, state);
    let evidence = vec![case.word_is("rwlock", base, "_rw_lock"), format!("_rw_lock = {value:#x}")];
    let mode = if case.inside(&["pthread_rwlock_rdlock", "pthread_rwlock_timedrdlock"]) { "read" } else { "write" };
    let decoded = case.below.refined(resource, rwlock::ENTRY_POINTS, evidence).with_mode(mode);
    decoded.owned(match count {
        0 => Ownership::LockedInCode(base, &lock_calls::WRITERS),
        count => rwlock::counted_readers(count, base),
    })
}

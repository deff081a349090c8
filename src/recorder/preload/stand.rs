//! Threads that stand before a lock: each is held until all with which it deadlocks stand, too, or its time is over.
//!
//! In: a thread that is about to take a lock at a target of [`provoke`](crate::provoke). Out: it goes on, at once, later,
//! or beside its partners. Partners are a ring: each wants what the next one has, by the table. The GIL is never kept
//! meanwhile: it is given back, as the interpreter does before it waits, and taken again before the thread goes on. A
//! partner that waits for the GIL goes on when it was taken. Nothing here takes a lock or allocates.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, FUTEX, system_call};
use crate::held::{GIL, READING, is_current};
use crate::loaded;
use crate::provoke::Member;
use crate::python;
use crate::start;
use crate::table::{Held, Row, Table};

/// A lock that is about to be taken.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) lock: u64,
    pub(crate) kind: u8,
    pub(crate) mode: u8,
}

/// Threads that stand at a time; a mask has a bit for each.
const MOST: usize = 64;

/// States of a slot.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
const STANDS: u32 = 2;
/// All partners are there.
const GOES: u32 = 3;
/// They are, and one of them takes the GIL first.
const GOES_AFTER: u32 = 4;
const LEAVES: u32 = 5;

/// How long a partner may take to take the GIL again.
const FOR_GIL: u64 = 1_000_000_000;

/// A thread that stands.
struct Slot {
    state: AtomicU32,
    row: AtomicPtr<Row>,
    member: AtomicPtr<Member>,
    wanted: AtomicU64,
    is_reading: AtomicU32,
    /// The GIL that it gave back, which it counts as having; or 0.
    gil: AtomicU64,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        state: AtomicU32::new(FREE),
        row: AtomicPtr::new(core::ptr::null_mut()),
        member: AtomicPtr::new(core::ptr::null_mut()),
        wanted: AtomicU64::new(0),
        is_reading: AtomicU32::new(0),
        gil: AtomicU64::new(0),
    }
}; MOST];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Hold the calling thread before a lock for `limit` nanoseconds at most.
pub(crate) fn stand(table: &Table, row: &'static Row, wanted: &Wanted, member: &'static Member, limit: u64) {
    if limit == 0 || !may_stand(table) {
        member.refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let is_free = |slot: &&Slot| slot.state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let Some((place, slot)) = SLOTS.iter().enumerate().find(|(_, slot)| is_free(slot)) else { return };
    let gil = row.entries().iter().find(|held| held.kind == GIL && is_current(table, held));
    let gil = gil.map_or(0, |held| held.lock.load(Ordering::Relaxed));
    slot.row.store((row as *const Row).cast_mut(), Ordering::Relaxed);
    slot.member.store((member as *const Member).cast_mut(), Ordering::Relaxed);
    slot.wanted.store(wanted.lock, Ordering::Relaxed);
    slot.is_reading.store(u32::from(wanted.mode == READING), Ordering::Relaxed);
    slot.gil.store(0, Ordering::Relaxed);
    USED.fetch_max(place + 1, Ordering::SeqCst);
    slot.state.store(STANDS, Ordering::SeqCst);
    member.held.fetch_add(1, Ordering::Relaxed);
    let ring = ring(table, place);
    if ring != 0 {
        close(ring, place);
        // Another member may have to take the GIL again first: this one waits for that.
        wait(slot, GOES_AFTER, FOR_GIL);
    } else {
        hold(slot, gil, limit, member);
    }
    // Members that waited for the GIL to be taken go on now.
    let after = |other: &&Slot| gil != 0 && other.wanted.load(Ordering::Relaxed) == gil;
    for other in used().filter(after) {
        if other.state.compare_exchange(GOES_AFTER, GOES, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            wake(other);
        }
    }
    slot.state.store(FREE, Ordering::Release);
}

/// Wait for the partners, without the GIL.
fn hold(slot: &Slot, gil: u64, limit: u64, member: &Member) {
    let began = start::now();
    let saved = if gil == 0 || slot.state.load(Ordering::Acquire) != STANDS {
        None
    } else {
        // From now on the thread counts as having it, whether it has or not.
        slot.gil.store(gil, Ordering::SeqCst);
        python::give_gil()
    };
    // A GIL that cannot be given is no reason to keep all others from running.
    if gil == 0 || saved.is_some() {
        wait(slot, STANDS, limit);
    }
    let is_let_go = slot.state.compare_exchange(STANDS, LEAVES, Ordering::AcqRel, Ordering::Acquire).is_err();
    if is_let_go {
        wait(slot, GOES_AFTER, FOR_GIL);
    }
    if let Some(state) = saved {
        python::take_gil(state);
    }
    member.time.fetch_add(start::now().saturating_sub(began), Ordering::Relaxed);
}

fn used() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().take(USED.load(Ordering::SeqCst))
}

/// Wait while a slot is in a state, for `limit` nanoseconds at most.
fn wait(slot: &Slot, state: u32, limit: u64) {
    const WAIT_PRIVATE: usize = 128;
    const ETIMEDOUT: isize = 110;
    let until = start::now().saturating_add(limit);
    while slot.state.load(Ordering::Acquire) == state {
        let left = until.saturating_sub(start::now());
        if left == 0 {
            break;
        }
        let time = [(left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64];
        let word = slot.state.as_ptr() as usize;
        let result = system_call(FUTEX, [word, WAIT_PRIVATE, state as usize, time.as_ptr() as usize, 0, 0]);
        // Behind a filter of system calls there is neither a wait nor a clock.
        if result == -ETIMEDOUT || crate::filters::is_filtered() {
            break;
        }
    }
}

fn wake(slot: &Slot) {
    const WAKE_PRIVATE: usize = 129;
    system_call(FUTEX, [slot.state.as_ptr() as usize, WAKE_PRIVATE, 1, 0, 0, 0]);
}

/// The slots of the ring that is closed now that a thread stands here; none where it is not.
fn ring(table: &Table, place: usize) -> u64 {
    let waits_for = |slot: &Slot| -> u64 {
        let mut mask = 0;
        for (place, other) in used().enumerate() {
            if other.state.load(Ordering::SeqCst) == STANDS && has(table, other, slot) {
                mask |= 1 << place;
            }
        }
        mask
    };
    // Slots that can be reached from here; `before` has the slot that each was reached from.
    let mut before = [MOST; MOST];
    let (mut open, mut seen) = (1u64 << place, 0u64);
    while open != 0 {
        let at = open.trailing_zeros() as usize;
        open &= open - 1;
        let Some(slot) = SLOTS.get(at) else { break };
        let next = waits_for(slot) & !seen;
        seen |= next;
        open |= next;
        let mut left = next;
        while left != 0 {
            if let Some(one) = before.get_mut(left.trailing_zeros() as usize) {
                *one = at;
            }
            left &= left - 1;
        }
        if next >> place & 1 == 1 {
            break;
        }
    }
    if seen >> place & 1 == 0 {
        return 0;
    }
    // The way back.
    let mut ring = 1u64 << place;
    let mut at = before.get(place).copied().unwrap_or(place);
    while at < MOST && at != place {
        ring |= 1 << at;
        at = before.get(at).copied().unwrap_or(place);
    }
    ring
}

/// Whether a thread that stands has what another one wants, so that this one has to wait for it.
fn has(table: &Table, holder: &Slot, waiter: &Slot) -> bool {
    let wanted = waiter.wanted.load(Ordering::Relaxed);
    if core::ptr::eq(holder, waiter) {
        return false;
    }
    let gives = holder.gil.load(Ordering::SeqCst);
    // SAFETY: a row, which lives as long as the process.
    let Some(row) = (unsafe { holder.row.load(Ordering::Relaxed).as_ref() }) else { return false };
    let is_reading = waiter.is_reading.load(Ordering::Relaxed) == 1;
    let excludes = |held: &Held| !(is_reading && held.mode == READING);
    gives == wanted
        || row
            .entries()
            .iter()
            .any(|held| is_current(table, held) && held.lock.load(Ordering::Relaxed) == wanted && excludes(held))
}

/// Let all of a ring go: those that want a GIL that another one has to take again when it has.
fn close(ring: u64, own: usize) {
    let members = || used().enumerate().filter(|(place, _)| ring >> place & 1 == 1);
    for (place, slot) in members() {
        let wanted = slot.wanted.load(Ordering::Relaxed);
        let is_after = members().any(|(other, its)| other != place && its.gil.load(Ordering::SeqCst) == wanted);
        let state = if is_after { GOES_AFTER } else { GOES };
        if slot.state.compare_exchange(STANDS, state, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // SAFETY: a part of the file, which stays mapped.
            if let Some(member) = unsafe { slot.member.load(Ordering::Relaxed).as_ref() } {
                member.met.fetch_add(1, Ordering::Relaxed);
            }
            if place != own {
                wake(slot);
            }
        }
    }
}

/// Those go on that stand for a member; whether there are any.
pub(crate) fn let_go(member: &Member) -> bool {
    let mut any = false;
    for slot in used().filter(|slot| core::ptr::eq(slot.member.load(Ordering::Relaxed), member)) {
        if slot.state.compare_exchange(STANDS, GOES, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            member.met.fetch_add(1, Ordering::Relaxed);
            wake(slot);
            any = true;
        }
    }
    any
}

/// All that stand go on: the process ends, forks, or becomes another program.
pub(crate) extern "C" fn let_all_go() {
    for slot in used() {
        if slot.state.compare_exchange(STANDS, GOES, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            wake(slot);
        }
    }
}

/// In a child nobody stands.
pub(crate) fn forked() {
    for slot in used() {
        slot.state.store(FREE, Ordering::Relaxed);
    }
    USED.store(0, Ordering::Relaxed);
    // SAFETY: the storage of this thread.
    unsafe { (*arch::thread()).standing = 0 };
}

/// Whether the calling thread may be held: there are others, it is the process's own, no signal handler and not of a
/// policy by which it keeps others from running.
fn may_stand(table: &Table) -> bool {
    /// `SCHED_OTHER`, `SCHED_BATCH`, `SCHED_IDLE`.
    const ORDINARY: [isize; 3] = [0, 3, 5];
    const WITHOUT_FLAGS: isize = 0xffff;
    loaded::has_threads()
        && table.head.process.load(Ordering::Relaxed) == system_call(arch::GETPID, [0; 6]) as u32
        && ORDINARY.contains(&(system_call(arch::SCHED_GETSCHEDULER, [0; 6]) & WITHOUT_FLAGS))
        && !is_in_handler()
}

/// Whether the thread may be in a signal handler: a signal is blocked for which there is one, and the address to which
/// it returns lies on the stack.
fn is_in_handler() -> bool {
    let mut blocked = 0u64;
    let size = size_of::<u64>();
    system_call(arch::RT_SIGPROCMASK, [0, 0, (&raw mut blocked) as usize, size, 0, 0]);
    let mut restorer = 0u64;
    while blocked != 0 && restorer == 0 {
        let signal = blocked.trailing_zeros() as usize + 1;
        blocked &= blocked - 1;
        // `struct kernel_sigaction`: the handler, flags, the function that it returns to, a mask.
        let mut action = [0u64; 4];
        let got = system_call(arch::RT_SIGACTION, [signal, 0, action.as_mut_ptr() as usize, size, 0, 0]);
        let [handler, _, returns_to, _] = action;
        if got == 0 && handler > 1 {
            restorer = returns_to;
        }
    }
    restorer != 0 && is_on_stack(restorer)
}

/// Whether a word lies on the calling thread's stack, or where the stack cannot be read.
fn is_on_stack(word: u64) -> bool {
    const MOST_READ: usize = 64 << 10;
    const PAGE: usize = 4096;
    let mut words = [0u64; 64];
    let own = system_call(arch::GETPID, [0; 6]) as usize;
    let begin = words.as_ptr() as usize + size_of_val(&words);
    let mut at = begin;
    while at < begin + MOST_READ {
        // Up to the end of a page: what follows may not be there.
        let size = size_of_val(&words).min(PAGE - at % PAGE);
        let (local, remote) = ([words.as_mut_ptr() as usize, size], [at, size]);
        let arguments = [own, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
        let read = system_call(arch::PROCESS_VM_READV, arguments);
        if read != size as isize {
            // Its end was found; a system that lets nothing be read says nothing.
            return at == begin;
        }
        if words.iter().take(size / size_of::<u64>()).any(|one| *one == word) {
            return true;
        }
        at += size;
    }
    false
}

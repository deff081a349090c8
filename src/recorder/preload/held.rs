//! The holds of a thread: it takes a lock, and releases it.
//!
//! In: the address of a lock, its kind, who called. Out: entries of the thread's row. An entry is reserved before it is
//! filled, and its address is written last: a signal handler that locks in between finds an entry without a lock, and
//! takes the next.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::arch::{self, system_call};
use crate::file;
use crate::filters;
use crate::orders;
use crate::sites;
use crate::start;
use crate::table::{DriverCall, ENDED, Held, LIVES, MOST_HELD, MOST_ROWS, Row, TAKEN, Table, hash, place, table};

/// The kinds of locks, as the table has them.
pub(crate) const MUTEX: u8 = b'M';
pub(crate) const RWLOCK: u8 = b'R';
pub(crate) const SPINLOCK: u8 = b'P';
pub(crate) const SEMAPHORE: u8 = b'S';
pub(crate) const PYTHON_LOCK: u8 = b'L';
pub(crate) const PYTHON_RLOCK: u8 = b'N';
/// An interpreter's lock, which is no address: one more than that of its mutex.
pub(crate) const GIL: u8 = b'G';
/// The end of a thread, which the thread has from its beginning on, and who joins it waits for. It is no address: two more
/// than that of the thread's structure, which the C library aligns.
pub(crate) const THREAD_END: u8 = b'E';

/// The lock that stands for the end of a thread.
pub(crate) fn end_of(thread: usize) -> usize {
    thread | 2
}

/// How a lock is held.
pub(crate) const ALONE: u8 = 0;
pub(crate) const READING: u8 = 1;

/// Whether the call waits for the lock without a limit: only such a call can hang.
pub(crate) const WAITS: bool = true;
pub(crate) const TRIES: bool = false;

/// The caller: its return address, and the stack pointer there.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) at: usize,
    pub(crate) stack: usize,
}

/// See that the calling thread has a row.
pub(crate) fn has_row(table: &'static Table) {
    let _ = own_row(table);
}

/// The row of the calling thread.
#[inline(always)]
fn own_row(table: &'static Table) -> Option<&'static Row> {
    // SAFETY: the storage of this thread; a row lives as long as the process.
    match unsafe { (*arch::thread()).row.as_ref() } {
        Some(row) => Some(row),
        None => new_row(table),
    }
}

#[cold]
#[inline(never)]
fn new_row(table: &'static Table) -> Option<&'static Row> {
    // It may not ask for its id.
    if filters::is_filtered() {
        file::not_held(table);
        return None;
    }
    let ended = freed(table)
        .or_else(|| outlived(table))
        .and_then(|place| table.rows.get(place))
        .filter(|row| row.state.compare_exchange(ENDED, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    let fresh = || table.rows.get(table.head.rows.fetch_add(1, Ordering::Relaxed) as usize);
    // The last resort are those that ended with something, and those of threads that locked when their end had been
    // told.
    let left = || {
        table.head.rows.store(MOST_ROWS as u32, Ordering::Relaxed);
        table.rows.iter().find(|row| {
            let state = row.state.load(Ordering::Relaxed);
            (state == ENDED || state == LIVES && is_gone(table, row))
                && row.state.compare_exchange(state, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    };
    let Some(row) = ended.or_else(fresh).or_else(left) else {
        file::not_held(table);
        return None;
    };
    row.held_count.store(0, Ordering::Relaxed);
    row.tid.store(filters::own_id(), Ordering::Relaxed);
    row.pthread.store(arch::thread_pointer() as u64, Ordering::Relaxed);
    // SAFETY: the storage of this thread.
    let own = unsafe { &mut *arch::thread() };
    if own.number == 0 {
        own.number = table.head.threads.fetch_add(1, Ordering::Relaxed).wrapping_add(1) as usize;
    }
    row.number.store(own.number as u32, Ordering::Relaxed);
    row.segment.store(0, Ordering::Relaxed);
    row.told.store(0, Ordering::Relaxed);
    row.python_told.store(0, Ordering::Relaxed);
    row.python_asked.store(0, Ordering::Relaxed);
    if let Some(call) = table.calls.get(position_of(table, row))
        && call.calls.load(Ordering::Relaxed) != 0
    {
        call.function.store(0, Ordering::Relaxed);
        call.depth.store(0, Ordering::Relaxed);
        call.error.store(0, Ordering::Relaxed);
    }
    row.state.store(LIVES, Ordering::Release);
    // SAFETY: the storage of this thread.
    unsafe { (*arch::thread()).row = (row as *const Row).cast_mut() };
    start::tell_of_end(row);
    Some(row)
}

/// A row that nobody has any more, which is the caller's now.
fn freed(table: &Table) -> Option<usize> {
    table.free.iter().enumerate().find_map(|(word, bits)| {
        let bit = bits.load(Ordering::Relaxed).trailing_zeros();
        let mask = 1u64.checked_shl(bit)?;
        (bits.fetch_and(!mask, Ordering::AcqRel) & mask != 0).then_some(word * 64 + bit as usize)
    })
}

/// Rows of threads that ended with a hold. A new thread checks some of them: the index of the next one to check.
static NEXT_KEPT: AtomicU32 = AtomicU32::new(0);
const MOST_LOOKED_AT: u32 = 8;

/// Takes over the row of an ended thread whose held locks have all been destroyed since. Threads of Python up to 3.12
/// end with the lock by which they are joined.
fn outlived(table: &Table) -> Option<usize> {
    let begin = NEXT_KEPT.load(Ordering::Relaxed) as usize;
    let mut looked_at = 0;
    for step in 0..=table.kept.len() {
        let word = (begin / 64 + step) % table.kept.len();
        let bits = table.kept.get(word)?;
        // In the first word only the bits from there on, and in the end the rest.
        let mut left = bits.load(Ordering::Relaxed) & if step == 0 { u64::MAX << (begin % 64) } else { u64::MAX };
        while left != 0 && looked_at < MOST_LOOKED_AT {
            let (bit, mask) = (left.trailing_zeros(), left & left.wrapping_neg());
            left &= !mask;
            looked_at += 1;
            let place = word * 64 + bit as usize;
            NEXT_KEPT.store((place as u32 + 1) % MOST_ROWS as u32, Ordering::Relaxed);
            if table.rows.get(place).is_some_and(|row| are_stale(table, row))
                && bits.fetch_and(!mask, Ordering::AcqRel) & mask != 0
            {
                return Some(place);
            }
        }
        if looked_at == MOST_LOOKED_AT {
            break;
        }
    }
    None
}

/// Whether all entries of a row are of locks that have ended.
fn are_stale(table: &Table, row: &Row) -> bool {
    let count = (row.held_count.load(Ordering::Relaxed) as usize).min(MOST_HELD);
    row.held.iter().take(count).all(|held| {
        let lock = held.lock.load(Ordering::Relaxed);
        lock == 0 || held.generation.load(Ordering::Relaxed) != generation(table, lock)
    })
}

/// The row with this place is nobody's any more.
pub(crate) fn free(table: &Table, place: usize) {
    if let Some(word) = table.free.get(place / 64) {
        word.fetch_or(1 << (place % 64), Ordering::AcqRel);
    }
}

/// Where a row stands among the others.
fn position_of(table: &Table, row: &Row) -> usize {
    (row as *const Row as usize).wrapping_sub((&raw const table.rows) as usize) / size_of::<Row>()
}

/// Whether the kernel knows no such thread.
fn is_gone(table: &Table, row: &Row) -> bool {
    const ESRCH: isize = 3;
    let process = table.head.process.load(Ordering::Relaxed) as usize;
    system_call(arch::TGKILL, [process, row.tid.load(Ordering::Relaxed) as usize, 0, 0, 0, 0]) == -ESRCH
}

/// A thread ends.
pub(crate) fn ended(row: &Row) {
    // SAFETY: the storage of this thread, which is there until all of its destructors have run.
    unsafe { (*arch::thread()).row = core::ptr::null_mut() };
    row.state.store(ENDED, Ordering::Release);
    let Some(table) = table() else { return };
    for held in row.entries().iter().filter(|held| held.kind == THREAD_END) {
        held.lock.store(0, Ordering::Relaxed);
    }
    if row.entries().iter().all(|held| held.lock.load(Ordering::Relaxed) == 0) {
        row.held_count.store(0, Ordering::Relaxed);
    }
    let place = position_of(table, row);
    // One that ended with something keeps it, to be seen as long as the lock is there.
    match row.held_count.load(Ordering::Relaxed) {
        0 => free(table, place),
        _ => {
            if let Some(word) = table.kept.get(place / 64) {
                word.fetch_or(1 << (place % 64), Ordering::AcqRel);
            }
        }
    }
}

#[inline(always)]
fn generation_of(table: &Table, lock: u64) -> &AtomicU32 {
    // SAFETY: below the length of the array.
    unsafe { table.generations.get_unchecked(place(lock)) }
}

#[inline(always)]
fn generation(table: &Table, lock: u64) -> u32 {
    generation_of(table, lock).load(Ordering::Relaxed)
}

/// Whether an entry is of a lock that its thread has.
pub(crate) fn is_current(table: &Table, held: &Held) -> bool {
    let lock = held.lock.load(Ordering::Relaxed);
    lock != 0 && held.generation.load(Ordering::Relaxed) == generation(table, lock)
}

/// The lock at this address was made anew, or ended: what was written of it is of another.
pub(crate) fn renewed(lock: usize) {
    if let Some(table) = table() {
        let generation = generation_of(table, lock as u64);
        generation.store(generation.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// The mark of a semaphore that is none of the locks: a thread released it that had not taken it.
fn signal_mark(table: &Table, lock: u64) -> u32 {
    (hash(lock.wrapping_mul(31).wrapping_add(u64::from(generation(table, lock)))) >> 32) as u32 | 1
}

fn is_signal(table: &Table, lock: u64) -> bool {
    let known = table.signals.get(place(lock)).map_or(0, |one| one.load(Ordering::Relaxed));
    known != 0 && known == signal_mark(table, lock)
}

#[inline(always)]
fn entry(row: &Row, position: u32) -> *mut Held {
    // SAFETY: positions are below the count, and that is below the length.
    unsafe { (&raw const row.held).cast::<Held>().cast_mut().add(position as usize) }
}

/// Where the calling thread's calls into CUDA's driver are written down.
pub(crate) fn own_call(table: &'static Table) -> Option<&'static DriverCall> {
    table.calls.get(position_of(table, own_row(table)?))
}

/// The thread has taken a lock.
#[inline(always)]
pub(crate) fn took(lock: usize, kind: u8, mode: u8, waits: bool, caller: Caller) {
    took_at(lock, kind, mode, waits, caller, 0);
}

/// The same, where the number of the text of Python's frames may be known, or is 0.
#[inline(always)]
pub(crate) fn took_at(lock: usize, kind: u8, mode: u8, waits: bool, caller: Caller, site: u32) {
    if kind == SEMAPHORE && is_inside_method() {
        return;
    }
    let Some(table) = table() else { return };
    let Some(row) = own_row(table) else { return };
    let lock = lock as u64;
    let mut count = row.held_count.load(Ordering::Relaxed);
    if count as usize >= MOST_HELD {
        count = forget_stale(table, row);
        if count as usize >= MOST_HELD {
            file::not_held(table);
            return;
        }
    }
    let generation = generation(table, lock);
    let mut position = count;
    while position > 0 {
        position -= 1;
        // SAFETY: an entry of this thread's row, which it alone writes.
        let held = unsafe { &mut *entry(row, position) };
        if held.lock.load(Ordering::Relaxed) == lock {
            if held.generation.load(Ordering::Relaxed) != generation {
                held.lock.store(0, Ordering::Relaxed);
                break;
            }
            // A lock without an owner is not taken twice, but taken again after another thread released it.
            if kind != SEMAPHORE && kind != PYTHON_LOCK {
                held.count = held.count.wrapping_add(1);
                return;
            }
        }
    }
    if kind == SEMAPHORE && is_signal(table, lock) {
        return;
    }
    row.held_count.store(count + 1, Ordering::Relaxed);
    // SAFETY: the entry that was reserved just now.
    let held = unsafe { &mut *entry(row, count) };
    held.lock.store(0, Ordering::Relaxed);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    held.generation.store(generation, Ordering::Relaxed);
    held.kind = kind;
    held.mode = mode;
    held.count = 1;
    held.since = start::now();
    held.at = caller.at as u64;
    held.stack = caller.stack as u64;
    held.site = if site == 0 && (kind == PYTHON_LOCK || kind == PYTHON_RLOCK) { sites::here(table) } else { site };
    held.is_reportable.store(0, Ordering::Relaxed);
    held.mark = orders::mark(held, lock, generation);
    let mut joined = None;
    if kind == PYTHON_LOCK
        && let Some(taker) = table.takers.get(place(lock))
    {
        let own = position_of(table, row) as u16;
        let before = taker.swap(own, Ordering::Relaxed);
        if before != own {
            joined = left_held(table, usize::from(before), lock, generation);
        }
    }
    held.lock.store(lock, Ordering::Release);
    if waits && count != 0 {
        orders::taken(table, row, count);
    }
    // The wait itself could have met the other thread: only what follows comes after its end.
    if let Some(number) = joined {
        orders::seen_end(row, number);
    }
}

/// The number of the thread of a row that has this lock still, though the caller took it: no method gave it back, so
/// the interpreter did at the end of that thread. Up to 3.12 `Thread.join` waits for such a lock, and calls no
/// `pthread_join`.
#[inline(always)]
fn left_held(table: &Table, place: usize, lock: u64, generation: u32) -> Option<u32> {
    let row = table.rows.get(place)?;
    let count = (row.held_count.load(Ordering::Relaxed) as usize).min(MOST_HELD);
    let is_it = |held: &Held| {
        held.lock.load(Ordering::Relaxed) == lock && held.generation.load(Ordering::Relaxed) == generation
    };
    row.held.iter().take(count).any(is_it).then(|| row.number.load(Ordering::Relaxed))
}

/// Drop entries of locks that are gone; how many are left.
#[cold]
#[inline(never)]
fn forget_stale(table: &Table, row: &Row) -> u32 {
    let mut kept = 0;
    for position in 0..row.held_count.load(Ordering::Relaxed) {
        let from = entry(row, position);
        // SAFETY: entries of this thread's row, which it alone writes.
        unsafe {
            let lock = (*from).lock.load(Ordering::Relaxed);
            if lock == 0 || (*from).generation.load(Ordering::Relaxed) != generation(table, lock) {
                continue;
            }
            if kept != position {
                core::ptr::copy_nonoverlapping(from, entry(row, kept), 1);
            }
        }
        kept += 1;
    }
    row.held_count.store(kept, Ordering::Relaxed);
    kept
}

/// The thread is about to give a lock back.
#[inline(always)]
pub(crate) fn gives(lock: usize, kind: u8) {
    if kind == SEMAPHORE && is_inside_method() {
        return;
    }
    let Some(table) = table() else { return };
    let Some(row) = own_row(table) else { return };
    let lock = lock as u64;
    let mut count = row.held_count.load(Ordering::Relaxed);
    let mut position = count;
    let mut is_found = false;
    while position > 0 {
        position -= 1;
        // SAFETY: an entry of this thread's row, which it alone writes but for its address.
        let held = unsafe { &mut *entry(row, position) };
        if held.lock.load(Ordering::Relaxed) == lock {
            held.count = held.count.wrapping_sub(1);
            if held.count != 0 {
                return;
            }
            held.lock.store(0, Ordering::Relaxed);
            is_found = true;
            if orders::has_ends() && (kind == PYTHON_LOCK || kind == PYTHON_RLOCK) {
                // SAFETY: the storage of this thread.
                let own = unsafe { &mut *arch::thread() };
                own.given_before = if own.given_lock == lock as usize { own.given_site } else { 0 };
                (own.given_lock, own.given_site) = (lock as usize, held.site as usize);
            }
            break;
        }
    }
    // Those below that were given back out of turn go with the last.
    // SAFETY: as above.
    while count > 0 && unsafe { (*entry(row, count - 1)).lock.load(Ordering::Relaxed) } == 0 {
        count -= 1;
    }
    row.held_count.store(count, Ordering::Relaxed);
    if !is_found && (kind == SEMAPHORE || kind == PYTHON_LOCK) {
        if kind == PYTHON_LOCK && orders::has_ends() {
            orders::wakes_python(row, lock);
        }
        signalled(table, lock, kind);
    }
}

/// The thread is about to give a lock back, however often it took it: how often that was.
pub(crate) fn gives_all(lock: usize) -> usize {
    let Some(row) = table().and_then(own_row) else { return 0 };
    let mut position = row.held_count.load(Ordering::Relaxed);
    while position > 0 {
        position -= 1;
        // SAFETY: an entry of this thread's row, which it alone writes but for its address.
        let held = unsafe { &mut *entry(row, position) };
        if held.lock.load(Ordering::Relaxed) == lock as u64 {
            let count = core::mem::replace(&mut held.count, 1);
            gives(lock, PYTHON_RLOCK);
            return usize::from(count);
        }
    }
    0
}

/// Where the calling thread took a lock that it has: the address that the call returned to, and the frames of Python.
pub(crate) fn place_of(lock: usize) -> Option<(u64, u32)> {
    let (table, row) = (table()?, table().and_then(own_row)?);
    let is_it = |held: &&Held| is_current(table, held) && held.lock.load(Ordering::Relaxed) == lock as u64;
    row.entries().iter().rev().find(is_it).map(|held| (held.at, held.site))
}

/// The calling thread has made a thread, or seen the end of one.
pub(crate) fn made_or_joined(then: impl FnOnce(&'static Row)) {
    if let Some(row) = table().and_then(own_row) {
        then(row);
    }
}

/// Whether the semaphore that is taken is that of a lock of Python, whose method counts.
#[inline(always)]
pub(crate) fn is_inside_method() -> bool {
    // SAFETY: the storage of this thread.
    unsafe { (*arch::thread()).inside_method != 0 }
}

/// Given by a thread that does not have it: this is no lock, and nobody has it.
#[cold]
#[inline(never)]
fn signalled(table: &Table, lock: u64, kind: u8) {
    table.head.signals.fetch_add(1, Ordering::Relaxed);
    let generation = generation(table, lock);
    let mut is_reportable = kind == SEMAPHORE;
    if kind == SEMAPHORE {
        if is_signal(table, lock) {
            return;
        }
        if let Some(one) = table.signals.get(place(lock)) {
            one.store(signal_mark(table, lock), Ordering::Relaxed);
        }
    }
    let used = (table.head.rows.load(Ordering::Relaxed) as usize).min(MOST_ROWS);
    // One thread at a time has a lock of Python, and which one is known in most cases: a waiter for a condition is
    // woken in this way.
    let taker = table.takers.get(place(lock)).map_or(0, |taker| usize::from(taker.load(Ordering::Relaxed)));
    let is_struck = kind == PYTHON_LOCK
        && table
            .rows
            .get(taker)
            .is_some_and(|row| struck(row, lock).inspect(|was_told| is_reportable |= was_told).is_some());
    if !is_struck {
        for row in table.rows.iter().take(used) {
            is_reportable |= struck(row, lock).unwrap_or(false);
        }
    }
    if is_reportable {
        orders::signal(table, lock, generation);
    }
}

/// Strike a lock out of another thread's row; whether the file has it there, if it was there.
fn struck(row: &Row, lock: u64) -> Option<bool> {
    let mut found = None;
    for held in row.held.iter().take((row.held_count.load(Ordering::Relaxed) as usize).min(MOST_HELD)) {
        // Looked at before it is written to: it is the other thread's.
        if held.lock.load(Ordering::Relaxed) == lock
            && held.lock.compare_exchange(lock, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let was_told = held.is_reportable.load(Ordering::Relaxed) == file::number();
            found = Some(found.unwrap_or(false) || was_told);
        }
    }
    found
}

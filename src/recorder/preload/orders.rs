//! Lock orders: the locks that were held when another was taken, and the beginnings and ends of threads.
//!
//! In: an entry of a thread's row that was just filled, beginnings of threads and joins. Out: records of [`mod@file`],
//! with the place of each lock. Each is written once for a thread, its holds, and the lock that it takes. A hash finds
//! repeated ones, so a lock inside of another costs one access to a table. Nothing is judged here.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, PRCTL, system_call};
use crate::file::{self, Record};
use crate::filters;
use crate::held::{self, ALONE, Caller, GIL, PYTHON_LOCK, PYTHON_RLOCK, THREAD_END, TRIES};
use crate::loaded;
use crate::python;
use crate::sites;
use crate::table::{Held, MOST_HELD, Row, SEEN, SEEN_FIRST, STARTING, Table, hash, table};

/// The tag of a record.
const DEPENDENCY: u8 = b'D';
const SITE: u8 = b'P';
const THREAD: u8 = b'N';
const PYTHON_THREAD: u8 = b'T';
const CREATED: u8 = b'C';
const JOINED: u8 = b'J';
const PART_ENDED: u8 = b'B';
const SIGNAL: u8 = b'S';
const WAIT: u8 = b'W';
const WAKE_UP: u8 = b'V';

/// The variable by which the ends of threads count as locks: `1`. Then each lock that a thread takes is in an order.
const ENDS: &[u8] = b"LOCKSCOPE_RECORD_ENDS=1";
static HAS_ENDS: AtomicBool = AtomicBool::new(false);

/// Read whether ends of threads count.
pub(crate) fn begin(mut environment: impl Iterator<Item = &'static CStr>) {
    HAS_ENDS.store(environment.any(|variable| variable.to_bytes() == ENDS), Ordering::Relaxed);
}

/// Whether ends of threads count.
#[inline(always)]
pub(crate) fn has_ends() -> bool {
    HAS_ENDS.load(Ordering::Relaxed)
}

/// Words of a lock in a record.
const LOCK_WORDS: usize = 4;

/// The identity of an entry: the lock, and the place where it was taken.
#[inline(always)]
pub(crate) fn mark(held: &Held, lock: u64, generation: u32) -> u64 {
    let place = held.at.rotate_left(21) ^ u64::from(held.site) << 20;
    lock.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ u64::from(generation).rotate_left(40) ^ place ^ u64::from(held.mode)
}

/// The lock of the last entry was taken in a way that waits, while the thread had those below.
#[inline(always)]
pub(crate) fn taken(table: &'static Table, row: &'static Row, position: u32) {
    if !file::is_wanted() {
        return;
    }
    let Some((last, below)) = entries(row, position) else { return };
    let is_python = last.kind == PYTHON_LOCK || last.kind == PYTHON_RLOCK;
    let mut key = last.mark ^ u64::from(row.number.load(Ordering::Relaxed)) << 32;
    key ^= u64::from(row.segment.load(Ordering::Relaxed));
    let mut is_alone = true;
    for held in below {
        // A method of a lock of Python gives the GIL back before it waits.
        if held.lock.load(Ordering::Relaxed) != 0 && !(is_python && held.kind == GIL) {
            key = (key.rotate_left(9) ^ held.mark).wrapping_mul(0xd6e8_feb8_6659_fd93);
            is_alone = false;
        }
    }
    // Each step has multiplied: that the upper half, by which it is found, comes down once is enough.
    let key = (key ^ key >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) | 1;
    if !is_alone && !is_seen(table, key) {
        write(table, row, position, key);
    }
}

#[inline(always)]
fn entries(row: &'static Row, position: u32) -> Option<(&'static Held, &'static [Held])> {
    let below = row.held.get(..position as usize)?;
    Some((row.held.get(position as usize)?, below))
}

/// Where a hash may stand: in the first part of the table, and anywhere.
#[inline(always)]
fn places(table: &Table, key: u64) -> impl Iterator<Item = &AtomicU64> {
    let start = (key >> 44) as usize;
    let first = (0..PROBES).map(move |step| (start + step) & (SEEN_FIRST - 1));
    let all = (0..PROBES).map(move |step| (start + step) & (SEEN - 1));
    first.chain(all).filter_map(|place| table.seen.0.get(place))
}

#[inline(always)]
fn is_seen(table: &Table, key: u64) -> bool {
    places(table, key).any(|one| one.load(Ordering::Relaxed) == key)
}

const PROBES: usize = 4;

/// From now on it is seen. Where there is no room one that was seen is forgotten, and may be written again.
fn see(table: &Table, key: u64) {
    let is_free = |one: &AtomicU64| one.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if !places(table, key).any(is_free)
        && let Some(one) = places(table, key).last()
    {
        one.store(key, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
fn write(table: &'static Table, row: &'static Row, position: u32, key: u64) {
    let Some((last, below)) = entries(row, position) else { return };
    let is_python = last.kind == PYTHON_LOCK || last.kind == PYTHON_RLOCK;
    let is_reportable = |held: &&Held| held.lock.load(Ordering::Relaxed) != 0 && !(is_python && held.kind == GIL);
    let has_gil =
        last.kind == GIL || below.iter().any(|held| held.lock.load(Ordering::Relaxed) != 0 && held.kind == GIL);
    // The line of Python that called what took it.
    let site = if last.site == 0 && has_gil { sites::here(table) } else { last.site };
    thread_told(table, row);
    for held in below.iter().filter(is_reportable).chain([last]) {
        place_told(table, held.at, held.site);
    }
    place_told(table, 0, site);
    let count = below.iter().filter(is_reportable).take(MOST_HELD).count() + 1;
    let Some(mut record) = Record::new(table, 2 + count * LOCK_WORDS) else {
        // If another thread is making room, this order may come again. If there is no room at all, it is counted once.
        if !file::has_room() {
            see(table, key);
        }
        return;
    };
    record.word(u64::from(row.number.load(Ordering::Relaxed)) | u64::from(row.segment.load(Ordering::Relaxed)) << 32);
    record.word(count as u64);
    let mut lock = |held: &Held, site: u32| {
        record.word(held.lock.load(Ordering::Relaxed));
        record.word(
            u64::from(held.generation.load(Ordering::Relaxed))
                | u64::from(held.kind) << 32
                | u64::from(held.mode) << 40,
        );
        record.word(held.at);
        record.word(u64::from(site));
        held.is_reportable.store(file::number(), Ordering::Relaxed);
    };
    lock(last, site);
    below.iter().filter(is_reportable).for_each(|held| lock(held, held.site));
    record.finish(DEPENDENCY);
    see(table, key);
}

/// Which thread a number is.
fn thread_told(table: &Table, row: &Row) {
    if row.told.swap(file::number(), Ordering::Relaxed) == file::number() {
        return;
    }
    filters::look();
    const GET_NAME: usize = 16;
    let mut name = [0u8; 16];
    system_call(PRCTL, [GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]);
    let ids = u64::from(row.number.load(Ordering::Relaxed)) | u64::from(row.tid.load(Ordering::Relaxed)) << 32;
    file::write(table, THREAD, &[ids, name.len() as u64], &name);
}

/// The calling thread is about to wait to be woken through a condition variable, by a lock that it has.
pub(crate) fn waits_for_wake_up(condition: usize, mutex: usize) {
    if let Some((at, site)) = held::place_of(mutex) {
        event(WAIT, condition, at, site);
    }
}

/// The same by a lock of Python which the thread already has: another thread gives it, to wake this one. The lock that
/// guards the condition was given back just now.
pub(crate) fn waits_for_own(lock: usize) {
    // SAFETY: the storage of this thread.
    let (site, before) = unsafe { ((*arch::thread()).given_site as u32, (*arch::thread()).given_before as u32) };
    if site != 0 && held::place_of(lock).is_some() {
        event(WAIT, lock, 0, site);
        // An earlier step under that lock may come too late, such as `clear` of an Event.
        if before != 0 && before != site {
            event(WAIT, lock, 0, before);
        }
    }
}

/// The calling thread wakes the waiters of a condition.
pub(crate) fn wakes(condition: usize, at: u64, site: u32) {
    event(WAKE_UP, condition, at, site);
}

/// It gives a lock of Python that another one has, to wake that, with the lock of the condition.
pub(crate) fn wakes_python(row: &Row, lock: u64) {
    let is_lock =
        |held: &&Held| held.lock.load(Ordering::Relaxed) != 0 && matches!(held.kind, PYTHON_LOCK | PYTHON_RLOCK);
    if let Some(guard) = row.entries().iter().rev().find(is_lock) {
        event(WAKE_UP, lock as usize, 0, guard.site);
    }
}

/// Write once for a thread and a place how it waits to be woken, or wakes.
#[cold]
#[inline(never)]
fn event(tag: u8, resource: usize, at: u64, site: u32) {
    let Some(table) = table().filter(|_| file::is_wanted()) else { return };
    held::made_or_joined(|row| {
        let own = u64::from(row.number.load(Ordering::Relaxed)) | u64::from(row.segment.load(Ordering::Relaxed)) << 32;
        let key = hash(hash(own ^ u64::from(tag) << 56) ^ hash(at ^ u64::from(site) << 40) ^ resource as u64) | 1;
        if is_seen(table, key) {
            return;
        }
        thread_told(table, row);
        place_told(table, at, site);
        if file::write(table, tag, &[own, resource as u64, at, u64::from(site)], &[]) {
            see(table, key);
        }
    });
}

/// Write the name in Python of the calling thread, which a method of a lock has been called by; once it is in the file.
#[inline(always)]
pub(crate) fn python_name_told() {
    // SAFETY: the storage of this thread; a row lives as long as the process.
    let Some(row) = (unsafe { (*arch::thread()).row.as_ref() }) else { return };
    if file::is_there() && row.python_told.load(Ordering::Relaxed) != file::number() {
        write_python_name(row);
    }
}

#[cold]
#[inline(never)]
fn write_python_name(row: &Row) {
    /// A thread is among those of `threading` soon after it has begun, or never.
    const MOST_ASKED: u32 = 16;
    let (Some(table), number) = (table(), file::number()) else { return };
    let id = u64::from(row.number.load(Ordering::Relaxed));
    let is_told = python::thread_name(&mut |name| {
        file::write(table, PYTHON_THREAD, &[id, name.len() as u64], name);
    });
    if is_told || row.python_asked.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_ASKED {
        row.python_told.store(number, Ordering::Relaxed);
        row.python_asked.store(0, Ordering::Relaxed);
    }
}

/// The text of a place in Python, or the file that an address is of.
fn place_told(table: &Table, at: u64, site: u32) {
    if at != 0 {
        loaded::told(table, at);
    }
    let Some(site) = (site as usize).checked_sub(1).and_then(|place| table.sites.get(place).map(|one| (place, one)))
    else {
        return;
    };
    let (place, site) = site;
    let text = sites::text(table, place as u32 + 1);
    if text.is_empty() || site.told.swap(file::number(), Ordering::Relaxed) == file::number() {
        return;
    }
    file::write(table, SITE, &[place as u64 + 1, text.len() as u64], text);
}

/// A lock was given by a thread that had not taken it: it is none. `was_told` says whether a record has it.
pub(crate) fn signal(table: &Table, lock: u64, generation: u32) {
    if !file::is_wanted() {
        return;
    }
    let key = hash(lock ^ u64::from(generation) << 40 ^ u64::from(SIGNAL)) | 1;
    if !is_seen(table, key) && file::write(table, SIGNAL, &[lock, u64::from(generation)], &[]) {
        see(table, key);
    }
}

/// A thread that is about to begin: what it runs, with what, and its number.
#[repr(C)]
pub(crate) struct Start {
    is_used: AtomicBool,
    number: AtomicU32,
    function: AtomicUsize,
    argument: AtomicUsize,
}

/// Note a thread that is about to be made: its place, and its number; none where there is no room.
pub(crate) fn starting(function: usize, argument: usize) -> Option<(&'static Start, u32)> {
    let table = table().filter(|_| file::is_wanted())?;
    loaded::thread_made();
    let start = table.starting.iter().take(STARTING).find(|one| !one.is_used.swap(true, Ordering::Acquire))?;
    let number = table.head.threads.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    start.number.store(number, Ordering::Relaxed);
    start.function.store(function, Ordering::Relaxed);
    start.argument.store(argument, Ordering::Release);
    Some((start, number))
}

/// It was not made.
pub(crate) fn not_started(start: &Start) {
    start.is_used.store(false, Ordering::Release);
}

/// The function that a new thread goes on with.
#[repr(C)]
pub(crate) struct Routine {
    function: usize,
    argument: usize,
}

/// A thread begins.
pub(crate) extern "C" fn started(start: &Start) -> Routine {
    let routine =
        Routine { function: start.function.load(Ordering::Acquire), argument: start.argument.load(Ordering::Acquire) };
    let number = start.number.load(Ordering::Relaxed);
    start.is_used.store(false, Ordering::Release);
    // SAFETY: the storage of this thread.
    unsafe { (*arch::thread()).number = number as usize };
    if let Some(table) = table() {
        let thread = arch::thread_pointer() as u64;
        if let Some([known, of]) = table.threads.get(hash(thread) as usize & (table.threads.len() - 1)) {
            known.store(thread, Ordering::Relaxed);
            of.store(u64::from(number), Ordering::Release);
        }
    }
    if has_ends() {
        let end = held::end_of(arch::thread_pointer());
        held::renewed(end);
        held::took(end, THREAD_END, ALONE, TRIES, Caller { at: 0, stack: 0 });
    }
    routine
}

/// The calling thread has made another.
pub(crate) fn created(row: &Row, number: u32) {
    told_of(row, CREATED, number);
}

/// The calling thread has seen the end of another, by its `pthread_t`.
pub(crate) fn joined(row: &Row, thread: usize) {
    let Some(table) = table() else { return };
    let place = hash(thread as u64) as usize & (table.threads.len() - 1);
    let Some([known, number]) = table.threads.get(place) else { return };
    if known.load(Ordering::Relaxed) == thread as u64 {
        told_of(row, JOINED, number.load(Ordering::Acquire) as u32);
    }
}

/// The calling thread has seen the end of another, by its number.
#[cold]
#[inline(never)]
pub(crate) fn seen_end(row: &Row, number: u32) {
    told_of(row, JOINED, number);
}

/// From now on, steps of the calling thread belong to a new segment.
fn told_of(row: &Row, tag: u8, other: u32) {
    let Some(table) = table().filter(|_| file::is_wanted()) else { return };
    let segment = row.segment.fetch_add(1, Ordering::Relaxed);
    let own = u64::from(row.number.load(Ordering::Relaxed)) | u64::from(segment) << 32;
    file::write(table, tag, &[own, u64::from(other)], &[]);
}

/// A part of the run has ended, whose threads could run beside those of the next parts: runners of tests call it after each test.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn lockscope_part_ended() {
    if let Some(table) = table().filter(|_| file::is_wanted()) {
        file::write(table, PART_ENDED, &[0], &[]);
    }
}

/// In a child nothing was seen yet.
pub(crate) fn forked(table: &Table) {
    const FORGET: usize = 4;
    if file::is_wanted() {
        system_call(arch::MADVISE, [(&raw const table.seen) as usize, size_of_val(&table.seen), FORGET, 0, 0, 0]);
    }
    loaded::forked();
}

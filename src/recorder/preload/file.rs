//! The file of a process: which locks were taken while which were held. It outlives the process, however that ends.
//!
//! In: records, as words. Out: `PID-TIME.orders` in the folder that [`VARIABLE`] names, which `src/recorder/orders.rs`
//! of lockscope reads. The file is mapped and written by plain stores. No descriptor stays open, because the program
//! might close it and use its number again. All mapped room was allocated before, so a full disk loses records and ends
//! nothing. The file itself has its end, so that a child that the C library does not know of writes behind its parent
//! and not over it. Other children have a file of their own.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, CLOSE, FALLOCATE, MMAP, MUNMAP, OPENAT, PRLIMIT, READ, READLINK, system_call};
use crate::filters;
use crate::start;
use crate::symbols::any;
use crate::table::Table;

/// The variable that names the folder.
const VARIABLE: &[u8] = b"LOCKSCOPE_RECORD=";
const MAGIC: [u8; 16] = *b"LOCKSCOPE-ORD-1\0";
/// The largest file, and by how much it grows.
const LARGEST: usize = 64 << 20;
const FIRST: usize = 64 << 10;
const STEP: usize = 512 << 10;
const AHEAD: usize = 16 << 10;
/// A record begins with this, its tag, and the number of its words.
const RECORD: u64 = 0x4c4b << 48;
const UNFINISHED: u8 = b'-';
const HERE: usize = -100isize as usize;
const CLOSE_ON_EXEC: usize = 0o2000000;

/// The head of the file.
#[repr(C)]
struct Head {
    magic: [u8; 16],
    version: u32,
    process: u32,
    /// Where the next record comes.
    end: AtomicU64,
    allocated: AtomicU64,
    /// Records that found no room.
    lost: AtomicU64,
    epoch: i64,
    began: u64,
    /// Locks that found no room in the table, and frames of Python that found none.
    not_held: AtomicU64,
    placeless: AtomicU64,
    /// Whether the process has come to its end, or to another program, and all code that it had is written down.
    has_ended: AtomicU32,
}
/// Where records begin.
const RECORDS: usize = 128;

/// A path that is kept: letters and a zero.
struct Path {
    letters: [AtomicU32; 160],
    length: AtomicUsize,
}

static FOLDER: Path = Path { letters: [const { AtomicU32::new(0) }; 160], length: AtomicUsize::new(0) };
static NAME: Path = Path { letters: [const { AtomicU32::new(0) }; 160], length: AtomicUsize::new(0) };

impl Path {
    fn bytes(&self) -> &[u8] {
        // SAFETY: within the letters, which are written once before the length is.
        unsafe {
            core::slice::from_raw_parts((&raw const self.letters).cast::<u8>(), self.length.load(Ordering::Acquire))
        }
    }

    fn set(&self, parts: &[&[u8]]) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length + 1 > size_of_val(&self.letters) {
            return false;
        }
        let mut at = (&raw const self.letters).cast::<u8>().cast_mut();
        for part in parts {
            // SAFETY: all parts and a zero have room; only one thread writes it.
            unsafe {
                core::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
                *at = 0;
            }
        }
        self.length.store(length, Ordering::Release);
        true
    }
}

/// Where it is mapped, or null; [`NONE`] where there is none and will be none.
static MAPPED: AtomicPtr<Head> = AtomicPtr::new(core::ptr::null_mut());
const NONE: *mut Head = core::ptr::without_provenance_mut(1);
static IS_GROWING: AtomicBool = AtomicBool::new(false);
/// Counts the files of this process and of its ancestors by fork. Data that went into another file is not in this one.
static NUMBER: AtomicU32 = AtomicU32::new(1);

/// Whether records are wanted, and where.
pub(crate) fn begin() {
    let folder = environment().find_map(|variable| variable.to_bytes().strip_prefix(VARIABLE));
    if let Some(folder) = folder.filter(|folder| folder.first() == Some(&b'/')) {
        FOLDER.set(&[folder]);
    }
}

/// The variables of the process, as they are now.
pub(crate) fn environment() -> impl Iterator<Item = &'static CStr> {
    let variable = any(c"environ") as *const *const *const c_char;
    // SAFETY: char **environ.
    let mut next = if variable.is_null() { core::ptr::null() } else { unsafe { *variable } };
    core::iter::from_fn(move || {
        // SAFETY: texts of it, which ends by a null.
        unsafe {
            if next.is_null() || (*next).is_null() {
                return None;
            }
            let text = CStr::from_ptr(*next);
            next = next.add(1);
            Some(text)
        }
    })
}

/// Whether anything is to be written.
#[inline(always)]
pub(crate) fn is_wanted() -> bool {
    FOLDER.length.load(Ordering::Relaxed) != 0
}

/// Whether this process has a file.
pub(crate) fn is_there() -> bool {
    let mapped = MAPPED.load(Ordering::Acquire);
    !mapped.is_null() && mapped != NONE
}

/// All code is written down.
pub(crate) fn ended() {
    if is_there() {
        // SAFETY: the head of the file, which stays mapped.
        unsafe { (*MAPPED.load(Ordering::Acquire)).has_ended.store(1, Ordering::Relaxed) };
    }
}

/// Records, locks and frames of Python of this process that found no room, and that its file does not have yet.
static LOST: AtomicU64 = AtomicU64::new(0);
static NOT_HELD: AtomicU64 = AtomicU64::new(0);
static PLACELESS: AtomicU64 = AtomicU64::new(0);

/// A lock was taken, and the table has no room for it: so no order that it is in is known.
#[cold]
#[inline(never)]
pub(crate) fn not_held(table: &Table) {
    counted(table, &NOT_HELD);
    // The count is reported even if no order is ever seen.
    opened(table);
}

/// The frames of Python that took a lock are not known, for their texts have no room.
#[cold]
#[inline(never)]
pub(crate) fn placeless(table: &Table) {
    counted(table, &PLACELESS);
}

fn counted(table: &Table, count: &AtomicU64) {
    table.head.lost.fetch_add(1, Ordering::Relaxed);
    count.fetch_add(1, Ordering::Relaxed);
    tell();
}

/// The file gets what was counted. One that is made later has it from its beginning.
fn tell() {
    if is_there() {
        // SAFETY: the head of the file, which stays mapped.
        let head = unsafe { &*MAPPED.load(Ordering::Acquire) };
        for (count, word) in [(&LOST, &head.lost), (&NOT_HELD, &head.not_held), (&PLACELESS, &head.placeless)] {
            word.fetch_add(count.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Whether there may be room later.
pub(crate) fn has_room() -> bool {
    let mapped = MAPPED.load(Ordering::Acquire);
    // SAFETY: the head of the file, which stays mapped.
    !mapped.is_null() && mapped != NONE && unsafe { (*mapped).end.load(Ordering::Relaxed) as usize + STEP < LARGEST }
}

/// The number of the file that is written now.
pub(crate) fn number() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

/// In a child: the parent's file is the parent's.
pub(crate) fn forked() {
    let mapped = MAPPED.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if !mapped.is_null() && mapped != NONE {
        system_call(MUNMAP, [mapped as usize, LARGEST, 0, 0, 0, 0]);
    }
    NUMBER.fetch_add(1, Ordering::Relaxed);
    for count in [&LOST, &NOT_HELD, &PLACELESS] {
        count.store(0, Ordering::Relaxed);
    }
    IS_GROWING.store(false, Ordering::Relaxed);
}

/// Write a record: the tag, words, and bytes behind them. Whether it was written.
pub(crate) fn write(table: &Table, tag: u8, words: &[u64], bytes: &[u8]) -> bool {
    let count = 1 + words.len() + bytes.len().div_ceil(8);
    let Some(at) = reserve(table, count) else {
        counted(table, &LOST);
        return false;
    };
    let head = RECORD | count as u64;
    // SAFETY: this many words were reserved, for this call alone.
    unsafe {
        AtomicU64::from_ptr(at).store(head | u64::from(UNFINISHED) << 40, Ordering::Relaxed);
        core::ptr::copy_nonoverlapping(words.as_ptr(), at.add(1), words.len());
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(1 + words.len()).cast::<u8>(), bytes.len());
        AtomicU64::from_ptr(at).store(head | u64::from(tag) << 40, Ordering::Release);
    }
    true
}

/// A record of words that are written by the caller, in pieces.
pub(crate) struct Record {
    at: *mut u64,
    count: usize,
    used: usize,
}

impl Record {
    /// Reserves room for `words` words behind the first.
    pub(crate) fn new(table: &Table, words: usize) -> Option<Record> {
        let count = 1 + words;
        let Some(at) = reserve(table, count) else {
            counted(table, &LOST);
            return None;
        };
        let head = RECORD | count as u64 | u64::from(UNFINISHED) << 40;
        // SAFETY: reserved for this call alone.
        unsafe { AtomicU64::from_ptr(at).store(head, Ordering::Relaxed) };
        Some(Record { at, count, used: 1 })
    }

    pub(crate) fn word(&mut self, word: u64) {
        if self.used < self.count {
            // SAFETY: within the reserved words.
            unsafe { *self.at.add(self.used) = word };
            self.used += 1;
        }
    }

    pub(crate) fn finish(self, tag: u8) {
        // SAFETY: the first of the reserved words.
        unsafe {
            AtomicU64::from_ptr(self.at).store(RECORD | self.count as u64 | u64::from(tag) << 40, Ordering::Release)
        };
    }
}

/// Room in the file.
fn reserve(table: &Table, words: usize) -> Option<*mut u64> {
    let head = opened(table)?;
    let size = words * size_of::<u64>();
    // SAFETY: the head of the file, which stays mapped.
    unsafe {
        let mut end = (*head).end.load(Ordering::Relaxed);
        loop {
            let after = end as usize + size;
            if after > (*head).allocated.load(Ordering::Acquire) as usize && !grown(head, after) {
                return None;
            }
            match (*head).end.compare_exchange_weak(end, after as u64, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // Room is made before there is none: who comes meanwhile would lose what it has to write.
                    if after + AHEAD > (*head).allocated.load(Ordering::Relaxed) as usize {
                        grown(head, after + AHEAD);
                    }
                    return Some(head.cast::<u8>().add(end as usize).cast::<u64>());
                }
                Err(now) => end = now,
            }
        }
    }
}

/// Have room up to `after`. One thread at a time does it, and nobody waits for another.
#[cold]
unsafe fn grown(head: *mut Head, after: usize) -> bool {
    if after > LARGEST || IS_GROWING.swap(true, Ordering::Acquire) {
        return false;
    }
    // SAFETY: the head of the file.
    let allocated = unsafe { &(*head).allocated };
    let from = allocated.load(Ordering::Relaxed) as usize;
    let until = after.next_multiple_of(STEP).min(LARGEST);
    filters::look();
    let file = system_call(OPENAT, [HERE, NAME.bytes().as_ptr() as usize, 2 | CLOSE_ON_EXEC, 0, 0, 0]);
    let mut is_done = from >= after;
    if file >= 0 {
        if !is_done && allocate(file as usize, from, until) {
            allocated.store(until as u64, Ordering::Release);
            is_done = true;
        }
        system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
    }
    IS_GROWING.store(false, Ordering::Release);
    is_done
}

/// Have the disk's room for this part of the file: to write to what has none ends the process.
fn allocate(file: usize, from: usize, until: usize) -> bool {
    // To go beyond the limit on files would bring a signal.
    const FILE_SIZE: usize = 1;
    let mut limits = [0u64; 2];
    let limited = system_call(PRLIMIT, [0, FILE_SIZE, 0, limits.as_mut_ptr() as usize, 0, 0]) != 0;
    let [soft, _] = limits;
    !limited && until as u64 <= soft && system_call(FALLOCATE, [file, 0, from, until - from, 0, 0]) == 0
}

fn opened(table: &Table) -> Option<*mut Head> {
    let mapped = MAPPED.load(Ordering::Acquire);
    if mapped.is_null() {
        return open(table);
    }
    (mapped != NONE).then_some(mapped)
}

/// Make the file now, where one is wanted: later it cannot be.
pub(crate) fn prepare(table: &Table) {
    if is_wanted() {
        opened(table);
    }
}

/// Make the file, at the first record.
#[cold]
#[inline(never)]
fn open(table: &Table) -> Option<*mut Head> {
    if !is_wanted() || IS_GROWING.swap(true, Ordering::Acquire) {
        return None;
    }
    filters::look();
    let made = if MAPPED.load(Ordering::Acquire).is_null() { make(table) } else { None };
    if MAPPED.load(Ordering::Acquire).is_null() {
        MAPPED.store(made.unwrap_or(NONE), Ordering::Release);
    }
    IS_GROWING.store(false, Ordering::Release);
    let head = MAPPED.load(Ordering::Acquire);
    if head == NONE {
        return None;
    }
    describe(table);
    tell();
    Some(head)
}

fn make(table: &Table) -> Option<*mut Head> {
    let process = system_call(arch::GETPID, [0; 6]) as u32;
    let began = start::now();
    let (mut digits, mut time) = ([0u8; 20], [0u8; 20]);
    let name: [&[u8]; 6] =
        [FOLDER.bytes(), b"/", decimal(u64::from(process), &mut digits), b"-", decimal(began, &mut time), b".orders"];
    if !NAME.set(&name) {
        return None;
    }
    const READ_WRITE_NEW: usize = 2 | 0o100 | 0o200;
    let file = system_call(OPENAT, [HERE, NAME.bytes().as_ptr() as usize, READ_WRITE_NEW | CLOSE_ON_EXEC, 0o600, 0, 0]);
    if file < 0 {
        return None;
    }
    let mut memory = -1;
    if allocate(file as usize, 0, FIRST) {
        const SHARED: usize = 1;
        memory = system_call(MMAP, [0, LARGEST, 3, SHARED, file as usize, 0]);
    }
    system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
    if memory <= 0 {
        return None;
    }
    let head = memory as *mut Head;
    // SAFETY: a new mapping of a file with this much room; no other thread knows it yet.
    unsafe {
        (*head).version = 2;
        (*head).process = process;
        (*head).end = AtomicU64::new(RECORDS as u64);
        (*head).allocated = AtomicU64::new(FIRST as u64);
        (*head).epoch = table.head.epoch;
        (*head).began = began;
        (*head).magic = MAGIC;
    }
    Some(head)
}

/// Which program it is.
fn describe(table: &Table) {
    let mut text = [0u8; 1000];
    let size = system_call(
        READLINK,
        [HERE, c"/proc/self/exe".as_ptr() as usize, text.as_mut_ptr() as usize, text.len(), 0, 0],
    );
    if let Some(path) = usize::try_from(size).ok().and_then(|size| text.get(..size)) {
        write(table, b'E', &[path.len() as u64], path);
    }
    let file = system_call(OPENAT, [HERE, c"/proc/self/cmdline".as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0]);
    if file >= 0 {
        let size = system_call(READ, [file as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
        if let Some(line) = usize::try_from(size).ok().and_then(|size| text.get(..size)) {
            write(table, b'A', &[line.len() as u64], line);
        }
    }
}

/// A number in digits.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    digits.get(20 - used..).unwrap_or_default()
}

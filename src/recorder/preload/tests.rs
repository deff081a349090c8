//! The recorder as a plain library: rows, orders and their file, Python's frames, threads, fork and signals.
//!
//! In: calls of the recorder's own functions, as the C library's callers would make them. Out: what the table and the
//! file say then. One process has one table and one file, so each test has locks of its own, and reads records of
//! these alone.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use crate::held::{ALONE, Caller, GIL, MUTEX, PYTHON_LOCK, SEMAPHORE, TRIES, WAITS, gives, gives_all, renewed, took};
use crate::table::{ENDED, LIVES, MOST_HELD, MOST_ROWS, Row, Table, place, table};
use crate::{arch, file, loaded, locks, sites, start, symbols};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn pthread_kill(thread: usize, number: c_int) -> c_int;
}

/// The folder of the process's file; the recorder has begun.
pub(crate) fn begun() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("lockscope-recorder-tests-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        // SAFETY: other tests wait for this one here, and read no variables.
        unsafe { std::env::set_var("LOCKSCOPE_RECORD", &folder) };
        let targets = folder.join("targets");
        std::fs::write(&targets, crate::provoke::tests::file_of_targets()).expect("written");
        // SAFETY: as above.
        unsafe { std::env::set_var("LOCKSCOPE_PROVOKE", targets) };
        start::begin();
        folder
    })
}

fn the_table() -> &'static Table {
    begun();
    table().expect("memory")
}

const HERE: Caller = Caller { at: 0, stack: 0 };

/// The calling thread's row, once it has taken a lock.
fn row() -> &'static Row {
    // SAFETY: the storage of this thread; a row lives as long as the process.
    unsafe { (*arch::thread()).row.as_ref() }.expect("a row")
}

/// The locks of a row.
fn locks_of(row: &Row) -> Vec<u64> {
    let count = row.held_count.load(Ordering::Relaxed) as usize;
    row.held.iter().take(count).map(|held| held.lock.load(Ordering::Relaxed)).collect()
}

fn take(lock: usize) {
    took(lock, MUTEX, ALONE, WAITS, HERE);
}

/// On a thread of its own, which has a row of its own.
fn alone<T: Send + 'static>(then: impl FnOnce() -> T + Send + 'static) -> T {
    begun();
    std::thread::spawn(then).join().expect("it ends well")
}

/// The records of a process's file: tag, and words.
fn records(process: u32) -> Vec<(u8, Vec<u64>)> {
    let name = format!("{process}-");
    let mut files = std::fs::read_dir(begun()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|its| its.to_string_lossy().starts_with(&name));
    let bytes = files.find(is_it).map(|path| std::fs::read(path).expect("a file")).unwrap_or_default();
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect();
    let mut records = Vec::new();
    let end = words.get(3).map_or(0, |end| *end as usize / 8);
    let mut at = 16;
    while at < end {
        let size = (words[at] & 0xffff) as usize;
        assert!(words[at] >> 48 == 0x4c4b && size > 0, "a record at {at}");
        records.push(((words[at] >> 40) as u8, words[at + 1..at + size].to_vec()));
        at += size;
    }
    records
}

/// Those of this process with this tag.
fn with(tag: u8) -> Vec<Vec<u64>> {
    records(std::process::id()).into_iter().filter(|(its, _)| *its == tag).map(|(_, words)| words).collect()
}

/// How often the file has that `wanted` was taken while `held` was.
fn orders(held: u64, wanted: u64) -> usize {
    with(b'D').iter().filter(|words| words[2] == wanted && words[6..].chunks(4).any(|lock| lock[0] == held)).count()
}

#[test]
fn a_lock_is_held_until_it_is_given_as_often_as_it_was_taken() {
    alone(|| {
        take(0x1000);
        take(0x1100);
        take(0x1000);
        assert_eq!(locks_of(row()), [0x1000, 0x1100]);
        gives(0x1000, MUTEX);
        gives(0x1000, MUTEX);
        // Out of turn: its entry goes with the one above.
        assert_eq!(locks_of(row()), [0, 0x1100]);
        gives(0x1100, MUTEX);
        assert_eq!(locks_of(row()), [] as [u64; 0]);
        (0..3).for_each(|_| take(0x1200));
        assert_eq!((gives_all(0x1200), locks_of(row()).len()), (3, 0));
        // Given without being held: no harm.
        gives(0x1300, MUTEX);
        assert_eq!(locks_of(row()).len(), 0);
    });
}

#[test]
fn what_finds_no_room_is_counted_and_gone_locks_make_room() {
    alone(|| {
        let lost = the_table().head.lost.load(Ordering::Relaxed);
        (0..MOST_HELD + 2).for_each(|lock| take(0x20_0000 + lock * 0x100));
        assert_eq!(locks_of(row()).len(), MOST_HELD);
        assert!(the_table().head.lost.load(Ordering::Relaxed) >= lost + 2);
        // Made anew while it was held: its entry is of another lock.
        renewed(0x20_0000);
        take(0x20_0000);
        assert_eq!(locks_of(row()).len(), MOST_HELD);
        assert_eq!(locks_of(row()).last(), Some(&0x20_0000));
        (0..MOST_HELD).for_each(|lock| gives(0x20_0000 + lock * 0x100, MUTEX));
        assert_eq!(locks_of(row()).len(), 0);
    });
}

#[test]
fn what_another_thread_gives_is_a_signal_and_nobody_has_it() {
    let (taken, given) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    begun();
    let taker = std::thread::spawn(move || {
        took(0x30_0000, SEMAPHORE, ALONE, WAITS, HERE);
        took(0x30_0100, PYTHON_LOCK, ALONE, TRIES, HERE);
        taken.0.send(()).expect("sent");
        given.1.recv().expect("received");
        let left = locks_of(row()).into_iter().filter(|lock| *lock != 0).count();
        // From now on it is known for none.
        took(0x30_0000, SEMAPHORE, ALONE, WAITS, HERE);
        (left, locks_of(row()).contains(&0x30_0000))
    });
    taken.1.recv().expect("received");
    gives(0x30_0000, SEMAPHORE);
    gives(0x30_0100, PYTHON_LOCK);
    given.0.send(()).expect("sent");
    assert_eq!(taker.join().expect("it ends well"), (0, false));
    assert_eq!(with(b'S').iter().filter(|words| words[0] == 0x30_0000).count(), 1);
}

#[test]
fn an_order_is_written_once_with_the_name_of_its_thread() {
    begun();
    let pair = || {
        for _ in 0..3 {
            take(0x40_0000);
            take(0x40_0100);
            gives(0x40_0100, MUTEX);
            // A try cannot hang.
            took(0x40_0200, MUTEX, ALONE, TRIES, HERE);
            gives(0x40_0200, MUTEX);
            gives(0x40_0000, MUTEX);
        }
        u64::from(row().number.load(Ordering::Relaxed))
    };
    let number =
        std::thread::Builder::new().name("payer".into()).spawn(pair).expect("a thread").join().expect("a number");
    assert_eq!((orders(0x40_0000, 0x40_0100), orders(0x40_0000, 0x40_0200)), (1, 0));
    let name = with(b'N').into_iter().find(|words| words[0] & 0xffff_ffff == number).expect("its name");
    assert_eq!(name[2].to_le_bytes(), *b"payer\0\0\0");
}

#[test]
fn a_lock_of_python_gives_the_gil_back_before_it_waits() {
    alone(|| {
        took(0x50_0001, GIL, ALONE, WAITS, HERE);
        took(0x50_0100, PYTHON_LOCK, ALONE, WAITS, HERE);
        take(0x50_0200);
    });
    assert_eq!(orders(0x50_0001, 0x50_0100), 0);
    assert_eq!((orders(0x50_0001, 0x50_0200), orders(0x50_0100, 0x50_0200)), (1, 1));
}

extern "C" fn runs(argument: *mut c_void) -> *mut c_void {
    take(0x60_0000);
    gives(0x60_0000, MUTEX);
    argument
}

#[test]
fn threads_that_are_made_and_joined_are_written_down() {
    let [maker, made] = alone(|| {
        take(0x60_1000);
        let (mut thread, argument) = (0usize, 0x60usize);
        let at = (&raw mut thread) as usize;
        assert_eq!(locks::thread_create(at, 0, runs as *const () as usize, argument), 0);
        let mut result = 0usize;
        assert_eq!(locks::thread_join(thread, (&raw mut result) as usize, 0, 0, 0, 0), 0);
        assert_eq!((result, row().segment.load(Ordering::Relaxed)), (argument, 2));
        let maker = u64::from(row().number.load(Ordering::Relaxed));
        let made = with(b'C').into_iter().find(|words| words[0] == maker).expect("a record")[1];
        gives(0x60_1000, MUTEX);
        [maker, made]
    });
    assert!(with(b'J').contains(&vec![maker | 1 << 32, made]));
}

#[test]
fn taking_the_lock_that_an_ended_thread_of_python_left_is_a_join() {
    let ended = alone(|| {
        took(0x65_0000, PYTHON_LOCK, ALONE, WAITS, HERE);
        u64::from(row().number.load(Ordering::Relaxed))
    });
    let joiner = alone(|| {
        take(0x65_1000);
        took(0x65_0000, PYTHON_LOCK, ALONE, WAITS, HERE);
        u64::from(row().number.load(Ordering::Relaxed))
    });
    assert!(with(b'J').contains(&vec![joiner, ended]));
    // The wait under a lock is one that could have met the thread.
    let waited = with(b'D').into_iter().find(|words| words[2] == 0x65_0000).expect("an order");
    assert_eq!(waited[0], joiner);
}

#[test]
fn rows_of_threads_that_have_ended_are_used_again() {
    for _ in 0..2 * MOST_ROWS / 64 {
        let threads: Vec<_> = (0..64).map(|_| std::thread::spawn(|| take(0x70_0000))).collect();
        begun();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
        renewed(0x70_0000);
    }
    let living = the_table().rows.iter().filter(|row| row.state.load(Ordering::Relaxed) == LIVES).count();
    assert!(living < 200, "{living}");
}

#[test]
fn a_child_has_a_row_and_a_file_of_its_own() {
    alone(|| {
        take(0x80_0000);
        // SAFETY: the child calls the recorder, which needs nothing of other threads' data, and ends.
        let child = unsafe { fork() };
        if child == 0 {
            take(0x80_0100);
            let others = the_table().rows.iter().filter(|other| {
                !core::ptr::eq(*other, row())
                    && !matches!(other.state.load(Ordering::Relaxed), 0 | ENDED)
                    && other.held_count.load(Ordering::Relaxed) != 0
            });
            let is_own = the_table().head.process.load(Ordering::Relaxed) == row().tid.load(Ordering::Relaxed);
            let is_good = others.count() == 0 && is_own && locks_of(row()) == [0x80_0000, 0x80_0100];
            loaded::ends();
            // SAFETY: ends the child.
            unsafe { _exit(c_int::from(!is_good)) }
        }
        let mut status = 1;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        let of_child = records(child as u32);
        assert_eq!(of_child.iter().filter(|(tag, words)| *tag == b'D' && words[2] == 0x80_0100).count(), 1);
        assert!(of_child.iter().any(|(tag, _)| *tag == b'E') && of_child.iter().any(|(tag, _)| *tag == b'M'));
        assert_eq!(orders(0x80_0000, 0x80_0100), 0);
    });
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: c_int) {
    let lock = 0x90_0000;
    took(lock, MUTEX, ALONE, WAITS, HERE);
    took(lock + 0x100, SEMAPHORE, ALONE, TRIES, HERE);
    gives(lock + 0x100, SEMAPHORE);
    gives(lock, MUTEX);
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_handler_may_lock_at_any_instruction() {
    const USER: c_int = 12;
    // SAFETY: void (*signal(int, void (*)(int)))(int).
    unsafe { signal(USER, handler) };
    let is_over = std::sync::Arc::new(AtomicU32::new(0));
    begun();
    let (told, until) = (std::sync::mpsc::channel(), is_over.clone());
    let thread = std::thread::spawn(move || {
        take(0x90_1000);
        told.0.send(arch::thread_pointer()).expect("sent");
        while until.load(Ordering::Relaxed) == 0 {
            take(0x90_1100);
            take(0x90_1200);
            gives(0x90_1100, MUTEX);
            gives(0x90_1200, MUTEX);
        }
        locks_of(row())
    });
    let target = told.1.recv().expect("a thread");
    for sent in 1..=300 {
        // SAFETY: the thread runs until the test ends it.
        assert_eq!(unsafe { pthread_kill(target, USER) }, 0);
        while HANDLED.load(Ordering::Relaxed) < sent {
            std::thread::yield_now();
        }
    }
    is_over.store(1, Ordering::Relaxed);
    assert_eq!(thread.join().expect("it ends well"), [0x90_1000]);
}

#[test]
fn a_mutex_of_the_c_library_is_taken_and_given() {
    alone(|| {
        let mutex = [0usize; 8];
        let at = mutex.as_ptr() as usize;
        assert_eq!(locks::mutex_lock(at, 0, 0, 0, 0x123, 0), 0);
        assert_eq!(locks_of(row()), [at as u64]);
        assert_eq!(row().held[0].at, 0x123);
        assert_eq!(locks::mutex_unlock(at, 0, 0, 0, 0, 0), 0);
        assert_eq!(locks_of(row()).len(), 0);
    });
}

#[test]
fn locks_side_by_side_have_entries_of_their_own() {
    let mut places: Vec<usize> = (0..4096).map(|lock| place(0x7f00_1234_5000 + lock * 4)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 4096);
}

#[test]
fn functions_are_found_by_their_names() {
    let found = symbols::next(c"pthread_mutex_lock");
    assert!(found != 0 && symbols::is_in(found, b"libc.so"));
    assert!(!symbols::is_in(found, b"libcuda.so"));
    assert_eq!(symbols::any(c"lockscope has no such function"), 0);
}

/// Objects as CPython 3.13 has them, in words.
mod python {
    pub(super) fn text(text: &str) -> Vec<usize> {
        let mut words = vec![0; 5 + text.len().div_ceil(8)];
        (words[2], words[4]) = (text.len(), 3 << 5);
        for (at, byte) in text.bytes().enumerate() {
            words[5 + at / 8] |= usize::from(byte) << (8 * (at % 8));
        }
        words
    }

    pub(super) fn code(file: &[usize], name: &[usize]) -> Vec<usize> {
        let mut words = vec![0; 64];
        (words[112 / 8], words[128 / 8]) = (file.as_ptr() as usize, name.as_ptr() as usize);
        words
    }

    pub(super) fn frame(code: &[usize], previous: usize, offset: usize) -> Vec<usize> {
        let mut words = vec![0; 8];
        let at = code.as_ptr() as usize;
        (words[0], words[1], words[7]) = (at, previous, at + 200 + offset);
        words
    }
}

static STATE: Mutex<usize> = Mutex::new(0);

extern "C" fn state() -> usize {
    *STATE.lock().expect("a state")
}

extern "C" fn line_of(_: usize, offset: c_int) -> c_int {
    offset + 10
}

#[test]
fn frames_of_python_are_one_text_each() {
    let (file, inner, outer) = (python::text("/srv/orders.py"), python::text("pay"), python::text("work.<locals>.run"));
    let (inner, outer) = (python::code(&file, &inner), python::code(&file, &outer));
    let below = python::frame(&outer, 0, 30);
    let above = python::frame(&inner, below.as_ptr() as usize, 2);
    let mut words = [0usize; 16];
    words[72 / 8] = above.as_ptr() as usize;
    *STATE.lock().expect("a state") = words.as_ptr() as usize;
    sites::begin_as(13, state as *const () as usize, line_of as *const () as usize);
    let number = sites::here(the_table());
    assert!(number != 0 && sites::here(the_table()) == number);
    let site = &the_table().sites[number as usize - 1];
    let (text, length) = (site.text.load(Ordering::Relaxed) as *const u8, site.length.load(Ordering::Relaxed));
    // SAFETY: the text of a site, which stays.
    let text = unsafe { core::slice::from_raw_parts(text, length as usize) };
    let expected = "/srv/orders.py\x1f12\x1fpay\n/srv/orders.py\x1f40\x1fwork.<locals>.run\n";
    assert_eq!(core::str::from_utf8(text), Ok(expected));
    sites::begin_as(0, 0, 0);
    assert_eq!(sites::here(the_table()), 0);
}

#[test]
fn numbers_are_written_in_digits() {
    for number in [0, 7, 10, 4_294_967_296, u64::MAX] {
        assert_eq!(file::decimal(number, &mut [0; 20]), number.to_string().as_bytes());
    }
}

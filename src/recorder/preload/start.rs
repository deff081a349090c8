//! The beginning, the end of threads, fork, and the clock.
//!
//! In: the loader's call. Out: the table, where the process has all that is needed for it.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::arch;
use crate::exec;
use crate::file;
use crate::filters;
use crate::held;
use crate::orders;
use crate::provoke;
use crate::real;
use crate::stand;
use crate::symbols;
use crate::table::{self, ENDED, MOST_ROWS, Row, table};

/// `CLOCK_MONOTONIC_COARSE`, `CLOCK_REALTIME_COARSE`: the last tick, without asking the machine's clock.
const MONOTONIC: c_int = 6;
const REALTIME: c_int = 5;

static CLOCK: AtomicUsize = AtomicUsize::new(0);
static SET_SPECIFIC: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicU32 = AtomicU32::new(0);

#[cfg(not(test))]
#[unsafe(link_section = ".init_array")]
#[used]
static BEGIN: extern "C" fn() = begin;

pub(crate) extern "C" fn begin() {
    // First: no call but the loader's own is made before.
    filters::begin();
    real::look_up();
    exec::begin();
    crate::cuda::real_dlsym();
    file::begin();
    provoke::begin(file::environment());
    orders::begin(file::environment());
    CLOCK.store(clock(), Ordering::Relaxed);
    let (create, set) = (symbols::any(c"pthread_key_create"), symbols::any(c"pthread_setspecific"));
    if create != 0 && set != 0 {
        let mut key = 0u32;
        // SAFETY: pthread_key_create(pthread_key_t *, void (*)(void *)).
        let create = unsafe {
            core::mem::transmute::<usize, extern "C" fn(*mut u32, extern "C" fn(*mut c_void)) -> c_int>(create)
        };
        if create(&raw mut key, thread_ends) == 0 {
            KEY.store(key, Ordering::Relaxed);
            SET_SPECIFIC.store(set, Ordering::Relaxed);
        }
    }
    // glibc calls pthread_atfork by this name, and has the other in no shared library.
    let (glibc, musl) = (symbols::any(c"__register_atfork"), symbols::any(c"pthread_atfork"));
    let (before, in_child) = (stand::let_all_go as *const () as usize, forked as *const () as usize);
    if glibc != 0 {
        // SAFETY: __register_atfork(prepare, parent, child, handle of the library).
        unsafe {
            core::mem::transmute::<usize, extern "C" fn(usize, usize, usize, usize) -> c_int>(glibc)(
                before, 0, in_child, 0,
            )
        };
    } else if musl != 0 {
        // SAFETY: pthread_atfork(prepare, parent, child).
        unsafe {
            core::mem::transmute::<usize, extern "C" fn(usize, usize, usize) -> c_int>(musl)(before, 0, in_child)
        };
    }
    table::make(read(REALTIME).wrapping_sub(read(MONOTONIC)) as i64);
}

/// The kernel's own function for the C library, which is called each time and needs nothing of that; or the C
/// library's.
fn clock() -> usize {
    match symbols::any(arch::CLOCK) {
        0 => symbols::any(c"clock_gettime"),
        found => found,
    }
}

/// Nanoseconds of the clock that never goes back, or 0 behind a filter of system calls: on a machine whose clock cannot
/// be read from memory the kernel's function makes one.
#[inline(always)]
pub(crate) fn now() -> u64 {
    if filters::is_filtered() { 0 } else { read(MONOTONIC) }
}

#[inline(always)]
fn read(clock: c_int) -> u64 {
    let function = CLOCK.load(Ordering::Relaxed);
    if function == 0 {
        return 0;
    }
    let mut time = [0i64; 2];
    // SAFETY: clock_gettime(clockid_t, struct timespec *), which cannot fail for these clocks.
    unsafe {
        core::mem::transmute::<usize, extern "C" fn(c_int, *mut i64) -> c_int>(function)(clock, time.as_mut_ptr())
    };
    let [seconds, nanoseconds] = time;
    (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds as u64)
}

/// Let the recorder know of the calling thread's end.
pub(crate) fn tell_of_end(row: &Row) {
    let set = SET_SPECIFIC.load(Ordering::Relaxed);
    if set != 0 {
        // SAFETY: pthread_setspecific(pthread_key_t, const void *).
        let set = unsafe { core::mem::transmute::<usize, extern "C" fn(u32, *const Row) -> c_int>(set) };
        set(KEY.load(Ordering::Relaxed), row);
    }
}

extern "C" fn thread_ends(row: *mut c_void) {
    // SAFETY: the value that was set: a row, which lives as long as the process.
    let Some(row) = (unsafe { row.cast::<Row>().as_ref() }) else { return };
    // Destructors of the program may take further locks while the thread has these. The C library calls all of them up
    // to four times [POSIX, PTHREAD_DESTRUCTOR_ITERATIONS], as long as one has set its value anew: the last time counts.
    const ROUNDS: usize = 3;
    // SAFETY: the storage of this thread.
    let own = unsafe { &mut *arch::thread() };
    if row.held_count.load(Ordering::Relaxed) != 0 && own.ends + 1 < ROUNDS {
        own.ends += 1;
        return tell_of_end(row);
    }
    held::ended(row);
}

/// In a child there is one thread, and it has another id.
extern "C" fn forked() {
    file::forked();
    stand::forked();
    let Some(table) = table() else { return };
    filters::look();
    if filters::is_filtered() {
        // The child may not make a file of its own: nothing of it is recorded.
        return table::leave();
    }
    orders::forked(table);
    // SAFETY: the storage of this thread.
    let own = unsafe { (*arch::thread()).row };
    let used = (table.head.rows.load(Ordering::Relaxed) as usize).min(MOST_ROWS);
    for (place, row) in table.rows.iter().enumerate().take(used).filter(|(_, row)| !core::ptr::eq(*row, own)) {
        // Each page that is written to is copied for the child.
        if row.held_count.load(Ordering::Relaxed) != 0 || row.state.load(Ordering::Relaxed) != ENDED {
            row.held_count.store(0, Ordering::Relaxed);
            row.state.store(ENDED, Ordering::Relaxed);
        }
        held::free(table, place);
    }
    // The id of the only thread is that of the process.
    table.head.process.store(filters::own_id(), Ordering::Relaxed);
    // SAFETY: as above.
    if let Some(row) = unsafe { own.as_ref() } {
        row.tid.store(filters::own_id(), Ordering::Relaxed);
    }
}

//! Filters of system calls that the process gives itself (seccomp).
//!
//! In: the program's calls of `prctl` and `syscall`, which come here first and do what the C library's do; the number of
//! filters that the kernel counts. Out: whether a filter may be there that the recorder's calls are foreign to. From then
//! on the recorder makes no system call: a filter ends the process for one that it does not know.
//!
//! A process inherits filters. Those of lockscope itself allow what lockscope does, and [`VARIABLE`] has their number. A
//! process that begins with more is left alone; only the loader's own calls are made until that is known. A filter that
//! a program sets by an instruction of its own, past the C library, is seen before the next call of the recorder's that the
//! loader does not make: by `openat`, `read` and `close`. One that does not know these ends the process there.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::arch::{self, CLOSE, OPENAT, READ, raw_call, system_call};
use crate::file;
use crate::held;
use crate::symbols;
use crate::table::table;

/// The variable with the number of filters that lockscope itself runs under.
const VARIABLE: &[u8] = b"LOCKSCOPE_RECORD_FILTERS=";

static IS_FILTERED: AtomicBool = AtomicBool::new(false);
static ERRNO: AtomicUsize = AtomicUsize::new(0);
/// Filters that the process began with.
static INHERITED: AtomicU32 = AtomicU32::new(0);
/// Where the C library keeps a thread's id, from the thread pointer on; 0 where it is not known.
static ID_AT: AtomicUsize = AtomicUsize::new(0);

/// Whether a filter may end the process for a system call.
#[inline(always)]
pub(crate) fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed)
}

/// Look up where the C library keeps its error numbers and ids of threads, and whether the process began with filters of
/// its own.
pub(crate) fn begin() {
    ERRNO.store(symbols::any(c"__errno_location"), Ordering::Relaxed);
    let allowed = file::environment().find_map(|variable| number(variable.to_bytes().strip_prefix(VARIABLE)?));
    let there = count();
    INHERITED.store(there.unwrap_or_default(), Ordering::Relaxed);
    if let (Some(allowed), Some(there)) = (allowed, there)
        && there > allowed
    {
        return IS_FILTERED.store(true, Ordering::SeqCst);
    }
    let own = system_call(arch::GETTID, [0; 6]);
    let known = arch::ID_OFFSETS.into_iter().find(|offset| own > 0 && id_at(*offset) == own as u32);
    ID_AT.store(known.unwrap_or_default(), Ordering::Relaxed);
}

/// Notice a filter that came past the C library.
pub(crate) fn look() {
    if table().is_some() && !is_filtered() && count().is_some_and(|now| now > INHERITED.load(Ordering::Relaxed)) {
        IS_FILTERED.store(true, Ordering::SeqCst);
    }
}

/// The id of the calling thread.
pub(crate) fn own_id() -> u32 {
    match ID_AT.load(Ordering::Relaxed) {
        0 => system_call(arch::GETTID, [0; 6]) as u32,
        offset => id_at(offset),
    }
}

fn id_at(offset: usize) -> u32 {
    // SAFETY: within the C library's description of the thread, which is larger.
    unsafe { core::ptr::read_volatile((arch::thread_pointer() + offset) as *const u32) }
}

/// The number of the calling thread's filters, where the kernel tells (Linux 5.9).
fn count() -> Option<u32> {
    const HERE: usize = -100isize as usize;
    const CLOSE_ON_EXEC: usize = 0o2000000;
    const NAME: &[u8] = b"\nSeccomp_filters:\t";
    let file = system_call(OPENAT, [HERE, c"/proc/thread-self/status".as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0]);
    if file < 0 {
        return None;
    }
    // Threads may have small stacks, and this line comes early.
    let mut text = [0u8; 2048];
    let size = system_call(READ, [file as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
    system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
    let text = text.get(..usize::try_from(size).ok()?)?;
    let at = text.windows(NAME.len()).position(|part| part == NAME)?;
    number(text.get(at + NAME.len()..)?)
}

/// The number that a text begins with.
fn number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|letter| letter.is_ascii_digit()).take(9);
    let value = digits.fold(0u32, |value, digit| value.wrapping_mul(10).wrapping_add(u32::from(digit & 15)));
    text.first()?.is_ascii_digit().then_some(value)
}

/// A call that may set a filter, with its number in front of its arguments. The calling
/// thread gets its row before, and the file is made: both need calls.
pub(crate) extern "C" fn sets_filter(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let is_first = !is_filtered();
    if let Some(table) = table().filter(|_| is_first) {
        held::has_row(table);
        file::prepare(table);
    }
    // Before the call: other threads get the filter with it.
    IS_FILTERED.store(true, Ordering::SeqCst);
    let result = raw_call(number, [a, b, c, d, e, f]);
    if result < 0 {
        if is_first {
            IS_FILTERED.store(false, Ordering::SeqCst);
        }
        return failed(result);
    }
    result
}

/// The answer of a call that the kernel has refused.
pub(crate) extern "C" fn failed(result: isize) -> isize {
    let function = match ERRNO.load(Ordering::Relaxed) {
        0 => symbols::any(c"__errno_location"),
        known => known,
    };
    if function != 0 {
        // SAFETY: int *__errno_location(void), which answers with a place of this thread's own.
        unsafe { *core::mem::transmute::<usize, extern "C" fn() -> *mut c_int>(function)() = -result as c_int };
    }
    -1
}

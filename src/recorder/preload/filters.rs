//! Filters of system calls that the process gives itself (seccomp).
//!
//! In: the program's calls of `prctl` and `syscall`, which come here first and do what the C library's do. Out: whether
//! a filter may be there. From then on the recorder makes no system call: a filter ends the process for one that it
//! does not know. A filter that a program sets by an instruction of its own, past the C library, is not seen; one that
//! is inherited was there when the loader made calls of its own.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::arch::raw_call;
use crate::file;
use crate::held;
use crate::symbols;
use crate::table::table;

static IS_FILTERED: AtomicBool = AtomicBool::new(false);
static ERRNO: AtomicUsize = AtomicUsize::new(0);

/// Whether a filter may end the process for a system call.
#[inline(always)]
pub(crate) fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed)
}

/// Look up where the C library keeps its error numbers.
pub(crate) fn begin() {
    ERRNO.store(symbols::any(c"__errno_location"), Ordering::Relaxed);
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

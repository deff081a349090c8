//! Calls into CUDA's driver: the last one of each thread, its arguments, its answer, and the last error.
//!
//! In: `dlsym` and `cuGetProcAddress`, by which CUDA's runtime, `ctypes` and all frameworks ask for the driver's
//! functions; what they get is an entry of [`arch::call_entry`], which goes on to the function that they asked for.
//! Out: [`DriverCall`] of the thread's row. Functions of `cuGetExportTable`, which have no names, and calls of a
//! program that was linked with the driver itself are not seen.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch;
use crate::held;
use crate::start;
use crate::symbols;
use crate::table::{DriverCall, LONGEST_NAME, MOST_FUNCTIONS, table};

/// The driver's library, by the beginning of its file's name.
const DRIVER: &[u8] = b"libcuda.so";
/// Not yet done: an answer, and no error [cuda.h, CUDA_ERROR_NOT_READY].
const NOT_READY: u32 = 600;
/// The functions that the program requested, by the numbers of their entries.
static FUNCTIONS: [AtomicUsize; MOST_FUNCTIONS] = [const { AtomicUsize::new(0) }; MOST_FUNCTIONS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static DLSYM: AtomicUsize = AtomicUsize::new(0);
/// `cuGetProcAddress` as it was until CUDA 11, and as it is since 12, where it has one argument more.
static ASK_BY_FOUR: AtomicUsize = AtomicUsize::new(0);
static ASK_BY_FIVE: AtomicUsize = AtomicUsize::new(0);
const SINCE_FIVE: c_int = 12_000;

/// The C library's `dlsym`, which an old one has in a library that may not be there; or 0.
pub(crate) extern "C" fn real_dlsym() -> usize {
    let known = DLSYM.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let found = symbols::next(c"dlsym");
    DLSYM.store(found, Ordering::Relaxed);
    found
}

/// `dlsym` of a name that the driver's functions have, in a library that the program has opened.
pub(crate) extern "C" fn dlsym_of_driver(library: usize, name: *const c_char) -> usize {
    let real = real_dlsym();
    if real == 0 {
        return 0;
    }
    // SAFETY: void *dlsym(void *, const char *), with the arguments of the program.
    let found =
        unsafe { core::mem::transmute::<usize, extern "C" fn(usize, *const c_char) -> usize>(real)(library, name) };
    if found == 0 || !symbols::is_in(found, DRIVER) {
        return found;
    }
    // SAFETY: the name that dlsym has just read.
    instead(unsafe { CStr::from_ptr(name) }, found)
}

/// The function that a program gets if it requests one of the driver.
fn instead(name: &CStr, function: usize) -> usize {
    match name.to_bytes() {
        b"cuGetExportTable" => function,
        b"cuGetProcAddress" => asked_by(&ASK_BY_FOUR, function),
        b"cuGetProcAddress_v2" => asked_by(&ASK_BY_FIVE, function),
        _ => entry(name, function),
    }
}

fn asked_by(which: &'static AtomicUsize, function: usize) -> usize {
    let own = if core::ptr::eq(which, &ASK_BY_FOUR) { by_four as *const () } else { by_five as *const () } as usize;
    if function != own {
        which.store(function, Ordering::Relaxed);
    }
    own
}

extern "C" fn by_four(name: *const c_char, function: *mut usize, version: c_int, flags: u64) -> c_int {
    ask(&ASK_BY_FOUR, name, function, version, flags, 0)
}

extern "C" fn by_five(name: *const c_char, function: *mut usize, version: c_int, flags: u64, status: usize) -> c_int {
    ask(&ASK_BY_FIVE, name, function, version, flags, status)
}

fn ask(
    real: &AtomicUsize,
    name: *const c_char,
    function: *mut usize,
    version: c_int,
    flags: u64,
    status: usize,
) -> c_int {
    type Ask = extern "C" fn(*const c_char, *mut usize, c_int, u64, usize) -> c_int;
    // SAFETY: CUresult cuGetProcAddress(const char *, void **, int, cuuint64_t[, CUdriverProcAddressQueryResult *]),
    // with the arguments of the program; where there is no fifth it is ignored. The address was stored before
    // this function was handed out.
    let result = unsafe {
        core::mem::transmute::<usize, Ask>(real.load(Ordering::Relaxed))(name, function, version, flags, status)
    };
    if result == 0 && !name.is_null() && !function.is_null() {
        // SAFETY: the driver has read the name, and written the function.
        unsafe {
            let (name, found) = (CStr::from_ptr(name), *function);
            if found != 0 {
                let is_by_five = name == c"cuGetProcAddress" && version >= SINCE_FIVE;
                *function = if is_by_five { asked_by(&ASK_BY_FIVE, found) } else { instead(name, found) };
            }
        }
    }
    result
}

/// The entry of a function of the driver; the function itself where there is none left.
fn entry(name: &CStr, function: usize) -> usize {
    let Some(table) = table() else { return function };
    let used = COUNT.load(Ordering::Acquire).min(MOST_FUNCTIONS);
    let is_entry = (0..used).any(|number| arch::call_entry(number) == function);
    if is_entry {
        return function;
    }
    // Twice the same, asked for by two threads at the same moment, does no harm.
    if let Some(number) = FUNCTIONS.iter().take(used).position(|one| one.load(Ordering::Relaxed) == function) {
        return arch::call_entry(number);
    }
    let number = COUNT.fetch_add(1, Ordering::AcqRel);
    let (Some(place), Some(text)) = (FUNCTIONS.get(number), table.functions.get(number)) else {
        COUNT.store(MOST_FUNCTIONS, Ordering::Relaxed);
        return function;
    };
    for (byte, from) in text.iter().zip(name.to_bytes().iter().take(LONGEST_NAME - 1)) {
        byte.store(*from, Ordering::Relaxed);
    }
    place.store(function, Ordering::Release);
    arch::call_entry(number)
}

/// An outer call, saved while another one is made within it.
#[repr(C)]
pub(crate) struct Outer {
    call: *const DriverCall,
    function: u32,
    arguments: [u64; 4],
    since: u64,
}

/// A function of the driver is called, with these arguments at least: its address.
pub(crate) extern "C" fn begins(number: usize, arguments: &[u64; 6], outer: &mut Outer) -> usize {
    outer.call = core::ptr::null();
    if let Some(call) = table().and_then(held::own_call) {
        outer.call = call;
        outer.function = call.function.load(Ordering::Relaxed);
        outer.since = call.since.load(Ordering::Relaxed);
        let depth = call.depth.load(Ordering::Relaxed);
        call.function.store(number as u32 + 1, Ordering::Relaxed);
        for ((one, outer), new) in call.arguments.iter().zip(&mut outer.arguments).zip(arguments) {
            *outer = one.load(Ordering::Relaxed);
            one.store(*new, Ordering::Relaxed);
        }
        call.since.store(start::now(), Ordering::Relaxed);
        call.calls.store(call.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        call.depth.store(depth.wrapping_add(1), Ordering::Release);
    }
    FUNCTIONS.get(number).map_or(0, |function| function.load(Ordering::Relaxed))
}

/// It has answered.
pub(crate) extern "C" fn ended(result: u32, outer: &Outer) {
    // SAFETY: a part of the table, which lives as long as the process, or null.
    let Some(call) = (unsafe { outer.call.as_ref() }) else { return };
    let depth = call.depth.load(Ordering::Relaxed).wrapping_sub(1);
    call.result.store(result, Ordering::Relaxed);
    // Once a kernel has failed all calls answer the same: the first of them counts.
    if result != 0 && result != NOT_READY && call.error.load(Ordering::Relaxed) != result {
        call.error.store(result, Ordering::Relaxed);
        call.error_function.store(call.function.load(Ordering::Relaxed), Ordering::Relaxed);
        call.error_since.store(start::now(), Ordering::Relaxed);
    }
    if depth != 0 {
        call.function.store(outer.function, Ordering::Relaxed);
        call.since.store(outer.since, Ordering::Relaxed);
        for (one, outer) in call.arguments.iter().zip(&outer.arguments) {
            one.store(*outer, Ordering::Relaxed);
        }
    }
    call.depth.store(depth, Ordering::Release);
}

//! The functions of the C library that the recorder stands in front of.
//!
//! In: nothing. Out: [`call`], which calls one of them. They are looked up together, at the first call of any: a
//! constructor of another library may lock before the recorder's own has run.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::symbols;

/// The result of a function that the C library of the process lacks, because it came with a later version.
const EINVAL: i32 = 22;

macro_rules! functions {
    ($($constant:ident $name:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        pub(crate) enum Real { $($constant,)* }
        const NAMES: &[&CStr] = &[$($name,)*];
    };
}

functions! {
    MUTEX_LOCK c"pthread_mutex_lock",
    MUTEX_TRYLOCK c"pthread_mutex_trylock",
    MUTEX_TIMEDLOCK c"pthread_mutex_timedlock",
    MUTEX_CLOCKLOCK c"pthread_mutex_clocklock",
    MUTEX_UNLOCK c"pthread_mutex_unlock",
    MUTEX_INIT c"pthread_mutex_init",
    MUTEX_DESTROY c"pthread_mutex_destroy",
    COND_INIT c"pthread_cond_init",
    COND_WAIT c"pthread_cond_wait",
    COND_TIMEDWAIT c"pthread_cond_timedwait",
    COND_CLOCKWAIT c"pthread_cond_clockwait",
    RWLOCK_RDLOCK c"pthread_rwlock_rdlock",
    RWLOCK_WRLOCK c"pthread_rwlock_wrlock",
    RWLOCK_TRYRDLOCK c"pthread_rwlock_tryrdlock",
    RWLOCK_TRYWRLOCK c"pthread_rwlock_trywrlock",
    RWLOCK_TIMEDRDLOCK c"pthread_rwlock_timedrdlock",
    RWLOCK_TIMEDWRLOCK c"pthread_rwlock_timedwrlock",
    RWLOCK_CLOCKRDLOCK c"pthread_rwlock_clockrdlock",
    RWLOCK_CLOCKWRLOCK c"pthread_rwlock_clockwrlock",
    RWLOCK_UNLOCK c"pthread_rwlock_unlock",
    RWLOCK_INIT c"pthread_rwlock_init",
    RWLOCK_DESTROY c"pthread_rwlock_destroy",
    SPIN_LOCK c"pthread_spin_lock",
    SPIN_TRYLOCK c"pthread_spin_trylock",
    SPIN_UNLOCK c"pthread_spin_unlock",
    SPIN_INIT c"pthread_spin_init",
    SEM_WAIT c"sem_wait",
    SEM_TRYWAIT c"sem_trywait",
    SEM_TIMEDWAIT c"sem_timedwait",
    SEM_CLOCKWAIT c"sem_clockwait",
    SEM_POST c"sem_post",
    SEM_INIT c"sem_init",
    SEM_DESTROY c"sem_destroy",
    THREAD_CREATE c"pthread_create",
    THREAD_JOIN c"pthread_join",
    COND_SIGNAL c"pthread_cond_signal",
    COND_BROADCAST c"pthread_cond_broadcast",
    EXECVE c"execve",
    EXECV c"execv",
    EXECVP c"execvp",
    EXECVPE c"execvpe",
    FEXECVE c"fexecve",
    EXECVEAT c"execveat",
    SPAWN c"posix_spawn",
    SPAWNP c"posix_spawnp",
    PIDFD_SPAWN c"pidfd_spawn",
    PIDFD_SPAWNP c"pidfd_spawnp",
}

static ADDRESSES: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Call the C library's own function. Those with fewer arguments ignore the others.
#[inline(always)]
pub(crate) fn call(function: Real, a: usize, b: usize, c: usize, d: usize) -> i32 {
    // SAFETY: the discriminant of a function is its place.
    let address = unsafe { ADDRESSES.get_unchecked(function as usize) }.load(Ordering::Relaxed);
    let address = if address == 0 { looked_up(function) } else { address };
    // SAFETY: the address of the function that the program has called, which gets the arguments that the program gave.
    let function =
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize, usize, usize) -> i32>(address) };
    // SAFETY: as above.
    unsafe { function(a, b, c, d) }
}

/// The same of functions with six arguments.
pub(crate) fn call_with_six(function: Real, [a, b, c, d, e, f]: [usize; 6]) -> i32 {
    let address = looked_up(function);
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> i32;
    // SAFETY: as above.
    unsafe { core::mem::transmute::<usize, Function>(address)(a, b, c, d, e, f) }
}

/// Whether the C library has it.
pub(crate) fn has(function: Real) -> bool {
    looked_up(function) != missing as *const () as usize
}

#[cold]
#[inline(never)]
fn looked_up(function: Real) -> usize {
    let is_known = ADDRESSES.get(function as usize).is_some_and(|address| address.load(Ordering::Relaxed) != 0);
    if !is_known {
        look_up();
    }
    match ADDRESSES.get(function as usize).map(|address| address.load(Ordering::Relaxed)) {
        Some(address) if address != 0 => address,
        _ => missing as *const () as usize,
    }
}

/// Look all of them up. A thread that does the same meanwhile finds the same addresses.
pub(crate) fn look_up() {
    symbols::all_next(NAMES, &ADDRESSES);
}

extern "C" fn missing(_: usize, _: usize, _: usize, _: usize) -> i32 {
    EINVAL
}

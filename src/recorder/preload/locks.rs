//! The functions of the C library that come here first: mutex, rwlock, spinlock, semaphore, condition.
//!
//! In: the program's calls. Out: the C library's answers, unchanged, and what they mean to [`held`](crate::held). A
//! lock is written down after it was taken, and struck out before it is given back: so nobody else is ever seen to have
//! it as well.

use crate::arch::{begin_thread, interposed};
use crate::held::{
    ALONE, Caller, MUTEX, READING, RWLOCK, SEMAPHORE, SPINLOCK, THREAD_END, TRIES, WAITS, end_of, gives,
    made_or_joined, renewed, took,
};
use crate::orders;
use crate::provoke;
use crate::python::{self, Part};
use crate::real::{Real, call};

/// The owner before died with it: the caller has it now.
const EOWNERDEAD: i32 = 130;

interposed! {
    pthread_mutex_lock => mutex_lock;
    pthread_mutex_trylock => mutex_trylock;
    pthread_mutex_timedlock => mutex_timedlock;
    pthread_mutex_clocklock => mutex_clocklock;
    pthread_mutex_unlock => mutex_unlock;
    pthread_mutex_init => mutex_init;
    pthread_mutex_destroy => mutex_destroy;
    pthread_cond_init => condition_init;
    pthread_cond_wait => cond_wait;
    pthread_cond_timedwait => cond_timedwait;
    pthread_cond_clockwait => cond_clockwait;
    pthread_cond_signal => cond_signal;
    pthread_cond_broadcast => cond_broadcast;
    pthread_rwlock_rdlock => rwlock_rdlock;
    pthread_rwlock_wrlock => rwlock_wrlock;
    pthread_rwlock_tryrdlock => rwlock_tryrdlock;
    pthread_rwlock_trywrlock => rwlock_trywrlock;
    pthread_rwlock_timedrdlock => rwlock_timedrdlock;
    pthread_rwlock_timedwrlock => rwlock_timedwrlock;
    pthread_rwlock_clockrdlock => rwlock_clockrdlock;
    pthread_rwlock_clockwrlock => rwlock_clockwrlock;
    pthread_rwlock_unlock => rwlock_unlock;
    pthread_rwlock_init => rwlock_init;
    pthread_rwlock_destroy => rwlock_destroy;
    pthread_spin_lock => spin_lock;
    pthread_spin_trylock => spin_trylock;
    pthread_spin_unlock => spin_unlock;
    pthread_spin_init => spin_init;
    sem_wait => semaphore_wait;
    sem_trywait => semaphore_trywait;
    sem_timedwait => semaphore_timedwait;
    sem_clockwait => semaphore_clockwait;
    sem_post => semaphore_post;
    sem_init => semaphore_init;
    sem_destroy => semaphore_destroy;
    pthread_create => thread_create;
    pthread_join => thread_join;
}

/// Functions that take their first argument.
macro_rules! taking {
    ($($name:ident $real:ident $kind:ident $mode:ident $waits:ident;)*) => { $(
        extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, at: usize, stack: usize) -> i32 {
            if $waits {
                provoke::before(a, $kind, $mode, at);
            }
            let result = call(Real::$real, a, b, c, d);
            if result == 0 || $kind == MUTEX && result == EOWNERDEAD {
                took(a, $kind, $mode, $waits, Caller { at, stack });
            }
            result
        }
    )* };
}

taking! {
    mutex_trylock MUTEX_TRYLOCK MUTEX ALONE TRIES;
    mutex_timedlock MUTEX_TIMEDLOCK MUTEX ALONE TRIES;
    mutex_clocklock MUTEX_CLOCKLOCK MUTEX ALONE TRIES;
    rwlock_rdlock RWLOCK_RDLOCK RWLOCK READING WAITS;
    rwlock_wrlock RWLOCK_WRLOCK RWLOCK ALONE WAITS;
    rwlock_tryrdlock RWLOCK_TRYRDLOCK RWLOCK READING TRIES;
    rwlock_trywrlock RWLOCK_TRYWRLOCK RWLOCK ALONE TRIES;
    rwlock_timedrdlock RWLOCK_TIMEDRDLOCK RWLOCK READING TRIES;
    rwlock_timedwrlock RWLOCK_TIMEDWRLOCK RWLOCK ALONE TRIES;
    rwlock_clockrdlock RWLOCK_CLOCKRDLOCK RWLOCK READING TRIES;
    rwlock_clockwrlock RWLOCK_CLOCKWRLOCK RWLOCK ALONE TRIES;
    spin_lock SPIN_LOCK SPINLOCK ALONE WAITS;
    spin_trylock SPIN_TRYLOCK SPINLOCK ALONE TRIES;
    semaphore_wait SEM_WAIT SEMAPHORE ALONE WAITS;
    semaphore_trywait SEM_TRYWAIT SEMAPHORE ALONE TRIES;
    semaphore_timedwait SEM_TIMEDWAIT SEMAPHORE ALONE TRIES;
    semaphore_clockwait SEM_CLOCKWAIT SEMAPHORE ALONE TRIES;
}

/// Functions that give their first argument back.
macro_rules! giving {
    ($($name:ident $real:ident $kind:ident;)*) => { $(
        extern "C" fn $name(a: usize, b: usize, c: usize, d: usize) -> i32 {
            gives(a, $kind);
            call(Real::$real, a, b, c, d)
        }
    )* };
}

giving! {
    rwlock_unlock RWLOCK_UNLOCK RWLOCK;
    spin_unlock SPIN_UNLOCK SPINLOCK;
    semaphore_post SEM_POST SEMAPHORE;
}

/// Functions after which another lock is at the address.
macro_rules! renewing {
    ($($name:ident $real:ident;)*) => { $(
        extern "C" fn $name(a: usize, b: usize, c: usize, d: usize) -> i32 {
            renewed(a);
            call(Real::$real, a, b, c, d)
        }
    )* };
}

renewing! {
    mutex_destroy MUTEX_DESTROY;
    rwlock_init RWLOCK_INIT;
    rwlock_destroy RWLOCK_DESTROY;
    spin_init SPIN_INIT;
    semaphore_init SEM_INIT;
    semaphore_destroy SEM_DESTROY;
}

pub(crate) extern "C" fn mutex_lock(a: usize, b: usize, c: usize, d: usize, at: usize, stack: usize) -> i32 {
    provoke::before_mutex(a, ALONE, at);
    let result = call(Real::MUTEX_LOCK, a, b, c, d);
    if (result == 0 || result == EOWNERDEAD) && python::part_of_gil(a) == Part::None {
        took(a, MUTEX, ALONE, WAITS, Caller { at, stack });
    }
    result
}

pub(crate) extern "C" fn mutex_unlock(a: usize, b: usize, c: usize, d: usize, at: usize, stack: usize) -> i32 {
    match python::part_of_gil(a) {
        Part::None => gives(a, MUTEX),
        Part::Mutex => python::mutex_gives(a, Caller { at, stack }),
        Part::Switch => {}
    }
    let result = call(Real::MUTEX_UNLOCK, a, b, c, d);
    python::mutex_given(a);
    result
}

extern "C" fn mutex_init(a: usize, b: usize, c: usize, d: usize) -> i32 {
    renewed(a);
    python::mutex_made(a);
    call(Real::MUTEX_INIT, a, b, c, d)
}

extern "C" fn condition_init(a: usize, b: usize, c: usize, d: usize) -> i32 {
    let result = call(Real::COND_INIT, a, b, c, d);
    python::condition_made(a);
    result
}

/// Functions that give their second argument back for as long as they wait. The C library takes it again by a way of
/// its own.
macro_rules! waiting {
    ($($name:ident $real:ident $waits:ident;)*) => { $(
        extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, at: usize, stack: usize) -> i32 {
            if python::part_of_gil(b) != Part::None {
                return call(Real::$real, a, b, c, d);
            }
            if $waits && orders::has_ends() {
                orders::waits_for_wake_up(a, b);
            }
            gives(b, MUTEX);
            let result = call(Real::$real, a, b, c, d);
            took(b, MUTEX, ALONE, WAITS, Caller { at, stack });
            result
        }
    )* };
}

waiting! {
    cond_wait COND_WAIT WAITS;
    cond_timedwait COND_TIMEDWAIT TRIES;
    cond_clockwait COND_CLOCKWAIT TRIES;
}

/// Functions that wake the waiters of their first argument.
macro_rules! waking {
    ($($name:ident $real:ident;)*) => { $(
        extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, at: usize) -> i32 {
            let result = call(Real::$real, a, b, c, d);
            if orders::has_ends() {
                orders::wakes(a, at as u64, 0);
                provoke::woken(at as u64, 0);
            }
            result
        }
    )* };
}

waking! {
    cond_signal COND_SIGNAL;
    cond_broadcast COND_BROADCAST;
}

/// The new thread gets a number, and goes on with what the program gave.
pub(crate) extern "C" fn thread_create(a: usize, b: usize, function: usize, argument: usize) -> i32 {
    let Some((start, number)) = orders::starting(function, argument) else {
        return call(Real::THREAD_CREATE, a, b, function, argument);
    };
    made_or_joined(|row| orders::created(row, number));
    let result = call(Real::THREAD_CREATE, a, b, begin_thread as *const () as usize, (&raw const *start) as usize);
    if result != 0 {
        orders::not_started(start);
    }
    result
}

pub(crate) extern "C" fn thread_join(a: usize, b: usize, c: usize, d: usize, at: usize, stack: usize) -> i32 {
    let end = end_of(a);
    if orders::has_ends() {
        provoke::before(end, THREAD_END, ALONE, at);
    }
    let result = call(Real::THREAD_JOIN, a, b, c, d);
    if result == 0 {
        if orders::has_ends() {
            took(end, THREAD_END, ALONE, WAITS, Caller { at, stack });
            gives(end, THREAD_END);
        }
        made_or_joined(|row| orders::joined(row, a));
    }
    result
}

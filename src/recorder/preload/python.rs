//! CPython's locks: `threading.Lock` and `threading.RLock`, whose methods are replaced in the tables of their types.
//!
//! In: the four calls by which an interpreter makes its GIL, which tell every CPython from 3.7 on, also static and
//! stripped ones. Out: a lock is written down when a method that takes it answers True, with the frames of Python that
//! took it where the version's layout is known. No Python code runs for that, and none is changed: a call that the
//! interpreter has specialised reads the table as well. Builds without a GIL have other objects, and are left alone.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::arch;
use crate::held::{self, ALONE, Caller, GIL, PYTHON_LOCK, PYTHON_RLOCK, TRIES, WAITS, gives, renewed, took, took_at};
use crate::orders;
use crate::provoke;
use crate::sites;
use crate::symbols::any;
use crate::table::table;

/// `struct _gil_runtime_state`: its mutex, and from there the mutex of a switch and the two conditions, in the order in
/// which `create_gil` makes them [CPython 3.7 to 3.15, DWARF].
const SWITCH_MUTEX: usize = 88;
const CONDITION_BELOW: usize = 48;
const SWITCH_CONDITION: usize = 40;

/// The mutex of the first GIL, until the methods are replaced.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// The mutexes of all GILs: interpreters may have one each. The word `locked` lies before the mutex.
static GILS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
const LOCKED_BELOW: usize = 64;
static IS_ASKED: AtomicU32 = AtomicU32::new(0);
static TRUE: AtomicUsize = AtomicUsize::new(0);
static MINUS_ONE: AtomicUsize = AtomicUsize::new(0);
/// `PyEval_SaveThread` and `PyEval_RestoreThread`.
static SAVE: AtomicUsize = AtomicUsize::new(0);
static RESTORE: AtomicUsize = AtomicUsize::new(0);

/// A mutex was made.
pub(crate) fn mutex_made(mutex: usize) {
    // SAFETY: the storage of this thread.
    let own = unsafe { &mut *arch::thread() };
    if own.made_count == 1 && mutex == own.made.wrapping_add(SWITCH_MUTEX) {
        own.made_count = 2;
    } else {
        own.made = mutex;
        own.made_count = 1;
    }
}

/// A condition was made.
pub(crate) fn condition_made(condition: usize) {
    // SAFETY: the storage of this thread.
    let own = unsafe { &mut *arch::thread() };
    if own.made_count == 2 && condition == own.made.wrapping_sub(CONDITION_BELOW) {
        own.made_count = 3;
    } else {
        if own.made_count == 3 && condition == own.made.wrapping_add(SWITCH_CONDITION) {
            found(own.made);
        }
        own.made_count = 0;
    }
}

#[cold]
fn found(gil: usize) {
    let free = GILS.iter().find(|one| matches!(one.load(Ordering::Relaxed), known if known == 0 || known == gil));
    if let Some(one) = free {
        one.store(gil, Ordering::Relaxed);
    }
    // Only builds without a GIL have this function.
    if any(c"_Py_DecRefShared") != 0 || IS_ASKED.load(Ordering::Relaxed) != 0 {
        return;
    }
    sites::begin();
    SAVE.store(any(c"PyEval_SaveThread"), Ordering::Relaxed);
    RESTORE.store(any(c"PyEval_RestoreThread"), Ordering::Relaxed);
    FIRST.store(gil, Ordering::Relaxed);
}

/// A mutex's part in a GIL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Nothing: it is the program's.
    None,
    /// The interpreter's own, which shows the holder of the GIL ([`mutex_gives`]).
    Mutex,
    /// The one by which a thread waits that another has taken the GIL: nothing is taken under it.
    Switch,
}

/// Which part of a GIL a mutex is. Neither is written down: the GIL itself is.
#[inline(always)]
pub(crate) fn part_of_gil(mutex: usize) -> Part {
    let [first, others @ ..] = &GILS;
    let known = first.load(Ordering::Relaxed);
    match mutex.wrapping_sub(known) {
        _ if known == 0 => Part::None,
        0 => Part::Mutex,
        SWITCH_MUTEX => Part::Switch,
        _ => part_of_others(others, mutex),
    }
}

/// Interpreters beside the first may have a GIL of their own.
#[inline(always)]
fn part_of_others(gils: &[AtomicUsize], mutex: usize) -> Part {
    for gil in gils {
        match gil.load(Ordering::Relaxed) {
            0 => break,
            known if known == mutex => return Part::Mutex,
            known if known.wrapping_add(SWITCH_MUTEX) == mutex => return Part::Switch,
            _ => {}
        }
    }
    Part::None
}

/// The mutex of a GIL is about to be given back: by a thread that has taken the GIL or given it, which the word says
/// that the mutex protects.
pub(crate) fn mutex_gives(mutex: usize, caller: Caller) {
    // SAFETY: `struct _gil_runtime_state.locked`, of the same structure.
    let is_locked = unsafe { *(mutex.wrapping_sub(LOCKED_BELOW) as *const u32) } == 1;
    let gil = mutex | 1;
    match is_locked {
        true => took(gil, GIL, ALONE, WAITS, caller),
        false => gives(gil, GIL),
    }
}

/// A mutex was given back: the GIL's, once the interpreter is there.
#[inline(always)]
pub(crate) fn mutex_given(mutex: usize) {
    if mutex == FIRST.load(Ordering::Relaxed) {
        ask();
    }
}

/// Have the methods replaced by the thread that runs Python, at a place where it may.
#[cold]
#[inline(never)]
fn ask() {
    let (is_there, later) = (any(c"Py_IsInitialized"), any(c"Py_AddPendingCall"));
    if is_there == 0 || later == 0 {
        return FIRST.store(0, Ordering::Relaxed);
    }
    // SAFETY: int Py_IsInitialized(void), int Py_AddPendingCall(int (*)(void *), void *): both may be called at any
    // time.
    unsafe {
        if core::mem::transmute::<usize, extern "C" fn() -> c_int>(is_there)() == 0 {
            return;
        }
        if IS_ASKED.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            FIRST.store(0, Ordering::Relaxed);
            type Later = extern "C" fn(extern "C" fn(usize) -> c_int, usize) -> c_int;
            core::mem::transmute::<usize, Later>(later)(replace, 0);
        }
    }
}

/// `PyMethodDef`.
#[repr(C)]
struct Method {
    name: *const c_char,
    function: usize,
    flags: c_int,
    documentation: *const c_char,
}

/// `PyMethodDescrObject.d_method` and `PyTypeObject.tp_dealloc` [CPython 3.8 to 3.15, builds with a GIL].
const METHOD: usize = 40;
const DEALLOC: usize = 48;

type Call = extern "C" fn(usize, usize, usize, usize) -> usize;

/// The functions that were there, by their places in [`METHODS`] and [`TYPES`].
static METHOD_FUNCTIONS: [AtomicUsize; METHODS.len()] = [const { AtomicUsize::new(0) }; METHODS.len()];
static METHOD_FLAGS: [AtomicU32; METHODS.len()] = [const { AtomicU32::new(0) }; METHODS.len()];
static AS_DOUBLE: AtomicUsize = AtomicUsize::new(0);
static COMPARE: AtomicUsize = AtomicUsize::new(0);
static GET_ITEM: AtomicUsize = AtomicUsize::new(0);
static HAS_HASHED_TUPLES: AtomicUsize = AtomicUsize::new(0);
/// What looks up the name of a thread: `PyObject *PyImport_GetModuleDict(void)`, `PyObject *PyDict_GetItem(PyObject *, PyObject
/// *)`, `PyObject *PyLong_FromUnsignedLong(unsigned long)`, `PyObject *PyObject_GenericGetAttr(PyObject *, PyObject *)`,
/// `void PyErr_Clear(void)`, `PyObject *PyUnicode_FromString(const char *)`, `void Py_DecRef(PyObject *)`; and the class
/// `str`.
static LOOKS_UP: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
const LOOKS_UP_BY: [&CStr; 8] = [
    c"PyImport_GetModuleDict",
    c"PyDict_GetItem",
    c"PyLong_FromUnsignedLong",
    c"PyObject_GenericGetAttr",
    c"PyErr_Clear",
    c"PyUnicode_FromString",
    c"Py_DecRef",
    c"PyUnicode_Type",
];
/// Bytes of a thread's name.
const LONGEST_THREAD: usize = 64;
static TYPE_FUNCTIONS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

const TYPES: [(&CStr, extern "C" fn(usize)); 2] = [(c"LockType", dealloc::<0>), (c"RLock", dealloc::<1>)];

const METHODS: [(usize, &CStr, Call); 14] = [
    (0, c"acquire", takes::<0, PYTHON_LOCK>),
    (0, c"acquire_lock", takes::<1, PYTHON_LOCK>),
    (0, c"__enter__", takes::<2, PYTHON_LOCK>),
    (0, c"release", gives_back::<3, PYTHON_LOCK>),
    (0, c"release_lock", gives_back::<4, PYTHON_LOCK>),
    (0, c"__exit__", gives_back::<5, PYTHON_LOCK>),
    (0, c"_at_fork_reinit", anew::<6>),
    (1, c"acquire", takes::<7, PYTHON_RLOCK>),
    (1, c"__enter__", takes::<8, PYTHON_RLOCK>),
    (1, c"release", gives_back::<9, PYTHON_RLOCK>),
    (1, c"__exit__", gives_back::<10, PYTHON_RLOCK>),
    (1, c"_at_fork_reinit", anew::<11>),
    (1, c"_release_save", saves::<12>),
    (1, c"_acquire_restore", restores::<13>),
];

fn original(place: usize) -> Call {
    let address = METHOD_FUNCTIONS.get(place).map_or(0, |one| one.load(Ordering::Relaxed));
    // SAFETY: the function that stood in the table before this one, which is called with its arguments, whatever they
    // are.
    unsafe { core::mem::transmute::<usize, Call>(address) }
}

/// While a method runs, the semaphore within is not what is taken.
fn within(place: usize, [a, b, c, d]: [usize; 4]) -> usize {
    // SAFETY: the storage of this thread.
    let own = unsafe { &mut *arch::thread() };
    let before = core::mem::replace(&mut own.inside_method, 1);
    let result = original(place)(a, b, c, d);
    own.inside_method = before;
    result
}

extern "C" fn takes<const PLACE: usize, const KIND: u8>(lock: usize, b: usize, c: usize, d: usize) -> usize {
    let site = match table() {
        Some(table) if provoke::is_armed() && is_plain(PLACE, b, c, d) => {
            provoke::before_python(table, lock, KIND, ALONE)
        }
        _ => 0,
    };
    if KIND == PYTHON_LOCK && orders::has_ends() && is_plain(PLACE, b, c, d) {
        orders::waits_for_own(lock);
    }
    let result = within(PLACE, [lock, b, c, d]);
    if result == TRUE.load(Ordering::Relaxed) {
        took_at(lock, KIND, ALONE, waits(PLACE, b, c, d), Caller { at: 0, stack: 0 }, site);
        orders::python_name_told();
    }
    result
}

/// Show the name that the calling thread has in the module `threading`; whether there is one. The caller is a method that
/// has succeeded, with the GIL. No Python code runs for it: attributes are looked up as `object` does.
pub(crate) fn thread_name(show: &mut dyn FnMut(&[u8])) -> bool {
    let functions = LOOKS_UP.each_ref().map(|one| one.load(Ordering::Relaxed));
    if functions.contains(&0) {
        return false;
    }
    let [modules, get, key, attribute, clear, text, release, kind] = functions;
    // SAFETY: the functions of `LOOKS_UP`, with the GIL and no exception set. The module of a name and the thread are
    // borrowed. A `str` lives as long as its reference.
    unsafe {
        let get = core::mem::transmute::<usize, extern "C" fn(usize, usize) -> usize>(get);
        let attribute = core::mem::transmute::<usize, extern "C" fn(usize, usize) -> usize>(attribute);
        let text = core::mem::transmute::<usize, extern "C" fn(*const c_char) -> usize>(text);
        let release = core::mem::transmute::<usize, extern "C" fn(usize)>(release);
        let all = core::mem::transmute::<usize, extern "C" fn() -> usize>(modules)();
        let Some(module) = value_of(all, c"threading") else { return false };
        let named = |object: usize, name: &CStr| {
            let name = text(name.as_ptr());
            let found = if name == 0 { 0 } else { attribute(object, name) };
            release(name);
            found
        };
        let (mut is_told, threads) = (false, named(module, c"_active"));
        let number = core::mem::transmute::<usize, extern "C" fn(usize) -> usize>(key)(arch::thread_pointer());
        if threads != 0 && number != 0 {
            let thread = get(threads, number);
            let name = if thread == 0 { 0 } else { named(thread, c"_name") };
            // `PyObject.ob_type`: the text may be of a class of the program's.
            if name != 0
                && *((name + 8) as *const usize) == kind
                && let Some(letters) = sites::letters(name)
            {
                show(letters.get(..letters.len().min(LONGEST_THREAD)).unwrap_or_default());
                is_told = true;
            }
            release(name);
        }
        release(number);
        release(threads);
        core::mem::transmute::<usize, extern "C" fn()>(clear)();
        is_told
    }
}

/// Whether a call that was not made yet waits without end, as far as its arguments say so without being converted: none,
/// True, or True and -1.
fn is_plain(place: usize, b: usize, c: usize, d: usize) -> bool {
    const NO_ARGUMENTS: c_int = 4;
    const FAST: c_int = 0x80;
    let flags = METHOD_FLAGS.get(place).map_or(0, |one| one.load(Ordering::Relaxed)) as c_int;
    // SAFETY: the arguments of a call of a method with these flags, as of `waits`.
    let given: &[usize] = unsafe {
        match flags {
            flags if flags & NO_ARGUMENTS != 0 => &[],
            // Names of arguments come last.
            flags if flags & FAST != 0 && flags & 2 != 0 && d != 0 => return false,
            flags if flags & FAST != 0 && b == 0 => &[],
            flags if flags & FAST != 0 => core::slice::from_raw_parts(b as *const usize, c),
            _ if b == 0 || flags & 2 != 0 && c != 0 => return false,
            _ => items(b),
        }
    };
    let (yes, forever) = (TRUE.load(Ordering::Relaxed), MINUS_ONE.load(Ordering::Relaxed));
    match given {
        [] => true,
        [blocking] => *blocking == yes,
        [blocking, timeout] => *blocking == yes && *timeout == forever,
        _ => false,
    }
}

/// Give the GIL back, which the calling thread has, as the interpreter does before it waits; what [`take_gil`] needs.
pub(crate) fn give_gil() -> Option<usize> {
    let (save, restore) = (SAVE.load(Ordering::Relaxed), RESTORE.load(Ordering::Relaxed));
    if save == 0 || restore == 0 || !sites::has_state() {
        return None;
    }
    // SAFETY: PyThreadState *PyEval_SaveThread(void), with the GIL.
    Some(unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(save)() })
}

/// Take it again.
pub(crate) fn take_gil(state: usize) {
    let restore = RESTORE.load(Ordering::Relaxed);
    // SAFETY: void PyEval_RestoreThread(PyThreadState *), with what PyEval_SaveThread gave.
    unsafe { core::mem::transmute::<usize, extern "C" fn(usize)>(restore)(state) };
}

/// Whether a call of `acquire` waits without end, by its arguments, which may all be named. `blocking` is true, or not
/// given, and `timeout` is -1, or not given.
fn waits(place: usize, b: usize, c: usize, d: usize) -> bool {
    const KEYWORDS: c_int = 2;
    const NO_ARGUMENTS: c_int = 4;
    const FAST: c_int = 0x80;
    let flags = METHOD_FLAGS.get(place).map_or(0, |one| one.load(Ordering::Relaxed)) as c_int;
    let has_names = flags & KEYWORDS != 0;
    // SAFETY: the arguments of a call of a method with these flags: an array and how many, with a tuple of the names of
    // those that follow in it, or null; or a tuple, and a dictionary or null. They were good enough for the method,
    // which has been called.
    let (blocking, timeout) = unsafe {
        match flags {
            flags if flags & NO_ARGUMENTS != 0 => return WAITS,
            flags if flags & FAST != 0 => {
                let given = if b == 0 { &[] } else { core::slice::from_raw_parts(b as *const usize, c) };
                let (mut blocking, mut timeout) = (given.first().copied(), given.get(1).copied());
                let names = if has_names && d != 0 { items(d) } else { &[] };
                for (position, name) in names.iter().enumerate() {
                    let value = *((b as *const usize).add(c + position));
                    match is_called(*name, c"timeout") {
                        true => timeout = Some(value),
                        false => blocking = Some(value),
                    }
                }
                (blocking, timeout)
            }
            _ if b == 0 => return TRIES,
            _ => {
                let given = items(b);
                let named = |name: &CStr| if has_names && c != 0 { value_of(c, name) } else { None };
                let blocking = given.first().copied().or_else(|| named(c"blocking"));
                (blocking, given.get(1).copied().or_else(|| named(c"timeout")))
            }
        }
    };
    let is_blocking = blocking.is_none_or(|value| value == TRUE.load(Ordering::Relaxed));
    // SAFETY: what the method has taken for a number.
    is_blocking && timeout.is_none_or(|value| unsafe { is_minus_one(value) })
}

/// The items of a tuple (PyTupleObject: its length at 16, from there on at 24; 3.14 has a hash between).
unsafe fn items(tuple: usize) -> &'static [usize] {
    let first = if HAS_HASHED_TUPLES.load(Ordering::Relaxed) != 0 { 32 } else { 24 };
    // SAFETY: a tuple that lives as long as the call.
    unsafe { core::slice::from_raw_parts((tuple + first) as *const usize, *((tuple + 16) as *const usize)) }
}

/// Whether a text of Python's is this name; there are two.
unsafe fn is_called(text: usize, name: &CStr) -> bool {
    type Compare = extern "C" fn(usize, *const c_char) -> c_int;
    let compare = COMPARE.load(Ordering::Relaxed);
    // SAFETY: int PyUnicode_CompareWithASCIIString(PyObject *, const char *), with the GIL.
    compare != 0 && unsafe { core::mem::transmute::<usize, Compare>(compare)(text, name.as_ptr()) } == 0
}

/// The value of a dictionary under a name.
unsafe fn value_of(dictionary: usize, name: &CStr) -> Option<usize> {
    type Get = extern "C" fn(usize, *const c_char) -> usize;
    let get = GET_ITEM.load(Ordering::Relaxed);
    if get == 0 {
        return None;
    }
    // SAFETY: PyObject *PyDict_GetItemString(PyObject *, const char *), with the GIL: borrowed, or null.
    let value = unsafe { core::mem::transmute::<usize, Get>(get)(dictionary, name.as_ptr()) };
    (value != 0).then_some(value)
}

/// Whether a number that the method has taken is -1.
unsafe fn is_minus_one(number: usize) -> bool {
    let convert = AS_DOUBLE.load(Ordering::Relaxed);
    // SAFETY: double PyFloat_AsDouble(PyObject *), with the GIL, of a number that the method converted just now.
    convert != 0 && unsafe { core::mem::transmute::<usize, extern "C" fn(usize) -> f64>(convert)(number) } == -1.0
}

extern "C" fn gives_back<const PLACE: usize, const KIND: u8>(lock: usize, b: usize, c: usize, d: usize) -> usize {
    gives(lock, KIND);
    let result = within(PLACE, [lock, b, c, d]);
    provoke::given();
    result
}

/// `_at_fork_reinit`: nobody has it any more.
extern "C" fn anew<const PLACE: usize>(lock: usize, b: usize, c: usize, d: usize) -> usize {
    renewed(lock);
    within(PLACE, [lock, b, c, d])
}

/// `RLock._release_save`: given back to wait for a condition, however often it was taken.
extern "C" fn saves<const PLACE: usize>(lock: usize, b: usize, c: usize, d: usize) -> usize {
    let count = held::gives_all(lock);
    // SAFETY: the storage of this thread.
    let own = unsafe { &mut *arch::thread() };
    (own.given_back, own.given_back_count) = (lock, count);
    within(PLACE, [lock, b, c, d])
}

/// `RLock._acquire_restore`: taken again as often.
extern "C" fn restores<const PLACE: usize>(lock: usize, b: usize, c: usize, d: usize) -> usize {
    let result = within(PLACE, [lock, b, c, d]);
    if result != 0 {
        // SAFETY: the storage of this thread.
        let own = unsafe { &*arch::thread() };
        let count = if own.given_back == lock { own.given_back_count.max(1) } else { 1 };
        for _ in 0..count.min(0xffff) {
            took(lock, PYTHON_RLOCK, ALONE, WAITS, Caller { at: 0, stack: 0 });
        }
    }
    result
}

extern "C" fn dealloc<const PLACE: usize>(lock: usize) {
    renewed(lock);
    let address = TYPE_FUNCTIONS.get(PLACE).map_or(0, |one| one.load(Ordering::Relaxed));
    // SAFETY: the function that stood in the type before.
    unsafe { core::mem::transmute::<usize, extern "C" fn(usize)>(address)(lock) }
}

/// Replace the methods. A pending call: the interpreter makes it where any Python code could run.
extern "C" fn replace(_: usize) -> c_int {
    let (import, attribute) = (any(c"PyImport_ImportModule"), any(c"PyObject_GetAttrString"));
    let (clear, yes) = (any(c"PyErr_Clear"), any(c"_Py_TrueStruct"));
    if import == 0 || attribute == 0 || clear == 0 || yes == 0 {
        return 0;
    }
    TRUE.store(yes, Ordering::Relaxed);
    AS_DOUBLE.store(any(c"PyFloat_AsDouble"), Ordering::Relaxed);
    COMPARE.store(any(c"PyUnicode_CompareWithASCIIString"), Ordering::Relaxed);
    GET_ITEM.store(any(c"PyDict_GetItemString"), Ordering::Relaxed);
    LOOKS_UP.iter().zip(LOOKS_UP_BY).for_each(|(one, name)| one.store(any(name), Ordering::Relaxed));
    HAS_HASHED_TUPLES.store(usize::from(sites::minor() >= 14), Ordering::Relaxed);
    // SAFETY: PyImport_ImportModule(const char *), PyObject_GetAttrString(PyObject *, const char *), PyErr_Clear(void),
    // called with the GIL. Their references are kept: types of the interpreter's own live as long as it does. The code
    // writes only words of the types' tables, each checked by the name beside it.
    unsafe {
        let import = core::mem::transmute::<usize, extern "C" fn(*const c_char) -> usize>(import);
        let attribute = core::mem::transmute::<usize, extern "C" fn(usize, *const c_char) -> usize>(attribute);
        let clear = core::mem::transmute::<usize, extern "C" fn()>(clear);
        let from_long = any(c"PyLong_FromLong");
        if from_long != 0 {
            // Small numbers are one object each.
            let from_long = core::mem::transmute::<usize, extern "C" fn(core::ffi::c_long) -> usize>(from_long);
            MINUS_ONE.store(from_long(-1), Ordering::Relaxed);
        }
        let module = import(c"_thread".as_ptr());
        let mut types = [0usize; 2];
        if module != 0 {
            for (kind, (name, _)) in types.iter_mut().zip(TYPES) {
                *kind = attribute(module, name.as_ptr());
            }
        }
        for (place, (kind, name, function)) in METHODS.into_iter().enumerate() {
            let Some(kind) = types.get(kind).copied().filter(|kind| *kind != 0) else { continue };
            let descriptor = attribute(kind, name.as_ptr());
            if descriptor == 0 {
                clear();
                continue;
            }
            let method = *((descriptor + METHOD) as *const *mut Method);
            if method.is_null() || (*method).name.is_null() || CStr::from_ptr((*method).name) != name {
                continue;
            }
            if let Some(one) = METHOD_FUNCTIONS.get(place) {
                one.store((*method).function, Ordering::Release);
                if let Some(flags) = METHOD_FLAGS.get(place) {
                    flags.store((*method).flags as u32, Ordering::Relaxed);
                }
                (*method).function = function as usize;
            }
        }
        for ((kind, (_, function)), one) in types.into_iter().zip(TYPES).zip(&TYPE_FUNCTIONS) {
            if kind != 0 {
                let slot = (kind + DEALLOC) as *mut usize;
                one.store(*slot, Ordering::Release);
                *slot = function as usize;
            }
        }
        clear();
    }
    0
}

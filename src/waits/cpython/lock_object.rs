//! The object of CPython behind a futex: a lock, a recursive lock, a queue, the handle of a thread.
//!
//! In: the futex of a thread that runs Python, its innermost frame. Out: [`LockObject`]. There are two forms. Their
//! structure distinguishes them, never the version (threading.Lock changed from one to the other between 3.13.0 and
//! 3.13.1). The first is a semaphore that the object points to, found among the objects that the frame has at hand. The
//! second is a byte in the object, which the waiter's entry in the parking lot names. It says nothing about holders.

use crate::image::{Addr, MemoryExt};
use crate::limits::cpython::NATIVE_FRAMES;
use crate::python::inspect::Inspector;
use crate::waits::blocked_on::BlockedOn;
use crate::waits::thread::{Process, ThreadView};

// `struct wait_entry` of Python/parking_lot.c on the waiter's stack, from 3.13 on [DWARF of 3.13.0, live on 3.13 to 3.15]:
// the futex is its semaphore at 16.
const ENTRY_ARGUMENT: u64 = 16;
const ENTRY_ADDRESS: u64 = 8;
const ENTRY_NODE: u64 = 32;
const ENTRY_IS_UNPARKING: u64 = 48;
/// `struct mutex_entry.handed_off` of Python/lock.c.
const HANDED_OFF: u64 = 8;
/// `ThreadHandle` of Modules/_threadmodule.c: ident, os_handle, thread_is_exiting [DWARF of 3.13.0, live on 3.13 to 3.15].
const HANDLE_IDENT: u64 = 32;
const HANDLE_OS: u64 = 40;
const HANDLE_EVENT: u64 = 57;
/// Without a GIL each object has a mutex in its head, after a word and two bytes (`PyObject.ob_mutex`).
const OBJECT_MUTEX: u64 = 10;
/// `buffered` of Modules/_io/bufferedio.c, behind the head: lock, and the ident of the thread that has it (3.8 to 3.14).
const BUFFERED_LOCK: [u64; 4] = [80, 88, 96, 104];

/// The kind of object that a thread of Python sleeps on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// `_thread.lock`.
    Lock,
    /// `_thread.RLock`.
    RecursiveLock,
    /// `_queue.SimpleQueue`.
    SimpleQueue,
    /// `_multiprocessing.SemLock`.
    SharedLock,
    /// The end of the thread with this ident.
    End(u64),
    /// The lock of a file object, which notes the ident of the thread that has it.
    File(u64),
    /// A lock of an object of another type (builds without a GIL), by its name.
    Other(String),
    /// A `PyMutex` that is in no object: of the interpreter, or of an extension in C.
    Mutex,
    /// An extension's own recursive lock, by the name of its type: Cython's FastRLock (h5py, lxml) is laid out as
    /// `_thread.RLock` was, with the ident of its owner behind the pointer to the semaphore.
    Recursive(String),
}

/// An object and how it was found.
#[derive(Debug, Clone)]
pub(super) struct LockObject {
    pub(super) what: What,
    pub(super) object: Addr,
    pub(super) evidence: Vec<String>,
    /// The waiter was given it already and has not run yet.
    pub(super) is_on_its_way: bool,
}

/// The object that `thread` sleeps on.
pub(super) fn find(
    process: &Process<'_>,
    inspector: &Inspector<'_>,
    thread: &ThreadView<'_>,
    below: &BlockedOn,
) -> Option<LockObject> {
    let word = below.futex?.word;
    parked(process, inspector, thread, word).or_else(|| {
        let (what, object, place) = with_semaphore(process, inspector, thread, word)?;
        let evidence = vec![format!("the semaphore {word} belongs to the {} at {object} ({place})", noun(&what))];
        Some(LockObject { what, object, evidence, is_on_its_way: false })
    })
}

/// Its name where the program has none for it.
pub(super) fn noun(what: &What) -> &str {
    match what {
        What::Lock => "Lock",
        What::RecursiveLock => "RLock",
        What::SimpleQueue => "SimpleQueue",
        What::SharedLock => "multiprocessing lock",
        What::End(_) => "thread handle",
        What::File(_) => "file object",
        What::Mutex => "PyMutex",
        What::Other(class) | What::Recursive(class) => class,
    }
}

/// The target of a parked thread's wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// The byte that it waits for to change.
    pub(super) address: Addr,
    /// It waits for a mutex: who waits for an event or for a pause parks without an argument.
    is_mutex: bool,
    /// It was woken, or given the lock, and has not run yet.
    pub(super) is_on_its_way: bool,
}

/// The entry in the parking lot of a thread that sleeps on `word`.
pub(super) fn entry(process: &Process<'_>, thread: &ThreadView<'_>, word: Addr) -> Option<Entry> {
    if process.context.python?.version < (3, 13, 0) || !thread.on_own_stack(word) {
        return None;
    }
    let memory = process.memory();
    let node = word + ENTRY_NODE;
    let next = memory.pointer(node).ok()?;
    // In a ring each one's next points back to it.
    if memory.pointer(next + 8).ok()? != node {
        return None;
    }
    let argument = memory.pointer(word - ENTRY_ARGUMENT).ok()?;
    let handed = !argument.is_null() && memory.i32(argument + HANDED_OFF).is_ok_and(|word| word & 1 == 1);
    let is_on_its_way = handed || memory.u8(word + ENTRY_IS_UNPARKING).is_ok_and(|byte| byte == 1);
    Some(Entry { address: memory.pointer(word - ENTRY_ADDRESS).ok()?, is_mutex: !argument.is_null(), is_on_its_way })
}

/// By the parking lot.
fn parked(process: &Process<'_>, inspector: &Inspector<'_>, thread: &ThreadView<'_>, word: Addr) -> Option<LockObject> {
    let Entry { address, is_mutex, is_on_its_way } = entry(process, thread, word)?;
    let entry = format!("its entry in the parking lot ({}) waits for {address}", word - ENTRY_ARGUMENT);
    let (what, object, evidence) = match at_address(process, inspector, address) {
        Some((what, object)) => {
            let evidence = format!("{entry}, in the {} at {object}", noun(&what));
            (what, object, vec![evidence])
        }
        None if is_mutex => (What::Mutex, address, vec![entry]),
        None => return None,
    };
    Some(LockObject { what, object, evidence, is_on_its_way })
}

/// The object with its byte at `address`.
fn at_address(process: &Process<'_>, inspector: &Inspector<'_>, address: Addr) -> Option<(What, Addr)> {
    let objects = inspector.objects();
    let object = address - objects.head();
    if let Some(what) = objects.class_name(object).as_deref().and_then(by_class) {
        return Some((what, object));
    }
    let memory = process.memory();
    let handle = address - HANDLE_EVENT;
    let ident = memory.u64(handle + HANDLE_IDENT).ok();
    if let Some(ident) = ident.filter(|ident| *ident != 0 && memory.u64(handle + HANDLE_OS) == Ok(*ident))
        && process.context.image.mapping(Addr(ident)).is_some()
    {
        return Some((What::End(ident), handle));
    }
    let object = address - OBJECT_MUTEX;
    let class = (objects.head() == 32).then(|| objects.class_name(object)).flatten()?;
    Some((What::Other(class.to_string()), object))
}

/// The mutex in the head of an object of a build without a GIL.
pub(super) fn mutex_of(object: Addr) -> Addr {
    object + OBJECT_MUTEX
}

fn by_class(class: &str) -> Option<What> {
    Some(match class {
        "_thread.lock" => What::Lock,
        "_thread.RLock" => What::RecursiveLock,
        "_queue.SimpleQueue" => What::SimpleQueue,
        "_multiprocessing.SemLock" => What::SharedLock,
        _ => return None,
    })
}

/// An object at hand whose first word behind the head points to the semaphore.
fn with_semaphore(
    process: &Process<'_>,
    inspector: &Inspector<'_>,
    thread: &ThreadView<'_>,
    word: Addr,
) -> Option<(What, Addr, String)> {
    let objects = inspector.objects();
    let is_it = |object: Addr| {
        let class = (objects.field(object, 0)? == word).then(|| objects.class_name(object))??;
        by_class(&class).or_else(|| {
            let owner = objects.field(object, 8)?.0;
            inspector.with_ident(owner).is_some().then_some(What::Recursive(class.to_string()))
        })
    };
    let is_file = |object: Addr| {
        let lock = BUFFERED_LOCK.into_iter().find(|offset| objects.field(object, *offset) == Some(word))?;
        let is_buffered = objects.class_name(object)?.starts_with("_io.Buffered");
        Some(What::File(is_buffered.then(|| objects.field(object, lock + 8))??.0))
    };
    let inner = inspector.stack(thread.image.tid).next()?;
    let frame = inspector.frame(inner)?;
    let mut at_hand: Vec<Addr> = Vec::new();
    for slot in frame.stack().into_iter().filter(|slot| !slot.is_null()) {
        at_hand.extend(objects.bound(slot).map(|bound| bound.object));
        at_hand.push(slot);
    }
    at_hand.extend(frame.variables().into_iter().map(|(_, value)| value));
    for object in &at_hand {
        if let Some(what) = is_it(*object).or_else(|| is_file(*object)) {
            return Some((what, *object, format!("a variable of {}", inner.function)));
        }
    }
    for object in &at_hand {
        for (_, value) in objects.attributes(*object).unwrap_or_default() {
            if let Some(what) = is_it(value).or_else(|| is_file(value)) {
                return Some((what, value, format!("an attribute of a variable of {}", inner.function)));
            }
        }
    }
    // Called by C, which keeps the object in its frames.
    let frames = &thread.thread?.frames;
    let eval = frames.iter().find(|frame| frame.python.is_some())?.native?.min(NATIVE_FRAMES);
    let end = thread.thread?.native.frames.get(eval)?.cfa?;
    let image = process.context.image;
    let words = thread.words(process).iter().filter(|(at, _)| *at < end).map(|(_, value)| *value);
    let registers = thread.registers(eval + 1).into_iter().map(|(_, _, value)| value);
    words.chain(registers).map(Addr).find_map(|value| {
        let is_object = value.0 & 7 == 0 && image.mapping(value).is_some_and(|mapping| mapping.write);
        let what = is_object.then(|| is_it(value).or_else(|| is_file(value))).flatten()?;
        Some((what, value, "in the frames of the C functions that wait".into()))
    })
}

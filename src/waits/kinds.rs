//! The facts about each kind of resource, once, for all of lockscope.
//!
//! In: nothing. Out: [`Kind`], a row of the table. Its name is a word of the JSON contract. Graph, standstill, verdict
//! and renderers read its properties and never compare names. A family of locks takes rows from here or has rows of its
//! own beside its decoder, and lists both ([`Registered::kinds`](super::family::Registered::kinds)). Nothing here
//! decodes or judges.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::label::{Called, Wanted};

/// The threads that can end a wait for a resource of some kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Giver {
    /// The thread that holds it, or is it.
    Holder,
    /// Any thread of the process: it has no owner, some thread must come and wake.
    AnyThread,
    /// Something outside of the process's threads, or nothing is known of it.
    Outside,
}

/// Whose thing it is: in whose terms it is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// Memory of native code: libc, C++, Rust.
    Native,
    /// A Python object, or a lock inside the interpreter.
    Python,
    /// A thing that an event loop waits for.
    EventLoop,
    /// The kernel, or who is behind it: other processes, files, people.
    Kernel,
    /// Work on a GPU.
    Gpu,
}

/// The subject of a wait for it, which selects the checks of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// A lock: one thread holds it and another waits for it.
    Lock,
    /// A lock that several may hold for reading.
    ReadWriteLock,
    /// Units that threads take and give back.
    Units,
    /// The dynamic loader's lock.
    LoaderLock,
    /// The lock of a module that is being imported.
    ImportLock,
    /// A lock on a file.
    FileLock,
    /// Code that runs once.
    Initialiser,
    /// The end of a thread.
    Thread,
    /// The end of a task of an event loop.
    Task,
    /// The interpreter's lock.
    Gil,
    /// The other threads of an interpreter that stops its world.
    StopTheWorld,
    /// Bytes or room for them, which may be on their way.
    Data,
    /// Work in a queue of the GPU.
    GpuWork,
    /// All work of a GPU.
    Gpu,
    /// To be woken, by a clock, a signal, a peer or another thread; or nothing is known.
    Event,
    /// Work that was handed to the threads of a library.
    PoolWork,
}

/// The relation of a holder to its resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It holds a lock.
    Holds,
    /// A process that has the other end: it is to read, or to write.
    OtherEnd,
    /// It is to write to it.
    Writes,
    /// A party of a barrier that has not come.
    Arrives,
    /// It took the last unit.
    TookUnit,
    /// It is to set or notify it.
    Sets,
    /// A thread of an interpreter whose world is to stop.
    Stops,
    /// A thread of the process that is waited for.
    BelongsTo,
    /// It is the thread that is waited for.
    Is,
    /// It runs a function that the GPU's queue waits for.
    RunsFor,
    /// It keeps an event loop: a thread by what it runs in it, a task by not having ended.
    Keeps,
    /// It does work that is waited for.
    Does,
    /// A rank that is to take part in what ranks do together.
    TakesPart,
}

/// A kind of resource.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name in the JSON contract, and its identity.
    pub name: &'static str,
    /// The term for an object without a name.
    pub noun: &'static str,
    /// In whose terms it is explained.
    pub world: World,
    /// The subject of a wait for it.
    pub topic: Topic,
    /// The threads that can end a wait for it.
    pub giver: Giver,
    /// A holder's relation to it.
    pub holding: Holding,
}

impl Kind {
    /// A row of the table: all properties have to be given.
    pub const fn new(
        name: &'static str,
        noun: &'static str,
        world: World,
        topic: Topic,
        giver: Giver,
        holding: Holding,
    ) -> Kind {
        Kind { name, noun, world, topic, giver, holding }
    }

    /// Whether one thread holds it and another waits for it.
    pub fn is_lock(&self) -> bool {
        use Topic::{FileLock, ImportLock, LoaderLock, Lock, ReadWriteLock, Units};
        matches!(self.topic, Lock | ReadWriteLock | Units | LoaderLock | ImportLock | FileLock)
    }

    /// Whether its waiters wait to be woken, not for a lock that another thread has.
    pub fn is_wake_up(&self) -> bool {
        self.giver == Giver::AnyThread && matches!(self.topic, Topic::Event | Topic::Units | Topic::PoolWork)
    }

    /// Whether its waiter wakes now and then and tries again, in one and the same wait. So does CUDA's event thread, ten
    /// times a second.
    pub fn is_asked_again(&self) -> bool {
        matches!(self.topic, Topic::Gil | Topic::StopTheWorld) || self == CUDA_DRIVER_WORK
    }

    /// Whether it is a lock of native code that the thread which took it gives back: nothing that a thread is woken for.
    pub fn is_native_lock_with_holder(&self) -> bool {
        self.is_lock() && self.giver == Giver::Holder && self.world == World::Native
    }

    /// Whether a process that has its other end gives it.
    pub fn has_two_ends(&self) -> bool {
        self.holding == Holding::OtherEnd
    }

    /// Whether it is work on a GPU.
    pub fn is_gpu(&self) -> bool {
        matches!(self.topic, Topic::GpuWork | Topic::Gpu)
    }

    /// Whether it lies outside of the process's memory: drawn as such.
    pub fn is_outside(&self) -> bool {
        matches!(self.world, World::Kernel | World::Gpu)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        // A row may stand at several addresses, but mostly it is the very same.
        std::ptr::eq(self, other) || self.name == other.name
    }
}

impl Eq for Kind {}

impl Ord for Kind {
    fn cmp(&self, other: &Kind) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Kind) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Each row is a constant, by which its decoder names it, and, in tests, a member of `SHARED`.
macro_rules! kinds {
    ($($constant:ident = $($property:expr),+;)+) => {
        $(
            #[doc = concat!("The kind of `", stringify!($constant), "`: its row is in the table of this file.")]
            pub(crate) const $constant: &Kind = &Kind::new($($property),+);
        )+
        /// All rows of this file.
        #[cfg(test)]
        pub(crate) const SHARED: &[&Kind] = &[$($constant),+];
    };
}

use Giver::{AnyThread, Holder, Outside};
use Holding::{
    Arrives, BelongsTo, Does, Holds, Is, Keeps, OtherEnd, RunsFor, Sets, Stops, TakesPart, TookUnit, Writes,
};
use World::{EventLoop, Gpu, Kernel, Native, Python};

use Topic::{
    Data, Event, FileLock, Gil, GpuWork, ImportLock, Initialiser, LoaderLock, Lock, ReadWriteLock, StopTheWorld, Units,
};

#[rustfmt::skip]
kinds! {
    PTHREAD_MUTEX     = "pthread_mutex", "pthread mutex", Native, Lock, Holder, Holds;
    PTHREAD_RWLOCK    = "pthread_rwlock", "pthread rwlock", Native, ReadWriteLock, Holder, Holds;
    PTHREAD_SPINLOCK  = "pthread_spinlock", "pthread spinlock", Native, Lock, Holder, Holds;
    LOADER_LOCK       = "loader_lock", "loader lock", Native, LoaderLock, Holder, Holds;
    MALLOC_ARENA      = "malloc_arena", "malloc arena", Native, Lock, Holder, Holds;
    STDIO_FILE        = "stdio_file", "stdio file", Native, Lock, Holder, Holds;
    SEMAPHORE         = "semaphore", "semaphore", Native, Units, AnyThread, Holds;
    FUTEX             = "futex", "futex", Native, Lock, AnyThread, Holds;
    OPENMP_LOCK       = "openmp_lock", "OpenMP lock", Native, Lock, Holder, Holds;
    PTHREAD_ONCE      = "pthread_once", "pthread once", Native, Initialiser, Holder, Holds;
    STATIC_GUARD      = "static_guard", "static guard", Native, Initialiser, Holder, Holds;
    THREAD            = "thread", "thread", Native, Topic::Thread, Holder, Is;
    PTHREAD_COND      = "pthread_cond", "pthread cond", Native, Event, AnyThread, Holds;
    PTHREAD_BARRIER   = "pthread_barrier", "pthread barrier", Native, Event, AnyThread, Arrives;
    GIL               = "gil", "GIL", Python, Gil, Holder, Holds;
    PY_LOCK           = "py_lock", "py lock", Python, Lock, AnyThread, Holds;
    PY_RLOCK          = "py_rlock", "py rlock", Python, Lock, Holder, Holds;
    PY_MUTEX          = "py_mutex", "py mutex", Python, Lock, Holder, Holds;
    PY_IMPORT_LOCK    = "py_import_lock", "py import lock", Python, ImportLock, Holder, Holds;
    PY_CONDITION      = "py_condition", "py condition", Python, Event, AnyThread, Sets;
    PY_THREAD         = "py_thread", "py thread", Python, Topic::Thread, Holder, Is;
    PY_STOP_THE_WORLD = "py_stop_the_world", "py stop the world", Python, StopTheWorld, Outside, Stops;
    PY_GENERATOR      = "py_generator", "generator", Python, Event, Outside, Holds;
    MP_LOCK           = "mp_lock", "mp lock", Kernel, Lock, Outside, Holds;
    ASYNCIO_TASK      = "asyncio_task", "asyncio task", EventLoop, Topic::Task, Outside, Is;
    ASYNCIO_LOCK      = "asyncio_lock", "asyncio.Lock", EventLoop, Lock, Outside, Holds;
    TRIO_TASK         = "trio_task", "trio task", EventLoop, Topic::Task, Outside, Is;
    TRIO_LOCK         = "trio_lock", "trio.Lock", EventLoop, Lock, Outside, Holds;
    TRIO_LIMITER      = "trio_limiter", "trio.CapacityLimiter", EventLoop, Units, Outside, TookUnit;
    GREENLET          = "greenlet", "greenlet", EventLoop, Topic::Task, Outside, Is;
    GREENLET_LOCK     = "greenlet_lock", "lock of greenlets", EventLoop, Lock, Outside, Holds;
    EVENT_LOOP        = "event_loop", "event loop", EventLoop, Event, Outside, Keeps;
    TASK_EVENT        = "task_event", "event of an event loop", EventLoop, Event, Outside, Sets;
    FILE_LOCK         = "file_lock", "file lock", Kernel, FileLock, Outside, Holds;
    SYSV_SEMAPHORE    = "sysv_semaphore", "sysv semaphore", Kernel, Units, Outside, TookUnit;
    PROCESS           = "process", "process", Kernel, Event, Outside, BelongsTo;
    PIPE              = "pipe", "pipe", Kernel, Data, Outside, OtherEnd;
    SOCKET            = "socket", "socket", Kernel, Data, Outside, OtherEnd;
    MESSAGE_QUEUE     = "message_queue", "message queue", Kernel, Data, Outside, OtherEnd;
    EVENTFD           = "eventfd", "eventfd", Kernel, Data, Outside, Writes;
    TIMER             = "timer", "timer", Kernel, Event, Outside, Holds;
    STDIN             = "stdin", "standard input", Kernel, Event, Outside, Holds;
    DESCRIPTOR        = "descriptor", "descriptor", Kernel, Event, Outside, Holds;
    SIGNAL            = "signal", "signal", Kernel, Event, Outside, Holds;
    EVENTS            = "events", "events", Kernel, Event, Outside, Holds;
    SYSTEM_CALL       = "system_call", "system call", Kernel, Event, Outside, Holds;
    CUDA_STREAM       = "cuda_stream", "CUDA stream", Gpu, GpuWork, Outside, RunsFor;
    CUDA_EVENT        = "cuda_event", "CUDA event", Gpu, GpuWork, Outside, RunsFor;
    CUDA_DEVICE       = "cuda_device", "CUDA device", Gpu, Topic::Gpu, Outside, RunsFor;
    CUDA_KERNEL       = "cuda_kernel", "CUDA kernel", Gpu, GpuWork, Outside, Holds;
    CUDA_DRIVER_WORK  = "cuda_driver_work", "work for the CUDA driver", Gpu, Event, Outside, Holds;
    DASK_LOCK         = "dask_lock", "distributed.Lock", Kernel, Lock, Outside, Holds;
    DASK_SEMAPHORE    = "dask_semaphore", "distributed.Semaphore", Kernel, Units, Outside, TookUnit;
    DASK_EVENT        = "dask_event", "distributed.Event", Kernel, Event, Outside, Sets;
    DASK_RESULT       = "dask_result", "result of task", Kernel, Event, Outside, Does;
    DASK_QUEUE        = "dask_queue", "distributed.Queue", Kernel, Data, Outside, Holds;
    DASK_VARIABLE     = "dask_variable", "distributed.Variable", Kernel, Event, Outside, Sets;
    DASK_ANSWER       = "dask_answer", "answer of Dask to", Kernel, Event, Outside, Does;
    RAY_TASK          = "ray_task", "result of task", Kernel, Event, Outside, Does;
    COLLECTIVE        = "collective", "collective", Kernel, Event, Outside, TakesPart;
    OTHER             = "other", "something", Kernel, Event, Outside, Holds;
}

/// The verb for the action that wakes waiters for a Python object, by its class.
fn wake_up(thing: &str) -> &'static str {
    let class = thing.split([' ', '(']).next().unwrap_or(thing);
    match class.rsplit('.').next().unwrap_or(class) {
        "Queue" | "LifoQueue" | "PriorityQueue" | "SimpleQueue" => "put into",
        "Condition" => "notify",
        "Semaphore" | "BoundedSemaphore" => "release",
        _ => "set",
    }
}

impl Holding {
    /// "holds the GIL", "is the reader of the pipe", "runs in child process 12": `name` is what the resource is called.
    pub(crate) fn held(self, name: &Called) -> String {
        let thing = &name.thing;
        match self {
            OtherEnd => match name.wanted {
                Some(Wanted::Room) => format!("is the reader of {thing}"),
                Some(Wanted::Data) => format!("is the writer of {thing}"),
                Some(Wanted::Answer) => format!("is to answer on {thing}"),
                _ => format!("holds {name}"),
            },
            Writes => format!("is to write to {name}"),
            Arrives => format!("has yet to come to {name}"),
            TakesPart => format!("is to take part in {name}"),
            TookUnit => format!("took the last unit of {name}"),
            Sets => match &name.work {
                Some((function, noun)) => format!("must run {function}() to complete the {noun}"),
                None => format!("is to {} {name}", wake_up(thing)),
            },
            Stops if name.wanted == Some(Wanted::End) => format!("decides on {name}"),
            Stops => format!("has yet to come to {name}"),
            // A process is waited for, and one of its threads waits in turn.
            BelongsTo => format!("runs in {name}"),
            Is => format!("is {name}"),
            RunsFor => format!("runs a host function that {name} waits for"),
            Does => format!("is in the midst of {name}"),
            Keeps | Holds => format!("holds {name}"),
        }
    }

    /// The same of something that was named just before: "holds that".
    pub fn held_that(self) -> &'static str {
        match self {
            OtherEnd | Writes => "has its other end",
            Arrives => "has yet to come there",
            TookUnit => "took its last unit",
            Sets => "is to set that",
            RunsFor => "runs a host function that this waits for",
            Does => "is in the midst of that",
            BelongsTo => "runs in that",
            TakesPart => "is to take part in that",
            Is => "is that",
            Keeps | Stops | Holds => "holds that",
        }
    }

    /// The words behind the name of an awaited resource that name its holder. `work`: the function that gives it.
    /// `None` where the name itself shows the holder.
    pub(crate) fn by(self, who: &str, work: Option<&str>) -> Option<String> {
        Some(match self {
            Keeps | Holds => format!("held by {who}"),
            OtherEnd => format!("other end open in {who}"),
            Writes => format!("to which {who} is to write"),
            Arrives | Stops => format!("to which {who} has yet to come"),
            TookUnit => format!("whose last unit {who} took"),
            Sets => match work {
                Some(function) => format!("for which {who} must run {function}()"),
                None => format!("which {who} is to set"),
            },
            RunsFor => format!("for which {who} runs a host function"),
            Does => format!("which {who} is in the midst of"),
            TakesPart => format!("in which {who} is to take part"),
            BelongsTo | Is => return None,
        })
    }

    /// The same where no thread has it but a thing: a task, a kernel of the GPU.
    pub(crate) fn by_thing(self, what: &str, work: Option<&str>) -> Option<String> {
        match self {
            RunsFor => Some(format!("where {what} runs")),
            Keeps => Some(format!("which runs until {what} ends")),
            _ => self.by(what, work),
        }
    }

    /// "may hold rwlock `table`", for a possible holder. One inside of the block of a semaphore has a unit: any thread may give one back.
    pub fn possibly(self, name: &str, is_inside: bool) -> String {
        match self {
            Sets if is_inside && wake_up(name) == "release" => format!("has a unit of {name}"),
            Sets => format!("may {} {name}", wake_up(name)),
            Does => format!("may do {name}"),
            _ => format!("may hold {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_words_and_each_kind_has_a_noun() {
        let names: BTreeSet<&str> = SHARED.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), SHARED.len());
        for kind in SHARED {
            assert!(kind.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{kind}");
            assert!(!kind.noun.is_empty(), "{kind}");
        }
    }
}

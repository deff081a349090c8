//! Objects whose words alone say too little, known by the function that waits: once, barrier, static initialisers,
//! and the waits that C++ and Rust bring along.
//!
//! In: a [`Case`] with named frames. Out: the object, without a holder: none of them records one, and [`super::once`]
//! and [`super::barrier`] find it.

use super::layout::rust_rwlock;
use super::lock_calls::{GUARD, OPENMP, OPENMP_NAMELESS};
use super::parking_lot::{self, ParkingLot};
use super::{Case, HolderRule};
use crate::image::Addr;
use crate::limits::libc::{RUNNER_FRAMES, WRAPPER_FRAMES};
use crate::symbols::base_symbol;
use crate::waits::blocked_on::{BlockedOn, LivingGuards, Ownership, Referenced};
use crate::waits::c_library::CLibrary;
use crate::waits::kinds::{self, Kind};
use crate::waits::model::{Completion, Role};
use crate::waits::thread::{ByNames, ThreadView};

/// A function that waits, and what for.
#[derive(Debug)]
pub(super) struct Row {
    /// How its name begins; with `::` in front, what its path contains.
    names: &'static [&'static str],
    kind: &'static Kind,
    noun: &'static str,
    /// Offset of the futex word in the object, by C library; `None`: the word is not part of it.
    offsets: [Option<u64>; 2],
    holder: Holder,
    /// The act that ends the wait, where the kind does not say it.
    ends_by: Option<Completion>,
}

/// How the holder of an object is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// No thread holds it: it is signalled or posted.
    Nobody,
    /// The thread between the calls for a static variable's guard.
    Guard,
    /// The thread between the calls for an OpenMP lock or critical section.
    OpenMp,
    /// The same of the critical section without a name.
    OpenMpNameless,
    /// The thread that runs the initialiser.
    Once,
    /// The threads that have yet to come.
    Barrier,
    /// A thread that has its address, where a lock's stands beside the word. A guard is a pointer to its lock, so any thread with the
    /// pointer on its stack may hold the lock.
    Parked(ParkingLot),
    /// The same, or a thread with a living guard of Rust's Mutex,
    RustMutex,
    /// or of its RwLock, requested to read,
    RustReaders,
    /// or to write.
    RustWriters,
}

impl Holder {
    /// The mode that a waiter requests.
    fn mode(self) -> Option<&'static str> {
        match self {
            Holder::RustReaders => Some("read"),
            Holder::RustWriters => Some("write"),
            _ => None,
        }
    }

    /// The guards that are alive while a lock of Rust's is in this state.
    fn guards(self, state: Option<u32>) -> Option<LivingGuards> {
        let (of, mode, count) = match self {
            Holder::RustMutex => ("::MutexGuard<", None, 1),
            Holder::RustReaders | Holder::RustWriters => match state? & rust_rwlock::COUNT {
                rust_rwlock::WRITE_LOCKED => ("::RwLockWriteGuard<", Some("write"), 1),
                readers => ("::RwLockReadGuard<", Some("read"), readers),
            },
            _ => return None,
        };
        Some(LivingGuards { of, mode, count })
    }
}

const fn row(names: &'static [&'static str], kind: &'static Kind, noun: &'static str, offset: u64) -> Row {
    Row { names, kind, noun, offsets: [Some(offset); 2], holder: Holder::Nobody, ends_by: None }
}

impl Row {
    const fn held_by(self, holder: Holder) -> Row {
        Row { holder, ..self }
    }

    const fn ends_by(self, completion: Completion) -> Row {
        Row { ends_by: Some(completion), ..self }
    }

    fn fits(&self, name: &Named<'_>) -> bool {
        self.names.iter().any(|wanted| match wanted.strip_prefix("::") {
            Some(part) => name.path.as_ref().is_some_and(|path| path.contains(part)),
            None => name.name.starts_with(wanted),
        })
    }
}

/// The name of a function, and its path if it has one, as names of C do not.
struct Named<'n> {
    name: &'n str,
    /// Without brackets: paths of methods come as `<a::Mutex>::lock` and `a::Mutex<T>::lock`.
    path: Option<String>,
}

impl<'n> Named<'n> {
    fn new(name: &'n str) -> Named<'n> {
        let path = name.contains("::").then(|| name.replace("<T>", "").replace(['<', '>'], ""));
        Named { name, path }
    }
}

/// Offsets: libc.md sections 1, 4 and 5. C++: libstdc++ 10 to 16 (bits/atomic_wait.h, bits/atomic_futex.h, `latch`).
/// Rust: library/std/src/sys/sync and its earlier places, parking_lot 0.11 and 0.12.
const TABLE: &[Row] = &[
    row(&["cxa_guard_acquire"], kinds::STATIC_GUARD, "guard of a static variable", 0).held_by(Holder::Guard),
    // musl waits on a node of the barrier's last round.
    Row {
        names: &["pthread_barrier_wait"],
        kind: kinds::PTHREAD_BARRIER,
        noun: "barrier",
        offsets: [Some(4), None],
        holder: Holder::Barrier,
        ends_by: None,
    },
    row(&["pthread_once", "call_once"], kinds::PTHREAD_ONCE, "once control", 0).held_by(Holder::Once),
    row(&["sem_wait", "sem_timedwait", "sem_clockwait", "new_sem_wait"], kinds::SEMAPHORE, "semaphore", 0),
    row(&["std::__atomic_futex_unsigned_base::_M_futex_wait"], kinds::FUTEX, "state of a std::future", 16)
        .ends_by(Completion::Resolve),
    row(&["std::latch::"], kinds::FUTEX, "std::latch", 0).ends_by(Completion::Arrive),
    row(&["std::counting_semaphore<", "std::__atomic_semaphore::"], kinds::SEMAPHORE, "std::counting_semaphore", 0),
    Row {
        names: &["std::barrier<", "std::__tree_barrier"],
        kind: kinds::PTHREAD_BARRIER,
        noun: "std::barrier",
        offsets: [None; 2],
        holder: Holder::Barrier,
        ends_by: None,
    },
    // The word may be one that many atomics share.
    row(&["std::__atomic_base<", "std::atomic<", "std::__detail::__wait_impl"], kinds::FUTEX, ATOMIC, 0),
    row(&["::Mutex::lock_contended"], kinds::FUTEX, "Rust Mutex", 0).held_by(Holder::RustMutex),
    row(&["::RwLock::read_contended"], kinds::FUTEX, "Rust RwLock", 0).held_by(Holder::RustReaders),
    row(&["::RwLock::write_contended"], kinds::FUTEX, "Rust RwLock", rust_rwlock::WRITER_NOTIFY)
        .held_by(Holder::RustWriters),
    row(&["::Condvar::wait"], kinds::FUTEX, "Rust Condvar", 0).ends_by(Completion::Notify),
    row(&["::once::futex::Once::", "::futex_once::Once::"], kinds::PTHREAD_ONCE, "Rust Once", 0).held_by(Holder::Once),
    row(&["parking_lot::raw_mutex::", "::RawMutex::lock_slow"], kinds::FUTEX, "parker of a parking_lot Mutex", 0)
        .held_by(Holder::Parked(ParkingLot::Mutex)),
    row(
        &["parking_lot::raw_rwlock::", "::RawRwLock::lock_", "::RawRwLock::wait_for_readers"],
        kinds::FUTEX,
        "parker of a parking_lot RwLock",
        0,
    )
    .held_by(Holder::Parked(ParkingLot::RwLock)),
    row(&["parking_lot_core::"], kinds::FUTEX, "parker of parking_lot", 0),
    row(&["::thread_parking::", "::thread::park", "::Parker::park"], kinds::FUTEX, "token of std::thread::park", 0)
        .ends_by(Completion::Unpark),
    row(&["gomp_team_barrier_wait", "gomp_barrier_wait", "GOMP_barrier"], kinds::PTHREAD_BARRIER, "OpenMP barrier", 4)
        .held_by(Holder::Barrier),
    row(&["GOMP_critical_name_start"], kinds::OPENMP_LOCK, "critical section", 0).held_by(Holder::OpenMp),
    row(&["GOMP_critical_start"], kinds::OPENMP_LOCK, "critical section without a name", 0)
        .held_by(Holder::OpenMpNameless),
    row(&["omp_set_lock", "omp_set_nest_lock"], kinds::OPENMP_LOCK, "OpenMP lock", 0).held_by(Holder::OpenMp),
    row(&["gomp_mutex_lock"], kinds::FUTEX, "lock inside OpenMP", 0),
    row(&["gomp_sem_wait"], kinds::SEMAPHORE, "OpenMP semaphore", 0),
];

/// Calls of Rust's standard library and of parking_lot, down to the futex.
const RUST_ENTRY_POINTS: &[&str] = &[
    "std::sync::",
    "<std::sync::",
    "std::sys::sync::",
    "<std::sys::sync::",
    "std::sys::pal::",
    "std::thread::functions::park",
    "std::thread::park",
    "<std::thread::thread::Thread>::park",
    "parking_lot",
    "<parking_lot",
    "lock_api::",
    "<lock_api::",
];
/// The prefix that GCC adds to the name of a critical section.
const CRITICAL: &str = ".gomp_critical_user_";
const ATOMIC: &str = "word of a std::atomic";
/// The futex word, and of an RwLock the word for writers.
const RUST_LOCK_SIZE: u64 = 8;

/// Decode by the name of one of the innermost frames.
pub(super) fn decode(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let by_frames = case.by_name.map(|Found { row, name }| (row, name.to_owned()));
    let (row, name) = by_frames.or_else(|| by_call(case))?;
    let library = match case.process.library {
        CLibrary::Glibc => 0,
        CLibrary::Musl => 1,
    };
    let word = case.futex.word;
    let base = row.offsets[library].map_or(word, |offset| word - offset);
    let lock = if let Holder::Parked(kind) = row.holder {
        parking_lot::lock(case, kind, word).map(|lock| (kind.noun(), lock))
    } else {
        None
    };
    let (noun, base) = lock.unwrap_or((row.noun, base));
    let mut state = vec![("word", i64::from(case.futex.value))];
    let barrier = barrier(case, row, base);
    let is_glibc = barrier.is_some();
    if let Some(words) = barrier {
        state = words;
    }
    let mut resource = case.resource(row.kind, noun, base, state);
    let label = &mut resource.label;
    // The word is the library's own, which several of these objects share.
    if row.offsets == [None; 2] {
        (label.name, label.offset) = (None, 0);
    }
    label.name = label.name.take().map(|name| name.strip_prefix(CRITICAL).map(str::to_owned).unwrap_or(name));
    let is_it = match lock {
        Some((noun, lock)) => format!("its parker at {word} is queued for the {noun} at {lock}"),
        None => case.word_is(row.noun, base, "word"),
    };
    let evidence = vec![is_it, format!("the thread is inside {name}")];
    let entry_points = if row.names.iter().any(|name| name.starts_with("::")) { RUST_ENTRY_POINTS } else { row.names };
    let decoded = case.below.refined(resource, entry_points, evidence);
    let decoded = decoded.owned(match row.holder {
        Holder::Nobody => Ownership::Unknown,
        Holder::Guard => Ownership::LockedInCode(word, &GUARD),
        Holder::OpenMp => Ownership::LockedInCode(base, &OPENMP),
        Holder::OpenMpNameless => Ownership::LockedInCode(Addr(0), &OPENMP_NAMELESS),
        Holder::Once => Ownership::private(HolderRule::Once(word)),
        Holder::Barrier => Ownership::private(HolderRule::Barrier { is_glibc }),
        Holder::Parked(_) if lock.is_none() => Ownership::Unknown,
        Holder::Parked(_) | Holder::RustReaders | Holder::RustWriters | Holder::RustMutex => {
            let guards = row.holder.guards(case.word(base, 0));
            Ownership::ByReference(Referenced { lock: base, size: RUST_LOCK_SIZE, guards })
        }
    });
    let mut decoded = BlockedOn { mode: row.holder.mode(), ..decoded };
    decoded.resource.role = row.ends_by.map(Role::Completed).or(decoded.resource.role);
    if let Some((noun, completion)) = made_of_it(case, row) {
        decoded.resource.label.noun = noun.to_owned();
        decoded.resource.role = completion.map(Role::Completed);
    }
    if is_test_runner(case) {
        decoded.timed = false;
        decoded.resource.role = Some(Role::IdleWork);
        decoded.evidence.push("libtest's own thread: after its time-out it names slow tests and waits again".into());
    }
    Some(decoded)
}

/// A thing that Rust's standard library or crossbeam makes of a condition or a thread's token, found by a function around the wait: its
/// name, and the act that ends the wait.
fn made_of_it(case: &Case<'_, '_>, row: &Row) -> Option<(&'static str, Option<Completion>)> {
    const CHANNELS: &[&str] = &["std::sync::mpsc::", "std::sync::mpmc::", "crossbeam_channel::"];
    let names: Vec<&str> = case.thread.names(RUNNER_FRAMES).map(|(_, name)| name).collect();
    let mut of_channels = names.iter().filter(|name| CHANNELS.iter().any(|channel| name.contains(channel))).peekable();
    if of_channels.peek().is_some() {
        // The innermost are of the channel's parts, and say neither.
        return Some(match of_channels.any(|name| name.contains("::send")) {
            true => ("room in a channel", Some(Completion::Get)),
            false => ("a message of a channel", Some(Completion::Put)),
        });
    }
    // The program's own code may wait inside of a scope, and a barrier for its own lock.
    let calls = |outer: &str, inner: &str| {
        row.ends_by.is_some()
            && names.windows(2).any(|pair| matches!(pair, [of, by] if of.contains(inner) && by.contains(outer)))
    };
    if calls("std::sync::barrier::Barrier", "Condvar") {
        return Some(("Rust Barrier", Some(Completion::Arrive)));
    }
    calls("std::thread::scoped::scope", "::park").then_some(("the end of the threads of a scope", None))
}

/// Whether this is the thread of Rust's libtest that waits for tests to end. It takes nothing from them, gives them nothing, and
/// comes back to this wait for ever (`run_tests` in library/test/src/lib.rs of Rust 1.95).
fn is_test_runner(case: &Case<'_, '_>) -> bool {
    let names: Vec<&str> = case.thread.names(RUNNER_FRAMES).map(|(_, name)| name).collect();
    names.windows(2).any(|pair| match pair {
        [inner, outer] => {
            inner.contains("Receiver<") && inner.contains("::recv") && outer.starts_with("test::run_tests")
        }
        _ => false,
    })
}

/// Whether the thread is inside one of Rust's own locks: what lies beside its word is other data, whatever that looks like.
pub(super) fn is_of_rust(case: &Case<'_, '_>) -> bool {
    let is_rust = |found: Found<'_>| found.row.names.iter().any(|name| name.starts_with("::"));
    case.by_name.is_some_and(is_rust) && !case.inside(&["pthread_"])
}

/// A row that one of the innermost frames fits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'n> {
    row: &'static Row,
    name: &'n str,
}

/// The innermost frame that has a name of its own; atomics are what C++ makes the others of.
pub(super) fn by_frames<'t>(known: &ByNames<Fits>, thread: &'t ThreadView<'_>) -> Option<Found<'t>> {
    let (position, row) = known.of(thread, || fits(thread))?;
    thread.names(WRAPPER_FRAMES).nth(position).map(|(_, name)| Found { row, name })
}

/// Which of the names of a thread fits which row.
pub(super) type Fits = Option<(usize, &'static Row)>;

fn fits(thread: &ThreadView<'_>) -> Fits {
    let names: Vec<Named<'_>> = thread.names(WRAPPER_FRAMES).map(|(_, name)| Named::new(name)).collect();
    let find = |weak: bool| {
        names.iter().enumerate().find_map(|(position, named)| {
            let row = TABLE.iter().find(|row| (row.noun == ATOMIC) == weak && row.fits(named))?;
            Some((position, row))
        })
    };
    find(false).or_else(|| find(true))
}

/// A function that ended by a jump has no frame; the call of it is there.
fn by_call(case: &Case<'_, '_>) -> Option<(&'static Row, String)> {
    let (_, called) = case.thread.nameless_entries(case.process).next()?;
    let named = Named::new(base_symbol(&called));
    TABLE.iter().find(|row| row.fits(&named)).map(|row| (row, named.name.to_owned()))
}

/// struct pthread_barrier { in, current_round, count, shared, out } (nptl/internaltypes.h).
fn barrier(case: &Case<'_, '_>, row: &Row, base: Addr) -> Option<Vec<(&'static str, i64)>> {
    if row.noun != "barrier" || case.process.library != CLibrary::Glibc {
        return None;
    }
    let fields = [("in", 0), ("round", 4), ("count", 8)];
    Some(fields.iter().filter_map(|&(name, at)| Some((name, i64::from(case.word(base, at)?)))).collect())
}

//! Threads that stand between a lock call and the unlock call of the same lock, by the code that they are in.
//!
//! In: a process and the names of the calls. Out: an index from locks to threads. This is the evidence for locks whose
//! holder nobody records: reader sets, spinlocks, semaphores, static guards, most locks of musl. Straight-line reading
//! ([`crate::code`]): what comes of it is an inference.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::super::facts::{Process, ThreadFacts};
use super::super::family::{Found, Look, exact_hold, plain_name, waits_for};
use super::super::{Certainty, Hold, Observations, Party, ResourceKey, Scope};
use crate::code::{CallSite, Code};
use crate::image::{Addr, Gap};
use crate::unwind::Trust;

/// The calls that take a kind of lock and give it back.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Calls {
    /// "read", "write".
    pub mode: Option<&'static str>,
    /// Names of the calls that take it, as [`plain_name`] gives them.
    pub locks: &'static [&'static str],
    /// Names of the calls that give it back.
    pub unlocks: &'static [&'static str],
    /// The calls are used for other things as well: only where the same function goes on to give back what it took is
    /// it a lock.
    pub is_ambiguous: bool,
}

/// `pthread_mutex_t`.
pub const MUTEX: Calls = Calls {
    mode: None,
    locks: &["pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_timedlock"],
    unlocks: &["pthread_mutex_unlock"],
    is_ambiguous: false,
};
/// `pthread_rwlock_t`, for reading.
pub const READERS: Calls = Calls {
    mode: Some("read"),
    locks: &["pthread_rwlock_rdlock", "pthread_rwlock_timedrdlock", "pthread_rwlock_clockrdlock"],
    unlocks: &["pthread_rwlock_unlock"],
    is_ambiguous: false,
};
/// `pthread_rwlock_t`, for writing.
pub const WRITERS: Calls = Calls {
    mode: Some("write"),
    locks: &["pthread_rwlock_wrlock", "pthread_rwlock_timedwrlock", "pthread_rwlock_trywrlock"],
    unlocks: &["pthread_rwlock_unlock"],
    is_ambiguous: false,
};
/// `pthread_spinlock_t`.
pub const SPINLOCK: Calls =
    Calls { mode: None, locks: &["pthread_spin_lock"], unlocks: &["pthread_spin_unlock"], is_ambiguous: false };
/// Guards of static variables.
pub const GUARD: Calls = Calls {
    mode: None,
    locks: &["cxa_guard_acquire"],
    unlocks: &["cxa_guard_release", "cxa_guard_abort"],
    is_ambiguous: false,
};
/// `sem_t`, used as a lock: what one thread takes another may give.
pub const SEMAPHORE: Calls = Calls {
    mode: None,
    locks: &["sem_wait", "sem_timedwait", "sem_clockwait", "sem_trywait"],
    unlocks: &["sem_post"],
    is_ambiguous: true,
};

/// A thread that stands between a lock call and the unlock call of the same lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Between {
    /// Position of the thread.
    pub thread: usize,
    /// Lock calls without their unlock.
    pub depth: u32,
    /// Position of the native frame that took the lock last.
    pub native: usize,
    /// How it is known.
    pub evidence: String,
}

impl Between {
    /// That this thread of `process` has the lock: an inference.
    pub fn hold(self, process: &Process<'_>, key: &ResourceKey, calls: &Calls) -> Hold {
        let thread = &process.threads[self.thread];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, calls.mode, vec![self.evidence]);
        Hold { certainty: Certainty::Inferred, frame: thread.merged(self.native), ..hold }
    }
}

/// From the address of a lock to those that have it.
type Index = HashMap<Addr, Vec<Between>>;

/// What was read of the code of one process.
#[derive(Debug, Default)]
pub struct Memo {
    indices: RefCell<HashMap<&'static Calls, Rc<Index>>>,
    /// The calls of a function, by its first address.
    functions: RefCell<HashMap<Addr, Rc<Vec<CallSite>>>>,
}

/// The most frames that are read, from the innermost on.
const MOST_FRAMES: usize = 64;
/// The same for calls that are common: to read an interpreter's functions costs more than all the rest (measured: 20 ms).
const NEAR_FRAMES: usize = 8;

/// The threads of `process` that have locked `lock` and not yet unlocked it.
pub fn between(process: &Process<'_>, lock: Addr, calls: &'static Calls) -> Vec<Between> {
    let known = process.call_sites.indices.borrow().get(calls).cloned();
    let index = known.unwrap_or_else(|| {
        let index = Rc::new(index(process, calls));
        process.call_sites.indices.borrow_mut().insert(calls, index.clone());
        index
    });
    index.get(&lock).cloned().unwrap_or_default()
}

/// Add as holders those that stand between the calls; in memory that processes share, of each process.
pub fn holders(
    look: &Look<'_>,
    waits: &[Found],
    found: &Found,
    lock: Addr,
    calls: &'static Calls,
    out: &mut Observations,
) {
    let key = &found.decoded.resource.key;
    let mut holders = Vec::new();
    for (position, process) in look.processes.iter().enumerate() {
        let own = (position == found.process).then_some(lock);
        for lock in own.into_iter().chain(own.is_none().then(|| mapped(process, &key.scope)).into_iter().flatten()) {
            for between in between(process, lock, calls) {
                // Two calls in one function may be two ways to wait, of which one was gone (CPython's parking lot).
                if calls.is_ambiguous && waits_for(waits, key, position, between.thread) {
                    continue;
                }
                holders.push(between.hold(process, key, calls));
            }
        }
    }
    if holders.is_empty() && !calls.is_ambiguous {
        let why = "the lock records no owner, and no thread's code shows that it has it";
        out.gaps.push(Gap::new(format!("owner of {}", found.decoded.resource.label), why));
    }
    out.holds.extend(holders);
}

/// Where a process has a word of shared memory.
fn mapped(process: &Process<'_>, scope: &Scope) -> Vec<Addr> {
    let Scope::Shared(device, inode, offset) = scope else { return Vec::new() };
    let mappings = process.context.image.mappings.iter();
    let of_file = mappings.filter(|m| m.shared && (m.device, m.inode) == (*device, *inode));
    let covering = of_file.filter(|m| (m.offset..m.offset.saturating_add(m.end - m.start)).contains(offset));
    covering.map(|m| m.start + (offset - m.offset)).collect()
}

fn index(process: &Process<'_>, calls: &Calls) -> Index {
    let mut index = Index::new();
    for (position, thread) in process.threads.iter().enumerate() {
        for (lock, taken) in taken(process, thread, calls) {
            let Some((native, site)) = taken.last() else { continue };
            let evidence = format!(
                "frame {native} of {} called {}({lock}) at {} and no unlock of it since, reading its code in a straight \
                 line",
                thread.describe(),
                site.function.as_deref().unwrap_or_default(),
                site.at
            );
            let between = Between { thread: position, depth: taken.len() as u32, native: *native, evidence };
            index.entry(lock).or_default().push(between);
        }
    }
    index
}

/// The lock calls without their unlock, by lock. What callers did comes before what they called.
fn taken(process: &Process<'_>, thread: &ThreadFacts<'_>, calls: &Calls) -> HashMap<Addr, Vec<(usize, CallSite)>> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let code = Code::new(process.context.image, process.context.symbols);
    let is = |site: &CallSite, names: &[&str]| {
        site.function.as_deref().is_some_and(|function| names.contains(&plain_name(function)))
    };
    let mut taken: HashMap<Addr, Vec<(usize, CallSite)>> = HashMap::new();
    let most = if calls.is_ambiguous { NEAR_FRAMES } else { MOST_FRAMES };
    for (native, frame) in frames.iter().enumerate().take(most).rev() {
        // What a search of the stack found may be a call that is over.
        if frame.trust == Trust::Scan {
            continue;
        }
        // Reading with values is dear: only where there is a call of these at all.
        let all = calls_of(process, &code, frame.lookup);
        let unlocks = |site: &CallSite| is(site, calls.unlocks);
        let matters = all.iter().any(|site| is(site, calls.locks) || unlocks(site));
        let gives_back = all.iter().any(|site| site.at > frame.lookup && unlocks(site));
        if !matters || calls.is_ambiguous && !gives_back {
            continue;
        }
        for site in code.calls_before(frame, thread.pthread) {
            let Some(lock) = site.arguments[0].map(Addr) else { continue };
            if is(&site, calls.locks) {
                taken.entry(lock).or_default().push((native, site));
            } else if unlocks(&site) {
                taken.entry(lock).or_default().pop();
            }
        }
    }
    taken
}

/// The calls of the function that covers `within`, read once.
fn calls_of(process: &Process<'_>, code: &Code<'_>, within: Addr) -> Rc<Vec<CallSite>> {
    let Some(start) = process.context.symbols.function_start(within) else { return Rc::default() };
    let known = process.call_sites.functions.borrow().get(&start).cloned();
    known.unwrap_or_else(|| {
        let calls = Rc::new(code.calls_in(within));
        process.call_sites.functions.borrow_mut().insert(start, calls.clone());
        calls
    })
}

//! Threads that stand between a lock call and the unlock call of the same lock, by the code that they are in.
//!
//! In: a process and the names of the calls. Out: an index from locks to threads. This is the evidence for locks
//! without a recorded holder: reader sets, spinlocks, semaphores, static guards, most locks of musl. A thread has a
//! lock if every path to its pc takes it and none gives it back ([`lock_steps`]): an inference. A lock that only some
//! paths take makes the thread a candidate.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::lock_steps::{self, Ahead, Change, Guarded, LockSteps, Step};
use crate::code::{CallSite, CallsAndWrites, Goal};
use crate::image::Addr;
use crate::limits::code::CALLED_DEPTH;
use crate::limits::holders::{CODE_FRAMES, NEAR_FRAMES};
use crate::unwind::{NativeFrame, Trust};
use crate::waits::blocked_on::{LockCalls, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds::Giver;
use crate::waits::model::{Hold, Party, ResourceKey, Scope, Strength, WakeSource, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// A thread that stands between a lock call and the unlock call of the same lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CriticalSection {
    /// Position of the thread.
    pub thread: usize,
    /// Lock calls without their unlock.
    pub depth: u32,
    /// Position of the native frame that took the lock last.
    pub native: usize,
    /// Each path to where the thread stands takes the lock, and none gives it back.
    pub is_certain: bool,
    /// The call that the frame is in now takes such a lock, too.
    pub waits_itself: bool,
    /// How it is known.
    pub evidence: String,
}

impl CriticalSection {
    /// That this thread of `process` has the lock: an inference, or a candidate.
    pub(crate) fn hold(self, process: &Process<'_>, key: &ResourceKey, calls: &LockCalls) -> Hold {
        let thread = &process.threads[self.thread];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, calls.mode, vec![self.evidence]);
        let strength = if self.is_certain { Strength::Inferred } else { Strength::Candidate };
        Hold { strength, frame: thread.merged(self.native), ..hold }
    }
}

/// From the address of a lock to those that have it.
type Index = HashMap<Addr, Vec<CriticalSection>>;

/// The code of one process, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    indices: RefCell<HashMap<&'static LockCalls, Rc<Index>>>,
    ahead: RefCell<HashMap<&'static LockCalls, Rc<Vec<Ahead>>>>,
    /// Locks whose givers are known.
    asked: RefCell<HashSet<(&'static LockCalls, Addr)>>,
    steps: lock_steps::Memo,
}

/// The threads of `process` that have locked `lock` and not yet unlocked it, nor gave it back to wait for a condition.
pub(crate) fn sections(
    blocked: &Blocked<'_>,
    process: &Process<'_>,
    lock: Addr,
    calls: &'static LockCalls,
) -> Vec<CriticalSection> {
    let Some(memo) = blocked.code.get(process.context.process) else { return Vec::new() };
    let known = memo.indices.borrow().get(calls).cloned();
    let index = known.unwrap_or_else(|| {
        let index = Rc::new(index(memo, process, calls));
        memo.indices.borrow_mut().insert(calls, index.clone());
        index
    });
    let mut sections = index.get(&lock).cloned().unwrap_or_default();
    sections.retain(|section| !blocked.gave_back(process.context.process, section.thread, lock));
    sections
}

/// Add as holders those that stand between the calls; in memory that processes share, of each process. Whether there is one.
pub(crate) fn holders(
    blocked: &Blocked<'_>,
    wait: &ThreadWait,
    lock: Addr,
    calls: &'static LockCalls,
    out: &mut Observations,
) -> bool {
    let key = &wait.blocked_on.resource.key;
    let mut holders: Vec<Hold> = Vec::new();
    let anyone_gives = key.kind.giver == Giver::AnyThread;
    for (position, process) in blocked.processes().iter().enumerate() {
        let own = (position == wait.process).then_some(lock);
        for lock in own.into_iter().chain(own.is_none().then(|| mapped(process, &key.scope)).into_iter().flatten()) {
            if anyone_gives {
                out.wake_sources.extend(givers(blocked, process, lock, key, calls));
            }
            for section in sections(blocked, process, lock, calls) {
                let waits_too = calls.is_ambiguous && blocked.waits_for(key, position, section.thread);
                // Two calls in one function may be two ways to wait; the thread took only one (CPython's parking lot).
                if waits_too && (section.waits_itself || !section.is_certain) {
                    continue;
                }
                let hold = section.hold(process, key, calls);
                // It has a unit and waits for another one, which others may give back.
                holders.push(if waits_too { Hold { strength: Strength::Candidate, ..hold } } else { hold });
            }
        }
    }
    if holders.iter().any(Hold::is_known) {
        holders.retain(Hold::is_known);
    }
    if holders.is_empty() && !calls.is_ambiguous {
        let deep = blocked.process(wait).threads.iter().filter(|thread| frames(thread).len() > CODE_FRAMES).count();
        let why = "the lock records no owner, and no thread's code shows that it has it";
        let why = match deep {
            0 => why.to_owned(),
            _ => {
                format!("{why}; of {deep} threads only the innermost {CODE_FRAMES} frames were read")
            }
        };
        out.nobody_named(&wait.blocked_on.resource, why);
    }
    let is_found = !holders.is_empty();
    out.holds.extend(holders);
    is_found
}

/// Threads in code that may give `lock` back without having taken it, since any thread may post a semaphore; nothing the second time.
/// Locks that they have taken themselves count, too: a holder has to go on before it gives its lock back.
pub(crate) fn givers(
    blocked: &Blocked<'_>,
    process: &Process<'_>,
    lock: Addr,
    key: &ResourceKey,
    calls: &'static LockCalls,
) -> Vec<WakeSource> {
    let Some(memo) = blocked.code.get(process.context.process) else { return Vec::new() };
    if !memo.asked.borrow_mut().insert((calls, lock)) {
        return Vec::new();
    }
    let known = memo.ahead.borrow().get(calls).cloned();
    let ahead = known.unwrap_or_else(|| {
        let ahead = Rc::new(ahead(memo, process, calls));
        memo.ahead.borrow_mut().insert(calls, ahead.clone());
        ahead
    });
    let steps = LockSteps::new(&memo.steps, process, calls, None);
    let source = |of_thread: &[Ahead]| {
        let call = of_thread.iter().find_map(|one| steps.gives(one, lock))?;
        let thread = &process.threads[of_thread.first()?.thread];
        let what = format!("{} may call {call} ahead of where it stands", thread.describe());
        let by = Waker::Party(Party::Thread(process.context.process, thread.image.tid));
        Some(WakeSource { resource: key.clone(), waiter: None, by, what })
    };
    ahead.chunk_by(|one, next| one.thread == next.thread).filter_map(source).collect()
}

/// The calls ahead of the threads of a process, the innermost frames of each first.
fn ahead(memo: &Memo, process: &Process<'_>, calls: &'static LockCalls) -> Vec<Ahead> {
    let symbols = process.context.symbols;
    // A library sends a signal by its own call to the calling thread alone, as abort() does.
    let signals = calls.unlocks.iter().filter(|_| calls.locks.is_empty());
    let libraries: HashSet<usize> = signals.flat_map(|call| symbols.exporters(call)).collect();
    let is_of_library =
        |frame: &NativeFrame| symbols.modules().at(frame.lookup).is_some_and(|module| libraries.contains(&module));
    let of_thread = |(position, thread): (usize, &ThreadView<'_>)| -> Vec<Ahead> {
        let steps = LockSteps::new(&memo.steps, process, calls, thread.pthread);
        let frames = frames(thread).iter().take(CODE_FRAMES).filter(|frame| frame.trust != Trust::Scan);
        frames.filter(|frame| !is_of_library(frame)).filter_map(|frame| steps.ahead(position, frame)).collect()
    };
    process.threads.iter().enumerate().flat_map(of_thread).collect()
}

fn frames<'t>(thread: &'t ThreadView<'_>) -> &'t [NativeFrame] {
    thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default()
}

/// Where a process has a word of shared memory.
fn mapped(process: &Process<'_>, scope: &Scope) -> Vec<Addr> {
    let Scope::Shared(device, inode, offset) = scope else { return Vec::new() };
    let mappings = process.context.image.mappings.iter();
    let of_file = mappings.filter(|m| m.shared && (m.device, m.inode) == (*device, *inode));
    let covering = of_file.filter(|m| (m.offset..m.offset.saturating_add(m.end - m.start)).contains(offset));
    covering.map(|m| m.start + (offset - m.offset)).collect()
}

fn index(memo: &Memo, process: &Process<'_>, calls: &'static LockCalls) -> Index {
    let mut index = Index::new();
    for (position, thread) in process.threads.iter().enumerate() {
        let mut by_lock: HashMap<Addr, Vec<Taken>> = HashMap::new();
        for taken in taken(&memo.steps, process, thread, calls) {
            if let Some(lock) = taken.change.lock {
                by_lock.entry(lock).or_default().push(taken);
            }
        }
        for (lock, mut taken) in by_lock {
            // Calls that surely took it leave others aside.
            let is_certain = taken.iter().any(|one| one.change.is_certain);
            taken.retain(|one| one.change.is_certain == is_certain);
            let Some(Taken { native, change }) = taken.last() else { continue };
            let argument = if calls.is_only { String::new() } else { lock.to_string() };
            let name = change.site.function.as_deref().unwrap_or("a function");
            let call = match Step::of(&change.site, calls) {
                Some(_) => format!("called {name}({argument}) at {}", change.site.at),
                None => format!("called {name} at {}, which takes {lock}", change.site.at),
            };
            let paths = if is_certain {
                "on every path to where it stands, and nothing on these paths gives it back"
            } else {
                "on a path to where it stands; on others it has not taken it, or has given it back: a candidate"
            };
            let evidence = format!("frame {native} of {} {call} {paths}", thread.describe());
            let depth = taken.len() as u32;
            let waits_itself = is_in_lock_call(memo, process, thread, *native, calls);
            let (thread, native) = (position, *native);
            let section = CriticalSection { thread, depth, native, is_certain, waits_itself, evidence };
            index.entry(lock).or_default().push(section);
        }
    }
    index
}

/// Whether the call that a frame is in now takes a lock of these.
fn is_in_lock_call(
    memo: &Memo,
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    native: usize,
    calls: &'static LockCalls,
) -> bool {
    let Some(frame) = frames(thread).get(native) else { return false };
    let Some(start) = process.context.symbols.function_start(frame.lookup) else { return false };
    let steps = LockSteps::new(&memo.steps, process, calls, thread.pthread);
    let sites = steps.calls_of(start);
    let now = sites.iter().filter(|site| site.at <= frame.lookup).max_by_key(|site| site.at);
    now.is_some_and(|site| Step::of(site, calls) == Some(Step::Locks))
}

/// A call that took a lock which may still be held.
struct Taken {
    /// Position of the native frame.
    native: usize,
    change: Change,
}

/// The calls of a thread that took locks which it may still have. Callers come before what they called.
fn taken(
    memo: &lock_steps::Memo,
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    calls: &'static LockCalls,
) -> Vec<Taken> {
    let frames = frames(thread);
    let steps = LockSteps::new(memo, process, calls, thread.pthread);
    let mut taken: Vec<Taken> = Vec::new();
    let mut guarded = Guarded::new();
    let most = if calls.is_ambiguous { NEAR_FRAMES } else { CODE_FRAMES };
    for (native, frame) in frames.iter().enumerate().take(most).rev() {
        // A frame from a stack scan may be a call that is over.
        if frame.trust == Trust::Scan {
            continue;
        }
        let Some(start) = process.context.symbols.function_start(frame.lookup) else { continue };
        // Inside a call that takes or gives back, all that follows is how that is done.
        let symbol = process.context.symbols.function(frame.lookup);
        if !calls.is_ambiguous && symbol.is_some_and(|symbol| Step::named(&symbol.name, calls).is_some()) {
            break;
        }
        // A function that took a lock may release it anywhere. A function that took none releases one only itself or by
        // a short helper.
        let depth = match (calls.is_ambiguous, taken.is_empty()) {
            (true, _) => 0,
            (false, true) if !steps.calls_of(start).iter().any(|site| Step::of(site, calls).is_some()) => 2,
            (false, _) => CALLED_DEPTH,
        };
        // Reading with values is dear: only where there is a call of these at all.
        if !steps.matters(start, depth) {
            continue;
        }
        let gives_back = |site: &CallSite| matches!(Step::of(site, calls), Some(Step::Unlocks | Step::EndsGuard));
        let goes_on = || steps.calls_of(start).iter().any(|site| site.at > frame.lookup && gives_back(site));
        if calls.is_ambiguous && !goes_on() {
            continue;
        }
        let CallsAndWrites { calls: mut sites, writes, .. } = steps.code().read_around(frame, thread.pthread);
        // Calls in another branch do not concern this thread.
        sites.retain(|site| !steps.code().is_elsewhere(site.at, frame.lookup));
        let mut changes = steps.changes(start, &sites, &mut guarded, depth);
        for change in changes.iter_mut().filter(|change| change.takes) {
            let of_lock = writes.iter().filter(|(_, to)| Some(*to) == change.lock);
            change.writes = of_lock.map(|(at, _)| *at).collect();
        }
        let outcome = steps.outcome(start, Goal::Place(frame.lookup), changes);
        for (lock, is_certain) in outcome.given {
            match lock.map(|lock| taken.iter().rposition(|one| one.change.lock == Some(lock))) {
                Some(Some(last)) if is_certain => drop(taken.remove(last)),
                Some(Some(last)) => taken[last].change.is_certain = false,
                Some(None) => {}
                // It may be any.
                None => taken.iter_mut().for_each(|one| one.change.is_certain = false),
            }
        }
        taken.extend(outcome.taken.into_iter().map(|change| Taken { native, change }));
    }
    taken
}

//! Threads that stand between a lock call and the unlock call of the same lock, by the code that they are in.
//!
//! In: a process and the names of the calls. Out: an index from locks to threads. This is the evidence for locks whose
//! holder nobody records: reader sets, spinlocks, semaphores, static guards, most locks of musl. Straight-line reading
//! ([`crate::code`]): what comes of it is an inference.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::code::{CallSite, Code};
use crate::image::{Addr, Gap};
use crate::limits::holders::{CODE_FRAMES, NEAR_FRAMES};
use crate::symbols::{base_symbol, is_named};
use crate::unwind::{NativeFrame, Trust};
use crate::waits::blocked_on::{LockCalls, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Certainty, Hold, Party, ResourceKey, Scope};
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
    /// How it is known.
    pub evidence: String,
}

impl CriticalSection {
    /// That this thread of `process` has the lock: an inference.
    pub(crate) fn hold(self, process: &Process<'_>, key: &ResourceKey, calls: &LockCalls) -> Hold {
        let thread = &process.threads[self.thread];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, calls.mode, vec![self.evidence]);
        Hold { certainty: Certainty::Inferred, frame: thread.merged(self.native), ..hold }
    }
}

/// From the address of a lock to those that have it.
type Index = HashMap<Addr, Vec<CriticalSection>>;

/// What was read of the code of one process.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    indices: RefCell<HashMap<&'static LockCalls, Rc<Index>>>,
    /// The calls of a function, by its first address.
    functions: RefCell<HashMap<Addr, Rc<Vec<CallSite>>>>,
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
    let mut holders = Vec::new();
    for (position, process) in blocked.processes().iter().enumerate() {
        let own = (position == wait.process).then_some(lock);
        for lock in own.into_iter().chain(own.is_none().then(|| mapped(process, &key.scope)).into_iter().flatten()) {
            for section in sections(blocked, process, lock, calls) {
                // Two calls in one function may be two ways to wait, of which one was gone (CPython's parking lot).
                if calls.is_ambiguous && blocked.waits_for(key, position, section.thread) {
                    continue;
                }
                holders.push(section.hold(process, key, calls));
            }
        }
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
        out.gaps.push(Gap::new(format!("owner of {}", wait.blocked_on.resource.label), why));
    }
    let is_found = !holders.is_empty();
    out.holds.extend(holders);
    is_found
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

fn index(memo: &Memo, process: &Process<'_>, calls: &LockCalls) -> Index {
    let mut index = Index::new();
    for (position, thread) in process.threads.iter().enumerate() {
        for (lock, taken) in taken(memo, process, thread, calls) {
            let Some((native, site)) = taken.last() else { continue };
            let argument = if calls.is_only { String::new() } else { lock.to_string() };
            let evidence = format!(
                "frame {native} of {} called {}({argument}) at {} and no unlock of it since, reading its code in a \
                 straight line",
                thread.describe(),
                site.function.as_deref().unwrap_or_default(),
                site.at
            );
            let section = CriticalSection { thread: position, depth: taken.len() as u32, native: *native, evidence };
            index.entry(lock).or_default().push(section);
        }
    }
    index
}

/// The lock calls without their unlock, by lock. What callers did comes before what they called.
fn taken(
    memo: &Memo,
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    calls: &LockCalls,
) -> HashMap<Addr, Vec<(usize, CallSite)>> {
    let frames = frames(thread);
    let code = Code::new(process.context.image, process.context.symbols);
    let mut taken: HashMap<Addr, Vec<(usize, CallSite)>> = HashMap::new();
    // From a guard to its lock.
    let mut guarded: HashMap<u64, Addr> = HashMap::new();
    let most = if calls.is_ambiguous { NEAR_FRAMES } else { CODE_FRAMES };
    for (native, frame) in frames.iter().enumerate().take(most).rev() {
        // What a search of the stack found may be a call that is over.
        if frame.trust == Trust::Scan {
            continue;
        }
        // Reading with values is dear: only where there is a call of these at all.
        let all = calls_of(memo, process, &code, frame.lookup);
        let matters = all.iter().any(|site| Step::of(site, calls).is_some());
        let gives_back = |site: &CallSite| matches!(Step::of(site, calls), Some(Step::Unlocks | Step::EndsGuard));
        let goes_on = || all.iter().any(|site| site.at > frame.lookup && gives_back(site));
        if !matters || calls.is_ambiguous && !goes_on() {
            continue;
        }
        for site in code.calls_before(frame, thread.pthread) {
            let Some(step) = Step::of(&site, calls) else { continue };
            let [guard, second, ..] = site.arguments;
            let first = match step {
                Step::Locks | Step::Unlocks => site.arguments.get(calls.lock).copied().flatten(),
                Step::BeginsGuard | Step::EndsGuard => guard,
            };
            // What another branch did says nothing of this thread.
            if code.is_elsewhere(site.at, frame.lookup) {
                continue;
            }
            let Some(first) = first.filter(|_| !calls.is_only).or(calls.is_only.then_some(0)) else { continue };
            match step {
                Step::Locks => taken.entry(Addr(first)).or_default().push((native, site)),
                Step::Unlocks => drop(taken.entry(Addr(first)).or_default().pop()),
                Step::BeginsGuard => {
                    if let Some(lock) = second.map(Addr) {
                        guarded.insert(first, lock);
                        taken.entry(lock).or_default().push((native, site));
                    }
                }
                Step::EndsGuard => {
                    if let Some(lock) = guarded.remove(&first) {
                        taken.entry(lock).or_default().pop();
                    }
                }
            }
        }
    }
    taken
}

/// What a call does to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It takes the lock that is its argument.
    Locks,
    /// It gives back the lock that is its argument.
    Unlocks,
    /// It makes of its first argument a guard that has its second.
    BeginsGuard,
    /// It gives back what the guard has that is its first argument.
    EndsGuard,
}

impl Step {
    /// What the call at `site` does, if it is one of `calls`.
    fn of(site: &CallSite, calls: &LockCalls) -> Option<Step> {
        let name = base_symbol(site.function.as_deref()?);
        let tables = [
            (calls.locks, Step::Locks),
            (calls.unlocks, Step::Unlocks),
            (calls.guards.begin, Step::BeginsGuard),
            (calls.guards.end, Step::EndsGuard),
        ];
        tables.iter().find(|(names, _)| names.iter().any(|pattern| is_named(name, pattern))).map(|(_, step)| *step)
    }
}

/// The calls of the function that covers `within`, read once.
fn calls_of(memo: &Memo, process: &Process<'_>, code: &Code<'_>, within: Addr) -> Rc<Vec<CallSite>> {
    let Some(start) = process.context.symbols.function_start(within) else { return Rc::default() };
    let known = memo.functions.borrow().get(&start).cloned();
    known.unwrap_or_else(|| {
        let calls = Rc::new(code.calls_in(within));
        memo.functions.borrow_mut().insert(start, calls.clone());
        calls
    })
}

//! `absl::Mutex` and `absl::CondVar`, the locks inside gRPC, TensorFlow, JAX and protobuf.
//!
//! In: the futex that a thread sleeps on, its registers and its stack. Out: the mutex that it waits for, and the
//! holder. A waiter sleeps on a word of its own (`ThreadIdentity`), which does not name the mutex. But the mutex names
//! the ring of its waiters. So an object that the waiter has at hand is the mutex if its ring contains the waiter.
//! Words decide, never a version or a symbol. Holders are recorded where Abseil's own detection of deadlocks is on.
//! Elsewhere code shows them, or else the address that threads have at hand.

mod calls;
mod layout;
mod queue;

use crate::image::{Addr, MemoryExt};
use crate::limits::absl::LOCK_FRAMES;
use crate::waits::blocked_on::{BlockedOn, Ownership, Readers, Unrecorded};
use crate::waits::family::{Family, Registered};
use crate::waits::holders::{Blocked, by_critical_section, exact_hold};
use crate::waits::identity::{key, label};
use crate::waits::kinds::{FUTEX, Giver, Holding, Kind, Topic, World};
use crate::waits::model::{Certainty, Hold, Party, Resource};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};
use calls::{ENTRY_POINTS, READERS, WRITERS};
use layout::{CONDITION_FLAGS, ONE_READER, READER, SIZE, WAIT, WRITER, identity, parameters};
use queue::{Queues, Waiter};

/// `absl::Mutex`.
const MUTEX: &Kind =
    &Kind::new("absl_mutex", "absl::Mutex", World::Native, Topic::ReadWriteLock, Giver::Holder, Holding::Holds);
/// A condition that `absl::Mutex` has a thread wait for (`Await`, `LockWhen`), while nobody has the mutex.
const AWAITED: &Kind = &Kind::new(
    "absl_condition",
    "condition of absl::Mutex",
    World::Native,
    Topic::Event,
    Giver::AnyThread,
    Holding::Holds,
);
/// `absl::CondVar`.
const CONDITION: &Kind =
    &Kind::new("absl_condvar", "absl::CondVar", World::Native, Topic::Event, Giver::AnyThread, Holding::Holds);

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered { kinds: &[MUTEX, AWAITED, CONDITION], open };

/// Bytes of stack that are searched: from the futex to the caller of `Lock` there are six frames of less
/// than 500 bytes in all (measured with -O0 and -O2).
const STACK: u64 = 1024;

/// The family, with the queues of each process.
#[derive(Debug)]
struct Absl {
    queues: Vec<Queues>,
}

/// Open the family.
fn open<'s>(processes: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    Box::new(Absl { queues: processes.iter().map(|_| Queues::default()).collect() })
}

/// Holders by Abseil's own account.
#[derive(Debug)]
struct Recorded {
    mutex: Addr,
    is_read: bool,
    /// Positions of threads, and what was read.
    holders: Vec<(usize, String)>,
}

impl Family for Absl {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        let below = below.filter(|below| below.resource.key.kind == FUTEX && !below.transient)?;
        let waiter = Waiter::of(process, &below.futex?)?;
        let queues = self.queues.get(process.context.process)?;
        let case = Case { process, thread, below, waiter, queues };
        case.mutex().or_else(|| case.condition_variable())
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for (wait, rule) in blocked.by_rule::<Recorded>() {
            let process = blocked.process(wait);
            let calls = if rule.is_read { &READERS } else { &WRITERS };
            let sections = by_critical_section::sections(blocked, process, rule.mutex, calls);
            for (position, evidence) in &rule.holders {
                let Some(thread) = process.threads.get(*position) else { continue };
                let holder = Party::Thread(process.context.process, thread.image.tid);
                let by_code = sections.iter().find(|section| section.thread == *position).map(|section| section.native);
                let at_hand = || thread.find_reference(process, rule.mutex, SIZE)?.native;
                let frame = by_code.or_else(at_hand).and_then(|native| thread.merged(native));
                let hold = exact_hold(&wait.blocked_on.resource.key, holder, calls.mode, vec![evidence.clone()]);
                out.holds.push(Hold { frame, ..hold });
            }
        }
    }
}

/// The input of a decoder.
struct Case<'a, 'b> {
    process: &'a Process<'b>,
    thread: &'a ThreadView<'b>,
    /// The kernel's account of the wait.
    below: &'a BlockedOn,
    waiter: Waiter,
    queues: &'a Queues,
}

impl Case<'_, '_> {
    /// The first thing at hand, with its word, that `is_it` and whose ring has the waiter; one that lies on the waiter's own
    /// stack only where there is no other.
    fn queued_in(&self, is_it: impl Fn(Addr, u64) -> bool) -> Option<(Addr, u64)> {
        let registers = self.thread.registers(LOCK_FRAMES).into_iter().map(|(_, _, value)| value);
        let words = self.thread.top(self.process, STACK).into_iter().map(|(_, word)| word);
        let values = registers.chain(words).filter(|value| value.is_multiple_of(8)).map(Addr);
        let (mut own, mut others): (Vec<Addr>, Vec<Addr>) = values.partition(|at| self.thread.on_own_stack(*at));
        // Further in than its parameters are Abseil's own frames, which have copies of the mutex's word (measured).
        own.retain(|at| *at >= self.waiter.parameters + parameters::SIZE);
        others.extend(own);
        others.into_iter().find_map(|at| {
            let word = self.process.memory().u64(at).ok()?;
            let found = is_it(at, word) && self.queues.waits_in(self.process, word, &self.waiter);
            found.then_some((at, word))
        })
    }

    fn resource(&self, kind: &'static Kind, at: Addr, state: Vec<(&'static str, i64)>) -> Resource {
        Resource {
            key: key(self.process, kind, at),
            process: self.process.context.process,
            label: label(self.process, self.thread, kind.noun, at),
            state,
            role: None,
        }
    }

    fn evidence(&self, noun: &str, at: Addr, word: u64) -> Vec<String> {
        let identity = self.waiter.identity;
        let futex = self.below.futex.map_or(Addr(0), |futex| futex.word);
        vec![
            format!("futex word {futex} = ThreadIdentity {identity} + {}", futex - identity),
            format!("the {noun} at {at} is {word:#x}: the ring of its waiters has {identity}"),
        ]
    }

    /// A wait for a mutex.
    fn mutex(&self) -> Option<BlockedOn> {
        let memory = self.process.memory();
        let (mutex, word) = self.queued_in(|_, word| word & WAIT != 0)?;
        let how = self.waiter.parameter(self.process, parameters::HOW);
        let reads = how.is_some_and(|how| memory.u64(how + parameters::FAST_ADD) == Ok(ONE_READER));
        let condition = self.waiter.parameter(self.process, parameters::CONDITION);
        let last = Addr(word & layout::HIGH);
        let count = || memory.u64(last + identity::READERS).map_or(0, |readers| readers / ONE_READER);
        let readers = (word & READER != 0).then(|| u32::try_from(count()).unwrap_or(u32::MAX));
        let state = vec![("writer", i64::from(word & WRITER != 0)), ("readers", i64::from(readers.unwrap_or(0)))];
        let is_free = word & (WRITER | READER) == 0;
        let kind = if is_free && condition.is_some() { AWAITED } else { MUTEX };
        let resource = self.resource(kind, mutex, state);
        let mut evidence = self.evidence("mutex", mutex, word);
        if let Some(condition) = condition {
            evidence.push(format!("it asks as well that the condition at {condition} be true"));
        }
        let decoded = self.below.refined(resource, ENTRY_POINTS, evidence);
        let decoded = decoded.with_mode(if reads { "read" } else { "write" });
        let gave_back = self.waiter.has_given_back(self.process).then_some(mutex);
        let decoded = BlockedOn { gave_back, ..decoded };
        Some(match is_free {
            // It waits for a thread that makes the condition true; or it has been let through and is about to wake.
            true => BlockedOn { certainty: Certainty::Inferred, ..decoded },
            false => decoded.owned(self.holder(mutex, readers)),
        })
    }

    /// The holder of a mutex: one of `readers` readers, or else a writer.
    fn holder(&self, mutex: Addr, readers: Option<u32>) -> Ownership {
        let account = self.queues.account(self.process).get(&mutex);
        if let Some(holders) = account.filter(|holders| holders.len() == readers.unwrap_or(1) as usize) {
            return Ownership::private(Recorded { mutex, is_read: readers.is_some(), holders: holders.clone() });
        }
        match readers {
            None => Ownership::Unrecorded(Unrecorded { lock: mutex, size: SIZE, calls: &WRITERS }),
            Some(count) => {
                Ownership::Readers(Readers { library: "Abseil", count, lock: mutex, size: SIZE, calls: &READERS })
            }
        }
    }

    /// A wait at a condition variable: the waiter's parameters have the mutex that it gave back.
    fn condition_variable(&self) -> Option<BlockedOn> {
        let mutex = self.waiter.parameter(self.process, parameters::MUTEX)?;
        // An address that leads to the waiters themselves, as their ring does, is no condition variable.
        let is_it =
            |at: Addr, word: u64| word & 0xff & !CONDITION_FLAGS == 0 && Waiter::around(self.process, at).is_none();
        let Some((at, word)) = self.queued_in(is_it) else {
            return Some(BlockedOn { gave_back: Some(mutex), ..self.below.clone() });
        };
        let resource = self.resource(CONDITION, at, vec![("mutex", mutex.0 as i64)]);
        let mut evidence = self.evidence("condition variable", at, word);
        evidence.push(format!("its mutex is {mutex}"));
        Some(BlockedOn { gave_back: Some(mutex), ..self.below.refined(resource, ENTRY_POINTS, evidence) })
    }
}

#[cfg(test)]
mod tests;

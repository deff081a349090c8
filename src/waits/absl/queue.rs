//! The queues of waiters: the identity that Abseil gives each thread, and the rings of threads that wait for one
//! object.
//!
//! In: the futex that a thread sleeps on. Out: its [`Waiter`], the rings, and by Abseil's own account who holds what. Nothing
//! here knows a name of the program.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::layout::{HIGH, held, identity, parameters};
use crate::image::{Addr, MemoryExt};
use crate::limits::absl::MOST_HELD;
use crate::waits::blocked_call::{self, Futex};
use crate::waits::thread::Process;

/// A thread that is queued for a mutex or at a condition variable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    /// Its `ThreadIdentity`.
    pub(super) identity: Addr,
    /// Its `SynchWaitParams`.
    pub(super) parameters: Addr,
}

impl Waiter {
    /// The waiter that sleeps on `futex`. The word lies in an identity that is queued, and whose parameters name it.
    pub(super) fn of(process: &Process<'_>, futex: &Futex) -> Option<Waiter> {
        let waiter = Waiter::around(process, futex.word)?;
        let is_its_word = identity::WAITER_STATE.contains(&(futex.word - waiter.identity));
        (futex.value == 0 && is_its_word).then_some(waiter)
    }

    /// Whose identity `at` lies in, if it is one that is queued.
    pub(super) fn around(process: &Process<'_>, at: Addr) -> Option<Waiter> {
        let identity = Addr(at.0 & !(identity::ALIGNMENT - 1));
        let memory = process.memory();
        let is_queued = memory.u32(identity + identity::STATE).is_ok_and(|state| state == identity::QUEUED);
        let parameters = memory.pointer(identity + identity::WAIT_PARAMETERS).ok()?;
        let names_it = || memory.pointer(parameters + parameters::THREAD).is_ok_and(|thread| thread == identity);
        (is_queued && names_it()).then_some(Waiter { identity, parameters })
    }

    /// Whether it released, on its way here, the mutex that it waits for: in `Await`, or on its way back from a
    /// condition variable. Names of functions do not show this: libraries without names have only those that they
    /// export (seen: Debian's 20220623).
    pub(super) fn has_given_back(&self, process: &Process<'_>) -> bool {
        process.memory().u8(self.identity + identity::HAS_GIVEN_BACK).is_ok_and(|flag| flag != 0)
    }

    /// A pointer of its parameters, unless it is null or not readable.
    pub(super) fn parameter(&self, process: &Process<'_>, offset: u64) -> Option<Addr> {
        process.memory().pointer(self.parameters + offset).ok().filter(|pointer| !pointer.is_null())
    }
}

/// The holders of each mutex by Abseil's own account: the position of the thread, and the evidence.
pub(super) type Account = HashMap<Addr, Vec<(usize, String)>>;

/// The queues of one process, as far as they were read.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Members, by the last one.
    rings: RefCell<HashMap<Addr, Rc<HashSet<Addr>>>>,
    account: OnceCell<Account>,
}

impl Queues {
    /// Whether a mutex or condition variable with this word has `waiter` in its ring.
    pub(super) fn waits_in(&self, process: &Process<'_>, word: u64, waiter: &Waiter) -> bool {
        let last = Addr(word & HIGH);
        let is_queued = |one: Addr| {
            let state = process.memory().u32(one + identity::STATE);
            state.is_ok_and(|state| state == identity::QUEUED)
        };
        if last.is_null() || last != waiter.identity && !is_queued(last) {
            return false;
        }
        let known = self.rings.borrow().get(&last).cloned();
        let ring = known.unwrap_or_else(|| {
            let ring = Rc::new(ring(process, last));
            self.rings.borrow_mut().insert(last, ring.clone());
            ring
        });
        ring.contains(&waiter.identity)
    }

    /// The mutexes that threads asleep in Abseil hold by its own account. Empty where its detection of deadlocks is
    /// off.
    pub(super) fn account(&self, process: &Process<'_>) -> &Account {
        self.account.get_or_init(|| account(process))
    }
}

/// The members of the ring whose last is `last`: no more than there are threads, as each waits for one thing.
fn ring(process: &Process<'_>, last: Addr) -> HashSet<Addr> {
    let next = |one: &Addr| {
        let next = process.memory().pointer(*one + identity::NEXT).ok();
        next.filter(|next| *next != last && !next.is_null())
    };
    std::iter::successors(Some(last), next).take(process.threads.len()).collect()
}

fn account(process: &Process<'_>) -> Account {
    let memory = process.memory();
    let mut account = Account::new();
    for (position, thread) in process.threads.iter().enumerate() {
        let Some(call) = thread.call else { continue };
        let futex = blocked_call::futex(call.row(process.architecture()), &call, memory);
        let Some(waiter) = futex.and_then(|futex| Waiter::of(process, &futex)) else { continue };
        let list = memory.pointer(waiter.identity + identity::ALL_LOCKS).ok().filter(|list| !list.is_null());
        let Some((list, count)) = list.and_then(|list| Some((list, memory.u32(list + held::COUNT).ok()?))) else {
            continue;
        };
        for entry in (0..count.min(MOST_HELD)).map(|index| list + held::LOCKS + held::ENTRY * u64::from(index)) {
            let Ok(mutex) = memory.pointer(entry) else { break };
            let evidence = format!("all_locks of {}, at {list}, has it at {entry}", thread.describe());
            account.entry(mutex).or_default().push((position, evidence));
        }
    }
    account
}

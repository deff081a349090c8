//! Holders of the resources that threads wait for: the rules that more than one family needs.
//!
//! In: [`Blocked`], all processes of a sample with the resources that their threads are blocked on. Out: holds and
//! gaps. [`resolve`] follows a wait's own account of its holder ([`Ownership`]). A family calls a rule itself where it
//! knows more than the wait shows.

pub(crate) mod by_critical_section;
pub(crate) mod by_owner_id;
pub(crate) mod by_reference;
pub(crate) mod counted_readers;
pub(crate) mod left_by_fork;
mod living_guards;
mod lock_steps;
pub(crate) mod rings;
pub(crate) mod taken_at;

use std::any::Any;
use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::blocked_on::{Ownership, ThreadWait, Unrecorded};
use super::model::{Hold, Party, Resource, ResourceKey, Strength};
use super::observations::Observations;
use super::thread::Process;
use crate::image::Addr;

/// All processes of a sample with what their threads are blocked on, and what the rules here keep of them.
#[derive(Debug)]
pub(crate) struct Blocked<'s> {
    processes: &'s [Process<'s>],
    waits: Vec<ThreadWait>,
    code: Vec<by_critical_section::Memo>,
    references: Vec<OnceCell<by_reference::Index>>,
}

impl<'s> Blocked<'s> {
    /// `waits` in the order of processes and threads.
    pub(crate) fn new(processes: &'s [Process<'s>], waits: Vec<ThreadWait>) -> Self {
        let code = processes.iter().map(|_| by_critical_section::Memo::default()).collect();
        let references = processes.iter().map(|_| OnceCell::new()).collect();
        Blocked { processes, waits, code, references }
    }

    /// All processes, in the order of the image.
    pub(crate) fn processes(&self) -> &'s [Process<'s>] {
        self.processes
    }

    /// The other captured processes that have the memory of this one.
    pub(crate) fn with_same_memory(&self, process: &Process<'_>) -> impl Iterator<Item = &'s Process<'s>> + use<'s> {
        let (own, owner) = (process.context.process, process.context.memory_owner());
        let others = self.processes.iter().filter(move |other| other.context.process != own);
        others.filter(move |other| other.context.memory_owner() == owner)
    }

    /// The process of a waiter.
    pub(crate) fn process(&self, wait: &ThreadWait) -> &'s Process<'s> {
        &self.processes[wait.process]
    }

    /// All waits, in the order of processes and threads.
    pub(crate) fn waits(&self) -> &[ThreadWait] {
        &self.waits
    }

    /// Whether a thread waits for `key`.
    pub(crate) fn waits_for(&self, key: &ResourceKey, process: usize, thread: usize) -> bool {
        self.of_thread(process, thread).any(|one| one.blocked_on.resource.key == *key)
    }

    /// Whether a thread gave back `lock` for as long as it waits.
    pub(crate) fn gave_back(&self, process: usize, thread: usize, lock: Addr) -> bool {
        self.of_thread(process, thread).any(|one| one.blocked_on.gave_back == Some(lock))
    }

    fn of_thread(&self, process: usize, thread: usize) -> impl Iterator<Item = &ThreadWait> {
        let first = self.waits.partition_point(|one| (one.process, one.thread) < (process, thread));
        self.waits[first..].iter().take_while(move |one| (one.process, one.thread) == (process, thread))
    }

    /// The waits of one process.
    pub(crate) fn waits_of(&self, process: usize) -> &[ThreadWait] {
        let first = self.waits.partition_point(|one| one.process < process);
        let end = self.waits.partition_point(|one| one.process <= process);
        &self.waits[first..end]
    }

    /// The first wait for each resource whose holder is found by a rule of this type: one search serves all its waits.
    pub(crate) fn by_rule<Rule: Any>(&self) -> Vec<(&ThreadWait, &Rule)> {
        let mut seen: BTreeSet<&ResourceKey> = BTreeSet::new();
        let own = self.waits.iter().filter_map(|wait| match &wait.blocked_on.ownership {
            Ownership::Private(rule) => Some((wait, rule.get::<Rule>()?)),
            _ => None,
        });
        own.filter(|(wait, _)| seen.insert(&wait.blocked_on.resource.key)).collect()
    }
}

/// Add the holders that the shared rules find, for each resource once.
pub(crate) fn resolve(blocked: &Blocked<'_>, out: &mut Observations) {
    let mut seen: BTreeSet<&ResourceKey> = BTreeSet::new();
    for wait in blocked.waits() {
        let (ownership, key) = (&wait.blocked_on.ownership, &wait.blocked_on.resource.key);
        match ownership {
            // Another wait for the same resource may have an account of its holder.
            Ownership::Unknown | Ownership::Private(_) => {}
            Ownership::Unnamed(why) => out.nobody_named(&wait.blocked_on.resource, why.clone()),
            _ if !seen.insert(key) => {}
            Ownership::Tid(owner) => by_owner_id::resolve(blocked, wait, owner, out),
            Ownership::Thread(position, evidence) => {
                let process = blocked.process(wait);
                if let Some(thread) = process.threads.get(*position) {
                    let holder = Party::Thread(process.context.process, thread.image.tid);
                    out.holds.push(exact_hold(key, holder, None, evidence.clone()));
                }
            }
            Ownership::LockedInCode(lock, calls) => {
                by_critical_section::holders(blocked, wait, *lock, calls, out);
            }
            Ownership::Unrecorded(Unrecorded { lock, size, calls }) => {
                if !by_critical_section::holders(blocked, wait, *lock, calls, out) {
                    by_reference::candidates(blocked, wait, *lock, *size, out);
                }
            }
            Ownership::ByReference(lock) => {
                if !living_guards::holders(blocked, wait, lock, out) {
                    by_reference::candidates(blocked, wait, lock.lock, lock.size, out);
                }
            }
            Ownership::Readers(readers) => counted_readers::holders(blocked, wait, readers, out),
        }
    }
}

/// Add a resource unless its key is there.
pub(crate) fn add_resource(out: &mut Observations, resource: &Resource) {
    if out.resource(&resource.key).is_none() {
        out.resources.push(resource.clone());
    }
}

/// An exact hold by `holder`.
pub(crate) fn exact_hold(
    resource: &ResourceKey,
    holder: Party,
    mode: Option<&'static str>,
    evidence: Vec<String>,
) -> Hold {
    Hold {
        holder,
        gone: None,
        resource: resource.clone(),
        mode,
        frame: None,
        taken: None,
        since_ms: None,
        source: None,
        strength: Strength::Recorded,
        evidence,
    }
}

//! What a thread is blocked on, and what that itself says of its holder.
//!
//! In: nothing. Out: [`BlockedOn`], which families make of a thread and refine, lowest family first; [`Ownership`], by which
//! the holder is looked for once all waits are known. Nothing here reads memory.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use super::blocked_call::{Call, Futex};
use super::model::{Certainty, Needs, Resource};
use crate::image::{Addr, Gap};

/// What a family says of one thread's wait.
#[derive(Debug, Clone)]
pub(crate) struct BlockedOn {
    /// What it waits for.
    pub resource: Resource,
    /// "read", "write".
    pub mode: Option<&'static str>,
    /// All holders or any of them.
    pub needs: Needs,
    /// Ends by itself.
    pub timed: bool,
    /// How sure.
    pub certainty: Certainty,
    /// What was read.
    pub evidence: Vec<String>,
    /// What could not be decided.
    pub gaps: Vec<Gap>,
    /// Prefixes of the names of the calls that wait so: the outermost of these frames is the wait's.
    pub entry_points: &'static [&'static str],
    /// The thread was woken or is about to retry: no wait is reported.
    pub transient: bool,
    /// What the lock itself says of its holder.
    pub ownership: Ownership,
    /// The system call, if it is in one.
    pub call: Option<Call>,
    /// The futex, if it sleeps on one.
    pub futex: Option<Futex>,
    /// It burns CPU instead of sleeping.
    pub spinning: bool,
    /// The other things that end the wait as well (poll, epoll, select).
    pub also: Vec<AlsoWaited>,
    /// Of how many things this is one.
    pub one_of: usize,
    /// The merged frame of the call that waits, where that is no native one.
    pub at: Option<usize>,
}

impl BlockedOn {
    /// An exact wait for `resource`, in the call that a lower family saw, if it saw one.
    pub(crate) fn of(resource: Resource, below: Option<&BlockedOn>, evidence: Vec<String>) -> BlockedOn {
        BlockedOn {
            resource,
            mode: None,
            needs: Needs::All,
            timed: below.is_some_and(|below| below.timed),
            certainty: Certainty::Exact,
            evidence,
            gaps: Vec::new(),
            entry_points: &[],
            transient: below.is_some_and(|below| below.transient),
            ownership: Ownership::Unknown,
            call: below.and_then(|below| below.call),
            futex: below.and_then(|below| below.futex),
            spinning: below.is_some_and(|below| below.spinning),
            also: Vec::new(),
            one_of: 1,
            at: None,
        }
    }

    /// A better account of the same wait: another resource, the same call.
    pub(crate) fn refined(
        &self,
        resource: Resource,
        entry_points: &'static [&'static str],
        evidence: Vec<String>,
    ) -> BlockedOn {
        BlockedOn { entry_points, ..BlockedOn::of(resource, Some(self), evidence) }
    }

    /// The same call, waiting for another of its things.
    pub(super) fn instead(&self, other: AlsoWaited) -> BlockedOn {
        let evidence = vec![other.evidence];
        BlockedOn { resource: other.resource, evidence, ownership: other.ownership, ..self.clone() }
    }

    /// The same with a holder.
    pub(crate) fn owned(mut self, ownership: Ownership) -> BlockedOn {
        self.ownership = ownership;
        self
    }

    /// The same with a gap.
    pub(crate) fn with_gap(mut self, gap: Gap) -> BlockedOn {
        self.gaps.push(gap);
        self
    }

    /// The same with a mode.
    pub(crate) fn with_mode(mut self, mode: &'static str) -> BlockedOn {
        self.mode = Some(mode);
        self
    }
}

/// A wait with the positions of its process and thread.
#[derive(Debug, Clone)]
pub(crate) struct ThreadWait {
    /// Position among the processes of the sample.
    pub process: usize,
    /// Position in [`Process::threads`](super::thread::Process::threads).
    pub thread: usize,
    /// The wait.
    pub blocked_on: BlockedOn,
}

/// One of the things that a call waits for.
#[derive(Debug, Clone)]
pub(crate) struct AlsoWaited {
    /// What.
    pub resource: Resource,
    /// What was read.
    pub evidence: String,
    /// Who has it.
    pub ownership: Ownership,
}

/// What a lock's own words say of its holder: which rule finds it.
#[derive(Debug, Clone)]
pub(crate) enum Ownership {
    /// Nothing: it has no holder, or none that is recorded.
    Unknown,
    /// The id of a thread.
    Tid(Owner),
    /// The thread at this position, with what was read.
    Thread(usize, Vec<String>),
    /// Whoever's code has taken the lock here by such calls: nobody records it.
    LockedInCode(Addr, &'static LockCalls),
    /// Whoever has the address of the lock here at hand, of so many bytes: nobody records it, and no call takes it.
    ByReference(Addr, u64),
    /// Readers that the lock counts and does not name.
    Readers(Readers),
    /// What only the family that decoded the wait knows to look for.
    Private(Private),
}

impl Ownership {
    /// A rule of one family's own, found again by its type.
    pub(crate) fn private(rule: impl Any) -> Ownership {
        Ownership::Private(Private(Rc::new(rule)))
    }
}

/// A value of one family, which no other can look into.
#[derive(Clone)]
pub(crate) struct Private(Rc<dyn Any>);

impl Private {
    /// The value, if it is one of this type.
    pub(crate) fn get<Rule: Any>(&self) -> Option<&Rule> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Private {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Private")
    }
}

/// An owner as a lock names it.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    /// The id in the lock.
    pub tid: i32,
    /// The kernel marked the lock: its owner died (robust and priority-inheriting ones).
    pub died: bool,
    /// "write" for the writer of an rwlock.
    pub mode: Option<&'static str>,
    /// Address of the lock, as the waiter's process sees it.
    pub lock: Addr,
    /// Bytes of the lock.
    pub size: u64,
    /// What was read.
    pub evidence: Vec<String>,
}

/// Readers of a lock that are counted and not named.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readers {
    /// How many there are.
    pub count: u32,
    /// Address of the lock, as the waiter's process sees it.
    pub lock: Addr,
    /// Bytes of the lock.
    pub size: u64,
    /// The calls that take it for reading.
    pub calls: &'static LockCalls,
}

/// The calls that take a kind of lock and give it back.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockCalls {
    /// "read", "write".
    pub mode: Option<&'static str>,
    /// Names of the calls that take it, as [`plain_name`](crate::symbols::plain_name) gives them.
    pub locks: &'static [&'static str],
    /// Names of the calls that give it back.
    pub unlocks: &'static [&'static str],
    /// The calls are used for other things as well: only where the same function goes on to give back what it took is
    /// it a lock.
    pub is_ambiguous: bool,
}

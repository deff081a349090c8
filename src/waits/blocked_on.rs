//! The resource that a thread is blocked on, and the holder that the resource itself names.
//!
//! In: nothing. Out: [`BlockedOn`], which families make for a thread and refine, lowest family first; and
//! [`Ownership`], the rule for finding the holder once all waits are known. Nothing here reads memory.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use super::blocked_call::{Call, Futex};
use super::model::{Certainty, Needs, Resource, has_one_end};
use crate::image::{Addr, Gap};

/// A family's result for one thread's wait.
#[derive(Debug, Clone)]
pub(crate) struct BlockedOn {
    /// The resource that it waits for.
    pub(crate) resource: Resource,
    /// "read", "write".
    pub(crate) mode: Option<&'static str>,
    /// All holders or any of them.
    pub(crate) needs: Needs,
    /// Ends by itself.
    pub(crate) timed: bool,
    /// Each try has a time-out, and is followed by another one for ever: as of
    /// [`Wait::retried`](super::model::Wait::retried).
    pub(crate) retried: bool,
    /// How sure.
    pub(crate) certainty: Certainty,
    /// The evidence: values that were read.
    pub(crate) evidence: Vec<String>,
    /// The undecided parts.
    pub(crate) gaps: Vec<Gap>,
    /// How the names of the calls that wait so [begin](crate::symbols::begins_with): the outermost of these frames is the
    /// wait's.
    pub(crate) entry_points: &'static [&'static str],
    /// The thread was woken or is about to retry: no wait is reported.
    pub(crate) transient: bool,
    /// The lock's own account of its holder.
    pub(crate) ownership: Ownership,
    /// The system call, if it is in one.
    pub(crate) call: Option<Call>,
    /// The futex, if it sleeps on one.
    pub(crate) futex: Option<Futex>,
    /// It burns CPU instead of sleeping.
    pub(crate) spinning: bool,
    /// The other things that end the wait as well (poll, epoll, select).
    pub(crate) also: Vec<AlsoWaited>,
    /// The number of resources that the thread waits for together, this one included.
    pub(crate) one_of: usize,
    /// The merged frame of the call that waits, where that is no native one.
    pub(crate) at: Option<usize>,
    /// The lock that the call gave back for as long as it waits, as calls for conditions do: code that took it does not
    /// have it now.
    pub(crate) gave_back: Option<Addr>,
}

impl BlockedOn {
    /// An exact wait for `resource`, in the call that a lower family saw, if it saw one.
    pub(crate) fn of(resource: Resource, below: Option<&BlockedOn>, evidence: Vec<String>) -> BlockedOn {
        BlockedOn {
            resource,
            mode: None,
            needs: Needs::All,
            timed: below.is_some_and(|below| below.timed),
            retried: below.is_some_and(|below| below.retried),
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
            gave_back: None,
        }
    }

    /// Whether nothing but what it waits for ends it, as of [`Wait::has_one_end`](crate::waits::model::Wait::has_one_end).
    pub(crate) fn has_one_end(&self) -> bool {
        has_one_end(self.timed, self.spinning, self.certainty, self.resource.key.kind)
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

    /// The same, but each time-out is followed by another try for ever, for this reason.
    pub(crate) fn retried(mut self, evidence: String) -> BlockedOn {
        (self.timed, self.retried) = (false, true);
        self.certainty = self.certainty.min(Certainty::Inferred);
        self.evidence.push(evidence);
        self
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
    pub(crate) process: usize,
    /// Position in [`Process::threads`](super::thread::Process::threads).
    pub(crate) thread: usize,
    /// The wait.
    pub(crate) blocked_on: BlockedOn,
}

/// One of the things that a call waits for.
#[derive(Debug, Clone)]
pub(crate) struct AlsoWaited {
    /// What.
    pub(crate) resource: Resource,
    /// The evidence: a value that was read.
    pub(crate) evidence: String,
    /// The holder.
    pub(crate) ownership: Ownership,
}

/// A lock's own account of its holder: the rule that finds the holder.
#[derive(Debug, Clone)]
pub(crate) enum Ownership {
    /// Nothing: it has no holder, or none that is recorded.
    Unknown,
    /// Nothing, though it has a holder; the reason.
    Unnamed(String),
    /// The id of a thread.
    Tid(Owner),
    /// The thread at this position, with what was read.
    Thread(usize, Vec<String>),
    /// The thread whose code has taken the lock here by these calls: no word records it.
    LockedInCode(Addr, &'static LockCalls),
    /// The threads with a living guard of it; where no code shows that, the threads with its address at hand. No word records the
    /// holder, and no call takes the lock.
    ByReference(Referenced),
    /// The thread whose code has taken it; where no code shows that, the threads with its address at hand. No word
    /// records the holder.
    Unrecorded(Unrecorded),
    /// Readers that the lock counts and does not name.
    Readers(Readers),
    /// A rule that only the family that decoded the wait knows.
    Private(Private),
}

impl Ownership {
    /// A rule of one family's own, found again by its type.
    pub(crate) fn private(rule: impl Any) -> Ownership {
        Ownership::Private(Private { rule: Rc::new(rule), is_guess: false })
    }

    /// The same for a word that looks like a lock: any family with a better result overrides it.
    pub(crate) fn guess(rule: impl Any) -> Ownership {
        Ownership::Private(Private { rule: Rc::new(rule), is_guess: true })
    }

    /// Whether no holder is recorded, and it may be no lock at all.
    pub(crate) fn is_of_nobody(&self) -> bool {
        match self {
            Ownership::Unknown | Ownership::Unnamed(_) => true,
            Ownership::Private(private) => private.is_guess,
            _ => false,
        }
    }
}

/// A value of one family, which no other can look into.
#[derive(Clone)]
pub(crate) struct Private {
    rule: Rc<dyn Any>,
    is_guess: bool,
}

impl Private {
    /// The value, if it is one of this type.
    pub(crate) fn get<Rule: Any>(&self) -> Option<&Rule> {
        self.rule.downcast_ref()
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
    pub(crate) tid: i32,
    /// The kernel marked the lock: its owner died (robust and priority-inheriting ones).
    pub(crate) died: bool,
    /// "write" for the writer of an rwlock.
    pub(crate) mode: Option<&'static str>,
    /// Address of the lock, as the waiter's process sees it.
    pub(crate) lock: Addr,
    /// Bytes of the lock.
    pub(crate) size: u64,
    /// The evidence: values that were read.
    pub(crate) evidence: Vec<String>,
}

/// A lock whose holder is found by its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Referenced {
    /// Address of the lock, as the waiter's process sees it.
    pub(crate) lock: Addr,
    /// Bytes of the lock.
    pub(crate) size: u64,
    /// The objects that have it for as long as they live, where it has such.
    pub(crate) guards: Option<LivingGuards>,
}

/// Objects of Rust that have a lock for as long as they live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LivingGuards {
    /// A part of the name of their type: "::MutexGuard<".
    pub(crate) of: &'static str,
    /// "read", "write".
    pub(crate) mode: Option<&'static str>,
    /// How many there are by the lock's own word.
    pub(crate) count: u32,
}

/// A lock without a recorded holder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unrecorded {
    /// Address of the lock, as the waiter's process sees it.
    pub(crate) lock: Addr,
    /// Bytes of the lock.
    pub(crate) size: u64,
    /// The calls that take it.
    pub(crate) calls: &'static LockCalls,
}

/// Readers of a lock that are counted and not named.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readers {
    /// Whose lock it is: "glibc".
    pub(crate) library: &'static str,
    /// How many there are.
    pub(crate) count: u32,
    /// Address of the lock, as the waiter's process sees it.
    pub(crate) lock: Addr,
    /// Bytes of the lock.
    pub(crate) size: u64,
    /// The calls that take it for reading.
    pub(crate) calls: &'static LockCalls,
}

/// The calls that take a kind of lock and give it back, as [`is_named`](crate::symbols::is_named) compares their names.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockCalls {
    /// "read", "write".
    pub(crate) mode: Option<&'static str>,
    /// Names of the calls that take it.
    pub(crate) locks: &'static [&'static str],
    /// Names of those among them that may return without it, because it is taken or their time is up.
    pub(crate) may_fail: &'static [&'static str],
    /// Names of the calls that give it back.
    pub(crate) unlocks: &'static [&'static str],
    /// Objects that have it for as long as they live.
    pub(crate) guards: Guards,
    /// The calls are used for other things as well: only where the same function goes on to give back what it took is
    /// it a lock.
    pub(crate) is_ambiguous: bool,
    /// There is one such lock in a process, and no argument names it.
    pub(crate) is_only: bool,
    /// Which of the arguments of both, from 0, is the lock.
    pub(crate) lock: usize,
}

/// Calls of objects that have a lock for as long as they live. Compilers make such calls out of line where they do not
/// optimise (-O0).
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guards {
    /// Constructors that take the lock: the guard is their first argument, the lock their second.
    pub(crate) begin: &'static [&'static str],
    /// Destructors, and calls that give the lock back before: the guard is their first argument.
    pub(crate) end: &'static [&'static str],
}

impl Guards {
    /// There are none.
    pub(crate) const NONE: Guards = Guards { begin: &[], end: &[] };
}

//! The words of this stage: waits, holds, the resources between them, who waits and holds, how sure that is.
//!
//! In: nothing. Out: plain, owned types. Nothing here reads memory or knows a family.

use std::net::SocketAddr;

use super::kinds::{Giver, Holding, Kind};
use super::label::Label;
use crate::image::Addr;

/// How sure a wait or a hold is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// One of several possible holders. Candidates alone never make a cycle.
    Candidate,
    /// One possible holder, by a rule with a stated premise.
    Inferred,
    /// Memory, registers or the kernel record it.
    Exact,
}

/// How strong the reason is to believe that a party holds something, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// One of several possible holders.
    Candidate,
    /// The only possible holder: every other thread of the process was fully unwound and shows no trace of the lock.
    SoleCandidate,
    /// One possible holder, by a rule with a stated premise.
    Inferred,
    /// Inferred by a rule that leaves no other holder unless the program misuses the lock.
    Sole,
    /// The kernel records it, as of one that shares what another took, and may give it back, too.
    Sharer,
    /// Memory, registers or the kernel record it.
    Recorded,
}

impl Strength {
    /// The certainty that a report gives to it.
    pub(crate) fn certainty(self) -> Certainty {
        match self {
            Strength::Candidate | Strength::SoleCandidate => Certainty::Candidate,
            Strength::Inferred | Strength::Sole => Certainty::Inferred,
            Strength::Sharer | Strength::Recorded => Certainty::Exact,
        }
    }
}

/// Whether every holder must let go, or one of several is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Needs {
    /// Every holder must let go.
    All,
    /// One of several is enough.
    Any,
}

/// Where a resource lives: equal keys are the same node of the graph, also across processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    /// Private memory of the process with this position in the image.
    Process(usize),
    /// Shared memory: (device, inode, offset).
    Shared((i32, i32), u64, u64),
    /// A child of the process with this position in the image: that one, or the first to end.
    Child(usize, Option<i32>),
    /// A kernel object of the whole system, named by a family ("pipe:1234").
    System(String),
}

/// A node of the graph that is not a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceKey {
    /// Its kind.
    pub kind: &'static Kind,
    /// Where it lives.
    pub scope: Scope,
    /// Its address, or 0 for one that has none.
    pub address: Addr,
}

impl ResourceKey {
    /// Whether it is given by threads of one process and by nobody else.
    pub(crate) fn is_given_inside(&self) -> bool {
        matches!(self.scope, Scope::Process(_)) && self.kind.giver != Giver::Outside
    }
}

/// The facts about a resource.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// Its identity.
    pub key: ResourceKey,
    /// The process in whose memory `address` was seen (position in the image).
    pub process: usize,
    /// Its name.
    pub label: Label,
    /// Words read from it, by field name, for the JSON `state`.
    pub state: Vec<(&'static str, i64)>,
    /// Its role beside its kind.
    pub role: Option<Role>,
}

/// A resource's role for the verdict on a wait for it, beyond its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The resource that a library's own threads wait for when they have nothing to do.
    IdleWork,
    /// An event loop.
    EventLoop {
        /// How many tasks it has.
        tasks: usize,
    },
    /// A future whose work stands in the queue of a pool.
    QueuedFuture,
    /// A future of concurrent.futures that no pool runs, or one that a pool runs now.
    Future,
    /// A queue that is waited for until each of its items is done.
    UnfinishedItems {
        /// How many are not, by its own count.
        count: u64,
    },
    /// The event that ends the wait of a task.
    Completed(Completion),
    /// A result of a pool of processes whose task is lost.
    LostTask,
    /// A lock that is an extension's own.
    ExtensionLock,
    /// The place of readers behind a writer that waits for the same lock and goes first.
    BehindWriter,
    /// A connection to this address.
    Connection(SocketAddr),
    /// A connection that nobody has accepted yet.
    Unaccepted,
    /// A pipe into which lockscope itself writes.
    ThisReport,
}

/// The act that ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// An item is put into a queue.
    Put,
    /// An item is taken out of a queue.
    Get,
    /// An event is set.
    Set,
    /// A condition is notified.
    Notify,
    /// A unit of a semaphore is given back.
    Release,
    /// A lock is released by the task or thread that took it.
    Unlock,
    /// The other parties of a barrier arrive.
    Arrive,
    /// A future gets its result.
    Resolve,
    /// The other end of a connection sends.
    Send,
    /// The connections of a server are closed.
    Close,
    /// A thread is unparked.
    Unpark,
}

/// A waiter or holder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Party {
    /// A captured thread: (process position, tid in lockscope's namespace).
    Thread(usize, i32),
    /// A captured process as a whole: any of its threads may let go.
    Process(usize),
    /// A resource that itself waits (a CUDA stream, an asyncio task).
    Resource(ResourceKey),
    /// A holder that has ended, or is outside the capture: (process position, former tid as the lock names it).
    Absent(usize, i32),
}

/// Why a holder can never let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Gone {
    /// The thread exited with the lock held.
    Exited,
    /// The owner is a thread of the parent; fork copied the lock but not the thread.
    LeftInParent,
    /// The owner's process is dead.
    ProcessDead,
}

/// One wait.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    /// The waiter: a thread or a resource.
    pub waiter: Party,
    /// For what.
    pub resource: ResourceKey,
    /// "read", "write", ... where the resource knows modes.
    pub mode: Option<&'static str>,
    /// All holders, or any of them.
    pub needs: Needs,
    /// Ends by itself: has a time-out and is not retried for ever.
    pub timed: bool,
    /// Each try has a time-out and is followed by another one for ever, by the code of the waiter: `timed` is not set.
    pub retried: bool,
    /// Sleeping since, in milliseconds.
    pub since_ms: Option<u64>,
    /// Index into the waiter's merged frames of the call that waits.
    pub frame: Option<usize>,
    /// How sure.
    pub certainty: Certainty,
    /// The evidence: each value that was read, and its location.
    pub evidence: Vec<String>,
    /// Burns CPU instead of sleeping.
    pub spinning: bool,
    /// The line where it waits, of a waiter that has no frames: a task.
    pub place: Option<TakenAt>,
}

/// As of [`Wait::has_one_end`].
pub(super) fn has_one_end(timed: bool, spinning: bool, certainty: Certainty, kind: &Kind) -> bool {
    !timed && (!spinning || certainty == Certainty::Exact && kind.is_gpu())
}

impl Wait {
    /// Whether nothing but what it waits for ends it. A thread may spin beside other work, and a lock may come free
    /// between two of its tries; in a call that only waits for the GPU neither happens.
    pub(crate) fn has_one_end(&self) -> bool {
        has_one_end(self.timed, self.spinning, self.certainty, self.resource.kind)
    }
}

/// A line of source at which something was taken, or at which who has no frames waits.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[non_exhaustive]
pub struct TakenAt {
    /// The file.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function.
    pub function: String,
    /// The variable that gives it back when it goes, where there is one: `a` of `std::lock_guard a(from.m)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// The task that is suspended there, where the thread of its loop holds the lock for it: `Task-6 (across)`. (Since 1.2.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Where that task is suspended: `app.py:21`. (Since 1.2.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<String>,
}

impl TakenAt {
    /// A line of a function, without a guard or a task.
    pub(crate) fn at(file: impl Into<String>, line: u32, function: impl Into<String>) -> TakenAt {
        TakenAt { file: file.into(), line, function: function.into(), guard: None, task: None, suspended_at: None }
    }
}

/// The observer of a hold that neither the lock nor the code of a thread shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HoldSource {
    /// The recorder, which the command was started with (`lockscope run --record`).
    Recorder,
}

/// One hold.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    /// The holder.
    pub holder: Party,
    /// Set when the holder can never let go.
    pub gone: Option<Gone>,
    /// What.
    pub resource: ResourceKey,
    /// "read", "write".
    pub mode: Option<&'static str>,
    /// Index into the holder's merged frames of the call that took it, where known.
    pub frame: Option<usize>,
    /// Where it was taken, where that is known: the frame itself has gone on since.
    pub taken: Option<TakenAt>,
    /// How long ago it was taken, in milliseconds, where that is known.
    pub since_ms: Option<u64>,
    /// The observer of the take, where there was one.
    pub source: Option<HoldSource>,
    /// How strong the reason is to believe it.
    pub strength: Strength,
    /// The evidence: each value that was read, and its location.
    pub evidence: Vec<String>,
}

impl Hold {
    /// Whether a cycle may run through it. A candidate is not enough, unless every other thread is ruled out as the holder. The
    /// taker explains more than those that share its lock.
    pub(crate) fn closes_cycles(&self) -> bool {
        !matches!(self.strength, Strength::Candidate | Strength::Sharer)
    }

    /// Whether the holder is more than a candidate.
    pub(crate) fn is_known(&self) -> bool {
        self.strength >= Strength::Inferred
    }

    /// Whether the holder is a process with the other end of a pipe, a socket or a queue. The data must come from
    /// another of its threads, so a thread never waits for itself through such a hold.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.holder, Party::Process(_))
            && matches!(self.resource.kind.holding, Holding::OtherEnd | Holding::Writes)
    }
}

/// How a wait may still end, beside by those who hold what is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WakeSource {
    /// The awaited resource.
    pub resource: ResourceKey,
    /// The party whose wait may end so; `None` means every waiter for the resource.
    pub waiter: Option<Party>,
    /// The thread or event that would end it.
    pub by: Waker,
    /// For people, after "because": "the handler `handle_term` at main.py:12 (SIGTERM) could still wake it".
    pub what: String,
}

impl WakeSource {
    /// Whether it is one for a party that waits for its resource.
    pub(crate) fn is_for(&self, waiter: &Party) -> bool {
        self.waiter.as_ref().is_none_or(|only| only == waiter)
    }
}

/// A thread or event that could end a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waker {
    /// This thread, or any of this process, unless it can never go on itself.
    Party(Party),
    /// An event that comes by itself, or one that lockscope does not see and that may come.
    ByItself,
    /// An event that first needs a request: the handler of a signal that is to be sent.
    OnRequest,
}

/// A resource whose possible wakers are all known: its [`WakeSource`]s and its holders, no other.
#[derive(Debug, Clone)]
pub(crate) struct KnownWakers {
    /// The awaited resource.
    pub resource: ResourceKey,
    /// Why no thread or event ends the wait if no wake source is left, without the resource's name.
    pub why: String,
    /// The certainty that no other waker exists.
    pub certainty: Certainty,
    /// The wakers that could have ended the wait, and why they cannot.
    pub ruled_out: Vec<String>,
    /// It follows from the standstill of the whole process: a cycle or a lost owner there explains it better.
    pub whole_process: bool,
    /// A wait for it says something about the program, and is not the idling of a library.
    pub is_reportable: bool,
}

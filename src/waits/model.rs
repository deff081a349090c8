//! The words of this stage: waits, holds, the resources between them, who waits and holds, how sure that is.
//!
//! In: nothing. Out: plain, owned types. Nothing here reads memory or knows a family.

use super::kinds::Kind;
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
    /// A child of the process with this position in the image: that one, or whichever ends first.
    Child(usize, Option<i32>),
    /// A kernel object of the whole system, named by a family ("pipe:1234").
    System(String),
}

/// A node of the graph that is not a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceKey {
    /// What it is.
    pub kind: &'static Kind,
    /// Where it lives.
    pub scope: Scope,
    /// Its address, or 0 for one that has none.
    pub address: Addr,
}

/// What is known of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// Its identity.
    pub key: ResourceKey,
    /// The process in whose memory `address` was seen (position in the image).
    pub process: usize,
    /// What it is called.
    pub label: Label,
    /// Words read from it, by field name, for the JSON `state`.
    pub state: Vec<(&'static str, i64)>,
    /// What it is beside its kind.
    pub role: Option<Role>,
}

/// What a resource is to whoever judges a wait for it, beyond its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// What a library's own threads wait for when they have nothing to do.
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
    /// A result of a pool of processes whose task is lost.
    LostTask,
    /// A lock that is an extension's own.
    ExtensionLock,
    /// The place of readers behind a writer that waits for the same lock and goes first.
    BehindWriter,
}

/// Who waits or holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Party {
    /// A captured thread: (process position, tid in lockscope's namespace).
    Thread(usize, i32),
    /// A captured process as a whole: any of its threads may let go.
    Process(usize),
    /// A resource that itself waits (a CUDA stream, an asyncio task).
    Resource(ResourceKey),
    /// A holder that is gone for good or outside the capture: (process position, former tid as the lock names it).
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
    /// Who waits: a thread or a resource.
    pub waiter: Party,
    /// For what.
    pub resource: ResourceKey,
    /// "read", "write", ... where the resource knows modes.
    pub mode: Option<&'static str>,
    /// All holders, or any of them.
    pub needs: Needs,
    /// Ends by itself: has a time-out and is not retried for ever.
    pub timed: bool,
    /// Sleeping since, in milliseconds.
    pub since_ms: Option<u64>,
    /// Index into the waiter's merged frames of the call that waits.
    pub frame: Option<usize>,
    /// How sure.
    pub certainty: Certainty,
    /// What was read, where, its value.
    pub evidence: Vec<String>,
    /// Burns CPU instead of sleeping.
    pub spinning: bool,
    /// The line where it waits, of a waiter that has no frames: a task.
    pub place: Option<TakenAt>,
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
}

/// Who saw that something was taken, where neither the lock nor the code of a thread tells it.
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
    /// Who holds.
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
    /// Who saw it being taken, where somebody did.
    pub source: Option<HoldSource>,
    /// How sure.
    pub certainty: Certainty,
    /// The holder is a process that has one end of a pipe or socket. The data must come from another of its threads; a
    /// thread never counts as waiting for itself.
    pub is_end: bool,
    /// The rule that inferred it leaves no other holder but by misuse of the lock.
    pub is_sole_holder: bool,
    /// How many readers the lock counts, where it counts them and names none.
    pub counted_readers: Option<u32>,
    /// A candidate beside which there is no other, and each thread of the process was looked at whole.
    pub is_sole_candidate: bool,
    /// What was read, where, its value.
    pub evidence: Vec<String>,
}

/// How a wait may still end, beside by those who hold what is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hope {
    /// What is waited for.
    pub resource: ResourceKey,
    /// Whose wait may end so; that of everybody who waits for it, where nobody is named.
    pub waiter: Option<Party>,
    /// Who or what would end it.
    pub by: Hoped,
    /// For people, after "because": "the handler `handle_term` at main.py:12 (SIGTERM) could still wake it".
    pub what: String,
}

/// Who or what could end a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hoped {
    /// This thread, or any of this process, unless it can never go on itself.
    Party(Party),
    /// What comes by itself, or what is not seen and may come.
    Coming,
    /// What somebody has to ask for first: the handler of a signal that is to be sent.
    Asked,
}

/// A resource of which all that could end a wait for it is known: nobody but those of its [`Hope`]s and its holders.
#[derive(Debug, Clone)]
pub(crate) struct Enclosed {
    /// What is waited for.
    pub resource: ResourceKey,
    /// How it is known that nobody ends the wait if no hope is left, without the resource's name.
    pub why: String,
    /// How sure it is that there is nobody else.
    pub certainty: Certainty,
    /// What could have ended the wait, and why it cannot.
    pub ruled_out: Vec<String>,
    /// It follows from the standstill of the whole process: a cycle or a lost owner there explains it better.
    pub whole_process: bool,
    /// A wait for it tells of the program, and is not the idling of a library.
    pub is_told: bool,
}

//! Joint operations of a job's ranks: an operation that a thread is in, and the ranks that it waits for there.
//!
//! In: nothing. Out: [`Collective`], the `state` of a resource of kind `collective` in the JSON contract. Nothing here reads memory.

use serde::{Deserialize, Serialize};

/// Operations that no rank leaves before all of the group have entered, as PyTorch names them.
const SYNCHRONISING: [&str; 6] =
    ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "all_reduce_coalesced"];

/// Whether no rank leaves an operation of PyTorch's before all of the group have entered.
pub(crate) fn synchronises(op: &str) -> bool {
    SYNCHRONISING.contains(&op)
}

/// An operation's name in PyTorch's Flight Recorder: `nccl:all_reduce`, `nccl:_all_gather_base`, `nccl:recv 1<-0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Called<'n> {
    /// `nccl`.
    pub backend: &'n str,
    /// `all_gather`.
    pub op: &'n str,
    /// The other end of a message: its rank in the group.
    pub other: Option<u32>,
}

impl<'n> Called<'n> {
    /// From its name.
    pub(crate) fn of(name: &'n str) -> Called<'n> {
        let (backend, call) = name.split_once(':').unwrap_or(("torch", name));
        let mut words = call.split(' ');
        let op = words.next().unwrap_or_default().trim_start_matches('_');
        // `to->from` and `to<-from`: the own one first.
        let ends = words.next().and_then(|pair| pair.split_once("<-").or_else(|| pair.split_once("->")));
        Called {
            backend,
            op: op.strip_suffix("_base").unwrap_or(op),
            other: ends.and_then(|(_, other)| other.parse().ok()),
        }
    }
}

/// The place of a process among the ranks of its job, by its back end's own object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnRank {
    /// Its number.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
}

/// The last operation of a group that a rank has enqueued.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Enqueued {
    /// Whose library works on it: `gloo`, `nccl`.
    pub backend: String,
    /// The group, by a name that all its ranks have for it.
    pub group: String,
    /// Its number there.
    pub last: u64,
    /// `all_reduce`.
    pub op: String,
    /// It is done.
    pub over: bool,
    /// How many ranks the group has.
    pub size: Option<u32>,
}

/// An operation between ranks, as one of them sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Collective {
    /// Whose library it is: `openmpi`, `mpich`, `mpi`, `gloo`, `nccl`.
    pub backend: String,
    /// The group that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The operation: `recv`, `send`, `barrier`, `allreduce`.
    pub op: String,
    /// Its number among those of the group, where the back end counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The waiter's own rank in the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How many ranks the group has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Ranks of the job that it waits for now, where the back end says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<u32>,
    /// The tag of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<i64>,
    /// Where the request lies that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// A digest of that request's words, its counters of bytes among them: equal in two looks if nothing moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// The other side has come: bytes are on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<bool>,
    /// Whether no rank leaves the operation before all have entered it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synchronises: bool,
    /// Whether one of the peers is enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any: bool,
    /// Where the call returns to, if no data of the library's own distinguishes two calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns_to: Option<String>,
    /// How many messages the process is sending that are not over, where all of them are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_sends: Option<u32>,
    /// How many it has begun to receive, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_receives: Option<u32>,
    /// The other source of these facts, where the waiter's own memory does not have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<String>,
}

//! A process's identity among processes of other hosts, and the facts that join it with them.
//!
//! In: nothing. Out: plain data of the contract.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Host, Verdict};

pub use crate::image::launch::Namespaces;
pub use crate::launcher::{Job, JobEngine};

/// The identity of a process: its host, and its place in a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Identity {
    /// Its id in its own PID namespace.
    pub ns_pid: i32,
    /// Its namespaces.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// Its start, in clock ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// Its job, by the variables of the innermost launcher, or by its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// Its rank in the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The number of ranks of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// The number of earlier attempts of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its number among the ranks of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// The number of ranks on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_size: Option<u32>,
    /// It is a helper, which inherited the rank from the process that is the rank. Workers of a DataLoader are such
    /// helpers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub helper: bool,
    /// The process that started the ranks of this node: process id and ticks of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<(i32, u64)>,
    /// Its machine, in a report over several. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Addresses of its network namespace, except loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// One end of a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Connection {
    /// Its descriptor; the lowest if there are several.
    pub fd: i32,
    /// Address and port of this end.
    pub local: String,
    /// Address and port of the other end.
    pub remote: String,
    /// `established`, `close-wait`, ...
    pub state: String,
    /// Bytes that have arrived and were not read.
    pub unread: u64,
    /// Bytes that were sent and not acknowledged.
    pub unsent: u64,
    /// Bytes that a rank's connection has carried since it was opened, both ways together, if the kernel counts them.
    /// (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// All ranks of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct JobRanks {
    /// Its name: engine, id and step.
    #[serde(default)]
    pub job: Option<String>,
    /// Its engine.
    pub engine: JobEngine,
    /// The noun for a member that has no rank: `process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The number of ranks, if a launcher names it.
    #[serde(default)]
    pub size: Option<u32>,
    /// Ranks that have a sample: `0-2,5`.
    pub reported: String,
    /// Ranks without a sample.
    pub missing: String,
    /// Missing ranks that have ended.
    pub ended: String,
    /// Each rank was sampled in two rounds.
    pub two_rounds: bool,
    /// Ranks with the same activity, the rarest group first.
    pub groups: Vec<RankGroup>,
}

/// Ranks with the same activity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RankGroup {
    /// `0-2,5`.
    pub ranks: String,
    /// The number of ranks.
    pub count: usize,
    /// The verdict on each rank alone.
    pub verdict: Verdict,
    /// Their common wait, and its place.
    pub doing: String,
}

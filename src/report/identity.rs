//! What tells a process from those of other hosts, and what joins it with them.
//!
//! In: nothing. Out: plain data of the contract.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Host, Verdict};
pub use crate::image::launch::Namespaces;
pub use crate::launcher::Job;

/// Which process of which job it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Identity {
    /// Its id in its own PID namespace.
    pub ns_pid: i32,
    /// Its namespaces.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// When it started, in clock ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// The job that it belongs to, by the variables of the innermost launcher, or by the word of its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// Its rank there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How many ranks there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// How many times the job was started again before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its number among the ranks of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// How many ranks its node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_size: Option<u32>,
    /// It inherited the rank from the process that is the rank, as workers of a DataLoader do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub helper: bool,
    /// What started the ranks of this node: process id and ticks of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<(i32, u64)>,
    /// The machine that it runs on, in a report over several. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Addresses of its network namespace, without those of loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// One end of a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Connection {
    /// Its descriptor; the first of several.
    pub fd: i32,
    /// Address and port of this end.
    pub local: String,
    /// Address and port of the other end.
    pub remote: String,
    /// `established`, `close-wait`, ...
    pub state: String,
    /// Bytes that have come and were not read.
    pub unread: u64,
    /// Bytes that were sent and not acknowledged.
    pub unsent: u64,
    /// Bytes that it has carried since it was opened, both ways together, of a rank and where the kernel counts them. (Since 1.1.)
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
    /// `torchrun`, `mpi`, `slurm`, `kubernetes`.
    pub engine: String,
    /// What one of them is called where it has no rank: `process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// How many ranks there are, where a launcher says so.
    #[serde(default)]
    pub size: Option<u32>,
    /// Ranks of which there is a look: `0-2,5`.
    pub reported: String,
    /// Ranks of which there is none.
    pub missing: String,
    /// Those of the missing ones that have ended.
    pub ended: String,
    /// Each rank was looked at in two rounds.
    pub two_rounds: bool,
    /// Ranks that do the same, the rarest first.
    pub groups: Vec<RankGroup>,
}

/// Ranks that do the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RankGroup {
    /// `0-2,5`.
    pub ranks: String,
    /// How many.
    pub count: usize,
    /// What lockscope says of each alone.
    pub verdict: Verdict,
    /// What they wait for, and where.
    pub doing: String,
}

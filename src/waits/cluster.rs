//! The processes of a cluster of workers by their own account: their roles, and the tasks that their threads run, hold
//! and wait for.
//!
//! In: nothing. Out: [`ClusterMember`], plain data of the report and of digests. Nothing here reads memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kinds::{self, Kind};
use crate::launcher::JobEngine;

/// A process of a cluster, by its own memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ClusterMember {
    /// Dask or Ray.
    pub engine: JobEngine,
    /// The address of the scheduler, or of Ray's control service, which all processes of a cluster share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The job that its tasks are of, where the cluster has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The process's roles in the cluster: several where one process starts everything.
    pub roles: Vec<ClusterRole>,
    /// Tasks that its threads run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningTask>,
    /// Tasks that it is to run and has no thread for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ready: Vec<String>,
    /// How many more such tasks there are than are named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ready_beyond: usize,
    /// The waits of its threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<ClusterRequest>,
    /// Locks and semaphores of the cluster that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<ClusterLease>,
    /// For a scheduler: tasks that wait for other tasks, with those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingTask>,
    /// For a scheduler: the leases that it has given, for each lock or semaphore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<Granted>,
}

/// The part of a process in a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ClusterPart {
    /// It runs tasks.
    Worker,
    /// It gives them to workers.
    Scheduler,
    /// It asks for them.
    Client,
    /// It starts a worker and looks after it.
    Nanny,
    /// Something that this version does not know, from a later one's file.
    #[default]
    #[serde(other)]
    Other,
}

impl ClusterPart {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ClusterPart::Worker => "worker",
            ClusterPart::Scheduler => "scheduler",
            ClusterPart::Client => "client",
            ClusterPart::Nanny => "nanny",
            ClusterPart::Other => "process",
        }
    }
}

/// The kind of thing that a thread asks a cluster for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ClusterThing {
    /// A lock of the cluster.
    Lock,
    /// A unit of a semaphore of the cluster.
    Semaphore,
    /// An event of the cluster.
    Event,
    /// A queue of the cluster.
    Queue,
    /// A variable of the cluster.
    Variable,
    /// Results of tasks, all of them.
    Result,
    /// One of several results.
    Wait,
    /// An answer to any other call.
    #[default]
    #[serde(other)]
    Answer,
}

impl ClusterThing {
    /// Its kind of resource in a cluster of Dask.
    pub(crate) fn kind_of_dask(self) -> &'static Kind {
        match self {
            ClusterThing::Lock => kinds::DASK_LOCK,
            ClusterThing::Semaphore => kinds::DASK_SEMAPHORE,
            ClusterThing::Event => kinds::DASK_EVENT,
            ClusterThing::Queue => kinds::DASK_QUEUE,
            ClusterThing::Variable => kinds::DASK_VARIABLE,
            ClusterThing::Result => kinds::DASK_RESULT,
            ClusterThing::Wait | ClusterThing::Answer => kinds::DASK_ANSWER,
        }
    }
}

/// A process's role in a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ClusterRole {
    /// Its part there.
    pub role: ClusterPart,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The cluster's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its id, which no other has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How many tasks a worker runs at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The id of its machine in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The id of the actor that it is; `name` is the actor's class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// A task in a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunningTask {
    /// The thread.
    pub tid: i32,
    /// Its key; in Ray its function.
    pub task: String,
    /// Its id, where that is not its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// It has left its place to another one (`secede`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_seceded: bool,
    /// It burns CPU, in digests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_busy: bool,
    /// The thread's activity, in digests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doing: String,
}

/// A thread's wait in a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ClusterRequest {
    /// The thread.
    pub tid: i32,
    /// The task that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The kind of thing that it asks for.
    pub what: ClusterThing,
    /// The name of it, or the keys of the tasks whose results are wanted.
    pub names: Vec<String>,
    /// A text that no other request has. Each part stays the same for as long as this request lasts.
    pub request: String,
    /// It gives up by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
    /// The line of the program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The one task of it is not done: the thread waits for that word, and not for the bytes of the result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_undone: bool,
}

/// A lock or a unit of a semaphore that a process has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ClusterLease {
    /// A lock or a semaphore.
    pub what: ClusterThing,
    /// Its name.
    pub name: String,
    /// How many may have one at a time.
    pub most: u64,
    /// Names of the leases, as the scheduler knows them.
    pub leases: Vec<String>,
    /// The thread that is inside its `with` block, or that alone has it at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<i32>,
    /// The task that this thread runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The line of the program that took it, or that has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The thread is inside the `with` block: no other thread gives it back but by misuse.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_entered: bool,
}

/// A task that waits for others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct WaitingTask {
    /// Its key.
    pub task: String,
    /// Keys of the tasks that it waits for.
    pub on: Vec<String>,
}

/// The leases of one lock or semaphore that a scheduler has given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Granted {
    /// Its name.
    pub name: String,
    /// How many may have one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// Names of the leases.
    pub leases: Vec<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

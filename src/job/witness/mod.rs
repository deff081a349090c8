//! Other programs' accounts of the ranks of a job: PyTorch's Flight Recorder, NCCL's RAS, Ray's list of tasks, Slurm
//! and Kubernetes.
//!
//! In: the bytes of a file. Out: a [`Witness`]. For a rank it has the last operation that the rank has entered and not
//! left; for a task its state and place; for a node or pod the reason why it does not run. Witnesses know facts that no
//! stack shows: a kernel of NCCL that was enqueued long ago, and the ranks that have not enqueued it. An account is of
//! one moment of each rank, so it alone never shows that something stood still. The file is foreign: nothing in it is
//! executed.
//!
//! ```text
//! pickle           plain data in a pickle, as JSON
//! flight_recorder  a dump of PyTorch's Flight Recorder
//! ras              an answer of NCCL's RAS
//! ray_tasks        Ray's list of tasks
//! slurm            Slurm's account of jobs, steps and nodes; its lists of nodes in `node_list`
//! pods             lists of Kubernetes' pods and jobs
//! ```

// All of its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod flight_recorder;
mod node_list;
mod pickle;
mod pods;
mod ras;
mod ray_tasks;
mod slurm;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::content;
use super::long_message::shortened;
use crate::launcher::JobEngine;
use crate::nccl_ras::{self, Answer};
use crate::report::{Gap, NcclRas};
use crate::waits::collective::Collective;

/// Another program's file about ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Witness {
    /// Its name: made from its content.
    #[serde(default)]
    pub id: String,
    /// Whose it is, for people.
    pub source: String,
    /// The name of its file.
    pub file: String,
    pub accounts: Vec<Account>,
    /// Accounts of tasks. Since 1.2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskAccount>,
    /// Accounts of jobs. Since 1.3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobAccount>,
    /// Accounts of nodes and pods. Since 1.3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceAccount>,
    /// Data that it lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A witness's accounts of jobs, and of the places where their ranks are, or should be.
#[derive(Debug, Default)]
struct Places {
    jobs: Vec<JobAccount>,
    places: Vec<PlaceAccount>,
}

/// A witness's account of a job, or of a step of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobAccount {
    /// `slurm`, `kubernetes`.
    pub engine: JobEngine,
    /// Its number or name there.
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// How many ranks it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// The nodes that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The reason why it does not run: "is CANCELLED".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fate: Option<String>,
}

/// Where ranks of a job run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlaceKind {
    #[default]
    Node,
    Pod,
}

impl PlaceKind {
    /// The noun for it.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            PlaceKind::Node => "node",
            PlaceKind::Pod => "pod",
        }
    }
}

/// A witness's account of a node or pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlaceAccount {
    pub kind: PlaceKind,
    pub name: String,
    /// Names by which samples there may call their host.
    pub hosts: Vec<String>,
    /// The job that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The rank that it is for, if it is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How many ranks its job has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// The reason why it does not run: "is DOWN (Not responding)".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fate: Option<String>,
    /// Its processes have ended, and none is to come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
    /// When it was made: of several for one rank the last counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
}

/// A witness's account of one rank in one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// The rank of the job.
    pub rank: u32,
    /// Its process, in its own PID namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The group.
    pub group: String,
    /// The ranks of the job in it, in the order of their ranks there; none where that is not said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
    /// The number of the last operation that the rank has entered there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The first operation that it has entered and not left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Collective>,
    /// Its data: types and sizes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// The line of the program that entered it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Since when, in nanoseconds since 1970, by the clock of its machine: the first of several groups is what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
}

/// A witness's account of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskAccount {
    /// Its id.
    pub task: String,
    /// Its name for people: `Partner.answer`.
    pub name: String,
    /// The engine's word for its state.
    pub state: String,
    /// The worker that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// How many times it was tried before.
    #[serde(default)]
    pub attempt: u64,
}

/// Why a file that looks like a witness's was not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum WitnessError {
    /// Its bytes are not what they seem.
    #[error("`{file}` looks like {source_name}, but {why}")]
    Damaged {
        /// The file.
        file: String,
        /// Whose it seems to be.
        source_name: &'static str,
        /// The fault.
        why: String,
    },
}

const RECORDER: &str = "PyTorch's Flight Recorder";
const RAS: &str = "NCCL's RAS";
const RAY: &str = "Ray's list of tasks";
const SLURM: &str = "Slurm's account";
const KUBERNETES: &str = "Kubernetes' list of pods";

impl Witness {
    /// The file of this name, if it is one of a witness.
    pub(crate) fn read(bytes: &[u8], file: &str) -> Option<Result<Witness, WitnessError>> {
        let damaged = |source_name, why| WitnessError::Damaged { file: file.to_owned(), source_name, why };
        if pickle::is_one(bytes) {
            let value = pickle::read(bytes).map_err(|error| damaged(RECORDER, error.to_string()));
            return Some(value.and_then(|value| {
                let accounts = flight_recorder::accounts(&value, file).map_err(|why| damaged(RECORDER, why));
                accounts.map(|(accounts, gaps)| Witness::named(RECORDER, file, accounts, gaps))
            }));
        }
        if slurm::is_text(bytes) {
            let launched = slurm::of_text(&String::from_utf8_lossy(bytes));
            return Some(Ok(Witness::of_places(SLURM, file, launched)));
        }
        // The server's lines before its answer.
        let bytes = match bytes.starts_with(b"SERVER PROTOCOL ") {
            true => {
                bytes.iter().position(|byte| *byte == b'{').and_then(|begin| bytes.get(begin..)).unwrap_or_default()
            }
            false => bytes,
        };
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        if !first.is_some_and(|byte| b"{[".contains(byte)) {
            return None;
        }
        let value = nccl_ras::json(bytes)?;
        if flight_recorder::is_one(&value) {
            let accounts = flight_recorder::accounts(&value, file).map_err(|why| damaged(RECORDER, why));
            return Some(accounts.map(|(accounts, gaps)| Witness::named(RECORDER, file, accounts, gaps)));
        }
        if Answer::is_one(&value) {
            let (accounts, gaps) = ras::accounts(&Answer::of(&value));
            return Some(Ok(Witness::named(RAS, file, accounts, gaps)));
        }
        if let Some((tasks, gaps)) = ray_tasks::read(&value) {
            let tasks = Witness { tasks, gaps, ..Witness::default() };
            return Some(Ok(tasks.of(RAY, file)));
        }
        if slurm::is_json(&value) {
            return Some(Ok(Witness::of_places(SLURM, file, slurm::of_json(&value))));
        }
        if pods::is_one(&value) {
            return Some(Ok(Witness::of_places(KUBERNETES, file, pods::places(&value))));
        }
        None
    }

    /// The answer of NCCL's RAS to lockscope itself.
    pub(crate) fn of_ras(answer: &NcclRas) -> Witness {
        let communicators = answer.communicators.clone();
        let (accounts, gaps) = ras::accounts(&Answer { communicators });
        // Its address may be that of a machine, which a redacted digest does not name.
        Witness::named(RAS, "", accounts, gaps)
    }

    fn named(source: &str, file: &str, accounts: Vec<Account>, gaps: Vec<Gap>) -> Witness {
        Witness { accounts, gaps, ..Witness::default() }.of(source, file)
    }

    fn of_places(source: &str, file: &str, found: Places) -> Witness {
        let Places { mut jobs, mut places } = found;
        let fates = jobs.iter_mut().map(|job| &mut job.fate).chain(places.iter_mut().map(|place| &mut place.fate));
        fates.flatten().for_each(|fate| *fate = shortened(fate));
        Witness { jobs, places, ..Witness::default() }.of(source, file)
    }

    /// The same with a name, and whose it is.
    fn of(mut self, source: &str, file: &str) -> Witness {
        // Without its folder: the same file merges to the same bytes everywhere.
        file.rsplit('/').next().unwrap_or(file).clone_into(&mut self.file);
        source.clone_into(&mut self.source);
        self.id = self.content();
        self
    }

    /// The name that its content gives it.
    pub(super) fn content(&self) -> String {
        content::name(&Witness { id: String::new(), ..self.clone() })
    }
}

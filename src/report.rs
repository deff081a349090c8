//! The report: owned, serialisable, versioned. Renderers and the JSON schema see this and nothing else.
//!
//! Additive changes raise the minor version; readers ignore what they do not know; addresses are hex strings; ids are
//! strings; every list may be empty.

mod empty;
mod evidence;
mod finding;
mod gpu;
mod identity;
mod participant;
mod process;
mod shorten;
mod waiting;
mod working;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::image::{Gap, Host};
pub use crate::nccl_ras::{Communicator as NcclCommunicator, Rank as NcclRank};
pub use crate::threads::FrameKind;
pub use crate::waits::cluster::{
    ClusterLease, ClusterMember, ClusterPart, ClusterRequest, ClusterRole, ClusterThing, Granted, RunningTask,
    WaitingTask,
};
pub use crate::waits::label::{Label, Place, Wanted};
pub use crate::waits::model::{Certainty, Gone, HoldSource, Needs, TakenAt};
pub use crate::waits::proof::Proof;
pub(crate) use evidence::evidence;
pub use finding::{Finding, FindingClass, Severity, ThreadReference};
pub use gpu::{Gpu, GpuCollective, GpuError, GpuKernel, GpuLine, GpuPlace, NcclRas};
pub use identity::{Connection, Identity, Job, JobEngine, JobRanks, Namespaces, RankGroup};
pub use participant::{Participant, ParticipantLine, ParticipantPlace};
pub use process::{
    CallSite, Callback, CudaCall, CudaCallError, CudaError, CudaInfo, Enqueued, Frame, Library, Process, PythonInfo,
    Thread, ThreadState, Trust,
};
pub(crate) use shorten::{
    base_name, function as short_function, installed, path as short_path, sentences as shorten_sentences,
    word as short_word,
};
pub use waiting::{Cycle, Edge, Hold, Resource, Wait};
pub use working::{NativeFrame, SystemCall, Words, Working};

/// `version` of the JSON.
pub const VERSION: &str = "1.2";

/// The verdict, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// A cycle or knot of edges without a time-out, each `recorded` or by `code`; nothing in it moved.
    Deadlock,
    /// A cycle with an edge by `absence`, a candidate or a time-out, confirmed by a second sample.
    SuspectedDeadlock,
    /// A thread waits for a lock whose owner no longer exists.
    OrphanedLock,
    /// A wait that provably nothing can end.
    Stuck,
    /// A thread of the first process was on CPU, or used CPU between two samples.
    Running,
    /// Everything else: chains that end outside, at a timer, input, or an unknown waker.
    Blocked,
    /// Nothing hung, and locks were taken in orders that could deadlock. (Since 1.1.)
    CouldDeadlock,
    /// Nothing hung, and no possible deadlock was found. (Since 1.1.)
    NothingFound,
}

impl Report {
    /// Threads that never go on: the participants, and the threads that wait because of them.
    pub(crate) fn hang(&self) -> BTreeSet<(&str, i32)> {
        let cycles = self.cycles.iter().flat_map(|cycle| &cycle.edges);
        let mut hang: BTreeSet<(&str, i32)> =
            cycles.filter_map(|edge| Some((edge.process.as_str(), edge.waiter?))).collect();
        // Each of them: which one comes first says nothing of the others.
        let errors = self.findings.iter().filter(|finding| finding.severity == Severity::Error);
        hang.extend(errors.flat_map(|finding| &finding.threads).map(ThreadReference::key));
        if hang.is_empty() {
            let gone: BTreeSet<&str> =
                self.holds.iter().filter(|hold| hold.gone.is_some()).map(|hold| hold.resource.as_str()).collect();
            let lost = self.waits.iter().filter(|wait| gone.contains(wait.resource.as_str()) && !wait.timed);
            hang.extend(lost.filter_map(|wait| Some((wait.process.as_str(), wait.tid?))));
        }
        if hang.is_empty() {
            let first = self.findings.first().filter(|finding| finding.severity != Severity::Note);
            hang.extend(first.iter().flat_map(|finding| &finding.threads).map(ThreadReference::key));
        }
        hang.extend(self.victims.iter().map(ThreadReference::key));
        hang
    }

    /// Findings that differ from each other, each with the number of further findings that say the same. Members of one
    /// pool do the same, each in a cycle of its own.
    pub(crate) fn different_findings(&self) -> Vec<(usize, &Finding, usize)> {
        let mut different: Vec<(usize, &Finding, usize)> = Vec::new();
        for (position, finding) in self.findings.iter().enumerate() {
            match different.iter_mut().find(|(_, other, _)| other.says_the_same(finding)) {
                Some((.., more)) => *more += 1,
                None => different.push((position, finding, 0)),
            }
        }
        different
    }

    /// The processes, beside its own, with findings that say the same as this one.
    pub(crate) fn also_found_in<'r>(&'r self, finding: &'r Finding) -> BTreeSet<&'r str> {
        let threads = self.findings.iter().filter(|other| other.says_the_same(finding)).flat_map(|one| &one.threads);
        let is_own = |process: &str| finding.threads.iter().any(|thread| thread.process == process);
        threads.map(|thread| thread.process.as_str()).filter(|process| !is_own(process)).collect()
    }

    /// Whether a finding before this one gives the same advice, which is shown once.
    pub fn advice_was_given(&self, position: usize) -> bool {
        let Some(this) = self.findings.get(position) else { return false };
        self.findings[..position].iter().any(|before| before.code == this.code && before.help == this.help)
    }
}

impl Finding {
    fn says_the_same(&self, other: &Finding) -> bool {
        (&self.code, &self.title, &self.help) == (&other.code, &other.title, &other.help)
    }
}

impl Verdict {
    /// The verdict in words, for the first line of a text.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::SuspectedDeadlock => "suspected deadlock",
            Verdict::OrphanedLock => "orphaned lock",
            Verdict::CouldDeadlock => "could deadlock",
            Verdict::NothingFound => "nothing found",
            _ => self.as_str(),
        }
    }

    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Deadlock => "deadlock",
            Verdict::SuspectedDeadlock => "suspected-deadlock",
            Verdict::OrphanedLock => "orphaned-lock",
            Verdict::Stuck => "stuck",
            Verdict::Running => "running",
            Verdict::Blocked => "blocked",
            Verdict::CouldDeadlock => "could-deadlock",
            Verdict::NothingFound => "nothing-found",
        }
    }

    /// Exit status: 1 if something wrong was found, else 0.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Deadlock | Verdict::SuspectedDeadlock | Verdict::OrphanedLock | Verdict::Stuck => 1,
            Verdict::Running | Verdict::Blocked | Verdict::CouldDeadlock | Verdict::NothingFound => 0,
        }
    }
}

/// The whole report (`lockscope.report`).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Report {
    /// Always `lockscope.report`.
    pub schema: String,
    /// [`VERSION`].
    pub version: String,
    /// lockscope's own version.
    pub lockscope: String,
    /// The source of the facts.
    pub source: Source,
    /// The machine that the processes ran on, if known. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The verdict.
    pub verdict: Verdict,
    /// The sentence of the text report.
    pub summary: String,
    /// One sentence that sums up the report. (Since 1.1.)
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sentence: String,
    /// The participants, at the lines of source that matter. If nothing is wrong, the main thread. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenes: Vec<Participant>,
    /// Whom the scenes are to show where nothing is wrong and others matter more than the main thread.
    #[serde(skip)]
    pub(crate) foremost: Vec<ThreadReference>,
    /// Things whose waiting tasks the scenes show in place of threads.
    #[serde(skip)]
    pub(crate) awaited: Vec<String>,
    /// Captured processes.
    pub processes: Vec<Process>,
    /// Locks and other objects that something waits for.
    pub resources: Vec<Resource>,
    /// Waits.
    pub waits: Vec<Wait>,
    /// Holds.
    pub holds: Vec<Hold>,
    /// Cycles, the shortest first, at most 50, each minimal.
    pub cycles: Vec<Cycle>,
    /// Threads that do not take part, and cannot go on because of the cycles. Without cycles: because of the locks
    /// whose owner is gone, else because of the threads of the first finding that is no mere note.
    #[serde(default)]
    pub victims: Vec<ThreadReference>,
    /// Tasks and other resources that wait as threads do, and cannot go on for the same reason: their ids. (Since 1.2.)
    #[serde(default)]
    pub victim_resources: Vec<String>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// The origin of the prediction, if threads were held back until this happened (`lockscope run --provoke`). (Since 1.2.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_to_happen: Option<String>,
    /// Facts that could not be read or decided.
    pub gaps: Vec<Gap>,
    /// All ranks of a job, in groups, if the report is on a job. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobRanks>,
    /// The answers of NCCL's RAS, if a process waits for its GPU. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nccl_ras: Vec<NcclRas>,
    /// Statistics of the samples.
    pub capture: Capture,
}

/// The source of the facts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Source {
    /// The kind of the source.
    pub kind: SourceKind,
    /// The file, if the source is one.
    pub path: Option<String>,
}

/// The kind of a report's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SourceKind {
    /// Running processes.
    Live,
    /// ELF core files.
    Core,
    /// A snapshot of lockscope's own.
    Snapshot,
    /// Several merged reports.
    Merged,
    /// The files of a recorder. (Since 1.1.)
    Recorded,
}

/// Statistics of the samples.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Capture {
    /// Number of captured threads.
    pub threads: usize,
    /// The longest time that a process was stopped, in microseconds.
    pub pause_us: u64,
    /// Wall time of the whole capture and analysis, in microseconds.
    pub total_us: u64,
    /// Number of samples.
    pub looks: u32,
    /// How threads' registers were read in the last sample. (Since 1.1.)
    #[serde(default)]
    pub registers: RegistersRead,
    /// Start of the first sample, by the machine's clock (RFC 3339, UTC), if known. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    /// End of the last sample. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// How many threads' registers were read in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RegistersRead {
    /// By a stop of the thread.
    pub by_stop: usize,
    /// All registers of a sleeping thread, by an eBPF task iterator.
    pub asleep_by_ebpf: usize,
    /// System call, stack pointer and pc of a sleeping thread, by /proc.
    pub asleep_by_proc: usize,
    /// How often threads that did not come to their stop in time were stopped again, in the sample with the most of
    /// these.
    #[serde(default)]
    pub asked_again: u32,
}

/// "2 more tasks and 1 more thread are stuck behind it", if there are any.
pub(crate) fn stuck_behind(threads: usize, tasks: usize) -> Option<String> {
    let counted = |count: usize, one: &str, several: &str| match count {
        0 => None,
        1 => Some(format!("1 more {one}")),
        count => Some(format!("{count} more {several}")),
    };
    let both = [counted(tasks, "task", "tasks"), counted(threads, "thread", "threads")];
    let both: Vec<String> = both.into_iter().flatten().collect();
    let are = if threads + tasks == 1 { "is" } else { "are" };
    (!both.is_empty()).then(|| format!("{} {are} stuck behind it", both.join(" and ")))
}

//! The report: owned, serialisable, versioned. Renderers and the JSON schema see this and nothing else.
//!
//! Additive changes raise the minor version; readers ignore what they do not know; addresses are hex strings; ids are
//! strings; every list may be empty.

mod evidence;
mod gpu;
mod identity;
mod scene;
mod shorten;
mod working;

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::image::{Gap, Host};
pub use crate::threads::FrameKind;
use crate::threads::RUST_TESTS;
pub use crate::waits::cluster::{
    ClusterLease, ClusterMember, ClusterRequest, ClusterRole, Granted, RunningTask, WaitingTask,
};
use crate::waits::kinds::{self, Kind, Topic};
use crate::waits::label::Called;
pub use crate::waits::label::{Label, Place, Wanted};
pub use crate::waits::model::{Certainty, Gone, HoldSource, Needs, TakenAt};
pub(crate) use evidence::evidence;
pub use gpu::{Gpu, GpuCollective, GpuError, GpuKernel, GpuLine, GpuPlace};
pub use identity::{Connection, Identity, Job, JobRanks, Namespaces, RankGroup};
pub use scene::{Scene, SceneLine, ScenePlace};
pub(crate) use shorten::{
    base_name, function as short_function, installed, path as short_path, sentences as shorten_sentences,
    word as short_word,
};
pub use working::{NativeFrame, SystemCall, Words, Working};

/// `version` of the JSON.
pub const VERSION: &str = "1.1";

/// The verdict, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// A cycle or knot, every edge untimed and exact or by a binding rule, nothing in it moved.
    Deadlock,
    /// A cycle with another inferred or a timed edge, confirmed by a second look.
    SuspectedDeadlock,
    /// A thread waits for a lock whose owner is gone for good.
    OrphanedLock,
    /// A wait that provably nobody can end.
    Stuck,
    /// A thread of the first process was on CPU, or used CPU between two samples.
    Running,
    /// Everything else: chains that end outside, at a timer, input, or an unknown waker.
    Blocked,
    /// Nothing hung, and locks were taken in orders that could deadlock. (Since 1.1.)
    CouldDeadlock,
    /// Nothing hung, and nothing was seen that could. (Since 1.1.)
    NothingFound,
}

impl Report {
    /// Threads that never go on: those that take part in what is wrong, and those that wait because of them.
    pub(crate) fn hang(&self) -> BTreeSet<(&str, i32)> {
        let cycles = self.cycles.iter().flat_map(|cycle| &cycle.edges);
        let mut hang: BTreeSet<(&str, i32)> =
            cycles.filter_map(|edge| Some((edge.process.as_str(), edge.waiter?))).collect();
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

    /// Findings of which each says something else, with how many more there are of the same: members of one pool do the same, each in
    /// a cycle of its own.
    pub(crate) fn different_findings(&self) -> Vec<(usize, &Finding, usize)> {
        let mut different: Vec<(usize, &Finding, usize)> = Vec::new();
        for (position, finding) in self.findings.iter().enumerate() {
            let is_like = |other: &Finding| {
                (&other.code, &other.title, &other.help) == (&finding.code, &finding.title, &finding.help)
            };
            match different.iter_mut().find(|(_, other, _)| is_like(other)) {
                Some((.., more)) => *more += 1,
                None => different.push((position, finding, 0)),
            }
        }
        different
    }

    /// Whether a finding before this one gives the same advice: to read it twice helps nobody.
    pub fn advice_was_given(&self, position: usize) -> bool {
        let Some(this) = self.findings.get(position) else { return false };
        self.findings[..position].iter().any(|before| before.code == this.code && before.help == this.help)
    }
}

impl Verdict {
    /// The words of the first line for a person.
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

    /// Exit status: 1 when something wrong was found, else 0.
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
    /// Where the facts come from.
    pub source: Source,
    /// The machine that the processes ran on, where that is known. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The verdict.
    pub verdict: Verdict,
    /// The sentence of the text report.
    pub summary: String,
    /// One sentence: what a person reads first. (Since 1.1.)
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sentence: String,
    /// Who takes part, at the lines of source that matter; the main thread, where nothing is wrong. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenes: Vec<Scene>,
    /// Captured processes.
    pub processes: Vec<Process>,
    /// Locks and other things waited for.
    pub resources: Vec<Resource>,
    /// Waits.
    pub waits: Vec<Wait>,
    /// Holds.
    pub holds: Vec<Hold>,
    /// Cycles, the shortest first, at most 50, each minimal.
    pub cycles: Vec<Cycle>,
    /// Threads outside of what is wrong that cannot go on because of it: because of the cycles, else of the locks whose owner is
    /// gone, else of the threads of the first finding that is no mere note.
    #[serde(default)]
    pub victims: Vec<ThreadReference>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// What could not be read or decided.
    pub gaps: Vec<Gap>,
    /// All ranks of a job, in groups, where the report is of one. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobRanks>,
    /// How the look went.
    pub capture: Capture,
}

/// Where the facts come from.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Source {
    /// What was looked at.
    pub kind: SourceKind,
    /// The file, if it was one.
    pub path: Option<String>,
}

/// What was looked at.
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
    /// Several reports, made one.
    Merged,
    /// What a recorder wrote down. (Since 1.1.)
    Recorded,
}

/// One process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Process {
    /// `p0`, `p1`, ...
    pub id: String,
    /// Process id.
    pub pid: i32,
    /// Program.
    pub exe: Option<String>,
    /// Arguments.
    pub cmdline: Vec<String>,
    /// Parent's process id.
    pub parent: Option<i32>,
    /// CPython, if it runs one.
    pub python: Option<PythonInfo>,
    /// CUDA, if it is loaded.
    pub cuda: Option<CudaInfo>,
    /// Which process of which job it is, where that is known. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// What it is to a cluster of workers, as Dask's. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterMember>,
    /// Its TCP connections. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<Connection>,
    /// Its GPUs, where there are cores of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
    /// What it has enqueued last in each group of ranks, by PyTorch's Flight Recorder in its memory. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enqueued: Vec<Enqueued>,
    /// Threads.
    pub threads: Vec<Thread>,
}

/// The last operation of a group of ranks that a process has enqueued: what is not there it has not come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Enqueued {
    /// `gloo`, `nccl`.
    pub backend: String,
    /// The group.
    pub group: String,
    /// Its number there.
    pub last: u64,
    /// `all_reduce`.
    pub op: String,
    /// It is done.
    pub over: bool,
    /// How many ranks the group has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
}

/// CPython of a process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct PythonInfo {
    /// `3.12.3`.
    pub version: String,
    /// Built with `--disable-gil`.
    pub free_threaded: bool,
}

/// CUDA of a process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CudaInfo {
    /// Version of the user-mode driver.
    pub libcuda: Option<String>,
    /// Version of the runtime, where it is a library of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libcudart: Option<String>,
    /// Version of the kernel driver.
    pub kernel_driver: Option<String>,
}

/// One thread.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Thread {
    /// Thread id.
    pub tid: i32,
    /// Thread id in the target's PID namespace.
    pub ns_tid: i32,
    /// Name from Python, else the kernel's.
    pub name: String,
    /// The kernel's name.
    pub os_name: String,
    /// What it is there for, or in which framework, in one phrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What the kernel says that it does.
    pub state: ThreadState,
    /// Where it is, for a thread of which no wait is known.
    #[serde(flatten)]
    pub at: CallSite,
    /// Merged frames, innermost first.
    pub frames: Vec<Frame>,
    /// How it was read, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<Working>,
}

impl Thread {
    /// Whether it goes by this id, on this machine or in its own PID namespace.
    pub fn has_id(&self, tid: i32) -> bool {
        self.tid == tid || self.ns_tid == tid
    }

    /// Whether it does nothing but wait for tests of Rust to end.
    pub(crate) fn runs_rust_tests(&self) -> bool {
        self.role.as_deref() == Some(RUST_TESTS)
    }
}

/// What a thread does, by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ThreadState {
    /// On a CPU or about to be.
    Running,
    /// Asleep until something comes or a signal does.
    Sleeping,
    /// Asleep in the kernel, where no signal reaches it.
    DiskSleep,
    /// Stopped by a signal.
    Stopped,
    /// Stopped by a tracer.
    Traced,
    /// Exited, and not yet waited for.
    Zombie,
    /// Anything else.
    Other,
}

impl ThreadState {
    /// The word in JSON and text.
    pub fn as_str(self) -> &'static str {
        match self {
            ThreadState::Running => "running",
            ThreadState::Sleeping => "sleeping",
            ThreadState::DiskSleep => "disk-sleep",
            ThreadState::Stopped => "stopped",
            ThreadState::Traced => "traced",
            ThreadState::Zombie => "zombie",
            ThreadState::Other => "other",
        }
    }
}

/// The call that a person should read of a stack, and who made it: indices into the thread's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CallSite {
    /// The call: the entry point of CUDA or the C library that is known by name, what the program called of Python's
    /// library, or a line of the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<usize>,
    /// The line of the program that made the call, where that is another frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<usize>,
}

impl CallSite {
    /// Whether the call is a line of the program, or one that nobody of the program called: then its own place says where it
    /// is. `library` is the call's.
    pub fn is_own_line(&self, has_file: bool, library: Option<Library>) -> bool {
        has_file && (library.is_none() || library == Some(Library::Python) && self.caller.is_none())
    }
}

/// Whose code a frame runs, where that is known and not the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Library {
    /// The C library.
    C,
    /// An entry point of the CUDA driver or runtime.
    Cuda,
    /// An entry point of NCCL.
    Nccl,
    /// Python's library, where it waits for the program's sake.
    Python,
    /// Rust's library.
    Rust,
}

/// How a native frame was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Trust {
    /// By call frame information, or the thread's own registers.
    Cfi,
    /// By the chain of frame pointers.
    FramePointer,
    /// A word on the stack that points behind a call: a guess.
    Scan,
}

impl Trust {
    /// The word in JSON and text.
    pub fn as_str(self) -> &'static str {
        match self {
            Trust::Cfi => "cfi",
            Trust::FramePointer => "frame-pointer",
            Trust::Scan => "scan",
        }
    }
}

/// A function that somebody called back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Callback {
    /// Index of its frame; null on the way into it.
    pub frame: Option<usize>,
}

/// One frame.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// Function; null prints as module and pc.
    pub function: Option<String>,
    /// Module.
    pub module: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Instruction pointer.
    pub pc: Option<String>,
    /// How it was found, for a native frame.
    pub trust: Option<Trust>,
    /// Whose code it is, where that is known and not the program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<Library>,
    /// Whose code it is, as a person calls that: `CPython`, `pytest`. The program's own has none. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub belongs_to: Option<String>,
    /// Offset of the pc in its module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_offset: Option<String>,
    /// Local variables of a Python frame (`--locals`), as name and representation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locals: Vec<(String, String)>,
}

/// A lock or another thing waited for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Resource {
    /// `r1`, `r2`, ...
    pub id: String,
    /// A kind of the contract.
    #[schemars(extend("examples" = crate::waits::kind_names()))]
    pub kind: String,
    /// Process in which `address` lies.
    pub process: String,
    /// Address.
    pub address: Option<String>,
    /// For people.
    pub label: String,
    /// The parts that `label` is made of. (Since 1.1.)
    #[serde(flatten)]
    pub parts: Label,
    /// Words of it.
    pub state: serde_json::Map<String, serde_json::Value>,
}

impl Resource {
    /// What is true of its kind; a word that this version does not know is as unknown as `other`.
    pub fn properties(&self) -> &'static Kind {
        crate::waits::kind_named(&self.kind).unwrap_or(kinds::OTHER)
    }

    /// Its label in parts; a report that has none has the label alone.
    fn parts(&self) -> Cow<'_, Label> {
        match (self.parts.is_empty(), self.label.is_empty()) {
            (false, _) => Cow::Borrowed(&self.parts),
            (true, false) => Cow::Owned(self.label.as_str().into()),
            (true, true) => Cow::Owned(self.kind.as_str().into()),
        }
    }

    /// As sentences call it, with its address.
    pub(crate) fn called(&self) -> Called {
        let parts = self.parts();
        // A label alone may have the address already.
        let address = self.address.as_deref().filter(|_| !self.parts.is_empty() || self.label.is_empty());
        match self.properties().topic {
            Topic::Gil => parts.called().definite(),
            // It is known by who it is.
            Topic::Thread => parts.called(),
            _ => parts.called_with_address(address),
        }
    }

    /// As sentences call it where one such thing is known by its name: without the address of one that has a name.
    pub(crate) fn called_shortly(&self) -> Called {
        if self.parts.name.is_some() && !self.is_gil() { self.parts.called() } else { self.called() }
    }

    /// What many things like it are called together.
    pub(crate) fn called_in_general(&self) -> Called {
        if self.is_gil() { self.called() } else { self.parts().called_in_general() }
    }

    /// Whether it is an interpreter's lock.
    pub fn is_gil(&self) -> bool {
        self.properties().topic == Topic::Gil
    }
}

/// One wait.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Wait {
    /// Process of the waiter.
    pub process: String,
    /// Waiting thread; null when a resource waits.
    pub tid: Option<i32>,
    /// The resource that waits, for a waiter that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter_resource: Option<String>,
    /// What it waits for.
    pub resource: String,
    /// `read`, `write`, ...
    pub mode: Option<String>,
    /// `all` or `any` holders must let go.
    pub needs: Needs,
    /// Ends by a time-out.
    pub timed: bool,
    /// Sleeping since.
    pub since_ms: Option<u64>,
    /// Index of the waiting frame.
    pub frame: Option<usize>,
    /// The frame that a person should read.
    #[serde(flatten)]
    pub at: CallSite,
    /// The line where it waits, of a waiter that has no frames: a task. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TakenAt>,
    /// It waits in a function that was called back, by the call that took what the waiter holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// How sure.
    pub certainty: Certainty,
    /// How it is known.
    pub evidence: Vec<String>,
}

/// One hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Hold {
    /// Process of the holder.
    pub process: String,
    /// Holding thread (its former tid when gone); null when a whole process holds.
    pub tid: Option<i32>,
    /// Its id in `resources`, where a task or a kernel of the GPU holds. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_resource: Option<String>,
    /// Its rank, where a rank of a job holds. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_rank: Option<u32>,
    /// Why the holder can never let go.
    pub gone: Option<Gone>,
    /// What it holds.
    pub resource: String,
    /// `read`, `write`.
    pub mode: Option<String>,
    /// Index of the frame that took it.
    pub frame: Option<usize>,
    /// The line where it was taken, where that is known: the frame has gone on since. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<TakenAt>,
    /// How long ago it was taken, in milliseconds, where the recorder saw it. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// `recorder`: the recorder saw it being taken (`lockscope run --record`). (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<HoldSource>,
    /// The frame that a person should read.
    #[serde(flatten)]
    pub at: CallSite,
    /// How sure.
    pub certainty: Certainty,
    /// How it is known.
    pub evidence: Vec<String>,
}

/// A cycle of the wait-for graph.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Cycle {
    /// The weakest of its edges.
    pub certainty: Certainty,
    /// Edges in order: the holder of one is the waiter of the next.
    pub edges: Vec<Edge>,
}

/// One edge: `waiter` waits for `resource`, which `holder` holds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Edge {
    /// Process of the waiter.
    pub process: String,
    /// Waiting thread.
    pub waiter: Option<i32>,
    /// The resource that waits, for a waiter that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter_resource: Option<String>,
    /// The resource.
    pub resource: String,
    /// Process of the holder.
    pub holder_process: String,
    /// Holding thread; null when a process or a resource holds.
    pub holder: Option<i32>,
    /// The resource that holds, for a holder that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_resource: Option<String>,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// It hangs because of this.
    Error,
    /// It may hang or stall because of this.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word in JSON and text.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// Whether a finding is about what was seen to happen. What says nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingClass {
    /// It did not happen, and could.
    Possible,
}

/// A recognised situation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Finding {
    /// Its name in the contract.
    pub code: String,
    /// How grave.
    pub severity: Severity,
    /// `possible`: it did not happen, and could. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FindingClass>,
    /// A headline.
    pub title: String,
    /// What happens, in sentences.
    pub message: String,
    /// How sure: `exact` only where all of its premises were read.
    #[serde(default = "not_said")]
    pub certainty: Certainty,
    /// Threads that take part.
    pub threads: Vec<ThreadReference>,
    /// Resources that take part.
    pub resources: Vec<String>,
    /// Of a wait without end: what could have ended it, and why that cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<String>,
    /// What to change.
    pub help: Vec<String>,
    /// Public reports of the same.
    pub references: Vec<String>,
}

/// For a finding of version 1.0, which says nothing of it.
fn not_said() -> Certainty {
    Certainty::Inferred
}

/// A thread by process and tid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ThreadReference {
    /// Process.
    pub process: String,
    /// Thread.
    pub tid: i32,
}

impl ThreadReference {
    fn key(&self) -> (&str, i32) {
        (self.process.as_str(), self.tid)
    }
}

/// How the look went.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Capture {
    /// Threads captured.
    pub threads: usize,
    /// The longest time that a process was stopped, in microseconds.
    pub pause_us: u64,
    /// Wall time of the whole look.
    pub total_us: u64,
    /// How often it looked.
    pub looks: u32,
    /// How threads' registers were had at the last look. (Since 1.1.)
    #[serde(default)]
    pub registers: RegistersRead,
    /// When the first look began, by the machine's clock (RFC 3339, UTC), where that is known. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    /// When the last look ended. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// How many threads' registers were had in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RegistersRead {
    /// The thread was stopped.
    pub by_stop: usize,
    /// It slept, and an eBPF task iterator told all registers.
    pub asleep_by_ebpf: usize,
    /// It slept, and /proc told its system call, stack pointer and pc only.
    pub asleep_by_proc: usize,
    /// How often threads that did not come to their stop in time were asked again, at the look where that was most often.
    #[serde(default)]
    pub asked_again: u32,
}

//! Waits and holds: who sleeps on what, and who has it, each with certainty and evidence.
//!
//! In: a [`ProcessImage`](crate::image::ProcessImage), its merged threads and its Python runtime. Out:
//! [`Observations`]. Lock families (kernel, libc, CPython, CUDA) each have a folder; a new one is a folder and one
//! line in the list of families. Nothing here searches for cycles.

pub mod cpython;
pub mod cuda;
pub mod facts;
pub mod family;
pub mod kernel;
pub mod kinds;
pub mod libc;
pub mod owner;
mod standstill;

use crate::image::{Addr, Gap};

pub use facts::{Process, ThreadFacts};
pub use family::{Context, Decoded, Family, Look, kind_named, observe};
pub use kinds::Kind;

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
pub enum Scope {
    /// Private memory of the process with this position in the image.
    Process(usize),
    /// Shared memory: (device, inode, offset).
    Shared((i32, i32), u64, u64),
    /// A kernel object of the whole system, named by a family ("pipe:1234").
    System(String),
}

/// A node of the graph that is not a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// What it is.
    pub kind: &'static Kind,
    /// Where it lives.
    pub scope: Scope,
    /// Its address, or 0 for one that has none.
    pub address: Addr,
}

/// What is known of a resource.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its identity.
    pub key: ResourceKey,
    /// The process in whose memory `address` was seen (position in the image).
    pub process: usize,
    /// For people: "rwlock `g_ctx_rwlock` in libfakecuda.so", "GIL".
    pub label: String,
    /// Words read from it, by field name, for the JSON `state`.
    pub state: Vec<(&'static str, i64)>,
}

impl Resource {
    /// A word of its state.
    pub fn word(&self, name: &str) -> Option<i64> {
        self.state.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Who waits or holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
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
pub struct Wait {
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
}

/// One hold.
#[derive(Debug, Clone)]
pub struct Hold {
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
    /// How sure.
    pub certainty: Certainty,
    /// The holder, a process, has an end of something (a pipe, a socket): what one of its threads waits for there is to
    /// come from another, so that a thread does not wait for itself by it.
    pub is_end: bool,
    /// The inference rule leaves no other holder but by misuse of the lock (design: binding).
    pub binding: bool,
    /// What was read, where, its value.
    pub evidence: Vec<String>,
}

/// Something that nobody can ever give: whoever waits for it waits for good.
#[derive(Debug, Clone)]
pub struct Hopeless {
    /// What is waited for.
    pub resource: ResourceKey,
    /// How that is known, without the resource's name.
    pub why: String,
    /// It follows from the standstill of the whole process: a cycle or a lost owner there explains it better.
    pub whole_process: bool,
}

/// An exception of Python in whose handler a thread is.
#[derive(Debug, Clone)]
pub struct Handled {
    /// The thread.
    pub thread: Party,
    /// The exception's class.
    pub class: String,
    /// What it was made with, where that begins with a text.
    pub text: Option<String>,
}

impl Handled {
    /// Whether it tells of an error of CUDA: by its class (CudaAPIError, CUDARuntimeError, cudaError) or its text, as PyTorch's.
    pub fn is_of_cuda(&self) -> bool {
        let class = self.class.to_ascii_lowercase().contains("cuda");
        class
            || self.text.as_deref().is_some_and(|text| ["CUDA", "cuda", "NCCL"].iter().any(|word| text.contains(word)))
    }

    /// "CudaError: error 700", its first line.
    pub fn describe(&self) -> String {
        let line = self.text.as_deref().and_then(|text| text.lines().next()).filter(|line| !line.is_empty());
        line.map_or_else(|| self.class.clone(), |line| format!("{}: {line}", self.class))
    }
}

/// All that the families found in one look.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    /// Every resource named by a wait or hold, once.
    pub resources: Vec<Resource>,
    /// Waits.
    pub waits: Vec<Wait>,
    /// Holds.
    pub holds: Vec<Hold>,
    /// What nobody can ever give.
    pub hopeless: Vec<Hopeless>,
    /// Libraries of CUDA.
    pub cuda: Vec<cuda::driver::CudaLibrary>,
    /// Exceptions of Python that threads handle now.
    pub handled: Vec<Handled>,
    /// What could not be decided.
    pub gaps: Vec<Gap>,
}

impl Observations {
    /// What is known of a resource.
    pub fn resource(&self, key: &ResourceKey) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.key == *key)
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

//! Processes, their threads and frames.
//!
//! In: nothing. Out: types of the report. Which thread waits for what is said beside them (`waiting`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterMember, Connection, FrameKind, Gpu, Identity, Working};
use crate::threads::RUST_TESTS;

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
    /// The error that CUDA's runtime keeps for it until somebody asks. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_error: Option<CudaError>,
    /// Its last call into CUDA's driver, where the recorder saw it. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_call: Option<CudaCall>,
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

/// An error of CUDA's runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CudaError {
    /// Its number: 719.
    pub number: u32,
    /// Its name: `cudaErrorLaunchFailure`.
    pub name: String,
}

/// A call into CUDA's driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CudaCall {
    /// `cuStreamSynchronize`, as the program has asked for it.
    pub function: String,
    /// The first four words that it was given, in hexadecimal digits; a function with fewer arguments has not looked at the rest.
    pub arguments: Vec<String>,
    /// How long ago it began, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// What it has answered; absent while the thread is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<u32>,
    /// The last error that a call of the thread has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CudaCallError>,
}

/// An error that a call into CUDA's driver has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CudaCallError {
    /// Its number: 700.
    pub number: u32,
    /// The call that answered it first, since the last other error.
    pub function: String,
    /// How long ago, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
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

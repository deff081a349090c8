//! Processes, their threads and frames.
//!
//! In: nothing. Out: types of the report. The waits of the threads are beside them (`waiting`).

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
    /// The identity of the process: its host, and its place in a job, where they are known. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Its role in a cluster of workers, such as Dask's. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterMember>,
    /// Its TCP connections. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<Connection>,
    /// Its GPUs, if there are cores of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
    /// The last operation that it enqueued in each group of ranks, by PyTorch's Flight Recorder in its memory. (Since
    /// 1.1.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enqueued: Vec<Enqueued>,
    /// Threads.
    pub threads: Vec<Thread>,
}

/// The last operation of a group of ranks that a process has enqueued. The process has not reached later operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Enqueued {
    /// `gloo`, `nccl`.
    pub backend: String,
    /// The group.
    pub group: String,
    /// Its number in the group.
    pub last: u64,
    /// `all_reduce`.
    pub op: String,
    /// It is done.
    pub over: bool,
    /// The number of ranks in the group.
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
    /// Version of the runtime, if that is a library of its own.
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
    /// Thread id in the target's own PID namespace.
    pub ns_tid: i32,
    /// Name from Python, else the kernel's.
    pub name: String,
    /// The kernel's name.
    pub os_name: String,
    /// Its purpose, or its framework, in one phrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its state, by the kernel.
    pub state: ThreadState,
    /// The error that CUDA's runtime keeps for it until the program requests the error. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_error: Option<CudaError>,
    /// Its last call into CUDA's driver, if the recorder saw it. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_call: Option<CudaCall>,
    /// Its current call site, for a thread without a known wait.
    #[serde(flatten)]
    pub at: CallSite,
    /// Merged frames, innermost first.
    pub frames: Vec<Frame>,
    /// The steps of reading it, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<Working>,
}

impl Thread {
    /// Whether this is its id, on this machine or in its own PID namespace.
    pub fn has_id(&self, tid: i32) -> bool {
        self.tid == tid || self.ns_tid == tid
    }

    /// Whether it only waits for tests of Rust to end.
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
    /// `cuStreamSynchronize`, as the program has requested it.
    pub function: String,
    /// Its first four argument words, in hexadecimal digits. A function with fewer arguments ignores the rest.
    pub arguments: Vec<String>,
    /// The time since its start, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Its result; absent while the thread is in the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<u32>,
    /// The last error that a call of the thread has returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CudaCallError>,
}

/// An error that a call into CUDA's driver has returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CudaCallError {
    /// Its number: 700.
    pub number: u32,
    /// The call that returned it first, since the last other error.
    pub function: String,
    /// The time since then, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

/// The state of a thread, by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ThreadState {
    /// On a CPU or about to be.
    Running,
    /// Asleep; an event or a signal wakes it.
    Sleeping,
    /// Asleep in the kernel, where no signal reaches it.
    DiskSleep,
    /// Stopped by a signal.
    Stopped,
    /// Stopped by a tracer.
    Traced,
    /// A zombie: it has exited, and its parent has not reaped it.
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

/// The call site that matters in a stack: indices into the thread's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CallSite {
    /// The call: the entry point of CUDA or the C library that has a known name, a function of Python's library that
    /// the program called, or a line of the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<usize>,
    /// The line of the program that made the call, if that is another frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<usize>,
}

impl CallSite {
    /// Whether the call is a line of the program, or one that no code of the program called. Then its own place names
    /// it. `library` is the call's.
    pub fn is_own_line(&self, has_file: bool, library: Option<Library>) -> bool {
        has_file && (library.is_none() || library == Some(Library::Python) && self.caller.is_none())
    }
}

/// The provenance of a frame's code, if known and not the program's.
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
    /// Python's library, while it waits for the program.
    Python,
    /// Rust's library.
    Rust,
}

/// The way in which a native frame was found.
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

/// A function that a call called back.
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
    /// The kind of the frame.
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
    /// The way in which it was found, for a native frame.
    pub trust: Option<Trust>,
    /// The provenance of its code, if known and not the program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<Library>,
    /// The name of its code's owner for people: `CPython`, `pytest`. The program's own code has none. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub belongs_to: Option<String>,
    /// Offset of the pc in its module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_offset: Option<String>,
    /// Local variables of a Python frame (`--locals`), as name and representation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locals: Vec<(String, String)>,
}

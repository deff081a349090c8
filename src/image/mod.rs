//! The captured target as plain data: processes, threads with registers, mappings, memory, files, kernel facts.
//!
//! In: the result of a capture ([`live`], cores and snapshots). Out: an [`Image`] that owns it. Nothing here decodes a
//! lock, unwinds a stack or depends on the source of a fact.

pub(crate) mod budget;
pub(crate) mod core;
pub(crate) mod cuda_errors;
pub(crate) mod descriptors;
mod disk;

pub(crate) mod environment;
pub(crate) mod gpu;
pub(crate) mod gpu_errors;
pub(crate) mod launch;
pub(crate) mod live;
pub(crate) mod source;
pub(crate) mod taken;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::arch::Architecture;
use crate::arch::system_calls::Waits;
pub(crate) use crate::arch::{Register, RegisterSet, Registers, Syscall};
pub(crate) use crate::memory::{Addr, AddrMap, AddrSet, Fault, Memory, MemoryExt, Scatter, saturated};
pub(crate) use descriptors::{Descriptor, KernelFacts};
pub(crate) use disk::files_changed;
pub(crate) use launch::Launch;
pub(crate) use source::SourceLines;
pub use taken::Host;
pub(crate) use taken::Taken;

/// Something that could not be read or decided, with the reason. Gaps are part of every report.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[non_exhaustive]
pub struct Gap {
    /// The missing data: "stack of thread 543", "readers of rwlock 0x..".
    pub what: String,
    /// Why, and where there is one, the next thing to try.
    pub why: String,
}

impl Gap {
    /// A gap named `what` with reason `why`.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Gap { what: what.into(), why: why.into() }
    }
}

/// One sample of one or several processes, taken as close to one instant as the source allows.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// The captured processes, in the order the user named them, then descendants.
    pub processes: Vec<ProcessImage>,
    /// The data that could not be captured.
    pub gaps: Vec<Gap>,
    /// How long the target stood still, in microseconds; 0 for a core.
    pub pause_us: u64,
    /// How often lockscope asked its threads to stop, since some of them came too late; 0 where it asked none.
    pub rounds: u32,
    /// File locks, and who else has an end of a pipe.
    pub kernel: KernelFacts,
    /// When and where it was taken, where that is known.
    pub taken: Option<Taken>,
}

/// One captured process.
#[derive(Debug)]
pub(crate) struct ProcessImage {
    /// The machine that it runs on.
    pub architecture: Architecture,
    /// Process id in lockscope's own PID namespace.
    pub pid: i32,
    /// Process id in the innermost PID namespace of the target (the same without one).
    pub ns_pid: i32,
    /// Parent's process id, where known.
    pub parent: Option<i32>,
    /// Threads of the parent at the sample, as (tid as the parent itself calls it, name): a fork child may have
    /// inherited a lock whose owner lives only there. Empty where unknown, or where the parent is captured itself.
    pub parent_threads: Vec<(i32, String)>,
    /// The parent's process id where both have one address space: between vfork and exec, and after clone with CLONE_VM.
    pub shares_memory_of: Option<i32>,
    /// It has called no exec since it was forked (PF_FORKNOEXEC): what its parent had locked is locked here. `None` where unknown.
    pub is_copy: Option<bool>,
    /// The program's path as the target sees it.
    pub exe: Option<PathBuf>,
    /// Its argument vector.
    pub cmdline: Vec<String>,
    /// All threads that existed at the stop, in order of tid.
    pub threads: Vec<ThreadImage>,
    /// The address space's map, in order of address.
    pub mappings: Vec<Mapping>,
    /// Bytes at an address.
    pub memory: Arc<dyn Memory>,
    /// The bytes of mapped files and of separate debug files.
    pub files: Arc<dyn Files>,
    /// `Some(comm)` of a tracer that is attached already.
    pub tracer: Option<(i32, String)>,
    /// The auxiliary vector as the kernel wrote it, pairs of 8 bytes; empty where unknown.
    pub auxiliary: Vec<u8>,
    /// Open files, where a captured thread waits for one; empty where unknown.
    pub descriptors: Vec<Descriptor>,
    /// The variables that configure CUDA and NCCL or show its rank and job, as the program was started with them.
    pub environment: Vec<(String, String)>,
    /// How it was started, and where on the network it is.
    pub launch: Launch,
}

/// One thread: registers and what the kernel says of it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct ThreadImage {
    /// Thread id in lockscope's own PID namespace.
    pub tid: i32,
    /// Thread id in the target's innermost PID namespace: the value that libc writes into locks.
    pub ns_tid: i32,
    /// The kernel's name of the thread (comm, at most 15 bytes).
    pub name: String,
    /// The state before the sample.
    pub state: TaskState,
    /// General registers at the stop; `None` when the thread did not come to a stop.
    pub registers: Option<Registers>,
    /// The system call that the kernel says the thread is in, for a thread without registers.
    pub syscall: Option<Syscall>,
    /// Kernel function that it sleeps in, where readable.
    pub wchan: Option<String>,
    /// CPU time used between two samples before the stop, and the time between these, in nanoseconds.
    pub cpu_used: Option<(u64, u64)>,
    /// How often it got a processor between these samples.
    #[serde(default)]
    pub turns: Option<u64>,
    /// How long it has slept, in milliseconds, where the kernel reports it.
    pub asleep_ms: Option<u64>,
    /// Start time in clock ticks since boot (field 22 of stat), to recognise a reused tid.
    pub start_ticks: Option<u64>,
    /// How long ago it started, in milliseconds, to within a clock tick of 10 ms.
    pub age_ms: Option<u64>,
    /// Voluntary and involuntary context switches, read before the stop.
    pub switches: Option<(u64, u64)>,
    /// When it last ran, by the clock of its processor: the start of its sleep. Known of threads that were read asleep.
    #[serde(default)]
    pub last_ran: Option<u64>,
    /// How often the sample stopped it: each time adds two switches.
    #[serde(default)]
    pub stops: u32,
    /// It ran during the sample: its data belong to no single instant.
    #[serde(default)]
    pub moved: bool,
    /// Why registers are missing.
    pub missing: Option<String>,
    /// The source of the registers.
    #[serde(default)]
    pub source: RegisterSource,
}

/// The source of a thread's registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) enum RegisterSource {
    /// Unknown: a core, an older snapshot, or no registers.
    #[default]
    Unsaid,
    /// The thread was stopped.
    Stop,
    /// It slept, and an eBPF task iterator gave all of them.
    TaskIterator,
    /// It slept, and /proc gave its system call, stack pointer and pc.
    KernelFiles,
}

impl RegisterSource {
    /// Whether the thread was left asleep.
    pub(crate) fn is_asleep(self) -> bool {
        matches!(self, RegisterSource::TaskIterator | RegisterSource::KernelFiles)
    }
}

/// State letter of a task, from /proc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum TaskState {
    /// R: on a CPU or in the run queue.
    Running,
    /// S: interruptible sleep.
    Sleeping,
    /// D: uninterruptible sleep.
    DiskSleep,
    /// T: stopped by a signal (group-stop).
    Stopped,
    /// t: stopped by a tracer.
    Traced,
    /// Z: exited, not yet reaped.
    Zombie,
    /// X or anything else.
    Other,
}

impl TaskState {
    /// From the letter in /proc/PID/stat.
    pub(crate) fn from_letter(letter: char) -> Self {
        match letter {
            'R' => TaskState::Running,
            'S' | 'I' => TaskState::Sleeping,
            'D' => TaskState::DiskSleep,
            'T' => TaskState::Stopped,
            't' => TaskState::Traced,
            'Z' => TaskState::Zombie,
            _ => TaskState::Other,
        }
    }
}

/// One line of /proc/PID/maps, or one PT_LOAD of a core.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Mapping {
    /// First address.
    pub start: Addr,
    /// One past the last address.
    pub end: Addr,
    /// Readable, writable, executable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared (`s`) rather than private (`p`).
    pub shared: bool,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Device (major, minor) of the file.
    pub device: (i32, i32),
    /// Inode of the file; 0 when anonymous.
    pub inode: u64,
    /// Path as the target sees it, without " (deleted)"; or a name in brackets such as `[stack]`, `[vdso]`.
    pub path: Option<String>,
    /// The file was unlinked or replaced.
    pub deleted: bool,
}

impl Mapping {
    /// A private anonymous mapping without permissions.
    pub(crate) fn new(start: Addr, end: Addr) -> Mapping {
        Mapping {
            start,
            end,
            read: false,
            write: false,
            execute: false,
            shared: false,
            offset: 0,
            device: (0, 0),
            inode: 0,
            path: None,
            deleted: false,
        }
    }

    /// The one of `mappings`, which are in order of address, that holds `address`.
    pub(crate) fn of(mappings: &[Mapping], address: Addr) -> Option<&Mapping> {
        let after = mappings.partition_point(|mapping| mapping.start <= address);
        mappings.get(..after)?.last().filter(|mapping| mapping.contains(address))
    }

    /// Whether `address` lies inside.
    pub(crate) fn contains(&self, address: Addr) -> bool {
        self.start <= address && address < self.end
    }

    /// Whether a file on a file system backs it.
    pub(crate) fn is_file(&self) -> bool {
        self.inode != 0 && self.path.as_deref().is_some_and(|p| p.starts_with('/'))
    }
}

/// Whether two processes share a fork ancestor: their address-space randomisation is the same.
pub(crate) fn share_fork_ancestor(one: &[Mapping], other: &[Mapping]) -> bool {
    let code = |mappings: &[Mapping]| -> Vec<(Addr, Option<String>)> {
        let of_files = mappings.iter().filter(|mapping| mapping.execute && mapping.is_file());
        of_files.map(|mapping| (mapping.start, mapping.path.clone())).collect()
    };
    let (one, other) = (code(one), code(other));
    // The program alone may have a fixed address.
    one.iter().filter(|mapping| other.contains(mapping)).count() >= 2
}

impl ThreadImage {
    /// A sleeping thread whose id, in every namespace, is all that is known.
    pub(crate) fn new(tid: i32) -> ThreadImage {
        ThreadImage {
            tid,
            ns_tid: tid,
            name: String::new(),
            state: TaskState::Sleeping,
            registers: None,
            syscall: None,
            wchan: None,
            cpu_used: None,
            turns: None,
            asleep_ms: None,
            start_ticks: None,
            age_ms: None,
            switches: None,
            last_ran: None,
            stops: 0,
            moved: false,
            missing: None,
            source: RegisterSource::Unsaid,
        }
    }

    /// Whether it was on a processor, or ready for one, when it was read: in its own code, or in the call that only lets others go
    /// first. Its state was read a moment before it was stopped, and may be that of a wait that had just ended.
    pub(crate) fn was_at_work(&self) -> bool {
        let Some(registers) = self.registers else { return false };
        let lets_others_go_first = || {
            let call = registers.syscall().and_then(|call| registers.general.architecture().system_call(call.number));
            call.is_some_and(|call| call.waits == Waits::Yield)
        };
        match (self.state, self.source) {
            (TaskState::Running, _) | (TaskState::Sleeping, RegisterSource::Stop) => {
                registers.is_in_user_code() || lets_others_go_first()
            }
            _ => false,
        }
    }

    /// The call that it sleeps in.
    pub(crate) fn call(&self) -> Option<Syscall> {
        match self.registers {
            Some(registers) => registers.asleep(),
            None => self.syscall,
        }
    }

    /// Whether it sleeps in a futex without a time-out, and has come back to that often from before the sample: other
    /// calls and time-outs wake a thread that gets on no further.
    pub(crate) fn took_turns(&self) -> bool {
        /// A stop of the earlier sample adds two at most.
        const MANY: u64 = 4;
        let is_untimed_futex = |call: Syscall| {
            let row = self.registers.and_then(|one| one.general.architecture().system_call(call.number));
            row.is_some_and(|row| {
                matches!(row.waits, Waits::Futex(_)) && row.timeout.is_set(&call.arguments) == Some(false)
            })
        };
        self.turns.is_some_and(|turns| turns >= MANY) && self.call().is_some_and(is_untimed_futex)
    }

    /// Whether it has not run from an `earlier` sample to this one. The answer is certain if it was left asleep. It is
    /// unknown (`None`) if the sample itself woke it: then a round of its own code looks the same.
    pub(crate) fn stood_since(&self, earlier: &ThreadImage) -> Option<bool> {
        if self.moved || earlier.moved || self.start_ticks != earlier.start_ticks {
            return Some(false);
        }
        let ((voluntary, involuntary), (voluntary_then, involuntary_then)) = self.switches.zip(earlier.switches)?;
        let went_to_sleep = voluntary.checked_sub(voluntary_then)?;
        let was_displaced = involuntary.checked_sub(involuntary_then)?;
        // One without registers was not stopped; older snapshots do not say how often one with registers was.
        let stops = if earlier.source.is_asleep() || earlier.registers.is_none() { 0 } else { earlier.stops.max(1) };
        match stops {
            0 => Some(
                went_to_sleep + was_displaced == 0
                    && self.last_ran.zip(earlier.last_ran).is_none_or(|(now, then)| now == then),
            ),
            // A stop and the release after it add two (measured). A released thread runs for a moment and may be
            // preempted then: that shows nothing.
            stops if went_to_sleep > 2 * u64::from(stops) => Some(false),
            _ => None,
        }
    }
}

impl ProcessImage {
    /// A process that existed, with no known facts.
    pub(crate) fn unknown() -> ProcessImage {
        ProcessImage {
            architecture: Architecture::X86_64,
            pid: 0,
            ns_pid: 0,
            parent: None,
            parent_threads: Vec::new(),
            shares_memory_of: None,
            is_copy: None,
            exe: None,
            cmdline: Vec::new(),
            threads: Vec::new(),
            mappings: Vec::new(),
            memory: Arc::new(Nothing),
            files: Arc::new(Nothing),
            tracer: None,
            auxiliary: Vec::new(),
            descriptors: Vec::new(),
            environment: Vec::new(),
            launch: Launch::default(),
        }
    }

    /// A variable of its environment that concerns CUDA.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The mapping that holds `address`.
    pub(crate) fn mapping(&self, address: Addr) -> Option<&Mapping> {
        Mapping::of(&self.mappings, address)
    }

    /// The thread whose tid in lockscope's namespace is `tid`.
    pub(crate) fn thread(&self, tid: i32) -> Option<&ThreadImage> {
        // Those of a core stand in the order of its notes.
        let sorted = self.threads.binary_search_by_key(&tid, |thread| thread.tid).ok();
        let position = sorted.or_else(|| self.threads.iter().position(|thread| thread.tid == tid))?;
        self.threads.get(position)
    }
}

/// Memory and files of a process without any known data.
#[derive(Debug)]
struct Nothing;

impl Memory for Nothing {
    fn read(&self, address: Addr, _buffer: &mut [u8]) -> Result<usize, Fault> {
        Err(Fault::NotCaptured(address))
    }
}

impl Files for Nothing {
    fn mapped(&self, _mapping: &Mapping) -> Option<FileBytes> {
        None
    }

    fn debug_file(&self, _build_id: Option<&[u8]>, _link: Option<&str>, _module_path: &str) -> Option<FileBytes> {
        None
    }
}

/// The bytes of a file, mapped or owned.
#[derive(Clone)]
pub(crate) struct FileBytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl FileBytes {
    /// Wrap anything that owns bytes.
    pub(crate) fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        FileBytes(Arc::new(bytes))
    }

    /// Where its owner lies: clones have the same one, for as long as there are any.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>() as usize
    }
}

impl std::ops::Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl std::fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileBytes({} bytes)", self.len())
    }
}

/// Files that analysis may look into. The implementation decides where they come from.
pub(crate) trait Files: Send + Sync + std::fmt::Debug {
    /// The whole file behind a file mapping, the very inode that the target maps.
    fn mapped(&self, mapping: &Mapping) -> Option<FileBytes>;
    /// Lines of a source file, by the name that code has for it; none where that may not be shown.
    fn source(&self, _name: &str, _lines: &BTreeSet<u32>) -> Option<SourceLines> {
        None
    }
    /// A separate debug file, by build-id, or by the name in .gnu_debuglink beside `module_path`.
    fn debug_file(&self, build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Option<FileBytes>;
}

//! Why lockscope cannot sample a process, in sentences that name the cause and the next step.
//!
//! In: a failure during the sample. Out: an [`AttachError`]. It makes no query and does not decide what to do then;
//! `denial` finds out which rule of the kernel refused.

/// Why lockscope cannot sample a live process. Each text is a whole sentence for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No process of that id.
    #[error(
        "there is no process {pid} here; check the id with `ps -e`, which has other ids inside a container than outside"
    )]
    NoSuchProcess {
        /// The requested id.
        pid: i32,
    },
    /// No id was given.
    #[error("no process was named; give the id of at least one")]
    NoProcess,
    /// The id is that of a thread.
    #[error("{tid} is a thread of process {pid}; look at that process: `lockscope attach {pid}`")]
    IsThread {
        /// The requested id.
        tid: i32,
        /// The process that it belongs to.
        pid: i32,
    },
    /// Exited, and not yet waited for.
    #[error(
        "process {pid} has exited already, and only its parent {parent} has not yet waited for it; look at the parent"
    )]
    Exited {
        /// The requested id.
        pid: i32,
        /// Its parent.
        parent: i32,
    },
    /// A thread of the kernel.
    #[error("process {pid} ({name}) is a thread of the kernel and has no program; name a user process")]
    KernelThread {
        /// The requested id.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// A 32-bit program.
    #[error(
        "process {pid} runs a 32-bit program ({program}), which lockscope cannot read; only 64-bit x86 programs are supported"
    )]
    ThirtyTwoBit {
        /// The requested id.
        pid: i32,
        /// Its program.
        program: String,
    },
    /// Another processor's program, under emulation.
    #[error(
        "process {pid} runs a program of another processor ({program}, for {machine}); look at it on a machine of its own kind"
    )]
    OtherProcessor {
        /// The requested id.
        pid: i32,
        /// Its program.
        program: String,
        /// Its machine.
        machine: String,
    },
    /// Another process already traces it.
    #[error(
        "process {pid} is already traced by {name} (pid {tracer}); a process has one tracer at most: end that one or let it detach, then look again"
    )]
    AlreadyTraced {
        /// The requested id.
        pid: i32,
        /// The tracer's id.
        tracer: i32,
        /// The tracer's name.
        name: String,
    },
    /// The kernel refused.
    #[error("the kernel does not let lockscope attach to process {pid}: {explanation}")]
    Denied {
        /// The requested id.
        pid: i32,
        /// The rule that was met, and the next step.
        explanation: String,
    },
    /// lockscope itself.
    #[error("{pid} is lockscope itself, which cannot stop itself; name another process")]
    OwnProcess {
        /// The requested id.
        pid: i32,
    },
    /// Ended during the sample.
    #[error("process {pid} ended while it was looked at; if it should not have ended, start it again and look earlier")]
    Ended {
        /// The requested id.
        pid: i32,
    },
    /// Replaced its program during each attempt.
    #[error(
        "process {pid} replaced its program (exec) during each of {attempts} attempts; look again when it has settled"
    )]
    KeepsExecuting {
        /// The id.
        pid: i32,
        /// How many times it was tried.
        attempts: u32,
    },
    /// The kernel did not come back from a call that stops a thread.
    #[error(
        "the kernel did not answer when lockscope asked it to stop process {pid} (a thread of it may be starting a program from a file system that does not answer); the process runs on: look again, or with --no-stop"
    )]
    NoAnswer {
        /// The id.
        pid: i32,
    },
    /// lockscope's own machine refused something.
    #[error("lockscope could not {action}: {source}; look again when the machine has resources to spare")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
}

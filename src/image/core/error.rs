//! Why a file cannot be read as a core or snapshot, in sentences that name the cause and the next step.

/// Why lockscope cannot analyse a core file or a snapshot. Each text is a whole sentence for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// It cannot be opened or read.
    #[error("cannot read `{path}`: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A folder, a pipe, a device.
    #[error("`{path}` is {what}, not a regular file; name a core file or a snapshot")]
    NotRegular {
        /// The file.
        path: String,
        /// The kind of file.
        what: &'static str,
    },
    /// Nothing in it.
    #[error("`{path}` is empty; was there room on the disk, and did `ulimit -c` allow a core?")]
    Empty {
        /// The file.
        path: String,
    },
    /// No ELF file at all.
    #[error("`{path}` is no ELF file; lockscope reads ELF cores and its own snapshots, both also compressed with zstd")]
    NotElf {
        /// The file.
        path: String,
    },
    /// A program or library.
    #[error("`{path}` is {what}, not a core file; give it as --exe beside the core that it left")]
    NotCore {
        /// The file.
        path: String,
        /// The kind of file.
        what: &'static str,
    },
    /// Another processor, or 32 bits.
    #[error("`{path}` is a core of another architecture ({architecture}); lockscope reads those of 64-bit x86")]
    OtherArchitecture {
        /// The file.
        path: String,
        /// Its machine.
        architecture: String,
    },
    /// Damaged beyond use.
    #[error("`{path}` is damaged: {why}; if it was copied, compare the sizes")]
    Damaged {
        /// The file.
        path: String,
        /// The defect.
        why: String,
    },
    /// Its end is missing.
    #[error(
        "`{path}` was cut: {present} of its {announced} bytes are there (a copy that stopped, or a full disk); what is left would \
         give another verdict than the whole"
    )]
    Cut {
        /// The file.
        path: String,
        /// Bytes that are there, unpacked.
        present: u64,
        /// Bytes that it announces.
        announced: u64,
    },
    /// A core without threads.
    #[error("`{path}` holds no registers of any thread (no NT_PRSTATUS notes); it was cut, or is no core of a process")]
    NoThreads {
        /// The file.
        path: String,
    },
    /// Two cores of one process.
    #[error("`{path}` is of process {pid} as is another of the files; name one core of each process")]
    Twice {
        /// The file.
        path: String,
        /// The process.
        pid: i32,
    },
    /// A snapshot beside other files.
    #[error("`{path}` is a snapshot, which is looked at alone; name one snapshot, or one core of each process")]
    NotAlone {
        /// The file.
        path: String,
    },
    /// Written by a lockscope that this one does not understand.
    #[error(
        "`{path}` is a snapshot of version {version}, written by lockscope {writer}; this one reads version {known}: update it"
    )]
    NewerSnapshot {
        /// The file.
        path: String,
        /// Its version.
        version: u32,
        /// The program that wrote it.
        writer: String,
        /// The newest version known here.
        known: u32,
    },
}

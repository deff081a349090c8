//! What the kernel knows of descriptors and file locks, as plain data.
//!
//! In: whatever a capture read. Out: [`Descriptor`]s of a captured process, and [`KernelFacts`] about the rest of the
//! machine. A core has none of this; a snapshot has it.

use serde::{Deserialize, Serialize};

/// An open file of a captured process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// What it is, as the kernel names it: `/path`, `pipe:[123]`, `socket:[123]`, `anon_inode:[eventfd]`.
    pub target: String,
    /// Inode of the file, where it was asked for.
    pub inode: Option<u64>,
    /// A pipe or FIFO.
    pub is_pipe: bool,
    /// Open for reading.
    pub reads: bool,
    /// Open for writing.
    pub writes: bool,
}

/// A line of /proc/locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// `FLOCK`, `POSIX`, `OFDLCK`, `LEASE`.
    pub kind: String,
    /// Exclusive.
    pub write: bool,
    /// Waits for another one.
    pub blocked: bool,
    /// The process that asked for it; -1 where the lock belongs to an open file description.
    pub pid: i32,
    /// Device (major, minor) of the file.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` for the end of the file.
    pub end: u64,
}

/// An end of a pipe in a process that was not captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeEnd {
    /// As in [`Descriptor::target`].
    pub target: String,
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// It can read.
    pub reads: bool,
    /// It can write.
    pub writes: bool,
}

/// What the rest of the machine has to do with the captured processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// File locks, where a captured thread waits for one.
    pub locks: Vec<FileLock>,
    /// Ends of the pipes that captured threads wait for, in other processes.
    pub ends: Vec<PipeEnd>,
    /// Processes whose descriptors could not be read: any of them may have such an end.
    pub unread: usize,
}

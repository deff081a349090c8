//! Snapshots: a sample of a process, small enough to mail, that gives the same report on any machine.
//!
//! In: the captured data of a sample, and the memory and files that analysis read. Out: an ELF core that holds just
//! these blocks, which gdb opens, with two notes of lockscope's own; and back again. The same code analyses a snapshot
//! and a live process. A snapshot stores facts (registers, bytes, the kernel's words), and answers that need files
//! which another machine may lack (unwound stacks, names, lines). It stores no waits, holds and verdicts, so that a
//! newer lockscope may find more in an old file.
//!
//! # Versions
//!
//! [`VERSION`] is written into each snapshot. Additions do not raise it: a reader skips fields that it does not know
//! and fills in those that are missing. It is raised when an old reader would misread a new file; a reader refuses a
//! version above its own with a sentence that says who wrote it, and reads all versions below.
//!
//! ```text
//! recorder   Memory that keeps what is read through it
//! roots      what else is kept, for readers to come: stacks, thread descriptors, Python's frames, gdb's lists
//! record     looks as they come from analysis
//! model      what is stored
//! write      the file
//! read       the file again, as images
//! ```

mod memory;
mod model;
mod read;
mod record;
mod recorder;
mod roots;
mod write;

pub(crate) use read::{Known, RecordedLook, is_snapshot, looks_of, read};
pub(crate) use record::{KeptLook, Recording, Written};
pub(crate) use roots::keep_roots;
pub(crate) use write::{packed, with_looks};

/// The newest version that is written and read.
pub(crate) const VERSION: u32 = 2;

/// Owner of lockscope's notes.
const OWNER: &[u8] = b"LOCKSCOPE";
/// The captured data and the answers, as JSON, compressed with zstd.
const NOTE_LOOKS: u32 = 1;
/// Memory that is no part of the core's own memory, compressed with zstd.
const NOTE_PAGES: u32 = 2;

//! The recorder: what it wrote down inside a process, read from outside; and the library itself, for `lockscope run
//! --record`.
//!
//! In: a captured process. Out: [`Recorded`]: which thread took which lock, where, since when, and its last call into
//! CUDA's driver. In: the files of a command that was recorded. Out: its [`orders`], and which of them could deadlock
//! ([`inversions`]). In: [`targets`] at which it holds threads back. `scripts/build.rs` compiles the library from `preload/`,
//! which is no part of this crate. [`library`] puts it where a command can load it. [`waits`](crate::waits) decides what a
//! lock means for its waiters.

mod calls;
pub(crate) mod inversions;
pub(crate) mod library;
pub(crate) mod orders;
mod table;
pub(crate) mod targets;

pub(crate) use calls::DriverCall;
pub(crate) use table::{LockKind, Mode, Recorded, RecordedLock, is_recorder};

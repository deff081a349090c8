//! Links between threads of a cluster: the thread that another one waits for, and the reason.
//!
//! In: nothing. Out: the types. Nothing is decided here.

use super::members::Lasted;

/// A thread: place of its process, and its id.
pub(super) type Thread = (usize, i32);

/// One thread that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) to: Thread,
    pub(super) by: By,
    pub(super) lasted: Lasted,
}

/// How it comes to that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// It has the lock: inside its `with` block, or not.
    Holds { is_entered: bool },
    /// It runs the task of this key.
    Runs(String),
    /// The task of this key waits for a thread of the worker, and this thread is one of these.
    Occupies(String),
    /// No known process could set it, except tasks that wait for a thread.
    Nobody,
}

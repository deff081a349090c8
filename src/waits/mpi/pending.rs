//! The target of a wait inside a call of MPI, by its library's own account.
//!
//! In: nothing. Out: [`Pending`]. Nothing here reads memory.

use crate::image::Addr;

/// A message or a root that a thread waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pending {
    /// Where its request lies.
    pub(super) address: Option<Addr>,
    /// The request says that the thread waits for it.
    pub(super) is_waiters: bool,
    /// It is known by a rule with a premise only.
    pub(super) is_inferred: bool,
    pub(super) receives: bool,
    /// Rank in the job of who is waited for.
    pub(super) peer: Option<u32>,
    /// The same in its group, as the request has it; below 0 for any.
    pub(super) peer_in_group: Option<i32>,
    /// Where its communicator lies.
    pub(super) communicator: Option<Addr>,
    pub(super) from_anybody: bool,
    pub(super) tag: Option<i64>,
    /// Its number between the two ranks, where the library counts.
    pub(super) sequence: Option<u64>,
    pub(super) group: Option<String>,
    /// Own rank in the group.
    pub(super) rank: Option<u32>,
    pub(super) size: Option<u32>,
    /// A value that changes whenever anything moves, where there is one.
    pub(super) mark: Option<String>,
    pub(super) matched: Option<bool>,
    pub(super) evidence: Vec<String>,
}

impl Pending {
    /// The operation that such a request alone is of.
    pub(super) fn operation(&self) -> &'static str {
        if self.receives { "recv" } else { "send" }
    }
}

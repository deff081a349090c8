//! What a lock family is.
//!
//! In: one thread after the other, with what the families below made of it; then all waits. Out: better accounts of waits,
//! and holds. A family keeps what it has read of a process in fields of its own, which live as long as the sample.

use super::blocked_on::BlockedOn;
use super::holders::Blocked;
use super::kinds::Kind;
use super::observations::Observations;
use super::thread::{Process, ThreadView};

/// A lock family, open for one sample.
pub(crate) trait Family {
    /// What `thread` waits for; `below` is what the lower families made of it. `None`: nothing better to say.
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn>;

    /// Add who has what somebody waits for: for the waits with a rule of the family's own ([`Blocked::by_rule`]), and
    /// whatever the family has an account of. The shared rules have been followed, and the lower families asked.
    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations);
}

/// A row of the list of families.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registered {
    /// The kinds of the resources that it decodes: rows of [`kinds`](super::kinds), or rows of its own beside its decoder.
    /// A resource of a kind that no family lists fails every test that meets it.
    pub kinds: &'static [&'static Kind],
    /// Opens it for the processes of one sample.
    pub open: for<'s> fn(&'s [Process<'s>]) -> Box<dyn Family + 's>,
}

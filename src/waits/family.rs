//! The interface of a lock family.
//!
//! In: one thread after the other, with what the families below made of it; then all waits. Out: better accounts of waits,
//! and holds. A family keeps what it has read of a process in fields of its own, which live as long as the sample.

use super::blocked_on::{BlockedOn, ThreadWait};
use super::holders::Blocked;
use super::kinds::Kind;
use super::model::Party;
use super::observations::Observations;
use super::thread::{Process, ThreadView};

/// A lock family, open for one sample.
pub(crate) trait Family {
    /// The resource that `thread` waits for. `below` is the result of the lower families. `None`: this family has no
    /// better result.
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn>;

    /// Add the holders of awaited resources: for the waits with a rule of the family's own ([`Blocked::by_rule`]), and
    /// for all resources that the family has an account of. The shared rules and the lower families have run before.
    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations);

    /// Whether a thread of the process, by its position, could give the resource that `wait` waits for and that has no
    /// known holder.
    fn giver(&self, _process: &Process<'_>, _thread: usize, _found: &ThreadWait) -> Option<Way> {
        None
    }

    /// Why a thread of the process, by its position, runs no code of the program as things stand. The reason follows the
    /// thread's name.
    fn idle(&self, _process: &Process<'_>, _thread: usize) -> Option<String> {
        None
    }

    /// Whether a thread of the process, by its position, could do something with one of these descriptors.
    fn user(&self, _process: &Process<'_>, _thread: usize, _descriptors: &[i32]) -> Option<Way> {
        None
    }

    /// Whether the handler that the process has for a signal could end the wait `wait`.
    fn handler(&self, _process: &Process<'_>, _signal: u32, _found: &ThreadWait) -> Option<Way> {
        None
    }

    /// Signals with handlers that could end `wait`, a bit each from 1 up, read from the process's memory: for cores, which have no
    /// such list of the kernel's. `None` where other handlers could end it, too.
    fn handled(&self, _process: &Process<'_>, _found: &ThreadWait) -> Option<u64> {
        None
    }

    /// Add what could end waits whose holders are known. All holders are known by now.
    fn wake_sources(&self, _blocked: &Blocked<'_>, _out: &mut Observations) {}
}

/// A family's result about one way in which a wait could end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is none, for this reason, which follows the name of the thread or event.
    Shut(String),
    /// It is one: how.
    Open(String),
    /// It is one as far as these go on, each with how: the tasks of an event loop.
    By(Vec<(Party, String)>),
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

/// "SIGTERM".
pub(crate) fn signal_name(number: u32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = (number as usize).checked_sub(1).and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("signal {number}"), |name| format!("SIG{name}"))
}

//! The arguments that the program passed to a call of MPI that a thread is in.
//!
//! In: the thread's frames. Out: parameters by their numbers, from 0, as far as the called function has kept them, or the
//! caller's code says what it passed. The same for every implementation: what handles are is not known here.

use super::calls::{Call, REQUESTS, call};
use crate::code::{CallSite, Code};
use crate::image::Addr;
use crate::limits::mpi::MOST_INNER;
use crate::waits::thread::{Process, ThreadView};

/// The parameters of one call.
#[derive(Debug)]
pub(super) struct Given<'a> {
    code: Code<'a>,
    thread: &'a ThreadView<'a>,
    native: usize,
}

impl<'a> Given<'a> {
    /// Those of the call whose native frame this is.
    pub(super) fn to(process: &'a Process<'_>, thread: &'a ThreadView<'_>, native: usize) -> Given<'a> {
        Given { code: Code::new(process.context.image, process.context.symbols), thread, native }
    }

    /// One that is a number.
    pub(super) fn number(&self, number: usize) -> Option<i32> {
        // The caller's value is certain; a called function may use the place of a parameter again.
        let kept = || self.code.int_parameter(&self.thread.thread?.native.frames, self.native, number);
        self.passed(number).map(low_half).or_else(kept)
    }

    /// One of the first, as the caller passes it.
    fn passed(&self, number: usize) -> Option<u64> {
        // Inner functions without names of their own may stand between.
        let callers = self.thread.thread?.native.frames.get(self.native + 1..)?.iter().take(MOST_INNER);
        let is_call = |site: &CallSite| site.function.as_deref().and_then(call).is_some();
        let current = callers.filter_map(|caller| self.code.read_around(caller, None).current).find(is_call)?;
        current.arguments.get(number).copied().flatten()
    }

    /// One that is a pointer.
    pub(super) fn pointer(&self, number: usize) -> Option<Addr> {
        self.code.parameter(&self.thread.thread?.native.frames, self.native, number).map(Addr)
    }

    /// Where its requests lie behind each other, and how many: none where that is not known. `None` for a call that is given none.
    pub(super) fn requests(&self, call: &Call) -> Option<(Addr, usize)> {
        let (_, count, at) = REQUESTS.iter().find(|(name, ..)| *name == call.operation)?;
        let number = |number: usize| self.number(number).and_then(|count| usize::try_from(count).ok());
        let count = count.map_or(Some(1), number);
        Some(self.pointer(*at).zip(count).unwrap_or((Addr(0), 0)))
    }
}

/// An `int`.
fn low_half(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

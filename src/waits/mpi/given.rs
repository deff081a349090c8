//! The arguments that the program passed to a call of MPI that a thread is in.
//!
//! In: the thread's frames. Out: parameters by their numbers, from 0, as far as the code has kept them. The same for every
//! implementation: what handles are is not known here.

use super::calls::{Call, REQUESTS};
use crate::code::Code;
use crate::image::Addr;
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
        self.code.int_parameter(&self.thread.thread?.native.frames, self.native, number)
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

//! The last call into CUDA's driver of each thread, as the recorder's table has it.
//!
//! In: the memory of a process, the table's address of its calls, the row of a thread. Out: a [`DriverCall`]. The
//! offsets are those of `preload/table.rs`, version 3. The head has the sizes of the parts that may grow.

use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::recorder::{LONGEST_FUNCTION, MOST_FUNCTIONS};

/// The head, behind what version 2 has.
mod head {
    pub(super) const CALLS: u64 = 112;
    pub(super) const CALL_SIZE: u64 = 120;
    pub(super) const FUNCTIONS: u64 = 128;
    pub(super) const FUNCTION_SIZE: u64 = 136;
    pub(super) const FUNCTION_COUNT: u64 = 144;
}

/// One call.
mod call {
    pub(super) const FUNCTION: u64 = 0;
    pub(super) const DEPTH: u64 = 4;
    pub(super) const ARGUMENTS: u64 = 8;
    pub(super) const SINCE: u64 = 40;
    pub(super) const RESULT: u64 = 56;
    pub(super) const ERROR: u64 = 60;
    pub(super) const ERROR_SINCE: u64 = 64;
    pub(super) const ERROR_FUNCTION: u64 = 72;
    pub(super) const SIZE: u64 = 76;
}

/// The last call into CUDA's driver that a thread has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DriverCall {
    /// Position of the thread among those of the image.
    pub(crate) thread: usize,
    /// `cuStreamSynchronize`, as the program has asked for it.
    pub(crate) function: String,
    /// The first words that it was given; a function with fewer arguments ignores the rest.
    pub(crate) arguments: [u64; 4],
    /// When it began, in nanoseconds since 1970 by the machine's clock as it was when the process began.
    pub(crate) since: Option<u64>,
    /// Its result; none while the thread is in it.
    pub(crate) result: Option<u32>,
    /// The last error that a call of the thread has answered.
    pub(crate) error: Option<DriverError>,
}

/// An error that a call has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DriverError {
    /// Its number.
    pub(crate) number: u32,
    /// The first call that answered it, of those since the last other error.
    pub(crate) function: String,
    /// When that was, as of a call.
    pub(crate) since: Option<u64>,
}

/// Where a table has its calls.
#[derive(Debug)]
pub(super) struct Calls<'m> {
    memory: &'m dyn Memory,
    at: Addr,
    size: u64,
    functions: Addr,
    function_size: u64,
    function_count: u64,
    epoch: u64,
}

/// A time of the table, in nanoseconds since 1970; zero stands for none.
pub(super) fn time(written: u64, epoch: u64) -> Option<u64> {
    (written != 0).then(|| written.wrapping_add(epoch))
}

impl<'m> Calls<'m> {
    /// The calls of the table at this address.
    pub(super) fn of(memory: &'m dyn Memory, table: Addr, epoch: u64) -> Option<Calls<'m>> {
        let calls = Calls {
            memory,
            at: memory.pointer(table + head::CALLS).ok()?,
            size: memory.u64(table + head::CALL_SIZE).ok()?,
            functions: memory.pointer(table + head::FUNCTIONS).ok()?,
            function_size: memory.u64(table + head::FUNCTION_SIZE).ok()?,
            function_count: memory.u64(table + head::FUNCTION_COUNT).ok()?,
            epoch,
        };
        let is_sound = (call::SIZE..=4096).contains(&calls.size)
            && (1..=LONGEST_FUNCTION).contains(&calls.function_size)
            && calls.function_count <= MOST_FUNCTIONS;
        is_sound.then_some(calls)
    }

    /// That of a row.
    pub(super) fn of_row(&self, row: u64, thread: usize) -> Option<DriverCall> {
        let at = Addr(self.at.0.checked_add(row.checked_mul(self.size)?)?);
        let word = |field: u64| self.memory.u32(at + field).ok();
        let time = |field: u64| time(self.memory.u64(at + field).ok()?, self.epoch);
        let mut arguments = [0; 4];
        for (position, argument) in arguments.iter_mut().enumerate() {
            *argument = self.memory.u64(at + call::ARGUMENTS + 8 * position as u64).ok()?;
        }
        let error = || {
            let number = word(call::ERROR).filter(|number| *number != 0)?;
            let function = self.name(word(call::ERROR_FUNCTION)?)?;
            Some(DriverError { number, function, since: time(call::ERROR_SINCE) })
        };
        Some(DriverCall {
            thread,
            function: self.name(word(call::FUNCTION)?)?,
            arguments,
            since: time(call::SINCE),
            result: if word(call::DEPTH)? == 0 { word(call::RESULT) } else { None },
            error: error(),
        })
    }

    /// The name of a function, by its number and one more.
    fn name(&self, number: u32) -> Option<String> {
        let place = u64::from(number).checked_sub(1).filter(|place| *place < self.function_count)?;
        let bytes = self.memory.bytes(self.functions + place * self.function_size, self.function_size as usize).ok()?;
        let name = bytes.split(|byte| *byte == 0).next()?;
        let is_name = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        is_name.then(|| String::from_utf8_lossy(name).into_owned())
    }
}

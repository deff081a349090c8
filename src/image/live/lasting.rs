//! Whether a thread stays within a call.
//!
//! In: a thread, and where the call returns to. Out: how long the thread has run since then without getting there, if it has not. A thread that
//! polls looks the same in any two looks, whether in one call or in a thousand; the processor counts how often an instruction is executed
//! (a breakpoint of the kernel's perf events, which stops nobody). It says nothing of where the thread was when that began:
//! that says a look which comes later.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use crate::image::Addr;
use crate::sys;

/// A thread that is counted.
#[derive(Debug)]
pub(crate) struct Lasting {
    event: File,
}

impl Lasting {
    /// From now on.
    pub(crate) fn of(thread: i32, returns_to: Addr) -> io::Result<Lasting> {
        Ok(Lasting { event: sys::count_executions(thread, returns_to.0)? })
    }

    /// How long the thread has run by now without getting there; `None` if it has been there, or was not counted all the time.
    pub(crate) fn ran(&mut self) -> Option<Duration> {
        let mut bytes = [0; 24];
        // Of one that could not be counted there is nothing to read.
        self.event.read_exact(&mut bytes).ok()?;
        let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or_default());
        let (count, enabled, running) = (words.next()?, words.next()?, words.next()?);
        (count == 0 && enabled == running).then_some(Duration::from_nanos(running))
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[inline(never)]
    fn called() {
        black_box(());
    }

    /// Burn so much of the processor.
    fn burn() {
        for number in 0..20_000_000 {
            black_box(number);
        }
    }

    #[test]
    fn what_is_executed_is_counted_and_what_is_not_is_timed() {
        let own = nix::unistd::gettid().as_raw();
        let at = Addr(called as *const () as u64);
        let mut lasting = match Lasting::of(own, at) {
            Ok(lasting) => lasting,
            // Without the right to it (kernel.perf_event_paranoid), or without breakpoints.
            Err(error) => return assert!(error.raw_os_error().is_some(), "{error}"),
        };
        burn();
        let ran = lasting.ran().expect("nobody was there");
        assert!(ran > Duration::ZERO);
        burn();
        assert!(lasting.ran().is_some_and(|later| later > ran));
        called();
        assert_eq!(lasting.ran(), None);
    }

    #[test]
    fn who_is_not_there_is_not_counted() {
        assert!(Lasting::of(i32::MAX, Addr(0x1000)).is_err());
    }
}

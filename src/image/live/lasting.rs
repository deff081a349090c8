//! Whether a thread stays within a call.
//!
//! In: a thread, and the return address of its call. Out: whether the thread got there since then ([`Stay`]), and how
//! long it has run if not. A thread that polls looks the same in any two samples, whether in one call or in a thousand.
//! The processor counts how often an instruction is executed (a breakpoint of the kernel's perf events, which stops no
//! thread). It does not show where the thread was when the count began: a later sample does.

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

/// Whether a thread has stayed within its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// It has run for so long without coming out.
    Within(Duration),
    /// It has come out.
    Left,
    /// It was not counted all the time, as others use the processor's breakpoints too.
    Unknown,
}

impl Lasting {
    /// From now on.
    pub(crate) fn of(thread: i32, returns_to: Addr) -> io::Result<Lasting> {
        Ok(Lasting { event: sys::count_executions(thread, returns_to.0)? })
    }

    /// The thread's behaviour since the counter began.
    pub(crate) fn stay(&mut self) -> Stay {
        let mut words = [[0; 8]; 3];
        // A thread that could not be counted has nothing to read.
        if self.event.read_exact(words.as_flattened_mut()).is_err() {
            return Stay::Unknown;
        }
        match words.map(u64::from_ne_bytes) {
            [0, enabled, running] if enabled == running => Stay::Within(Duration::from_nanos(running)),
            [0, ..] => Stay::Unknown,
            _ => Stay::Left,
        }
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
        let Stay::Within(ran) = lasting.stay() else { panic!("nobody was there") };
        assert!(ran > Duration::ZERO);
        burn();
        assert!(matches!(lasting.stay(), Stay::Within(later) if later > ran));
        called();
        assert_eq!(lasting.stay(), Stay::Left);
    }

    #[test]
    fn who_is_not_there_is_not_counted() {
        assert!(Lasting::of(i32::MAX, Addr(0x1000)).is_err());
    }
}

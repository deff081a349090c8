//! Memory that is likely to be wanted soon, read by the second copier while lockscope does other work.
//!
//! In: pieces of memory. Out: their pages as they come. Only pages in memory are read, so the only wait is for the
//! copier's turn on a busy machine. Where that takes too long, all of it is dropped, and needed pages are read on
//! request.

use std::time::{Duration, Instant};

use super::copier::{Ahead, Copier, Wanted};
use super::late::{LIMIT, TIMES_WHEN_BUSY};
use super::memory::Begun;

/// How often a waiter for a page checks whether it came.
const TURN: Duration = Duration::from_millis(1);

impl Copier {
    /// Have the second copier read memory of one process, if there is one and it has nothing else to do; whether it does.
    pub(super) fn begin_ahead(&mut self, process: usize, wanted: &[Wanted]) -> bool {
        let needed = wanted.iter().map(|one| one.span.length / super::copying::PAGE).sum();
        let Some(second) = self.free_second().filter(|second| second.room() >= needed) else { return false };
        let (copies, began) = (second.begin(wanted), Instant::now());
        self.ahead = Some(Ahead { process, copies, began });
        true
    }

    /// The pages read ahead of a process that came since the last call. Waits for a moment.
    pub(super) fn read_ahead(&mut self, process: usize) -> Begun {
        let Some((second, ahead)) = self.second_and_ahead().filter(|(_, ahead)| ahead.process == process) else {
            return Begun::Left;
        };
        let mut ranges = second.so_far(&mut ahead.copies);
        if ranges.is_empty() {
            second.wait_for(&mut ahead.copies, Instant::now() + TURN);
            ranges = second.so_far(&mut ahead.copies);
        }
        if ahead.copies.is_complete {
            self.ahead = None;
            return Begun::All(ranges);
        }
        let time = ahead.began.elapsed();
        let is_stuck = || ranges.is_empty() && time > LIMIT && second.is_blocked();
        if second.is_dead() || time > LIMIT * TIMES_WHEN_BUSY || is_stuck() {
            self.leave_second();
            return Begun::Left;
        }
        Begun::Some(ranges)
    }

    /// Read nothing more ahead: another look begins.
    pub(super) fn stop_ahead(&mut self) {
        let Some((second, ahead)) = self.second_and_ahead() else { return };
        second.cancel();
        second.wait_for(&mut ahead.copies, Instant::now() + LIMIT);
        match ahead.copies.is_complete {
            true => self.ahead = None,
            false => self.leave_second(),
        }
    }
}

//! Threads that sleep for a time, and how much of it is left.
//!
//! In: a process whose memory can be read. Out: whether one of its threads may soon try something again, and nothing
//! else about the threads.

use std::cell::LazyCell;

use nix::time::{ClockId, clock_gettime};

use super::proc_fs::ProcFs;
use crate::arch::system_calls::Until;
use crate::image::{Addr, MemoryExt, ProcessImage, Syscall, ThreadImage};

/// A thread that tries something repeatedly is taken to do so at least as often, in seconds. The kernel gives
/// /proc/locks after 5 to 25 ms. A server whose main thread sleeps for hours therefore does not count as one that polls
/// locks.
const BETWEEN_TRIES: i64 = 300;

/// Whether a thread of a process sleeps for a time that is short or unknown, as one does that tries something
/// repeatedly.
pub(super) fn is_brief(proc_fs: &ProcFs, process: &ProcessImage) -> bool {
    let has_own_time = LazyCell::new(|| has_own_time(proc_fs, process.pid));
    let mut calls = process.threads.iter().filter_map(ThreadImage::call);
    calls.any(|call| is_brief_call(process, &call, || *has_own_time).unwrap_or(false))
}

/// `None` for a call that is no sleep.
fn is_brief_call(process: &ProcessImage, call: &Syscall, has_own_time: impl Fn() -> bool) -> Option<bool> {
    let row = process.architecture.system_call(call.number)?;
    let (at, until) = row.sleep(&call.arguments)?;
    if at == 0 {
        // Without an end.
        return Some(false);
    }
    let Ok(seconds) = process.memory.u64(Addr(at)) else { return Some(true) };
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let left = match until {
        Until::Elapsed => seconds,
        Until::Clock(clock) => match clock_gettime(ClockId::from_raw(i32::try_from(clock).unwrap_or(-1))) {
            Ok(now) if has_own_time() => seconds.saturating_sub(now.tv_sec()),
            _ => return Some(true),
        },
    };
    Some(left <= BETWEEN_TRIES)
}

/// Whether a process has the clocks that lockscope has: in another time namespace they say something else.
fn has_own_time(proc_fs: &ProcFs, pid: i32) -> bool {
    let namespace = |of: &std::path::Path| std::fs::read_link(of.join("ns/time")).ok();
    namespace(&proc_fs.process(pid)) == namespace(&proc_fs.root().join("self"))
}

//! Threads that stand between a lock call and the unlock call of the same lock, by the code that they are in.
//!
//! In: a lock, a thread, the names of the calls. Out: [`Between`]. This is the evidence for locks whose holder nobody
//! records (reader sets, spinlocks). Straight-line reading ([`crate::code`]): what comes of it is an inference.

use super::super::facts::{Process, ThreadFacts};
use crate::code::{CallSite, Code};
use crate::image::Addr;

/// A thread that stands between a lock call and the unlock call of the same lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Between {
    /// Lock calls without their unlock.
    pub depth: u32,
    /// Position of the native frame that took the lock last.
    pub native: usize,
    /// How it is known.
    pub evidence: String,
}

/// The most frames that are read, from the innermost on.
const MOST_FRAMES: usize = 64;

/// Whether the code that `thread` is in the middle of has locked `lock` by one of `locks` and not yet unlocked it by
/// one of `unlocks`. What callers did comes before what they called.
pub fn between(
    process: &Process<'_>,
    thread: &ThreadFacts<'_>,
    lock: Addr,
    locks: &[&str],
    unlocks: &[&str],
) -> Option<Between> {
    let frames = &thread.thread?.native.frames;
    let code = Code::new(process.context.image, process.context.symbols);
    let name = |site: &CallSite| {
        site.function.as_deref().map(super::super::family::plain_name).unwrap_or_default().to_string()
    };
    let mut taken: Vec<(usize, CallSite)> = Vec::new();
    for (native, frame) in frames.iter().enumerate().take(MOST_FRAMES).rev() {
        for site in code.calls_before(frame, thread.pthread) {
            if site.arguments[0] != Some(lock.0) {
                continue;
            }
            let name = name(&site);
            if locks.contains(&name.as_str()) {
                taken.push((native, site));
            } else if unlocks.contains(&name.as_str()) {
                taken.pop();
            }
        }
    }
    let depth = taken.len() as u32;
    let (native, site) = taken.pop()?;
    let evidence = format!(
        "frame {native} of {} called {}({lock}) at {} and no unlock of it since, reading its code in a straight line",
        thread.describe(),
        site.function.as_deref().unwrap_or_default(),
        site.at
    );
    Some(Between { depth, native, evidence })
}

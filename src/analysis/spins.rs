//! Threads that seem to spin in a call that works at other times: only several samples show it.
//!
//! In: the analysis of one sample after the other. Out: whether enough was seen, and which of the waits are none. A
//! thread that was in the very same call each time, by its stack, waits there; any other was caught at work.

use std::collections::BTreeMap;

use crate::image::Addr;
use crate::limits::analysis::INNER_FRAMES;
use crate::limits::analysis::MOVING_FRAMES;
use crate::threads::Thread;
use crate::waits::{Certainty, Observations, Party, Wait};

/// Samples that must show the same before it is called a wait. Two may meet a training loop in the same launch twice
/// (seen in one sample of five).
const ENOUGH: u32 = 3;

/// The samples so far.
#[derive(Debug, Default)]
pub(super) struct Spins {
    /// The part of a thread's stack that must stay, and in how many samples it did; 0 after one in which it did not.
    seen: BTreeMap<Party, (Part, u32)>,
}

/// The part of a stack that a thread which waits keeps.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// From the call outwards, and the lines of Python.
    outer: Vec<(Addr, u64)>,
    /// Inside the call, the outermost first: as many as were there.
    inner: Vec<(Addr, u64)>,
}

impl Part {
    /// The part of a call at this address, with nothing inside.
    #[cfg(test)]
    pub(super) fn of_call(pc: Addr) -> Part {
        Part { outer: vec![(pc, 0)], inner: Vec::new() }
    }

    /// Whether both may be of one wait.
    pub(super) fn fits(&self, other: &Part) -> bool {
        self.outer == other.outer && self.inner.iter().zip(&other.inner).all(|(here, there)| here == there)
    }
}

impl Spins {
    /// Take in another sample.
    pub(super) fn look(&mut self, observations: &Observations, threads: &[Vec<Thread>]) {
        let unsure = observations.waits.iter().filter(|wait| is_unsure(wait));
        let now: BTreeMap<Party, Part> =
            unsure.filter_map(|wait| Some((wait.waiter.clone(), steady_part(wait, threads)?))).collect();
        self.seen.retain(|waiter, _| now.contains_key(waiter));
        for (waiter, part) in now {
            let (known, count) = self.seen.entry(waiter).or_insert_with(|| (part.clone(), 0));
            *count = if known.fits(&part) { *count + 1 } else { 0 };
            *known = part;
        }
    }

    /// Whether another sample could show more.
    pub(super) fn are_open(&self, looks: u32) -> bool {
        self.seen.values().any(|(_, count)| *count == looks && looks < ENOUGH)
    }

    /// Take out the unsure waits of threads that were elsewhere in one of the samples. `confirmed`: a cycle was seen
    /// twice, and is settled by that.
    pub(super) fn drop_unconfirmed(&self, observations: &mut Observations, looks: u32, confirmed: bool) {
        let enough = if confirmed { ENOUGH - 1 } else { ENOUGH }.min(looks);
        let stays = |waiter: &Party| self.seen.get(waiter).is_some_and(|(_, count)| *count >= enough);
        observations.waits.retain(|wait| !is_unsure(wait) || stays(&wait.waiter));
    }
}

pub(super) fn steady_part(wait: &Wait, threads: &[Vec<Thread>]) -> Option<Part> {
    let Party::Thread(process, tid) = wait.waiter else { return None };
    let threads = threads.get(process)?;
    let sorted = threads.binary_search_by_key(&tid, |thread| thread.tid).ok();
    let thread = threads.get(sorted.or_else(|| threads.iter().position(|thread| thread.tid == tid))?)?;
    let call = thread.frames.get(wait.frame?)?.native?;
    let native = |range: std::ops::Range<usize>| thread.native.frames.get(range).unwrap_or_default().iter();
    let python = thread.frames.iter().filter_map(|frame| Some((frame.python?, u64::from(frame.line.unwrap_or(0)))));
    let outer = native(call..thread.native.frames.len()).map(|frame| (frame.pc, frame.sp.0)).chain(python).collect();
    let from = call.saturating_sub(INNER_FRAMES).max(MOVING_FRAMES.min(call));
    let inner = native(from..call).rev().map(|frame| (frame.pc, frame.sp.0)).collect();
    Some(Part { outer, inner })
}

fn is_unsure(wait: &Wait) -> bool {
    wait.spinning && wait.certainty < Certainty::Exact
}

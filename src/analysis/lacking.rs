//! Sleeping threads that were read with a part of their registers, and whose decoding needs the rest.
//!
//! In: one sample, analysed. Out: the threads that have to be stopped for their registers. If /proc is the only source
//! on a sleeping thread, its callee-saved registers are unknown until an unwound frame has saved them. This suffices
//! for a thread whose stack could be unwound to its end, and whose wait needs only the arguments of its system call.
//! Nothing is read here.

use std::collections::BTreeSet;

use crate::image::{Image, RegisterSource};
use crate::threads::Thread;
use crate::waits::kinds::Giver;
use crate::waits::{Certainty, Observations, Party, Strength};

/// The ids of those threads.
pub(super) fn threads(image: &Image, threads: &[Vec<Thread>], observations: &Observations) -> BTreeSet<i32> {
    let by_files = |(process, thread): (usize, &Thread)| {
        let image = image.processes.get(process)?.thread(thread.tid)?;
        (image.source == RegisterSource::KernelFiles).then_some((process, thread.tid))
    };
    let all =
        threads.iter().enumerate().flat_map(|(process, threads)| threads.iter().map(move |thread| (process, thread)));
    let asleep: BTreeSet<(usize, i32)> = all.clone().filter_map(by_files).collect();
    if asleep.is_empty() {
        return BTreeSet::new();
    }
    // The search for an unknown holder reads the registers of all threads.
    let known: BTreeSet<_> = observations
        .holds
        .iter()
        .filter(|hold| hold.strength == Strength::Recorded)
        .map(|hold| hold.resource.clone())
        .collect();
    let is_unknown =
        |wait: &&crate::waits::Wait| wait.resource.kind.giver == Giver::Holder && !known.contains(&wait.resource);
    if observations.waits.iter().any(|wait| is_unknown(&wait)) {
        return asleep.into_iter().map(|(_, tid)| tid).collect();
    }
    let unsure: BTreeSet<(usize, i32)> = observations
        .waits
        .iter()
        .filter(|wait| wait.certainty != Certainty::Exact)
        .filter_map(|wait| match wait.waiter {
            Party::Thread(process, tid) => Some((process, tid)),
            _ => None,
        })
        .collect();
    let unwound: BTreeSet<(usize, i32)> =
        all.filter(|(_, thread)| thread.is_unwound()).map(|(process, thread)| (process, thread.tid)).collect();
    let lacks = |thread: &(usize, i32)| unsure.contains(thread) || !unwound.contains(thread);
    asleep.into_iter().filter(lacks).map(|(_, tid)| tid).collect()
}

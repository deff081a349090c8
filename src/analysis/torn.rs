//! Whether a look read structures that were changed meanwhile, so that it has to be taken once more.
//!
//! In: a look and what was observed in it. Out: whether a ring of tasks is kept from being one by something that was read of an
//! interpreter at work: in the first look most memory is read after the release, and at an instant of any look the interpreter may
//! be in the midst of a turn of its loop. It judges nothing.

use crate::image::{Image, TaskState};
use crate::waits::Observations;

/// Whether anything that could end a ring of tasks was read of a thread that was at work.
pub(super) fn is_torn(image: &Image, observations: &Observations, of_one_instant: bool) -> bool {
    let slept = |(process, tid): &(usize, Option<i32>)| {
        let threads = image.processes.get(*process).map(|process| process.threads.as_slice()).unwrap_or_default();
        let thread = threads.iter().find(|thread| Some(thread.tid) == *tid);
        thread.is_some_and(|thread| thread.state != TaskState::Running)
    };
    let is_whole = of_one_instant && observations.read_of.iter().all(slept);
    !is_whole && !observations.read_of.is_empty()
}

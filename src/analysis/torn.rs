//! Whether a sample read structures while they changed, so that it has to be repeated.
//!
//! In: a sample with its observations. Out: whether data of a working interpreter keeps a ring of tasks from being one.
//! In the first sample most memory is read after the release, and in any sample the interpreter may be inside a turn of
//! its loop. This module judges nothing.

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

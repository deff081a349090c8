//! Runs of frames that are nobody's of the program, which a stack tells in one line each.
//!
//! In: a thread, and which of its frames are marked. Out: [`Run`]s with words for them. Lays nothing out.

use std::ops::Range;

use crate::report::Thread;

/// Owners of a run that are named.
const NAMED: usize = 2;

/// Frames of others in a row.
pub(super) struct Run {
    pub(super) frames: Range<usize>,
    owners: Vec<String>,
}

impl Run {
    /// `7 frames of CPython and the C library`.
    pub(super) fn told(&self) -> String {
        let named = self.owners.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
        let others = if self.owners.len() > NAMED { ", and others" } else { "" };
        format!(
            "{} frames of {}{others}",
            self.frames.len(),
            named.join(if others.is_empty() { " and " } else { ", " })
        )
    }
}

/// The runs of a stack: frames of others, none of them marked; one alone is told as it is.
pub(super) fn runs(thread: &Thread, is_marked: impl Fn(usize) -> bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, frame) in thread.frames.iter().enumerate() {
        let Some(owner) = frame.belongs_to.as_ref().filter(|_| !is_marked(index)) else { continue };
        match runs.last_mut().filter(|run| run.frames.end == index) {
            Some(run) => {
                run.frames.end += 1;
                if !run.owners.contains(owner) {
                    run.owners.push(owner.clone());
                }
            }
            None => runs.push(Run { frames: index..index + 1, owners: vec![owner.clone()] }),
        }
    }
    runs.retain(|run| run.frames.len() > 1);
    runs
}

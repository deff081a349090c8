//! Facts about frames by their names alone, taken over from the thread before: most threads do the same as the one
//! before.
//!
//! In: the frames of one thread after the other. Out: the facts about each. The caller's function finds the facts.

use super::Frame;

/// The frames of the thread before, with the facts about each.
#[derive(Debug)]
pub(crate) struct Alike<'t, Said> {
    before: Vec<(&'t Frame, Said)>,
}

impl<Said> Default for Alike<'_, Said> {
    fn default() -> Self {
        Alike { before: Vec::new() }
    }
}

impl<'t, Said> Alike<'t, Said> {
    /// The facts about these frames. `say` runs for a frame whose function differs from that of the frame at its
    /// position before.
    pub(crate) fn of(&mut self, frames: &'t [Frame], mut say: impl FnMut(&'t Frame) -> Said) -> &[(&'t Frame, Said)] {
        let mut known = std::mem::take(&mut self.before).into_iter();
        let mut said = |frame: &'t Frame| {
            let alike = known.next().filter(|(other, _)| runs_the_same(frame, other));
            alike.map_or_else(|| say(frame), |(_, said)| said)
        };
        self.before = frames.iter().map(|frame| (frame, said(frame))).collect();
        &self.before
    }
}

/// Whether two frames run the same function of the same file.
fn runs_the_same(one: &Frame, other: &Frame) -> bool {
    (one.kind, one.mangling) == (other.kind, other.mangling)
        && one.function == other.function
        && one.module == other.module
        && one.file == other.file
}

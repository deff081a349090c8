//! What is said of frames by their names alone, taken over from the thread before: most threads do what that does.
//!
//! In: the frames of one thread after the other. Out: what is said of each. It says nothing itself.

use super::Frame;

/// The frames of the thread before, with what was said of each.
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
    /// What there is to say of these; `say` is asked of a frame that runs something else than the one at its place before.
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

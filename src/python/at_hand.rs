//! Which frames have which objects at hand.
//!
//! In: one open frame after the other. Out: the frames that have an object in a variable, in an attribute of one, in a
//! global that the code names, or in an attribute of that. Data that many frames share, their globals and the
//! attributes of an object, is kept once.

use std::collections::HashMap;

use crate::image::{Addr, AddrMap, AddrSet};

/// A frame that refers to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Referrer {
    /// Position in [`Python::threads`](super::Python::threads).
    pub(crate) state: usize,
    /// How many frames lie further in.
    pub(crate) depth: usize,
}

/// Code with the dictionary of its globals.
pub(super) type CodeOfModule = (Addr, Addr);

/// The frames by what they have at hand.
#[derive(Debug, Default)]
pub(super) struct AtHand {
    /// By an object in a variable.
    by_variable: AddrMap<Vec<Referrer>>,
    by_code: HashMap<CodeOfModule, Vec<Referrer>>,
    /// The code that names a global object.
    naming: AddrMap<Vec<CodeOfModule>>,
    /// The objects that have an object as an attribute.
    owners: AddrMap<Vec<Addr>>,
    /// Objects whose attributes were already read.
    asked: AddrSet,
}

impl AtHand {
    /// A variable of a frame.
    pub(super) fn variable(&mut self, frame: Referrer, object: Addr) {
        push_new(self.by_variable.entry(object).or_default(), frame);
    }

    /// A frame runs this code; whether none before did.
    pub(super) fn code(&mut self, frame: Referrer, code: CodeOfModule) -> bool {
        let frames = self.by_code.entry(code).or_default();
        push_new(frames, frame);
        frames.len() == 1
    }

    /// A global that code names.
    pub(super) fn global(&mut self, code: CodeOfModule, object: Addr) {
        self.naming.entry(object).or_default().push(code);
    }

    /// Whether the attributes of an object are not known yet; they are from now on.
    pub(super) fn is_new(&mut self, object: Addr) -> bool {
        self.asked.insert(object)
    }

    /// An attribute of an object.
    pub(super) fn attribute(&mut self, object: Addr, value: Addr) {
        push_new(self.owners.entry(value).or_default(), object);
    }

    /// The frames that have an object at hand, those of one thread together, its innermost first.
    pub(super) fn frames(&self, object: Addr) -> Vec<Referrer> {
        let owners = self.owners.get(&object).into_iter().flatten();
        let mut frames = Vec::new();
        for one in std::iter::once(&object).chain(owners) {
            frames.extend(self.by_variable.get(one).into_iter().flatten());
            let codes = self.naming.get(one).into_iter().flatten();
            frames.extend(codes.filter_map(|code| self.by_code.get(code)).flatten());
        }
        frames.sort_unstable();
        frames.dedup();
        frames
    }
}

fn push_new<One: PartialEq>(list: &mut Vec<One>, one: One) {
    if list.last() != Some(&one) {
        list.push(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_in_variables_globals_and_their_attributes() {
        let place = |state, depth| Referrer { state, depth };
        let (lock, cache, code) = (Addr(0x10), Addr(0x20), (Addr(1), Addr(2)));
        let mut at_hand = AtHand::default();
        at_hand.attribute(cache, lock);
        // In two variables of one frame, and as an attribute of a global that others name.
        assert!(at_hand.code(place(2, 0), code) && !at_hand.code(place(0, 1), code));
        at_hand.global(code, cache);
        for _ in 0..2 {
            at_hand.variable(place(1, 3), lock);
        }
        at_hand.variable(place(0, 1), lock);
        assert_eq!(at_hand.frames(lock), [place(0, 1), place(1, 3), place(2, 0)]);
        assert_eq!(at_hand.frames(cache), [place(0, 1), place(2, 0)]);
        assert_eq!(at_hand.frames(Addr(0x30)), []);
        assert!(at_hand.is_new(cache) && !at_hand.is_new(cache));
    }
}

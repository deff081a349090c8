//! Incomplete samples: a thread waits for another one that could not be read.
//!
//! In: one sample, analysed. Out: a sentence for the first line of the report. Threads that nobody is known to wait for
//! are a gap alone.

use std::collections::BTreeSet;

use crate::image::{Image, ThreadImage};
use crate::waits::{Observations, Party};

/// So many of them are named.
const NAMED: usize = 3;

/// The sentence; `None` if every relevant thread was read.
pub(super) fn sentence(image: &Image, observations: &Observations) -> Option<String> {
    let waited_for: BTreeSet<_> = observations.waits.iter().map(|wait| &wait.resource).collect();
    let unread = |party: &Party| match party {
        Party::Thread(process, tid) => {
            image.processes.get(*process)?.thread(*tid).filter(|thread| thread.moved && thread.registers.is_none())
        }
        _ => None,
    };
    let holders = observations.holds.iter().filter(|hold| waited_for.contains(&hold.resource));
    let missing: Vec<&ThreadImage> = holders.filter_map(|hold| unread(&hold.holder)).collect();
    let mut seen = BTreeSet::new();
    let missing: Vec<&ThreadImage> = missing.into_iter().filter(|thread| seen.insert(thread.tid)).collect();
    let named = missing.iter().take(NAMED).map(|thread| format!("{} ({})", thread.name, thread.tid));
    let named = named.collect::<Vec<_>>().join(", ");
    let (others, them) = match missing.len() {
        0 => return None,
        1 => (String::new(), "it"),
        count if count > NAMED => (format!(" and {} more", count - NAMED), "them"),
        _ => (String::new(), "them"),
    };
    Some(format!(
        "The look was incomplete: {named}{others} could not be read, and others wait for {them}; look again with a longer \
         --max-pause, without --no-stop, or as root"
    ))
}

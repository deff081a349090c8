//! What it takes to see that a suspicion still stands, without looking at everything again.
//!
//! In: what one look suspects. Out: [`Members`]: the threads and words on which all of it rests, where these are enough. Threads
//! that hold and want locks of their own process by what memory records: as long as they all sleep on, and the words of the locks are
//! the same, nothing of it can have changed, whatever others do. For anything else the next look is one at everything.

use std::collections::{BTreeMap, BTreeSet};

use super::Suspicion;
use crate::image::{Addr, Image};
use crate::verdict::Judgement;
use crate::waits::kinds::Topic;
use crate::waits::{Certainty, Party, Scope};

/// Threads, and words of memory, by process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// By thread id.
    pub(super) threads: BTreeSet<i32>,
    /// By process id.
    pub(super) words: BTreeMap<i32, BTreeSet<Addr>>,
}

/// The members of all that is suspected; `None` where more than they must be asked.
pub(super) fn members(image: &Image, judged: &Judgement, suspected: &BTreeSet<Suspicion>) -> Option<Members> {
    let mut members = Members::default();
    let mut seen = 0;
    for cycle in &judged.cycles {
        if !cycle.proven || cycle.certainty != Certainty::Exact || cycle.crosses_processes() {
            return None;
        }
        for edge in &cycle.edges {
            let (Party::Thread(process, waiter), Party::Thread(_, holder)) = (&edge.waiter, &edge.holder) else {
                return None;
            };
            let is_word = matches!(edge.resource.kind.topic, Topic::Lock | Topic::ReadWriteLock | Topic::Thread);
            if !is_word || edge.resource.scope != Scope::Process(*process) || edge.resource.address.is_null() {
                return None;
            }
            members.threads.extend([*waiter, *holder]);
            members.words.entry(image.processes.get(*process)?.pid).or_default().insert(edge.resource.address);
            seen += usize::from(suspected.contains(&(edge.waiter.clone(), edge.resource.clone(), edge.holder.clone())));
        }
    }
    // A lost owner and a wait without end rest on what others can still do.
    (seen > 0 && seen >= suspected.len()).then_some(members)
}

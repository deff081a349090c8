//! The threads and words that suffice to see that a suspicion still holds, without a full sample.
//!
//! In: what one sample suspects. Out: [`Members`]: the threads and words on which all of it rests, where these are
//! enough. Threads that hold and want locks of their own process by what memory records: as long as they all sleep on,
//! and the words of the locks are the same, nothing of it can have changed, whatever others do. For anything else the
//! next sample covers everything.

use std::collections::{BTreeMap, BTreeSet};

use crate::image::{Addr, Image};
use crate::verdict::Suspected;
use crate::waits::kinds::Topic;
use crate::waits::{Certainty, Observations, Party, Scope};

/// Threads, and words of memory, by process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// By thread id.
    pub(super) threads: BTreeSet<i32>,
    /// By process id.
    pub(super) words: BTreeMap<i32, BTreeSet<Addr>>,
}

/// The members of all suspicions; `None` if other parties must be read, too.
pub(super) fn members(image: &Image, observations: &Observations, suspected: &Suspected) -> Option<Members> {
    let mut members = Members::default();
    let mut edges = BTreeSet::new();
    for cycle in &suspected.cycles {
        if !cycle.proven || cycle.certainty != Certainty::Exact || cycle.crosses_processes() {
            return None;
        }
        for edge in &cycle.edges {
            let (Party::Thread(process, waiter), Party::Thread(_, holder)) = (&edge.waiter, &edge.holder) else {
                return None;
            };
            let is_word = matches!(edge.resource.kind.topic, Topic::Lock | Topic::ReadWriteLock | Topic::Thread);
            // A ring with a time limit in it has to outlast that.
            let is_timed = edge.wait.is_none_or(|wait| observations.waits[wait].timed);
            let is_of_process = edge.resource.scope == Scope::Process(*process) && !edge.resource.address.is_null();
            if !is_word || is_timed || !is_of_process {
                return None;
            }
            members.threads.extend([*waiter, *holder]);
            members.words.entry(image.processes.get(*process)?.pid).or_default().insert(edge.resource.address);
            edges.insert((&edge.waiter, &edge.resource, Some(&edge.holder)));
        }
    }
    // A lost owner and a wait without end rest on what others can still do.
    let shared: BTreeSet<_> = suspected.suspicions.iter().map(|suspicion| &suspicion.shared).collect();
    let links = suspected.suspicions.iter().flat_map(|suspicion| &suspicion.links);
    let links = links.chain(shared.into_iter().flat_map(|shared| shared.links()));
    let mut known = links.map(|link| edges.contains(&(&link.waiter, &link.resource, link.holder.as_ref())));
    (!edges.is_empty() && known.all(|known| known)).then_some(members)
}

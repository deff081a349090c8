//! Threads that have the address of a lock at hand: candidates, where no word records the holder and no call takes it.
//!
//! In: a lock's address and size. Out: holds that are candidates; waiters are none. One pass over the stacks of a
//! process serves all its locks of this sort, however many threads and locks there are.

use std::collections::HashMap;

use crate::image::{Addr, Gap, TaskState};
use crate::unwind::StackEnd;
use crate::waits::blocked_on::{Ownership, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::label::Label;
use crate::waits::model::{Hold, Party, Strength};
use crate::waits::observations::Observations;
use crate::waits::references::{Objects, Reference};
use crate::waits::thread::{Process, ThreadView};

/// From a lock, by its address and size, to the threads that refer to it.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_lock: HashMap<(Addr, u64), Vec<(usize, Reference)>>,
    /// Threads of whose stacks parts are beyond the limits of the search.
    in_part: usize,
}

impl Index {
    /// For all locks of a process whose holder is found by reference.
    fn new(process: &Process<'_>, waits: &[ThreadWait]) -> Index {
        let wanted = Objects::new(waits.iter().filter_map(|wait| match &wait.blocked_on.ownership {
            Ownership::ByReference(lock) => Some((lock.lock, lock.size)),
            Ownership::Readers(readers) => Some((readers.lock, readers.size)),
            Ownership::Unrecorded(unrecorded) => Some((unrecorded.lock, unrecorded.size)),
            _ => None,
        }));
        let mut index = Index::default();
        for (position, thread) in process.threads.iter().enumerate() {
            for (lock, reference) in thread.first_references(process, &wanted) {
                index.by_lock.entry(lock).or_default().push((position, reference));
            }
            index.in_part += usize::from(thread.is_searched_in_part);
        }
        index
    }
}

/// The threads of a process with a live reference to one of these locks, in their order.
pub(crate) fn referring<'b>(
    blocked: &'b Blocked<'_>,
    process: usize,
    lock: Addr,
    size: u64,
) -> &'b [(usize, Reference)] {
    let index = index(blocked, process);
    index.and_then(|index| index.by_lock.get(&(lock, size))).map(Vec::as_slice).unwrap_or_default()
}

/// The gap of stacks that were searched in part, if there are such.
pub(crate) fn searched_in_part(blocked: &Blocked<'_>, process: usize, label: &Label) -> Option<Gap> {
    let count = index(blocked, process)?.in_part;
    let threads = if count == 1 { "1 thread is" } else { "some threads are" };
    let why = format!("the stacks of {threads} too deep to be searched whole for its address ({count} in all)");
    (count > 0).then(|| Gap::new(format!("candidates for {label}"), why))
}

/// Whether the stack of each thread of a process was unwound and searched to its end.
pub(crate) fn is_looked_at_whole(blocked: &Blocked<'_>, process: usize) -> bool {
    let Some(of) = blocked.processes.get(process) else { return false };
    let is_whole = |thread: &ThreadView<'_>| {
        let end = thread.thread.map(|thread| &thread.native.end);
        thread.image.state == TaskState::Zombie || matches!(end, Some(StackEnd::Bottom)) && !thread.is_searched_in_part
    };
    of.threads.iter().all(is_whole)
}

fn index<'b>(blocked: &'b Blocked<'_>, process: usize) -> Option<&'b Index> {
    let (known, of) = (blocked.references.get(process)?, blocked.processes.get(process)?);
    Some(known.get_or_init(|| Index::new(of, blocked.waits_of(process))))
}

/// Threads that do not wait for the lock and have its address in a register or on their stack: candidates.
pub(crate) fn candidates(blocked: &Blocked<'_>, wait: &ThreadWait, lock: Addr, size: u64, out: &mut Observations) {
    let process = blocked.process(wait);
    let key = &wait.blocked_on.resource.key;
    let waits = |position: usize| blocked.waits_for(key, wait.process, position);
    let others = referring(blocked, wait.process, lock, size).iter().filter(|(position, _)| !waits(*position));
    let is_sole = others.clone().count() == 1 && is_looked_at_whole(blocked, wait.process);
    let strength = if is_sole { Strength::SoleCandidate } else { Strength::Candidate };
    for (position, reference) in others {
        let Some(thread) = process.threads.get(*position) else { continue };
        let evidence = vec![
            format!("{} has its address: {}", thread.describe(), reference.place),
            "the lock records no owner: a candidate".into(),
        ];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let frame = reference.native.and_then(|native| thread.merged(native));
        let hold = exact_hold(key, holder, None, evidence);
        out.holds.push(Hold { strength, frame, ..hold });
    }
    out.gaps.extend(searched_in_part(blocked, wait.process, &wait.blocked_on.resource.label));
}

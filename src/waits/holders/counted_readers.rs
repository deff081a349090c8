//! Readers that a lock counts and does not name.
//!
//! In: how many there are, and the calls that take the lock for reading. Out: holds, inferred where the code of threads
//! accounts for all of them; else candidates, and a gap.

use super::{by_critical_section, by_reference};
use crate::image::Gap;
use crate::waits::accounts::Unnamed;
use crate::waits::blocked_on::{Readers, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Hold, Party, Resource, Strength};
use crate::waits::observations::Observations;
use crate::waits::references::Reference;
use crate::waits::thread::Process;

/// Add the readers of a read-held lock. Where code does not account for all, threads that do not wait for the lock and have its
/// address in a frame or register are candidates. A waiter has the address anyway, so its own references are no evidence.
pub(crate) fn holders(blocked: &Blocked<'_>, wait: &ThreadWait, readers: &Readers, out: &mut Observations) {
    let Readers { library, count, lock, size, calls } = *readers;
    let process = blocked.process(wait);
    let resource = &wait.blocked_on.resource;
    let mut candidates = by_code(blocked, process, resource, readers);
    // Readers found in the code account for all: then each is inferred. Otherwise they are candidates among others.
    let surely = || candidates.iter().filter(|(hold, _)| hold.is_known());
    if surely().map(|(_, depth)| *depth).sum::<u32>() == count {
        out.holds.extend(surely().map(|(hold, _)| hold.clone()));
        return;
    }
    candidates.iter_mut().for_each(|(hold, _)| hold.strength = Strength::Candidate);
    let mut candidates: Vec<_> = candidates.into_iter().map(|(hold, _)| hold).collect();
    let add = |candidates: &mut Vec<Hold>, position: usize, reference: &Reference| {
        let Some(thread) = process.threads.get(position) else { return };
        let holder = Party::Thread(process.context.process, thread.image.tid);
        if candidates.iter().any(|known: &Hold| known.holder == holder) {
            return;
        }
        let evidence = vec![
            format!("read-held by {count}; {} has its address: {}", thread.describe(), reference.place),
            format!("{library} records no reader ids: a candidate"),
        ];
        let frame = reference.native.and_then(|native| thread.merged(native));
        let hold = exact_hold(&resource.key, holder, calls.mode, evidence);
        candidates.push(Hold { strength: Strength::Candidate, frame, ..hold });
    };
    let waits = |position: usize| blocked.waits_for(&resource.key, wait.process, position);
    let referring = by_reference::referring(blocked, wait.process, lock, size);
    for (position, reference) in referring.iter().filter(|(position, _)| !waits(*position)) {
        add(&mut candidates, *position, reference);
    }
    out.gaps.extend(by_reference::searched_in_part(blocked, wait.process, &resource.label));
    let gap = Gap::new(
        format!("readers of {}", resource.label),
        format!("{library} records no reader ids; {count} hold it for reading"),
    );
    out.unnamed.push(Unnamed { resource: resource.key.clone(), gap, counts_candidates: true });
    out.holds.extend(candidates);
}

/// Threads whose code is between a read lock and the unlock of this lock, with the number of their read locks.
fn by_code(blocked: &Blocked<'_>, process: &Process<'_>, resource: &Resource, readers: &Readers) -> Vec<(Hold, u32)> {
    let sections = by_critical_section::sections(blocked, process, readers.lock, readers.calls).into_iter();
    sections
        .map(|section| {
            let depth = section.depth;
            (section.hold(process, &resource.key, readers.calls), depth)
        })
        .collect()
}

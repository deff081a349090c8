//! Readers that a lock counts and does not name.
//!
//! In: how many there are, and the calls that take the lock for reading. Out: holds, inferred where the code of threads
//! accounts for all of them; else candidates, and a gap.

use super::{by_critical_section, by_reference};
use crate::image::Gap;
use crate::limits::holders::CALL_FRAMES;
use crate::symbols::begins_with;
use crate::waits::blocked_on::{Readers, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Certainty, Hold, Party, Resource};
use crate::waits::observations::Observations;
use crate::waits::references::Reference;
use crate::waits::thread::{Process, ThreadView};

/// The candidates of a read-held lock: threads that do not wait for it and have its address in a frame or register.
/// Only if there is none, a thread that asks for more than it has: the address in a frame outside of the call.
pub(crate) fn holders(blocked: &Blocked<'_>, wait: &ThreadWait, readers: &Readers, out: &mut Observations) {
    let Readers { library, count, lock, size, calls } = *readers;
    let process = blocked.process(wait);
    let resource = &wait.blocked_on.resource;
    let mut candidates = by_code(blocked, process, resource, readers);
    // Readers found in the code account for all: then each is inferred. Otherwise they are candidates among others.
    if candidates.iter().map(|(_, depth)| *depth).sum::<u32>() == count {
        out.holds.extend(candidates.into_iter().map(|(hold, _)| counted(hold, readers)));
        return;
    }
    candidates.iter_mut().for_each(|(hold, _)| hold.certainty = Certainty::Candidate);
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
        candidates.push(Hold { certainty: Certainty::Candidate, frame, ..hold });
    };
    let waits = |position: usize| blocked.waits_for(&resource.key, wait.process, position);
    let referring = by_reference::referring(blocked, wait.process, lock, size);
    for (position, reference) in referring.iter().filter(|(position, _)| !waits(*position)) {
        add(&mut candidates, *position, reference);
    }
    if candidates.is_empty() {
        for (position, thread) in process.threads.iter().enumerate().filter(|(position, _)| waits(*position)) {
            let from = outside_of_the_call(thread, wait.blocked_on.entry_points).unwrap_or(1);
            let outside = |reference: &Reference| reference.is_live() && reference.is_from(from);
            if let Some(reference) = thread.references(process, lock, size).find(outside) {
                add(&mut candidates, position, &reference);
            }
        }
    }
    out.gaps.extend(by_reference::searched_in_part(blocked, wait.process, &resource.label));
    let gap = Gap::new(
        format!("readers of {}", resource.label),
        format!(
            "{library} records no reader ids; {count} hold it for reading, {} possible",
            match candidates.len() {
                0 => "no captured thread is".to_owned(),
                1 => "1 thread is".to_owned(),
                n => format!("{n} threads are"),
            }
        ),
    );
    out.nameless_readers.push((resource.key.clone(), gap));
    out.holds.extend(candidates.into_iter().map(|hold| counted(hold, readers)));
}

/// A hold of one of these readers.
pub(crate) fn counted(hold: Hold, readers: &Readers) -> Hold {
    Hold { counted_readers: Some(readers.count), ..hold }
}

/// The first frame outside of the call that waits: what it was given is at hand inside of it.
fn outside_of_the_call(thread: &ThreadView<'_>, entry_points: &[&str]) -> Option<usize> {
    let is_entry = |name: &str| entry_points.iter().any(|prefix| begins_with(name, prefix));
    thread.names(CALL_FRAMES).filter(|(_, name)| is_entry(name)).map(|(native, _)| native + 1).max()
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

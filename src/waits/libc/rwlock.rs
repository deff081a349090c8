//! `pthread_rwlock_t`: read- and write-held, with three futex words.
//!
//! In: a [`Case`]. Out: the lock, the mode asked for, and the holder: a writer exactly; readers as a number, since
//! glibc records no names, with the threads that have the lock's address at hand as candidates.

use super::super::facts::Process;
use super::super::family::{Decoded, Found, Look, exact_hold, waits_for};
use super::super::owner::{Owner, Ownership};
use super::super::{Certainty, Hold, Observations, Party, Resource};
use super::layout::rwlock as layout;
use super::{Case, call_sites};
use crate::image::{Addr, Gap};
use crate::waits::kinds;

/// Calls that wait for an rwlock.
pub const API: &[&str] = &["pthread_rwlock_"];
/// More readers than any process has threads mean that it is no rwlock.
const MOST_READERS: u32 = 1 << 20;

/// Decode an rwlock wait.
pub fn decode(case: &Case<'_, '_>) -> Option<Decoded> {
    let (base, field, mode) = base(case)?;
    let word = case.word(base, 0)?;
    let writer = case.word(base, layout::CURRENT_WRITER)?;
    let count = word >> layout::READERS_SHIFT;
    let write_phase = word & layout::WRITE_PHASE != 0;
    if count > MOST_READERS {
        return None;
    }
    // In a write phase the counted readers wait; they hold only in a read phase.
    let (reading, waiting) = if write_phase { (0, count) } else { (count, 0) };
    let mut state = vec![
        ("readers", i64::from(reading)),
        ("waiting_readers", i64::from(waiting)),
        ("cur_writer", i64::from(writer)),
        ("write_phase", i64::from(write_phase)),
        ("readers_word", i64::from(word)),
    ];
    let fields = [
        ("writers", layout::WRITERS),
        ("wrphase_futex", layout::PHASE_FUTEX),
        ("writers_futex", layout::WRITERS_FUTEX),
        ("kind", layout::FLAGS),
    ];
    state.extend(fields.iter().filter_map(|&(name, at)| Some((name, i64::from(case.word(base, at)?)))));
    let mut evidence = vec![case.word_is("rwlock", base, field)];
    let at = base + layout::CURRENT_WRITER;
    let ownership = if writer != 0 && write_phase {
        evidence.push(format!("__cur_writer = {writer} at {at} (rwlock + 24)"));
        Ownership::Tid(Owner {
            tid: writer as i32,
            died: false,
            mode: Some("write"),
            lock: base,
            size: layout::SIZE,
            evidence: vec![format!("__cur_writer = {writer} at {at}"), format!("__readers = {word:#x}: a write phase")],
        })
    } else if reading > 0 {
        evidence.push(format!("__readers = {word:#x} at {base}: read-held by {reading}, __cur_writer = 0"));
        if field == "__writers_futex" {
            evidence.push("another writer is in front of it and waits for the readers too".into());
        }
        Ownership::Readers(reading, base)
    } else {
        evidence.push(format!("__readers = {word:#x} at {base}, __cur_writer = {writer}"));
        Ownership::Unknown
    };
    // Behind a preferred writer, a reader waits for that writer and not for the readers, whom it could join: the place
    // in the queue is a thing of its own, or each thread that reads twice would seem to wait for itself alone.
    if field == "__readers" {
        let mut queue = case.resource(kinds::PTHREAD_RWLOCK, "queued writer of rwlock", base, state);
        queue.key = super::super::family::key(case.process, kinds::PTHREAD_RWLOCK, base + layout::WRITERS);
        return Some(case.below.refined(queue, API, evidence).with_mode(mode).owned(Ownership::QueuedWriter(base)));
    }
    let changing = matches!(ownership, Ownership::Unknown);
    let decoded = case
        .below
        .refined(case.resource(kinds::PTHREAD_RWLOCK, "rwlock", base, state), API, evidence)
        .with_mode(mode)
        .owned(ownership);
    Some(if changing {
        decoded.with_gap(Gap::new(format!("owner of rwlock {base}"), "it is changing hands, look again"))
    } else {
        decoded
    })
}

/// The lock's base, the field that the futex word is, and the mode asked for (table in libc.md section 1):
/// a writer waits with value 3 on +12 for other writers and with value 2 on +8 for the readers; a reader waits with
/// value 3 on +8 for a writer, and on +0 behind a writer that is preferred.
fn base(case: &Case<'_, '_>) -> Option<(Addr, &'static str, &'static str)> {
    let futex = case.futex;
    if futex.command != 9 {
        return None;
    }
    let at_phase = futex.word - layout::PHASE_FUTEX;
    let at_writers = futex.word - layout::WRITERS_FUTEX;
    let locked = |base: Addr| {
        let flags = case.word(base, layout::FLAGS)?;
        Some(case.word(base, 0)? & layout::WRITE_LOCKED != 0 && flags <= 2)
    };
    let phase = |base: Addr| {
        let writers_futex = case.word(base, layout::WRITERS_FUTEX)?;
        Some(locked(base)? && matches!(writers_futex, 0 | 1 | 3))
    };
    let writers = |base: Addr| {
        let (word, phase) = (case.word(base, 0)?, case.word(base, layout::PHASE_FUTEX)?);
        Some(locked(base)? && phase <= 3 && word & 1 == phase & 1)
    };
    let reader = case.inside(&["pthread_rwlock_rdlock", "pthread_rwlock_timedrdlock", "pthread_rwlock_clockrdlock"]);
    let writer = case.inside(&["pthread_rwlock_wrlock", "pthread_rwlock_timedwrlock", "pthread_rwlock_clockwrlock"]);
    match futex.value {
        2 if phase(at_phase)? => Some((at_phase, "__wrphase_futex", "write")),
        3 => {
            let phase = phase(at_phase).unwrap_or(false);
            let writers = writers(at_writers).unwrap_or(false);
            // Both readings fit only by accident; then the name decides, and without one the stronger shape: a
            // reader waits on +8 only in a locked write phase.
            let strong = || case.word(at_phase, 0).is_some_and(|word| word & 3 == 3);
            if phase && !writer && (reader || !writers || strong()) {
                Some((at_phase, "__wrphase_futex", "read"))
            } else {
                (writers && !reader).then_some((at_writers, "__writers_futex", "write"))
            }
        }
        value if value & (layout::WRITE_LOCKED | layout::READERS_WAIT) == 6 && value & 1 == 0 => {
            (case.word(futex.word, layout::FLAGS)? == 2).then_some((futex.word, "__readers", "read"))
        }
        _ => None,
    }
}

/// The writer that a reader waits behind: the one that waits for the readers of the same lock to leave.
pub fn queued_writer(look: &Look<'_>, waits: &[Found], found: &Found, base: Addr, out: &mut Observations) {
    let process = &look.processes[found.process];
    let lock = super::super::family::key(process, kinds::PTHREAD_RWLOCK, base);
    let writers: Vec<&Found> = waits
        .iter()
        .filter(|w| w.decoded.resource.key == lock && w.decoded.mode == Some("write"))
        .filter(|w| w.decoded.futex.is_some_and(|f| f.word == base + layout::PHASE_FUTEX))
        .collect();
    for writer in &writers {
        let thread = &look.processes[writer.process].threads[writer.thread];
        let holder = Party::Thread(look.processes[writer.process].context.process, thread.image.tid);
        let mut hold = exact_hold(
            &found.decoded.resource.key,
            holder,
            Some("write"),
            vec![format!(
                "{} waits at __wrphase_futex of the lock, whose kind (2) lets no reader pass a waiting writer",
                thread.describe()
            )],
        );
        hold.certainty = Certainty::Inferred;
        out.holds.push(hold);
    }
}

/// The candidates of a read-held lock: threads that do not wait for it and have its address in a frame or register.
/// Only if there is none, a thread that asks for more than it has: the address in a frame outside of the call.
pub fn readers(look: &Look<'_>, waits: &[Found], found: &Found, count: u32, base: Addr, out: &mut Observations) {
    let process = &look.processes[found.process];
    let resource = &found.decoded.resource;
    let mut candidates = by_code(process, resource, base);
    // Readers found in the code account for all: then each is inferred. Otherwise they are candidates among others.
    if candidates.iter().map(|(_, depth)| *depth).sum::<u32>() == count {
        out.holds.extend(candidates.into_iter().map(|(hold, _)| hold));
        return;
    }
    candidates.iter_mut().for_each(|(hold, _)| hold.certainty = Certainty::Candidate);
    let mut candidates: Vec<_> = candidates.into_iter().map(|(hold, _)| hold).collect();
    for waiting in [false, true] {
        if waiting && !candidates.is_empty() {
            break;
        }
        for (position, thread) in process.threads.iter().enumerate() {
            if waits_for(waits, &resource.key, found.process, position) != waiting {
                continue;
            }
            let from = if waiting {
                thread.names(8).filter(|(_, name)| name.starts_with(API[0])).map(|(n, _)| n + 1).max()
            } else {
                Some(0)
            };
            let holder = Party::Thread(process.context.process, thread.image.tid);
            if candidates.iter().any(|known| known.holder == holder) {
                continue;
            }
            let Some(mention) = thread.mention(process, base, layout::SIZE, from.unwrap_or(1)) else { continue };
            let evidence = vec![
                format!("read-held by {count}; {} has its address: {}", thread.describe(), mention.place),
                "glibc records no reader ids: a candidate".into(),
            ];
            let mut hold = exact_hold(&resource.key, holder, Some("read"), evidence);
            hold.certainty = Certainty::Candidate;
            hold.frame = thread.merged(mention.native);
            candidates.push(hold);
        }
    }
    out.gaps.push(Gap::new(
        format!("readers of {}", resource.label),
        format!(
            "glibc records no reader ids; {count} hold it for reading, {} possible",
            match candidates.len() {
                0 => "no captured thread is".to_owned(),
                1 => "1 thread is".to_owned(),
                n => format!("{n} threads are"),
            }
        ),
    ));
    out.holds.extend(candidates);
}

/// Threads whose code is between a read lock and the unlock of this lock, with the number of their read locks.
fn by_code(process: &Process<'_>, resource: &Resource, base: Addr) -> Vec<(Hold, u32)> {
    let between = call_sites::between(process, base, &call_sites::READERS).into_iter();
    between
        .map(|between| {
            let depth = between.depth;
            (between.hold(process, &resource.key, &call_sites::READERS), depth)
        })
        .collect()
}

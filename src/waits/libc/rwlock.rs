//! `pthread_rwlock_t`: read- and write-held, with three futex words.
//!
//! In: a [`Case`]. Out: the lock, the requested mode, and the holder. A writer is exact. Readers are a number, since
//! glibc records no names, with the threads that have the lock's address at hand as candidates.

use super::layout::rwlock as layout;
use super::lock_calls::READERS;
use super::{Case, HolderRule};
use crate::image::Addr;
use crate::limits::libc::MOST_READERS;
use crate::waits::blocked_on::{BlockedOn, Owner, Ownership, Readers, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::model::{Party, Role, Strength};
use crate::waits::observations::Observations;

/// Calls that wait for an rwlock.
pub(super) const ENTRY_POINTS: &[&str] = &["pthread_rwlock_"];

/// The mode that a waiter requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Read => "read",
            Mode::Write => "write",
        }
    }
}

/// The word of the lock that a waiter sleeps on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The word of readers and writers that wait for the other side to leave.
    Phase,
    /// The word of writers that wait for the writer before.
    Writers,
    /// The word of readers behind a preferred writer.
    Queue,
}

impl Word {
    fn name(self) -> &'static str {
        match self {
            Word::Phase => "__wrphase_futex",
            Word::Writers => "__writers_futex",
            Word::Queue => "__readers",
        }
    }
}

/// Decode an rwlock wait.
pub(super) fn decode(case: &Case<'_, '_>) -> Option<BlockedOn> {
    if !super::mutex::by_libc(case) {
        return None;
    }
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
    let mut evidence = vec![case.word_is("rwlock", base, field.name())];
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
        if field == Word::Writers {
            evidence.push("another writer is in front of it and waits for the readers too".into());
        }
        counted_readers(reading, base)
    } else {
        evidence.push(format!("__readers = {word:#x} at {base}, __cur_writer = {writer}"));
        Ownership::Unnamed("it is changing hands, look again".into())
    };
    // Behind a preferred writer, a reader waits for that writer and not for the readers, whom it could join: the place
    // in the queue is a thing of its own, or each thread that reads twice would seem to wait for itself alone.
    if field == Word::Queue {
        let mut queue = case.resource(kinds::PTHREAD_RWLOCK, "queued writer of rwlock", base, state);
        queue.key = key(case.process, kinds::PTHREAD_RWLOCK, base + layout::WRITERS);
        queue.role = Some(Role::BehindWriter);
        return Some(
            case.below
                .refined(queue, ENTRY_POINTS, evidence)
                .with_mode(mode.name())
                .owned(Ownership::private(HolderRule::QueuedWriter(base))),
        );
    }
    let resource = case.resource(kinds::PTHREAD_RWLOCK, "rwlock", base, state);
    Some(case.below.refined(resource, ENTRY_POINTS, evidence).with_mode(mode.name()).owned(ownership))
}

/// `count` readers of the lock at `lock`, without names.
pub(super) fn counted_readers(count: u32, lock: Addr) -> Ownership {
    Ownership::Readers(Readers { library: "glibc", count, lock, size: layout::SIZE, calls: &READERS })
}

/// The lock's base, the field of the futex word, and the requested mode (table in libc.md section 1). A writer waits
/// with value 3 on +12 for other writers, and with value 2 on +8 for the readers. A reader waits with value 3 on +8 for
/// a writer, and on +0 behind a preferred writer.
fn base(case: &Case<'_, '_>) -> Option<(Addr, Word, Mode)> {
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
        2 if phase(at_phase)? => Some((at_phase, Word::Phase, Mode::Write)),
        3 => {
            let phase = phase(at_phase).unwrap_or(false);
            let writers = writers(at_writers).unwrap_or(false);
            // Both readings fit only by accident; then the name decides, and without one the stronger shape: a
            // reader waits on +8 only in a locked write phase.
            let strong = || case.word(at_phase, 0).is_some_and(|word| word & 3 == 3);
            if phase && !writer && (reader || !writers || strong()) {
                Some((at_phase, Word::Phase, Mode::Read))
            } else {
                (writers && !reader).then_some((at_writers, Word::Writers, Mode::Write))
            }
        }
        value if value & (layout::WRITE_LOCKED | layout::READERS_WAIT) == 6 && value & 1 == 0 => {
            (case.word(futex.word, layout::FLAGS)? == 2).then_some((futex.word, Word::Queue, Mode::Read))
        }
        _ => None,
    }
}

/// The writer that a reader waits behind: the one that waits for the readers of the same lock to leave.
pub(super) fn queued_writer(blocked: &Blocked<'_>, wait: &ThreadWait, base: Addr, out: &mut Observations) {
    let process = blocked.process(wait);
    let lock = key(process, kinds::PTHREAD_RWLOCK, base);
    let writers: Vec<&ThreadWait> = blocked
        .waits()
        .iter()
        .filter(|w| w.blocked_on.resource.key == lock && w.blocked_on.mode == Some("write"))
        .filter(|w| w.blocked_on.futex.is_some_and(|f| f.word == base + layout::PHASE_FUTEX))
        .collect();
    for writer in &writers {
        let thread = &blocked.processes()[writer.process].threads[writer.thread];
        let holder = Party::Thread(blocked.processes()[writer.process].context.process, thread.image.tid);
        let mut hold = exact_hold(
            &wait.blocked_on.resource.key,
            holder,
            Some("write"),
            vec![format!(
                "{} waits at __wrphase_futex of the lock, whose kind (2) lets no reader pass a waiting writer",
                thread.describe()
            )],
        );
        hold.strength = Strength::Inferred;
        out.holds.push(hold);
    }
}

//! Barriers, of the C library, OpenMP and C++: who can still come.
//!
//! In: a wait at a barrier, all threads and their waits. Out: that its missing participants can never come, where no
//! thread is left that could. Otherwise, the threads that could, as those that hold it up. The barrier records no
//! thread: the participants are an inference.

use crate::limits::libc::MOST_PARTIES;
use crate::waits::kinds;
use std::collections::BTreeSet;

use crate::image::{MemoryExt, TaskState};
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Certainty, Hold, KnownWakers, Needs, Party, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// `struct pthread_barrier` { in, current_round, count, .. } (nptl/internaltypes.h).
const ROUND: u64 = 4;
const COUNT: u64 = 8;

/// Add who has yet to come to the barrier that `wait` waits at, one of glibc's or another.
pub(super) fn holders(blocked: &Blocked<'_>, wait: &ThreadWait, is_glibc: bool, out: &mut Observations) {
    let process = blocked.process(wait);
    let key = &wait.blocked_on.resource.key;
    // For a barrier in shared memory, the other participants are unknown.
    let (Scope::Process(_), false) = (&key.scope, key.address.is_null()) else { return };
    let counted = is_glibc.then(|| counted(process, wait)).flatten();
    let parties = (0..process.threads.len()).filter(|position| {
        process.threads[*position].image.state != TaskState::Zombie && !blocked.waits_for(key, wait.process, *position)
    });
    let behind = behind(blocked, wait);
    let others: Vec<usize> = parties.filter(|position| !behind.contains(position)).collect();
    // Any remaining thread may start further threads. So only no remaining thread at all is certainly too few.
    let is_alone = blocked.with_same_memory(process).next().is_none();
    if let (true, true, Some(Counted { arrived, count })) = (others.is_empty(), is_alone, counted) {
        let joining = match behind.len() {
            0 => String::new(),
            1 => "; the one other thread joins one that waits here".into(),
            several => format!("; the {several} other threads join those that wait here"),
        };
        let why = format!("{arrived} of {count} parties came, and no thread is left that could still come{joining}");
        out.known_wakers.push(KnownWakers {
            resource: key.clone(),
            why,
            certainty: Certainty::Exact,
            ruled_out: Vec::new(),
            whole_process: false,
            is_reportable: true,
        });
        return;
    }
    // All of those left must come, or as many as are enough.
    let all_must = counted.is_some_and(|Counted { arrived, count }| others.len() <= (count - arrived) as usize);
    let needs = if all_must { Needs::All } else { Needs::Any };
    out.waits.iter_mut().filter(|one| one.resource == *key).for_each(|one| one.needs = needs);
    for position in others {
        let thread = &process.threads[position];
        let who = format!("{} is one of those that could still come", thread.describe());
        let evidence = match counted {
            Some(Counted { arrived, count }) => vec![format!("{arrived} of {count} parties came; {who}")],
            None => vec![who],
        };
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, None, evidence);
        out.holds.push(Hold { strength: Strength::Inferred, ..hold });
    }
}

/// The counters of a barrier.
#[derive(Debug, Clone, Copy)]
struct Counted {
    arrived: u32,
    count: u32,
}

/// The counters of glibc's barrier; those of musl, OpenMP and C++ have other words.
fn counted(process: &Process<'_>, wait: &ThreadWait) -> Option<Counted> {
    let base = wait.blocked_on.resource.key.address;
    wait.blocked_on.futex.filter(|futex| futex.word == base + ROUND)?;
    let word = |offset: u64| process.memory().u32(base + offset).ok();
    let (came, round, count) = (word(0)?, word(ROUND)?, word(COUNT)?);
    // `in` counts the threads of all rounds, `current_round` those of the rounds that are over.
    let arrived = came.checked_sub(round).filter(|arrived| *arrived < count && count <= MOST_PARTIES)?;
    Some(Counted { arrived, count })
}

/// Threads that join, over any number of steps, one that waits at the barrier.
fn behind(blocked: &Blocked<'_>, wait: &ThreadWait) -> BTreeSet<usize> {
    let process = blocked.process(wait);
    let key = &wait.blocked_on.resource.key;
    let joins: Vec<(usize, usize)> = blocked
        .waits_of(wait.process)
        .iter()
        .filter(|one| one.blocked_on.resource.key.kind == kinds::THREAD)
        .filter(|one| !one.blocked_on.timed)
        .filter_map(|one| Some((one.thread, process.pthread(one.blocked_on.resource.key.address)?)))
        .collect();
    let here = blocked.waits_of(wait.process).iter().filter(|one| one.blocked_on.resource.key == *key);
    let mut stuck: BTreeSet<usize> = here.map(|one| one.thread).collect();
    let waiting = stuck.clone();
    loop {
        let more: Vec<usize> = joins
            .iter()
            .filter(|(waiter, target)| stuck.contains(target) && !stuck.contains(waiter))
            .map(|(waiter, _)| *waiter)
            .collect();
        if more.is_empty() {
            return &stuck - &waiting;
        }
        stuck.extend(more);
    }
}

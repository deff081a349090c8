//! The wake sources that could still end a wait which no release by a holder ends.
//!
//! In: all waits and holds of a sample. Out: [`KnownWakers`] for each resource that only threads of a process can give
//! and that has no known holder, with every [`WakeSource`]: threads, handlers of signals. The graph finds whether these
//! can go on themselves. Where fork left the other threads behind, these hold the resource. Families report the threads
//! that cannot reach it ([`Family::giver`]) and what handlers do; nothing here reads memory.

mod ends;
mod interrupted;
mod shared;

use std::collections::{BTreeSet, HashMap, HashSet};

use super::family::{Family, Way, signal_name};
use crate::image::TaskState;
use crate::image::descriptors::FAULT_SIGNALS;
use crate::limits::waits::{MOST_ASKED, MOST_GIVERS};
use crate::threads::FrameKind;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold, left_by_fork};
use crate::waits::kinds::{Giver, Kind, Topic};
use crate::waits::model::{Certainty, Hold, KnownWakers, Party, ResourceKey, Role, Strength, WakeSource, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// The families, as they are open for this sample.
type Families<'f> = [Box<dyn Family + 'f>];

/// Add what is enclosed, and what could end waits.
pub(super) fn find(blocked: &Blocked<'_>, families: &Families<'_>, out: &mut Observations) {
    for (position, process) in blocked.processes().iter().enumerate() {
        of_threads(blocked, families, position, process, out);
    }
    shared::find(blocked, families, out);
    ends::narrow(blocked, families, out);
    interrupted::wake_sources(blocked, families, out);
    of_ends(blocked, families, out);
    of_io_rings(blocked, out);
}

/// Wake sources of processes with an io_uring: the kernel still writes, reads or wakes for them, after a time-out or another end.
fn of_io_rings(blocked: &Blocked<'_>, out: &mut Observations) {
    let has_ring = |process: &Process<'_>| {
        let mut paths = process.context.image.mappings.iter().filter_map(|mapping| mapping.path.as_deref());
        paths.any(|path| path.contains("[io_uring]"))
    };
    let known: HashSet<ResourceKey> = out.known_wakers.iter().map(|known| known.resource.clone()).collect();
    for wait in blocked.waits().iter().filter(|wait| known.contains(&wait.blocked_on.resource.key)) {
        let process = blocked.process(wait);
        if has_ring(process) {
            let what = "its process has an io_uring, by which the kernel may still do that".to_owned();
            let resource = wait.blocked_on.resource.key.clone();
            out.wake_sources.push(WakeSource { resource, waiter: None, by: Waker::ByItself, what });
        }
    }
}

/// Things that threads of a process give.
fn of_threads(
    blocked: &Blocked<'_>,
    families: &Families<'_>,
    position: usize,
    process: &Process<'_>,
    out: &mut Observations,
) {
    let own = blocked.waits_of(position);
    // The search for cycles covers resources with known holders. A stopped generator holds its resource for no thread.
    let held: HashSet<ResourceKey> = out
        .holds
        .iter()
        .filter(|hold| hold.is_known() && !matches!(hold.holder, Party::Resource(_)))
        .map(|hold| hold.resource.clone())
        .collect();
    let mut living: Vec<usize> = (0..process.threads.len()).filter(|thread| lives(process, *thread)).collect();
    let all = living.len();
    let mut idle: Vec<String> = Vec::new();
    living.retain(|thread| {
        let why = families.iter().find_map(|family| family.idle(process, *thread));
        idle.extend(why.as_ref().map(|why| format!("{} {why}", process.threads[*thread].describe())));
        why.is_none()
    });
    // A library's idle threads wait for work that Python code would give them: they are not what is wrong.
    let runs_python = |wait: &ThreadWait| process.threads[wait.thread].thread.is_some_and(|one| one.python.is_some());
    let any_python = own
        .iter()
        .any(|wait| is_reportable(wait) && wait.blocked_on.resource.key.is_given_inside() && runs_python(wait));
    // Threads that wait without a time-out for what is given inside of the process, or has a holder: they go on only if
    // another one does.
    let mut lasting: HashMap<usize, bool> = HashMap::new();
    for wait in own {
        let on = &wait.blocked_on;
        let is_inside = on.has_one_end() && (on.resource.key.is_given_inside() || held.contains(&on.resource.key));
        lasting.entry(wait.thread).and_modify(|all| *all &= is_inside).or_insert(is_inside);
    }
    let unread = living
        .iter()
        .copied()
        .find(|thread| !process.threads[*thread].is_read() && own.iter().any(|wait| wait.thread == *thread));
    let sharing = sharers(blocked, position);
    let mut known: HashSet<&ResourceKey> = HashSet::new();
    let before: HashSet<ResourceKey> = out.known_wakers.iter().map(|one| one.resource.clone()).collect();
    for wait in own.iter().filter(|wait| wait.blocked_on.resource.key.is_given_inside()) {
        let key = &wait.blocked_on.resource.key;
        if before.contains(key) || held.contains(key) || !known.insert(key) {
            continue;
        }
        if let (Some((holder, gone, why)), 1, true) =
            (left_by_fork::left_by_fork(blocked, process), living.len(), is_reportable(wait))
        {
            let evidence = vec![format!("{why}: whoever would have woken it is not here")];
            let hold = exact_hold(key, holder, None, evidence);
            out.holds.push(Hold { gone: Some(gone), strength: Strength::Inferred, ..hold });
            signals(blocked, families, wait, position, out);
            continue;
        }
        let mut known_wakers = KnownWakers {
            resource: key.clone(),
            why: String::new(),
            certainty: Certainty::Inferred,
            ruled_out: idle.clone(),
            whole_process: true,
            is_reportable: is_reportable(wait) && (runs_python(wait) || !any_python),
        };
        let known: HashSet<Party> =
            out.holds.iter().filter(|hold| hold.resource == *key).map(|hold| hold.holder.clone()).collect();
        let (ruled_out, is_open) = givers(families, process, wait, (&living, &lasting), &known, &mut known_wakers, out);
        known_wakers.why = why(all, ruled_out + idle.len());
        out.wake_sources.extend(sharing.iter().map(|by| WakeSource {
            resource: key.clone(),
            waiter: None,
            by: by.clone(),
            what: "a process that has the same memory could give it".into(),
        }));
        // A library's thread that is idle tells nothing of the program.
        known_wakers.is_reportable &= ruled_out == 0 && !is_helper(process, wait) || matters(process, wait, out);
        if let Some(thread) = unread {
            let what = format!("{} could not be read", process.threads[thread].describe());
            out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by: Waker::ByItself, what });
        }
        if key.kind.giver == Giver::AnyThread && !is_open {
            known_wakers.ruled_out.extend(signals(blocked, families, wait, position, out));
        }
        out.known_wakers.push(known_wakers);
    }
}

/// Other processes with the address space of the one at `position`: their threads reach all that its own do.
fn sharers(blocked: &Blocked<'_>, position: usize) -> Vec<Waker> {
    let Some(process) = blocked.processes().get(position) else { return Vec::new() };
    let party = |other: &Process<'_>| Waker::Party(Party::Process(other.context.process));
    let mut sharers: Vec<Waker> = blocked.with_same_memory(process).map(party).collect();
    let owner = blocked.processes().get(process.context.memory_owner());
    let is_captured = owner.is_none_or(|owner| owner.context.image.shares_memory_of.is_none());
    if !is_captured {
        sharers.push(Waker::ByItself);
    }
    sharers
}

fn lives(process: &Process<'_>, thread: usize) -> bool {
    process.threads[thread].image.state != TaskState::Zombie
}

/// Whether an endless wait for this shows a fault of the program. The holder of a lock waits, too, or is gone. A wait
/// for the end of a thread is explained by that thread's own wait. A thread with nothing to do is no waiter.
fn is_reportable(wait: &ThreadWait) -> bool {
    let of = |kind: &Kind| match kind.giver {
        Giver::AnyThread => true,
        Giver::Holder => kind.is_lock(),
        Giver::Outside => false,
    };
    of(wait.blocked_on.resource.key.kind) && wait.blocked_on.resource.role != Some(Role::IdleWork)
}

/// Add the threads that could give what `wait` waits for. How many were ruled out by what they can reach, and whether one of
/// those that go on was not.
fn givers(
    families: &Families<'_>,
    process: &Process<'_>,
    wait: &ThreadWait,
    (living, lasting): (&[usize], &HashMap<usize, bool>),
    known: &HashSet<Party>,
    known_wakers: &mut KnownWakers,
    out: &mut Observations,
) -> (usize, bool) {
    let key = &wait.blocked_on.resource.key;
    let is_of_program = matters(process, wait, out);
    let mut wake_source = |by: Party, what: String| {
        out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by: Waker::Party(by), what });
    };
    let is_lasting = |thread: &usize| lasting.get(thread).copied().unwrap_or_default();
    let moving: Vec<usize> = living.iter().copied().filter(|thread| !is_lasting(thread)).collect();
    // Finding the reach of a thread is expensive. It is skipped where a thread has the object at hand anyway.
    let asks = known_wakers.is_reportable
        && !wait.blocked_on.timed
        && moving.len() <= MOST_ASKED
        && living.len() <= MOST_GIVERS
        && !moving.iter().any(|thread| known.contains(&party_of(process, *thread)))
        && is_of_program;
    let asked: Vec<(usize, Option<Way>)> = moving
        .iter()
        .map(|thread| {
            let way = asks.then(|| families.iter().find_map(|family| family.giver(process, *thread, wait)));
            (*thread, way.flatten())
        })
        .collect();
    let name = |thread: usize| process.threads[thread].describe();
    let party = |thread: usize| party_of(process, thread);
    let is_one_by_one = !known_wakers.ruled_out.is_empty() && living.len() <= MOST_GIVERS;
    let is_open = |way: &Option<Way>| !matches!(way, Some(Way::Shut(_) | Way::By(_)));
    if !is_one_by_one && asked.iter().all(|(_, way)| is_open(way)) {
        let what = match asked.as_slice() {
            [] => "another thread of the process could give it".to_owned(),
            [(thread, way), rest @ ..] => {
                let how = if let Some(Way::Open(how)) = way { format!(": {how}") } else { String::new() };
                let more = if rest.is_empty() { String::new() } else { format!(", and {} more,", rest.len()) };
                format!("{}{more} goes on and could give it{how}", name(*thread))
            }
        };
        // One edge of the graph for all of them.
        wake_source(Party::Process(process.context.process), what);
        return (0, !asked.is_empty());
    }
    let (mut ruled_out, is_open) = (0, asked.iter().any(|(_, way)| is_open(way)));
    for (thread, way) in asked {
        match way {
            Some(Way::Shut(why)) => {
                ruled_out += 1;
                known_wakers.ruled_out.push(format!("{} {why}", name(thread)));
            }
            Some(Way::Open(how)) => {
                wake_source(party(thread), format!("{} goes on and could give it: {how}", name(thread)));
            }
            Some(Way::By(parties)) => {
                ruled_out += 1;
                known_wakers.ruled_out.push(format!("{} runs an event loop without such a task", name(thread)));
                parties.into_iter().for_each(|(by, how)| wake_source(by, how));
            }
            None => wake_source(party(thread), format!("{} goes on and could give it", name(thread))),
        }
    }
    for thread in living.iter().copied().filter(|thread| is_lasting(thread) && *thread != wait.thread) {
        wake_source(party(thread), format!("{} could give it", name(thread)));
    }
    (ruled_out, is_open)
}

/// Whether a thread is a library's own: Python's, without code of the program, and not the main one.
fn is_helper(process: &Process<'_>, wait: &ThreadWait) -> bool {
    let thread = &process.threads[wait.thread];
    let is_main = thread.image.tid == process.context.image.pid;
    let runs_python = thread.frames().iter().any(|frame| frame.kind == FrameKind::Python);
    !is_main && runs_python && !runs_program(process, wait)
}

fn party_of(process: &Process<'_>, thread: usize) -> Party {
    Party::Thread(process.context.process, process.threads[thread].image.tid)
}

/// Whether the program waits: on this thread, or on one that waits for this one to end or to let go.
fn matters(process: &Process<'_>, wait: &ThreadWait, out: &Observations) -> bool {
    let own = party_of(process, wait.thread);
    let is_awaited_by = |other: &usize| {
        let party = party_of(process, *other);
        let waits = out.waits.iter().filter(|one| one.waiter == party);
        let mut waited: HashSet<&ResourceKey> = HashSet::new();
        waited.extend(waits.map(|one| &one.resource));
        let is_own = |hold: &&Hold| hold.holder == own && hold.is_known();
        out.holds.iter().filter(is_own).any(|hold| waited.contains(&hold.resource))
    };
    let is_task_source = |one: &&WakeSource| {
        one.by == Waker::Party(own.clone())
            && out.known_wakers.iter().any(|known| known.is_reportable && known.resource == one.resource)
    };
    process.context.python.is_none()
        || runs_program(process, wait)
        || out.wake_sources.iter().any(|one| is_task_source(&one))
        || (0..process.threads.len())
            .filter(|other| *other != wait.thread && runs_program_at(process, *other))
            .any(|other| is_awaited_by(&other))
}

/// Whether the code of the program, and not just a library's, is on the stack of a thread of Python.
fn runs_program(process: &Process<'_>, wait: &ThreadWait) -> bool {
    runs_program_at(process, wait.thread)
}

fn runs_program_at(process: &Process<'_>, thread: usize) -> bool {
    let frames = process.threads[thread].frames();
    let python = frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    python.into_iter().any(|frame| !frame.origin.waits_for_caller())
}

/// Why no thread gives a resource, if all wake sources are in vain.
fn why(living: usize, ruled_out: usize) -> String {
    match (living, ruled_out) {
        (1, _) => "it is the only thread of its process, and nobody else can wake it".to_owned(),
        (count, 0) => format!(
            "{} of the process wait for each other or to be woken, and none is left to do it",
            if count == 2 { "both threads".to_owned() } else { format!("all {count} threads") }
        ),
        (count, out) => format!(
            "of the {count} threads of the process {} cannot reach it, and {}",
            if out == 1 { "the one that goes on".to_owned() } else { format!("the {out} that go on") },
            if count - out == 1 {
                "nobody else is left to do it"
            } else {
                "the others wait for each other or to be woken"
            }
        ),
    }
}

/// Add the signal handlers of a process that could end the wait `wait`. Returns the handlers that were ruled out, and
/// why.
fn signals(
    blocked: &Blocked<'_>,
    families: &Families<'_>,
    wait: &ThreadWait,
    of: usize,
    out: &mut Observations,
) -> Vec<String> {
    let process = &blocked.processes()[of];
    let key = &wait.blocked_on.resource.key;
    let mut ruled_out = Vec::new();
    let Some(handled) = process.handled().or_else(|| families.iter().find_map(|family| family.handled(process, wait)))
    else {
        let what = "no thread of the process can, as all wait; whether it has handlers for signals, which could, is not in a \
                    core";
        out.wake_sources.push(WakeSource {
            resource: key.clone(),
            waiter: None,
            by: Waker::ByItself,
            what: what.into(),
        });
        return ruled_out;
    };
    for signal in (1..=64u32).filter(|signal| (handled & !FAULT_SIGNALS) >> (signal - 1) & 1 == 1) {
        match families.iter().find_map(|family| family.handler(process, signal, wait)) {
            Some(Way::Shut(why)) => ruled_out.push(why),
            Some(Way::Open(what)) => {
                out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by: Waker::OnRequest, what });
            }
            Some(Way::By(_)) | None => {
                let what = format!("the process's handler for {} could still end it", signal_name(signal));
                out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by: Waker::OnRequest, what });
            }
        }
    }
    ruled_out
}

/// Handlers of processes that have the other end of an awaited resource.
fn of_ends(blocked: &Blocked<'_>, families: &Families<'_>, out: &mut Observations) {
    let mut processes: HashMap<ResourceKey, BTreeSet<usize>> = HashMap::new();
    let mut add = |key: &ResourceKey, party: &Party| {
        if let (Topic::Data, Party::Process(process)) = (key.kind.topic, party) {
            processes.entry(key.clone()).or_default().insert(*process);
        }
    };
    for of in &out.ends {
        add(&of.resource, &Party::Process(of.process));
    }
    out.wake_sources.iter().for_each(|wake_source| {
        if let Waker::Party(party) = &wake_source.by {
            add(&wake_source.resource, party);
        }
    });
    let mut seen = HashSet::new();
    for wait in blocked.waits() {
        let key = &wait.blocked_on.resource.key;
        let Some(of) = processes.get(key).filter(|_| seen.insert(key.clone())) else { continue };
        for process in of {
            let ruled_out = signals(blocked, families, wait, *process, out);
            if let Some(known_wakers) = out.known_wakers.iter_mut().find(|one| one.resource == *key) {
                known_wakers.ruled_out.extend(ruled_out);
            }
        }
    }
}

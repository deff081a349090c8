//! Which threads of a process could do something with its end of a pipe or socket.
//!
//! In: holds of whole processes. Out: the same holds by single threads, where the others go on and no descriptor of
//! that end is within their reach: such a thread's actions end no wait. This runs only where a ring would close without
//! them, since finding a thread's reach is expensive.

use std::collections::BTreeSet;

use crate::image::TaskState;
use crate::limits::waits::{MOST_ASKED, MOST_GIVERS};
use crate::waits::family::{Family, Way};
use crate::waits::holders::Blocked;
use crate::waits::holders::rings::rings;
use crate::waits::model::{Certainty, Hold, KnownWakers, Party, ResourceKey, Strength};
use crate::waits::observations::{EndsOf, Observations};
use crate::waits::thread::Process;

/// Replace holds of processes by holds of those of their threads that could use the end.
pub(super) fn narrow(blocked: &Blocked<'_>, families: &[Box<dyn Family + '_>], out: &mut Observations) {
    if out.ends.is_empty() {
        return;
    }
    let rings = rings(out);
    for of in out.ends.clone() {
        let whole = Party::Process(of.process);
        let is_it = |hold: &Hold| hold.is_end() && hold.holder == whole && hold.resource == of.resource;
        let is_in_ring =
            rings.iter().any(|party| out.waits.iter().any(|w| w.waiter == *party && w.resource == of.resource));
        let (Some(at), true) = (out.holds.iter().position(is_it), is_in_ring) else { continue };
        let Some(process) = blocked.processes().get(of.process) else { continue };
        let Some((left, ruled_out)) = users(blocked, families, process, &of) else { continue };
        let nobody_else = out.holds.iter().filter(|other| other.resource == of.resource).count() == 1;
        if left.is_empty() && nobody_else {
            out.rule_out(at);
            out.known_wakers.push(enclosed(of.resource, ruled_out));
            continue;
        }
        let whole = &out.holds[at];
        let strength = Strength::Inferred.min(whole.strength);
        let evidence = [whole.evidence.clone(), ruled_out].concat();
        let by_thread = |tid| Hold {
            holder: Party::Thread(of.process, tid),
            strength,
            evidence: evidence.clone(),
            ..whole.clone()
        };
        let by_threads = left.into_iter().map(by_thread).collect();
        out.narrow(at, by_threads);
    }
}

/// The threads that could use the end, without those who wait for what it gives; and why others, which go on, could not. `None`
/// where none is ruled out, or one that goes on is not.
fn users(
    blocked: &Blocked<'_>,
    families: &[Box<dyn Family + '_>],
    process: &Process<'_>,
    of: &EndsOf,
) -> Option<(Vec<i32>, Vec<String>)> {
    let own = blocked.waits_of(of.process);
    let lasts = |position: usize| {
        let mut waits = own.iter().filter(|wait| wait.thread == position).peekable();
        waits.peek().is_some() && waits.all(|wait| wait.blocked_on.has_one_end())
    };
    let living = (0..process.threads.len()).filter(|at| process.threads[*at].image.state != TaskState::Zombie);
    let mut idle: Vec<String> = Vec::new();
    let mut is_idle = |thread: &usize| {
        let why = families.iter().find_map(|family| family.idle(process, *thread));
        idle.extend(why.as_ref().map(|why| format!("{} {why}", process.threads[*thread].describe())));
        why.is_some()
    };
    let living: Vec<usize> = living.filter(|thread| !is_idle(thread)).collect();
    let (lasting, moving): (Vec<usize>, Vec<usize>) = living.into_iter().partition(|position| lasts(*position));
    if moving.is_empty() && idle.is_empty() || moving.len() > MOST_ASKED || lasting.len() > MOST_GIVERS {
        return None;
    }
    let ruled_out: Option<Vec<String>> = moving
        .into_iter()
        .map(|thread| match families.iter().find_map(|family| family.user(process, thread, &of.numbers)) {
            Some(Way::Shut(why)) => Some(format!("{} {why}", process.threads[thread].describe())),
            _ => None,
        })
        .collect();
    let mut ruled_out = ruled_out?;
    ruled_out.extend(idle);
    let left = lasting.into_iter().filter(|thread| !blocked.waits_for(&of.resource, of.process, *thread));
    let left: BTreeSet<i32> = left.map(|thread| process.threads[thread].image.tid).collect();
    Some((left.into_iter().collect(), ruled_out))
}

/// No process is left that could use any other end.
fn enclosed(resource: ResourceKey, ruled_out: Vec<String>) -> KnownWakers {
    KnownWakers {
        resource,
        why: "the other end is the waiting process's own, and each of its threads that goes on cannot reach it".into(),
        certainty: Certainty::Inferred,
        ruled_out,
        whole_process: false,
        is_reportable: true,
    }
}

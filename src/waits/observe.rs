//! The list of lock families and the loop that runs them.
//!
//! In: one [`CapturedProcess`] a captured process. Out: [`Observations`] of all of them. Each family sees what the one below decoded
//! and may say it better. Nothing here knows a lock's layout.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::blocked_on::{BlockedOn, ThreadWait};
use super::family::{Family, Registered};
use super::holders::{self, Blocked};
use super::kinds::Kind;
use super::model::{Party, Resource, Scope, Wait};
use super::observations::Observations;
use super::thread::{CapturedProcess, Process, ThreadView};
use super::{absl, c10d, cpython, cuda, kernel, libc, lock_paths, mpi, pools, recorded, wakers};
use crate::limits::waits::ENTRY_FRAMES;
use crate::symbols::{base_symbol, begins_with};

/// The families, lowest first. A new one is a folder and a line here.
const FAMILIES: &[Registered] = &[
    kernel::FAMILY,
    libc::FAMILY,
    absl::FAMILY,
    pools::FAMILY,
    mpi::FAMILY,
    c10d::FAMILY,
    cuda::FAMILY,
    cpython::FAMILY,
];

/// The row of a kind by its name in the JSON contract.
pub(crate) fn kind_named(name: &str) -> Option<&'static Kind> {
    FAMILIES.iter().flat_map(|family| family.kinds).find(|kind| kind.name == name).copied()
}

/// The names of all kinds, as the families list them.
pub(crate) fn kind_names() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|family| family.kinds).map(|kind| kind.name).collect()
}

/// Decode the waits and holds of all processes of one sample.
pub(crate) fn observe(contexts: &[CapturedProcess<'_>]) -> Observations {
    let processes: Vec<Process<'_>> = contexts.iter().map(|&context| Process::new(context)).collect();
    let families: Vec<Box<dyn Family + '_>> = FAMILIES.iter().map(|family| (family.open)(&processes)).collect();
    let (waits, woken) = decode(&processes, &families);
    let blocked = Blocked::new(&processes, waits);
    let mut out = Observations { woken, ..Observations::default() };
    let mut named = HashSet::new();
    for one in blocked.waits() {
        let process = blocked.process(one);
        out.waits.push(wait(process, &process.threads[one.thread], &one.blocked_on));
        out.gaps.extend(one.blocked_on.gaps.iter().cloned());
        if named.insert(&one.blocked_on.resource.key) {
            out.resources.push(one.blocked_on.resource.clone());
        }
    }
    holders::resolve(&blocked, &mut out);
    for family in &families {
        family.holds(&blocked, &mut out);
    }
    recorded::add(&blocked, &mut out);
    out.resolve_holders();
    holders::taken_at::add(&blocked, &mut out);
    lock_paths::find(blocked.processes(), &mut out);
    for family in &families {
        family.wake_sources(&blocked, &mut out);
    }
    wakers::find(&blocked, &families, &mut out);
    tell_apart(&mut out.resources);
    out.resources.iter().for_each(|resource| check_listed(resource.key.kind));
    let mut seen = BTreeSet::new();
    out.gaps.retain(|gap| seen.insert((gap.what.clone(), gap.why.clone())));
    out
}

/// Give locks of one process that would have the same name their addresses. Workers of a server have the same names each.
fn tell_apart(resources: &mut [Resource]) {
    let called = |resource: &Resource| (resource.key.scope.clone(), resource.label.to_string());
    let mut count: HashMap<(Scope, String), usize> = HashMap::new();
    for resource in resources.iter() {
        *count.entry(called(resource)).or_default() += 1;
    }
    for resource in resources.iter_mut().filter(|one| one.key.kind.is_lock() && !one.key.address.is_null()) {
        if count.get(&called(resource)).is_some_and(|count| *count > 1) {
            resource.label = resource.label.clone().at(resource.key.address);
        }
    }
}

/// A kind that no family lists is a mistake of its family.
fn check_listed(kind: &Kind) {
    debug_assert!(kind_named(kind.name).is_some(), "no family lists the kind {kind}");
}

/// The resource that each thread is blocked on, in the order of processes and threads; and the threads whose wait is
/// over.
fn decode(processes: &[Process<'_>], families: &[Box<dyn Family + '_>]) -> (Vec<ThreadWait>, Vec<Party>) {
    let (mut waits, mut woken) = (Vec::new(), Vec::new());
    for (position, process) in processes.iter().enumerate() {
        for (index, thread) in process.threads.iter().enumerate() {
            let mut best: Option<BlockedOn> = None;
            for family in families {
                best = family.decode(process, thread, best.as_ref()).or(best);
            }
            if best.as_ref().is_some_and(|best| best.transient) {
                woken.push(Party::Thread(process.context.process, thread.image.tid));
            }
            if let Some(mut first) = best.filter(|best| !best.transient) {
                let others = std::mem::take(&mut first.also);
                let others: Vec<BlockedOn> = others.into_iter().map(|other| first.instead(other)).collect();
                let all = std::iter::once(first).chain(others);
                waits.extend(all.map(|blocked_on| ThreadWait { process: position, thread: index, blocked_on }));
            }
        }
    }
    (waits, woken)
}

/// Build the public wait.
fn wait(process: &Process<'_>, thread: &ThreadView<'_>, blocked_on: &BlockedOn) -> Wait {
    Wait {
        waiter: Party::Thread(process.context.process, thread.image.tid),
        resource: blocked_on.resource.key.clone(),
        mode: blocked_on.mode,
        needs: blocked_on.needs,
        timed: blocked_on.timed,
        retried: blocked_on.retried,
        since_ms: thread.image.asleep_ms,
        frame: blocked_on.at.or_else(|| frame(thread, blocked_on.entry_points)),
        certainty: blocked_on.certainty,
        evidence: blocked_on.evidence.clone(),
        place: None,
        spinning: blocked_on.spinning,
    }
}

/// The merged frame of the waiting call: the outermost of the innermost frames that is named as one of the entry points, else
/// the innermost one.
fn frame(thread: &ThreadView<'_>, entry_points: &[&str]) -> Option<usize> {
    let frames = &thread.thread?.frames;
    if frames.is_empty() {
        return None;
    }
    let named = |index: &usize| {
        let frame = &frames[*index];
        frame.native.is_some_and(|n| n < ENTRY_FRAMES)
            && frame.function.as_deref().is_some_and(|name| {
                let name = base_symbol(name);
                entry_points.iter().any(|prefix| begins_with(name, prefix))
            })
    };
    // The code that a signal interrupted is in another call.
    let interrupted = thread.interrupted().unwrap_or(usize::MAX);
    let inner = frames.iter().take_while(|frame| frame.native.is_none_or(|native| native < interrupted)).count();
    let end = inner.min(4 * ENTRY_FRAMES);
    Some((0..end).rev().find(named).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::waits::kinds::SHARED;

    #[test]
    fn each_kind_is_of_one_family_and_each_shared_row_is_listed() {
        let names = kind_names();
        let unique: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(unique.len(), names.len(), "a kind is listed twice: {names:?}");
        // The word for kinds that a later version wrote belongs to no family.
        for kind in SHARED.iter().filter(|kind| **kind != crate::waits::kinds::OTHER) {
            assert!(unique.contains(kind.name), "no family lists the kind {kind}");
        }
        assert!(kind_named("no_such_kind").is_none());
    }

    #[test]
    fn each_kind_is_said_so_that_it_can_be_read() {
        for kind in FAMILIES.iter().flat_map(|family| family.kinds) {
            assert!(kind.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{kind}");
            assert!(!kind.noun.is_empty(), "{kind} has no noun");
        }
    }

    #[test]
    #[should_panic(expected = "no family lists the kind")]
    fn a_resource_of_a_kind_that_no_family_lists_fails_the_test_that_meets_it() {
        use crate::waits::kinds::{Giver, Holding, Kind, Topic, World};
        const FORGOTTEN: &Kind =
            &Kind::new("forgotten", "thing", World::Native, Topic::Lock, Giver::Holder, Holding::Holds);
        check_listed(FORGOTTEN);
    }
}

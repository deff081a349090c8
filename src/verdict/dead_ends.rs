//! Waits that nobody can end, without those that only follow from others.
//!
//! In: the graph of one sample. Out: [`DeadEnd`]s, a main thread's first, and the waiters whose waits follow from these.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{JudgeInput, WaitsFor};
use crate::graph::WaitGraph;
use crate::reduction::{Reduction, Rule};
use crate::waits::model::{Resource, Role, WakeSource, Waker};
use crate::waits::{Observations, Party, ResourceKey};

/// A wait that provably nobody can end.
#[derive(Debug)]
pub(crate) struct DeadEnd {
    /// Position among what is enclosed.
    pub known_wakers: usize,
    /// Positions of the waits for it; at least one.
    pub waits: Vec<usize>,
}

/// Waits without end. `explained`: a cycle or a lost owner already explains why whole processes cannot go on, so waits
/// that only follow from that are suppressed. The same applies if another wait without end explains them. The second
/// result has the waiters of the suppressed waits: they never go on because of the explained ones.
pub(super) fn dead_ends(
    input: &JudgeInput<'_>,
    graph: &WaitGraph<'_>,
    waits_for: &WaitsFor<'_>,
    explained: bool,
) -> (Vec<DeadEnd>, BTreeSet<Party>) {
    let seen = input.observations;
    let waits = |resource: &ResourceKey| {
        let of_it = waits_for.get(resource).into_iter().flatten().copied();
        of_it.filter(|position| graph.lasts(*position)).collect::<Vec<_>>()
    };
    let told =
        seen.known_wakers.iter().enumerate().filter(|(_, one)| one.is_reportable && graph.never_comes(&one.resource));
    let ends = told.map(|(known_wakers, one)| DeadEnd { known_wakers, waits: waits(&one.resource) });
    let mut ends: Vec<DeadEnd> = ends.filter(|end| !end.waits.is_empty()).collect();
    let is_of_all = |end: &DeadEnd| seen.known_wakers[end.known_wakers].whole_process;
    let mut held_up = BTreeSet::new();
    if explained || ends.iter().any(|end| !is_of_all(end)) {
        let (of_all, others): (Vec<DeadEnd>, Vec<DeadEnd>) = ends.into_iter().partition(is_of_all);
        held_up.extend(of_all.iter().flat_map(|end| &end.waits).map(|wait| seen.waits[*wait].waiter.clone()));
        ends = others;
    }
    drop_idle_workers(seen, &mut ends);
    drop_watched(seen, &mut ends);
    held_up.extend(retain_roots(seen, graph, &mut ends));
    // Ids wrap around: the last thread may have the lowest one. The main thread's wait comes first anyway.
    let pids: Vec<i32> = input.image.processes.iter().map(|process| process.pid).collect();
    let is_main = |wait: &usize| match seen.waits[*wait].waiter {
        Party::Thread(process, tid) => pids.get(process) == Some(&tid),
        _ => false,
    };
    ends.sort_by_key(|end| !end.waits.iter().any(is_main));
    (ends, held_up)
}

/// Where a queue is waited for until its items are done, drop the waits of its workers for the next item: these are idle.
fn drop_idle_workers(seen: &Observations, ends: &mut Vec<DeadEnd>) {
    let is_unfinished = |resource: &&Resource| matches!(resource.role, Some(Role::UnfinishedItems { .. }));
    let unfinished: HashSet<&ResourceKey> =
        seen.resources.iter().filter(is_unfinished).map(|resource| &resource.key).collect();
    let is_join = |end: &DeadEnd| unfinished.contains(&seen.known_wakers[end.known_wakers].resource);
    if !ends.iter().any(is_join) {
        return;
    }
    let workers: HashSet<&Party> =
        seen.holds.iter().filter(|hold| unfinished.contains(&hold.resource)).map(|hold| &hold.holder).collect();
    let is_idle = |end: &DeadEnd| end.waits.iter().all(|wait| workers.contains(&seen.waits[*wait].waiter));
    ends.retain(|end| is_join(end) || !is_idle(end));
}

/// Where a task waits for what would come from a descriptor that its loop watches, drop the wait of the loop's thread for that: the task
/// says what the program wants.
fn drop_watched(seen: &Observations, ends: &mut Vec<DeadEnd>) {
    let told: HashSet<&ResourceKey> = ends.iter().map(|end| &seen.known_wakers[end.known_wakers].resource).collect();
    let by = |source: &WakeSource| match &source.by {
        Waker::Party(Party::Resource(key)) => Some(key.clone()),
        _ => None,
    };
    let sources = seen.wake_sources.iter().filter(|source| told.contains(&source.resource));
    let watched: HashSet<ResourceKey> = sources.filter_map(by).filter(|key| key.kind.has_two_ends()).collect();
    ends.retain(|end| !watched.contains(&seen.known_wakers[end.known_wakers].resource));
}

/// Keep the waits without end that follow from no other: if all that could end one wait for something themselves, it follows from
/// these. Waits that only follow from each other all stay. The result: the waiters whose waits follow.
fn retain_roots(seen: &Observations, graph: &WaitGraph<'_>, ends: &mut Vec<DeadEnd>) -> BTreeSet<Party> {
    let mut behind = BTreeSet::new();
    if ends.len() < 2 {
        return behind;
    }
    let mut holders: HashMap<&ResourceKey, Vec<&Party>> = HashMap::new();
    for hold in seen.holds.iter().filter(|hold| hold.gone.is_none()) {
        holders.entry(&hold.resource).or_default().push(&hold.holder);
    }
    let givers_of = |key: &ResourceKey| holders.get(key).into_iter().flatten().copied();
    let waiters_of = |waits: &[usize]| waits.iter().map(|wait| &seen.waits[*wait].waiter).collect::<BTreeSet<_>>();
    let mut links: Vec<Link<'_>> = Vec::new();
    for end in ends.iter() {
        links.push(Link::new(waiters_of(&end.waits), givers_of(&seen.known_wakers[end.known_wakers].resource)));
    }
    let known: BTreeSet<usize> = ends.iter().flat_map(|end| &end.waits).copied().collect();
    let between = (0..seen.waits.len()).filter(|wait| !known.contains(wait) && graph.lasts(*wait));
    links.extend(between.map(|wait| Link::new(waiters_of(&[wait]), givers_of(&seen.waits[wait].resource))));

    let waiting: BTreeSet<&Party> = links.iter().flat_map(|link| link.waiters.iter().copied()).collect();
    let is_root = |link: &Link<'_>| link.givers.is_empty() || !link.givers.is_subset(&waiting);
    let mut graph: Reduction<Node<'_>> = Reduction::default();
    let mut explained: BTreeSet<Node<'_>> = BTreeSet::new();
    for (at, link) in links.iter().enumerate() {
        if is_root(link) {
            explained.extend(link.waiters.iter().map(|party| Node::Party(party)));
            continue;
        }
        let givers = link.givers.iter().map(|party| graph.node(Node::Party(party))).collect();
        graph.set(Node::Link(at), Rule::All(givers));
        let own = graph.node(Node::Link(at));
        link.waiters.iter().for_each(|party| graph.add_cause(Node::Party(party), own));
    }
    let explained = graph.least(explained);
    let follows = |at: usize| explained.contains(&Node::Link(at));
    behind.extend((0..ends.len()).filter(|at| follows(*at)).flat_map(|at| links[at].waiters.iter().copied().cloned()));
    let mut at = 0..ends.len();
    ends.retain(|_| at.next().is_some_and(|at| !follows(at)));
    behind
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Node<'a> {
    /// Explained where it waits for something that nobody gives, itself or behind others.
    Party(&'a Party),
    /// Explained where all its givers are.
    Link(usize),
}

/// Waits that only these givers could end.
struct Link<'a> {
    waiters: BTreeSet<&'a Party>,
    givers: BTreeSet<&'a Party>,
}

impl<'a> Link<'a> {
    fn new(waiters: BTreeSet<&'a Party>, givers: impl Iterator<Item = &'a Party>) -> Self {
        let givers = givers.filter(|giver| !waiters.contains(giver)).collect();
        Link { waiters, givers }
    }
}

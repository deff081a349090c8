//! The meaning of threads of a cluster that cannot go on, root cause first.
//!
//! In: [`Members`]. Out: a [`Judgement`]. A deadlock inside of one process is the cause, and all that lead to it are victims; else a
//! ring of tasks; else workers without a thread left. It writes no sentence.

use std::collections::{BTreeMap, BTreeSet};

use super::link::{By, Link, Thread};
use super::members::{Lasted, Members};
use super::ray;
use super::stuck::{Cluster, Stuck};
use crate::launcher::JobEngine;
use crate::report::Verdict;

/// The judgement on a cluster.
pub(super) struct Judgement<'d> {
    pub(super) verdict: Verdict,
    pub(super) cause: Cause,
    pub(super) stuck: Stuck<'d>,
    /// Threads that wait because of it.
    pub(super) victims: Vec<Thread>,
    /// Tasks that the scheduler holds back because of it.
    pub(super) held_back: Vec<String>,
    /// Why it is not proven.
    pub(super) doubts: BTreeSet<Doubt>,
}

/// The root cause.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Places of processes that are in something by themselves.
    Inside(Vec<usize>),
    /// Threads that wait for each other, each with the link to the next.
    Ring(Vec<(Thread, Link)>),
    /// Places of workers without a thread for the tasks that the others wait for.
    Full(Vec<usize>),
    /// A chain of threads; the last one waits for nobody in the cluster.
    Last(Vec<(Thread, Option<By>)>),
    /// A task that the scheduler holds back until this thread has done its own.
    HeldBack(String, Thread, By),
    /// Nothing is waited for.
    Nothing,
}

/// Why a ring is not proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    OneRound,
    NotSeen,
    NotEntered,
    MayBeMoved,
    /// A result may be on its way already.
    MayBeDone,
    /// How many threads an actor has is not known.
    MayHaveMore,
    /// Ray alone says which thread runs a task.
    OnlySaid,
    Unknown,
}

/// Judge a cluster.
pub(super) fn judge<'d>(members: &'d Members<'d>) -> Judgement<'d> {
    let stuck = Stuck::of(members);
    let cluster = Cluster::of(members);
    let mut inside: Vec<usize> =
        (0..members.list.len()).filter(|place| members.list[*place].now.verdict.exit_code() != 0).collect();
    inside.sort_by_key(|place| (members.list[*place].now.verdict, *place));
    let mut doubts = BTreeSet::new();
    let (verdict, cause) = if let Some(first) = inside.first() {
        (members.list[*first].now.verdict, Cause::Inside(inside))
    } else if let Some(ring) = ring(&stuck) {
        doubts = doubts_of(members, &stuck, &ring);
        let verdict = if doubts.is_empty() { Verdict::Deadlock } else { Verdict::SuspectedDeadlock };
        let is_full = ring.iter().any(|(_, link)| matches!(link.by, By::Nobody | By::Occupies(_)));
        // An actor keeps its tasks: it is full alone, or in a ring with others.
        let alone = ring
            .iter()
            .all(|((place, _), link)| *place == link.to.0)
            .then(|| ring.first().map(|((place, _), _)| *place));
        let cause = match (members.engine(), is_full, alone.flatten()) {
            (JobEngine::Ray, _, Some(place)) => Cause::Full(vec![place]),
            (JobEngine::Ray, ..) | (_, false, _) => Cause::Ring(ring),
            _ => Cause::Full(cluster.full()),
        };
        (verdict, cause)
    } else {
        let full = cluster.full();
        let is_busy = members.list.iter().flat_map(|one| &one.cluster.running).any(|task| task.is_busy);
        let verdict = if is_busy { Verdict::Running } else { Verdict::Blocked };
        (verdict, if full.is_empty() { last(members, &cluster) } else { Cause::Full(full) })
    };
    let own: BTreeSet<Thread> = match &cause {
        Cause::Ring(ring) => ring.iter().map(|(thread, _)| *thread).collect(),
        Cause::Full(places) => stuck.waits.keys().filter(|(place, _)| places.contains(place)).copied().collect(),
        Cause::Last(chain) => chain.last().map(|(thread, _)| *thread).into_iter().collect(),
        Cause::HeldBack(_, thread, _) => BTreeSet::from([*thread]),
        Cause::Inside(_) | Cause::Nothing => stuck.inside.clone(),
    };
    let behind = stuck.waits.keys().chain(&stuck.inside).copied().collect();
    let held_back = if verdict.exit_code() == 0 { Vec::new() } else { cluster.held_back(&behind) };
    let victims = stuck.waits.keys().filter(|thread| !own.contains(thread)).copied().collect();
    Judgement { verdict, cause, stuck, victims, held_back, doubts }
}

/// The shortest ring: each thread that cannot go on has a thread to follow, so each path ends in a ring, or in a
/// process's own deadlock.
fn ring(stuck: &Stuck<'_>) -> Option<Vec<(Thread, Link)>> {
    let strength = |link: &&Link| match link.by {
        By::Holds { .. } | By::Runs(_) => 0,
        By::Occupies(_) => 1,
        By::Nobody => 2,
    };
    let mut best: Option<Vec<(Thread, Link)>> = None;
    let mut seen: BTreeSet<Thread> = BTreeSet::new();
    for start in stuck.waits.keys() {
        let mut way: Vec<(Thread, Link)> = Vec::new();
        let mut places: BTreeMap<Thread, usize> = BTreeMap::new();
        let mut at = *start;
        while let Some(waits) = stuck.waits.get(&at).filter(|_| !seen.contains(&at)) {
            let Some(link) = waits.links.iter().min_by_key(strength) else { break };
            places.insert(at, way.len());
            way.push((at, link.clone()));
            at = link.to;
            if let Some(begin) = places.get(&at) {
                let ring = way.split_off(*begin);
                let weight = |ring: &[(Thread, Link)]| (ring.iter().map(|(_, link)| strength(&link)).max(), ring.len());
                if best.as_ref().is_none_or(|best| weight(&ring) < weight(best)) {
                    best = Some(ring);
                }
                break;
            }
        }
        seen.extend(places.into_keys());
    }
    best
}

fn doubts_of(members: &Members<'_>, stuck: &Stuck<'_>, ring: &[(Thread, Link)]) -> BTreeSet<Doubt> {
    let mut doubts = BTreeSet::new();
    for (thread, link) in ring {
        let lasted = stuck.waits.get(thread).map_or(Lasted::Unknown, |waits| waits.lasted);
        if lasted != Lasted::Yes || link.lasted != Lasted::Yes {
            doubts.insert(Doubt::OneRound);
        }
        match link.by {
            By::Occupies(ref task) | By::Runs(ref task) if members.engine() == JobEngine::Ray => {
                let request = stuck.waits.get(thread).map(|waits| waits.request);
                if !request.is_some_and(|request| ray::is_undone(members, request, task)) {
                    doubts.insert(Doubt::MayBeDone);
                }
                let doubt = match link.by {
                    By::Runs(_) => Some(Doubt::OnlySaid),
                    _ => (!ray::knows_threads(members, link.to.0)).then_some(Doubt::MayHaveMore),
                };
                doubts.extend(doubt);
            }
            By::Holds { is_entered: true } | By::Runs(_) => {}
            By::Holds { is_entered: false } => drop(doubts.insert(Doubt::NotEntered)),
            By::Occupies(_) => drop(doubts.insert(Doubt::MayBeMoved)),
            By::Nobody => drop(doubts.insert(Doubt::Unknown)),
        }
    }
    if !members.have_seen_each_other(&ring.iter().map(|((place, _), _)| *place).collect()) {
        doubts.insert(Doubt::NotSeen);
    }
    doubts
}

/// Nobody is in anything: where does the way of the first that waits end? Clients first: they are whom people watch.
fn last(members: &Members<'_>, cluster: &Cluster<'_>) -> Cause {
    let mut places: Vec<usize> = (0..members.list.len()).collect();
    places.sort_by_key(|place| members.list[*place].is_worker());
    let lasting = |place: usize| {
        let one = &members.list[place];
        one.cluster.requests.iter().filter(move |request| one.request_lasted(request) != Lasted::No)
    };
    let starts: Vec<Thread> =
        places.into_iter().flat_map(|place| lasting(place).map(move |request| (place, request.tid))).collect();
    let ways = Ways::of(members, cluster, &starts);
    let longest = starts.iter().rev().max_by_key(|start| ways.length(**start)).map(|start| ways.from(*start));
    let best = longest.unwrap_or_default();
    // A question that nobody in the cluster answers says less than a task that is held back.
    match (best.len(), cluster.first_held_back()) {
        (0 | 1, Some((key, thread, by))) => Cause::HeldBack(key, thread, by),
        (0, None) => Cause::Nothing,
        _ => Cause::Last(best),
    }
}

/// Where each wait leads: from a thread to one other, and so on, until there is none, or one again.
struct Ways {
    next: BTreeMap<Thread, (Thread, By)>,
    lengths: BTreeMap<Thread, usize>,
}

impl Ways {
    fn of(members: &Members<'_>, cluster: &Cluster<'_>, starts: &[Thread]) -> Ways {
        let mut ways = Ways { next: BTreeMap::new(), lengths: BTreeMap::new() };
        for start in starts {
            ways.walk(members, cluster, *start);
        }
        ways
    }

    /// Walk to where the length is known, to the end, or once round, and count on the way back.
    fn walk(&mut self, members: &Members<'_>, cluster: &Cluster<'_>, start: Thread) {
        let mut way: Vec<Thread> = Vec::new();
        let mut places: BTreeMap<Thread, usize> = BTreeMap::new();
        let mut at = start;
        let beyond = loop {
            if let Some(known) = self.lengths.get(&at) {
                break *known;
            }
            if let Some(begin) = places.get(&at) {
                let round = way.split_off(*begin);
                let length = round.len();
                self.lengths.extend(round.into_iter().map(|thread| (thread, length)));
                break length;
            }
            places.insert(at, way.len());
            way.push(at);
            let request = members.list[at.0].cluster.requests.iter().find(|request| request.tid == at.1);
            let Some((to, by)) = request.and_then(|request| cluster.leads_to(request)) else { break 0 };
            self.next.insert(at, (to, by));
            at = to;
        };
        for (before, thread) in way.into_iter().rev().enumerate() {
            self.lengths.insert(thread, beyond + before + 1);
        }
    }

    /// How many threads the way from this one has.
    fn length(&self, from: Thread) -> usize {
        self.lengths.get(&from).copied().unwrap_or(0)
    }

    /// The way from this one, each thread once, with how it leads to the next.
    fn from(&self, from: Thread) -> Vec<(Thread, Option<By>)> {
        let mut way = Vec::new();
        let mut at = from;
        for left in (0..self.length(from)).rev() {
            let next = self.next.get(&at).filter(|_| left > 0);
            way.push((at, next.map(|(_, by)| by.clone())));
            at = next.map_or(at, |(to, _)| *to);
        }
        way
    }
}

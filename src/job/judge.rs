//! The meaning of the links of a job, root cause first.
//!
//! In: a [`Gathered`] job. Out: a [`Judgement`]. A rank that is in a deadlock of its own is the cause, and all that lead to it are
//! victims; else a cycle of ranks; else a rank that has ended and is waited for. It writes no sentence.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::{DiGraph, NodeIndex};

use super::digest::RankWait;
use super::gather::Gathered;
use super::held::is_held;
use super::links::{Link, Links, To, operation};
use super::standing::{Standing, went_on};
use crate::limits::graph::{MOST_FOUND, STEPS};
use crate::reduction::cycles::{Bounds, Edges, search};
use crate::reduction::{Reduction, Rule};
use crate::report::{Certainty, Verdict};

/// The judgement on a job.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) links: Links,
    pub(super) cause: Cause,
    /// Places of the ranks that wait because of it, without those of the cause.
    pub(super) victims: Vec<usize>,
    /// Ranks in different operations of one group, where they should be in the same.
    pub(super) mismatch: Option<Mismatch>,
    /// Ranks that wait for each other in operations of different groups.
    pub(super) orders: Option<Orders>,
}

/// Groups that ranks use in different orders: each of some is in an operation of one, and misses those that are in one of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Orders {
    /// How many groups.
    pub(super) groups: usize,
    /// Each operation with its group, and the numbers of the ranks in it.
    pub(super) operations: Vec<(String, Vec<u32>)>,
}

/// The root cause.
#[derive(Debug)]
pub(super) enum Cause {
    /// Places of ranks that are in something by themselves.
    Ranks(Vec<usize>),
    /// Ranks that wait for each other.
    Cycle(Cycle),
    /// Ranks that have ended and are waited for.
    Ended(Vec<u32>),
    /// Root ranks: others wait for them, they wait for nobody. By index; by rank number where no sample exists.
    Last(Vec<usize>, Vec<u32>),
    /// All ranks are in the operation at this place.
    AllIn(usize),
    /// Nothing is waited for.
    Nothing,
}

/// Ranks that wait for each other.
#[derive(Debug, Clone)]
pub(super) struct Cycle {
    /// Places of the ranks, each with the place of the link by which it waits for the next.
    pub(super) steps: Vec<(usize, usize)>,
    pub(super) certainty: Certainty,
    /// All waits in it stood still between two rounds.
    pub(super) stood: bool,
    /// Why it is not proven, where it is not.
    pub(super) doubts: Vec<Doubt>,
}

/// Why a cycle is not proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    OneRound,
    Alike,
    Talk,
    NotSeen,
    Timed,
    OtherThreads,
    FreeThread,
    NotExact,
}

/// Ranks in different operations of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) group: Option<String>,
    /// Each operation with the numbers of the ranks in it, the one with the most first.
    pub(super) operations: Vec<(String, Vec<u32>)>,
}

/// Judge a job.
pub(super) fn judge(job: &Gathered<'_>) -> Judgement {
    let links = Links::of(job);
    let mut roots: Vec<usize> =
        (0..job.ranks.len()).filter(|place| job.ranks[*place].now.verdict.exit_code() != 0).collect();
    retain_deepest(job, &links, &mut roots);
    roots.sort_by_key(|place| (job.ranks[*place].now.verdict, *place));
    let mismatch = mismatch(job);
    let cycle = cycle(job, &links);
    let proven = cycle.clone().filter(|cycle| cycle.stood);
    let ended = waited_for_and_ended(job, &links);
    let (verdict, cause) = if let Some(first) = roots.first() {
        (job.ranks[*first].now.verdict, Cause::Ranks(roots))
    } else if let Some(cycle) = proven {
        let verdict = if cycle.doubts.is_empty() { Verdict::Deadlock } else { Verdict::SuspectedDeadlock };
        (verdict, Cause::Cycle(cycle))
    } else if !ended.is_empty() {
        (Verdict::Stuck, Cause::Ended(ended))
    } else if let Some(cycle) = cycle {
        (Verdict::Blocked, Cause::Cycle(cycle))
    } else {
        last(job, &links)
    };
    let victims = victims(job, &links, &cause);
    let orders = match &cause {
        Cause::Cycle(cycle) => orders(job, &links, cycle),
        _ => None,
    };
    Judgement { verdict, links, cause, victims, mismatch, orders }
}

/// Keeps the ranks that are in something by themselves and wait for no other rank; if there are none, all. Those that
/// wait for these are behind them, whatever else they are in.
fn retain_deepest(job: &Gathered<'_>, links: &Links, roots: &mut Vec<usize>) {
    let waits = |place: &usize| links.from(*place).any(|link| link.standing != Standing::Moved);
    let deepest: Vec<usize> = roots.iter().copied().filter(|place| !waits(place)).collect();
    if deepest.is_empty() || deepest.len() == roots.len() {
        return;
    }
    let behind: BTreeSet<usize> = victims(job, links, &Cause::Ranks(deepest)).into_iter().collect();
    roots.retain(|place| !behind.contains(place));
}

/// A node of the graph: a rank, or behind all of these an operation.
fn node(job: &Gathered<'_>, to: To) -> Option<usize> {
    match to {
        To::Rank(place) => Some(place),
        To::Absent(gathering) => Some(job.ranks.len() + gathering),
        To::Missing(_) => None,
    }
}

/// The shortest cycle, of waits that stood still if there is one, else of any that did not visibly move. Ranks whose
/// other threads may still act are in none, if there is another one.
fn cycle(job: &Gathered<'_>, links: &Links) -> Option<Cycle> {
    let bound = bound(job, links);
    let of = |members: &[bool]| {
        [Standing::Still, Standing::Once].into_iter().find_map(|least| shortest(job, links, least, members))
    };
    if let Some(steps) = of(&bound) {
        return Some(describe(job, links, steps));
    }
    let mut cycle = describe(job, links, of(&vec![true; job.ranks.len()])?);
    cycle.stood = false;
    cycle.doubts.push(Doubt::FreeThread);
    Some(cycle)
}

fn shortest(job: &Gathered<'_>, links: &Links, least: Standing, members: &[bool]) -> Option<Vec<(usize, usize)>> {
    let count = job.ranks.len();
    let mut edges: Vec<(usize, usize)> = Vec::new();
    for place in (0..count).filter(|place| members[*place]) {
        let standing = links.from(place).filter(|link| link.standing >= least);
        edges.extend(standing.filter_map(|link| Some((place, node(job, link.to)?))));
    }
    for (at, gathering) in links.gatherings.iter().enumerate() {
        edges.extend(gathering.absent.iter().map(|place| (count + at, *place)));
    }
    let mut graph: DiGraph<(), ()> = DiGraph::new();
    for _ in 0..count + links.gatherings.len() {
        graph.add_node(());
    }
    // The edges that were added last are walked first.
    let mut known = BTreeSet::new();
    edges.retain(|edge| known.insert(*edge));
    for (from, to) in edges.iter().rev() {
        graph.add_edge(NodeIndex::new(*from), NodeIndex::new(*to), ());
    }
    let bounds = Bounds { cycles: MOST_FOUND, steps: STEPS };
    let found = search(&graph, &Ranks(count), bounds).cycles.into_iter();
    let rings = found.map(|path| path.iter().map(|(from, ..)| from.index()).collect::<Vec<usize>>());
    let ring = rings.min_by_key(Vec::len)?;
    let ranks = ring.iter().filter(|node| **node < count).count();
    let step = |(position, at): (usize, &usize)| {
        let next = ring.get((position + 1) % ring.len())?;
        let link = links
            .waits
            .get(*at)?
            .iter()
            .position(|link| link.standing >= least && node(job, link.to) == Some(*next))?;
        Some((*at, link))
    };
    let steps: Vec<(usize, usize)> =
        ring.iter().enumerate().filter(|(_, node)| **node < count).filter_map(step).collect();
    (steps.len() == ranks).then_some(steps)
}

/// The nodes below this number are ranks: a cycle begins at one.
struct Ranks(usize);

impl Edges<()> for Ranks {
    fn start(&self, source: NodeIndex, _edge: ()) -> Option<usize> {
        Some(source.index()).filter(|node| *node < self.0)
    }
}

fn describe(job: &Gathered<'_>, links: &Links, steps: Vec<(usize, usize)>) -> Cycle {
    let mut doubts = BTreeSet::new();
    let mut certainty = Certainty::Exact;
    let mut stood = true;
    let wait_of = |(place, at): &(usize, usize)| {
        let link = links.waits.get(*place)?.get(*at)?;
        Some((&job.ranks[*place], job.ranks[*place].now.waits.get(link.wait)?))
    };
    for (step, next) in steps.iter().zip(steps.iter().cycle().skip(1)) {
        let (place, at) = step;
        let rank = &job.ranks[*place];
        let Some(link) = links.waits.get(*place).and_then(|links| links.get(*at)) else { continue };
        certainty = certainty.min(link.certainty);
        let is_held = || wait_of(step).zip(wait_of(next)).is_some_and(|(wait, next)| is_held(wait, next));
        let is_still = link.standing == Standing::Still && is_held();
        match link.standing {
            Standing::Still if is_still => {}
            Standing::Still | Standing::Alike => drop(doubts.insert(Doubt::Alike)),
            Standing::Once | Standing::Moved => drop(doubts.insert(Doubt::OneRound)),
        }
        stood &= is_still;
        if rank.now.waits.get(link.wait).is_some_and(|wait| wait.timed) {
            doubts.insert(Doubt::Timed);
        }
        if rank.now.others > 0 {
            doubts.insert(Doubt::OtherThreads);
        }
    }
    let places: Vec<usize> = steps.iter().map(|(place, _)| *place).collect();
    // Also if a rank waits for all ranks in an operation, and the next one is the rank that has not come.
    let talks = |(step, next): (&(usize, usize), &(usize, usize))| {
        wait_of(step).is_some_and(|(_, wait)| links.talk(step.0, next.0, wait))
    };
    if steps.iter().zip(steps.iter().cycle().skip(1)).any(talks) {
        doubts.insert(Doubt::Talk);
        stood = false;
    }
    if !job.have_seen_each_other(&places) {
        doubts.insert(Doubt::NotSeen);
    }
    if certainty < Certainty::Exact {
        doubts.insert(Doubt::NotExact);
    }
    Cycle { steps, certainty, stood, doubts: doubts.into_iter().collect() }
}

/// The ranks without a thread that may do what others wait for, by their places: each waits for threads of its own
/// process alone, or for ranks that are bound likewise.
fn bound(job: &Gathered<'_>, links: &Links) -> Vec<bool> {
    let mut bound: Reduction<Bound> = Reduction::default();
    let mut leads_to = |link: &Link| match link.to {
        _ if link.standing < Standing::Once => Vec::new(),
        To::Rank(place) => vec![bound.node(Bound::Rank(place))],
        To::Absent(at) => vec![bound.node(Bound::Gathering(at))],
        To::Missing(_) => Vec::new(),
    };
    let mut rules = Vec::new();
    for (place, rank) in job.ranks.iter().enumerate().filter(|(_, rank)| rank.now.free_thread.is_none()) {
        let mut threads = vec![Rule::Any(links.from(place).flat_map(&mut leads_to).collect())];
        let is_others = |wait: &RankWait| !wait.holds_up_main && wait.tid != rank.now.main.tid;
        let others = rank.now.waits.iter().enumerate().filter(|(_, wait)| is_others(wait));
        threads.extend(others.map(|(position, _)| {
            let own = links.of_others(place).filter(|link| link.wait == position);
            Rule::Any(own.flat_map(&mut leads_to).collect())
        }));
        rules.push((place, threads));
    }
    for (place, threads) in rules {
        let threads = threads.into_iter().map(|rule| bound.part(rule)).collect();
        bound.set(Bound::Rank(place), Rule::All(threads));
    }
    for (at, gathering) in links.gatherings.iter().enumerate() {
        let absent = gathering.absent.iter().map(|place| bound.node(Bound::Rank(*place))).collect();
        bound.set(Bound::Gathering(at), Rule::Any(absent));
    }
    let bound = bound.greatest();
    (0..job.ranks.len()).map(|place| bound.contains(&Bound::Rank(place))).collect()
}

/// A node of the reduction of ranks with all their threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Bound {
    Rank(usize),
    Gathering(usize),
}

/// Ranks that have ended while others wait for them, or for all, and stood still.
fn waited_for_and_ended(job: &Gathered<'_>, links: &Links) -> Vec<u32> {
    let mut found = BTreeSet::new();
    for link in links.waits.iter().flatten().filter(|link| link.standing >= Standing::Alike) {
        match link.to {
            To::Missing(rank) if job.ended.contains(&rank) => drop(found.insert(rank)),
            To::Absent(at) if links.gatherings.get(at).is_some_and(|one| one.is_of_all) => {
                found.extend(job.ended.iter().copied());
            }
            _ => {}
        }
    }
    found.into_iter().collect()
}

/// Nobody is in anything: whom do the others wait for?
fn last(job: &Gathered<'_>, links: &Links) -> (Verdict, Cause) {
    let mut places = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let mut is_waited_for = false;
    for link in links.waits.iter().flatten().filter(|link| link.standing != Standing::Moved) {
        is_waited_for = true;
        match link.to {
            To::Rank(place) => drop(places.insert(place)),
            To::Missing(rank) => drop(numbers.insert(rank)),
            To::Absent(at) => {
                let Some(gathering) = links.gatherings.get(at) else { continue };
                places.extend(gathering.absent.iter().copied());
                if gathering.is_of_all {
                    numbers.extend(job.missing.iter().copied());
                }
            }
        }
    }
    let waits = |place: &usize| links.from(*place).any(|link| link.standing != Standing::Moved);
    places.retain(|place| !waits(place));
    // A rank that spins until a GPU is done runs, and its own sample calls it blocked.
    let is_running = job.ranks.iter().any(|rank| rank.now.verdict == Verdict::Running);
    let verdict = if is_running { Verdict::Running } else { Verdict::Blocked };
    if !places.is_empty() || !numbers.is_empty() {
        return (verdict, Cause::Last(places.into_iter().collect(), numbers.into_iter().collect()));
    }
    let all_in = links.gatherings.iter().position(|one| one.is_of_all && one.inside.len() == job.ranks.len());
    match all_in.filter(|_| is_waited_for && job.missing.is_empty()) {
        Some(at) => (Verdict::Blocked, Cause::AllIn(at)),
        None if job.ranks.iter().any(went_on) => (Verdict::Running, Cause::Nothing),
        None => (verdict, Cause::Nothing),
    }
}

/// The ranks that are blocked because of the cause, directly or through others.
fn victims(job: &Gathered<'_>, links: &Links, cause: &Cause) -> Vec<usize> {
    let count = job.ranks.len();
    let mut blocked: Reduction<Blocker> = Reduction::default();
    for (place, list) in links.waits.iter().enumerate() {
        for link in list.iter().filter(|link| link.standing != Standing::Moved) {
            let to = match link.to {
                To::Missing(rank) => Blocker::Missing(rank),
                To::Rank(place) => Blocker::Rank(place),
                To::Absent(gathering) => Blocker::Gathering(gathering),
            };
            let to = blocked.node(to);
            blocked.add_cause(Blocker::Rank(place), to);
        }
    }
    for (at, gathering) in links.gatherings.iter().enumerate() {
        for place in &gathering.absent {
            let absent = blocked.node(Blocker::Rank(*place));
            blocked.add_cause(Blocker::Gathering(at), absent);
        }
    }
    let own: BTreeSet<usize> = match cause {
        Cause::Ranks(places) | Cause::Last(places, _) => places.iter().copied().collect(),
        Cause::Cycle(cycle) => cycle.steps.iter().map(|(place, _)| *place).collect(),
        _ => BTreeSet::new(),
    };
    let missing: &[u32] = match cause {
        Cause::Ended(ranks) | Cause::Last(_, ranks) => ranks,
        _ => &[],
    };
    let of_all = (0..links.gatherings.len()).filter(|at| !missing.is_empty() && links.gatherings[*at].is_of_all);
    let given = own.iter().map(|place| Blocker::Rank(*place));
    let given = given.chain(of_all.map(Blocker::Gathering)).chain(missing.iter().map(|rank| Blocker::Missing(*rank)));
    let found = blocked.least(given).into_nodes().filter_map(|node| match node {
        Blocker::Rank(place) if place < count && !own.contains(&place) => Some(place),
        _ => None,
    });
    found.collect::<BTreeSet<usize>>().into_iter().collect()
}

/// The blocker of a rank's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Blocker {
    /// The rank at this place.
    Rank(usize),
    /// A rank of this number, without a sample.
    Missing(u32),
    /// All ranks that are absent from this operation.
    Gathering(usize),
}

/// Whether all waits of a cycle are in operations of groups, and of more than one: then these were entered in different orders.
fn orders(job: &Gathered<'_>, links: &Links, cycle: &Cycle) -> Option<Orders> {
    let operation_of = |(place, link): &(usize, usize)| {
        let link = links.waits.get(*place)?.get(*link)?;
        operation(job.ranks.get(*place)?.now.waits.get(link.wait)?.collective.as_ref()?)
    };
    let inside: BTreeSet<_> = cycle.steps.iter().map(operation_of).collect::<Option<_>>()?;
    let groups: BTreeSet<(&str, &str)> =
        inside.iter().map(|(backend, group, ..)| Some((*backend, (*group)?))).collect::<Option<_>>()?;
    if groups.len() < 2 || groups.iter().any(|(_, group)| group.is_empty()) {
        return None;
    }
    let mut operations: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for rank in &job.ranks {
        let waits = rank.now.waits.iter().filter(|wait| wait.holds_up_main);
        let own = waits
            .filter_map(|wait| wait.collective.as_ref())
            .find(|one| operation(one).is_some_and(|own| inside.contains(&own)));
        if let Some(own) = own {
            let name = format!("{} of {}", super::links::called(own), own.group.as_deref().unwrap_or_default());
            operations.entry(name).or_default().push(rank.number);
        }
    }
    let mut operations: Vec<(String, Vec<u32>)> = operations.into_iter().collect();
    operations.sort_by(|(name, ranks), (other, others)| (ranks, name).cmp(&(others, other)));
    Some(Orders { groups: groups.len(), operations })
}

/// Ranks in different operations of one group, under one number or none: the calls do not match.
fn mismatch(job: &Gathered<'_>) -> Option<Mismatch> {
    type Of<'a> = (&'a str, Option<&'a str>, Option<u64>);
    let mut groups: BTreeMap<Of<'_>, BTreeMap<String, Vec<u32>>> = BTreeMap::new();
    for rank in &job.ranks {
        for wait in rank.now.waits.iter().filter(|wait| wait.holds_up_main) {
            let Some(collective) = &wait.collective else { continue };
            let Some((backend, group, _, seq)) = operation(collective) else { continue };
            let in_all = collective.synchronises || collective.size.is_some();
            if in_all && !collective.op.starts_with("wait") && !collective.op.starts_with("sendrecv") {
                let operations = groups.entry((backend, group, seq)).or_default();
                operations.entry(super::links::called(collective)).or_default().push(rank.number);
            }
        }
    }
    // A group that has no name may be several.
    groups
        .into_iter()
        .find(|((_, group, _), operations)| group.is_some_and(|name| !name.is_empty()) && operations.len() > 1)
        .map(|((_, group, _), operations)| {
            let mut operations: Vec<(String, Vec<u32>)> = operations.into_iter().collect();
            operations.sort_by_key(|(name, ranks)| (std::cmp::Reverse(ranks.len()), name.clone()));
            Mismatch { group: group.map(str::to_owned), operations }
        })
}

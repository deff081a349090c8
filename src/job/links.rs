//! The links of a job: each leads from a waiting rank to the rank that it waits for.
//!
//! In: a [`Gathered`] job. Out: [`Links`]: a graph of ranks, and of operations that some ranks have entered and others have not,
//! so that its size is linear in the number of ranks. Numbers of ranks come first; then both ends of a TCP connection, where
//! it is the only thing that a thread waits for; then the process that has a lock or the other end of a pipe. A wait that ends when one of several comes, or that ends by itself, makes
//! no link; nor does a message that is on its way, or a send that the receiver has met.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::digest::RankWait;
use super::gather::{Gathered, Rank};
use super::standing::{Standing, standing};
use crate::limits::job::MOST_GATHERINGS;
use crate::report::Certainty;
use crate::waits::collective::Collective;

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The links of each rank, by its place.
    pub(super) waits: Vec<Vec<Link>>,
    /// Those of threads that the main thread does not wait for, likewise.
    others: Vec<Vec<Link>>,
    pub(super) gatherings: Vec<Gathering>,
    /// There are more operations than lockscope reads.
    pub(super) are_cut: bool,
    talking: BTreeMap<(usize, usize), u64>,
}

/// One wait of a rank.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Its place among the waits of the rank's last sample.
    pub(super) wait: usize,
    pub(super) standing: Standing,
    pub(super) to: To,
    pub(super) certainty: Certainty,
    pub(super) evidence: String,
}

/// The target of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum To {
    /// The rank at this place.
    Rank(usize),
    /// A rank of this number, without a sample.
    Missing(u32),
    /// The ranks that have not entered the operation at this place.
    Absent(usize),
}

/// An operation that nobody leaves before all have entered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gathering {
    /// `barrier`, `all_reduce #4`.
    pub(super) name: String,
    pub(super) group: Option<String>,
    /// All ranks of the job belong to it.
    pub(super) is_of_all: bool,
    /// Places of the ranks that are in it.
    pub(super) inside: Vec<usize>,
    /// Places of the ranks that are not in it.
    pub(super) absent: Vec<usize>,
}

/// The identity of an operation that several ranks are in.
pub(super) type Operation<'d> = (&'d str, Option<&'d str>, &'d str, Option<u64>);

/// The operation of all ranks of a group, if it is one.
pub(super) fn operation(collective: &Collective) -> Option<Operation<'_>> {
    let is_message = collective.tag.is_some() || matches!(collective.op.as_str(), "recv" | "send");
    (!is_message).then_some((
        collective.backend.as_str(),
        collective.group.as_deref(),
        collective.op.as_str(),
        collective.seq,
    ))
}

/// As people name an operation.
pub(super) fn called(collective: &Collective) -> String {
    match collective.seq.filter(|_| operation(collective).is_some()) {
        Some(number) => format!("{} #{number}", collective.op),
        None => collective.op.clone(),
    }
}

impl Links {
    /// All links of a job.
    pub(super) fn of(job: &Gathered<'_>) -> Links {
        let places: HashMap<u32, usize> =
            job.ranks.iter().enumerate().map(|(place, rank)| (rank.number, place)).collect();
        let mut owners: HashMap<(&str, &str), usize> = HashMap::new();
        for (place, rank) in job.ranks.iter().enumerate() {
            for (local, remote) in &rank.now.connections {
                owners.insert((local, remote), place);
            }
        }
        let processes: HashMap<Process<'_>, usize> =
            job.ranks.iter().enumerate().map(|(place, rank)| (process(rank, rank.now.pid), place)).collect();
        let gatherings = Gatherings::of(job, &places);
        let talking = talking(job, &owners);
        let of_rank = |(own, rank): (usize, &Rank<'_>), of_main: bool| -> Vec<Link> {
            let mut links = Vec::new();
            for (position, wait) in rank.now.waits.iter().enumerate().filter(|(_, wait)| wait.holds_up_main == of_main)
            {
                let standing = standing(rank, wait);
                let polled =
                    wait.polled_ms.map(|ms| format!("; its thread ran in the call for {ms} ms and did not leave it"));
                let polled = polled.unwrap_or_default();
                let link = |to: To, certainty: Certainty, evidence: String| Link {
                    wait: position,
                    standing,
                    to,
                    certainty: certainty.min(wait.certainty),
                    evidence: evidence + &polled,
                };
                if let Some(collective) = wait.collective.as_ref().filter(|collective| !collective.any) {
                    links.extend(of_collective(job, rank, collective, &places, &gatherings, link));
                } else if let Some((local, remote)) = &wait.connection {
                    let other = owners.get(&(remote.as_str(), local.as_str()));
                    let evidence = |whose: String| format!("it waits for data on {local} from {remote}, {whose}");
                    links.extend(other.map(|place| {
                        let whose = format!("whose other end rank {} has", job.ranks[*place].number);
                        link(To::Rank(*place), Certainty::Exact, evidence(whose))
                    }));
                } else if let Some(held) = &wait.held_by {
                    let other = processes.get(&process(rank, held.pid));
                    links.extend(other.map(|place| link(To::Rank(*place), Certainty::Exact, held.evidence.clone())));
                }
            }
            // The data arrives piece by piece, even if the waits look equal.
            for link in &mut links {
                let wait = rank.now.waits.get(link.wait);
                if matches!(link.to, To::Rank(other) if wait.is_some_and(|wait| talk(&talking, own, other, wait))) {
                    link.standing = Standing::Moved;
                }
            }
            links
        };
        let of_ranks = |of_main: bool| job.ranks.iter().enumerate().map(|rank| of_rank(rank, of_main)).collect();
        Links {
            waits: of_ranks(true),
            others: of_ranks(false),
            gatherings: gatherings.list,
            are_cut: gatherings.are_cut,
            talking,
        }
    }

    /// Whether bytes that may be what this wait is for went between two ranks from the first round to the second.
    pub(super) fn talk(&self, one: usize, other: usize, wait: &RankWait) -> bool {
        talk(&self.talking, one, other, wait)
    }

    /// The links of the threads of a rank that its main thread does not wait for.
    pub(super) fn of_others(&self, place: usize) -> impl Iterator<Item = &Link> {
        self.others.get(place).into_iter().flatten()
    }

    /// The places to which the links of a rank lead, each with the link.
    pub(super) fn from(&self, place: usize) -> impl Iterator<Item = &Link> {
        self.waits.get(place).into_iter().flatten()
    }
}

/// A process by its number where the sample of a rank was made.
type Process<'d> = (Option<&'d str>, Option<u64>, i32);

fn process<'d>(rank: &Rank<'d>, pid: i32) -> Process<'d> {
    (rank.look.host.boot_id.as_deref(), rank.now.identity.namespaces.pid, pid)
}

/// Places of ranks between which a TCP connection has carried something from the first round to the second, with the most that one has.
fn talking(job: &Gathered<'_>, owners: &HashMap<(&str, &str), usize>) -> BTreeMap<(usize, usize), u64> {
    let mut found: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (place, rank) in job.ranks.iter().enumerate() {
        let Some((before, _)) = rank.before else { continue };
        let counts: HashMap<(&str, &str), Option<u64>> =
            before.counted().map(|(local, remote, count)| ((local, remote), count)).collect();
        for (local, remote, now) in rank.now.counted() {
            let earlier = counts.get(&(local, remote)).copied().flatten();
            let carried = now.zip(earlier).map_or(0, |(now, earlier)| now.abs_diff(earlier));
            if let Some(other) = owners.get(&(remote, local)).filter(|_| carried > 0) {
                let most = found.entry((place.min(*other), place.max(*other))).or_default();
                *most = carried.max(*most);
            }
        }
    }
    found
}

/// NCCL sends data of GPUs by TCP. Its ranks also talk all the time by PyTorch's store, whose heartbeats are some
/// hundred bytes a second.
const LEAST_OF_NCCL: u64 = 64 << 10;

fn talk(talking: &BTreeMap<(usize, usize), u64>, one: usize, other: usize, wait: &RankWait) -> bool {
    let is_nccl = wait.collective.as_ref().is_some_and(|collective| collective.backend == "nccl");
    let least = if is_nccl { LEAST_OF_NCCL } else { 1 };
    talking.get(&(one.min(other), one.max(other))).is_some_and(|carried| *carried >= least)
}

fn of_collective(
    job: &Gathered<'_>,
    rank: &Rank<'_>,
    collective: &Collective,
    places: &HashMap<u32, usize>,
    gatherings: &Gatherings<'_>,
    link: impl Fn(To, Certainty, String) -> Link,
) -> Vec<Link> {
    // The other side has come: what is left is the transfer.
    if collective.matched == Some(true) {
        return Vec::new();
    }
    let own = operation(collective);
    let by = collective.witness.as_ref().map(|witness| format!(" (by {witness})")).unwrap_or_default();
    let mut links = Vec::new();
    if let Some(at) = own.as_ref().and_then(|own| gatherings.index.get(own)) {
        let evidence = format!("rank {} has entered {}{by}, and waits for all", rank.number, called(collective));
        links.push(link(To::Absent(*at), Certainty::Exact, evidence));
    }
    for peer in collective.peers.iter().filter(|peer| **peer != rank.number) {
        let evidence = format!("{} on rank {} expects rank {peer}{by}", collective.backend, rank.number);
        match places.get(peer) {
            // A send and the receive that takes it are a transfer, however slow; and a rank in the same operation is at
            // work there, or waits for those who are not.
            Some(place) if meets(rank.number, collective, &job.ranks[*place]) => {}
            Some(place) if own.is_some() && is_in(&job.ranks[*place], own) => {}
            Some(place) => links.push(link(To::Rank(*place), Certainty::Exact, evidence)),
            None => links.push(link(To::Missing(*peer), Certainty::Exact, evidence)),
        }
    }
    // A peer that the back end names counts more than one that is inferred from absence.
    if links.iter().any(|link| !matches!(link.to, To::Absent(_))) {
        links.retain(|link| !matches!(link.to, To::Absent(_)));
    }
    links
}

/// Whether a rank is in this operation.
fn is_in(rank: &Rank<'_>, wanted: Option<Operation<'_>>) -> bool {
    rank.now.waits.iter().filter_map(|wait| wait.collective.as_ref()).any(|one| operation(one) == wanted)
}

/// Whether the other rank does just what this one waits for: it sends what this one receives, or receives what it sends.
fn meets(own: u32, collective: &Collective, other: &Rank<'_>) -> bool {
    let Some(receives) = receives(&collective.op) else { return false };
    let fits = |theirs: &Collective| {
        self::receives(&theirs.op) == Some(!receives)
            && theirs.group == collective.group
            && (theirs.peers.contains(&own) || theirs.any)
            && (theirs.tag == collective.tag || theirs.tag.is_none() || collective.tag.is_none())
    };
    other.now.waits.iter().filter_map(|wait| wait.collective.as_ref()).any(fits)
}

/// Whether an operation is the receiving end of a message, or the sending one; `None` if it is neither.
fn receives(operation: &str) -> Option<bool> {
    match operation {
        "recv" | "mrecv" | "probe" | "mprobe" => Some(true),
        "send" | "ssend" | "rsend" | "bsend" => Some(false),
        _ => None,
    }
}

/// The operations that some ranks are in, and nobody leaves before all have come.
#[derive(Debug, Default)]
struct Gatherings<'j> {
    list: Vec<Gathering>,
    index: HashMap<Operation<'j>, usize>,
    are_cut: bool,
}

impl<'j> Gatherings<'j> {
    fn of(job: &'j Gathered<'_>, places: &HashMap<u32, usize>) -> Gatherings<'j> {
        let mut inside: BTreeMap<Operation<'j>, Vec<(usize, &'j Collective)>> = BTreeMap::new();
        for (place, rank) in job.ranks.iter().enumerate() {
            for collective in rank.now.waits.iter().filter_map(|wait| wait.collective.as_ref()) {
                if let Some(operation) = operation(collective).filter(|_| collective.synchronises) {
                    // One thread works on it and another waits for that: the rank is in it once.
                    let members: &mut Vec<(usize, &Collective)> = inside.entry(operation).or_default();
                    if members.last().is_none_or(|(last, _)| *last != place) {
                        members.push((place, collective));
                    }
                }
            }
        }
        let mut all = Gatherings { are_cut: inside.len() > MOST_GATHERINGS, ..Gatherings::default() };
        for (operation, members) in inside.into_iter().take(MOST_GATHERINGS) {
            let mut is_inside = vec![false; job.ranks.len()];
            members.iter().for_each(|(place, _)| is_inside[*place] = true);
            let is_of_all = members
                .iter()
                .all(|(_, collective)| collective.size.is_none_or(|size| job.size.is_none_or(|all| all == size)));
            // In a group smaller than the job, only the ranks that others wait for are known members.
            let expected: BTreeSet<usize> = match is_of_all {
                true => (0..job.ranks.len()).collect(),
                false => {
                    let peers = members.iter().flat_map(|(_, collective)| &collective.peers);
                    peers.filter_map(|peer| places.get(peer).copied()).collect()
                }
            };
            let Some((_, first)) = members.first() else { continue };
            // A rank in the same operation of an unreadable group may be in this one.
            let can_be_inside = |place: usize| {
                let waits = job.ranks.get(place).into_iter().flat_map(|rank| &rank.now.waits);
                waits.filter_map(|wait| wait.collective.as_ref()).any(|other| {
                    let is_unknown = other.group.is_none() || first.group.is_none();
                    is_unknown && other.backend == first.backend && other.op == first.op
                })
            };
            all.index.insert(operation, all.list.len());
            all.list.push(Gathering {
                name: called(first),
                group: first.group.clone(),
                is_of_all,
                inside: members.iter().map(|(place, _)| *place).collect(),
                absent: expected.into_iter().filter(|place| !is_inside[*place] && !can_be_inside(*place)).collect(),
            });
        }
        all
    }
}

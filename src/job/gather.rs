//! All samples of one job: which are of the same process, which ranks have ended, which are missing.
//!
//! In: a [`Digest`]. Out: a [`Gathered`] job, which borrows from it. If there are several jobs, the one with the most
//! ranks counts; if there are several attempts, the last. The others are reported as left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::digest::{Digest, Look, Member};
use super::launched::Launched;
use super::ranks::named;
use crate::limits::job::LARGEST_JOB;
use crate::report::{Gap, Identity, Job};

/// The ranks of one job.
#[derive(Debug, Default)]
pub(super) struct Gathered<'d> {
    digest: Option<&'d Digest>,
    /// As the engine names it.
    pub(super) job: Job,
    /// The number of ranks, if any source names it.
    pub(super) size: Option<u32>,
    /// In order of their numbers.
    pub(super) ranks: Vec<Rank<'d>>,
    /// Ranks without a sample.
    pub(super) missing: Vec<u32>,
    /// Ranks that a sample left out, and why; they run.
    pub(super) left_out: BTreeMap<u32, &'d str>,
    /// Ranks that several processes claim to be at a time.
    pub(super) disputed: BTreeSet<u32>,
    /// Those of the missing ones that have ended, by the word of their launcher or since the first round.
    pub(super) ended: BTreeSet<u32>,
    /// The accounts of the systems that started it.
    pub(super) launched: Launched,
    pub(super) gaps: Vec<Gap>,
}

/// One rank, as the last sample of it showed it.
#[derive(Debug)]
pub(super) struct Rank<'d> {
    pub(super) number: u32,
    pub(super) now: &'d Member,
    pub(super) look: &'d Look,
    /// The same process in a sample of the round before, which that sample saw.
    pub(super) before: Option<(&'d Member, &'d Look)>,
}

/// The identity of a process among all others.
pub(super) type Process<'d> = (Option<&'d str>, Option<u64>, i32, Option<u64>);

/// A machine and what started the ranks there; where that is not seen, as from inside of a pod, whose processes these are.
type Node<'d> = (Option<&'d str>, Option<(i32, u64)>, Option<u64>);

fn node<'d>(look: &'d Look, member: &Member) -> Node<'d> {
    let identity = &member.identity;
    let own = identity.namespaces.pid.filter(|_| identity.launcher.is_none());
    (look.host.boot_id.as_deref(), identity.launcher, own)
}

/// The identity of a process among all others.
pub(super) fn process<'d>(look: &'d Look, member: &Member) -> Process<'d> {
    let identity = &member.identity;
    (look.host.boot_id.as_deref(), identity.namespaces.pid, identity.ns_pid, identity.start_ticks)
}

/// The job's name for people; `None` for a process outside of any job.
pub(crate) fn key_of(identity: &Identity) -> Option<String> {
    let job = identity.job.as_ref()?;
    let mut key = job.engine.name().to_owned();
    for part in [&job.id, &job.step].into_iter().flatten() {
        key = format!("{key} {part}");
    }
    Some(key)
}

/// Whether the sample `later` began when `earlier` had ended, by what it says, or by the clock of the machine of both.
pub(super) fn has_seen(digest: &Digest, later: &Look, earlier: &Look) -> bool {
    let set = || later.saw_set.as_ref().and_then(|name| digest.set(name));
    if later.saw.contains(&earlier.id) || set().is_some_and(|set| set.contains(&earlier.id)) {
        return true;
    }
    let same = later.host.boot_id.is_some() && later.host.boot_id == earlier.host.boot_id;
    same && !earlier.ended.is_empty() && earlier.ended.len() == later.began.len() && earlier.ended <= later.began
}

/// Whether all samples `later` began when all samples `earlier` had ended. Thousands of ranks have fewer samples, and
/// fewer sets of samples that these name, so each set is walked once.
pub(super) fn have_seen<'d>(
    digest: &Digest,
    later: impl Iterator<Item = &'d Look>,
    earlier: impl Iterator<Item = &'d Look>,
) -> bool {
    let each = |look: &'d Look| (look.id.as_str(), look);
    let (later, earlier): (BTreeMap<_, _>, BTreeMap<_, _>) = (later.map(each).collect(), earlier.map(each).collect());
    let mut beyond: HashMap<&str, Vec<&Look>> = HashMap::new();
    later.values().all(|look| {
        let Some(name) = look.saw_set.as_deref() else {
            return earlier.values().all(|one| has_seen(digest, look, one));
        };
        let not_in_it = || {
            let set = digest.set(name);
            earlier.values().copied().filter(|one| !set.is_some_and(|set| set.contains(&one.id))).collect()
        };
        beyond.entry(name).or_insert_with(not_in_it).iter().all(|one| has_seen(digest, look, one))
    })
}

impl<'d> Gathered<'d> {
    /// The job with the most ranks in `digest`.
    pub(super) fn of(digest: &'d Digest) -> Gathered<'d> {
        let mut gaps = Vec::new();
        let mut jobs: BTreeMap<String, Vec<(&Look, &Member)>> = BTreeMap::new();
        for look in digest.looks() {
            for member in look.members.iter().filter(|member| !member.identity.helper) {
                if let Some(key) = key_of(&member.identity) {
                    jobs.entry(key).or_default().push((look, member));
                }
            }
        }
        // The first of those with the most, so that equal input gives the same.
        let Some(most) = jobs.values().map(Vec::len).max() else { return Gathered::default() };
        let Some((key, mut all)) = jobs.iter().find(|(_, all)| all.len() == most).map(|(key, all)| (key, all.clone()))
        else {
            return Gathered::default();
        };
        for (other, seen) in jobs.iter().filter(|(other, _)| *other != key) {
            let why = "the looks are of several jobs, and this one has fewer: merge its files alone";
            gaps.push(Gap::new(format!("{} of the job {other}", looks(seen.len())), why));
        }
        let last = all.iter().map(|(_, member)| member.identity.attempt.unwrap_or(0)).max().unwrap_or(0);
        let before = all.len();
        all.retain(|(_, member)| member.identity.attempt.unwrap_or(0) == last);
        if all.len() < before {
            let why = "the job was started again since: only the last attempt is judged";
            gaps.push(Gap::new(looks(before - all.len()), why));
        }
        let job = all.first().and_then(|(_, member)| member.identity.job.clone()).unwrap_or_default();
        let said = all.iter().filter_map(|(_, member)| member.identity.size).max();
        let launched = Launched::of(digest, &all, &job);
        let size = said.filter(|size| *size <= LARGEST_JOB).or(launched.size);
        gaps.extend(launched.gaps.iter().cloned());
        let mut gathered = Gathered { digest: Some(digest), job, size, gaps, launched, ..Gathered::default() };
        let left_out = all.iter().flat_map(|(look, _)| &look.left_out);
        gathered.left_out = left_out.map(|one| (one.rank, one.why.as_str())).collect();
        gathered.pair(&all);
        gathered.find_missing(&all);
        let over = |rank: &&u32| gathered.launched.of_rank.get(rank).is_some_and(|fate| fate.is_over);
        let over: Vec<u32> = gathered.missing.iter().filter(over).copied().collect();
        gathered.ended.extend(over);
        for look in digest.looks() {
            gathered.gaps.extend(look.gaps.iter().cloned());
        }
        let mut seen = BTreeSet::new();
        gathered.gaps.retain(|gap| seen.insert((gap.what.clone(), gap.why.clone())));
        gathered
    }

    /// The last sample of each rank, with one of the same process before.
    fn pair(&mut self, all: &[(&'d Look, &'d Member)]) {
        let mut of_rank: BTreeMap<u32, Vec<(&Look, &Member)>> = BTreeMap::new();
        for (look, member) in all {
            if let Some(rank) = member.identity.rank {
                of_rank.entry(rank).or_default().push((look, member));
            }
        }
        // A process that is missing in a later sample of the same node has ended.
        let mut nodes: HashMap<Node<'_>, BTreeMap<&str, &Look>> = HashMap::new();
        for (look, member) in all.iter().filter(|(look, _)| !look.partial) {
            let node = nodes.entry(node(look, member)).or_default();
            node.insert(&look.id, look);
        }
        let mut twice = Vec::new();
        for (number, mut seen) in of_rank {
            seen.sort_by(|(one, _), (other, _)| {
                (one.round, &one.ended, &one.id).cmp(&(other.round, &other.ended, &other.id))
            });
            let Some((look, now)) = seen.last().copied() else { continue };
            let own = process(look, now);
            // In one round both were there at a time, and nobody knows which is the rank.
            let other = |&&(look_of, member): &&(&Look, &Member)| {
                look_of.round == look.round && process(look_of, member) != own
            };
            if let Some((of, member)) = seen.iter().find(other) {
                let name = |look: &Look, member: &Member| {
                    let host = look.host.name.as_deref().map(|host| format!(" on {host}")).unwrap_or_default();
                    format!("process {} ({}){host}", member.pid, member.program)
                };
                self.gaps.push(Gap::new(
                    format!("which process is {}", named(&[number])),
                    format!("{} and {} say that they are it: none is judged", name(of, member), name(look, now)),
                ));
                self.disputed.insert(number);
                continue;
            }
            if seen.iter().any(|(look, member)| process(look, member) != own) {
                twice.push(number);
            }
            let later = nodes.get(&node(look, now)).is_some_and(|looks| {
                looks.values().any(|other| {
                    let leaves_out = other.left_out.iter().any(|one| one.rank == number);
                    other.round > look.round && !leaves_out && self.has_seen(other, look)
                })
            });
            if later {
                self.missing.push(number);
                self.ended.insert(number);
                continue;
            }
            let before = seen.iter().rev().find(|(earlier, member)| {
                earlier.round < look.round && process(earlier, member) == own && self.has_seen(look, earlier)
            });
            self.ranks.push(Rank { number, now, look, before: before.copied().map(|(look, member)| (member, look)) });
        }
        if !twice.is_empty() {
            let why = "several processes say that they are it; the one that was looked at last is taken";
            self.gaps.push(Gap::new(format!("which process is {}", named(&twice)), why));
        }
    }

    /// Ranks without a sample, and which of them have ended.
    fn find_missing(&mut self, all: &[(&'d Look, &'d Member)]) {
        let Some(size) = self.size else { return };
        let there: BTreeSet<u32> =
            self.ranks.iter().map(|rank| rank.number).chain(self.missing.iter().copied()).collect();
        let there: BTreeSet<u32> = there.union(&self.disputed).copied().collect();
        let unseen: Vec<u32> = (0..size).filter(|rank| !there.contains(rank)).collect();
        // A launcher says how many ranks it started on its node: if as many are gone as are not seen, these are they.
        let mut nodes: BTreeMap<Node<'_>, (u32, BTreeSet<u32>)> = BTreeMap::new();
        for (look, member) in all.iter().filter(|(look, _)| !look.partial) {
            let identity = &member.identity;
            if let (Some(rank), Some(size)) = (identity.rank, identity.local_size) {
                let node = nodes.entry(node(look, member)).or_default();
                node.0 = size;
                node.1.insert(rank);
                node.1.extend(look.left_out.iter().map(|one| one.rank));
            }
        }
        let gone: usize = nodes.values().map(|(size, there)| (*size as usize).saturating_sub(there.len())).sum();
        let silent = || unseen.iter().filter(|rank| !self.left_out.contains_key(rank)).copied();
        if gone == silent().count() {
            self.ended.extend(silent().collect::<Vec<_>>());
        }
        self.missing.extend(unseen);
        self.missing.sort_unstable();
    }

    /// Whether the sample `later` began when `earlier` had ended.
    fn has_seen(&self, later: &Look, earlier: &Look) -> bool {
        self.digest.is_some_and(|digest| has_seen(digest, later, earlier))
    }

    /// Whether the last samples of these ranks, by their places, began when the earlier samples of all of them had
    /// ended.
    pub(super) fn have_seen_each_other(&self, places: &[usize]) -> bool {
        let ranks = || places.iter().filter_map(|place| self.ranks.get(*place));
        let before = ranks().filter_map(|rank| rank.before.map(|(_, look)| look));
        self.digest.is_some_and(|digest| have_seen(digest, ranks().map(|rank| rank.look), before))
    }

    /// Whether each rank was seen in two rounds.
    pub(super) fn has_two_rounds(&self) -> bool {
        !self.ranks.is_empty() && self.ranks.iter().all(|rank| rank.before.is_some())
    }
}

fn looks(count: usize) -> String {
    if count == 1 { "1 look at a rank".to_owned() } else { format!("{count} looks at ranks") }
}

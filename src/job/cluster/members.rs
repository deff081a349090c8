//! The processes of one cluster, each as its last sample showed it, with the same process in the round before.
//!
//! In: a [`Digest`]. Out: [`Members`], which borrow from it. If there are several clusters, the one with the most
//! processes counts, and the others are reported as left out.

use std::collections::{BTreeMap, BTreeSet};

use super::super::digest::{Digest, Look, Member};
use super::super::gather::{has_seen, have_seen, process};
use super::super::launched::Launched;
use super::super::witness::TaskAccount;
use super::ray_tasks;
use crate::launcher::JobEngine;
use crate::limits::job::MOST_RANKS_TOLD;
use crate::report::{ClusterLease, ClusterMember, ClusterPart, ClusterRequest, Gap, Job, RunningTask};

/// The processes of a cluster.
#[derive(Debug, Default)]
pub(super) struct Members<'d> {
    /// The address of its scheduler.
    pub(super) scheduler: String,
    /// All samples.
    digest: Option<&'d Digest>,
    /// Workers first, in order of their names.
    pub(super) list: Vec<OfCluster<'d>>,
    pub(super) gaps: Vec<Gap>,
    /// The witnesses' accounts of tasks, by their ids.
    pub(super) tasks: BTreeMap<&'d str, &'d TaskAccount>,
    /// The places of actors, by their ids.
    pub(super) actors: BTreeMap<&'d str, usize>,
    /// The leases that the scheduler knows, by the names of locks.
    granted: BTreeMap<&'d str, BTreeSet<&'d str>>,
}

/// One process.
#[derive(Debug)]
pub(super) struct OfCluster<'d> {
    /// "worker 0 at tcp://10.0.0.2:4321", "the client".
    pub(super) called: String,
    /// `0`, an address.
    pub(super) short: String,
    pub(super) now: &'d Member,
    pub(super) cluster: &'d ClusterMember,
    pub(super) look: &'d Look,
    pub(super) before: Option<(&'d ClusterMember, &'d Look)>,
    /// Ids of the tasks that its threads run, by the word of witnesses.
    pub(super) ids: BTreeMap<i32, &'d str>,
}

/// Whether what a sample shows was there in the round before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lasted {
    /// It was not, or another one.
    No,
    /// There was one round only.
    Unknown,
    /// It was.
    Yes,
}

impl<'d> Members<'d> {
    /// The cluster with the most processes in `digest`.
    pub(super) fn of(digest: &'d Digest) -> Members<'d> {
        type Seen<'d> = (&'d Look, &'d Member, &'d ClusterMember);
        let mut clusters: BTreeMap<&str, Vec<Seen<'d>>> = BTreeMap::new();
        for look in digest.looks() {
            for member in &look.members {
                let Some(cluster) = &member.cluster else { continue };
                clusters
                    .entry(cluster.scheduler.as_deref().unwrap_or_default())
                    .or_default()
                    .push((look, member, cluster));
            }
        }
        let mut members = Members { digest: Some(digest), tasks: ray_tasks::tasks(digest), ..Members::default() };
        // The first of those with the most, so that equal input gives the same.
        let Some(most) = clusters.values().map(Vec::len).max() else { return members };
        let Some((scheduler, all)) = clusters.iter().find(|(_, all)| all.len() == most) else { return members };
        members.scheduler = (*scheduler).to_owned();
        for (other, seen) in clusters.iter().filter(|(other, _)| *other != scheduler) {
            let why = "the looks are of several clusters, and this one has fewer: merge its files alone";
            members.gaps.push(Gap::new(format!("{} looks at processes of the cluster {other}", seen.len()), why));
        }
        let mut processes: BTreeMap<_, Vec<Seen<'d>>> = BTreeMap::new();
        for seen in all {
            processes.entry(process(seen.0, seen.1)).or_default().push(*seen);
        }
        members.ask_who_started_it(digest, all.iter().map(|(look, member, _)| (*look, *member)).collect());
        let running = ray_tasks::by_worker(&members.tasks);
        for mut seen in processes.into_values() {
            seen.sort_by_key(|(look, ..)| (look.round, &look.ended, &look.id));
            let Some((look, now, cluster)) = seen.last().copied() else { continue };
            let before =
                seen.iter().rev().find(|(earlier, ..)| earlier.round < look.round && has_seen(digest, look, earlier));
            let (called, short) = if ray_tasks::is_of_it(cluster) { ray_tasks::names(cluster) } else { names(cluster) };
            members.list.push(OfCluster {
                called,
                short,
                now,
                cluster,
                look,
                before: before.map(|(look, _, cluster)| (*cluster, *look)),
                ids: ray_tasks::ids(cluster, &running),
            });
        }
        members.list.sort_by_key(|one| (order(one.cluster), one.short.clone(), one.now.pid));
        for (place, one) in members.list.iter().enumerate() {
            let ids = one.cluster.roles.iter().filter_map(|role| role.actor.as_deref());
            members.actors.extend(ids.map(|actor| (actor, place)));
            for granted in &one.cluster.granted {
                let leases = granted.leases.iter().map(String::as_str);
                members.granted.entry(&granted.name).or_insert_with(|| leases.collect());
            }
        }
        for look in digest.looks() {
            members.gaps.extend(look.gaps.iter().cloned());
        }
        members.gaps.extend(digest.witnesses().filter(|one| !one.tasks.is_empty()).flat_map(|one| one.gaps.clone()));
        let mut seen = BTreeSet::new();
        members.gaps.retain(|gap| seen.insert((gap.what.clone(), gap.why.clone())));
        members
    }

    /// Accounts of nodes and pods without a sample, from the systems that started the cluster. A worker there may be
    /// the one that others wait for.
    fn ask_who_started_it(&mut self, digest: &Digest, all: Vec<(&'d Look, &'d Member)>) {
        let engine = all.first().and_then(|(_, member)| member.cluster.as_ref()).map(|cluster| cluster.engine);
        let cluster = Job { engine: engine.unwrap_or_default(), id: None, step: None };
        let launched = Launched::of(digest, &all, &cluster);
        let unseen = launched.unseen.into_iter().take(MOST_RANKS_TOLD);
        self.gaps.extend(unseen.map(|place| {
            let why = format!("there is no look from {place}: they may hold up what the others wait for");
            Gap::new("further processes of the cluster", why)
        }));
        self.gaps.extend(launched.gaps);
        let of_ranks: BTreeSet<&str> =
            digest.witnesses().filter(|one| !one.accounts.is_empty()).map(|one| one.source.as_str()).collect();
        self.gaps.extend(of_ranks.into_iter().map(|source| {
            Gap::new(source, "it tells of ranks, and the looks are at a cluster, which has none: it is left out")
        }));
    }

    /// Whether the last samples of these processes, by their places, began when the earlier samples of all of them
    /// had ended.
    pub(super) fn have_seen_each_other(&self, places: &BTreeSet<usize>) -> bool {
        let members = || places.iter().filter_map(|place| self.list.get(*place));
        let before = members().filter_map(|one| one.before.map(|(_, look)| look));
        self.digest.is_some_and(|digest| have_seen(digest, members().map(|one| one.look), before))
    }

    /// Dask or Ray.
    pub(super) fn engine(&self) -> JobEngine {
        self.list.first().map_or(JobEngine::Dask, |one| one.cluster.engine)
    }

    /// Whether each process was seen in two rounds.
    pub(super) fn has_two_rounds(&self) -> bool {
        !self.list.is_empty() && self.list.iter().all(|one| one.before.is_some())
    }

    /// Whether there is a sample of the scheduler, and it no longer knows this lease of the lock.
    pub(super) fn has_run_out(&self, name: &str, lease: &str) -> bool {
        self.granted.get(name).is_some_and(|known| !known.contains(lease))
    }

    /// The task that a thread runs.
    pub(super) fn task_of(&self, place: usize, tid: i32) -> Option<&RunningTask> {
        self.list.get(place)?.cluster.running.iter().find(|running| running.tid == tid)
    }
}

impl OfCluster<'_> {
    /// Whether a request was there before.
    pub(super) fn request_lasted(&self, request: &ClusterRequest) -> Lasted {
        self.lasted(|before| {
            let same = |earlier: &&ClusterRequest| earlier.tid == request.tid && earlier.request == request.request;
            before.requests.iter().find(same).is_some()
        })
    }

    /// Whether a lease was there before, with the same thread.
    pub(super) fn lease_lasted(&self, lease: &ClusterLease) -> Lasted {
        self.lasted(|before| {
            before.leases.iter().any(|earlier| earlier.leases == lease.leases && earlier.tid == lease.tid)
        })
    }

    /// Whether a thread ran the same task before.
    pub(super) fn task_lasted(&self, running: &RunningTask) -> Lasted {
        self.lasted(|before| {
            before.running.iter().any(|earlier| earlier.tid == running.tid && earlier.task == running.task)
        })
    }

    /// Whether a task already waited for a thread before.
    pub(super) fn readiness_lasted(&self, task: &str) -> Lasted {
        self.lasted(|before| before.ready.iter().any(|earlier| earlier == task))
    }

    fn lasted(&self, was: impl Fn(&ClusterMember) -> bool) -> Lasted {
        match self.before {
            None => Lasted::Unknown,
            Some((before, _)) if was(before) => Lasted::Yes,
            Some(_) => Lasted::No,
        }
    }

    /// Whether it runs tasks.
    pub(super) fn is_worker(&self) -> bool {
        self.cluster.roles.iter().any(|role| role.role == ClusterPart::Worker)
    }
}

/// Workers come first.
fn order(cluster: &ClusterMember) -> usize {
    const ORDER: [ClusterPart; 3] = [ClusterPart::Worker, ClusterPart::Client, ClusterPart::Scheduler];
    let has = |role: &ClusterPart| cluster.roles.iter().any(|one| one.role == *role);
    ORDER.iter().position(has).unwrap_or(ORDER.len())
}

/// The full and the short name of a process.
fn names(cluster: &ClusterMember) -> (String, String) {
    let workers: Vec<_> = cluster.roles.iter().filter(|role| role.role == ClusterPart::Worker).collect();
    if let [worker, ..] = workers.as_slice() {
        let address = worker.address.clone().unwrap_or_default();
        let own = worker.name.clone().filter(|name| *name != address);
        let more =
            if workers.len() > 1 { format!(" and {} more in one process", workers.len() - 1) } else { String::new() };
        let called = match &own {
            Some(name) => format!("worker {name} at {address}{more}"),
            None => format!("worker {address}{more}"),
        };
        return (called, own.unwrap_or(address));
    }
    let is_there = |part: &ClusterPart| cluster.roles.iter().any(|one| one.role == *part);
    let part = [ClusterPart::Client, ClusterPart::Scheduler, ClusterPart::Nanny].into_iter().find(is_there);
    let part = part.unwrap_or_default();
    let called = if part == ClusterPart::Nanny { "a nanny".to_owned() } else { format!("the {}", part.name()) };
    (called, part.name().to_owned())
}

//! Accounts of a job by the systems that started it: how many ranks it has, and the fates of its nodes and pods.
//!
//! In: the witnesses of a [`Digest`], and the samples of one job. Out: [`Launched`]: why a rank may have no sample.
//! Slurm does not say which ranks a node has, so a node's account covers all ranks without a sample together. A pod
//! that stands for one rank covers that one. The accounts are of one moment: no rank waits because of them, and no wait
//! counts as unchanged because of them.

use std::collections::{BTreeMap, BTreeSet};

use super::digest::{Digest, Look, Member};
use super::witness::{JobAccount, PlaceAccount, PlaceKind, Witness};
use crate::launcher::JobEngine;
use crate::limits::job::{LARGEST_JOB, LARGEST_RANK, MOST_RANKS_TOLD, MOST_SAID};
use crate::report::{Gap, Job};

/// The facts about a job from the systems that started it.
#[derive(Debug, Default)]
pub(super) struct Launched {
    /// How many ranks it has.
    pub(super) size: Option<u32>,
    /// Fates of pods that stand for one rank.
    pub(super) of_rank: BTreeMap<u32, Fate>,
    /// Nodes and pods of the job without a sample, and why.
    pub(super) unseen: Vec<String>,
    /// Further facts for the reader.
    pub(super) gaps: Vec<Gap>,
}

/// The fate of a rank's pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fate {
    /// `pod train-3-x7k2p`.
    pub(super) place: String,
    /// "is pending: Unschedulable", by whose word.
    pub(super) what: Option<String>,
    /// Its processes have ended, and none is to come.
    pub(super) is_over: bool,
}

type Seen<'d> = (&'d Look, &'d Member);

impl Launched {
    /// The witnesses' accounts in `digest` of the job with these samples.
    pub(super) fn of(digest: &Digest, all: &[Seen<'_>], job: &Job) -> Launched {
        let mut found = Launched::default();
        let hosts = Hosts::of(all);
        for witness in digest.witnesses() {
            if witness.places.iter().any(|place| place.kind == PlaceKind::Pod) {
                found.take_pods(witness, all, job, &hosts);
            }
        }
        found.take_nodes(digest, job, &hosts);
        found
    }

    /// Slurm's jobs, steps and nodes, which may stand in several files.
    fn take_nodes(&mut self, digest: &Digest, job: &Job, hosts: &Hosts) {
        let of_slurm = |account: &&JobAccount| account.engine == JobEngine::Slurm;
        let accounts: BTreeMap<(&str, Option<&str>), (&JobAccount, &str)> = digest
            .witnesses()
            .flat_map(|witness| witness.jobs.iter().filter(of_slurm).map(|one| (one, witness.source.as_str())))
            .map(|(one, source)| ((one.id.as_str(), one.step.as_deref()), (one, source)))
            .collect();
        let Some((_, (_, source))) = accounts.first_key_value() else { return };
        let nodes: BTreeMap<&str, &PlaceAccount> = digest
            .witnesses()
            .flat_map(|witness| &witness.places)
            .filter(|place| place.kind == PlaceKind::Node)
            .map(|place| (place.name.as_str(), place))
            .collect();
        let is_seen = |node: &str| match nodes.get(node) {
            Some(place) => place.hosts.iter().any(|host| hosts.has(host)),
            None => hosts.has(node),
        };
        // Ranks of mpirun or torchrun do not know Slurm's number: theirs is the job that has their nodes.
        let own = |id: &str, step: Option<&str>| {
            job.id.as_deref() == Some(id) && (step.is_none() || step == job.step.as_deref())
        };
        let is_slurms = job.engine == JobEngine::Slurm;
        let have_nodes: BTreeSet<&str> = accounts
            .values()
            .filter(|(one, _)| one.nodes.iter().any(|node| is_seen(node)))
            .map(|(one, _)| one.id.as_str())
            .collect();
        let is_it = |one: &JobAccount| match is_slurms {
            true => own(&one.id, one.step.as_deref()),
            false => have_nodes.len() == 1 && have_nodes.contains(one.id.as_str()),
        };
        let accounts: Vec<&JobAccount> = accounts.values().map(|(one, _)| *one).filter(|one| is_it(one)).collect();
        if accounts.is_empty() {
            let why = "it tells of other jobs than that of these looks, or does not say of which";
            self.gaps.push(Gap::new((*source).to_owned(), why));
            return;
        }
        if is_slurms {
            let ranks = accounts.iter().filter(|one| one.step.is_some()).filter_map(|one| one.ranks).max();
            self.size = self.size.max(ranks.filter(|ranks| *ranks <= LARGEST_JOB));
        }
        for one in &accounts {
            if let Some(fate) = &one.fate {
                let step = one.step.as_ref().map(|step| format!(".{step}")).unwrap_or_default();
                self.gaps.push(Gap::new(format!("job {}{step}", one.id), format!("it {fate}, by {source}")));
            }
        }
        // The job loses a node that fails; its steps name it still.
        let kept: BTreeSet<&str> =
            accounts.iter().filter(|one| one.step.is_none()).flat_map(|one| &one.nodes).map(String::as_str).collect();
        let all: BTreeSet<&str> = accounts.iter().flat_map(|one| &one.nodes).map(String::as_str).collect();
        let mut unseen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for node in all.into_iter().filter(|node| hosts.are_known && !is_seen(node)) {
            let is_lost = !kept.is_empty() && !kept.contains(node);
            let fate = match nodes.get(node).and_then(|place| place.fate.clone()) {
                Some(fate) => format!("which {fate}"),
                None if is_lost => "which the job has lost".to_owned(),
                None => "of which there is no look".to_owned(),
            };
            unseen.entry(fate).or_default().push(node);
        }
        self.unseen
            .extend(unseen.iter().map(|(fate, nodes)| format!("{}, {fate}, by {source}", listed("node", nodes))));
    }

    /// One list of pods.
    fn take_pods(&mut self, witness: &Witness, all: &[Seen<'_>], job: &Job, hosts: &Hosts) {
        let mut owners: BTreeMap<Option<&str>, Vec<&PlaceAccount>> = BTreeMap::new();
        for pod in &witness.places {
            owners.entry(pod.job.as_deref()).or_default().push(pod);
        }
        let source = &witness.source;
        let seen =
            |pods: &[&PlaceAccount]| pods.iter().filter(|pod| pod.hosts.iter().any(|host| hosts.has(host))).count();
        let most = owners.values().map(|pods| seen(pods)).max().unwrap_or(0);
        // Samples without names of hosts fit to a list of one job alone.
        let fits = |pods: &[&PlaceAccount]| if most > 0 { seen(pods) == most } else { !hosts.are_known };
        let fitting: Vec<(&Option<&str>, &Vec<&PlaceAccount>)> = owners.iter().filter(|(_, pods)| fits(pods)).collect();
        let [(owner, pods)] = fitting.as_slice() else {
            let why = "none of its pods, or those of several jobs, have the names of the hosts of these looks";
            self.gaps.push(Gap::new(source.clone(), why));
            return;
        };
        for account in witness.jobs.iter().filter(|one| Some(one.id.as_str()) == **owner) {
            if let Some(fate) = &account.fate {
                self.gaps.push(Gap::new(format!("job {}", account.id), format!("it {fate}, by {source}")));
            }
        }
        let mut of_rank: BTreeMap<u32, &PlaceAccount> = BTreeMap::new();
        if stand_for_ranks(pods, all, job) {
            for (rank, pod) in pods.iter().filter_map(|pod| Some((pod.rank.filter(|rank| *rank <= LARGEST_RANK)?, pod)))
            {
                let last = of_rank.entry(rank).or_insert(pod);
                if (last.is_over, &pod.began) >= (pod.is_over, &last.began) {
                    *last = pod;
                }
            }
            let said = witness.jobs.iter().filter(|one| Some(one.id.as_str()) == **owner).filter_map(|one| one.ranks);
            let said = said.chain(pods.iter().filter_map(|pod| pod.size)).max();
            let counted = of_rank.last_key_value().map(|(last, _)| last + 1);
            self.size = self.size.max(said.or(counted).filter(|size| *size <= LARGEST_JOB));
        }
        let fate = |pod: &PlaceAccount| Fate {
            place: format!("{} {}", pod.kind.noun(), pod.name),
            what: pod.fate.as_ref().map(|fate| format!("{fate}, by {source}")),
            is_over: pod.is_over,
        };
        self.of_rank.extend(of_rank.iter().map(|(rank, pod)| (*rank, fate(pod))));
        let mut unseen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let without = |pod: &&&PlaceAccount| {
            of_rank.is_empty() && hosts.are_known && !pod.hosts.iter().any(|host| hosts.has(host))
        };
        for pod in pods.iter().filter(without) {
            let fate = pod.fate.as_ref().map_or("of which there is no look".to_owned(), |fate| format!("which {fate}"));
            unseen.entry(fate).or_default().push(&pod.name);
        }
        self.unseen.extend(unseen.iter().map(|(fate, pods)| format!("{}, {fate}, by {source}", listed("pod", pods))));
        // A container that was started again may have lost what the others wait for.
        let has_fate = |pod: &&&PlaceAccount| {
            of_rank.is_empty() && pod.fate.is_some() && pod.hosts.iter().any(|host| hosts.has(host))
        };
        for pod in pods.iter().filter(has_fate).take(MOST_RANKS_TOLD) {
            let fate = pod.fate.as_deref().unwrap_or_default();
            self.gaps.push(Gap::new(format!("pod {}", pod.name), format!("it {fate}, by {source}")));
        }
    }
}

/// Whether the numbers of pods are those of ranks: that of a pod with several ranks, as under torchrun, is a node's.
fn stand_for_ranks(pods: &[&PlaceAccount], all: &[Seen<'_>], job: &Job) -> bool {
    let of_host: BTreeMap<String, Option<u32>> =
        pods.iter().flat_map(|pod| pod.hosts.iter().map(|host| (short(host), pod.rank))).collect();
    let mut fitting = 0;
    for (look, member) in all {
        let pod = look.host.name.as_deref().and_then(|name| of_host.get(&short(name)));
        match pod {
            Some(rank) if *rank == member.identity.rank => fitting += 1,
            Some(_) => return false,
            None => {}
        }
    }
    fitting > 0 || job.engine == JobEngine::Kubernetes
}

/// Names of the hosts of samples.
struct Hosts {
    names: BTreeSet<String>,
    /// Each sample has one.
    are_known: bool,
}

impl Hosts {
    fn of(all: &[Seen<'_>]) -> Hosts {
        let names = all.iter().filter_map(|(look, _)| look.host.name.as_deref()).map(short).collect();
        Hosts { names, are_known: all.iter().all(|(look, _)| look.host.name.is_some()) }
    }

    fn has(&self, host: &str) -> bool {
        self.names.contains(&short(host))
    }
}

/// A host's name without its domain, which one has and another leaves out.
fn short(host: &str) -> String {
    host.split('.').next().unwrap_or(host).to_ascii_lowercase()
}

/// "node n2", "nodes n2, n5 and 3 more".
fn listed(kind: &str, names: &[&str]) -> String {
    let mut text = names.iter().take(MOST_SAID).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_SAID {
        text += &format!(" and {} more", names.len() - MOST_SAID);
    }
    format!("{kind}{} {text}", if names.len() == 1 { "" } else { "s" })
}

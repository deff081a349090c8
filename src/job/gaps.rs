//! The facts that samples of a job lack: ranks without a sample and why, data that was seen once, unproven cycles.
//!
//! In: a [`Teller`]. Out: its gaps. Nothing is judged here.

use std::collections::{BTreeMap, BTreeSet};

use super::gather::Rank;
use super::judge::{Cause, Doubt};
use super::rank_report::Teller;
use super::ranks::{named, ranges};
use crate::limits::job::{MOST_RANKS_TOLD, MOST_SAID};
use crate::report::{Gap, Verdict};

impl Teller<'_> {
    /// The fates of these ranks' pods, with the ranks: "pod train-3-x7k2p has failed: Evicted, by Kubernetes' list of
    /// pods".
    pub(super) fn fates(&self, ranks: &[u32]) -> BTreeMap<String, Vec<u32>> {
        let mut alike: BTreeMap<&str, Vec<(u32, &str)>> = BTreeMap::new();
        for rank in ranks {
            if let Some(fate) = self.job.launched.of_rank.get(rank) {
                let what = fate.what.as_deref().unwrap_or("runs");
                alike.entry(what).or_default().push((*rank, &fate.place));
            }
        }
        let told = alike.into_iter().map(|(what, pods)| {
            let first = pods.first().map_or("", |(_, place)| place);
            let more = if pods.len() > 1 { format!(" and {} more", pods.len() - 1) } else { String::new() };
            (format!("{first}{more} {what}"), pods.into_iter().map(|(rank, _)| rank).collect())
        });
        told.collect()
    }

    pub(super) fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let silent: Vec<u32> = self.job.missing.iter().copied().filter(|rank| !self.job.ended.contains(rank)).collect();
        let of = self.job.size.map(|size| format!(" of {size}")).unwrap_or_default();
        let fates = self.fates(&silent);
        let told: BTreeSet<u32> = fates.values().flatten().copied().collect();
        for (fate, ranks) in fates.into_iter().take(MOST_RANKS_TOLD) {
            let them = if ranks.len() == 1 { "it" } else { "them" };
            gaps.push(Gap::new(format!("{}{of}", named(&ranks)), format!("no file has a look at {them}: {fate}")));
        }
        for (rank, why) in self.job.left_out.iter().take(MOST_RANKS_TOLD) {
            let what =
                if silent.contains(rank) { "there is no look at it" } else { "it was not looked at in both rounds" };
            gaps.push(Gap::new(format!("rank {rank}{of}"), format!("{what}: {why}")));
        }
        let is_reportable = |rank: &u32| told.contains(rank) || self.job.left_out.contains_key(rank);
        let silent: Vec<u32> = silent.into_iter().filter(|rank| !is_reportable(rank)).collect();
        let unseen = self.job.launched.unseen.iter().take(MOST_SAID).map(|place| format!("; no look is from {place}"));
        if !silent.is_empty() {
            let why = match silent.len() {
                1 => "no file has a look at it: it may hold up what the others wait for",
                _ => "no file has a look at them: they may hold up what the others wait for",
            };
            gaps.push(Gap::new(format!("{}{of}", named(&silent)), format!("{why}{}", unseen.collect::<String>())));
        } else if self.job.size.is_none() && !self.job.launched.unseen.is_empty() {
            let places: Vec<&str> = self.job.launched.unseen.iter().take(MOST_SAID).map(String::as_str).collect();
            gaps.push(Gap::new("ranks of which there is no look", places.join("; ")));
        }
        let there = |rank: &u32| self.job.ranks.binary_search_by_key(rank, |one| one.number).is_ok();
        let before = self.job.launched.of_rank.iter().filter(|(rank, fate)| fate.what.is_some() && there(rank));
        for (rank, fate) in before.take(MOST_RANKS_TOLD) {
            let what = fate.what.as_deref().unwrap_or_default();
            gaps.push(Gap::new(format!("rank {rank}"), format!("{} {what}", fate.place)));
        }
        if !self.job.ranks.is_empty() && !self.job.has_two_rounds() {
            let once = self.job.ranks.iter().filter(|rank| rank.before.is_none()).map(|rank| rank.number);
            let why = "they were seen in one round: what waits for each other then may have gone on since; look with `--round 2` as well";
            gaps.push(Gap::new(format!("whether ranks {} stood still", ranges(once)), why));
        }
        if let Cause::Cycle(cycle) = &self.judgement.cause {
            for doubt in cycle.doubts.iter().filter(|_| self.judgement.verdict == Verdict::SuspectedDeadlock) {
                let why = match doubt {
                    Doubt::OneRound => "a member was seen in one round only",
                    Doubt::Alike => "nothing that could be read says that nothing moved between the rounds",
                    Doubt::Talk => {
                        "bytes went over a TCP connection between two of its members from one round to the next"
                    }
                    Doubt::NotSeen => {
                        "a look of the second round does not name that of the first of another member: it may have begun before that ended"
                    }
                    Doubt::Timed => "a wait in it ends by itself",
                    Doubt::OtherThreads => "a member has other threads of the program, which may do what is waited for",
                    Doubt::FreeThread => "another thread of a member may still act",
                    Doubt::NotExact => "a link of it is inferred",
                };
                gaps.push(Gap::new("a proof of the cycle between ranks", why));
            }
        }
        let nameless = |rank: &&Rank<'_>| {
            let waits = rank.now.waits.iter().filter(|wait| wait.holds_up_main);
            waits
                .filter_map(|wait| wait.collective.as_ref())
                .any(|one| one.peers.is_empty() && !one.synchronises && !one.any && one.witness.is_none())
        };
        let nameless: Vec<u32> = self.job.ranks.iter().filter(nameless).map(|rank| rank.number).collect();
        if !nameless.is_empty() && self.judgement.verdict.exit_code() == 0 {
            let why = "its library's requests could not be read (of MPI: those of Open MPI with the pml ob1 can, and of MPICH the arguments of most calls and receives that have begun): a cycle through it is not found";
            let verb = if nameless.len() == 1 { "waits" } else { "wait" };
            gaps.push(Gap::new(format!("for whom {} {verb}", named(&nameless)), why));
        }
        if self.judgement.links.are_cut {
            gaps.push(Gap::new("further operations between ranks", "there are more than are compared"));
        }
        gaps.extend(self.job.gaps.iter().take(MOST_RANKS_TOLD).cloned());
        gaps
    }
}

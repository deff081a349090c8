//! The report of a job.
//!
//! In: a [`Digest`]. Out: a [`Report`] of source `merged`, with the ranks that matter as its processes, and all of them in groups.
//! It decides nothing: the judgement says what is wrong.

use std::collections::BTreeMap;

use super::digest::Digest;
use super::gather::{Gathered, Rank, key_of};
use super::judge::{Cause, Cycle, Doubt, Judgement, judge};
use super::links::{Link, To};
use super::phrases::{capital, doing, doing_as_group, helped_by, place_phrase, waited_for};
use super::ranks::{named, ranges};
use super::standing::went_on;
use super::testimony::applied;
use super::thread_summary::thread;
use crate::limits::job::{MOST_RANKS_TOLD, MOST_SAID};
use crate::report::{
    self, CallSite, Capture, Certainty, Edge, Finding, Hold, JobRanks, Needs, Process, Proof, RankGroup, Report,
    Resource, Severity, SourceKind, ThreadReference, Verdict, Wait,
};
use crate::waits::kinds;

/// The report over all samples of `digest`.
pub(crate) fn report(digest: &Digest) -> Report {
    let digest = &*applied(digest);
    if let Some(report) = super::cluster::report(digest) {
        return report;
    }
    let job = Gathered::of(digest);
    let judgement = judge(&job);
    let teller = Teller { job: &job, judgement: &judgement, entered: entered(&job) };
    teller.report(digest)
}

/// One job, with everything that its report needs.
pub(super) struct Teller<'j> {
    pub(super) job: &'j Gathered<'j>,
    pub(super) judgement: &'j Judgement,
    /// The highest number of an operation with a rank inside, for each group.
    entered: BTreeMap<String, u64>,
}

/// For each group, the highest number of an operation in which a rank waits.
fn entered(job: &Gathered<'_>) -> BTreeMap<String, u64> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let waits = job.ranks.iter().flat_map(|rank| &rank.now.waits).filter_map(|wait| wait.collective.as_ref());
    for (group, seq) in waits.filter_map(|one| one.group.as_ref().zip(one.seq)) {
        match found.get_mut(group) {
            Some(most) => *most = seq.max(*most),
            None => drop(found.insert(group.clone(), seq)),
        }
    }
    found
}

impl Teller<'_> {
    fn report(&self, digest: &Digest) -> Report {
        let told = self.told();
        let summary = self.summary();
        let looks: Vec<_> = digest.looks().collect();
        let threads = self.job.ranks.iter().map(|rank| rank.now.count_of_threads());
        let threads = threads.fold(0_usize, usize::saturating_add);
        let mut report = Report {
            findings: self.finding(&summary, &told).into_iter().collect(),
            summary,
            processes: told.iter().map(|place| process(&self.job.ranks[*place])).collect(),
            gaps: self.gaps(),
            job: Some(self.ranks()),
            capture: Capture {
                threads,
                looks: u32::try_from(looks.len()).unwrap_or(u32::MAX),
                began: looks.iter().map(|look| &look.began).filter(|time| !time.is_empty()).min().cloned(),
                ended: looks.iter().map(|look| &look.ended).filter(|time| !time.is_empty()).max().cloned(),
                ..Capture::default()
            },
            ..Report::empty(SourceKind::Merged, self.judgement.verdict)
        };
        for place in &told {
            self.add_waits(*place, &told, &mut report);
        }
        if let Cause::Cycle(cycle) = &self.judgement.cause
            && self.judgement.verdict.exit_code() != 0
        {
            self.add_cycle(cycle, &mut report);
        }
        let victims = self.judgement.victims.iter().filter(|place| told.contains(place));
        report.victims = victims.map(|place| self.reference(*place)).collect();
        report
    }

    /// Places of the ranks that the report lists one by one: those of the cause, then those behind it.
    fn told(&self) -> Vec<usize> {
        let mut told: Vec<usize> = match &self.judgement.cause {
            Cause::Ranks(places) | Cause::Last(places, _) => places.clone(),
            Cause::Cycle(cycle) => cycle.steps.iter().map(|(place, _)| *place).collect(),
            _ => Vec::new(),
        };
        told.extend(
            self.judgement
                .victims
                .iter()
                .filter(|place| !told.contains(place))
                .take(MOST_RANKS_TOLD)
                .copied()
                .collect::<Vec<_>>(),
        );
        if told.is_empty() {
            told.extend(0..self.job.ranks.len());
        }
        told.truncate(MOST_RANKS_TOLD);
        told
    }

    fn reference(&self, place: usize) -> ThreadReference {
        let rank = &self.job.ranks[place];
        ThreadReference { process: id(rank), tid: rank.now.main.tid }
    }

    fn add_waits(&self, place: usize, told: &[usize], report: &mut Report) {
        let rank = &self.job.ranks[place];
        for (position, wait) in rank.now.waits.iter().enumerate() {
            let resource = format!("r{}", report.resources.len() + 1);
            let state = wait.collective.as_ref().and_then(|collective| serde_json::to_value(collective).ok());
            let kind = if wait.collective.is_some() { kinds::COLLECTIVE } else { kinds::SOCKET };
            report.resources.push(Resource {
                id: resource.clone(),
                kind: kind.name.into(),
                process: id(rank),
                address: None,
                label: wait.label.clone(),
                parts: report::Label::from(wait.label.clone()),
                state: match state {
                    Some(serde_json::Value::Object(fields)) => fields,
                    _ => serde_json::Map::new(),
                },
            });
            let links: Vec<&Link> = self.judgement.links.from(place).filter(|link| link.wait == position).collect();
            report.waits.push(Wait {
                process: id(rank),
                tid: Some(wait.tid),
                waiter_resource: None,
                resource: resource.clone(),
                mode: None,
                needs: if wait.collective.as_ref().is_some_and(|one| one.any) { Needs::Any } else { Needs::All },
                timed: wait.timed,
                retried: false,
                since_ms: wait.since_ms,
                frame: None,
                at: CallSite::default(),
                place: None,
                callback: None,
                certainty: wait.certainty,
                proof: Proof::of(wait.certainty),
                evidence: links.iter().map(|link| link.evidence.clone()).collect(),
                could_end: Vec::new(),
                by_holders_alone: false,
            });
            for link in links {
                for (holder, evidence) in self.holders(link) {
                    let there = told.iter().find(|place| self.job.ranks[**place].number == holder);
                    report.holds.push(Hold {
                        process: there.map_or_else(|| format!("rank{holder}"), |place| id(&self.job.ranks[*place])),
                        tid: there.map(|place| self.job.ranks[*place].now.main.tid),
                        holder_resource: None,
                        holder_rank: Some(holder),
                        gone: self.job.ended.contains(&holder).then_some(report::Gone::ProcessDead),
                        not_captured: false,
                        resource: resource.clone(),
                        mode: None,
                        frame: None,
                        taken: None,
                        since_ms: None,
                        source: None,
                        at: CallSite::default(),
                        certainty: link.certainty,
                        proof: Proof::of(link.certainty),
                        evidence: vec![evidence],
                    });
                }
            }
        }
    }

    /// Numbers of the ranks to which a link leads, a few at most.
    fn holders(&self, link: &Link) -> Vec<(u32, String)> {
        let number = |place: usize| self.job.ranks[place].number;
        match link.to {
            To::Rank(place) => vec![(number(place), link.evidence.clone())],
            To::Missing(rank) => vec![(rank, link.evidence.clone())],
            To::Absent(at) => {
                let Some(gathering) = self.judgement.links.gatherings.get(at) else { return Vec::new() };
                let absent = gathering.absent.iter().map(|place| number(*place));
                let missing = self.job.missing.iter().copied().filter(|_| gathering.is_of_all);
                let said = |rank: u32| (rank, format!("rank {rank} has not entered {}", gathering.name));
                absent.chain(missing).take(MOST_SAID).map(said).collect()
            }
        }
    }

    fn add_cycle(&self, cycle: &Cycle, report: &mut Report) {
        let mut edges = Vec::new();
        for (position, (place, link)) in cycle.steps.iter().enumerate() {
            let Some((next, _)) = cycle.steps.get((position + 1) % cycle.steps.len()) else { continue };
            let Some(link) = self.judgement.links.waits.get(*place).and_then(|links| links.get(*link)) else {
                continue;
            };
            let (rank, holder) = (&self.job.ranks[*place], &self.job.ranks[*next]);
            let Some(wait) = rank.now.waits.get(link.wait) else { continue };
            let resource = report.resources.iter().find(|one| one.process == id(rank) && one.label == wait.label);
            edges.push(Edge {
                process: id(rank),
                waiter: Some(wait.tid),
                waiter_resource: None,
                resource: resource.map(|one| one.id.clone()).unwrap_or_default(),
                holder_process: id(holder),
                holder: Some(holder.now.main.tid),
                holder_resource: None,
                proof: Proof::of(link.certainty),
            });
        }
        report.cycles.push(report::Cycle { certainty: cycle.certainty, edges });
    }

    fn finding(&self, summary: &str, told: &[usize]) -> Option<Finding> {
        let judgement = self.judgement;
        let (code, title, help) = match &judgement.cause {
            Cause::Ranks(places) => {
                let inside = places.first().and_then(|place| self.job.ranks[*place].now.finding.as_ref())?;
                (inside.code.clone(), inside.title.clone(), Vec::new())
            }
            Cause::Cycle(_) if judgement.verdict.exit_code() != 0 => (
                "rank-cycle".to_owned(),
                "ranks of a job wait for each other".to_owned(),
                vec!["let all ranks make the same calls of a group in the same order, and pair each receive with a send that comes before any receive of its sender".to_owned()],
            ),
            Cause::Ended(_) => (
                "missing-rank".to_owned(),
                "a rank has ended while the others wait for it".to_owned(),
                vec!["look at how that rank ended: its exit status, its output, and the kernel's log".to_owned()],
            ),
            Cause::Last(places, numbers) if !places.is_empty() || !numbers.is_empty() => (
                "missing-rank".to_owned(),
                "a rank does not take part while the others wait for it".to_owned(),
                Vec::new(),
            ),
            _ => return None,
        };
        let members: Vec<usize> = match &judgement.cause {
            Cause::Ranks(places) | Cause::Last(places, _) => places.clone(),
            Cause::Cycle(cycle) => cycle.steps.iter().map(|(place, _)| *place).collect(),
            _ => told.to_vec(),
        };
        let certainty = match &judgement.cause {
            Cause::Ranks(places) => {
                let inside = places.first().and_then(|place| self.job.ranks[*place].now.finding.as_ref());
                inside.map_or(Certainty::Inferred, |inside| inside.certainty)
            }
            Cause::Cycle(cycle) => cycle.certainty,
            _ => Certainty::Exact,
        };
        Some(Finding {
            code,
            severity: if judgement.verdict.exit_code() == 0 { Severity::Warning } else { Severity::Error },
            class: None,
            title,
            message: summary.to_owned(),
            certainty,
            proof: self.proof(certainty),
            threads: members.iter().take(MOST_RANKS_TOLD).map(|place| self.reference(*place)).collect(),
            resources: Vec::new(),
            ruled_out: Vec::new(),
            help,
            references: Vec::new(),
        })
    }

    /// The proof of the cause. That a rank does not take part is an absence.
    fn proof(&self, certainty: Certainty) -> Proof {
        match &self.judgement.cause {
            Cause::Ranks(_) | Cause::Cycle(_) | Cause::Ended(_) => Proof::of(certainty),
            _ => Proof::Absence,
        }
    }

    /// The first sentences: the cause, and the ranks that wait because of it.
    fn summary(&self) -> String {
        let judgement = self.judgement;
        let mut text = match &judgement.cause {
            Cause::Ranks(places) => {
                let Some(rank) = places.first().map(|place| &self.job.ranks[*place]) else { return String::new() };
                let inside = rank.now.finding.as_ref().map(|inside| inside.message.clone());
                let more = match places.len() {
                    1 => String::new(),
                    count => format!(" So {} more {}.", count - 1, if count == 2 { "rank is" } else { "ranks are" }),
                };
                // The rank that has enqueued nothing after that is the one that the others miss.
                let late = self.not_enqueued(rank).filter(|_| inside.is_some());
                let late = late.map(|said| format!(" Rank {} {said}.", rank.number)).unwrap_or_default();
                format!("{}: {}{late}{more}", self.in_full(rank), inside.unwrap_or_else(|| self.doing(rank)))
            }
            Cause::Cycle(cycle) => self.cycle(cycle),
            Cause::Ended(numbers) => {
                let (has, it) = if numbers.len() == 1 { ("has", "it") } else { ("have", "them") };
                let text = format!("{} {has} ended, and others wait for {it}.", capital(&named(numbers)));
                let fates = self.fates(numbers).into_keys().take(MOST_SAID);
                fates.fold(text, |text, fate| format!("{text} {}.", capital(&fate)))
            }
            Cause::Last(places, numbers) => self.last(places, numbers),
            Cause::AllIn(at) => {
                let name = judgement.links.gatherings.get(*at).map(|one| one.name.clone()).unwrap_or_default();
                return format!("All {} ranks are in {name}, and nobody is missing.", self.job.ranks.len());
            }
            Cause::Nothing => return self.nothing(),
        };
        if let Some(orders) = &judgement.orders {
            let part = |(name, ranks): &(String, Vec<u32>)| {
                format!("{} {} in {name}", named(ranks), if ranks.len() == 1 { "is" } else { "are" })
            };
            let parts: Vec<String> = orders.operations.iter().take(MOST_SAID).map(part).collect();
            let count = if orders.groups == 2 { "Two".to_owned() } else { orders.groups.to_string() };
            text = format!("{count} groups of ranks are used in different orders: {}. {text}", parts.join(", "));
        }
        if let Some(mismatch) = &judgement.mismatch {
            let group = mismatch.group.as_deref().map(|group| format!(" of {group}")).unwrap_or_default();
            let part = |(name, ranks): &(String, Vec<u32>)| {
                format!("{} {} in {name}", named(ranks), if ranks.len() == 1 { "is" } else { "are" })
            };
            let mut parts: Vec<String> = mismatch.operations.iter().take(MOST_SAID).map(part).collect();
            let others = if parts.len() > 1 { parts.remove(0) } else { String::new() };
            text = format!("{}, where {others}{group}. {text}", capital(&parts.join(", ")));
        }
        let behind = self.behind();
        if behind.is_empty() { text } else { format!("{text} {behind}") }
    }

    fn cycle(&self, cycle: &Cycle) -> String {
        let part = |(place, link): &(usize, usize)| {
            let rank = &self.job.ranks[*place];
            let link = self.judgement.links.waits.get(*place).and_then(|links| links.get(*link));
            let wait = link.and_then(|link| rank.now.waits.get(link.wait));
            let (label, at) = wait.map_or(("something".to_owned(), ""), |wait| (waited_for(wait), wait.place.as_str()));
            let held = wait.and_then(|wait| wait.held_by.as_ref());
            let (through, holder) = held.zip(link).map_or((String::new(), String::new()), |(held, link)| {
                let by: Vec<String> = self.holders(link).iter().map(|(rank, _)| format!("rank {rank}")).collect();
                let relation = if held.is_lock { "held by" } else { "whose only other end has" };
                (held.through.clone(), format!(", {relation} {}", by.join(", ")))
            });
            format!("{} waits for {through}{label}{}{holder}", self.in_full(rank), place_phrase(at))
        };
        let parts: Vec<String> = cycle.steps.iter().take(MOST_SAID).map(part).collect();
        let more = match cycle.steps.len().saturating_sub(MOST_SAID) {
            0 => String::new(),
            more => format!("; and so do {more} more"),
        };
        let text = format!("{}{more}.", capital(&parts.join("; ")));
        if self.judgement.verdict.exit_code() != 0 {
            return text;
        }
        let free = cycle.steps.iter().map(|(place, _)| &self.job.ranks[*place]);
        let free = free.filter_map(|rank| Some((rank.number, rank.now.free_thread.as_ref()?))).next();
        let of_free = |(rank, thread): (u32, &super::digest::Doing)| {
            format!("thread {} of rank {rank} may still act: it {}", thread.tid, super::phrases::of_thread(thread))
        };
        let free = free.map_or("another thread of theirs may still act".to_owned(), of_free);
        let why = match cycle.doubts.first() {
            _ if cycle.doubts.contains(&Doubt::FreeThread) => free.as_str(),
            Some(Doubt::Alike) => "nothing that could be read says whether these waits stood still between the looks",
            Some(Doubt::Talk) => "bytes went over a TCP connection between two of them from one round to the next",
            _ => "it was seen in one round, and a healthy job looks so at times: look again with a second round",
        };
        format!("Not confirmed, since {why}: {text}")
    }

    fn last(&self, places: &[usize], numbers: &[u32]) -> String {
        let said: Vec<String> = places
            .iter()
            .take(MOST_SAID)
            .map(|place| {
                let rank = &self.job.ranks[*place];
                format!("{}, which {}", self.in_full(rank), self.doing(rank))
            })
            .collect();
        let mut parts = said;
        if places.len() > MOST_SAID {
            parts.push(format!("{} more", places.len() - MOST_SAID));
        }
        if !numbers.is_empty() {
            parts.push(format!("{}, of which there is no report", named(numbers)));
        }
        let count = self.judgement.victims.len();
        let wait = if count == 1 { "1 rank waits".to_owned() } else { format!("{count} ranks wait") };
        format!("{wait} for {}.", parts.join("; "))
    }

    fn nothing(&self) -> String {
        let Some(first) = self.job.ranks.first() else {
            return "No look at a rank of a job is among these files.".to_owned();
        };
        let count = self.job.ranks.len();
        let ranks = if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") };
        let moved = self.job.ranks.iter().filter(|rank| went_on(rank)).count();
        let moved = match moved {
            0 => String::new(),
            all if all == count => ", which went on from one round to the next".to_owned(),
            some => format!(", of which {some} went on from one round to the next"),
        };
        format!(
            "{ranks}{moved}, and no wait that lasts for another rank is known; {} {}.",
            self.in_full(first),
            self.doing(first)
        )
    }

    /// "2 ranks wait because of this: ranks 0,2 in barrier at x.py:5."
    fn behind(&self) -> String {
        let victims = &self.judgement.victims;
        if victims.is_empty() {
            return String::new();
        }
        let mut groups: BTreeMap<(String, String), Vec<u32>> = BTreeMap::new();
        for place in victims {
            let rank = &self.job.ranks[*place];
            let wait = rank.now.waits.iter().find(|wait| wait.holds_up_main);
            let operation = wait.and_then(|wait| wait.collective.as_ref()).map(super::links::called);
            let own = wait.filter(|wait| wait.held_by.is_none());
            let at = own.map_or(rank.now.main.place.clone(), |wait| wait.place.clone());
            groups.entry((operation.unwrap_or_default(), at)).or_default().push(rank.number);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(name, ranks)| (std::cmp::Reverse(ranks.len()), name.clone()));
        let part = |((operation, at), ranks): &((String, String), Vec<u32>)| {
            let inside = if operation.is_empty() { String::new() } else { format!(" in {operation}") };
            format!("{}{inside}{}", named(ranks), place_phrase(at))
        };
        let mut parts: Vec<String> = groups.iter().take(MOST_SAID).map(part).collect();
        if groups.len() > MOST_SAID {
            parts.push(format!("and others at {} more places", groups.len() - MOST_SAID));
        }
        let because = match self.judgement.cause {
            Cause::Last(..) => format!("They wait: {}.", parts.join("; ")),
            _ if victims.len() == 1 => format!("1 more rank waits because of this: {}.", parts.join("; ")),
            _ => format!("{} more ranks wait because of this: {}.", victims.len(), parts.join("; ")),
        };
        because.replace("They wait: rank ", "It waits: rank ")
    }

    /// "rank 3 (node7, python 120)".
    fn in_full(&self, rank: &Rank<'_>) -> String {
        let host = rank.look.host.name.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
        match rank.now.pid {
            // Only a witness knows of it, without its process.
            0 => format!("rank {}", rank.number),
            pid => format!("rank {} ({host}{} {pid})", rank.number, rank.now.program),
        }
    }

    /// "waits for lock x at y.py:3", "is running at y.py:3".
    fn doing(&self, rank: &Rank<'_>) -> String {
        let own = doing(rank.now);
        let own = match self.not_enqueued(rank) {
            Some(said) if rank.now.witnessed.is_none() => format!("{own} and {said}"),
            _ => own,
        };
        match helped_by(rank.now) {
            Some(said) => format!("{own}, as it waits for {said}"),
            None => own,
        }
    }

    /// An operation that others are in, and a rank has never enqueued: "has enqueued nothing of default_pg after #3".
    fn not_enqueued(&self, rank: &Rank<'_>) -> Option<String> {
        let own = rank.now.enqueued.iter().filter(|one| one.over).find(|one| {
            let is_ahead = |(group, seq): &(&str, u64)| *group == one.group && *seq > one.last;
            self.entered.iter().any(|entered| is_ahead(&(entered.0.as_str(), *entered.1)))
        })?;
        Some(format!("has enqueued nothing of {} after #{}", own.group, own.last))
    }

    /// All ranks, grouped by their activity.
    fn ranks(&self) -> JobRanks {
        let mut groups: BTreeMap<(Verdict, String), Vec<u32>> = BTreeMap::new();
        for rank in &self.job.ranks {
            groups.entry((rank.now.verdict, doing_as_group(rank.now))).or_default().push(rank.number);
        }
        let mut groups: Vec<RankGroup> = groups
            .into_iter()
            .map(|((verdict, doing), ranks)| RankGroup {
                ranks: ranges(ranks.iter().copied()),
                count: ranks.len(),
                verdict,
                doing,
            })
            .collect();
        // The rare ones first: the cause is among them.
        groups.sort_by(|one, other| {
            let key =
                |group: &RankGroup| (std::cmp::Reverse(group.verdict.exit_code()), group.count, group.doing.clone());
            key(one).cmp(&key(other))
        });
        let first = self.job.ranks.first();
        JobRanks {
            job: first.and_then(|rank| key_of(&rank.now.identity)),
            engine: self.job.job.engine,
            member: None,
            size: self.job.size,
            reported: ranges(self.job.ranks.iter().map(|rank| rank.number)),
            missing: ranges(self.job.missing.iter().copied()),
            ended: ranges(self.job.ended.iter().copied()),
            two_rounds: self.job.has_two_rounds(),
            groups,
        }
    }
}

fn id(rank: &Rank<'_>) -> String {
    format!("rank{}", rank.number)
}

/// A rank as a process of the report, with its main thread.
fn process(rank: &Rank<'_>) -> Process {
    let member = rank.now;
    let mut identity = member.identity.clone();
    identity.host = Some(rank.look.host.clone());
    let mut tids: Vec<i32> = member.waits.iter().map(|wait| wait.tid).filter(|tid| *tid != member.main.tid).collect();
    tids.dedup();
    let other = |tid: i32| {
        let wait = member.waits.iter().find(|wait| wait.tid == tid);
        thread(tid, "", crate::report::ThreadState::Other, wait.map_or("", |wait| wait.place.as_str()))
    };
    let main = thread(member.main.tid, &member.main.name, member.main.state, &member.main.place);
    Process {
        id: id(rank),
        pid: member.pid,
        exe: Some(member.program.clone()),
        cmdline: Vec::new(),
        parent: None,
        python: None,
        cuda: None,
        cluster: None,
        identity: Some(identity),
        sockets: Vec::new(),
        gpus: Vec::new(),
        enqueued: member.enqueued.clone(),
        threads: std::iter::once(main).chain(tids.into_iter().map(other)).collect(),
    }
}

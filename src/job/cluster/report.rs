//! The report of a cluster.
//!
//! In: [`Members`] and a [`Judgement`]. Out: a [`Report`] of source `merged`, with the processes that matter, their requests and who has
//! what they ask for, and all processes in groups. It decides nothing.

use std::collections::BTreeMap;

use super::super::digest::Digest;
use super::super::thread_summary::thread;
use super::judge::{Cause, Doubt, Judgement};
use super::link::{By, Link, Thread};
use super::members::{Members, OfCluster};
use super::sentences::{Sentences, are_there, at_place, called, listed};
use crate::launcher::JobEngine;
use crate::limits::job::{MOST_RANKS_TOLD, MOST_SAID};
use crate::report::{
    self, CallSite, Capture, Certainty, ClusterPart, ClusterRequest, Edge, Finding, Gap, Hold, JobRanks, Needs,
    Process, Proof, RankGroup, Report, Resource, Severity, SourceKind, ThreadReference, ThreadState, Wait,
};
use crate::waits::kinds::{self, Kind};

/// The report over the cluster.
pub(super) fn report(digest: &Digest, members: &Members<'_>, judgement: &Judgement<'_>) -> Report {
    let teller = Teller { members, judgement };
    let looks: Vec<_> = digest.looks().collect();
    let threads = members.list.iter().map(|one| one.now.count_of_threads());
    let summary = Sentences { members, judgement }.summary();
    let told = teller.told();
    let mut report = Report {
        findings: teller.finding(&summary).into_iter().collect(),
        summary,
        processes: told.iter().map(|place| teller.process(*place)).collect(),
        victims: judgement
            .victims
            .iter()
            .filter(|(place, _)| told.contains(place))
            .map(|thread| reference(*thread))
            .collect(),
        gaps: teller.gaps(),
        job: Some(teller.everybody()),
        capture: Capture {
            threads: threads.fold(0_usize, usize::saturating_add),
            looks: u32::try_from(looks.len()).unwrap_or(u32::MAX),
            began: looks.iter().map(|look| &look.began).filter(|time| !time.is_empty()).min().cloned(),
            ended: looks.iter().map(|look| &look.ended).filter(|time| !time.is_empty()).max().cloned(),
            ..Capture::default()
        },
        ..Report::empty(SourceKind::Merged, judgement.verdict)
    };
    for place in &told {
        teller.add_waits(*place, &mut report);
    }
    teller.add_ring(&mut report);
    report
}

struct Teller<'j> {
    members: &'j Members<'j>,
    judgement: &'j Judgement<'j>,
}

fn id(place: usize) -> String {
    format!("p{place}")
}

fn reference(thread: Thread) -> ThreadReference {
    ThreadReference { process: id(thread.0), tid: thread.1 }
}

impl Teller<'_> {
    fn is_of_ray(&self) -> bool {
        self.members.engine() == JobEngine::Ray
    }

    fn one(&self, place: usize) -> &OfCluster<'_> {
        &self.members.list[place]
    }

    /// Places of the processes that the report lists one by one: those of the cause first.
    fn told(&self) -> Vec<usize> {
        let mut told: Vec<usize> = match &self.judgement.cause {
            Cause::Inside(places) | Cause::Full(places) => places.clone(),
            Cause::Ring(ring) => ring.iter().map(|((place, _), _)| *place).collect(),
            Cause::Last(chain) => chain.iter().map(|((place, _), _)| *place).collect(),
            Cause::HeldBack(_, (place, _), _) => vec![*place],
            Cause::Nothing => Vec::new(),
        };
        told.extend(self.judgement.victims.iter().map(|(place, _)| *place));
        told.extend((0..self.members.list.len()).filter(|_| told.is_empty()).collect::<Vec<_>>());
        let mut seen = std::collections::BTreeSet::new();
        told.retain(|place| seen.insert(*place));
        told.truncate(MOST_RANKS_TOLD);
        told
    }

    fn add_waits(&self, place: usize, report: &mut Report) {
        for request in &self.one(place).cluster.requests {
            let resource = format!("r{}", report.resources.len() + 1);
            report.resources.push(Resource {
                id: resource.clone(),
                kind: kind(self.members.engine(), request).name.into(),
                process: id(place),
                address: None,
                label: called(self.members, request),
                parts: report::Label::from(called(self.members, request)),
                state: serde_json::Map::new(),
            });
            let waits = self.judgement.stuck.waits.get(&(place, request.tid));
            report.waits.push(Wait {
                process: id(place),
                tid: Some(request.tid),
                waiter_resource: None,
                resource: resource.clone(),
                mode: None,
                needs: Needs::All,
                timed: request.timed,
                retried: false,
                since_ms: None,
                frame: None,
                at: CallSite::default(),
                place: None,
                callback: None,
                certainty: Certainty::Exact,
                proof: Proof::Recorded,
                evidence: vec![format!("it asks by {}", request.request)],
                could_end: Vec::new(),
                by_holders_alone: false,
            });
            for link in waits.map(|waits| waits.links.as_slice()).unwrap_or_default() {
                report.holds.push(Hold {
                    holder_resource: None,
                    process: id(link.to.0),
                    tid: Some(link.to.1),
                    holder_rank: None,
                    gone: None,
                    not_captured: false,
                    resource: resource.clone(),
                    mode: None,
                    frame: None,
                    taken: None,
                    since_ms: None,
                    source: None,
                    at: CallSite::default(),
                    certainty: certainty(link),
                    proof: proof(link),
                    evidence: vec![evidence(link)],
                });
            }
        }
    }

    fn add_ring(&self, report: &mut Report) {
        let Cause::Ring(ring) = &self.judgement.cause else { return };
        let edge = |(thread, link): &(Thread, Link)| {
            let wait = report.waits.iter().find(|wait| wait.process == id(thread.0) && wait.tid == Some(thread.1));
            Edge {
                process: id(thread.0),
                waiter: Some(thread.1),
                waiter_resource: None,
                resource: wait.map(|wait| wait.resource.clone()).unwrap_or_default(),
                holder_process: id(link.to.0),
                holder: Some(link.to.1),
                holder_resource: None,
                proof: proof(link),
            }
        };
        let certainty = ring.iter().map(|(_, link)| certainty(link)).min().unwrap_or(Certainty::Inferred);
        let edges = ring.iter().map(edge).collect();
        report.cycles.push(report::Cycle { certainty, edges });
    }

    fn finding(&self, summary: &str) -> Option<Finding> {
        let judgement = self.judgement;
        let text = |code: &str, title: &str, help: &str| (code.to_owned(), title.to_owned(), vec![help.to_owned()]);
        let ((code, title, help), threads): (_, Vec<Thread>) = match &judgement.cause {
            Cause::Inside(places) => {
                let inside = places.first().and_then(|place| self.one(*place).now.finding.as_ref())?;
                (
                    (inside.code.clone(), inside.title.clone(), Vec::new()),
                    judgement.stuck.inside.iter().copied().collect(),
                )
            }
            Cause::Ring(ring) => {
                let threads = ring.iter().map(|(thread, _)| *thread).collect();
                let is_of_locks = ring.iter().all(|(_, link)| matches!(link.by, By::Holds { .. }));
                let told = match is_of_locks {
                    _ if self.is_of_ray() => text(
                        "rank-cycle",
                        "actors wait for each other's tasks",
                        "let a method hand on the reference of what it needs, and not wait for it by `ray.get`; or give actors threads for \
                         calls back: `max_concurrency`",
                    ),
                    true => text(
                        "lock-order-cycle",
                        "locks of the cluster are taken in different orders",
                        "take the locks in one order in all tasks, or all of them at once by distributed.MultiLock",
                    ),
                    false => text(
                        "rank-cycle",
                        "tasks of the cluster wait for each other",
                        "hold no lock while waiting for the result of another task",
                    ),
                };
                (told, threads)
            }
            Cause::Full(places) => {
                let of = |place: &usize| {
                    self.one(*place).cluster.running.iter().map(|task| (*place, task.tid)).collect::<Vec<_>>()
                };
                let told = match self.is_of_ray() {
                    true => text(
                        "executor-self-wait",
                        "an actor has no thread left for the tasks that its own wait for",
                        "call a method of the actor's own directly, without `.remote()`; or raise its `max_concurrency` above what can wait",
                    ),
                    false => text(
                        "executor-self-wait",
                        "workers have no thread left for the tasks that theirs wait for",
                        "let a task that waits for others give its thread away: `with worker_client()`, or `secede()` before it waits",
                    ),
                };
                (told, places.iter().flat_map(of).collect())
            }
            Cause::Last(_) | Cause::HeldBack(..) | Cause::Nothing => return None,
        };
        let certainty = if judgement.doubts.is_empty() { Certainty::Inferred } else { Certainty::Candidate };
        Some(Finding {
            code,
            severity: if judgement.verdict.exit_code() == 0 { Severity::Warning } else { Severity::Error },
            class: None,
            title,
            message: summary.to_owned(),
            certainty,
            proof: Proof::of(certainty),
            threads: threads.into_iter().take(MOST_RANKS_TOLD).map(reference).collect(),
            resources: Vec::new(),
            ruled_out: Vec::new(),
            help,
            references: Vec::new(),
        })
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for doubt in &self.judgement.doubts {
            let why = match doubt {
                Doubt::OneRound => "a member was seen in one round only: look with `--round 2` as well",
                Doubt::NotSeen => {
                    "a look of the second round does not name that of the first of another member: it may have begun before that ended"
                }
                Doubt::NotEntered => "a lock in it was not taken by `with`: another thread may give it back",
                Doubt::MayBeMoved => "the scheduler may give a task that waits for a thread to another worker",
                Doubt::MayBeDone => {
                    "a result that is waited for may be there already, its bytes on their way: give `merge` what \
                     `ray list tasks --detail --format json` prints as well"
                }
                Doubt::MayHaveMore => {
                    "how many tasks an actor runs at a time is not known: names of functions of Ray's core are missing"
                }
                Doubt::OnlySaid => "which thread runs a task is said by Ray's list of tasks alone",
                Doubt::Unknown => {
                    "which task would set what is waited for is not known, nor what comes from outside of the cluster"
                }
            };
            gaps.push(Gap::new("a proof that these tasks wait for ever", why));
        }
        let has = |role: ClusterPart| {
            self.members.list.iter().any(|one| one.cluster.roles.iter().any(|own| own.role == role))
        };
        if !self.is_of_ray() && !has(ClusterPart::Scheduler) {
            let why = "there is no look at it: what tasks wait for whose results are not there yet is not known";
            gaps.push(Gap::new(format!("the scheduler {}", self.members.scheduler), why));
        }
        if !self.members.has_two_rounds() && self.judgement.verdict.exit_code() == 0 {
            let once = self.members.list.iter().filter(|one| one.before.is_none()).count();
            let why = "they were seen in one round: what waits for each other then may have gone on since; look with `--round 2` as well";
            gaps.push(Gap::new(format!("whether {} stood still", are_there(once, "process", "processes")), why));
        }
        gaps.extend(self.members.gaps.iter().take(MOST_RANKS_TOLD).cloned());
        gaps
    }

    /// All processes, grouped by their activity.
    fn everybody(&self) -> JobRanks {
        let mut groups: BTreeMap<(report::Verdict, String), Vec<String>> = BTreeMap::new();
        for one in &self.members.list {
            groups.entry((one.now.verdict, doing(self.members, one))).or_default().push(one.short.clone());
        }
        let mut groups: Vec<RankGroup> = groups
            .into_iter()
            .map(|((verdict, doing), names)| RankGroup { ranks: listed(&names), count: names.len(), verdict, doing })
            .collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.verdict.exit_code()), group.count, group.doing.clone()));
        let names: Vec<String> = self.members.list.iter().map(|one| one.short.clone()).collect();
        JobRanks {
            job: Some(format!("{} {}", self.members.engine().name(), self.members.scheduler).trim_end().to_owned()),
            engine: self.members.engine(),
            member: Some("process".to_owned()),
            size: None,
            reported: listed(&names),
            missing: String::new(),
            ended: String::new(),
            two_rounds: self.members.has_two_rounds(),
            groups,
        }
    }

    /// A process with the threads that wait for the cluster, and its main thread.
    fn process(&self, place: usize) -> Process {
        let one = self.one(place);
        let member = one.now;
        let mut identity = member.identity.clone();
        identity.host = Some(one.look.host.clone());
        let name = |tid: i32| self.members.task_of(place, tid).map(|task| task.task.clone()).unwrap_or_default();
        let main = thread(member.main.tid, &member.main.name, member.main.state, &member.main.place);
        let requests = one.cluster.requests.iter().filter(|request| request.tid != member.main.tid);
        let others =
            requests.map(|request| thread(request.tid, &name(request.tid), ThreadState::Sleeping, &request.place));
        let known: Vec<_> = std::iter::once(main).chain(others).collect();
        let running = one.cluster.running.iter().filter(|task| !known.iter().any(|thread| thread.tid == task.tid));
        let running: Vec<_> = running.map(|task| thread(task.tid, &task.task, ThreadState::Other, "")).collect();
        Process {
            id: id(place),
            pid: member.pid,
            exe: Some(member.program.clone()),
            cmdline: Vec::new(),
            parent: None,
            python: None,
            cuda: None,
            identity: Some(identity),
            enqueued: Vec::new(),
            cluster: Some(one.cluster.clone()),
            sockets: Vec::new(),
            gpus: Vec::new(),
            threads: known.into_iter().chain(running).collect(),
        }
    }
}

fn kind(engine: JobEngine, request: &ClusterRequest) -> &'static Kind {
    if engine == JobEngine::Ray {
        return kinds::RAY_TASK;
    }
    request.what.kind_of_dask()
}

fn proof(link: &Link) -> Proof {
    match link.by {
        By::Runs(_) => Proof::Recorded,
        By::Holds { is_entered: true } => Proof::Code,
        By::Holds { .. } | By::Occupies(_) | By::Nobody => Proof::Absence,
    }
}

fn certainty(link: &Link) -> Certainty {
    match link.by {
        By::Runs(_) => Certainty::Exact,
        By::Holds { is_entered: true } => Certainty::Inferred,
        By::Holds { .. } | By::Occupies(_) | By::Nobody => Certainty::Candidate,
    }
}

fn evidence(link: &Link) -> String {
    match &link.by {
        By::Holds { is_entered: true } => "it is inside the `with` block, and the object has the lease".to_owned(),
        By::Holds { .. } => "it alone has a reference to the object that has the lease".to_owned(),
        By::Runs(key) => format!("it runs the task `{key}`"),
        By::Occupies(key) => format!("it is one of the worker's threads, for one of which the task `{key}` waits"),
        By::Nobody => "it is one of all threads that run tasks".to_owned(),
    }
}

/// The activity of a process, without its own numbers, so that members of one group have equal texts.
fn doing(members: &Members<'_>, one: &OfCluster<'_>) -> String {
    let mut waits: BTreeMap<String, usize> = BTreeMap::new();
    for request in &one.cluster.requests {
        *waits.entry(format!("{}{}", called(members, request), at_place(&request.place))).or_default() += 1;
    }
    let mut parts: Vec<String> = waits
        .iter()
        .take(MOST_SAID)
        .map(|(what, count)| match count {
            1 => format!("waits for {what}"),
            count => format!("{count} threads wait for {what}"),
        })
        .collect();
    let asking = |tid: i32| one.cluster.requests.iter().any(|request| request.tid == tid);
    let busy = one.cluster.running.iter().filter(|task| !asking(task.tid));
    let busy: Vec<String> =
        busy.map(|task| format!("task `{}` {}", task.task, task.doing).trim_end().to_owned()).collect();
    if busy.len() > MOST_SAID {
        parts.push(format!("runs {} more tasks", busy.len() - MOST_SAID));
    }
    parts.splice(0..0, busy.into_iter().take(MOST_SAID));
    if !one.cluster.ready.is_empty() {
        parts.push(format!(
            "has no thread for {}",
            are_there(one.cluster.ready.len() + one.cluster.ready_beyond, "task", "tasks")
        ));
    }
    if parts.is_empty() {
        return if one.is_worker() { "runs no task".to_owned() } else { "waits for nothing of the cluster".to_owned() };
    }
    parts.join("; ")
}

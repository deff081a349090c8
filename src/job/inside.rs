//! The part of a chain of waits that lies inside a rank and its helper processes.
//!
//! In: the report of a sample, and one of its ranks. Out: the thing that its main thread needs in the end from the process
//! of a rank, another one's or its own: the lock, file lock or pipe there ([`HeldBy`]), and the threads and processes
//! that stand between. A wait that one of several holders can end leads nowhere, nor does one for a process that has
//! other threads, if that is no rank. Also: the first thread of the program that may act whatever its rank waits for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::digest::{Doing, HeldBy, RankWait};
use super::lines::{doing, is_helper, place, program};
use super::long_message::shortened;
use crate::limits::job::MOST_WAITS;
use crate::report::{Certainty, Hold, Needs, Process, Report, Resource, Thread, Wait};
use crate::waits::kinds::{self, Giver, Topic, World};
use crate::waits::label::Place;

/// A thread: the id of its process, and its own.
type Party<'r> = (&'r str, i32);

/// A report by its parties: what they wait for, and who holds what.
pub(super) struct Inside<'r> {
    report: &'r Report,
    processes: BTreeMap<&'r str, &'r Process>,
    waits: BTreeMap<Party<'r>, Vec<&'r Wait>>,
    /// By resource.
    pub(super) holds: BTreeMap<&'r str, Vec<&'r Hold>>,
    /// By id.
    pub(super) resources: BTreeMap<&'r str, &'r Resource>,
}

/// A party that is waited for, and how that is known.
#[derive(Debug, Clone)]
struct Step<'r> {
    party: Party<'r>,
    /// "mutex `m` at x.c:3 main, held by process prog 77, which waits for ".
    through: String,
    /// Another process stands between.
    has_left: bool,
    certainty: Certainty,
    timed: bool,
    since_ms: Option<u64>,
}

/// The holder of a resource.
enum Holder<'r> {
    Thread(Party<'r>),
    /// A process as a whole. Any of its threads may let go.
    Process(&'r Process),
    /// A process outside the report.
    Elsewhere(i32),
}

impl<'r> Inside<'r> {
    pub(super) fn of(report: &'r Report) -> Inside<'r> {
        let mut waits: BTreeMap<Party<'r>, Vec<&Wait>> = BTreeMap::new();
        for wait in &report.waits {
            if let Some(tid) = wait.tid {
                waits.entry((&wait.process, tid)).or_default().push(wait);
            }
        }
        let mut holds: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in &report.holds {
            holds.entry(&hold.resource).or_default().push(hold);
        }
        Inside {
            report,
            processes: report.processes.iter().map(|one| (one.id.as_str(), one)).collect(),
            waits,
            holds,
            resources: report.resources.iter().map(|one| (one.id.as_str(), one)).collect(),
        }
    }

    /// The waits of a thread.
    pub(super) fn waits_of(&self, process: &'r Process, tid: i32) -> &[&'r Wait] {
        self.waits.get(&(process.id.as_str(), tid)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The things of other ranks' processes, or its own, that a rank's main thread needs.
    pub(super) fn leads_to(&self, rank: &'r Process, main: &'r Thread) -> Vec<RankWait> {
        let mut found: Vec<RankWait> = Vec::new();
        let first = Step {
            party: (&rank.id, main.tid),
            through: String::new(),
            has_left: false,
            certainty: Certainty::Exact,
            timed: false,
            since_ms: Some(u64::MAX),
        };
        let mut seen = BTreeSet::from([first.party]);
        let mut open = VecDeque::from([first]);
        while let Some(step) = open.pop_front().filter(|_| found.len() < MOST_WAITS) {
            for (wait, hold) in self.needs(step.party) {
                let Some(resource) = self.resources.get(wait.resource.as_str()) else { continue };
                let Some(holder) = self.holder(wait, hold) else { continue };
                let mut next = Step {
                    has_left: step.has_left || hold.process != rank.id,
                    certainty: step.certainty.min(wait.certainty).min(hold.certainty),
                    timed: step.timed || wait.timed,
                    since_ms: step.since_ms.zip(wait.since_ms).map(|(one, other)| one.min(other)),
                    ..step.clone()
                };
                let site = self.site(step.party, wait);
                let pid = match holder {
                    Holder::Thread(party) => match self.as_rank(party) {
                        // `attach` knows more about waits within one process.
                        Some(of) if of.id == rank.id && !step.has_left => continue,
                        Some(of) => of.pid,
                        None => {
                            let who = self.called(party, rank);
                            next.through =
                                format!("{}{}{site}, held by {who}, which waits for ", step.through, resource.label);
                            next.party = party;
                            if seen.insert(party) {
                                open.push_back(next);
                            }
                            continue;
                        }
                    },
                    // A server's thread may answer at the other end of a socket.
                    Holder::Process(of) if is_rank(of) && !is_lock_or_pipe(resource) => continue,
                    Holder::Process(of) if is_rank(of) => {
                        // Its library's threads could let go as well.
                        if of.threads.len() > 1 {
                            next.certainty = next.certainty.min(Certainty::Inferred);
                        }
                        of.pid
                    }
                    Holder::Process(of) => {
                        let [only] = of.threads.as_slice() else { continue };
                        let (name, pid) = (program(of), of.pid);
                        next.through = format!(
                            "{}{}{site}, {} process {name} {pid}, which waits for ",
                            step.through,
                            resource.label,
                            if is_lock(resource) { "held by" } else { "whose other end has" }
                        );
                        next.party = (&of.id, only.tid);
                        if seen.insert(next.party) {
                            open.push_back(next);
                        }
                        continue;
                    }
                    Holder::Elsewhere(pid) => pid,
                };
                found.push(RankWait {
                    tid: main.tid,
                    holds_up_main: true,
                    label: resource.label.clone(),
                    place: site.trim_start_matches(" at ").to_owned(),
                    timed: next.timed,
                    certainty: next.certainty,
                    since_ms: next.since_ms,
                    polled_ms: None,
                    polled_by: Vec::new(),
                    left: false,
                    collective: None,
                    connection: None,
                    held_by: Some(HeldBy {
                        pid,
                        is_lock: is_lock(resource),
                        through: shortened(&step.through),
                        evidence: shortened(&hold.evidence.join("; ")),
                    }),
                });
            }
        }
        found
    }

    /// The holds that a party cannot go on without, each with its wait.
    fn needs(&self, party: Party<'r>) -> Vec<(&'r Wait, &'r Hold)> {
        let waits = self.waits.get(&party).map(Vec::as_slice).unwrap_or_default();
        let mut found = Vec::new();
        let counts = |wait: &&&Wait| wait.by_holders_alone && (wait.needs == Needs::All || waits.len() == 1);
        for wait in waits.iter().filter(counts) {
            let holds = self.holds.get(wait.resource.as_str()).map(Vec::as_slice).unwrap_or_default();
            let is_one_enough =
                wait.needs == Needs::Any || self.resources.get(wait.resource.as_str()).is_none_or(|one| !is_lock(one));
            if is_one_enough && holds.len() != 1 {
                continue;
            }
            let counts = |hold: &&&Hold| hold.gone.is_none() && hold.certainty > Certainty::Candidate;
            found.extend(holds.iter().filter(counts).map(|hold| (*wait, *hold)));
        }
        found
    }

    fn holder(&self, wait: &Wait, hold: &'r Hold) -> Option<Holder<'r>> {
        if hold.holder_resource.is_some() || hold.holder_rank.is_some() {
            return None;
        }
        let process = *self.processes.get(hold.process.as_str())?;
        match hold.tid {
            Some(tid) if process.threads.iter().any(|thread| thread.tid == tid) => {
                Some(Holder::Thread((&process.id, tid)))
            }
            // The kernel names the process, which is in no sample here.
            Some(pid) => {
                let resource = self.resources.get(wait.resource.as_str())?;
                (resource.properties().topic == Topic::FileLock).then_some(Holder::Elsewhere(pid))
            }
            // Without a thread, the waiter's own process also stands for holders that nobody knows.
            None => (hold.process != wait.process).then_some(Holder::Process(process)),
        }
    }

    /// The rank whose main thread this is.
    fn as_rank(&self, (process, tid): Party<'_>) -> Option<&'r Process> {
        let process = *self.processes.get(process)?;
        let is_main = super::helpers::main(process).is_some_and(|main| main.tid == tid);
        (is_main && is_rank(process)).then_some(process)
    }

    /// " at x.c:3 main".
    fn site(&self, (process, tid): Party<'_>, wait: &Wait) -> String {
        let thread = self.processes.get(process).and_then(|one| one.threads.iter().find(|thread| thread.tid == tid));
        let place = thread.map(|thread| place(thread, &wait.at)).unwrap_or_default();
        super::phrases::place_phrase(&place)
    }

    fn called(&self, (process, tid): Party<'_>, rank: &Process) -> String {
        match self.processes.get(process) {
            Some(of) if of.id != rank.id => match of.threads.len() {
                1 => format!("process {} {}", program(of), of.pid),
                _ => format!("thread {tid} of process {} {}", program(of), of.pid),
            },
            _ => format!("thread {tid}"),
        }
    }

    /// The first thread among these that may act, whatever the rank waits for: it runs, it waits for a time, or for
    /// something that not only threads of its own process can give. Waits for other ranks are judged over the job.
    pub(super) fn free_thread(&self, rank: &'r Process, threads: &[&Thread], waits: &[RankWait]) -> Option<Doing> {
        let is_given_inside = |wait: &&&Wait| {
            let Some(resource) = self.resources.get(wait.resource.as_str()) else { return false };
            let kind = resource.properties();
            let is_in_memory = matches!(kind.world, World::Native | World::Python) && kind.giver != Giver::Outside;
            is_in_memory && !wait.timed && !matches!(resource.parts.place, Some(Place::File(_)))
        };
        let is_bound = |thread: &Thread| {
            let own = self.waits.get(&(rank.id.as_str(), thread.tid)).map(Vec::as_slice).unwrap_or_default();
            let is_for_ranks = waits.iter().any(|wait| wait.tid == thread.tid && !wait.timed);
            is_for_ranks || !own.is_empty() && own.iter().filter(is_given_inside).count() == own.len()
        };
        threads.iter().find(|thread| !is_bound(thread)).map(|thread| doing(self.report, rank, thread))
    }
}

fn is_lock(resource: &Resource) -> bool {
    resource.properties().is_lock()
}

/// Whether it has no server at its other end: a lock, or a pipe.
fn is_lock_or_pipe(resource: &Resource) -> bool {
    is_lock(resource) || *resource.properties() == *kinds::PIPE
}

fn is_rank(process: &Process) -> bool {
    !is_helper(process) && process.identity.as_ref().is_some_and(|identity| identity.rank.is_some())
}

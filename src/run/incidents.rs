//! The incidents of a report, one at a time, so that each is compared with the sample before.
//!
//! In: a report. Out: [`Incident`]s. This module knows nothing of time or of earlier samples: [`super::judge`] does. An
//! incident that comes and goes, or that an earlier test left behind, thus never hides another one that stays.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::report::{Certainty, Proof, Report, Severity, ThreadReference, Verdict, Wait};

/// A thread that a sample stopped went to sleep again within this time, also on a busy machine.
pub(super) const ASLEEP_AGAIN: Duration = Duration::from_millis(500);

/// An incident's identity, as samples are compared. The ids of resources depend on the other waits, so only waiters and
/// holders count.
pub(super) type Fingerprint = Vec<String>;

/// One incident.
#[derive(Debug)]
pub(super) struct Incident<'r> {
    /// The waiters with their holders, or the finding with its threads.
    pub fingerprint: Fingerprint,
    /// Its proof. A ring with a time-out, or one that another thread may still break, has only the proof that it did not
    /// end.
    pub proof: Proof,
    report: &'r Report,
    threads: BTreeSet<(&'r str, i32)>,
}

/// The incidents: each cycle, and each finding that explains a hang otherwise. Empty if the verdict is harmless.
pub(super) fn incidents(report: &Report) -> Vec<Incident<'_>> {
    if report.verdict.exit_code() == 0 {
        return Vec::new();
    }
    let is_deadlock = report.verdict == Verdict::Deadlock;
    let mut all: Vec<Incident<'_>> = Vec::new();
    for (position, cycle) in report.cycles.iter().enumerate() {
        let link = |edge: &crate::report::Edge| {
            format!("{} {:?} {} {:?}", edge.process, edge.waiter, edge.holder_process, edge.holder)
        };
        let mut fingerprint: Fingerprint = cycle.edges.iter().map(link).collect();
        fingerprint.sort();
        all.push(Incident {
            fingerprint,
            // Proven cycles come first.
            proof: match is_deadlock && (position == 0 || cycle.certainty == Certainty::Exact) {
                true => cycle.proof(),
                false => Proof::Absence,
            },
            report,
            threads: cycle.edges.iter().filter_map(|edge| Some((edge.process.as_str(), edge.waiter?))).collect(),
        });
    }
    let cycles = all.len();
    for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Error) {
        let threads: BTreeSet<(&str, i32)> = finding.threads.iter().map(ThreadReference::key).collect();
        // A finding that explains a cycle is as sure as the cycle, and stands or falls with it.
        if !threads.is_empty() && all[..cycles].iter().any(|cycle| threads.is_subset(&cycle.threads)) {
            continue;
        }
        let proof = if report.verdict == Verdict::SuspectedDeadlock { Proof::Absence } else { finding.proof };
        let fingerprint = vec![format!("{} {:?}", finding.code, finding.threads)];
        all.push(Incident { fingerprint, proof, report, threads });
    }
    if all.is_empty() {
        let fingerprint = vec![format!("{:?}", report.verdict)];
        all.push(Incident { fingerprint, proof: Proof::Absence, report, threads: report.hang() });
    }
    all
}

impl Incident<'_> {
    /// Its threads, but for the main ones.
    pub(super) fn workers(&self) -> impl Iterator<Item = i32> {
        let is_main =
            |process: &str, tid: i32| self.report.processes.iter().any(|one| one.id == process && one.pid == tid);
        self.threads.iter().filter(move |(process, tid)| !is_main(process, *tid)).map(|(_, tid)| *tid)
    }

    /// The waits of its threads.
    fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.report
            .waits
            .iter()
            .filter(|wait| wait.tid.is_some_and(|tid| self.threads.contains(&(wait.process.as_str(), tid))))
    }

    /// Whether none of its waits has begun since the sample before: `last` is when that ended, `began` when this one
    /// began. One that wakes and retries for ever, as for the GIL, is taken for the same.
    pub(super) fn rests(&self, last: Instant, began: Instant) -> bool {
        let retries = |wait: &&Wait| {
            if wait.retried {
                return true;
            }
            let resource = self.report.resources.iter().find(|resource| resource.id == wait.resource);
            resource.is_some_and(|resource| resource.properties().is_asked_again())
        };
        self.waits().filter(|wait| !retries(wait)).all(|wait| {
            let since = wait.since_ms.and_then(|since| began.checked_sub(Duration::from_millis(since)));
            since.is_none_or(|since| since <= last + ASLEEP_AGAIN)
        })
    }

    /// The threads whose waits are retried after each time-out, each with the instant when its present try began, where
    /// that is known.
    pub(super) fn tries(&self, began: Instant) -> impl Iterator<Item = (i32, Option<Instant>)> {
        let start = move |wait: &Wait| wait.since_ms.and_then(|since| began.checked_sub(Duration::from_millis(since)));
        self.waits().filter(|wait| wait.retried).filter_map(move |wait| Some((wait.tid?, start(wait))))
    }

    /// Whether one of its waits has a time-out.
    pub(super) fn ends_by_itself(&self) -> bool {
        self.waits().any(|wait| wait.timed)
    }
}

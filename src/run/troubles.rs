//! What is wrong in a report, one thing at a time, so that each is compared with what the look before saw of it.
//!
//! In: a report. Out: [`Trouble`]s. Nothing here knows of time or of earlier looks: [`super::judge`] does. One thing that comes and
//! goes, or that an earlier test has left, thus never hides another that stays.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::report::{Certainty, Report, Severity, ThreadReference, Verdict, Wait};

/// A thread that a look stopped went to sleep again within so much time, also on a busy machine.
const ASLEEP_AGAIN: Duration = Duration::from_millis(500);

/// A trouble, as it is compared between looks. The ids of resources depend on what else is waited for: those who wait and hold say
/// enough.
pub(super) type Fingerprint = Vec<String>;

/// One thing that is wrong.
#[derive(Debug)]
pub(super) struct Trouble<'r> {
    /// Who waits for whom, or what was recognised and in whom.
    pub fingerprint: Fingerprint,
    /// Whether one look proves it, but for chance.
    pub is_proven: bool,
    report: &'r Report,
    threads: BTreeSet<(&'r str, i32)>,
}

/// What is wrong: each cycle, and each finding of something else that says why it hangs. Nothing where the verdict is harmless.
pub(super) fn troubles(report: &Report) -> Vec<Trouble<'_>> {
    if report.verdict.exit_code() == 0 {
        return Vec::new();
    }
    let is_deadlock = report.verdict == Verdict::Deadlock;
    let mut all: Vec<Trouble<'_>> = Vec::new();
    for (position, cycle) in report.cycles.iter().enumerate() {
        let link = |edge: &crate::report::Edge| {
            format!("{} {:?} {} {:?}", edge.process, edge.waiter, edge.holder_process, edge.holder)
        };
        let mut fingerprint: Fingerprint = cycle.edges.iter().map(link).collect();
        fingerprint.sort();
        all.push(Trouble {
            fingerprint,
            // What is proven comes first.
            is_proven: is_deadlock && (position == 0 || cycle.certainty == Certainty::Exact),
            report,
            threads: cycle.edges.iter().filter_map(|edge| Some((edge.process.as_str(), edge.waiter?))).collect(),
        });
    }
    let cycles = all.len();
    for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Error) {
        let threads: BTreeSet<(&str, i32)> = finding.threads.iter().map(ThreadReference::key).collect();
        // What explains a cycle is as sure as that, and stands or falls with it.
        if !threads.is_empty() && all[..cycles].iter().any(|cycle| threads.is_subset(&cycle.threads)) {
            continue;
        }
        let is_proven = report.verdict != Verdict::SuspectedDeadlock && finding.certainty == Certainty::Exact;
        let fingerprint = vec![format!("{} {:?}", finding.code, finding.threads)];
        all.push(Trouble { fingerprint, is_proven, report, threads });
    }
    if all.is_empty() {
        let fingerprint = vec![format!("{:?}", report.verdict)];
        all.push(Trouble { fingerprint, is_proven: is_deadlock, report, threads: report.hang() });
    }
    all
}

impl Trouble<'_> {
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

    /// Whether none of its waits has begun since the look before: `last` is when that ended, `began` when this one began. One that
    /// wakes and retries for ever, as for the GIL, is taken for the same.
    pub(super) fn rests(&self, last: Instant, began: Instant) -> bool {
        let retries = |wait: &&Wait| {
            let resource = self.report.resources.iter().find(|resource| resource.id == wait.resource);
            resource.is_some_and(|resource| resource.properties().is_asked_again())
        };
        self.waits().filter(|wait| !retries(wait)).all(|wait| {
            let since = wait.since_ms.and_then(|since| began.checked_sub(Duration::from_millis(since)));
            since.is_none_or(|since| since <= last + ASLEEP_AGAIN)
        })
    }

    /// Whether one of its waits has a time-out.
    pub(super) fn ends_by_itself(&self) -> bool {
        self.waits().any(|wait| wait.timed)
    }
}

//! When to sample, and what the samples prove: the rules of a watch, without a clock and without a process.
//!
//! In: passes over /proc, and reports of samples, with their times. Out: whether to sample, and a [`Decision`]. A hang
//! is proven by samples that agree while nothing in the tree makes progress; what is not proven goes on.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::incidents::{ASLEEP_AGAIN, Fingerprint, Incident, incidents};
use super::sample::Sample;
use super::time_limits::{MayEnd, Tickers, who_may_end};
use crate::report::{Certainty, Needs, Process, Proof, Report, Severity, Thread, ThreadState, Verdict, Wait};

/// A tree that used less than this share of one processor stands still, in permille. Waiters for a GIL wake every 5 ms and
/// idle threads of drivers every 100 ms; that costs a few permille each.
const STILL_PERMILLE: u64 = 30;
/// A tree stands still after this long.
const STILL_AFTER: Duration = Duration::from_millis(600);
/// Between two samples of a tree that works: a hang may be among threads that spin.
const WHILE_IT_WORKS: Duration = Duration::from_secs(3);
/// Between two samples of a tree that stands still and where nothing was wrong: at first, and at most.
const WHILE_STILL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Samples cost at most this share of one processor, a hundredth; at the beginning they may cost [`BURST`] more. While
/// the tree works, this limit holds for each sample. If a tree has stopped moving, it is sampled even after a costly
/// sample of earlier work, such as compiling. An unoptimised lockscope takes ten times as long for each.
pub(super) const COST: u32 = if cfg!(unoptimised) { 10 } else { 100 };
const BURST: Duration = Duration::from_millis(500);
/// A monitor of tests knows more, and comes first: it ends the test and not the whole suite.
const AFTER_A_MONITOR: Duration = Duration::from_secs(15);
/// Between the samples that must agree: for recorded owners, and for everything else.
const RECORDED_AGAIN: Duration = Duration::from_millis(300);
const OTHERS_AGAIN: Duration = Duration::from_millis(2500);
/// Everything else must stand for this long, and be seen this often.
const OTHERS_STAND: Duration = Duration::from_secs(5);
const OTHERS_SEEN: u32 = 3;
/// A wait that is retried after each time-out counts as one that stands once this many further tries were seen.
const PERIODS_SEEN: u32 = 3;
/// While a sleeping thread may end it: long enough to see a heartbeat wake up.
const SLEEPERS_AGAIN: Duration = Duration::from_secs(2);
/// After this many samples that saw an incident and did not settle it, the pauses between them grow.
const HASTY_LOOKS: u32 = 6;

/// The result of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Go on.
    GoOn,
    /// Something is wrong, and others go on working: say it once.
    Beside,
    /// It hangs, by all that is seen, and is not ended yet: say it once.
    Patient,
    /// It hangs.
    Over,
}

/// The results of the samples so far.
#[derive(Debug)]
pub(crate) struct Judge {
    /// Since when nothing makes progress.
    still_since: Option<Instant>,
    /// When the next sample is due: at what samples have begun to agree on, at a tree that stands still, at one that
    /// works.
    next: Instant,
    next_still: Instant,
    next_at_work: Instant,
    /// Since when, and what all samples have cost.
    began: Instant,
    spent: Duration,
    /// The pause after a sample of a still tree that found nothing.
    pause: Duration,
    /// How long a hang by absence, or one that another thread may end, lasts before it is over; `None`: the limit of the
    /// test decides.
    stuck_after: Option<Duration>,
    /// When the last sample ended.
    last_look: Option<Instant>,
    /// Threads outside of the hang that woke up and changed nothing.
    tickers: Tickers,
    /// A party in charge was seen since the hang began.
    in_charge: bool,
    /// The incidents that the last samples agreed on.
    agreed: BTreeMap<Fingerprint, Agreed>,
    /// How many samples in a row saw an incident and did not settle it.
    doubts: u32,
    /// A monitor of tests is in the tree.
    monitored: bool,
    /// The incidents that were already reported.
    told: BTreeSet<Fingerprint>,
    /// Threads of hangs whose tests were ended. No suite ends because of threads that an earlier test left behind.
    left: BTreeSet<i32>,
    /// The process waits for all of them.
    waits_for_all: bool,
}

/// How several samples agreed on one thing that is wrong.
#[derive(Debug, Clone)]
struct Agreed {
    /// How many did.
    count: u32,
    /// Since when.
    since: Instant,
    /// When the last of them ended.
    last: Instant,
    /// How many tries each thread has begun that asks again after each time-out.
    tries: BTreeMap<i32, u32>,
}

impl Judge {
    /// Nothing seen. A hang by absence is over after `stuck_after`.
    pub(crate) fn new(now: Instant, stuck_after: Duration) -> Judge {
        Judge {
            still_since: None,
            next: now,
            next_still: now,
            next_at_work: now + WHILE_IT_WORKS,
            began: now,
            spent: Duration::ZERO,
            pause: WHILE_STILL.0,
            stuck_after: Some(stuck_after),
            last_look: None,
            tickers: Tickers::new(),
            in_charge: false,
            agreed: BTreeMap::new(),
            doubts: 0,
            monitored: false,
            told: BTreeSet::new(),
            left: BTreeSet::new(),
            waits_for_all: false,
        }
    }

    /// The test of a hang was ended, and its threads stay as they are; what comes now is judged anew.
    pub(crate) fn leave_behind(&mut self, now: Instant, report: &Report) {
        self.left.extend(report.hang().into_iter().map(|(_, tid)| tid));
        self.begin_anew(now);
    }

    /// How long a hang by absence lasts before it is over; `None`: another program's limit decides.
    pub(crate) fn be_patient_for(&mut self, stuck_after: Option<Duration>) {
        self.stuck_after = stuck_after;
    }

    /// Whether there is something wrong that is waited for, so that signs of progress count.
    pub(crate) fn counts_progress(&self) -> bool {
        !self.agreed.is_empty()
    }

    /// The process waits for all that is left, and hangs because of it.
    pub(crate) fn end_with_what_is_left(&mut self) {
        self.waits_for_all = true;
    }

    /// Something else begins, and is to be seen soon where it stands still.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        // The cost of the samples is forgiven: the next hang should be found as soon as this one.
        (self.began, self.spent) = (now, Duration::ZERO);
        (self.agreed, self.doubts) = (BTreeMap::new(), 0);
        (self.last_look, self.in_charge) = (None, false);
        self.tickers.clear();
        (self.still_since, self.pause) = (None, WHILE_STILL.0);
        (self.next_still, self.next_at_work) = (now, now + WHILE_IT_WORKS);
    }

    /// New incidents. Threads that an earlier test left behind make none, unless the main thread waits because of them.
    fn news<'r>(&self, report: &'r Report) -> Vec<Incident<'r>> {
        let mut all = incidents(report);
        if !self.waits_for_all && self.only_main_waits_for_what_was_left(report) && !main_is_stuck(report) {
            all.retain(|incident| !self.is_left(incident));
        }
        all
    }

    /// Whether something that is wrong is what earlier tests have left: their threads, and a main one.
    fn is_left(&self, incident: &Incident<'_>) -> bool {
        let mut workers = incident.workers().peekable();
        workers.peek().is_some() && workers.all(|tid| self.left.contains(&tid))
    }

    /// Whether nobody but main threads has come to wait for what earlier tests have left.
    fn only_main_waits_for_what_was_left(&self, report: &Report) -> bool {
        let is_main = |tid: i32| report.processes.iter().any(|process| process.pid == tid);
        report.victims.iter().all(|victim| is_main(victim.tid) || self.left.contains(&victim.tid))
    }

    /// Whether all that is wrong is what earlier tests have left; others may have come to wait for it.
    pub(crate) fn is_of_before(&self, report: &Report) -> bool {
        let all = incidents(report);
        !all.is_empty() && all.iter().all(|incident| self.is_left(incident))
    }

    /// The same, and nobody but the main thread has come to wait for it: there is nothing new to report.
    pub(crate) fn was_told(&self, report: &Report) -> bool {
        self.is_of_before(report) && self.only_main_waits_for_what_was_left(report)
    }

    /// Take in a pass over the tree.
    pub(crate) fn sampled(&mut self, now: Instant, sample: &Sample) {
        self.monitored = sample.monitored;
        // The clock of CPU time ticks every 10 ms: one tick alone is no progress.
        let works = sample.used_ms > 10 && sample.used_ms * 1000 > sample.elapsed_ms * STILL_PERMILLE;
        if works || sample.changed || sample.elapsed_ms == 0 {
            if self.still_since.take().is_some() {
                self.pause = WHILE_STILL.0;
                self.next_still = now;
            }
        } else {
            self.still_since.get_or_insert(now - Duration::from_millis(sample.elapsed_ms));
        }
    }

    /// A thread could run all the time and got no processor: that is no standstill of the tree's own.
    pub(crate) fn wants_to_work(&mut self) {
        self.still_since = None;
    }

    /// For how long nothing has made progress.
    pub(crate) fn still_for(&self, now: Instant) -> Duration {
        self.still_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Whether to sample now.
    pub(crate) fn wants_a_look(&self, now: Instant) -> bool {
        if !self.agreed.is_empty() {
            return now >= self.next;
        }
        let has_left = self.spent <= BURST + now.saturating_duration_since(self.began) / COST;
        self.is_still(now) && now >= self.next_still && has_left || now >= self.next_at_work
    }

    fn is_still(&self, now: Instant) -> bool {
        self.still_for(now) >= STILL_AFTER
    }

    /// Take in a sample that took `cost`; `None` if it failed. The tree has shown no sign of progress for `still_for`,
    /// and `alarms` are processes that may have set an alarm.
    pub(crate) fn looked(
        &mut self,
        now: Instant,
        cost: Duration,
        report: Option<&Report>,
        still_for: Duration,
        alarms: &BTreeSet<i32>,
    ) -> Decision {
        let least = cost * COST;
        self.spent += cost;
        self.next_at_work = now + WHILE_IT_WORKS.max(least);
        let last_look = self.last_look.replace(now);
        let all = report.map(|report| self.news(report)).unwrap_or_default();
        let Some(report) = report.filter(|_| !all.is_empty()) else {
            self.agreed.clear();
            self.tickers.clear();
            (self.doubts, self.in_charge) = (0, false);
            if self.is_still(now) {
                self.next_still = now + self.pause;
                // One that works a little now and then is no hang that needs to be seen at once.
                self.next_at_work = self.next_at_work.max(self.next_still);
                self.pause = (self.pause * 2).min(WHILE_STILL.1);
            }
            return Decision::GoOn;
        };
        let began = now - cost;
        self.agree(&all, now, began);
        let woke = |wait: &Wait| {
            let since = wait.since_ms.and_then(|since| began.checked_sub(Duration::from_millis(since)));
            since.zip(last_look).is_some_and(|(since, last)| since > last + ASLEEP_AGAIN)
        };
        let may_end = who_may_end(report, woke, alarms, &mut self.tickers);
        self.in_charge |= may_end == MayEnd::InCharge;
        // A sleeper may be the limit of the test itself, which then decides on its own.
        let is_limited_by_sleeper = may_end == MayEnd::Sleeper && self.stuck_after.is_some();
        let somebody_may_end = self.in_charge || is_limited_by_sleeper;
        let shown = |incident: &Incident<'_>| {
            let agreed = self.agreed.get(&incident.fingerprint)?;
            let is_shown = match incident.proof {
                Proof::Recorded => agreed.count >= 2,
                _ => agreed.count >= OTHERS_SEEN && now >= agreed.since + OTHERS_STAND,
            };
            let has_retried = agreed.tries.values().all(|tries| *tries >= PERIODS_SEEN);
            (is_shown && has_retried).then_some(agreed.since)
        };
        let mut standing: Vec<(&Incident<'_>, Instant)> =
            all.iter().filter_map(|incident| Some((incident, shown(incident)?))).collect();
        if standing.is_empty() {
            self.doubts += 1;
            let is_recorded = all.iter().any(|incident| incident.proof == Proof::Recorded);
            let again = if is_recorded { RECORDED_AGAIN } else { OTHERS_AGAIN };
            match self.doubts <= HASTY_LOOKS {
                true => self.next = now + again,
                false => self.look_later(now, least),
            }
            return Decision::GoOn;
        }
        // A wait with a time-out ends by itself, if not now then later.
        standing.retain(|(incident, _)| incident.proof == Proof::Recorded || !incident.ends_by_itself());
        if standing.is_empty() {
            self.look_later(now, least);
            return Decision::GoOn;
        }
        standing.retain(|(_, since)| !self.monitored || now >= *since + AFTER_A_MONITOR);
        if standing.is_empty() {
            self.next = now + WHILE_IT_WORKS;
            return Decision::GoOn;
        }
        // A wait that nobody ends may be that of a thread which nobody misses.
        let (others_work, main_is_stuck) = (others_work(report), main_is_stuck(report));
        let may_go_on = |incident: &Incident<'_>| {
            others_work || incident.proof == Proof::Absence && report.verdict == Verdict::Stuck
        };
        let goes_on = |incident| !self.waits_for_all && may_go_on(incident) && !main_is_stuck;
        let mut found: Vec<Fingerprint> = Vec::new();
        let (mut decision, mut due) = (Decision::Beside, None);
        for (incident, since) in &standing {
            found.push(incident.fingerprint.clone());
            if goes_on(incident) {
                continue;
            }
            decision = Decision::Patient;
            let is_by_absence = incident.proof == Proof::Absence;
            if !is_by_absence && !somebody_may_end {
                return Decision::Over;
            }
            let Some(stuck_after) = self.stuck_after else { continue };
            let stands_for = now.saturating_duration_since(*since);
            let rests_for = if is_by_absence { stands_for.min(still_for) } else { stands_for };
            let left = stuck_after.saturating_sub(rests_for);
            if left.is_zero() {
                return Decision::Over;
            }
            due = Some(due.map_or(left, |due: Duration| due.min(left)));
        }
        self.look_later(now, least);
        if is_limited_by_sleeper && standing.iter().any(|(incident, _)| incident.proof > Proof::Absence) {
            self.next = self.next.min(now + SLEEPERS_AGAIN.max(least));
        }
        if let Some(due) = due {
            self.next = self.next.min(now + due.max(least));
        }
        match found.into_iter().filter(|one| self.told.insert(one.clone())).count() {
            0 => Decision::GoOn,
            _ => decision,
        }
    }

    /// Count the samples that saw the very same waits, and not just waits of the same threads. `began` is when this
    /// sample did.
    fn agree(&mut self, all: &[Incident<'_>], now: Instant, began: Instant) {
        let mut agreed = BTreeMap::new();
        for incident in all {
            let known = self.agreed.get(&incident.fingerprint);
            let known = known.filter(|known| incident.proof == Proof::Recorded || incident.rests(known.last, began));
            let (count, since) = known.map_or((1, now), |known| (known.count + 1, known.since));
            // A sample may begin a sleep anew, which is no other try.
            let is_new = |start: Instant| known.is_some_and(|known| start > known.last + ASLEEP_AGAIN);
            let before = |tid: i32| known.and_then(|known| known.tries.get(&tid).copied()).unwrap_or_default();
            let tries = incident
                .tries(began)
                .map(|(tid, start)| (tid, before(tid) + u32::from(start.is_some_and(is_new))))
                .collect();
            agreed.insert(incident.fingerprint.clone(), Agreed { count, since, last: now, tries });
        }
        self.agreed = agreed;
    }

    /// There is no hurry.
    fn look_later(&mut self, now: Instant, least: Duration) {
        self.next = now + self.pause.max(least);
        self.pause = (self.pause * 2).min(WHILE_STILL.1);
    }
}

/// Whether a thread of the tree runs that no chain of waits leads away from.
fn others_work(report: &Report) -> bool {
    let waits =
        |process: &str, tid: i32| report.waits.iter().any(|wait| wait.process == process && wait.tid == Some(tid));
    report.processes.iter().any(|process| {
        process.threads.iter().any(|thread| thread.state == ThreadState::Running && !waits(&process.id, thread.tid))
    })
}

/// Whether the first process's main thread is in the hang or waits because of it: then the command never ends, whatever else
/// works in it.
fn main_is_stuck(report: &Report) -> bool {
    let hang = report.hang();
    let mut left: Vec<&Process> = report.processes.iter().collect();
    let mut next = left.first().map(|first| first.id.as_str());
    // A process ends when its main thread does: a wait for its end is a wait for that.
    while let Some(at) = next.and_then(|id| left.iter().position(|process| process.id == id)) {
        let process = left.swap_remove(at);
        if hang.contains(&(process.id.as_str(), process.pid)) || tests_are_stuck(report, process, &hang) {
            return true;
        }
        next = awaited_process(report, process);
    }
    false
}

/// Whether a process runs tests of Rust, and each of its other threads is in the hang: the runner waits for ever.
fn tests_are_stuck(report: &Report, process: &Process, hang: &BTreeSet<(&str, i32)>) -> bool {
    let timed = |tid: i32| {
        let own = |wait: &&Wait| wait.process == process.id && wait.tid == Some(tid);
        report.waits.iter().filter(own).any(|wait| wait.timed)
    };
    let (runners, others): (Vec<&Thread>, Vec<&Thread>) =
        process.threads.iter().partition(|thread| thread.tid == process.pid && thread.runs_rust_tests());
    // Each test that hangs is a finding of its own.
    let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let told: BTreeSet<(&str, i32)> =
        errors.flat_map(|finding| &finding.threads).map(|one| (one.process.as_str(), one.tid)).collect();
    let is_in = |thread: &&Thread| {
        let key = (process.id.as_str(), thread.tid);
        hang.contains(&key) || told.contains(&key)
    };
    !runners.is_empty() && !others.is_empty() && others.iter().all(is_in) && !runners.iter().any(|one| timed(one.tid))
}

/// The process whose end a process's main thread waits for.
fn awaited_process<'r>(report: &'r Report, process: &Process) -> Option<&'r str> {
    let own = report.waits.iter().filter(|wait| wait.process == process.id && wait.tid == Some(process.pid));
    let waits: Vec<&Wait> = own.filter(|wait| wait.needs == Needs::All && !wait.timed).collect();
    let of_processes = report.holds.iter().filter(|hold| hold.tid.is_none() && hold.certainty > Certainty::Candidate);
    let mut ends = of_processes.filter(|hold| waits.iter().any(|wait| wait.resource == hold.resource));
    ends.next().map(|hold| hold.process.as_str())
}

//! When to sample, and what the samples prove: the rules of a watch, without a clock and without a process.
//!
//! In: passes over /proc, and reports of samples, with their times. Out: whether to sample, and a [`Decision`]. A hang
//! is proven by samples that agree while nothing in the tree makes progress; what is not proven goes on.

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
pub(super) const COST: u32 = if cfg!(debug_assertions) { 10 } else { 100 };
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Two threads in a cycle, and a third that runs or waits for the first.
    fn report(verdict: &str, third: &str, main: i32) -> Report {
        let thread = |tid: i32, state: &str| json!({"tid": tid, "ns_tid": tid, "name": "t", "os_name": "t", "state": state, "frames": []});
        let wait = |tid: i32, resource: &str| {
            json!({"process": "p0", "tid": tid, "resource": resource, "mode": null, "needs": "all",
            "timed": false, "since_ms": null, "frame": null, "certainty": "exact", "evidence": []})
        };
        let hold = |tid: i32, resource: &str| {
            json!({"process": "p0", "tid": tid, "gone": null, "resource": resource, "mode": null,
            "frame": null, "certainty": "exact", "evidence": []})
        };
        let edge = |waiter: i32, holder: i32| {
            json!({"process": "p0", "waiter": waiter, "resource": "r1", "holder_process": "p0", "holder": holder,
            "proof": if verdict == "deadlock" { "recorded" } else { "absence" }})
        };
        let cycles = if verdict == "blocked" {
            json!([])
        } else {
            json!([{"certainty": "exact", "edges": [edge(1, 2), edge(2, 1)]}])
        };
        let mut waits = vec![wait(1, "r2"), wait(2, "r1")];
        if third == "sleeping" {
            waits.push(wait(3, "r1"));
        }
        serde_json::from_value(json!({
            "schema": "lockscope.report", "version": "1.0", "lockscope": "0", "source": {"kind": "live", "path": null},
            "verdict": verdict, "summary": "", "resources": [], "waits": waits, "holds": [hold(1, "r1"), hold(2, "r2")],
            "cycles": cycles, "findings": [], "gaps": [],
            "capture": {"threads": 3, "pause_us": 0, "total_us": 0, "looks": 1},
            "processes": [{"id": "p0", "pid": main, "exe": null, "cmdline": [], "parent": null, "python": null, "cuda": null,
                "threads": [thread(1, "sleeping"), thread(2, "sleeping"), thread(3, third)]}]
        }))
        .expect("a report")
    }

    fn still() -> Sample {
        Sample { pids: vec![1], elapsed_ms: 200, ..Sample::default() }
    }

    fn busy() -> Sample {
        Sample { used_ms: 190, ..still() }
    }

    const LOOK: Duration = Duration::from_millis(10);

    /// A sample of a tree that stands still by its passes.
    fn look(judge: &mut Judge, now: Instant, report: Option<&Report>) -> Decision {
        judge.looked(now, LOOK, report, judge.still_for(now), &BTreeSet::new())
    }

    /// The decisions of samples as they come due within some seconds, with the time of each in milliseconds.
    fn decisions(report: &Report, sample: &Sample, seconds: u64) -> Vec<(u64, Decision)> {
        let start = Instant::now();
        let mut judge = Judge::new(start, Duration::from_secs(60));
        let mut all = Vec::new();
        for step in 1..seconds * 5 {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, sample);
            if judge.wants_a_look(now) {
                let decision = look(&mut judge, now, Some(report));
                all.push((step * 200, decision));
                if decision == Decision::Over {
                    break;
                }
            }
        }
        all
    }

    /// The time in milliseconds at which a report, sampled as often as is due, is over; and whether it was reported
    /// before.
    fn over(report: &Report, seconds: u64) -> (Option<u64>, bool) {
        let all = decisions(report, &still(), seconds);
        let over = all.iter().find(|(_, decision)| *decision == Decision::Over).map(|(at, _)| *at);
        (over, all.iter().any(|(_, decision)| *decision == Decision::Patient))
    }

    #[test]
    fn each_proof_has_its_time() {
        let mut ring = report("deadlock", "sleeping", 1);
        let (at, was_told) = over(&ring, 90);
        assert!(at.is_some_and(|at| at <= 2_000) && !was_told, "{at:?}");
        ring.cycles[0].edges[0].proof = Proof::Code;
        let (at, was_told) = over(&ring, 90);
        assert!(at.is_some_and(|at| (5_000..9_000).contains(&at)) && !was_told, "{at:?}");
        let (at, was_told) = over(&report("suspected-deadlock", "sleeping", 1), 90);
        assert!(at.is_some_and(|at| (60_000..70_000).contains(&at)) && was_told, "{at:?}");
    }

    #[test]
    fn a_retried_wait_stands_once_three_further_tries_were_seen() {
        let retried = |since_ms: u64| {
            let mut report = report("suspected-deadlock", "sleeping", 1);
            (report.waits[0].retried, report.waits[0].since_ms) = (true, Some(since_ms));
            report
        };
        // Each sample finds another try; and one that began before all samples.
        let (at, was_told) = over(&retried(1_000), 90);
        assert!(at.is_some_and(|at| (60_000..75_000).contains(&at)) && was_told, "{at:?}");
        assert_eq!(over(&retried(600_000), 90), (None, false));
    }

    #[test]
    fn an_absence_proves_nothing_while_the_tree_shows_progress() {
        let (start, report) = (Instant::now(), report("suspected-deadlock", "sleeping", 1));
        let mut judge = Judge::new(start, Duration::from_secs(60));
        for step in 1..1500 {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, &still());
            // A line of output now and then.
            let still_for = Duration::from_millis(step * 200 % 6_000);
            if judge.wants_a_look(now) {
                let decision = judge.looked(now, LOOK, Some(&report), still_for, &BTreeSet::new());
                assert_ne!(decision, Decision::Over, "{step}");
            }
        }
    }

    #[test]
    fn who_has_a_time_limit_is_waited_for_and_a_heartbeat_is_not() {
        let of_third = |since_ms: u64, main: i32| {
            let mut report = report("deadlock", "sleeping", main);
            let third = report.waits.last_mut().expect("a wait");
            (third.timed, third.since_ms, third.resource) = (true, Some(since_ms), "r3".into());
            report
        };
        // A watchdog that sleeps through all of it, and the main thread of a program that polls.
        for report in [of_third(600_000, 1), of_third(20, 3)] {
            let (at, was_told) = over(&report, 90);
            assert!(at.is_some_and(|at| (60_000..70_000).contains(&at)) && was_told, "{at:?}");
        }
        let (at, _) = over(&of_third(20, 1), 90);
        assert!(at.is_some_and(|at| at <= 6_000), "{at:?}");
        // An alarm of the process.
        let (start, report) = (Instant::now(), report("deadlock", "sleeping", 1));
        let mut judge = Judge::new(start, Duration::from_secs(60));
        let ends = (1..400).find(|step| {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, &still());
            let alarms = BTreeSet::from([1]);
            judge.wants_a_look(now) && judge.looked(now, LOOK, Some(&report), LOOK, &alarms) == Decision::Over
        });
        assert!(ends.is_some_and(|step| (300..350).contains(&step)), "{ends:?}");
        // The limit of a test decides.
        let mut judge = Judge::new(start, Duration::from_secs(60));
        judge.be_patient_for(None);
        let waits = of_third(20, 3);
        assert!((1..1000).all(|step| {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, &still());
            !judge.wants_a_look(now) || look(&mut judge, now, Some(&waits)) != Decision::Over
        }));
    }

    #[test]
    fn what_is_not_proven_has_to_show_the_very_same_waits() {
        let ends = |change: fn(&mut Wait)| {
            let mut report = report("suspected-deadlock", "sleeping", 1);
            report.waits.iter_mut().for_each(change);
            let all = decisions(&report, &still(), 90);
            all.last().map(|(_, decision)| *decision) == Some(Decision::Over)
        };
        assert!(ends(|wait| wait.since_ms = Some(600_000)));
        // Each sample meets a wait that began a moment ago: the same threads, and other waits.
        assert!(!ends(|wait| wait.since_ms = Some(100)));
        // One with a time-out ends by itself.
        assert!(!ends(|wait| wait.timed = true));
    }

    #[test]
    fn a_thread_that_waits_for_ever_beside_a_main_thread_that_does_not_is_told_once() {
        let all = decisions(&stuck(&[2]), &still(), 60);
        let told = all.iter().filter(|(_, decision)| *decision == Decision::Beside).count();
        assert!(told == 1 && all.iter().all(|(_, decision)| *decision != Decision::Over), "{all:?}");
    }

    #[test]
    fn a_hang_beside_threads_that_work_is_told_once() {
        let all = decisions(&report("deadlock", "running", 3), &busy(), 60);
        let told = all.iter().filter(|(_, decision)| *decision == Decision::Beside).count();
        assert!(told == 1 && all.iter().all(|(_, decision)| *decision != Decision::Over), "{all:?}");
        // The main thread is in it: the command never ends.
        let all = decisions(&report("deadlock", "running", 1), &busy(), 60);
        assert_eq!(all.last().map(|(_, decision)| *decision), Some(Decision::Over), "{all:?}");
    }

    #[test]
    fn what_an_earlier_test_has_left_ends_no_other() {
        let start = Instant::now();
        let (left, again) = (report("deadlock", "sleeping", 4), report("deadlock", "sleeping", 1));
        let ends = |report: &Report| {
            let mut judge = Judge::new(start, Duration::from_secs(60));
            judge.leave_behind(start, &left);
            (1..100).any(|step| {
                let now = start + Duration::from_millis(step * 200);
                judge.sampled(now, &still());
                judge.wants_a_look(now) && look(&mut judge, now, Some(report)) != Decision::GoOn
            })
        };
        assert!(!ends(&left));
        // The main thread of the next one waits for them.
        assert!(ends(&again));
    }

    /// Threads that wait for ever, each a finding of its own, in this order; the main thread is 3.
    fn stuck(threads: &[i32]) -> Report {
        let mut stuck = report("stuck", "sleeping", 3);
        stuck.cycles.clear();
        let finding = |tid: &i32| {
            let finding = json!({"code": "nobody-left-to-wake", "severity": "error", "title": "", "message": "", "certainty": "inferred",
                "threads": [{"process": "p0", "tid": tid}], "resources": ["r1"], "help": [], "references": []});
            serde_json::from_value(finding).expect("a finding")
        };
        stuck.findings = threads.iter().map(finding).collect();
        stuck
    }

    #[test]
    fn what_an_earlier_test_has_left_hides_no_hang_of_the_main_thread() {
        // Ids wrap around: the thread that was left may come before the main one or after it.
        for both in [[2, 3], [3, 2]] {
            let start = Instant::now();
            let mut judge = Judge::new(start, Duration::from_secs(60));
            judge.leave_behind(start, &stuck(&[2]));
            let report = stuck(&both);
            let over = (1..500).any(|step| {
                let now = start + Duration::from_millis(step * 200);
                judge.sampled(now, &still());
                judge.wants_a_look(now) && look(&mut judge, now, Some(&report)) == Decision::Over
            });
            assert!(over && !judge.was_told(&report), "{both:?}");
            assert!(judge.was_told(&stuck(&[2])));
        }
    }

    #[test]
    fn what_comes_and_goes_hides_nothing_that_stays() {
        let start = Instant::now();
        let mut judge = Judge::new(start, Duration::from_secs(60));
        let over = (1..500u64).any(|step| {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, &still());
            // Another one beside it, each time.
            let report = stuck(if step % 2 == 0 { &[3] } else { &[1, 3] });
            judge.wants_a_look(now) && look(&mut judge, now, Some(&report)) == Decision::Over
        });
        assert!(over);
    }

    #[test]
    fn what_is_never_shown_twice_is_looked_at_more_and_more_rarely() {
        let start = Instant::now();
        let mut judge = Judge::new(start, Duration::from_secs(60));
        let mut looks = 0;
        for step in 1..3000u64 {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, &still());
            if judge.wants_a_look(now) {
                looks += 1;
                let report = stuck(&[if looks % 2 == 0 { 1 } else { 2 }]);
                assert_eq!(look(&mut judge, now, Some(&report)), Decision::GoOn);
            }
        }
        assert!(looks < 25, "{looks}");
    }

    #[test]
    fn a_monitor_of_tests_comes_first() {
        let sample = Sample { monitored: true, ..still() };
        let (at, decision) = *decisions(&report("deadlock", "sleeping", 1), &sample, 60).last().expect("a look");
        assert!(decision == Decision::Over && (15_000..25_000).contains(&at), "{at}");
    }

    #[test]
    fn what_is_healthy_is_looked_at_more_and_more_rarely() {
        let all = decisions(&report("blocked", "sleeping", 1), &still(), 600);
        assert!(all.iter().all(|(_, decision)| *decision == Decision::GoOn));
        assert!(all.len() < 20, "{}", all.len());
        // At work, each sample costs a hundredth at most.
        let all = decisions(&report("running", "running", 1), &busy(), 600);
        assert!(all.len() as u32 * LOOK <= Duration::from_secs(6), "{}", all.len());
    }

    #[test]
    fn a_costly_look_at_work_puts_off_no_look_at_what_stands_still_then() {
        let start = Instant::now();
        let mut judge = Judge::new(start, Duration::from_secs(60));
        let at = |ms| start + Duration::from_millis(ms);
        // A compiler, say, on a busy machine.
        judge.sampled(at(3200), &busy());
        assert!(judge.wants_a_look(at(3200)));
        judge.looked(
            at(3600),
            Duration::from_millis(400),
            Some(&report("running", "running", 1)),
            Duration::ZERO,
            &BTreeSet::new(),
        );
        for step in 0..10 {
            judge.sampled(at(3800 + step * 200), &busy());
            assert!(!judge.wants_a_look(at(3800 + step * 200)));
        }
        for step in 0..4 {
            judge.sampled(at(6000 + step * 200), &still());
        }
        assert!(judge.wants_a_look(at(6600)));
        // A tree that stops and moves again and again still costs no more than its share in the end.
        let mut looks = 0;
        for step in 0..3000 {
            let (now, stands) = (at(7000 + step * 200), step % 10 < 6);
            judge.sampled(now, &if stands { still() } else { busy() });
            if judge.wants_a_look(now) {
                judge.looked(
                    now,
                    Duration::from_millis(400),
                    Some(&report("blocked", "sleeping", 1)),
                    Duration::ZERO,
                    &BTreeSet::new(),
                );
                looks += 1;
            }
        }
        assert!(looks * 400 <= 500 + 600_000 / COST + 800, "{looks}");
    }

    #[test]
    fn cpu_time_that_waiters_for_a_gil_use_is_no_progress() {
        let start = Instant::now();
        let mut judge = Judge::new(start, Duration::from_secs(60));
        for step in 1..50 {
            judge.sampled(
                start + Duration::from_millis(step * 200),
                &Sample { used_ms: 10 * (step % 4 == 0) as u64, ..still() },
            );
        }
        assert!(judge.still_for(start + Duration::from_secs(10)) >= Duration::from_secs(9));
        judge.sampled(start + Duration::from_secs(10), &busy());
        assert_eq!(judge.still_for(start + Duration::from_secs(10)), Duration::ZERO);
    }
}

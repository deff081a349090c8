//! When to look, and what the looks prove: the rules of a watch, without a clock and without a process.
//!
//! In: samples and reports with the time at which they were taken. Out: whether to look, and a [`Decision`]. A hang is
//! proven by looks that agree while nothing in the tree makes progress; what is not proven goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::sample::Sample;
use super::troubles::{Fingerprint, Trouble, troubles};
use crate::report::{Certainty, Needs, Process, Report, Severity, Thread, ThreadState, Verdict, Wait};

/// A tree that used less than this share of one processor stands still, in permille. Waiters for a GIL wake every 5 ms and
/// idle threads of drivers every 100 ms; that costs a few permille each.
const STILL_PERMILLE: u64 = 30;
/// A tree stands still after this long.
const STILL_AFTER: Duration = Duration::from_millis(600);
/// Between two looks at a tree that works: a hang may be among threads that spin.
const WHILE_IT_WORKS: Duration = Duration::from_secs(3);
/// Between two looks at a tree that stands still and where nothing was wrong: at first, and at most.
const WHILE_STILL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Looks cost at most this share of one processor, a hundredth; and at the beginning so much more. While the tree works that holds
/// for each look; a tree that has come to stand still is looked at also after a costly look at what it did before, as compiling.
pub(super) const COST: u32 = 100;
const BURST: Duration = Duration::from_millis(500);
/// A monitor of tests knows more, and comes first: it ends the test and not the whole suite.
const AFTER_A_MONITOR: Duration = Duration::from_secs(15);
/// Between the looks that must agree: for what is proven, and for what is not.
const PROVEN_AGAIN: Duration = Duration::from_millis(300);
const SUSPECTED_AGAIN: Duration = Duration::from_secs(2);
/// After so many looks that saw something wrong, and came to no end of it, the pauses between them grow.
const HASTY_LOOKS: u32 = 6;

/// What follows from a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Go on.
    GoOn,
    /// Something is wrong, and others go on working: say it once.
    Beside,
    /// It hangs.
    Over,
}

/// What was seen so far.
#[derive(Debug)]
pub(crate) struct Judge {
    /// Since when nothing makes progress.
    still_since: Option<Instant>,
    /// When the next look is due: at what looks have begun to agree on, at a tree that stands still, at one that works.
    next: Instant,
    next_still: Instant,
    next_at_work: Instant,
    /// Since when, and what all looks have cost.
    began: Instant,
    spent: Duration,
    /// The pause after a look at a still tree that found nothing.
    pause: Duration,
    /// What the last looks agreed on.
    agreed: BTreeMap<Fingerprint, Agreed>,
    /// How many looks in a row saw something wrong, and came to no end of it.
    doubts: u32,
    /// A monitor of tests is in the tree.
    monitored: bool,
    /// What was told already.
    told: BTreeSet<Fingerprint>,
    /// Threads of hangs whose tests were ended: no suite ends because of what an earlier test has left.
    left: BTreeSet<i32>,
    /// The process waits for all of them.
    waits_for_all: bool,
}

/// How several looks agreed on one thing that is wrong.
#[derive(Debug, Clone, Copy)]
struct Agreed {
    /// How many did.
    count: u32,
    /// Since when.
    since: Instant,
    /// When the last of them ended.
    last: Instant,
}

impl Judge {
    /// Nothing seen.
    pub(crate) fn new(now: Instant) -> Judge {
        Judge {
            still_since: None,
            next: now,
            next_still: now,
            next_at_work: now + WHILE_IT_WORKS,
            began: now,
            spent: Duration::ZERO,
            pause: WHILE_STILL.0,
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

    /// The process waits for all that is left, and hangs because of it.
    pub(crate) fn end_with_what_is_left(&mut self) {
        self.waits_for_all = true;
    }

    /// Something else begins, and is to be seen soon where it stands still.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        // What the looks have cost is paid: the next hang is to be found as soon as this one.
        (self.began, self.spent) = (now, Duration::ZERO);
        (self.agreed, self.doubts) = (BTreeMap::new(), 0);
        (self.still_since, self.pause) = (None, WHILE_STILL.0);
        (self.next_still, self.next_at_work) = (now, now + WHILE_IT_WORKS);
    }

    /// What is wrong and has not been told: not what an earlier test has left, unless the main thread waits because of it.
    fn news<'r>(&self, report: &'r Report) -> Vec<Trouble<'r>> {
        let mut all = troubles(report);
        if !self.waits_for_all && self.only_main_waits_for_what_was_left(report) && !main_is_stuck(report) {
            all.retain(|trouble| !self.is_left(trouble));
        }
        all
    }

    /// Whether something that is wrong is what earlier tests have left: their threads, and a main one.
    fn is_left(&self, trouble: &Trouble<'_>) -> bool {
        let mut workers = trouble.workers().peekable();
        workers.peek().is_some() && workers.all(|tid| self.left.contains(&tid))
    }

    /// Whether nobody but main threads has come to wait for what earlier tests have left.
    fn only_main_waits_for_what_was_left(&self, report: &Report) -> bool {
        let is_main = |tid: i32| report.processes.iter().any(|process| process.pid == tid);
        report.victims.iter().all(|victim| is_main(victim.tid) || self.left.contains(&victim.tid))
    }

    /// Whether all that is wrong is what earlier tests have left; others may have come to wait for it.
    pub(crate) fn is_of_before(&self, report: &Report) -> bool {
        let all = troubles(report);
        !all.is_empty() && all.iter().all(|trouble| self.is_left(trouble))
    }

    /// The same, and nobody but the main thread has come to wait for it: there is nothing new to tell.
    pub(crate) fn was_told(&self, report: &Report) -> bool {
        self.is_of_before(report) && self.only_main_waits_for_what_was_left(report)
    }

    /// Take in a sample.
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

    /// Somebody has wanted a processor all the time, and did not get it: that is no standstill of the tree's own.
    pub(crate) fn wants_to_work(&mut self) {
        self.still_since = None;
    }

    /// For how long nothing has made progress.
    pub(crate) fn still_for(&self, now: Instant) -> Duration {
        self.still_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Whether to look now.
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

    /// Take in a look that took `cost`; `None` if it failed.
    pub(crate) fn looked(&mut self, now: Instant, cost: Duration, report: Option<&Report>) -> Decision {
        let least = cost * COST;
        self.spent += cost;
        self.next_at_work = now + WHILE_IT_WORKS.max(least);
        let all = report.map(|report| self.news(report)).unwrap_or_default();
        let Some(report) = report.filter(|_| !all.is_empty()) else {
            self.agreed.clear();
            self.doubts = 0;
            if self.is_still(now) {
                self.next_still = now + self.pause;
                // One that works a little now and then is no hang that needs to be seen at once.
                self.next_at_work = self.next_at_work.max(self.next_still);
                self.pause = (self.pause * 2).min(WHILE_STILL.1);
            }
            return Decision::GoOn;
        };
        self.agree(&all, now, now - cost);
        let shown = |trouble: &Trouble<'_>| {
            let agreed = self.agreed.get(&trouble.fingerprint)?;
            let is_shown = match trouble.is_proven {
                true => agreed.count >= 2,
                false => agreed.count >= 3 && now >= agreed.since + SUSPECTED_AGAIN * 2,
            };
            is_shown.then_some(agreed.since)
        };
        let mut standing: Vec<(&Trouble<'_>, Instant)> =
            all.iter().filter_map(|trouble| Some((trouble, shown(trouble)?))).collect();
        if standing.is_empty() {
            self.doubts += 1;
            let again = if all.iter().any(|trouble| trouble.is_proven) { PROVEN_AGAIN } else { SUSPECTED_AGAIN };
            match self.doubts <= HASTY_LOOKS {
                true => self.next = now + again,
                false => self.look_later(now, least),
            }
            return Decision::GoOn;
        }
        // What has a time-out ends by itself, if not now then later.
        standing.retain(|(trouble, _)| trouble.is_proven || !trouble.ends_by_itself());
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
        let may_go_on = |trouble: &Trouble<'_>| others_work || !trouble.is_proven && report.verdict == Verdict::Stuck;
        let goes_on = |trouble| !self.waits_for_all && may_go_on(trouble) && !main_is_stuck;
        if standing.iter().all(|(trouble, _)| goes_on(trouble)) {
            let told = standing.iter().map(|(trouble, _)| trouble.fingerprint.clone()).collect::<Vec<_>>();
            self.look_later(now, least);
            let news = told.into_iter().filter(|one| self.told.insert(one.clone())).count();
            return if news > 0 { Decision::Beside } else { Decision::GoOn };
        }
        Decision::Over
    }

    /// Count the looks that saw the very same waits, and not just waits of the same threads. `began` is when this look did.
    fn agree(&mut self, all: &[Trouble<'_>], now: Instant, began: Instant) {
        let mut agreed = BTreeMap::new();
        for trouble in all {
            let known = self.agreed.get(&trouble.fingerprint);
            let known = known.filter(|known| trouble.is_proven || trouble.rests(known.last, began));
            let (count, since) = known.map_or((1, now), |known| (known.count + 1, known.since));
            agreed.insert(trouble.fingerprint.clone(), Agreed { count, since, last: now });
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
    // A process ends when its main thread does: who waits for its end waits for that.
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
        let edge = |waiter: i32, holder: i32| json!({"process": "p0", "waiter": waiter, "resource": "r1", "holder_process": "p0", "holder": holder});
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

    /// The decisions of looks as they come due within some seconds, with the time of each in milliseconds.
    fn decisions(report: &Report, sample: &Sample, seconds: u64) -> Vec<(u64, Decision)> {
        let start = Instant::now();
        let mut judge = Judge::new(start);
        let mut all = Vec::new();
        for step in 1..seconds * 5 {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, sample);
            if judge.wants_a_look(now) {
                let decision = judge.looked(now, LOOK, Some(report));
                all.push((step * 200, decision));
                if decision == Decision::Over {
                    break;
                }
            }
        }
        all
    }

    #[test]
    fn a_proven_deadlock_needs_two_looks_and_a_suspected_one_three() {
        let (at, decision) = *decisions(&report("deadlock", "sleeping", 1), &still(), 30).last().expect("a look");
        assert!(decision == Decision::Over && at <= 2_000, "{at}");
        let all = decisions(&report("suspected-deadlock", "sleeping", 1), &still(), 30);
        let (at, decision) = *all.last().expect("a look");
        assert!(decision == Decision::Over && all.len() == 3 && (4_000..8_000).contains(&at), "{all:?}");
    }

    #[test]
    fn what_is_not_proven_has_to_show_the_very_same_waits() {
        let ends = |change: fn(&mut Wait)| {
            let mut report = report("suspected-deadlock", "sleeping", 1);
            report.waits.iter_mut().for_each(change);
            let all = decisions(&report, &still(), 60);
            all.last().map(|(_, decision)| *decision) == Some(Decision::Over)
        };
        assert!(ends(|wait| wait.since_ms = Some(600_000)));
        // Each look meets a wait that began a moment ago: the same threads, and other waits.
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
            let mut judge = Judge::new(start);
            judge.leave_behind(start, &left);
            (1..100).any(|step| {
                let now = start + Duration::from_millis(step * 200);
                judge.sampled(now, &still());
                judge.wants_a_look(now) && judge.looked(now, LOOK, Some(report)) != Decision::GoOn
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
            let mut judge = Judge::new(start);
            judge.leave_behind(start, &stuck(&[2]));
            let report = stuck(&both);
            let over = (1..100).any(|step| {
                let now = start + Duration::from_millis(step * 200);
                judge.sampled(now, &still());
                judge.wants_a_look(now) && judge.looked(now, LOOK, Some(&report)) == Decision::Over
            });
            assert!(over && !judge.was_told(&report), "{both:?}");
            assert!(judge.was_told(&stuck(&[2])));
        }
    }

    #[test]
    fn what_comes_and_goes_hides_nothing_that_stays() {
        let start = Instant::now();
        let mut judge = Judge::new(start);
        let over = (1..100u64).any(|step| {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, &still());
            // Another one beside it, each time.
            let report = stuck(if step % 2 == 0 { &[3] } else { &[1, 3] });
            judge.wants_a_look(now) && judge.looked(now, LOOK, Some(&report)) == Decision::Over
        });
        assert!(over);
    }

    #[test]
    fn what_is_never_shown_twice_is_looked_at_more_and_more_rarely() {
        let start = Instant::now();
        let mut judge = Judge::new(start);
        let mut looks = 0;
        for step in 1..3000u64 {
            let now = start + Duration::from_millis(step * 200);
            judge.sampled(now, &still());
            if judge.wants_a_look(now) {
                looks += 1;
                let report = stuck(&[if looks % 2 == 0 { 1 } else { 2 }]);
                assert_eq!(judge.looked(now, LOOK, Some(&report)), Decision::GoOn);
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
        // At work, each look costs a hundredth at most.
        let all = decisions(&report("running", "running", 1), &busy(), 600);
        assert!(all.len() as u32 * LOOK <= Duration::from_secs(6), "{}", all.len());
    }

    #[test]
    fn a_costly_look_at_work_puts_off_no_look_at_what_stands_still_then() {
        let start = Instant::now();
        let mut judge = Judge::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        // A compiler, say, on a busy machine.
        judge.sampled(at(3200), &busy());
        assert!(judge.wants_a_look(at(3200)));
        judge.looked(at(3600), Duration::from_millis(400), Some(&report("running", "running", 1)));
        for step in 0..10 {
            judge.sampled(at(3800 + step * 200), &busy());
            assert!(!judge.wants_a_look(at(3800 + step * 200)));
        }
        for step in 0..4 {
            judge.sampled(at(6000 + step * 200), &still());
        }
        assert!(judge.wants_a_look(at(6600)));
        // A tree that stands still again and again costs a hundredth in the end all the same.
        let mut looks = 0;
        for step in 0..3000 {
            let (now, stands) = (at(7000 + step * 200), step % 10 < 6);
            judge.sampled(now, &if stands { still() } else { busy() });
            if judge.wants_a_look(now) {
                judge.looked(now, Duration::from_millis(400), Some(&report("blocked", "sleeping", 1)));
                looks += 1;
            }
        }
        assert!(looks * 400 <= 500 + 6000 + 800, "{looks}");
    }

    #[test]
    fn cpu_time_that_waiters_for_a_gil_use_is_no_progress() {
        let start = Instant::now();
        let mut judge = Judge::new(start);
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

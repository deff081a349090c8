//! The decisions on a command, from reports and samples made by hand, second by second.

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

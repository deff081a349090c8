//! Signals and timers, limits of sockets, threads and processes that could wake: they end waits and hold nothing. Each stands beside
//! the same wait without it.

use std::process::Command;

use crate::harness::{Target, compile, wait_until};
use crate::post_mortem::looks;

/// Cases of the program, their verdict, and their finding.
const CASES: &[(&str, &str, Option<&str>)] = &[
    ("files", "deadlock", Some("file-lock-cycle")),
    ("files-handled", "deadlock", Some("file-lock-cycle")),
    ("files-alarm", "blocked", None),
    ("files-timer", "blocked", None),
    ("files-realtime-timer", "blocked", None),
    ("semaphores", "suspected-deadlock", Some("lock-order-cycle")),
    ("semaphores-alarm", "blocked", None),
    ("semaphores-kick", "blocked", None),
    ("semaphores-child-ends", "blocked", None),
    ("semaphores-calls-back", "blocked", None),
    ("forked-with-a-lock", "blocked", None),
    ("poster-without-main", "blocked", None),
    ("child", "deadlock", Some("pipe-cycle")),
    ("child-alarm", "blocked", None),
    ("sockets", "deadlock", Some("pipe-cycle")),
    ("sockets-limited", "suspected-deadlock", Some("pipe-cycle")),
    ("monitor-only", "stuck", Some("nobody-left-to-wake")),
    ("monitor-filling", "blocked", None),
    ("monitor-calling", "blocked", None),
    ("library-thread", "blocked", None),
    ("condition", "stuck", Some("nobody-left-to-wake")),
    ("condition-lives", "blocked", None),
    ("semaphore-nameless", "stuck", Some("nobody-left-to-wake")),
    ("semaphore-named", "blocked", None),
    ("makers", "blocked", None),
    ("set", "blocked", None),
];

/// Until every thread of the target sleeps, seen several times.
fn settle(target: &Target) {
    let is_asleep = |call: &str| !call.is_empty() && !call.starts_with("running");
    let mut seen = 0;
    wait_until("the target comes to its waits", || {
        let tasks =
            target.pids.iter().flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
        let mut calls =
            tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default());
        seen = if calls.all(|call| is_asleep(&call)) { seen + 1 } else { 0 };
        seen >= 20
    });
}

#[test]
fn what_ends_a_wait_without_holding_anything_is_seen() {
    let program = compile("native/still_ended.c", "still_ended", &["-g", "-O1"]);
    for (case, verdict, finding) in CASES {
        let target = Target::start(Command::new(&program).arg(case));
        settle(&target);
        for look in looks(&target) {
            // One that beats may be met at work.
            let is_it = look.verdict() == *verdict || *verdict == "blocked" && look.verdict() == "running";
            assert!(is_it, "{case} is {}:\n{}\n{}", look.verdict(), look.text, look.json["gaps"]);
            assert!(finding.is_none_or(|finding| look.findings().contains(&finding)), "{case}: {}", look.text);
        }
    }
}

//! Tasks and greenlets of libraries beside asyncio: what waits for what in an event loop, and what it may still run.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Look, Target, attach, core, skipped, testdata};
use crate::post_mortem::snapshot;

/// The Python that has these libraries (scripts/check/event-loops).
fn python() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("LOCKSCOPE_EVENT_LOOPS")?).join("python");
    python.exists().then_some(python)
}

/// The names of the cases: the functions of the program that say a truth.
fn cases() -> Vec<String> {
    let source = std::fs::read_to_string(testdata("python/tasks_of_trio.py")).expect("readable");
    let functions = source.split("\ndef ").skip(1).filter_map(|text| text.split_once("():\n    truth("));
    functions.map(|(name, _)| name.to_owned()).collect()
}

/// What is wrong with a look; nothing is `None`.
fn wrong(look: &Look, truth: &Value) -> Option<String> {
    let right = truth["verdicts"].as_array().expect("a list").iter().any(|verdict| verdict == look.verdict());
    let said = look.json.to_string();
    let words = || truth["words"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let missing = || words().find(|word| !look.says(word) && !said.contains(*word));
    match (right, truth["finding"].as_str()) {
        (false, _) => Some(format!("{} is no verdict for it", look.verdict())),
        (true, Some(finding)) if !look.findings().contains(&finding) => Some(format!("no {finding}")),
        _ => missing().map(|word| format!("no {word}")),
    }
}

#[test]
fn tasks_of_trio_and_anyio_are_judged_rightly() {
    let Some(python) = python() else { return skipped!("no Python with trio (LOCKSCOPE_EVENT_LOOPS)") };
    let cases = cases();
    assert!(cases.len() > 45, "{cases:?}");
    for case in cases {
        let program = testdata("python/tasks_of_trio.py");
        let target = Target::start(Command::new(&python).arg(program).arg(&case));
        // One that is a lock of threads sleeps for that; all others come to the loop again and again.
        let said = target.said.iter().find_map(|line| line.strip_prefix("TRUTH ")).expect("a truth");
        let truth: Value = serde_json::from_str(said).expect("valid JSON");
        let target = if case.starts_with("thread_lock") { target.settle(1) } else { target.settle_in_poll() };
        let last = attach(&target.pids, &[]);
        assert_eq!(wrong(&last, &truth), None, "{case}: {}", last.text);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hang.snapshot");
        snapshot(&target.pids, &file, &[]);
        let read = core(&[file], &[]);
        assert_eq!(wrong(&read, &truth), None, "{case} as a snapshot: {}", read.text);
    }
}

#[test]
fn who_runs_greenlets_waits_for_no_connection() {
    let Some(python) = python() else { return skipped!("no Python with gevent (LOCKSCOPE_EVENT_LOOPS)") };
    let target = Target::start(Command::new(python).arg(testdata("python/greenlets.py"))).settle_in_poll();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hang.snapshot");
    let live = attach(&target.pids, &[]);
    snapshot(&target.pids, &file, &[]);
    for look in [live, core(&[file], &[])] {
        assert_eq!(look.code, 0, "{}", look.text);
        assert!(look.says("the loop of gevent's hub"), "{}", look.text);
        assert!(!look.says("a connection to"), "{}", look.text);
        assert!(look.says("greenlet wants") && look.says("greenlets.py:28"), "{}", look.text);
        let holds = look.json["holds"].to_string();
        assert!(holds.contains("keeps has entered its `with` block"), "{holds}");
        assert!(!look.json["gaps"].to_string().contains("greenlets of"), "{}", look.text);
    }
}

#[test]
fn a_ring_of_greenlets_is_told_and_not_proven() {
    let Some(python) = python() else { return skipped!("no Python with gevent (LOCKSCOPE_EVENT_LOOPS)") };
    let mut command = Command::new(python);
    let target = Target::start(command.arg(testdata("python/greenlets.py")).arg("ring")).settle_in_poll();
    let look = attach(&target.pids, &[]);
    assert_eq!(look.verdict(), "blocked", "{}", look.text);
    for line in ["greenlets.py:35", "greenlet both", "greenlet both #2"] {
        assert!(look.says(line), "no {line} in {}", look.text);
    }
    let waits = look.json["waits"].to_string();
    assert!(waits.contains("what the loop of its hub may still call is not read"), "{waits}");
    let of_locks = look.json["holds"].as_array().expect("a list").iter().filter(|hold| hold["proof"] == "recorded");
    assert_eq!(of_locks.count(), 2, "{}", look.json["holds"]);
}

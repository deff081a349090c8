//! `lockscope watch` and the monitor of tests where a look would hold them up: limits hold, and a sampler that is lost is replaced.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::harness::{Target, compile, lockscope, signal_process};
use crate::run::stderr;
use crate::run_hostile::{is_gone, sampler};

/// A healthy process that serves its own memory and answers nobody; `None` where the kernel does not allow it.
fn silent() -> Option<Target> {
    let program = compile("hostile/userfault.c", "userfault", &[]);
    let target = Target::start(Command::new(program).arg("silent"));
    match target.said.iter().find(|line| line.starts_with("IMPOSSIBLE")) {
        Some(line) => {
            crate::harness::skipped!("{}", line.trim());
            None
        }
        None => Some(target),
    }
}

fn watch(words: &[&str], pid: i32) -> Child {
    let mut watch = lockscope();
    watch.arg("watch").args(words).arg(pid.to_string()).env_remove("LOCKSCOPE").stdin(Stdio::null());
    watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn a_watch_keeps_its_limit_while_a_look_hangs() {
    let Some(target) = silent() else { return };
    let child = watch(&["--timeout", "3s"], target.pid());
    let sampler = sampler(child.id());
    // It cannot end by itself any more.
    signal_process(sampler, "STOP");
    let output = child.wait_with_output().expect("ends");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("has run for the time given by --timeout"), "{text}");
    assert!(is_gone(sampler) && !is_gone(target.pid()), "{text}");
}

#[test]
fn a_watch_goes_on_with_another_looker() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("abba"));
    let child = watch(&[], target.pid());
    signal_process(sampler(child.id()), "KILL");
    let output = child.wait_with_output().expect("ends");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ended by SIGKILL; process") && text.contains("deadlock: "), "{text}");
}

#[test]
fn a_watch_ends_with_what_it_watches_while_a_look_hangs() {
    let Some(target) = silent() else { return };
    let child = watch(&[], target.pid());
    let sampler = sampler(child.id());
    signal_process(sampler, "STOP");
    drop(target);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(is_gone(sampler));
}

#[test]
fn a_test_has_its_time_limit_while_a_look_hangs() {
    let Some(mut target) = silent() else { return };
    let mut monitor = lockscope();
    monitor.args(["monitor", "--of", &target.pid().to_string()]).env_remove("LOCKSCOPE");
    monitor.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = monitor.spawn().expect("it starts");
    let mut answers = BufReader::new(child.stdout.take().expect("piped"));
    let mut answer = || {
        let mut line = String::new();
        answers.read_line(&mut line).expect("a line");
        serde_json::from_str::<serde_json::Value>(&line).expect("JSON")
    };
    let pid = answer()["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("its id");
    let mut lines = child.stdin.take().expect("piped");
    lines.write_all(b"{\"event\":\"ready\"}\n").expect("written");
    assert_eq!(answer()["may_look"], true);
    lines.write_all(b"{\"event\":\"start\",\"test\":\"a.py::first\",\"timeout\":3}\n").expect("written");
    signal_process(sampler(pid), "STOP");
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("readable");
    assert!(text.contains("a.py::first has run for longer than its time limit"), "{text}");
    assert!(text.contains("did not come to its end within"), "{text}");
    target.status();
    child.wait().expect("reaped");
}

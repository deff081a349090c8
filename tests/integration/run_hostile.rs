//! `lockscope run` where something would hold it up or fool it: limits and signals hold, and the command notices nothing.

use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{compile, lockscope, own_program, signal_process, status_field, wait_until};
use crate::run::{in_a_group, run, stderr};

fn name_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The process that looks for a `lockscope run`, `watch` or `monitor`.
fn looker_of(run: u32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    children.into_iter().find(|pid| name_of(*pid) == "lockscope-look")
}

/// It takes its name while the command begins already.
pub(crate) fn sampler(run: u32) -> i32 {
    wait_until("somebody looks", || looker_of(run).is_some());
    looker_of(run).expect("one that looks")
}

pub(crate) fn is_gone(pid: i32) -> bool {
    let state = status_field(pid, pid, "State").unwrap_or_default();
    state.is_empty() || state.starts_with('Z')
}

#[test]
fn signals_without_a_name_end_it_too() {
    for signal in [34, 40, 64] {
        let output = run(&[], &["bash", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.code(), Some(128 + signal), "{}", stderr(&output));
    }
}

#[test]
fn nothing_lives_on_after_a_kill_at_the_very_start() {
    for _ in 0..20 {
        let (mut child, _output, pid) = in_a_group(&["--", "sh", "-c", "echo READY $$; exec sleep 1000"]);
        child.kill().expect("it is there");
        child.wait().expect("it ends");
        wait_until("the command ends too", || is_gone(pid));
    }
    // Also where the command has said nothing yet: it begins only when somebody watches over it.
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..20 {
        let file = folder.path().join(format!("pid-{round}"));
        let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
        let mut run = lockscope();
        run.args(["run", "--", "sh", "-c", &script]).env_remove("LOCKSCOPE").stdin(Stdio::null());
        let mut child = run.spawn().expect("it starts");
        std::thread::park_timeout(std::time::Duration::from_micros(500 * round));
        child.kill().expect("it is there");
        child.wait().expect("it ends");
        let pid = || std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        wait_until("the command ends too", || pid().is_none_or(is_gone));
    }
}

#[test]
fn limits_and_signals_hold_while_a_look_hangs() {
    for (options, signal, status) in
        [(&["--timeout", "1s"][..], None, 124), (&[], Some("TERM"), 143), (&[], Some("INT"), 130)]
    {
        // Whoever runs the tests in the background may have these ignored, which a shell cannot undo.
        let command = ["--", "env", "--default-signal=INT,TERM", "sh", "-c", "echo READY $$; exec sleep 100"];
        let words = [options, &command].concat();
        let (child, _output, pid) = in_a_group(&words);
        signal_process(sampler(child.id()), "STOP");
        if let Some(signal) = signal {
            signal_process(child.id() as i32, signal);
        }
        let output = child.wait_with_output().expect("ends");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert_eq!(text.contains("did not come to its end"), signal != Some("INT"), "{text}");
        assert!(is_gone(pid));
    }
}

#[test]
fn what_becomes_of_the_one_that_looks_is_not_the_commands_business() {
    for _ in 0..3 {
        let mut run = lockscope();
        run.args(["run", "--", "sh", "-c", "echo READY; read line; exit 7"]).env_remove("LOCKSCOPE");
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = run.spawn().expect("it starts");
        let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut String::new()).expect("a line");
        let sampler = sampler(child.id());
        // As the kernel does when memory runs out.
        signal_process(sampler, "KILL");
        wait_until("it is gone", || is_gone(sampler) && name_of(sampler).is_empty());
        // It is said of a command that goes on: this one is kept until then.
        let mut said = std::io::BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert!(line.contains("ended by SIGKILL; `sh` goes on"), "{line}");
        drop(child.stdin.take());
        std::io::Read::read_to_string(&mut said, &mut line).expect("readable");
        assert_eq!(child.wait().expect("ends").code(), Some(7), "{line}");
    }
}

#[test]
fn a_hang_is_found_also_by_the_second_one_that_looks() {
    if !crate::harness::is_root() {
        return println!("skipped: Yama may let only ancestors look");
    }
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]).display().to_string();
    let (child, _output, _) = in_a_group(&["--", "sh", "-c", &format!("echo READY $$; exec {deadlocks} abba")]);
    signal_process(sampler(child.id()), "KILL");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    assert!(stderr(&output).contains("deadlock: "), "{}", stderr(&output));
}

#[test]
fn a_name_of_lockscopes_own_hides_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["lockscope-guard", "lockscope-look"] {
        let program = folder.path().join(name);
        std::fs::copy(compile("native/deadlocks.c", "deadlocks", &[]), &program).expect("copied");
        let output = run(&[], &[&program.display().to_string(), "abba"]);
        assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
        assert!(stderr(&output).contains("deadlock: "), "{}", stderr(&output));
    }
}

#[test]
fn without_proc_the_command_ends_all_the_same() {
    if !crate::harness::is_root() {
        return println!("skipped: to hide /proc needs root");
    }
    let own = own_program();
    let hidden = |options: &str, script: &str| {
        let words = format!(
            "mount --make-rprivate / && mount -t tmpfs none /proc && exec {own} run {options} -- sh -c '{script}'"
        );
        Command::new("unshare").args(["-m", "sh", "-c", &words]).env_remove("LOCKSCOPE").output().expect("it runs")
    };
    let output = hidden("", "exit 5");
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    // It says its id in this namespace of processes, which is ours.
    let output = hidden("--timeout 1s", "echo $$; exec sleep 1000");
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let pid = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    wait_until("the command ends", || is_gone(pid));
}

#[test]
fn healthy_commands_whose_libraries_change_under_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = compile("hostile/library.c", "library.so", &["-shared", "-fPIC"]);
    let waits_in = compile("hostile/waits_in.c", "waits_in", &["-ldl"]).display().to_string();
    let start = |number: u32| {
        let own = folder.path().join(format!("library-{number}.so"));
        std::fs::copy(&library, &own).expect("copied");
        let mut run = lockscope();
        run.args(["run", "--", "timeout", "2", &waits_in, &own.display().to_string(), "rewritten"]);
        run.env_remove("LOCKSCOPE").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    // 40, as many at a time as a machine of few processors looks at: each stands still and is looked at after 0.6 s.
    for first in (0..40).step_by(10) {
        let runs: Vec<_> = (first..first + 10).map(start).collect();
        for run in runs {
            let output = run.wait_with_output().expect("ends");
            // The status of timeout itself.
            assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
            assert!(!stderr(&output).contains("lockscope"), "{}", stderr(&output));
        }
    }
    assert!(Path::new(&folder.path().join("library-0.so")).exists());
}

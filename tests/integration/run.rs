//! `lockscope run` and `watch`: exit statuses, hangs that end by themselves, healthy commands that notice nothing.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;

use crate::harness::{Target, compile, lockscope, own_program, signal_process, status_field, threads, wait_until};

pub(crate) fn run(options: &[&str], command: &[&str]) -> Output {
    let mut run = lockscope();
    run.arg("run").args(options).arg("--").args(command).env_remove("LOCKSCOPE").output().expect("it runs")
}

/// What it says of itself.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_status_of_a_command_is_passed_on() {
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/nonexistent/command"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let output = run(&[], command);
        assert_eq!(output.status.code(), Some(status), "{command:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
        assert_eq!(output.stderr.is_empty(), !matches!(status, 126 | 127), "{command:?}: {}", stderr(&output));
    }
    // As timeout(1) and env(1) do: any other status could be the command's.
    assert_eq!(
        lockscope().args(["run", "--timeout", "x", "--", "true"]).output().expect("runs").status.code(),
        Some(125)
    );
}

#[test]
fn output_and_input_are_the_commands_own() {
    let mut run = lockscope();
    run.args(["run", "--", "sh", "-c", "cat; echo to stderr >&2"]).env_remove("LOCKSCOPE");
    let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"through\n").expect("written");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (b"through\n".as_slice(), b"to stderr\n".as_slice())
    );
}

#[test]
fn a_deadlock_is_ended_and_reported() {
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]);
    let program = deadlocks.display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let reports = folder.path().join("new/reports");
    // Beneath a shell, as test suites are.
    let script = format!("{program} abba; echo not reached");
    let output = run(&["--report-dir", &reports.display().to_string()], &["sh", "-c", &script]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(124), "{text}");
    for words in ["`sh` hangs", "deadlock: ", "lock-order-cycle", "hang-", "reports: "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!String::from_utf8_lossy(&output.stdout).contains("not reached"));
    let mut endings: Vec<String> = std::fs::read_dir(&reports)
        .expect("made")
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.split_once('.')?.1.to_owned()))
        .collect();
    endings.sort();
    assert_eq!(endings, ["html", "json", "md", "snapshot.zst", "txt", "xml"]);
}

#[test]
fn time_limits_end_what_is_no_deadlock() {
    for (option, words) in [("--timeout", "--timeout"), ("--hang-after", "no progress")] {
        let output = run(&[option, "1s"], &["sleep", "100"]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(124), "{text}");
        assert!(text.contains(words) && text.contains("waits for a timer"), "{text}");
    }
    // Who works makes progress, however long.
    let output = run(&["--hang-after", "1s"], &["timeout", "4", "sh", "-c", "while :; do :; done"]);
    assert_eq!(output.status.code(), Some(124), "the status of timeout itself");
    assert!(!stderr(&output).contains("lockscope"), "{}", stderr(&output));
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_with_all_that_it_started() {
    let script = "trap '' TERM; (trap '' TERM; setsid sleep 1000) & echo $!; wait; sleep 1000";
    let output = run(&["--timeout", "1s", "--kill-after", "1s"], &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let pid = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!pid.is_empty() && !Path::new(&format!("/proc/{pid}")).exists(), "{pid} lives");
}

#[test]
fn signals_reach_the_command_and_the_last_look_is_taken() {
    let mut run = lockscope();
    run.args(["run", "--", "sh", "-c", "trap 'exit 5' TERM; echo READY; while :; do sleep 0.1; done"]);
    run.env_remove("LOCKSCOPE").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    signal_process(child.id() as i32, "TERM");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(stderr(&output).contains("ended from outside"), "{}", stderr(&output));
}

#[test]
fn a_run_inside_a_run_steps_back() {
    let own = own_program();
    let output = run(&[], &[own, "run", "--timeout", "1ms", "--", "sh", "-c", "echo $PPID; sleep 0.5; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn a_report_directory_that_cannot_be_is_said_at_once() {
    let output = run(&["--report-dir", "/proc/no/such"], &["sh", "-c", "echo started"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty() && stderr(&output).contains("cannot write to"), "{}", stderr(&output));
}

#[test]
fn a_running_process_is_watched_and_left_alone() {
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(&deadlocks).arg("abba")).settle(3);
    let output = lockscope().args(["watch", &target.pid().to_string()]).output().expect("runs");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("deadlock: "), "{}", stderr(&output));
    assert_eq!(status_field(target.pid(), target.pid(), "TracerPid").as_deref(), Some("0"));
    assert!(!threads(target.pid()).is_empty());

    let mut short = Command::new("sleep").arg("1").spawn().expect("starts");
    let mut watch = lockscope();
    watch.args(["watch", &short.id().to_string()]).stderr(Stdio::piped());
    let watched = watch.spawn().expect("runs");
    short.wait().expect("ends");
    let output = watched.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    wait_until("it is gone", || !Path::new(&format!("/proc/{}", short.id())).exists());
    let output = lockscope().args(["watch", "999999999"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
}

/// What a command does to its own place in the world hides no hang.
#[test]
fn output_closed_groups_changed_and_parents_gone_hide_nothing() {
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]).display().to_string();
    for script in [
        format!("exec >&- 2>&-; exec {deadlocks} abba"),
        format!("setsid {deadlocks} abba"),
        // Its parent ends at once, so that it is nobody's child but lockscope's.
        format!("(setsid {deadlocks} abba >/dev/null 2>&1 &); exec sleep 1000"),
    ] {
        let output = run(&[], &["sh", "-c", &script]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(124), "{script}: {text}");
        assert!(text.contains("deadlock: ") && text.contains("lock-order-cycle"), "{script}: {text}");
    }
}

#[test]
fn a_process_with_a_debugger_is_the_debuggers() {
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]).display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let reports = folder.path().display().to_string();
    let gdb = ["gdb", "-q", "-batch", "-nx", "-ex", "run", "--args", &deadlocks, "abba"];
    let output = run(&["--timeout", "4s", "--report-dir", &reports], &gdb);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(124), "{text}");
    // Of the debugger there is a report all the same, which says what is not in it.
    for words in ["given by --timeout", "gdb", "it is traced by gdb", "reports: "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let files = std::fs::read_dir(folder.path()).expect("a folder").flatten();
    let endings: Vec<String> = files.filter_map(|file| Some(file.path().extension()?.to_str()?.to_owned())).collect();
    assert!(["txt", "html", "json", "zst"].iter().all(|one| endings.iter().any(|ending| ending == one)), "{endings:?}");
}

#[test]
fn thousands_of_processes_pass_through() {
    let program = compile("native/many_processes.c", "many_processes", &[]);
    let output = run(&[], &[&program.display().to_string(), "4000"]);
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    assert!(!stderr(&output).contains("lockscope"), "{}", stderr(&output));
}

/// Runs what leads a group, and has said "READY" and a process id.
pub(crate) fn in_a_group(words: &[&str]) -> (std::process::Child, BufReader<std::process::ChildStdout>, i32) {
    use std::os::unix::process::CommandExt;
    let mut run = lockscope();
    run.arg("run").args(words).env_remove("LOCKSCOPE").process_group(0);
    let mut child = run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let pid = line.trim().strip_prefix("READY ").and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    (child, output, pid)
}

fn signal_group(leader: u32, signal: Signal) {
    nix::sys::signal::killpg(nix::unistd::Pid::from_raw(leader as i32), signal).expect("it is there");
}

#[test]
fn who_ends_the_whole_group_gets_the_last_look_first() {
    let (child, _output, pid) = in_a_group(&["--", "sh", "-c", "echo READY $$; exec sleep 1000"]);
    // As cargo-nextest, Slurm and torchrun do.
    signal_group(child.id(), Signal::SIGTERM);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("ended from outside") && text.contains("waits for a timer"), "{text}");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn what_ignores_a_signal_from_outside_is_killed_where_the_user_says_so() {
    let script = "trap '' TERM; echo READY $$; while :; do sleep 0.1; done";
    let (child, _output, _) = in_a_group(&["--kill-after", "300ms", "--", "sh", "-c", script]);
    signal_process(child.id() as i32, "TERM");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(137), "{}", stderr(&output));
}

#[test]
fn a_killed_lockscope_takes_the_command_along() {
    let (mut child, _output, pid) = in_a_group(&["--", "sh", "-c", "sleep 1000 & echo READY $!; wait"]);
    signal_process(child.id() as i32, "KILL");
    child.wait().expect("ends");
    let state = || status_field(pid, pid, "State").unwrap_or_default();
    wait_until("the command ends too", || state().is_empty() || state().starts_with('Z'));
}

#[test]
fn what_is_stopped_stops_and_goes_on() {
    // No child of it: dash starts one by vfork(2), and waits for it in state D where the signal stops that one before execve(2).
    let (child, _output, pid) = in_a_group(&["--", "sh", "-c", "echo READY $$; exec sleep 1000"]);
    let own = child.id() as i32;
    let stopped = |pid| status_field(pid, pid, "State").is_some_and(|state| state.starts_with('T'));
    signal_group(child.id(), Signal::SIGTSTP);
    wait_until("both stop", || stopped(own) && stopped(pid));
    signal_group(child.id(), Signal::SIGCONT);
    wait_until("both go on", || !stopped(own) && !stopped(pid));
    signal_group(child.id(), Signal::SIGTERM);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
}

//! What cannot be looked at: one clear sentence, exit status 2, and a target that goes on as before.

use std::process::{Command, Stdio};

use crate::harness::{Target, compile, lockscope, own_program, signal_process, status_field, threads, wait_until};

fn refusal(pid: &str) -> (i32, String) {
    let output = lockscope().args(["attach", pid]).output().expect("lockscope runs");
    assert!(output.stdout.is_empty(), "a report in spite of an error");
    (output.status.code().expect("a status"), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_is_no_process() {
    let mut child = Command::new("true").spawn().expect("true runs");
    child.wait().expect("reaped");
    let (code, text) = refusal(&child.id().to_string());
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("there is no process"), "{text}");
    for word in ["x", "-5", "99999999999999"] {
        assert_eq!(refusal(word).0, 2, "{word}");
    }
}

#[test]
fn a_kernel_thread() {
    let is_kernel_thread = std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
    if !is_kernel_thread {
        return crate::harness::skipped!("no kernel threads in this PID namespace");
    }
    let (code, text) = refusal("2");
    assert_eq!(code, 2);
    assert!(text.contains("thread of the kernel"), "{text}");
}

#[test]
fn a_process_that_is_traced_already() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("idle-workers")).settle(4);
    let mut tracer = Command::new("gdb")
        .args(["-q", "-nx", "-p", &target.pid().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("gdb runs");
    let pid = target.pid();
    wait_until("gdb attaches", || status_field(pid, pid, "TracerPid").is_some_and(|t| t != "0"));
    let (code, text) = refusal(&pid.to_string());
    tracer.kill().expect("gdb ends");
    tracer.wait().expect("reaped");
    assert_eq!(code, 2);
    assert!(text.contains("gdb") && text.contains(&tracer.id().to_string()), "{text}");
}

#[test]
fn a_process_of_another_user() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("idle-workers")).settle(4);
    let own = std::fs::read_to_string("/proc/self/status").expect("readable");
    if !own.lines().any(|l| l.starts_with("Uid:\t0\t")) {
        return crate::harness::skipped!("only root can become another user");
    }
    // The binary may lie where that user cannot go: a copy does not.
    let copy = std::env::temp_dir().join(format!("lockscope-unprivileged-{}", std::process::id()));
    std::fs::copy(own_program(), &copy).expect("copied");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["attach", &target.pid().to_string()])
        .output()
        .expect("setpriv runs");
    std::fs::remove_file(&copy).expect("removed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("user 0") && text.contains("CAP_SYS_PTRACE"), "{text}");
}

#[test]
fn of_several_processes_one_that_is_gone_is_a_gap() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("abba")).settle(3);
    let mut gone = Command::new("true").spawn().expect("true runs");
    gone.wait().expect("reaped");
    let look = crate::harness::attach(&[target.pid(), gone.id() as i32], &[]);
    assert_eq!((look.verdict(), look.code), ("deadlock", 1));
    let gaps = look.json["gaps"].to_string();
    assert!(gaps.contains(&gone.id().to_string()), "{gaps}");
}

#[test]
fn a_stopped_process_stays_stopped() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("idle-workers")).settle(4);
    let pid = target.pid();
    signal_process(pid, "STOP");
    let all_stopped =
        || threads(pid).iter().all(|t| status_field(pid, *t, "State").is_some_and(|s| s.starts_with('T')));
    wait_until("the target stops", all_stopped);
    let look = crate::harness::attach(&[pid], &[]);
    assert!(look.findings().contains(&"traced-or-stopped"), "{}", look.text);
    wait_until("the target is stopped as before", all_stopped);
}

//! A command finds the same under `lockscope run` as alone: signals, limits, descriptors, its parent's end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use crate::harness::{is_root, lockscope, own_program, signal_process, wait_until};
use crate::run::{run, stderr};
use crate::run_hostile::{is_gone, sampler};

/// A script of bash, which sets its own surroundings before it becomes lockscope.
fn bash(script: &str) -> Output {
    Command::new("bash").args(["-c", script]).env_remove("LOCKSCOPE").output().expect("bash runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_caller_that_ignores_the_end_of_children_changes_nothing() {
    let own = own_program();
    for _ in 0..3 {
        let output = bash(&format!("trap '' CHLD; exec {own} run --timeout 60 -- sh -c 'exit 3'"));
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    }
}

/// Each way in which a caller may leave its surroundings, and all of them together.
#[test]
fn a_command_finds_all_as_the_caller_left_it() {
    let own = own_program();
    const ASK: &str = "grep -E '^(Sig(Blk|Ign|Cgt)|Threads|NoNewPrivs|Seccomp)' /proc/self/status; ulimit -a; nice; umask; \
                       for file in /proc/self/fd/*; do echo ${file##*/} $(readlink $file); done | grep -v pipe:; pwd";
    let ways = [
        ":",
        "trap '' PIPE",
        "trap '' CHLD",
        "trap '' XFSZ HUP INT TERM USR1 TTOU",
        "ulimit -n 64; ulimit -c 0; ulimit -s 4096",
        "nice_me=5; umask 027",
        "exec 7</dev/null 9>/dev/null",
        "exec 0<&-",
        "exec 0<&- 2>&-",
    ];
    let all = ways[..7].join("; ");
    for way in ways.into_iter().chain([all.as_str()]) {
        let asked = |command: &str| {
            let script = format!("cd /; {way}; exec nice -n ${{nice_me:-0}} {command} bash -c \"$ASK\"");
            let mut bash = Command::new("bash");
            stdout(&bash.args(["-c", &script]).env("ASK", ASK).env_remove("LOCKSCOPE").output().expect("bash runs"))
        };
        let (alone, watched) = (asked("env"), asked(&format!("{own} run --")));
        assert!(alone.contains("SigIgn"), "{alone}");
        assert_eq!(watched, alone, "after {way}");
    }
}

/// `setpriv --pdeathsig` leaves the signal set for the program that it becomes.
fn outlives_the_one_that_looks(before: &str) {
    let own = own_program();
    let command = "exec setpriv --pdeathsig TERM sh -c 'echo READY; read line; exit 7'";
    let script = format!("{before} {own} run -- sh -c \"{command}\"");
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", &script]).env_remove("LOCKSCOPE");
    let mut child =
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "READY\n");
    let looker = sampler(child.id());
    signal_process(looker, "KILL");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    // With this line the sampler's children have another parent.
    let mut text = String::new();
    said.read_line(&mut text).expect("a line");
    wait_until("it is gone", || is_gone(looker));
    drop(child.stdin.take());
    said.read_to_string(&mut text).expect("readable");
    assert_eq!(child.wait().expect("ends").code(), Some(7), "{text}");
    assert!(text.contains("goes on"), "{text}");
}

#[test]
fn a_command_that_ends_with_its_parent_outlives_the_one_that_looks() {
    if !is_root() {
        return crate::harness::skipped!("another namespace of mounts needs root");
    }
    for _ in 0..3 {
        outlives_the_one_that_looks("exec");
        // Yama lets only ancestors look, and lockscope has no capability against that.
        outlives_the_one_that_looks(
            "mount --make-rprivate / && mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && \
             echo 1 > /proc/sys/kernel/yama/ptrace_scope && exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace",
        );
    }
}

#[test]
fn programs_of_another_user_say_nothing_of_the_recorder() {
    if !is_root() {
        return crate::harness::skipped!("to become another user needs root");
    }
    for command in [
        &["su", "nobody", "-s", "/bin/sh", "-c", "exit 4"][..],
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "sh -c 'exit 4'"],
    ] {
        let output = run(&["--record"], command);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(4), ""), "{command:?}");
    }
}

#[test]
fn an_inner_run_says_that_its_options_have_no_effect() {
    let own = own_program();
    let output = run(&[], &[own, "run", "--timeout", "2", "--junit", "in.xml", "--", "sh", "-c", "exit 5"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(stderr(&output).contains("the options of this one have no effect"), "{}", stderr(&output));
    // Without options there is nothing to say.
    let output = run(&[], &[own, "run", "--", "sh", "-c", "exit 5"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(5), ""));
}

/// Left in a shell by a run that is over, of a process whose id another one has now, or by hand.
#[test]
fn a_mark_without_a_living_supervisor_hides_nothing() {
    for mark in ["1", "", "1:1", &format!("{}:7", std::process::id()), "x:y"] {
        let mut run = lockscope();
        run.args(["run", "--timeout", "1", "--", "sleep", "60"]).env("LOCKSCOPE", mark);
        let output = run.output().expect("it runs");
        assert_eq!(output.status.code(), Some(124), "{mark}: {}", stderr(&output));
    }
}

#[test]
fn few_descriptors_and_an_empty_name_of_a_folder_are_no_reason_to_fail() {
    let own = own_program();
    for most in [8, 10, 12, 16, 24] {
        let output = bash(&format!("ulimit -n {most}; exec {own} run -- sh -c 'exit 6'"));
        assert_eq!(output.status.code(), Some(6), "{most}: {}", stderr(&output));
    }
    let output = lockscope().args(["run", "--", "true"]).env("LOCKSCOPE_REPORT_DIR", "").output().expect("it runs");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn few_processes_are_no_reason_to_fail() {
    let own = own_program();
    if !is_root() {
        return crate::harness::skipped!("a user without other processes needs root");
    }
    const USER: &str = "setpriv --reuid=64999 --regid=64999 --clear-groups";
    if !bash(&format!("exec {USER} {own} --version")).status.success() {
        return crate::harness::skipped!("another user cannot run this lockscope");
    }
    for most in 1..4 {
        let output = bash(&format!("exec {USER} bash -c \"ulimit -u {most}; exec {own} run -- sh -c 'exit 6'\""));
        assert_eq!(output.status.code(), Some(6), "{most}: {}", stderr(&output));
    }
}

/// Private memory of a process, in KiB: what counts in its control group whoever else maps the program.
fn private(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn watching_takes_little_memory_while_nothing_hangs() {
    const MOST: u64 = 16 << 10;
    let mut run = lockscope();
    run.args(["run", "--", "sleep", "1000"]).env_remove("LOCKSCOPE").stdin(Stdio::null());
    let mut child = run.spawn().expect("it starts");
    let (own, looker) = (child.id(), sampler(child.id()) as u32);
    // Its copier may be left as a zombie.
    let is_looking = || children(looker).into_iter().any(|pid| !is_gone(pid as i32));
    wait_until("it looks", || !children(looker).is_empty());
    wait_until("it has looked", || !is_looking());
    let all = || std::iter::once(own).chain(children(own)).filter(|pid| !is_sleep(*pid)).map(private).sum::<u64>();
    wait_until("it gives back what it needed", || (1..=MOST).contains(&all()));
    signal_process(own as i32, "TERM");
    assert_eq!(child.wait().expect("ends").code(), Some(143));
}

fn is_sleep(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
}

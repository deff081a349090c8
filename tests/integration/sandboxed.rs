//! Programs with a seccomp filter that knows no call but their own: nothing that lockscope does makes them call anything else.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Target, compile, lockscope, status_field};
use crate::run::{run, stderr};

fn program() -> PathBuf {
    compile("hostile/sandboxed.c", "sandboxed", &[])
}

/// A stop ends nanosleep and poll, and the kernel goes on with them by another call.
#[test]
fn a_look_ends_no_program_that_may_not_restart_its_calls() {
    for case in ["asleep", "busy"] {
        for how in [&[][..], &["--stop"]] {
            for _ in 0..3 {
                let mut target = Target::start(Command::new(program()).arg(case));
                let pid = target.pid();
                for _ in 0..3 {
                    let output = lockscope().arg("attach").args(how).arg(pid.to_string()).output().expect("it runs");
                    assert_eq!(output.status.code(), Some(0), "{case} {how:?}: {}", stderr(&output));
                }
                // Where the kernel goes on by another call, the first thread that does ends the process.
                let state = status_field(pid, pid, "State").unwrap_or_default();
                assert!(
                    !state.is_empty() && !state.starts_with('Z'),
                    "{case} {how:?}: it was ended: {:?}",
                    target.status()
                );
            }
        }
    }
}

#[test]
fn a_sandboxed_command_keeps_its_status() {
    for _ in 0..2 {
        let output = run(&[], &[&program().display().to_string(), "ends"]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(7), ""));
    }
}

/// A filter that the program began with, and one that it sets past the C library: both are seen in time.
#[test]
fn the_recorder_sees_filters_that_it_was_not_told_of() {
    for case in ["inherits", "raw"] {
        let words = [&program().display().to_string(), case];
        let alone = Command::new(words[0]).arg(case).status().expect("it runs");
        assert_eq!(alone.code(), Some(7), "{case}");
        for _ in 0..3 {
            let output = run(&["--record"], &words);
            assert_eq!(output.status.code(), Some(7), "{case}: {}", stderr(&output));
        }
    }
}

/// It asks for nothing after the filter is there, neither for the id of a thread nor for room in its file.
#[test]
fn the_recorder_calls_nothing_behind_a_filter() {
    for _ in 0..3 {
        let output = run(&["--record"], &[&program().display().to_string(), "records"]);
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        // Its modules cannot be written down behind the filter either, and a line says so.
        let said = stderr(&output);
        assert!(said.lines().all(|line| line.contains("not all was recorded")), "{said}");
    }
}

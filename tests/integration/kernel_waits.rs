//! Waits that the kernel knows, and locks that record no owner: live and from a snapshot.

use std::io::Read;
use std::process::Command;

use crate::harness::{Look, Target, attach, compile, core, wait_until};
use crate::post_mortem::snapshot;

/// Wait until each process of the target sleeps in one of these system calls, seen several times.
fn asleep_in(target: &Target, calls: &[&str]) {
    let mut seen = 0;
    wait_until("the target comes to its waits", || {
        let asleep = target.pids.iter().all(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            calls.iter().any(|call| line.starts_with(&format!("{call} ")))
        });
        seen = if asleep { seen + 1 } else { 0 };
        seen >= 10
    });
}

fn start(case: &str, folder: &std::path::Path) -> Target {
    let program = compile("native/kernel_waits.c", "kernel_waits", &[]);
    Target::start(Command::new(program).arg(case).arg(folder))
}

/// The living processes, and a snapshot of them, which must say the same.
fn looks(target: &Target) -> [Look; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hang.snapshot");
    let live = attach(&target.pids, &[]);
    snapshot(&target.pids, &file, &[]);
    [live, core(&[file], &[])]
}

#[test]
fn pipes_and_file_locks_between_processes() {
    for (case, calls, finding, words) in [
        ("both-write", &["1"][..], "pipe-cycle", &["send_all", "is to read from pipe:["][..]),
        ("waits-for-writer", &["1", "61"], "pipe-cycle", &["send_all", "waits_for_writer", "child process"]),
        ("two-files", &["73"], "file-lock-cycle", &["jobs.lock", "status.lock", "/proc/locks"]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let target = start(case, folder.path());
        asleep_in(&target, calls);
        for look in looks(&target) {
            assert_eq!(look.verdict(), "deadlock", "{case}: {}", look.text);
            assert_eq!(look.findings(), [finding], "{case}");
            assert_eq!(look.json["cycles"][0]["edges"].as_array().map(Vec::len), Some(2), "{case}");
            for word in words {
                assert!(look.text.contains(word), "{case}: no {word} in\n{}", look.text);
            }
        }
    }
}

#[test]
fn of_a_cycle_through_a_process_that_was_not_captured_the_gap_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start("both-write", folder.path());
    asleep_in(&target, &["1"]);
    let look = attach(&target.pids[..1], &[]);
    assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    assert!(look.text.contains(&format!("({})", target.pids[1])), "{}", look.text);
}

#[test]
fn a_pipe_that_only_its_reader_could_write_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start("own-pipe", folder.path());
    asleep_in(&target, &["0"]);
    for look in looks(&target) {
        assert_eq!((look.verdict(), look.code), ("stuck", 1), "{}", look.text);
        assert_eq!(look.findings(), ["pipe-without-writer"]);
        assert!(look.text.contains("neither data nor its end can ever come"), "{}", look.text);
    }
}

#[test]
fn an_arena_whose_owner_fork_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start("allocates-after-fork", folder.path());
    if target.pids == [0] {
        return println!("skip: this C library has no _Fork");
    }
    for look in looks(&target) {
        assert_eq!(look.verdict(), "orphaned-lock", "{}", look.text);
        assert_eq!(look.findings(), ["fork-orphaned-lock"]);
        assert!(look.text.contains("allocates_after_fork") && look.text.contains("malloc"), "{}", look.text);
    }
}

#[test]
fn static_variables_whose_initialisers_wait_for_each_other() {
    for (name, flags) in [("initialisers", &["-O0"][..]), ("initialisers-optimised", &["-O2"])] {
        let flags: Vec<&str> = flags.iter().copied().chain(["-lstdc++"]).collect();
        let target = Target::start(&mut Command::new(compile("native/initialisers.cpp", name, &flags))).settle(3);
        for look in looks(&target) {
            assert_eq!(look.verdict(), "suspected-deadlock", "{name}: {}", look.text);
            assert_eq!(look.findings(), ["static-init-cycle"], "{name}");
            assert_eq!(look.cycles(), [["draw", "layout"]], "{name}");
            assert!(look.text.contains("the_palette") && look.text.contains("the_fonts"), "{name}: {}", look.text);
        }
    }
}

#[test]
fn a_look_cuts_no_write_short() {
    let program = compile("native/kernel_waits.c", "kernel_waits", &[]);
    let mut target = Target::start(Command::new(program).arg("one-write"));
    asleep_in(&target, &["1"]);
    for _ in 0..10 {
        let look = attach(&target.pids, &[]);
        assert!(look.text.contains("write"), "{}", look.text);
    }
    let mut rest = Vec::new();
    target.output.read_to_end(&mut rest).expect("readable");
    assert_eq!(rest.len(), 1 << 20);
    assert_eq!(target.status(), Some(0), "the write returned less than it was given");
}

//! Locks that live in a manager of multiprocessing: which client has one, or had one when it ended.

use crate::harness::{Look, Target, attach, core, testdata};
use crate::post_mortem::{essence, snapshot};
use crate::python::Python;
use crate::python_locks::pythons;

/// The case, and how many threads sleep in a futex: the manager waits for its end so, and each lock's waiters do.
fn start(python: &Python, case: &str, asleep: usize) -> (tempfile::TempDir, Target) {
    let (folder, mut command) = python.in_a_folder();
    command.arg(python.sees(&testdata("python/managers.py"))).arg(case);
    (folder, Target::start(&mut command).settle(asleep))
}

/// A live look, and one at a snapshot, which must say the same.
fn look_twice(folder: &tempfile::TempDir, target: &Target, place: &str) -> Look {
    let live = attach(&target.pids, &[]);
    let file = folder.path().join("hang.snapshot");
    snapshot(&target.pids, &file, &[]);
    assert_eq!(essence(&core(&[file], &[])), essence(&live), "{place} as a snapshot");
    live
}

/// Both of one kind of case on each version, all of them on several.
#[test]
fn clients_are_told_of_that_have_a_lock_of_a_manager_or_had_it() {
    for (position, (version, python)) in pythons().into_iter().enumerate() {
        let cases = if position % 2 == 0 { ["order", "gone"] } else { ["gone_alone", "twice"] };
        for case in cases {
            let place = format!("{case} on Python {version}");
            let asleep = if case == "order" { 3 } else { 2 };
            let (folder, target) = start(&python, case, asleep);
            let look = look_twice(&folder, &target, &place);
            let (verdict, finding, words) = match case {
                "order" => ("suspected-deadlock", "lock-order-cycle", "with second:"),
                "gone_alone" => ("orphaned-lock", "dead-process-holds-lock", "Lock `lock`"),
                _ => ("stuck", "nobody-left-to-wake", "is a client that waits itself"),
            };
            assert_eq!(look.verdict(), verdict, "{place}: {}", look.text);
            assert_eq!(look.findings(), [finding], "{place}: {}", look.text);
            assert!(look.says(words), "{place}: {}", look.text);
        }
    }
}

#[test]
fn clients_that_go_on_with_a_lock_of_a_manager_are_left_in_peace() {
    for (version, python) in pythons() {
        for (case, is_reportable) in [("held", true), ("returned", false)] {
            let (_folder, target) = start(&python, case, 2);
            for _ in 0..3 {
                let look = attach(&target.pids, &[]);
                assert_eq!((look.verdict(), look.code), ("blocked", 0), "{case} on {version}: {}", look.text);
                assert_eq!(look.says("held by"), is_reportable, "{case} on {version}: {}", look.text);
            }
        }
    }
}

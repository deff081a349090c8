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

#[test]
fn clients_are_told_of_that_have_a_lock_of_a_manager_or_had_it() {
    for (version, python) in pythons() {
        let place = format!("Python {version}");
        let (folder, target) = start(&python, "order", 3);
        let look = look_twice(&folder, &target, &place);
        assert_eq!(look.verdict(), "suspected-deadlock", "{place}: {}", look.text);
        assert_eq!(look.findings(), ["lock-order-cycle"], "{place}: {}", look.text);
        assert!(look.text.contains("with second:"), "{place}: {}", look.text);

        let (folder, target) = start(&python, "gone_alone", 2);
        let look = look_twice(&folder, &target, &place);
        assert_eq!(look.verdict(), "orphaned-lock", "{place}: {}", look.text);
        assert!(look.text.contains("Lock `lock`"), "{place}: {}", look.text);

        let (folder, target) = start(&python, "gone", 2);
        let look = look_twice(&folder, &target, &place);
        assert_eq!(look.verdict(), "stuck", "{place}: {}", look.text);
        assert!(look.text.contains("whoever took it has"), "{place}: {}", look.text);
    }
}

#[test]
fn clients_that_go_on_with_a_lock_of_a_manager_are_left_in_peace() {
    for (version, python) in pythons() {
        for (case, is_told) in [("held", true), ("returned", false)] {
            let (_folder, target) = start(&python, case, 2);
            for _ in 0..3 {
                let look = attach(&target.pids, &[]);
                assert_eq!((look.verdict(), look.code), ("blocked", 0), "{case} on {version}: {}", look.text);
                assert_eq!(look.text.contains("held by"), is_told, "{case} on {version}: {}", look.text);
            }
        }
    }
}

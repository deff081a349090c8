//! A parent that waits for workers of its own is followed to them, without being asked.

use crate::harness::{Target, attach, testdata};
use crate::python::pythons;

#[test]
fn a_parent_is_followed_to_the_workers_that_it_waits_for() {
    for (version, python) in pythons() {
        for case in ["pool", "executor", "loader"] {
            let mut command = python.command();
            command.arg(python.sees(&testdata("python/followed.py"))).arg(case);
            // The thread that has the lock in the parent, and the workers.
            let target = Target::start(&mut command).settle(3);
            let place = format!("Python {version}, {case}");
            // A worker that comes to its wait only now is looked at once more.
            let look = (0..20).map(|_| attach(&target.pids[..1], &[])).find(|look| look.verdict() == "orphaned-lock");
            let look = look.unwrap_or_else(|| panic!("{place}: {}", attach(&target.pids[..1], &[]).text));
            assert_eq!(look.findings().first(), Some(&"fork-orphaned-lock"), "{place}: {}", look.text);
            assert!(look.says("held it at the fork"), "{place}: {}", look.text);
            let alone = attach(&target.pids[..1], &["--no-tree"]);
            assert_eq!((alone.verdict(), alone.code), ("blocked", 0), "{place}: {}", alone.text);
        }
    }
}

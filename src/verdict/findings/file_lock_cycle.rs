//! `file-lock-cycle`: file locks are taken in different orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "file-lock-cycle",
        title: "processes wait for each other's file locks",
        severity: Severity::Error,
        what: "Each process holds the lock of one file (flock, fcntl) and waits for the lock of another, which the next one holds.",
        cause: "Programs lock a cache, an output file and a list of jobs one after the other, in different orders. The kernel sees such a cycle for fcntl locks of whole processes and refuses the last one (EDEADLK); for flock, and for cycles that also run through a wait for a child, it does not.",
        example: Example {
            file: "file_lock_cycle.py",
            program: include_str!("examples/file_lock_cycle.py"),
            command: "python3 file_lock_cycle.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "take the locks in one order everywhere, for example sorted by path",
            "use one lock file for both resources",
            "take the second lock with LOCK_NB, and release the first where that fails",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "take the locks sorted by path. `fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)` raises BlockingIOError where the lock is taken: then release the first one. With the package filelock give `FileLock(path, timeout=60)`.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "building extensions (`torch.utils.cpp_extension.load`) takes a lock in TORCH_EXTENSIONS_DIR: build on one rank, then meet at a barrier. Do not hold a lock of your own around it.",
            },
            Fix {
                with: Toolkit::C,
                text: "take the locks in one order, or use LOCK_NB and release the first where the second is taken. A lock of flock belongs to the open file, and a child that was forked shares it: it is released only when all copies are closed.",
            },
        ],
        references: &["openSUSE/open-build-service#1606", "man 2 flock"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::FileLock))
}

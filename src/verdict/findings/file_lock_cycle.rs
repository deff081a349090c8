//! `file-lock-cycle`: file locks are taken in different orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "file-lock-cycle",
        title: "processes wait for each other's file locks",
        severity: Severity::Error,
        text: "Each process holds the lock of one file (flock, fcntl) and waits for the lock of another, which the next one holds. The kernel sees such a cycle for fcntl locks of whole processes and refuses the last one (EDEADLK); for flock, and for cycles that also run through a wait for a child, it does not.",
        help: &[
            "take the locks in one order everywhere, for example sorted by path",
            "use one lock file for both resources",
            "take the second lock with LOCK_NB, and release the first where that fails",
        ],
        references: &["openSUSE/open-build-service#1606", "man 2 flock"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.has_kind("file_lock"))
}

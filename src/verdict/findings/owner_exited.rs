//! `owner-exited`: the thread that holds a lock has ended.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "owner-exited",
        title: "the owner of a lock exited without releasing it",
        severity: Severity::Error,
        text: "The thread that holds the lock has ended: by pthread_exit, cancellation, or a return between lock and unlock. Nobody can release it any more.",
        help: &[
            "release on every way out: std::lock_guard, with, try/finally",
            "do not cancel or hang threads that may hold a lock",
            "where the owner may die, make the mutex robust (PTHREAD_MUTEX_ROBUST) and handle EOWNERDEAD",
        ],
        references: &["man 3 pthread_mutexattr_setrobust"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts(Gone::Exited)
}

//! `self-deadlock`: a thread waits for what it holds.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "self-deadlock",
        title: "a thread waits for a lock that it holds itself",
        severity: Severity::Error,
        text: "The thread took the lock and takes it again before it has released it. A plain mutex does not count how often its owner took it, and a reader-writer lock can not be turned from reading to writing.",
        help: &[
            "split the function: one that takes the lock, one that expects it taken",
            "use a recursive lock (std::recursive_mutex, threading.RLock) if the second call is meant",
            "look for a callback, destructor or signal handler between the two calls in the stack",
        ],
        references: &["rapidsai/rmm#1504"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.edges.len() == 1)
}

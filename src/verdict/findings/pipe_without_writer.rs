//! `pipe-without-writer`: a thread waits for a pipe whose other end only its own process has.
//!
//! In: the judged look. Out: drafts of the finding. It decides nothing about pipes.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// What has two ends.
pub(super) const KINDS: [&str; 2] = ["pipe", "socket"];

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "pipe-without-writer",
        title: "a pipe is waited for whose other end only the waiter has",
        severity: Severity::Error,
        text: "A reader of a pipe gets its end when the last write end is closed. Here the reader's own process holds a write end itself, and nobody else does: no data can come, and no end either. Mostly the write end was kept open after fork, or was inherited by mistake. The same holds for a writer that keeps the only read end of a full pipe.",
        help: &[
            "close the write end in the process that reads, right after fork or after starting the child",
            "create pipes with O_CLOEXEC, so that children started later do not inherit the ends",
        ],
        references: &["man 7 pipe", "python/cpython#82300"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.dead_end_drafts(|kind| KINDS.contains(&kind))
}

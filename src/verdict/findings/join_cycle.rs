//! `join-cycle`: a thread is joined that can not end.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "join-cycle",
        title: "a thread is joined that waits for the thread that joins it",
        severity: Severity::Error,
        text: "One thread waits for another to end, while it holds a lock (or the GIL) that the other needs before it can end.",
        help: &[
            "release the lock, or the GIL, before joining",
            "tell the thread to stop and let it finish first; join outside of destructors and of code under a lock",
        ],
        references: &["numpy/numpy#31284"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.has_kind("thread") || cycle.has_kind("py_thread"))
}

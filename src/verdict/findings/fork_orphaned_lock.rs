//! `fork-orphaned-lock`: fork copies memory with all locks in it, but only the thread that called it.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "fork-orphaned-lock",
        title: "a lock was copied by fork while another thread held it",
        severity: Severity::Error,
        text: "fork copies memory with all locks in it, but only the thread that called it. A lock that another thread held at that moment is held for ever in the child: its owner is a thread of the parent.",
        help: &[
            "start workers with spawn or forkserver: multiprocessing.set_start_method(\"spawn\")",
            "fork before threads are started, or call exec at once after fork",
            "protect a library of your own with pthread_atfork or os.register_at_fork",
        ],
        references: &["pytorch/pytorch#75147", "ultralytics/ultralytics#26085"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts(Gone::LeftInParent)
}

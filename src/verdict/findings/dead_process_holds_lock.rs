//! `dead-process-holds-lock`: the lock lies in memory that several processes share.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "dead-process-holds-lock",
        title: "a dead process holds a shared lock",
        severity: Severity::Error,
        text: "The lock lies in memory that several processes share. The process that holds it is dead (killed, crashed, or out of memory), and a plain shared lock is not released by that.",
        help: &[
            "find out why the process died: its exit status, the kernel log (out of memory)",
            "use robust mutexes, or locks that the kernel releases (fcntl, flock)",
            "restart all processes that share the memory; killing workers with SIGKILL leaves locks behind",
        ],
        references: &["pytorch/pytorch#1355"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts(Gone::ProcessDead)
}

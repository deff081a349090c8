//! `pipe-cycle`: processes wait for each other through pipes.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// What is written to at one end and read from at the other.
const KINDS: [&str; 3] = ["pipe", "socket", "eventfd"];

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "pipe-cycle",
        title: "processes wait for each other through a pipe or socket",
        severity: Severity::Error,
        text: "A pipe holds some 64 KiB, a socket some hundred. A process that writes more waits until somebody reads, and the only process that could read waits for the writer: for its end (wait, join, Popen.wait), or because it writes a full pipe of its own in the other direction. Or each waits for the other to speak first: both read, and what one believes to have sent still lies in a buffer, or was never written.",
        help: &[
            "read what the child writes before waiting for its end: Popen.communicate(), or a thread that drains the pipe",
            "where both sides write, let one of them read first, or use non-blocking descriptors with poll",
            "flush what was written before waiting for the answer, and agree on who speaks first",
            "close the ends that a process does not need right after fork",
        ],
        references: &["localstack/localstack#1101", "dagster-io/dagster#6435", "aws/s2n-tls#831"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| KINDS.iter().any(|kind| cycle.has_kind(kind)))
}

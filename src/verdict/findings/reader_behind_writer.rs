//! `reader-behind-writer`: a reader queues behind a waiting writer.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "reader-behind-writer",
        title: "a reader waits behind a writer, though the lock is only read",
        severity: Severity::Note,
        text: "The lock is held for reading only, yet a new reader waits: a writer waits before it, and the lock lets writers go first. A thread that reads twice, once within the other, can block itself like this.",
        help: &[
            "do not take a read lock again while holding it",
            "keep read sections short, so that the writer gets its turn",
        ],
        references: &["man 3 pthread_rwlockattr_setkind_np"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let mut drafts: Vec<Draft> = Vec::new();
    for reader in seen.waits.iter().filter(|w| w.resource.kind == "pthread_rwlock" && w.mode == Some("read")) {
        let writer = seen.waits.iter().find(|w| w.resource == reader.resource && w.mode == Some("write"));
        let mut holds = seen.holds.iter().filter(|hold| hold.resource == reader.resource).peekable();
        let read_only = holds.peek().is_some() && holds.all(|hold| hold.mode == Some("read"));
        if let (Some(writer), true) = (writer, read_only) {
            if drafts.iter().any(|draft| draft.resources.contains(&reader.resource)) {
                continue;
            }
            drafts.push(Draft {
                message: format!(
                    "{} wants to read {}, which is held for reading only, but {} waits to write and goes first.",
                    context.names.party(&reader.waiter),
                    context.names.resource(&reader.resource),
                    context.names.party(&writer.waiter)
                ),
                parties: vec![reader.waiter.clone(), writer.waiter.clone()],
                resources: vec![reader.resource.clone()],
                ..Draft::default()
            });
        }
    }
    drafts
}

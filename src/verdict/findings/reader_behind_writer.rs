//! `reader-behind-writer`: a reader queues behind a waiting writer.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::Wait;

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
    let rwlock = |wait: &&Wait, mode| wait.resource.kind == "pthread_rwlock" && wait.mode == Some(mode);
    let mut drafts: Vec<Draft> = Vec::new();
    for reader in seen.waits.iter().filter(|wait| rwlock(wait, "read")) {
        // The place behind a waiting writer is a resource of its own, which that writer holds by waiting for the lock.
        let behind = seen.holds.iter().filter(|hold| hold.resource == reader.resource && hold.mode == Some("write"));
        let writer = behind.into_iter().find_map(|hold| {
            let lock = seen.waits.iter().find(|wait| rwlock(wait, "write") && wait.waiter == hold.holder)?;
            (lock.resource != reader.resource).then_some(lock)
        });
        let Some(writer) = writer else { continue };
        if drafts.iter().any(|draft| draft.resources.contains(&writer.resource)) {
            continue;
        }
        drafts.push(Draft {
            message: format!(
                "{} wants to read {}, which is held for reading only, but {} waits to write and goes first.",
                context.names.party(&reader.waiter),
                context.names.resource(&writer.resource),
                context.names.party(&writer.waiter)
            ),
            parties: vec![reader.waiter.clone(), writer.waiter.clone()],
            resources: vec![writer.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

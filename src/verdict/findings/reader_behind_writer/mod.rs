//! `reader-behind-writer`: a reader queues behind a waiting writer.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::Wait;
use crate::waits::kinds::Topic;
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "reader-behind-writer",
    severity: Severity::Note,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "reader_behind_writer.c",
        program: include_str!("example.c"),
        command: "cc -g -pthread reader_behind_writer.c -o hang && ./hang",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let rwlock = |wait: &&Wait, mode| wait.resource.kind.topic == Topic::ReadWriteLock && wait.mode == Some(mode);
    let mut drafts: Vec<Draft> = Vec::new();
    for reader in seen.waits.iter().filter(|wait| rwlock(wait, "read")) {
        // The place behind a waiting writer is a resource of its own. That writer holds it by waiting for the lock. A
        // thread that holds one lock and waits for another is in no queue of the first.
        if context.names.described(&reader.resource).is_none_or(|place| place.role != Some(Role::BehindWriter)) {
            continue;
        }
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

//! `reader-behind-writer`: a reader queues behind a waiting writer.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::Wait;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "reader-behind-writer",
        title: "a reader waits behind a writer, though the lock is only read",
        severity: Severity::Note,
        what: "A thread wants to read what is locked for reading only, and yet it waits: a writer waits before it, and this kind of lock lets writers go first. It waits until the present readers are done and the writer was there.",
        cause: "That is as meant, to keep readers from starving a writer. It looks like a hang when a reader keeps its lock for long. And it is a deadlock when the thread that wants to read holds the lock for reading already: the writer waits for it, and it waits behind the writer.",
        example: Example {
            file: "reader_behind_writer.c",
            program: include_str!("examples/reader_behind_writer.c"),
            command: "cc -g -pthread reader_behind_writer.c -o hang && ./hang",
            needs: Requirement::Nothing,
        },
        help: &[
            "do not take a read lock again while holding it",
            "keep read sections short, so that the writer gets its turn",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "threading has no such lock; packages that have one (readerwriterlock, fasteners) say in the lock's name who goes first.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "std::sync::RwLock may let writers go first, and a second `read()` by the same thread can then hang: pass the guard on, or use parking_lot's `read_recursive`.",
            },
            Fix {
                with: Toolkit::C,
                text: "do not take a read lock again while holding it, and keep read sections short. glibc's default kind lets readers go first; PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP does not. libstdc++'s std::shared_mutex is of the default kind.",
            },
        ],
        references: &["man 3 pthread_rwlockattr_setkind_np"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let rwlock = |wait: &&Wait, mode| wait.resource.kind.topic == Topic::ReadWriteLock && wait.mode == Some(mode);
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

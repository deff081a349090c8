//! `nobody-left-to-wake`: a thread waits to be woken, and nothing is left that could wake it.
//!
//! In: the judged look. Out: drafts of the finding. Who could wake whom is known to the lock families, not here.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "nobody-left-to-wake",
        title: "a thread waits to be woken, and nobody is left who could do it",
        severity: Severity::Error,
        text: "Nobody holds what the thread waits for: it waits for others to come or to give a signal. Those who could have done so have ended, or wait for this very thread. Mostly one of them ended early, by an error or a way out that skips the barrier, or was never started.",
        help: &[
            "make sure that every party comes to the barrier, or none: look for an early return or an exception in one of them",
            "count the parties where they are started: the number that the barrier was made for is in the report",
            "let those who wait have a time-out or a way to be told that a party is gone (std::barrier::arrive_and_drop)",
        ],
        references: &["OpenMathLib/OpenBLAS#1456"],
    },
    rule,
};

/// For queues, events, conditions and semaphores of Python.
const PYTHON_HELP: [&str; 3] = [
    "make sure that whoever is to call put(), set(), notify() or release() lives and comes there: look for an exception that \
     ended it, and for a return before the call",
    "put the call into a `finally`, or end a queue by a value that says that no more will come",
    "wait with a time-out and look at what is left: get(timeout=...), wait(timeout=...)",
];

/// For conditions and semaphores.
const NATIVE_HELP: [&str; 2] = [
    "make sure that whoever is to signal or post lives and comes there: look for a thread that ended early or was never started",
    "look for a wake-up that was sent before the wait began: change the predicate and signal under the mutex, and test it before \
     each wait",
];

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.dead_end_drafts(|kind| !super::pipe_without_writer::KINDS.contains(&kind));
    for draft in &mut drafts {
        let help: &[&str] = match draft.resources.first().map(|key| key.kind) {
            Some(kind) if kind.starts_with("py_") => &PYTHON_HELP,
            Some("pthread_cond" | "semaphore" | "futex") => &NATIVE_HELP,
            _ => &[],
        };
        draft.help = help.iter().map(|help| help.to_string()).collect();
    }
    drafts
}

//! `pipe-cycle`: processes wait for each other through pipes.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::threads::Frame;
use crate::waits::Party;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "pipe-cycle",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "pipe_cycle.py",
        program: include_str!("example.py"),
        command: "python3 pipe_cycle.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| cycle.is_about(Topic::Data));
    for draft in drafts.iter_mut().filter(|draft| draft.parties.iter().any(|party| feeds_a_queue(context, party))) {
        draft.help = vec![
            "get() all results before join(): a process that has put something into a multiprocessing.Queue ends only after its \
             feeder thread has written all of it into the pipe"
                .into(),
            "or call cancel_join_thread() in the child, where what was not read may be lost".into(),
        ];
    }
    drafts
}

/// Whether a thread is the one that writes what was put into a multiprocessing.Queue.
fn feeds_a_queue(context: &Context<'_>, party: &Party) -> bool {
    let is_feeder = |frame: &Frame| {
        let function = frame.function.as_deref().and_then(|name| name.rsplit('.').next());
        frame.origin.is_stdlib("multiprocessing.queues") && function == Some("_feed")
    };
    context.names.frames(party).iter().any(is_feeder)
}

//! `pipe-without-writer`: a thread waits for a pipe whose other end only its own process has.
//!
//! In: the judged look. Out: drafts of the finding. It decides nothing about pipes.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Kind;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "pipe-without-writer",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "pipe_without_writer.py",
        program: include_str!("example.py"),
        command: "python3 pipe_without_writer.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.dead_end_drafts(Kind::has_two_ends);
    for draft in &mut drafts {
        let noun = draft.resources.first().map(|key| key.kind.noun);
        draft.title = noun.map(|noun| format!("a thread waits at a {noun} whose other end only its own process has"));
    }
    drafts
}

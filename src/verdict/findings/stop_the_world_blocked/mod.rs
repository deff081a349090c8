//! `stop-the-world-blocked`: a pause of all Python threads does not come about.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "stop-the-world-blocked",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "stop_the_world_blocked.py",
        program: include_str!("example.py"),
        command: "python3 stop_the_world_blocked.py",
        needs: Requirement::PythonWithoutGil,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::StopTheWorld))
}

//! `failed-launch`: a thread has got an error of CUDA and stands still while it handles it.
//!
//! In: the judged sample. Out: drafts of the finding. The error's number is known only where the exception says it.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::Handled;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "failed-launch",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "failed_launch.py",
        program: include_str!("example.py"),
        command: "python3 failed_launch.py",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let mut drafts = Vec::new();
    for handled in seen.handled.iter().filter(|handled| handled.is_of_cuda()) {
        // There the error says that CUDA can not be used at all.
        if super::cuda_after_fork::forked(context, handled).is_some() {
            continue;
        }
        let Some(wait) = seen.waits.iter().find(|wait| wait.waiter == handled.thread) else { continue };
        let (names, waiting) = (context.names, waiting(context, handled));
        let others = match waiting {
            0 => String::new(),
            1 => " 1 other thread waits for it.".to_owned(),
            count => format!(" {count} other threads wait for it."),
        };
        drafts.push(Draft {
            message: format!(
                "{} handles {} and waits for {}{}.{others} The error may be that of a kernel launched earlier.",
                names.party_in_full(&handled.thread),
                handled.describe(),
                names.waited_for(wait),
                names.call(&wait.waiter, wait.frame).phrase(),
            ),
            parties: vec![handled.thread.clone()],
            resources: vec![wait.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

/// How many threads wait for what the handling thread has or is.
fn waiting(context: &Context<'_>, handled: &Handled) -> usize {
    let seen = context.input.observations;
    let has = |key| seen.holds.iter().any(|hold| hold.holder == handled.thread && hold.resource == key);
    seen.waits.iter().filter(|wait| wait.waiter != handled.thread && has(wait.resource.clone())).count()
}

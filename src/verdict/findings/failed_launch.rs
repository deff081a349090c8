//! `failed-launch`: a thread has got an error of CUDA and stands still while it handles it.
//!
//! In: the judged look. Out: drafts of the finding. The error's number is known only where the exception says it.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::Handled;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "failed-launch",
        title: "a thread waits while it handles an error of CUDA",
        severity: Severity::Warning,
        text: "A call of CUDA returned an error, the program raised an exception, and the thread that caught it waits in its handler. Others wait for what that thread was to give them.\n\nAn error of a kernel shows in a later call: the call that returned it need not have anything to do with it, and from then on every call of the context returns the same.",
        help: &[
            "find the kernel that failed: run with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer",
            "let the handler end: it must not wait for a thread, a queue or a peer that the failed work was to serve, and CUDA can not be used any more in this process",
        ],
        references: &["https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__ERROR.html"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
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
    let seen = context.look.observations;
    let has = |key| seen.holds.iter().any(|hold| hold.holder == handled.thread && hold.resource == key);
    seen.waits.iter().filter(|wait| wait.waiter != handled.thread && has(wait.resource.clone())).count()
}

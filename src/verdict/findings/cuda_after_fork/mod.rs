//! `cuda-after-fork`: CUDA is used in a child of a process that had used it before the fork.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::image::ProcessImage;
use crate::image::gpu::uses_cuda;
use crate::limits::verdict::CALL_FRAMES;
use crate::report::Severity;
use crate::waits::{Gone, Handled, Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "cuda-after-fork",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "cuda_after_fork.py",
        program: include_str!("example.py"),
        command: "python3 cuda_after_fork.py",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    // A lock of the driver that stayed behind at the fork.
    let in_driver = |waits: &[usize]| {
        waits.iter().any(|wait| {
            let wait = &seen.waits[*wait];
            let frames = context.names.frames(&wait.waiter).iter().skip(wait.frame.unwrap_or(0));
            frames.into_iter().take(CALL_FRAMES).any(|frame| context.names.is_driver(frame))
        })
    };
    let left = context.orphans.iter().filter(|orphan| orphan.gone == Gone::LeftInParent && in_driver(&orphan.waits));
    let mut drafts = context.orphan_drafts_of(left);
    for handled in seen.handled.iter().filter(|handled| handled.is_of_cuda()) {
        if let Some(image) = forked(context, handled) {
            drafts.push(Draft {
                message: format!(
                    "{} handles {}. Process {} was forked by a process that had initialised CUDA, and has none of the \
                     driver's threads.",
                    context.names.party_in_full(&handled.thread),
                    handled.describe(),
                    image.pid
                ),
                parties: vec![handled.thread.clone()],
                ..Draft::default()
            });
        }
    }
    drafts
}

/// The process of a thread that handles an error, if it was forked by one that had initialised CUDA.
pub(super) fn forked<'a>(context: &Context<'a>, handled: &Handled) -> Option<&'a ProcessImage> {
    let Party::Thread(process, _) = handled.thread else { return None };
    let image = context.input.image.processes.get(process)?;
    (uses_cuda(&image.mappings) && !has_driver_threads(image) && parent_has_them(context, image)).then_some(image)
}

fn has_driver_threads(image: &ProcessImage) -> bool {
    image.threads.iter().any(|thread| thread.name == cuda::EVENT_THREAD)
}

fn parent_has_them(context: &Context<'_>, image: &ProcessImage) -> bool {
    let captured = context.input.image.processes.iter().find(|parent| Some(parent.pid) == image.parent);
    captured.is_some_and(has_driver_threads) || image.parent_threads.iter().any(|(_, name)| name == cuda::EVENT_THREAD)
}

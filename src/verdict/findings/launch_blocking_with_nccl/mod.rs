//! `launch-blocking-with-nccl`: collectives under CUDA_LAUNCH_BLOCKING=1.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::threads::Frame;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "launch-blocking-with-nccl",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "launch_blocking_with_nccl.py",
        program: include_str!("example.py"),
        command: "CUDA_LAUNCH_BLOCKING=1 torchrun --nproc-per-node 2 launch_blocking_with_nccl.py",
        needs: Requirement::TwoGpusAndPyTorch,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| wait.resource.kind.is_gpu()) {
        let Party::Thread(process, _) = wait.waiter else { continue };
        let Some(image) = context.input.image.processes.get(process) else { continue };
        let blocking = image.variable("CUDA_LAUNCH_BLOCKING").is_some_and(|value| !matches!(value, "" | "0"));
        if !blocking || !context.names.frames(&wait.waiter).iter().any(is_nccl) {
            continue;
        }
        drafts.push(Draft {
            message: format!(
                "{} waits inside NCCL for its kernel to end{}: the program was started with CUDA_LAUNCH_BLOCKING=1.",
                context.names.party_in_full(&wait.waiter),
                context.names.call(&wait.waiter, wait.frame).phrase(),
            ),
            parties: vec![wait.waiter.clone()],
            resources: vec![wait.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

fn is_nccl(frame: &Frame) -> bool {
    let starts = |text: Option<&str>, with: &str| text.is_some_and(|text| text.starts_with(with));
    starts(frame.function.as_deref(), "nccl") || starts(frame.module.as_deref(), "libnccl")
}

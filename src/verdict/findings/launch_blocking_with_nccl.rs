//! `launch-blocking-with-nccl`: collectives under CUDA_LAUNCH_BLOCKING=1.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::threads::Frame;
use crate::waits::{Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "launch-blocking-with-nccl",
        title: "CUDA_LAUNCH_BLOCKING=1 with NCCL",
        severity: Severity::Warning,
        text: "With CUDA_LAUNCH_BLOCKING=1 each launch returns when its kernel is done. A collective's kernel is done when all ranks have launched theirs. A process that launches for several devices or communicators, one after the other, waits in the first launch and never comes to the second; and ranks that launch in different orders block each other at once.",
        help: &[
            "unset CUDA_LAUNCH_BLOCKING for programs that use NCCL; to find a failing kernel, use compute-sanitizer or CUDA core dumps",
        ],
        references: &["NVIDIA/nccl#750", "NVIDIA/nccl#774"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| cuda::KINDS.contains(&wait.resource.kind)) {
        let Party::Thread(process, _) = wait.waiter else { continue };
        let Some(image) = context.look.image.processes.get(process) else { continue };
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
    let starts = |text: &Option<String>, with: &str| text.as_deref().is_some_and(|text| text.starts_with(with));
    starts(&frame.function, "nccl") || starts(&frame.module, "libnccl")
}

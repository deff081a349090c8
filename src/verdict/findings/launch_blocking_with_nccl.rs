//! `launch-blocking-with-nccl`: collectives under CUDA_LAUNCH_BLOCKING=1.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::threads::Frame;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "launch-blocking-with-nccl",
        title: "CUDA_LAUNCH_BLOCKING=1 with NCCL",
        severity: Severity::Warning,
        what: "The program runs with CUDA_LAUNCH_BLOCKING=1, and a thread waits in the launch of a collective's kernel for that kernel to end. It ends only when the other ranks have launched theirs.",
        cause: "With CUDA_LAUNCH_BLOCKING=1 each launch returns when its kernel is done. A collective's kernel is done when all ranks have launched theirs. A process that launches for several devices or communicators, one after the other, waits in the first launch and never comes to the second; and ranks that launch in different orders block each other at once.\n\nThe variable is set to find out which kernel fails, and then forgotten: in a shell's start-up file, an image, or a notebook.",
        example: Example {
            file: "launch_blocking_with_nccl.py",
            program: include_str!("examples/launch_blocking_with_nccl.py"),
            command: "CUDA_LAUNCH_BLOCKING=1 torchrun --nproc-per-node 2 launch_blocking_with_nccl.py",
            needs: Requirement::TwoGpusAndPyTorch,
        },
        help: &[
            "unset CUDA_LAUNCH_BLOCKING for programs that use NCCL; to find a failing kernel, use compute-sanitizer or CUDA core dumps",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Numba,
                text: "remove CUDA_LAUNCH_BLOCKING; to find a failing kernel use `@cuda.jit(debug=True, opt=False)` and compute-sanitizer.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "remove CUDA_LAUNCH_BLOCKING when `cupyx.distributed` or `cupy.cuda.nccl` is in use. With several devices in one process put the calls between `nccl.groupStart()` and `nccl.groupEnd()`.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "remove CUDA_LAUNCH_BLOCKING; to find a failing kernel run one process on one GPU with it, or all with compute-sanitizer or TORCH_USE_CUDA_DSA (in a build that has it). Use communicators in one order on all ranks in any case.",
            },
            Fix {
                with: Toolkit::C,
                text: "remove CUDA_LAUNCH_BLOCKING; with several devices or communicators in one thread put the calls between ncclGroupStart and ncclGroupEnd.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "`env | grep CUDA_LAUNCH_BLOCKING` on each node, then `unset CUDA_LAUNCH_BLOCKING`. CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 gives a core of the GPU where a kernel fails, without slowing down the others.",
            },
        ],
        references: &["NVIDIA/nccl#750", "NVIDIA/nccl#774"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| wait.resource.kind.is_gpu()) {
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

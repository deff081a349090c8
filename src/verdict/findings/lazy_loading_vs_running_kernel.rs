//! `lazy-loading-vs-running-kernel`: code is loaded while a kernel runs, and loading waits for the kernel.
//!
//! In: the judged look. Out: drafts of the finding. Whether the kernel waits for the loading thread is not seen from here.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;
use crate::waits::{Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "lazy-loading-vs-running-kernel",
        title: "loading code onto the GPU waits for a running kernel",
        severity: Severity::Warning,
        what: "A thread loads the code of a kernel onto the GPU, and that waits for what runs there. If the running kernel waits for something that this thread would do next, neither ends.",
        cause: "Since CUDA 12.2 a kernel's code is loaded when it is used first (CUDA_MODULE_LOADING=LAZY). Loading needs memory of the context and may wait until everything that runs there is done. A kernel that runs meanwhile and waits for something that this thread would do next (a flag, another kernel, its part of a collective) is never done.\n\nOften the first step hangs, or the first step of an unusual shape, since only then a kernel is new; run again with all kernels loaded, the same program works.",
        example: Example {
            file: "lazy_loading_vs_running_kernel.py",
            program: include_str!("examples/lazy_loading_vs_running_kernel.py"),
            command: "python3 lazy_loading_vs_running_kernel.py",
            needs: Requirement::Gpu,
        },
        help: &[
            "start the program with CUDA_MODULE_LOADING=EAGER",
            "or load all kernels first: launch each once, or call cuModuleGetFunction or cudaFuncGetAttributes for it, before a kernel runs that waits for others",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Numba,
                text: "compile and launch each kernel once before the program's own work begins: Numba loads a kernel's code at its first launch for each set of argument types. With signatures given, `@cuda.jit(\"void(float32[:])\")` compiles early, and the first launch still loads.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "launch each kernel once beforehand, or call `cupy.RawModule.get_function` for it; elementwise kernels are compiled and loaded at the first use of each combination of types.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "run one warm-up step on every rank before kernels that wait for others (NCCL on another stream, symmetric memory, spin-waiting kernels), or start with CUDA_MODULE_LOADING=EAGER. torch.compile and Triton load kernels at their first run: warm them up too.",
            },
            Fix {
                with: Toolkit::C,
                text: "call cudaFuncGetAttributes or cuModuleGetFunction and cuFuncLoad (CUDA 12.4) for each kernel at the start, before a kernel runs that waits for others.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "start the program with CUDA_MODULE_LOADING=EAGER: all kernels are loaded when CUDA is initialised. It costs time and device memory.",
            },
        ],
        references: &[
            "meta-pytorch/torchcomms#2334",
            "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading",
        ],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| wait.resource.kind.topic == Topic::Gpu) {
        let Party::Thread(process, _) = wait.waiter else { continue };
        let call = context.names.call(&wait.waiter, wait.frame);
        if !call.api.as_deref().is_some_and(cuda::calls::loads_code) {
            continue;
        }
        let image = context.look.image.processes.get(process);
        let eager = image.and_then(|image| image.variable("CUDA_MODULE_LOADING")) == Some("EAGER");
        let note = if eager { " It was started with CUDA_MODULE_LOADING=EAGER: this code came later." } else { "" };
        drafts.push(Draft {
            message: format!(
                "{} loads code onto the GPU{} and waits there for what runs on it.{note}",
                context.names.party_in_full(&wait.waiter),
                call.phrase(),
            ),
            parties: vec![wait.waiter.clone()],
            resources: vec![wait.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

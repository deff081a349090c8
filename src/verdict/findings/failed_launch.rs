//! `failed-launch`: a thread has got an error of CUDA and stands still while it handles it.
//!
//! In: the judged look. Out: drafts of the finding. The error's number is known only where the exception says it.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::Handled;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "failed-launch",
        title: "a thread waits while it handles an error of CUDA",
        severity: Severity::Warning,
        what: "A call of CUDA returned an error, the program raised an exception, and the thread that caught it waits in its handler. Others wait for what that thread was to give them.",
        cause: "A kernel fails some time after it was launched. Its error shows in a later call, which need not have anything to do with it, and from then on every call of the context returns the same. The handler then runs code that was written for the good case: it joins a thread that waits for the result, puts into a queue that nobody empties, or waits for the GPU or for other ranks.",
        example: Example {
            file: "failed_launch.py",
            program: include_str!("examples/failed_launch.py"),
            command: "python3 failed_launch.py",
            needs: Requirement::Gpu,
        },
        help: &[
            "find the kernel that failed: run with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer",
            "let the handler end: it must not wait for a thread, a queue or a peer that the failed work was to serve, and CUDA can not be used any more in this process",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "in the handler tell the others first (put the exception into the queue, `future.set_exception`, set an event), and do not join before. After an error such as 700 only a new process can use the GPU.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "the error comes as `numba.cuda.cudadrv.driver.CudaAPIError`, mostly at `cuda.synchronize()` or `copy_to_host()`. `@cuda.jit(debug=True, opt=False)` checks indices inside of kernels.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "the error comes as `cupy.cuda.runtime.CUDARuntimeError` or `cupy.cuda.driver.CUDADriverError`, at the next synchronisation. Free no arrays in the handler: that calls CUDA again.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "the error comes as `torch.AcceleratorError` or RuntimeError, \"CUDA error: ...\". Do not call a collective or `.cpu()` in the handler: let the process end with an error, so that torchrun restarts the job. With NCCL, TORCH_NCCL_ASYNC_ERROR_HANDLING (on by default) ends ranks whose peer failed.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "throw after each failed call, with the file and line of the call; a destructor must not wait for the GPU when the context has failed (ask cudaGetLastError or cudaStreamQuery first).",
            },
            Fix {
                with: Toolkit::C,
                text: "check the result of each call, and cudaGetLastError() after each launch. cudaPeekAtLastError() leaves the error in place. A process whose context has failed should end.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "`CUDA_LAUNCH_BLOCKING=1 PROGRAM` makes the call that fails the one that is reported (not with NCCL), `compute-sanitizer PROGRAM` names the thread and the address.",
            },
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

//! `cuda-after-fork`: CUDA is used in a child of a process that had used it before the fork.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::image::ProcessImage;
use crate::image::gpu::uses_cuda;
use crate::report::Severity;
use crate::waits::{Gone, Handled, Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "cuda-after-fork",
        title: "CUDA in a forked child",
        severity: Severity::Error,
        what: "A process was forked by one that had already initialised CUDA, and now waits: inside of CUDA, or while it handles the error that CUDA gave it. CUDA cannot be used in such a child.",
        cause: "The child has a copy of the driver's memory, but neither its threads nor its connection to the GPU, and a lock of the driver that another thread had at the fork stays locked for good. Most calls return an error (3, \"initialization error\"; PyTorch says \"Cannot re-initialize CUDA in forked subprocess\"), and some never return.\n\nOn Linux multiprocessing forked by default until Python 3.13 (forkserver is the default since 3.14). CUDA is initialised earlier than one thinks: by counting devices, by moving a model, or by an import that does so.",
        example: Example {
            file: "cuda_after_fork.py",
            program: include_str!("examples/cuda_after_fork.py"),
            command: "python3 cuda_after_fork.py",
            needs: Requirement::Gpu,
        },
        help: &[
            "start workers by spawn or forkserver: multiprocessing.set_start_method(\"spawn\"), multiprocessing_context=\"spawn\" for a DataLoader",
            "or fork before the first call of CUDA, also before torch.cuda.is_available() and device counts",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "`multiprocessing.set_start_method(\"spawn\")` or `get_context(\"spawn\")`; for a pool `ProcessPoolExecutor(mp_context=multiprocessing.get_context(\"spawn\"))`. Protect the start of the program with `if __name__ == \"__main__\":`.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "do not call anything of `numba.cuda` before the fork, not even `cuda.is_available()` or `cuda.detect()`; or spawn.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "make no array and ask for no device before the fork (`cupy.cuda.runtime.getDeviceCount()` initialises CUDA too); or spawn.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "`torch.multiprocessing.set_start_method(\"spawn\")`, and `DataLoader(..., multiprocessing_context=\"spawn\")` where the workers use CUDA. Better still, let data loaders return tensors of the CPU and move them in the parent (`pin_memory=True`). With PYTORCH_NVML_BASED_CUDA_CHECK=1 `torch.cuda.is_available()` does not initialise CUDA.",
            },
            Fix {
                with: Toolkit::C,
                text: "fork before the first call of CUDA, or call exec right after fork (posix_spawn).",
            },
        ],
        references: &["pyg-team/pytorch_geometric#10810", "https://pytorch.org/docs/stable/notes/multiprocessing.html"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    // A lock of the driver that stayed behind at the fork.
    let in_driver = |waits: &[usize]| {
        waits.iter().any(|wait| {
            let wait = &seen.waits[*wait];
            let frames = context.names.frames(&wait.waiter).iter().skip(wait.frame.unwrap_or(0));
            frames.into_iter().take(16).any(|frame| context.names.is_driver(frame))
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
    let image = context.look.image.processes.get(process)?;
    (uses_cuda(&image.mappings) && !has_driver_threads(image) && parent_has_them(context, image)).then_some(image)
}

fn has_driver_threads(image: &ProcessImage) -> bool {
    image.threads.iter().any(|thread| thread.name == cuda::EVENT_THREAD)
}

fn parent_has_them(context: &Context<'_>, image: &ProcessImage) -> bool {
    let captured = context.look.image.processes.iter().find(|parent| Some(parent.pid) == image.parent);
    captured.is_some_and(has_driver_threads) || image.parent_threads.iter().any(|(_, name)| name == cuda::EVENT_THREAD)
}

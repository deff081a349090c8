//! `cuda-call-in-host-function`: a host function calls the CUDA API, and waits in it.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit, is_libc};
use crate::graph::CycleEdge;
use crate::report::Severity;
use crate::waits::Party;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "cuda-call-in-host-function",
        title: "a host function of a CUDA stream calls CUDA",
        severity: Severity::Error,
        what: "A function that the driver runs for a CUDA stream (a host function or a stream callback) has called CUDA, and that call waits for something that goes on only when the function has returned.",
        cause: "cuLaunchHostFunc, cudaLaunchHostFunc and the stream callbacks put a function into a stream: the driver calls it when the stream comes to it, and the stream goes on when it returns. Such a function must not call CUDA. A call that waits for the stream waits for the function itself, and others may need a lock that is held while the function runs. Some calls return cudaErrorNotPermitted (800), and others just never return.\n\nHost functions of independent streams may be run one after the other by one thread: one that waits for another stream's host function can wait for ever too.",
        example: Example {
            file: "cuda_call_in_host_function.py",
            program: include_str!("examples/cuda_call_in_host_function.py"),
            command: "python3 cuda_call_in_host_function.py",
            needs: Requirement::Gpu,
        },
        help: &[
            "call no CUDA in a host function: set a flag, post a semaphore or write to a descriptor, and let another thread do the rest",
            "put what is to follow into the stream itself, or wait for an event from a thread of the program's own",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "what looks harmless may call CUDA: dropping the last reference to a device array, or a garbage collection that happens to start in the host function.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "in the callback of `Stream.add_callback` use no device arrays, not even their `copy_to_host`: set a threading.Event, or with asyncio await `Stream.async_done()`, and go on elsewhere.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "in the function of `Stream.launch_host_func` use no arrays of CuPy: set a threading.Event or put into a queue.SimpleQueue, and let another thread go on. What is to follow on the GPU goes into the stream itself.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "use `torch.cuda.Event` in place of a host function: `event.record(stream)`, then `other_stream.wait_event(event)` for work on the GPU, or `event.synchronize()` in a thread for work on the CPU.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "let the host function push into a queue of C++ and notify; a thread of the program calls CUDA or Python.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "let the host function be `noexcept nogil` and only set an atomic flag or write to an eventfd.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "let the host function send over a channel; a thread that receives calls CUDA.",
            },
            Fix {
                with: Toolkit::C,
                text: "set a flag, post a semaphore (sem_post) or write to an eventfd in the host function, and call CUDA in the thread that waits for it. To order work between streams use cudaEventRecord and cudaStreamWaitEvent, which need no host function.",
            },
        ],
        references: &[
            "CUDA Runtime API: cudaLaunchHostFunc",
            "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EXECUTION.html",
        ],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    // The driver runs it, and it waits for a lock of the driver or for the GPU inside a call that it made.
    let mut drafts = context.cycle_drafts(|cycle| {
        cycle.edges.iter().any(|edge| waits_in_driver(context, edge) && context.on_driver_thread(edge))
    });
    for draft in &mut drafts {
        let Some(cycle) = draft.cycle.and_then(|position| context.cycles.get(position)) else { continue };
        let Some(edge) = cycle.edges.iter().find(|edge| waits_in_driver(context, edge)) else { continue };
        let who = context.names.party_in_full(&edge.waiter);
        let wait = edge.wait.map(|wait| &context.look.observations.waits[wait]);
        let call = context.names.call(&edge.waiter, wait.and_then(|wait| wait.frame)).phrase();
        if let ([_], Party::Thread(..)) = (cycle.edges.as_slice(), &edge.waiter) {
            draft.message = format!(
                "{who} runs a host function and waits{call} for {}, which goes on only when this function returns.",
                context.names.resource(&edge.resource),
            );
        }
    }
    drafts
}

/// Whether the wait is the driver's own: the first frame out from it that is not the C library's is the driver's.
fn waits_in_driver(context: &Context<'_>, edge: &CycleEdge) -> bool {
    let mut frames =
        context.names.frames(&edge.waiter).iter().skip(context.frame_of(edge)).skip_while(|frame| is_libc(frame));
    edge.resource.kind.topic != Topic::Gil && frames.next().is_some_and(|frame| context.names.is_driver(frame))
}

//! `gil-vs-host-function`: a host function of a stream needs the GIL while its holder waits for the stream.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-vs-host-function",
        title: "Python GIL <-> host function on a CUDA stream",
        severity: Severity::Error,
        what: "A CUDA stream has come to a function of the program, which the driver runs on a thread of its own. The function is Python and needs the GIL. A thread that holds the GIL waits for that stream or for the driver, so the function never returns and the stream never moves on.",
        cause: "cuLaunchHostFunc, cudaLaunchHostFunc and cuStreamAddCallback put a function into a stream. When the stream comes to it, a thread of the driver calls it, and the stream goes on when it returns. A Python function begins by waiting for the GIL. If a call that waits for the GPU is made with the GIL held, both wait for ever. Such a call is not only a synchronisation: freeing memory, a copy to the host, or a launch into a full queue can wait too.\n\nA host function that waits for another lock of the program (a threading.Lock, for example) closes the same circle without the GIL; the finding is then lock-order-cycle.",
        example: Example {
            file: "gil_vs_host_function.py",
            program: include_str!("examples/gil_vs_host_function.py"),
            command: "python3 gil_vs_host_function.py",
            needs: Requirement::Gpu,
        },
        help: &[
            "release the GIL around the synchronising call",
            "do no Python in a host function: set a flag or write to a descriptor in native code, and let a Python thread wait for that",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "load libcuda and libcudart with ctypes.CDLL, which releases the GIL during a call, not with ctypes.PyDLL. Instead of a host function, record an event behind the work and let a thread of Python wait for it with the GIL released.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "`Stream.add_callback` and `Stream.async_done` run Python on the driver's thread. Instead record an event (`numba.cuda.event()`, `event.record(stream)`) and call `event.synchronize()` in a thread of your own. The circle needs somebody who waits with the GIL held: mostly another library of the process.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "`Stream.launch_host_func` and `Stream.add_callback` run Python on the driver's thread. Instead record an event (`event = stream.record()`) and call `event.synchronize()` in a thread of your own. CuPy releases the GIL while it waits: look for another library that waits with the GIL held.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "`torch.cuda.synchronize`, `Stream.synchronize` and `Event.synchronize` release the GIL; functions of extensions do not by themselves. Bind them with `py::call_guard<py::gil_scoped_release>()`. PyTorch has no host functions of Python: find out which library added the one in the report, and use `torch.cuda.Event` in its place.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "release the GIL before anything that can wait for the GPU: `py::call_guard<py::gil_scoped_release>()` for the whole function, or a scope with `py::gil_scoped_release`. In the host function do not take `py::gil_scoped_acquire`: write to an eventfd or push into a queue of C++, and let a thread of Python read it.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "put synchronising calls into `with nogil:`. Write the host function as a `cdef` function with `noexcept nogil` that contains no `with gil:`.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "synchronise inside `py.detach(|| ...)` (`py.allow_threads` before PyO3 0.26). In the host function do not call `Python::attach`: send over a channel of `std::sync::mpsc`, and receive it in a detached thread.",
            },
            Fix {
                with: Toolkit::C,
                text: "put synchronising calls between Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS. A host function must not call PyGILState_Ensure: set an atomic flag, post a semaphore or write to an eventfd instead. Py_AddPendingCall can bring work to the main thread without the GIL.",
            },
        ],
        references: &["NVIDIA/numba-cuda#317", "NVIDIA/numba-cuda#321", "LMCache/LMCache#2952"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| {
        let through_gpu = cycle.edges.iter().any(|edge| edge.resource.kind.is_gpu());
        context.gil_waiter(cycle).is_some_and(|edge| through_gpu || context.on_driver_thread(edge))
    })
}

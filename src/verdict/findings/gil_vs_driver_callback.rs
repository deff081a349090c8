//! `gil-vs-driver-callback`: a driver callback needs the GIL while its holder waits for the driver.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-vs-driver-callback",
        title: "Python GIL <-> lock inside the CUDA driver",
        severity: Severity::Error,
        what: "The CUDA driver calls a function that the program gave it, and keeps a lock of its own while that function runs. The function is Python, so it needs the GIL. Another thread holds the GIL and has entered a driver call that needs the same lock. Each waits for the other.",
        cause: "Some calls of the driver take a function and call it at once: cuOccupancyMaxPotentialBlockSize asks it how much shared memory a block of a given size needs. Meanwhile the driver has the lock of the context for writing, and launches, allocations, copies, event records and module loads of other threads wait for it. That does no harm as long as these threads have released the GIL. If one keeps the GIL during its call (an extension that does not release it, ctypes.PyDLL), the function never gets it.\n\nA program can run for hours before two threads meet like this: the callback is short, and most driver calls are too.",
        example: Example {
            file: "gil_vs_driver_callback.py",
            program: include_str!("examples/gil_vs_driver_callback.py"),
            command: "python3 gil_vs_driver_callback.py",
            needs: Requirement::Gpu,
        },
        help: &[
            "give CUDA a native callback instead of a Python function (numba does since 0.46; numba/numba#4581)",
            "release the GIL around the driver call that the holder of the GIL makes (ctypes.CDLL does, ctypes.PyDLL does not)",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "functions of a library that ctypes.CDLL loaded release the GIL during a call, those of ctypes.PyDLL keep it. Load libcuda and libcudart with ctypes.CDLL.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "since 0.46 Numba gives the driver a compiled function where it asks for a block size (`kernel.forall(n)`, `get_max_potential_block_size`): update an older one. Compile a callback of your own with `@numba.cfunc(\"uintp(int32)\")` and pass its `.address`.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "`cupy.cuda.driver.occupancyMaxPotentialBlockSize` passes no function to the driver, and CuPy releases the GIL in its calls of CUDA. Look in the stacks of the report for another library of the process that has the callback, or that calls CUDA with the GIL held.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "operators that are registered with TORCH_LIBRARY and called as `torch.ops.name.op` run with the GIL released. Functions of an extension that are bound with PYBIND11_MODULE keep it: bind those that launch, allocate or copy with `py::call_guard<py::gil_scoped_release>()`.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "bind each function that calls CUDA with `py::call_guard<py::gil_scoped_release>()`, or open a scope with `py::gil_scoped_release` around the call. Let the callback be C++ that takes no `py::gil_scoped_acquire`.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "put the call into `with nogil:`, and give the driver a `cdef` function that is declared `noexcept nogil`.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "make the call inside `py.detach(|| ...)` (`py.allow_threads` before PyO3 0.26), and give the driver an `extern \"C\" fn` that does not call `Python::attach`.",
            },
            Fix {
                with: Toolkit::C,
                text: "put each call of CUDA that Python code can reach between Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS. A kernel whose shared memory does not depend on the block size needs no function: pass NULL and the size.",
            },
        ],
        references: &["numba/numba#4581", "rapidsai/ucx-py#187", "rapidsai/cudf#528"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| {
        context.gil_waiter(cycle).is_some_and(|edge| context.callback(edge).is_some())
            && cycle.edges.iter().any(|edge| edge.resource.kind.topic != Topic::Gil && context.in_driver(edge))
    });
    for draft in &mut drafts {
        let Some(cycle) = draft.cycle.and_then(|position| context.cycles.get(position)) else { continue };
        let Some(edge) = context.gil_waiter(cycle) else { continue };
        if let Some(callback) = context.callback(edge) {
            draft.message += &format!(
                " {} is inside {}, which the driver called from {}.",
                context.names.party(&edge.waiter),
                callback.function,
                callback.api
            );
        }
        if let Some(other) =
            cycle.edges.iter().find(|edge| edge.resource.kind.topic != Topic::Gil && context.in_driver(edge))
        {
            let who = context.names.party(&other.waiter);
            let who = who.split(" (").next().unwrap_or(&who).to_string();
            draft.help = vec![
                RULE.explanation.help[0].to_string(),
                format!("release the GIL around the driver call that {who} makes"),
            ];
        }
    }
    drafts
}

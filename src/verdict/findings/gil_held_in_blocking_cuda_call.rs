//! `gil-held-in-blocking-cuda-call`: the GIL is held while its holder waits for the GPU, and others want it.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;

use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-held-in-blocking-cuda-call",
        title: "the GIL is held by a thread that waits for the GPU",
        severity: Severity::Warning,
        what: "A thread waits for the GPU inside a call that did not release Python's global interpreter lock (the GIL). No Python code of the process runs until the GPU is done: not the threads that load data, not a heartbeat, not a handler of a signal. If one of them would have had to give the GPU something, nothing ever goes on.",
        cause: "The call came from native code that does not release the GIL: an extension, a destructor that runs when Python drops an object, or ctypes.PyDLL. Calls that wait for the GPU are not only those with `Synchronize` in their names: cudaFree, cudaFreeHost, cudaHostUnregister, cudaEventDestroy, a copy to the host's pageable memory, and the first use of a kernel can wait for all work of the device.\n\nAs long as the kernel ends, this is only slow. It is a deadlock when the kernel waits for something that Python was to do: write a flag, launch another kernel, or take part in a collective by another thread.",
        example: Example {
            file: "gil_held_in_blocking_cuda_call.py",
            program: include_str!("examples/gil_held_in_blocking_cuda_call.py"),
            command: "python3 gil_held_in_blocking_cuda_call.py",
            needs: Requirement::Gpu,
        },
        help: &[
            "release the GIL around the call (ctypes.CDLL does and ctypes.PyDLL does not; Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release, `with nogil`)",
            "a call that frees memory, an event or a stream waits as well: do not let it run in a finaliser of Python",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "load CUDA's libraries with ctypes.CDLL, not ctypes.PyDLL. Do not let the last reference to device memory go away in a place where waiting hurts: keep a pool of buffers.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "Numba's own calls release the GIL. Device arrays free their memory when Python drops them; `with numba.cuda.defer_cleanup():` puts that off to the end of the block.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "CuPy's own calls release the GIL, and its memory pool (`cupy.get_default_memory_pool()`, on by default) avoids cudaFree. Without the pool (`cupy.cuda.set_allocator(None)`) each array that goes away waits for the device.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "`torch.cuda.synchronize` and `.cpu()` release the GIL; functions of extensions do not by themselves: bind them with `py::call_guard<py::gil_scoped_release>()`, and let destructors of classes that own device memory release the GIL too. Update PyTorch: older releases kept the GIL in some destructors (see the references).",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "bind the function with `py::call_guard<py::gil_scoped_release>()`. A destructor is not covered by that: write `~Buffer() { py::gil_scoped_release release; cudaFree(memory); }`.",
            },
            Fix { with: Toolkit::Cython, text: "call CUDA in `with nogil:`, also in `__dealloc__`." },
            Fix {
                with: Toolkit::PyO3,
                text: "make the call inside `py.detach(|| ...)` (`py.allow_threads` before PyO3 0.26). `Drop` of a class gets no token: call `Python::attach(|py| py.detach(|| free()))` there, or free through a method that is called explicitly.",
            },
            Fix {
                with: Toolkit::C,
                text: "put the call between Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS, also in `tp_dealloc`. Memory of cudaMallocAsync is freed by cudaFreeAsync, which does not wait as cudaFree does.",
            },
        ],
        references: &["pytorch/pytorch#132520", "pytorch/pytorch#119393", "NVIDIA/numba-cuda#317"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| wait.resource.kind.is_gpu()) {
        let in_cycle = context.cycles.iter().any(|cycle| cycle.parties().any(|party| party == wait.waiter));
        let gil = seen.holds.iter().find(|hold| hold.holder == wait.waiter && hold.resource.kind.topic == Topic::Gil);
        let Some(gil) = gil.filter(|_| !in_cycle) else { continue };
        let others = seen.waits.iter().filter(|other| other.resource == gil.resource);
        let others: Vec<_> = others.map(|other| other.waiter.clone()).collect();
        if others.is_empty() {
            continue;
        }
        let count = match others.len() {
            1 => "1 thread waits".to_owned(),
            count => format!("{count} threads wait"),
        };
        let names = context.names;
        drafts.push(Draft {
            message: format!(
                "{} holds the GIL and waits for {}{}; {count} for the GIL.",
                names.party_in_full(&wait.waiter),
                names.waited_for(wait),
                names.call(&wait.waiter, wait.frame).phrase(),
            ),
            parties: std::iter::once(wait.waiter.clone()).chain(others).collect(),
            resources: vec![wait.resource.clone(), gil.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

//! `stop-the-world-blocked`: a pause of all Python threads does not come about.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "stop-the-world-blocked",
        title: "a pause of all Python threads waits for a thread that cannot pause",
        severity: Severity::Error,
        what: "In a Python without a GIL a thread has asked for a pause of all threads and waits until each has paused. One of them cannot: it waits, inside native code and still attached to the interpreter, for something that the asking thread holds.",
        cause: "Without a GIL, the garbage collector and whatever else needs all threads to stand still asks every thread that is attached to the interpreter to pause, and waits until the last one has. A thread that is attached and blocked in native code never sees that request. When it waits there for a lock of the thread that asked, both wait for ever. It is what the deadlock of GIL and native lock has become: not being attached takes the place of not having the GIL.",
        example: Example {
            file: "stop_the_world_blocked.py",
            program: include_str!("examples/stop_the_world_blocked.py"),
            command: "python3 stop_the_world_blocked.py",
            needs: Requirement::PythonWithoutGil,
        },
        help: &[
            "detach around calls of native code that can block: Py_BEGIN_ALLOW_THREADS, Cython's nogil, ctypes.CDLL instead of PyDLL",
            "release native locks before calling back into Python, where any allocation may start a collection",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "with ctypes use CDLL, which detaches during a call, not PyDLL. Do not call Python between lock and unlock of a native lock: any allocation may start a collection.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "`@jit(nogil=True)` code is detached while it runs; compiled code without `nogil=True` is attached: let it not wait for other threads.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "CuPy's own calls of CUDA detach. `cupy.cuda.PythonFunctionAllocator` and host functions attach again: take no lock in them under which another thread runs Python.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "PyTorch's own waits detach, as they released the GIL. In extensions release before waiting: `pybind11::gil_scoped_release` detaches in a Python without a GIL.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "`py::call_guard<py::gil_scoped_release>()` and `py::gil_scoped_release` detach the thread: use them around everything that can wait, as with a GIL. `py::mod_gil_not_used()` only says that a module works without a GIL.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "`with nogil:` detaches. `cython.pymutex` (Cython 3.1) detaches while it waits; a pthread_mutex or std::mutex does not.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "`py.detach(|| ...)` around everything that can wait (`py.allow_threads` before PyO3 0.26), or take locks with `MutexExt::lock_py_attached`, and initialise with `OnceExt::call_once_py_attached` or `PyOnceLock`.",
            },
            Fix {
                with: Toolkit::C,
                text: "Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS detach and attach: they are needed without a GIL too. PyMutex_Lock detaches while it waits, pthread_mutex_lock does not. Py_BEGIN_CRITICAL_SECTION is released when the thread waits or detaches.",
            },
        ],
        references: &["python/cpython#137433"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::StopTheWorld))
}

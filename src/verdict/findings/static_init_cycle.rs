//! `static-init-cycle`: initialisers of static variables, or once functions, that wait for each other.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "static-init-cycle",
        title: "initialisers wait for each other",
        severity: Severity::Error,
        what: "A static variable inside a function (or a once function) is being initialised by one thread, and others wait until that is done. The initialiser itself waits for one of them.",
        cause: "The first thread that comes to a static variable in a function runs its initialiser; others wait at a guard. Here the initialiser waits: for another variable whose initialiser needs this one, for a thread that it joins, or for a lock or the GIL that a waiting thread has. The last is common in extensions of Python: thread A initialises and releases the GIL on the way, thread B takes the GIL and waits at the guard.\n\nWho runs an initialiser is recorded nowhere: it is inferred from the thread whose code stands between the acquisition and the release of the guard.",
        example: Example {
            file: "static_init_cycle.cpp",
            program: include_str!("examples/static_init_cycle.cpp"),
            command: "c++ -g -pthread static_init_cycle.cpp -o hang && ./hang",
            needs: Requirement::Nothing,
        },
        help: &[
            "let no initialiser use another one's variable: merge them, or build both in one function that is called first",
            "initialise eagerly, before threads start",
            "release the GIL before a static initialiser that other threads may run (pybind11: gil_safe_call_once_and_store)",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "functools.cache does not lock, but a `cached_property` of Python up to 3.11 does, and so do lazily made singletons with a lock of their own: make them before threads are started.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "an extension's `static auto op = torch::Dispatcher...` or `static py::object` runs under the guard: see pybind11.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "in place of `static py::object x = py::module_::import(...)` use `PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> storage;` (pybind11 2.12), which releases the GIL while it waits. A static that does not need Python is initialised inside `py::gil_scoped_release`.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "C++ statics that are reached from Cython: call the function once in `with nogil:`, before threads.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "std::sync::OnceLock and LazyLock wait with the GIL held: use `PyOnceLock`, `OnceLockExt::get_or_init_py_attached`, or initialise inside `py.detach`.",
            },
            Fix {
                with: Toolkit::C,
                text: "let no initialiser use another one's variable: make both in one function that main calls first. With pthread_once and std::call_once the same rules hold; release the GIL (Py_BEGIN_ALLOW_THREADS) before them, and take it inside.",
            },
        ],
        references: &["pybind/pybind11#4877", "mattias800/prosper#1196"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::Initialiser))
}

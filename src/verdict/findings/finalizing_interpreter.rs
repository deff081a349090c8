//! `finalizing-interpreter`: at its end a program waits for what a daemon thread took with it.
//!
//! In: the judged look. Out: drafts of the finding. Whose interpreter is being finalised is known to the look.

use super::{Context, Draft, Example, Explanation, Fix, Orphan, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "finalizing-interpreter",
        title: "a program that ends waits for a lock of a thread that its end has stopped",
        severity: Severity::Error,
        what: "The program has come to its end, and Python is being taken down. Something that still runs waits for a lock of a daemon thread that the end has stopped.",
        cause: "When the main thread has come to its end, Python finalises the interpreter. From then on a daemon thread that asks for the GIL is ended (up to 3.13) or parked for good (3.14 on), wherever it is, with whatever it holds. Finalisers, atexit functions and destructors of C++ still run, and here one of them waits for a lock that such a thread had.",
        example: Example {
            file: "finalizing_interpreter.py",
            program: include_str!("examples/finalizing_interpreter.py"),
            command: "python3 finalizing_interpreter.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "do not use daemon threads for work that takes locks: tell them to stop, and join them before the program ends",
            "take no lock in __del__ and in atexit functions that a daemon thread may hold",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "do not use `daemon=True` for work that takes locks: set an event, and `thread.join()` before the program ends. Take no lock in `__del__` that such a thread may hold. From 3.15 on waiting for such a lock raises PythonFinalizationError.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "a daemon thread inside of a `nogil=True` function is parked when it returns to Python: join it first.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "join daemon threads that use CuPy before the end, and drop global arrays: their memory is freed by finalisers, under the pool's lock.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "end data loaders and `torch.distributed.destroy_process_group()` before the program's last line, so that their threads are gone.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "a native thread that takes `py::gil_scoped_acquire` while the interpreter goes never returns from it: stop such threads by a function of Python's module atexit, and hold no mutex around the acquisition.",
            },
            Fix { with: Toolkit::Cython, text: "the same holds for `with gil:` in a native thread." },
            Fix {
                with: Toolkit::PyO3,
                text: "`Python::attach` in a native thread hangs or panics while the interpreter goes; `Python::try_attach` gives None instead, in versions that have it.",
            },
            Fix {
                with: Toolkit::C,
                text: "PyGILState_Ensure in a native thread does not return while the interpreter goes: register a function with Python's module atexit that stops and joins these threads (Py_AtExit comes too late), and hold no lock around the call.",
            },
        ],
        references: &["python/cpython#87135"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts_of(context.orphans.iter().filter(|orphan| is_its(context, orphan)))
}

/// Whether the lock's owner is gone from a process whose interpreter is being finalised.
pub(super) fn is_its(context: &Context<'_>, orphan: &Orphan) -> bool {
    let look = context.look;
    let resource = look.observations.resource(&look.observations.holds[orphan.hold].resource);
    let python = resource.and_then(|resource| look.python.get(resource.process)?.as_ref());
    orphan.gone == Gone::Exited && python.is_some_and(|python| python.finalizing.is_some())
}

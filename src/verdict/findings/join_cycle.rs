//! `join-cycle`: a thread is joined that can not end.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "join-cycle",
        title: "a thread is joined that waits for the thread that joins it",
        severity: Severity::Error,
        what: "One thread waits for another to end, while it holds something (a lock, the GIL) that the other needs before it can end.",
        cause: "Shut-down code takes the lock that protects the list of threads, tells them to stop and joins them, and a thread takes the same lock on its way out. Or a destructor joins a thread, and runs wherever the last reference goes away: under any lock. Threads that join each other in a ring do it too.",
        example: Example {
            file: "join_cycle.py",
            program: include_str!("examples/join_cycle.py"),
            command: "python3 join_cycle.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "release the lock, or the GIL, before joining",
            "tell the thread to stop and let it finish first; join outside of destructors and of code under a lock",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "set an event or put None into the queue, release the lock, then `thread.join()`. With a pool, `executor.shutdown()` and the end of `with ThreadPoolExecutor()` join as well.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "a DataLoader's iterator joins its pin-memory thread and workers when it is dropped: drop it outside of locks. `torch.autograd` threads need the GIL to run Python functions: call `backward()` from C++ with the GIL released.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "a destructor that joins a thread must release the GIL: `~Worker() { py::gil_scoped_release release; thread.join(); }`.",
            },
            Fix { with: Toolkit::Cython, text: "join in `with nogil:`, also in `__dealloc__`." },
            Fix {
                with: Toolkit::PyO3,
                text: "`py.detach(|| handle.join())` (`py.allow_threads` before PyO3 0.26); `Drop` of a class that owns a thread needs it as well, if the thread calls `Python::attach`.",
            },
            Fix {
                with: Toolkit::C,
                text: "join outside of code under a lock and of destructors of global objects. In a library's clean-up put pthread_join between Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS, if Python code calls it.",
            },
        ],
        references: &["numpy/numpy#31284"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::Thread))
}

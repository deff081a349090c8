//! `self-deadlock`: a thread waits for what it holds.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "self-deadlock",
        title: "a thread waits for a lock that it holds itself",
        severity: Severity::Error,
        what: "The thread took the lock and takes it again before it has released it. It waits for itself.",
        cause: "A plain mutex does not count how often its owner took it, and a reader-writer lock cannot be turned from reading to writing. A function takes the lock and calls another one that takes it too: directly, through a callback, a destructor, an overloaded operator or a log handler, or because an error path forgot to release it.",
        example: Example {
            file: "self_deadlock.c",
            program: include_str!("examples/self_deadlock.c"),
            command: "cc -g -pthread self_deadlock.c -o hang && ./hang",
            needs: Requirement::Nothing,
        },
        help: &[
            "split the function: one that takes the lock, one that expects it taken",
            "use a recursive lock (std::recursive_mutex, threading.RLock) if the second call is meant",
            "look for a callback, destructor or signal handler between the two calls in the stack",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "use threading.RLock where a second call by the same thread is meant; else split the method: one that takes the lock, one with a leading underscore that expects it taken. multiprocessing.Lock and asyncio.Lock do not count either.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "an allocator of your own (`cupy.cuda.set_allocator`) that makes arrays inside of itself is called again by them: take memory there from a `cupy.cuda.MemoryPool` that was made before.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "a saved tensor hook, a module hook or a `__torch_function__` that calls what it hooks takes the same lock again: release it before, or use threading.RLock.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "a C++ method that holds a mutex and calls an overridden method (`PYBIND11_OVERRIDE`) may be called again by it: unlock before the call.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "`cython.pymutex` does not count. Use threading.RLock where the same thread may come again.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "std::sync::Mutex does not count: a method that calls Python under the guard may be entered again. End the guard's scope first, or use parking_lot::ReentrantMutex.",
            },
            Fix {
                with: Toolkit::C,
                text: "std::recursive_mutex or PTHREAD_MUTEX_RECURSIVE where the second call is meant. While you look for the place, PTHREAD_MUTEX_ERRORCHECK makes the second lock return EDEADLK.",
            },
        ],
        references: &["rapidsai/rmm#1504"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.edges.len() == 1)
}

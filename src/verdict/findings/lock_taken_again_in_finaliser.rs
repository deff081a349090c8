//! `lock-taken-again-in-finaliser`: a finaliser waits for what the code has that its object was dropped in.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::threads::{Frame, FrameKind};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "lock-taken-again-in-finaliser",
        title: "a finaliser waits for a lock that the code around it holds",
        severity: Severity::Error,
        what: "A finaliser (`__del__`, the callback of a weak reference) runs in a thread that holds a lock, and asks for the same lock. The code that would release it goes on only when the finaliser returns.",
        cause: "A `__del__` method or the callback of a weak reference runs wherever the last reference goes away, and those of objects that refer to each other run wherever the garbage collector happens to start: at almost any allocation. Here it started while its own thread held the lock. It needs the right moment, so it hangs once in a million calls.",
        example: Example {
            file: "lock_taken_again_in_finaliser.py",
            program: include_str!("examples/lock_taken_again_in_finaliser.py"),
            command: "python3 lock_taken_again_in_finaliser.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "take no lock in __del__ and in weakref callbacks, and call nothing there that does (logging, queue.Queue.put)",
            "let the finaliser append to a collections.deque or a queue.SimpleQueue, whose put may be called there, and do the work in a thread",
            "close explicitly (with, close()) instead of by __del__; a threading.RLock lets the call through, if the data may be seen half changed",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "take no lock in `__del__` and in weakref callbacks, and call nothing there that does (queue.Queue.put, loggers that write to a queue). Append to a collections.deque or queue.SimpleQueue, whose put may be called there, and let a thread do the work. Close explicitly: `with`, `close()`, contextlib. threading.RLock lets the second call through, if it may see data half changed.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "memory is returned to the pool when an array is dropped: an allocator or memory hook of your own (`cupy.cuda.MemoryHook`) must not take a lock under which arrays may be dropped.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "the same holds for callbacks of `weakref.finalize` on tensors and for hooks that run when storage is freed.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "the destructor of a bound class runs in the middle of Python's code: take no mutex in it under which Python is called.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "`__dealloc__` runs wherever the last reference goes away: no lock in it. `@cython.no_gc_clear` and `@cython.no_gc` change what the collector does, not this.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "`Drop` of a `#[pyclass]` runs in the middle of Python's code: take no lock in it, or `try_lock`.",
            },
            Fix {
                with: Toolkit::C,
                text: "take no lock in tp_dealloc and tp_finalize; use Py_AddPendingCall to do the work later. Drop references (Py_DECREF, Py_CLEAR) after unlocking: move them to a local variable first.",
            },
        ],
        references: &["getsentry/sentry-python#803", "Delgan/loguru#712"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts =
        context.cycle_drafts(|cycle| context.between(cycle).is_some_and(|frames| finaliser(frames).is_some()));
    for draft in &mut drafts {
        let cycle = draft.cycle.and_then(|cycle| context.cycles.get(cycle));
        if let Some(name) = cycle.and_then(|cycle| finaliser(context.between(cycle)?)) {
            draft.message += &format!(" The second time is in the finaliser {name}.");
        }
    }
    drafts
}

/// The finaliser among the frames between the wait and the code that has the lock.
fn finaliser(frames: &[Frame]) -> Option<String> {
    /// Functions of CPython that call finalisers and callbacks.
    const CALLERS: &[&str] = &[
        "PyObject_CallFinalizer",
        "slot_tp_finalize",
        "subtype_dealloc",
        "handle_weakrefs",
        "PyObject_ClearWeakRefs",
        "gc_collect",
    ];
    let is_finaliser = |name: &str| name == "__del__" || name.ends_with(".__del__");
    let python = frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    let by_name = python.filter_map(|frame| frame.function.as_deref()).find(|name| is_finaliser(name));
    by_name.map(str::to_owned).or_else(|| Some(super::called_by(frames, CALLERS)?.1))
}

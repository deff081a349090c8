//! `nobody-left-to-wake`: a thread waits to be woken, and nothing is left that could wake it.
//!
//! In: the judged look. Out: drafts of the finding. Who could wake whom is known to the lock families, not here.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Waking;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "nobody-left-to-wake",
        title: "a thread waits to be woken, and nobody is left who could do it",
        severity: Severity::Error,
        what: "A thread waits to be woken (at a condition, an event, a queue, a semaphore, a barrier), and nobody is left who could do it: the others have ended, or wait for this very thread.",
        cause: "Nobody holds what the thread waits for: it waits for others to come or to give a signal. Mostly one of them ended early, by an error or a way out that skips the call, or was never started. Or the signal came before the wait began and was lost, since a condition does not remember it.",
        example: Example {
            file: "nobody_left_to_wake.py",
            program: include_str!("examples/nobody_left_to_wake.py"),
            command: "python3 nobody_left_to_wake.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "make sure that every party comes to the barrier, or none: look for an early return or an exception in one of them",
            "count the parties where they are started: the number that the barrier was made for is in the report",
            "let those who wait have a time-out or a way to be told that a party is gone (std::barrier::arrive_and_drop)",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "put results and errors alike: `except BaseException as error: results.put(error)`, or use `concurrent.futures`, whose `result()` raises the error of the thread. Wait with a time-out and look at `thread.is_alive()`: `get(timeout=...)`, `wait(timeout=...)`. Call `task_done()` for each item, or `queue.join()` never returns.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "a host function that is to set an event is not called when the stream has failed: ask `stream.done` or synchronise with the event of the GPU as well.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "data loader workers that die leave the main process waiting without `timeout=`: set `DataLoader(timeout=120)`. For ranks see missing-rank.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "wait for a condition_variable with a predicate, and with the GIL released.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "wait in `with nogil:`; an error in the thread that is to signal must be caught and signalled too.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "`Receiver::recv` returns an error once all senders are dropped: do not keep a sender in the waiting thread. Wait in `py.detach`.",
            },
            Fix {
                with: Toolkit::C,
                text: "change the predicate and signal under the mutex, and test it before each wait: std::condition_variable::wait(lock, predicate). For barriers make sure that every party comes, or none; std::barrier::arrive_and_drop leaves one.",
            },
        ],
        references: &["OpenMathLib/OpenBLAS#1456"],
    },
    rule,
};

/// For queues, events, conditions and semaphores of Python.
const PYTHON_HELP: [&str; 3] = [
    "make sure that whoever is to call put(), set(), notify() or release() is still running and reaches that call: look for an exception that \
     ended it, and for a return before the call",
    "put the call into a `finally`, or end a queue by a value that says that no more will come",
    "wait with a time-out and look at what is left: get(timeout=...), wait(timeout=...)",
];

/// For conditions and semaphores.
const NATIVE_HELP: [&str; 2] = [
    "make sure that whoever is to signal or post is still running and reaches that call: look for a thread that ended early or was never started",
    "look for a wake-up that was sent before the wait began: change the predicate and signal under the mutex, and test it before \
     each wait",
];

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.dead_end_drafts(|kind| kind.waking != Waking::Data);
    for draft in &mut drafts {
        let help: &[&str] = match draft.resources.first().map(|key| key.kind.waking) {
            Some(Waking::Python) => &PYTHON_HELP,
            Some(Waking::Native) => &NATIVE_HELP,
            _ => &[],
        };
        draft.help = help.iter().map(|help| help.to_string()).collect();
    }
    drafts
}

//! `owner-exited`: the thread that holds a lock has ended.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit, finalizing_interpreter};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "owner-exited",
        title: "the owner of a lock exited without releasing it",
        severity: Severity::Error,
        what: "The thread that holds the lock has ended, and nobody can release the lock any more.",
        cause: "A thread ends between lock and unlock: by a return on an error path, by pthread_exit or cancellation, or by an exception that runs past the unlock. The mutex stays locked with the id of a thread that is gone. With a lock of Python it is the same: acquire() without release().",
        example: Example {
            file: "owner_exited.c",
            program: include_str!("examples/owner_exited.c"),
            command: "cc -g -pthread owner_exited.c -o hang && ./hang",
            needs: Requirement::Nothing,
        },
        help: &[
            "release on every way out: std::lock_guard, with, try/finally",
            "do not cancel or hang threads that may hold a lock",
            "where the owner may die, make the mutex robust (PTHREAD_MUTEX_ROBUST) and handle EOWNERDEAD",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "`with lock:` in place of acquire() and release(), or release in a `finally`.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "std::lock_guard releases when an exception passes, so does std::unique_lock; a bare mutex.lock() does not.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "`with lock:` releases on every way out; between pthread_mutex_lock and unlock use try/finally.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "guards are released when they are dropped, also by a panic, but not after `std::mem::forget`.",
            },
            Fix {
                with: Toolkit::C,
                text: "release on every way out: one exit label with `goto`, std::lock_guard in C++, pthread_cleanup_push where a thread may be cancelled. Where the owner may die make the mutex robust (PTHREAD_MUTEX_ROBUST) and handle EOWNERDEAD.",
            },
        ],
        references: &["man 3 pthread_mutexattr_setrobust"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    // What the end of an interpreter has stopped is told as that.
    let exited = context.orphans.iter().filter(|orphan| orphan.gone == Gone::Exited);
    context.orphan_drafts_of(exited.filter(|orphan| !finalizing_interpreter::is_its(context, orphan)))
}

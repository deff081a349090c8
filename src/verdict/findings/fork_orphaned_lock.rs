//! `fork-orphaned-lock`: fork copies memory with all locks in it, but only the thread that called it.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "fork-orphaned-lock",
        title: "a lock was copied by fork while another thread held it",
        severity: Severity::Error,
        what: "In a forked child a thread waits for a lock that another thread of the parent held at the moment of the fork. In the child nobody has it, and nobody can release it.",
        cause: "fork copies memory with all locks in it, but only the thread that called it. A lock that another thread held at that moment is held for ever in the child. It depends on the moment: a program with a logging thread forks a thousand times without harm. Locks of libraries count too: malloc's is handled by the C library itself, those of OpenMP, of BLAS, of a logger or of a database client mostly are not.",
        example: Example {
            file: "fork_orphaned_lock.py",
            program: include_str!("examples/fork_orphaned_lock.py"),
            command: "python3 fork_orphaned_lock.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "start workers with spawn or forkserver: multiprocessing.set_start_method(\"spawn\")",
            "fork before threads are started, or call exec at once after fork",
            "protect a library of your own with pthread_atfork or os.register_at_fork",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "`multiprocessing.set_start_method(\"spawn\")` or \"forkserver\" (the default on Linux since 3.14). Python 3.12 and later warn about a fork in a process with several threads. For a lock of your own: `os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)`.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "choose a threading layer that stands a fork: NUMBA_THREADING_LAYER=forksafe, which needs tbb. With GNU OpenMP Numba ends a child that was forked after a parallel function has run.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "no fork after the first use of CuPy: CUDA does not work in the child (cuda-after-fork).",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "`torch.set_num_threads(1)` in the parent before a fork avoids OpenMP's threads; better `DataLoader(multiprocessing_context=\"spawn\")`.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "a library with threads of its own registers pthread_atfork handlers, or says in its documentation that it must be loaded after the fork.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "std::process::Command starts a new program and is safe; a fork by nix or libc with threads running is not: only async-signal-safe calls until exec.",
            },
            Fix {
                with: Toolkit::C,
                text: "fork before threads are started, or call exec at once after fork (posix_spawn does both). Protect a library of your own with pthread_atfork: take its locks before, release them in both processes after.",
            },
        ],
        references: &["pytorch/pytorch#75147", "ultralytics/ultralytics#26085"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts(Gone::LeftInParent)
}

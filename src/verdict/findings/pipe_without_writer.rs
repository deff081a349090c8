//! `pipe-without-writer`: a thread waits for a pipe whose other end only its own process has.
//!
//! In: the judged look. Out: drafts of the finding. It decides nothing about pipes.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Waking;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "pipe-without-writer",
        title: "a pipe is waited for whose other end only the waiter has",
        severity: Severity::Error,
        what: "A thread waits at a pipe or socket whose other end only its own process has. No data can come, and no end either.",
        cause: "A reader of a pipe gets its end when the last write end is closed. Here the reader's own process holds a write end itself, and nobody else does. Mostly the write end was kept open after fork, or was inherited by mistake by a process that lives longer. The same holds for a writer that keeps the only read end of a full pipe.",
        example: Example {
            file: "pipe_without_writer.py",
            program: include_str!("examples/pipe_without_writer.py"),
            command: "python3 pipe_without_writer.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "close the write end in the process that reads, right after fork or after starting the child",
            "create pipes with O_CLOEXEC, so that children started later do not inherit the ends",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "after os.pipe() and a fork close the end that is not used: `os.close(writing)` in the reader. With multiprocessing.Pipe the parent calls `writer.close()` after `process.start()`; then `recv()` raises EOFError when the child is gone.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "with `torch.multiprocessing` the same holds as for multiprocessing; torchrun's workers do not inherit pipes of each other.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "`std::io::pipe()` gives two ends that close when they are dropped: drop the writer before reading.",
            },
            Fix {
                with: Toolkit::C,
                text: "close the write end in the process that reads, right after fork or after starting the child. Make pipes with pipe2(ends, O_CLOEXEC) and sockets with SOCK_CLOEXEC, so that programs started later do not inherit them.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "a background process that was started with the write end open keeps it: start it with `>/dev/null`, or close the descriptor with `3>&-`.",
            },
        ],
        references: &["man 7 pipe", "python/cpython#82300"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.dead_end_drafts(|kind| kind.waking == Waking::Data)
}

//! `pipe-cycle`: processes wait for each other through pipes.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// What is written to at one end and read from at the other.
/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "pipe-cycle",
        title: "processes wait for each other through a pipe or socket",
        severity: Severity::Error,
        what: "Processes wait for each other through a pipe or a socket: one waits for room or for data in it, and the one that could read or write waits for the first.",
        cause: "A pipe holds some 64 KiB, a socket some hundred. A process that writes more waits until somebody reads, and the only process that could read waits for the writer: for its end (wait, join, Popen.wait), or because it writes a full pipe of its own in the other direction. Or each waits for the other to speak first: both read, and what one believes to have sent still lies in a buffer, or was never written.\n\nWith little output it works; it hangs when a child prints more than usual, most often a long traceback.",
        example: Example {
            file: "pipe_cycle.py",
            program: include_str!("examples/pipe_cycle.py"),
            command: "python3 pipe_cycle.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "read what the child writes before waiting for its end: Popen.communicate(), or a thread that drains the pipe",
            "where both sides write, let one of them read first, or use non-blocking descriptors with poll",
            "flush what was written before waiting for the answer, and agree on who speaks first",
            "close the ends that a process does not need right after fork",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "`subprocess.run(..., capture_output=True)` or `Popen.communicate()` read while they wait; `Popen.wait()` and `call()` with stdout=PIPE do not. Take results out of a multiprocessing.Queue before `process.join()`: a child ends only when its queue has been read. Write to a conversation with `flush=True`, and start a child of Python with -u.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "get all results from a `torch.multiprocessing.Queue` before `process.join()`, and keep the sender alive until its tensors have been received.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "`std::process::Child::wait_with_output` reads both pipes, `wait` reads none; and call it in `py.detach`.",
            },
            Fix {
                with: Toolkit::C,
                text: "read with poll from all pipes of a child until the end of each, then waitpid. Close the ends that a process does not need right after fork. setvbuf(stdout, 0, _IOLBF, 0) sends each line at once, also into a pipe.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "`stdbuf -oL PROGRAM` makes a program of C send each line at once; a named pipe opens only when both sides have it open.",
            },
        ],
        references: &["localstack/localstack#1101", "dagster-io/dagster#6435", "aws/s2n-tls#831"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::Data))
}

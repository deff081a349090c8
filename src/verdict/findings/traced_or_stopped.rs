//! `traced-or-stopped`: a process is stopped by a signal or a debugger.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::image::TaskState;
use crate::report::Severity;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "traced-or-stopped",
        title: "a process is stopped by a signal, frozen, or held by a debugger",
        severity: Severity::Warning,
        what: "The threads of the process do not run because a signal (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU) stopped it, because its control group is frozen, or because a debugger holds it. That looks like a hang and is none.",
        cause: "A job in the background that reads from the terminal is stopped by SIGTTIN, and one that sets the terminal's modes by SIGTTOU. Control-Z sends SIGTSTP. docker pause, a batch system that suspends jobs, and systemctl freeze stop the whole control group. A debugger or strace that was left attached keeps a process where it was.",
        example: Example {
            file: "traced_or_stopped.sh",
            program: include_str!("examples/traced_or_stopped.sh"),
            command: "sh traced_or_stopped.sh",
            needs: Requirement::Nothing,
        },
        help: &["continue a stopped process with `kill -CONT PID`", "let the debugger continue or detach"],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "a debugger in a child (pdb, breakpoint()) in the background reads from the terminal and is stopped: start it in the foreground, or with its input from /dev/null.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "torchrun's workers are in the background of the terminal: `breakpoint()` in one of them stops it. `torch.distributed.breakpoint()` lets one rank talk and the others wait.",
            },
            Fix {
                with: Toolkit::C,
                text: "waitpid with WUNTRACED tells a parent that its child was stopped. ptrace(PTRACE_DETACH) or the end of the tracer lets a traced process go on.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "`kill -CONT PID`, or `fg` in the shell that started it; `docker unpause NAME`; `scontrol resume JOB`; `systemctl thaw UNIT`. `grep -E 'State|TracerPid' /proc/PID/status` shows which it is.",
            },
        ],
        references: &["man 7 signal", "man 2 ptrace"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (position, process) in context.look.image.processes.iter().enumerate() {
        let pid = process.pid;
        let in_state = |state| -> Vec<Party> {
            let threads = process.threads.iter().filter(|thread| thread.state == state);
            threads.map(|thread| Party::Thread(position, thread.tid)).collect()
        };
        let frozen = context.look.image.kernel.frozen.iter().find(|(frozen, _)| *frozen == pid);
        if let Some((_, group)) = frozen {
            let threads = process.threads.iter().map(|thread| Party::Thread(position, thread.tid));
            drafts.push(Draft {
                message: format!(
                    "Process {pid} is frozen by its control group {group}: its threads do not run until it is thawed."
                ),
                help: vec![
                    "thaw it where it was frozen: docker unpause, systemctl thaw, the batch system's resume".into(),
                    format!(
                        "or by hand: echo 0 > /sys/fs/cgroup{group}/cgroup.freeze (older control groups: echo THAWED > \
                         /sys/fs/cgroup/freezer{group}/freezer.state)"
                    ),
                ],
                parties: threads.collect(),
                ..Draft::default()
            });
            continue;
        }
        let stopped = in_state(TaskState::Stopped);
        let traced = in_state(TaskState::Traced);
        if !stopped.is_empty() {
            drafts.push(Draft {
                message: format!("Process {pid} is stopped by a signal: its threads do not run until it is continued."),
                help: vec![format!("continue it with `kill -CONT {pid}`")],
                parties: stopped,
                ..Draft::default()
            });
        } else if !traced.is_empty() || process.tracer.is_some() {
            let by = process.tracer.as_ref().map_or("a debugger".into(), |(tracer, name)| format!("{name} ({tracer})"));
            drafts.push(Draft {
                message: format!("Process {pid} is traced by {by}."),
                help: vec![format!("let {by} continue the process or detach from it")],
                parties: traced,
                ..Draft::default()
            });
        }
    }
    drafts
}

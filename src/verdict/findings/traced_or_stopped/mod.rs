//! `traced-or-stopped`: a process is stopped by a signal or a debugger.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::image::TaskState;
use crate::report::Severity;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "traced-or-stopped",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "traced_or_stopped.sh",
        program: include_str!("example.sh"),
        command: "sh traced_or_stopped.sh",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (position, process) in context.input.image.processes.iter().enumerate() {
        let pid = process.pid;
        let in_state = |state| -> Vec<Party> {
            let threads = process.threads.iter().filter(|thread| thread.state == state);
            threads.map(|thread| Party::Thread(position, thread.tid)).collect()
        };
        let frozen = context.input.image.kernel.frozen.iter().find(|(frozen, _)| *frozen == pid);
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
            let by =
                context.input.image.kernel.stopped.iter().find(|(known, _)| *known == pid).map(|(_, signal)| *signal);
            let (message, help) = stopped_by(pid, by);
            drafts.push(Draft { message, help, parties: stopped, ..Draft::default() });
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

/// The cause of a process's stop, and the commands that continue it. A process that was stopped for its use of a
/// terminal does the same again at once, so SIGCONT alone does not help. The numbers are those of Linux on every
/// machine but MIPS, Alpha and SPARC.
fn stopped_by(pid: i32, signal: Option<i32>) -> (String, Vec<String>) {
    let go_on = format!("continue it with `kill -CONT {pid}`");
    let foreground = "bring it to the foreground: `fg` in the shell that started it";
    let (how, help) = match signal {
        Some(19) => ("by SIGSTOP: its threads do not run until it is continued", vec![go_on]),
        Some(20) => (
            "by SIGTSTP (Ctrl-Z at its terminal): its threads do not run until it is continued",
            vec![format!("{foreground}, or `kill -CONT {pid}`")],
        ),
        Some(21) => (
            "by SIGTTIN: it runs in the background and reads from its terminal",
            vec![format!("{foreground}; continued there, it stops again"), "start it with `< /dev/null`".into()],
        ),
        Some(22) => (
            "by SIGTTOU: it runs in the background and writes to its terminal, or changes how that works",
            vec![
                format!("{foreground}; continued there, it stops again"),
                "allow it to write from there by `stty -tostop`".into(),
            ],
        ),
        _ => ("by a signal: its threads do not run until it is continued", vec![go_on]),
    };
    (format!("Process {pid} is stopped {how}."), help)
}

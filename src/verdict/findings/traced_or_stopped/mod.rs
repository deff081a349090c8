//! `traced-or-stopped`: a process is stopped by a signal or a debugger.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Requirement, Rule};
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

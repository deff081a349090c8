//! `lazy-loading-vs-running-kernel`: code is loaded while a kernel runs, and loading waits for the kernel.
//!
//! In: the judged sample. Out: drafts of the finding. Whether the kernel waits for the loading thread is not seen from
//! here.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Topic;
use crate::waits::{Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "lazy-loading-vs-running-kernel",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "lazy_loading_vs_running_kernel.py",
        program: include_str!("example.py"),
        command: "python3 lazy_loading_vs_running_kernel.py",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| wait.resource.kind.topic == Topic::Gpu) {
        let Party::Thread(process, _) = wait.waiter else { continue };
        let call = context.names.call(&wait.waiter, wait.frame);
        if !call.api.as_deref().is_some_and(cuda::calls::loads_code) {
            continue;
        }
        let image = context.input.image.processes.get(process);
        let eager = image.and_then(|image| image.variable("CUDA_MODULE_LOADING")) == Some("EAGER");
        let note = if eager { " It was started with CUDA_MODULE_LOADING=EAGER: this code came later." } else { "" };
        drafts.push(Draft {
            message: format!(
                "{} loads code onto the GPU{} and waits there for what runs on it.{note}",
                context.names.party_in_full(&wait.waiter),
                call.phrase(),
            ),
            parties: vec![wait.waiter.clone()],
            resources: vec![wait.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

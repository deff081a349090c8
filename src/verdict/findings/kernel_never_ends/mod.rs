//! `kernel-never-ends`: threads wait for the GPU, and a core of it says which kernel had not ended, and on which line.
//!
//! In: the judged sample, with cores of GPUs. Out: drafts of the finding, one a kernel. One core cannot tell a kernel
//! that takes its time from one without end: the message says what is known.

use super::kernels::{not_ended, spun_on, waits_for_gpu};
use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::image::ProcessImage;
use crate::limits::verdict::KERNELS_TOLD;
use crate::report::Severity;
use crate::waits::cuda::kernels::key;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "kernel-never-ends",
    severity: Severity::Note,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "kernel_never_ends.py",
        program: include_str!("example.py"),
        command: "python3 kernel_never_ends.py",
        needs: Requirement::GpuCore,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let processes = context.input.image.processes.iter().enumerate();
    processes.flat_map(|(position, process)| of_process(context, position, process)).collect()
}

fn of_process(context: &Context<'_>, position: usize, process: &ProcessImage) -> Vec<Draft> {
    let waits = waits_for_gpu(context, position);
    // With a core of the GPU alone, there are no threads, and the kernels are the whole report.
    if waits.is_empty() && !process.threads.is_empty() {
        return Vec::new();
    }
    let kernels = context.input.gpu_cores.of(position).iter().flat_map(|core| core.kernels());
    let kernels = kernels.map(|(device, kernel)| (device, kernel, key(position, device, kernel)));
    kernels
        .filter(|(_, kernel, key)| spun_on(context, kernel, key).is_empty())
        .take(KERNELS_TOLD)
        .map(|(device, kernel, key)| Draft {
            message: not_ended(context, &waits, device, kernel),
            parties: waits.iter().map(|wait| wait.waiter.clone()).collect(),
            resources: waits.iter().map(|wait| wait.resource.clone()).chain([key]).collect(),
            ..Draft::default()
        })
        .collect()
}

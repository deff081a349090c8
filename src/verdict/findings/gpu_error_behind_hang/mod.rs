//! `gpu-error-behind-hang`: a core of the GPU has an error of a kernel, from which on every call of CUDA fails.
//!
//! In: the judged look, with cores of GPUs. Out: drafts of the finding, one an error.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::limits::verdict::ERRORS_TOLD;
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "gpu-error-behind-hang",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "gpu_error_behind_hang.py",
        program: include_str!("example.py"),
        command: "python3 gpu_error_behind_hang.py",
        needs: Requirement::GpuCore,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let processes = 0..context.input.image.processes.len();
    let cores = processes.flat_map(|position| context.input.gpu_cores.of(position));
    let errors =
        cores.flat_map(|core| &core.devices).flat_map(|device| device.errors.iter().map(move |error| (device, error)));
    errors
        .take(ERRORS_TOLD)
        .map(|(device, error)| Draft {
            message: format!(
                "On GPU {} {}. From then on every call of CUDA in the process returns that error: whoever got it may have \
                 stopped giving what others wait for.",
                device.number,
                error.told()
            ),
            ..Draft::default()
        })
        .collect()
}

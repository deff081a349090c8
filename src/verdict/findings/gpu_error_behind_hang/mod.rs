//! `gpu-error-behind-hang`: a core of the GPU has an error of a kernel, from which on every call of CUDA fails; or the runtime keeps one
//! for a thread, which nobody has asked for; or the recorder saw a call of the driver answer one; or the kernel's driver has written
//! one into the kernel's log (Xid).
//!
//! In: the judged sample, with cores of GPUs and what the runtime keeps. Out: drafts of the finding, one an error.
//! Errors that programs leave behind when they look for a GPU are none.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::image::cuda_errors::{self, Meaning};
use crate::limits::verdict::ERRORS_TOLD;
use crate::report::Severity;
use crate::waits::Party;
use crate::waits::circumstances::{DriverCalled, LastError};
use crate::waits::model::Role;

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
    let of_kernels = errors.take(ERRORS_TOLD).map(|(device, error)| Draft {
        message: format!(
            "On GPU {} {}. From then on every call of CUDA in the process returns that error: whoever got it may have \
             stopped giving what others wait for.",
            device.number,
            error.told()
        ),
        ..Draft::default()
    });
    let kept = context.input.observations.last_errors.iter().filter_map(|kept| unasked(context, kept));
    let seen = context.input.observations.driver_calls.iter().filter_map(|call| answered(context, call));
    let logged = logged(context).take(ERRORS_TOLD);
    of_kernels.chain(kept.take(ERRORS_TOLD)).chain(seen.take(ERRORS_TOLD)).chain(logged).collect()
}

/// Errors that the kernel's driver has written while a process lived that waits for its GPU.
fn logged<'c>(context: &'c Context<'_>) -> impl Iterator<Item = Draft> + 'c {
    let processes = context.input.image.processes.iter().enumerate();
    let concerned = processes.flat_map(move |(position, process)| {
        let errors = context.input.gpu.into_iter().flat_map(move |gpu| gpu.errors_of(process));
        errors.map(move |error| (error, position, process))
    });
    concerned.filter_map(|(error, position, process)| {
        let waits = context.input.observations.waits.iter();
        let mut waits = waits.filter(|wait| wait.resource.kind.is_gpu());
        let wait = waits.find(|wait| matches!(wait.waiter, Party::Thread(of, _) if of == position))?;
        Some(Draft {
            title: Some("the kernel's driver has written an error of the GPU".into()),
            message: format!(
                "While process {} lived the kernel's driver has written {}. {} waits for {}{}.",
                process.pid,
                error.told(),
                context.names.party_in_full(&wait.waiter),
                context.names.waited_for(wait),
                context.names.call(&wait.waiter, wait.frame).phrase(),
            ),
            parties: vec![wait.waiter.clone()],
            ..Draft::default()
        })
    })
}

/// An error of the kind that ends a context. A call of the driver returned it, and a thread of the process waits.
fn answered(context: &Context<'_>, call: &DriverCalled) -> Option<Draft> {
    let (number, function, since) = call.error.as_ref()?;
    // The driver and the runtime have the same numbers for these.
    let error = cuda_errors::of(*number).filter(|error| error.meaning == Meaning::Lost)?;
    let Party::Thread(process, _) = call.thread else { return None };
    let is_reportable = |kept: &LastError| kept.thread == call.thread && kept.error.number == *number;
    if !somebody_waits(context, process) || context.input.observations.last_errors.iter().any(is_reportable) {
        return None;
    }
    let when = since.map(|since| format!(" {:.1} s ago", since as f64 / 1000.0)).unwrap_or_default();
    Some(Draft {
        title: Some("a call of CUDA has failed".into()),
        message: format!(
            "{function} has answered {number} ({}) to {}{when}, as the recorder saw: a kernel or the GPU failed, and from then on \
             every call of CUDA in the process fails. Whoever got the error may have stopped giving what others wait for.",
            error.name(),
            context.names.party_in_full(&call.thread),
        ),
        parties: vec![call.thread.clone()],
        help: [
            "let the thread that gets an error of CUDA end the process, since the context cannot be used again",
            "run under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1, which shows whose kernel failed",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Draft::default()
    })
}

/// Whether a thread of the process waits for anything but for work to do.
fn somebody_waits(context: &Context<'_>, process: usize) -> bool {
    let seen = context.input.observations;
    let is_idle = |key| {
        context
            .names
            .described(key)
            .is_some_and(|resource| matches!(resource.role, Some(Role::IdleWork | Role::EventLoop { .. })))
    };
    let mut waits = seen.waits.iter().filter(|wait| matches!(wait.waiter, Party::Thread(of, _) if of == process));
    waits.any(|wait| !is_idle(&wait.resource))
}

/// An error that the program never requested, in a process with a waiting thread.
fn unasked(context: &Context<'_>, kept: &LastError) -> Option<Draft> {
    let Party::Thread(process, _) = kept.thread else { return None };
    if !somebody_waits(context, process) {
        return None;
    }
    let (behind, help) = match kept.error.meaning {
        Meaning::Lost => {
            ("a kernel or the GPU failed, and from then on every call of CUDA in the process fails", Vec::new())
        }
        Meaning::Refused => (
            "the call did nothing. If it was to launch a kernel, that never ran, and who waits for what it would have \
             written waits without end",
            [
                "check what each call of CUDA returns, and cudaGetLastError() right behind each launch, which returns nothing",
                "look whether a launch has more threads in a block, or more shared memory, than the GPU allows \
                 (cudaFuncGetAttributes), or code that was not compiled for it (-arch)",
            ]
            .map(str::to_owned)
            .to_vec(),
        ),
        Meaning::Other => return None,
    };
    Some(Draft {
        title: Some("a call of CUDA failed before, and nobody has asked for its error".into()),
        message: format!(
            "The last error that CUDA's runtime has for {} is {} ({}), and nobody has asked for it since (cudaGetLastError): {behind}.",
            context.names.party_in_full(&kept.thread),
            kept.error.number,
            kept.error.name(),
        ),
        parties: vec![kept.thread.clone()],
        help,
        ..Draft::default()
    })
}

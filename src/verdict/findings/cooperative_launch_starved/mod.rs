//! `cooperative-launch-starved`: a cooperative kernel was launched, and is not on the GPU, where others have blocks.
//!
//! In: the judged sample with cores of GPUs, and what threads gave to the GPU by their code. Out: drafts of the
//! finding. Whether it stands behind others in its own stream, or finds no room, the driver does not say.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::symbols::demangle;
use crate::verdict::assemble::gpu_kernel;
use crate::waits::Party;
use crate::waits::circumstances::{Queued, Work};
use crate::waits::cuda::kernels::key;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "cooperative-launch-starved",
    severity: Severity::Note,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "cooperative_launch_starved.c",
        program: include_str!("example.c"),
        command: "cc -g cooperative_launch_starved.c -o hang -lcuda && ./hang",
        needs: Requirement::GpuCore,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.input.observations.queued.iter().filter_map(|queued| draft(context, queued)).collect()
}

fn draft(context: &Context<'_>, queued: &Queued) -> Option<Draft> {
    let (Work::Cooperative(symbol), Party::Thread(process, _)) = (&queued.work, &queued.waiter) else { return None };
    let seen = context.input.observations;
    let wait = seen.waits.iter().find(|wait| wait.waiter == queued.waiter && wait.resource.kind.is_gpu())?;
    let name = symbol.as_deref().map(|symbol| crate::gpu::short_name(&demangle(symbol)));
    let kernels: Vec<_> = context.input.gpu_cores.of(*process).iter().flat_map(|core| core.kernels()).collect();
    // Without a name, the launched kernel cannot be found among the running ones.
    let is_there = kernels.iter().any(|(_, kernel)| name.as_ref().is_none_or(|name| *name == kernel.name));
    if kernels.is_empty() || (is_there && name.is_some()) {
        return None;
    }
    let names = context.names;
    let what = name.as_ref().map_or("a kernel".to_owned(), |name| format!("kernel {name}"));
    let told: Vec<String> = kernels
        .iter()
        .take(KERNELS)
        .map(|(device, kernel)| {
            let blocks = match kernel.seen.blocks {
                1 => "1 block".to_owned(),
                blocks => format!("{blocks} blocks"),
            };
            format!("on GPU {} {} has {blocks}", device.number, gpu_kernel(kernel).told())
        })
        .collect();
    let absent = match name {
        Some(_) => "and it is not on the GPU",
        None => "and whether it is on the GPU is not known",
    };
    let message = format!(
        "{} waits for {}{}. Before that it launched {what} by {}{}, {absent}: such a kernel begins when all its blocks have room \
         at a time, and when its stream is through with what was before. Meanwhile {}.",
        names.party(&wait.waiter),
        names.resource(&wait.resource),
        names.call(&wait.waiter, wait.frame).phrase(),
        queued.call,
        queued.place.as_ref().map(|place| format!(" in {place}")).unwrap_or_default(),
        told.join(", "),
    );
    let keys = kernels.iter().map(|(device, kernel)| key(*process, device, kernel));
    Some(Draft {
        message,
        parties: vec![wait.waiter.clone()],
        resources: std::iter::once(wait.resource.clone()).chain(keys).collect(),
        ..Draft::default()
    })
}

/// At most this many kernels are in the message.
const KERNELS: usize = 3;

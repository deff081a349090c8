//! `kernel-never-ends`: threads wait for the GPU, and a core of it says which kernel had not ended, and on which line.
//!
//! In: the judged look, with cores of GPUs. Out: drafts of the finding, one a kernel. One core cannot tell a kernel that takes its
//! time from one without end: the message says what is known.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::gpu::{Device, Kernel};
use crate::image::gpu::is_device;
use crate::image::{Addr, MemoryExt, ProcessImage};
use crate::limits::verdict::{ARGUMENTS_READ, KERNELS_TOLD};
use crate::report::Severity;
use crate::verdict::assemble::gpu_kernel;
use crate::waits::cuda::kernels::key;
use crate::waits::{Party, Wait};

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

/// Places of a kernel that the message tells.
const PLACES: usize = 3;

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let processes = context.input.image.processes.iter().enumerate();
    processes.flat_map(|(position, process)| of_process(context, position, process)).collect()
}

fn of_process(context: &Context<'_>, position: usize, process: &ProcessImage) -> Vec<Draft> {
    let seen = context.input.observations;
    let own = |wait: &&Wait| matches!(wait.waiter, Party::Thread(of, _) if of == position);
    let waits: Vec<&Wait> = seen.waits.iter().filter(own).filter(|wait| wait.resource.kind.is_gpu()).collect();
    let cores = context.input.gpu_cores.of(position);
    // A core of the GPU alone is all there is to tell.
    if waits.is_empty() && !process.threads.is_empty() {
        return Vec::new();
    }
    let kernels = cores.iter().flat_map(|core| core.kernels());
    kernels
        .take(KERNELS_TOLD)
        .map(|(device, kernel)| draft(context, position, process, &waits, device, kernel))
        .collect()
}

fn draft(
    context: &Context<'_>,
    position: usize,
    process: &ProcessImage,
    waits: &[&Wait],
    device: &Device,
    kernel: &Kernel,
) -> Draft {
    let names = context.names;
    let told = gpu_kernel(kernel);
    let mut message = match waits.first() {
        Some(wait) => format!(
            "{} waits for {}{}. ",
            names.party(&wait.waiter),
            names.resource(&wait.resource),
            names.call(&wait.waiter, wait.frame).phrase()
        ),
        None => String::new(),
    };
    let seen = kernel.seen;
    message += &format!("On GPU {} {} had not ended: {}", device.number, told.told(), threads(seen.threads));
    let blocks = kernel.grid.iter().fold(1u64, |product, size| product.saturating_mul(u64::from(*size)));
    message +=
        &format!(" of {}", if seen.blocks == 1 { "1 block".to_owned() } else { format!("{} blocks", seen.blocks) });
    let places = told.places.iter().take(PLACES).map(|place| match told.places.len() {
        1 => format!("all {}", place.told()),
        _ => format!("{} {}", place.threads, place.told()),
    });
    let places: Vec<String> = places.collect();
    if !places.is_empty() {
        message += &format!(", {}", places.join(", "));
    }
    message += ".";
    if blocks > seen.blocks as u64 {
        let (away, be) = match blocks - seen.blocks as u64 {
            1 => ("1".to_owned(), "was"),
            away => (away.to_string(), "were"),
        };
        message += &format!(" {away} of its {blocks} blocks {be} not on the GPU: ended, or to begin when others end.");
    }
    if let Some(operation) = kernel.collective.as_ref().and_then(|one| one.operation.as_deref()) {
        message += &format!(" It is part of NCCL's {operation}, which waits until all ranks have come to it.");
    }
    message += &words(process, kernel);
    Draft {
        message,
        parties: waits.iter().map(|wait| wait.waiter.clone()).collect(),
        resources: waits.iter().map(|wait| wait.resource.clone()).chain([key(position, device, kernel)]).collect(),
        ..Draft::default()
    }
}

/// " Its argument 1 is 0x7f.., memory of the host, where the word is 0x0."
fn words(process: &ProcessImage, kernel: &Kernel) -> String {
    let mut text = String::new();
    for (number, argument) in kernel.arguments.iter().enumerate().take(ARGUMENTS_READ) {
        let address = Addr(*argument);
        // What is reserved for the GPU's own memory cannot be read; files of the device never are.
        let of_host = |mapping: &&crate::image::Mapping| mapping.read && mapping.write && !is_device(mapping);
        if process.mapping(address).filter(of_host).is_none() {
            continue;
        }
        text += &match process.memory.u32(address) {
            Ok(word) => {
                format!(" Its argument {} is {address}, memory of the host, where the word is {word:#x}.", number + 1)
            }
            Err(_) => format!(" Its argument {} is {address}, memory of the host, which was not captured.", number + 1),
        };
    }
    text
}

fn threads(count: usize) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

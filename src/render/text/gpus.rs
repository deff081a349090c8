//! The kernels on the GPUs: a line for each kernel, and one for each place of its threads.
//!
//! In: a report with cores of GPUs. Out: lines. It decides nothing.

use super::page::Page;
use crate::render::view::View;
use crate::report::{Gpu, GpuKernel};

/// Places of a kernel that are shown; the rest is counted.
const PLACES: usize = 6;
/// Words of its arguments.
const ARGUMENTS: usize = 6;
/// Kernels of a device.
const KERNELS: usize = 20;

/// The section, if it has content.
pub(super) fn section(view: &View, page: &mut Page) {
    for process in &view.report.processes {
        for gpu in &process.gpus {
            let whose = if view.report.processes.len() > 1 {
                format!(" of {}", view.process_name(&process.id))
            } else {
                String::new()
            };
            page.plain(&format!("GPU {}{whose} ({}, {}):", gpu.device, gpu.name, gpu.architecture));
            one(gpu, page);
            page.blank();
        }
    }
}

fn one(gpu: &Gpu, page: &mut Page) {
    for error in &gpu.errors {
        let kernel = error.kernel.as_ref().map(|kernel| format!(" in {kernel}")).unwrap_or_default();
        let place = error.lines.last().map(|line| format!(" at {}", line.place())).unwrap_or_default();
        page.frame(&format!("  error: {}{kernel}{place}", error.what));
    }
    if gpu.kernels.is_empty() {
        page.frame("  no kernel runs");
    }
    for kernel in gpu.kernels.iter().take(KERNELS) {
        page.frame(&format!(
            "  {}  {}, {}",
            kernel.told(),
            kernel.status,
            count(kernel.blocks, kernel.warps, kernel.threads)
        ));
        collective(kernel, page);
        if !kernel.arguments.is_empty() {
            let words: Vec<&str> = kernel.arguments.iter().take(ARGUMENTS).map(String::as_str).collect();
            let more = if kernel.arguments.len() > ARGUMENTS { " ..." } else { "" };
            page.frame(&format!("       arguments: {}{more}", words.join(" ")));
        }
        for place in kernel.places.iter().take(PLACES) {
            page.frame(&format!("     {}: {}", place.told(), count(place.blocks, place.warps, place.threads)));
        }
        if kernel.places.len() > PLACES {
            page.frame(&format!("     and {} more places", kernel.places.len() - PLACES));
        }
    }
    if gpu.kernels.len() > KERNELS {
        page.frame(&format!("  and {} more kernels", gpu.kernels.len() - KERNELS));
    }
}

fn collective(kernel: &GpuKernel, page: &mut Page) {
    let Some(collective) = &kernel.collective else { return };
    let words = [
        &collective.operation,
        &collective.reduction,
        &collective.element,
        &collective.algorithm,
        &collective.protocol,
    ];
    let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
    page.frame(&format!("       a collective of NCCL: {}", words.join(", ")));
}

/// `7 blocks, 7 warps, 7 threads`.
fn count(blocks: usize, warps: usize, threads: usize) -> String {
    let many = |count, noun: &str| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    format!("{}, {}, {}", many(blocks, "block"), many(warps, "warp"), many(threads, "thread"))
}

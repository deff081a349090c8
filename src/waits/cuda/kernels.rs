//! Kernels that ran, by a core of the GPU: what a wait for the GPU waits for.
//!
//! In: a wait for the GPU, the cores of the process. Out: for each kernel a resource, which has what is waited for. A wait for all work of
//! a context waits for each of its kernels. Which stream a kernel is in the driver does not say: for a stream or an event each is a
//! candidate.

use crate::gpu::{Device, GpuCore, Kernel};
use crate::image::Addr;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::exact_hold;
use crate::waits::kinds;
use crate::waits::model::{Certainty, Hold, Party, Resource, ResourceKey, Scope};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// The kernel as a node of the graph.
pub(crate) fn key(process: usize, device: &Device, kernel: &Kernel) -> ResourceKey {
    let scope =
        Scope::System(format!("cuda-kernel:{process}:{}:{:x}:{}", device.number, kernel.context, kernel.number));
    ResourceKey { kind: kinds::CUDA_KERNEL, scope, address: Addr(0) }
}

/// What a person calls it.
fn label(device: &Device, kernel: &Kernel) -> String {
    let collective = kernel.collective.as_ref().and_then(|one| one.operation.as_deref());
    match collective {
        Some(operation) => format!("NCCL's {operation} on GPU {}", device.number),
        None => format!("kernel `{}` on GPU {}", kernel.name, device.number),
    }
}

/// Add what a wait for the GPU waits for.
pub(super) fn running(process: &Process<'_>, found: &ThreadWait, out: &mut Observations) {
    let waited = &found.blocked_on.resource.key;
    let position = process.context.process;
    for core in process.context.gpu_cores {
        let contexts = core.contexts().count();
        let kernels = core.kernels().count();
        for (device, kernel) in core.kernels() {
            let key = key(position, device, kernel);
            let mut evidence = vec![told(core, device, kernel)];
            let certainty = match waited.kind == kinds::CUDA_DEVICE && contexts == 1 {
                true => {
                    evidence.push("the wait is for all work of the context, and the process has one".into());
                    Certainty::Inferred
                }
                false => {
                    evidence.push(match kernels {
                        1 => "no other kernel runs; in which stream it is is not known: a candidate".to_owned(),
                        _ => format!("{kernels} kernels run, and in which stream each is is not known: a candidate"),
                    });
                    Certainty::Candidate
                }
            };
            if out.resource(&key).is_none() {
                out.resources.push(Resource {
                    key: key.clone(),
                    process: position,
                    label: label(device, kernel).into(),
                    state: [
                        ("blocks", kernel.seen.blocks),
                        ("warps", kernel.seen.warps),
                        ("threads", kernel.seen.threads),
                    ]
                    .map(|(name, count)| (name, count as i64))
                    .to_vec(),
                    role: None,
                });
            }
            let hold = exact_hold(waited, Party::Resource(key), None, evidence);
            if !out.holds.iter().any(|known| known.resource == hold.resource && known.holder == hold.holder) {
                out.holds.push(Hold { certainty, ..hold });
            }
        }
    }
}

/// What the driver said of it.
fn told(core: &GpuCore, device: &Device, kernel: &Kernel) -> String {
    let seen = kernel.seen;
    format!(
        "the GPU core `{}` has {} {} on GPU {}: {} blocks with {} warps and {} threads",
        core.path,
        kernel.name,
        kernel.status.as_str(),
        device.number,
        seen.blocks,
        seen.warps,
        seen.threads
    )
}

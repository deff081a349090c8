//! Kernels that ran, by a core of the GPU: what a wait for the GPU waits for.
//!
//! In: a wait for the GPU, the cores of the process. Out: for each kernel a resource, which has what is waited for. A wait for all work of
//! a context waits for each of its kernels. Which stream a kernel is in the driver does not say: for a stream or an event each is a
//! candidate. And the words of the host's memory that kernels have as arguments: whether a kernel waits for one its code would say.

use std::collections::HashMap;

use crate::gpu::{Device, GpuCore, Kernel};
use crate::image::gpu::is_of_host;
use crate::image::{Addr, Gap, MemoryExt};
use crate::limits::cuda::ARGUMENTS_READ;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::circumstances::KernelWord;
use crate::waits::holders::exact_hold;
use crate::waits::kinds;
use crate::waits::model::{Hold, Party, Resource, ResourceKey, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::references::Objects;
use crate::waits::thread::Process;

/// The kernel as a node of the graph.
pub(crate) fn key(process: usize, device: &Device, kernel: &Kernel) -> ResourceKey {
    let scope =
        Scope::System(format!("cuda-kernel:{process}:{}:{:x}:{}", device.number, kernel.context, kernel.number));
    ResourceKey { kind: kinds::CUDA_KERNEL, scope, address: Addr(0) }
}

/// Its name for people.
fn label(device: &Device, kernel: &Kernel) -> String {
    let collective = kernel.collective.as_ref().and_then(|one| one.operation.as_deref());
    match collective {
        Some(operation) => format!("NCCL's {operation} on GPU {}", device.number),
        None => format!("kernel `{}` on GPU {}", kernel.name, device.number),
    }
}

/// Add what a wait for the GPU waits for.
pub(super) fn running(process: &Process<'_>, wait: &ThreadWait, out: &mut Observations) {
    let waited = &wait.blocked_on.resource.key;
    let position = process.context.process;
    for core in process.context.gpu_cores {
        let contexts = core.contexts().count();
        let kernels = core.kernels().count();
        for (device, kernel) in core.kernels() {
            let key = key(position, device, kernel);
            let mut evidence = vec![told(core, device, kernel)];
            let strength = match waited.kind == kinds::CUDA_DEVICE && contexts == 1 {
                true => {
                    evidence.push("the wait is for all work of the context, and the process has one".into());
                    Strength::Inferred
                }
                false => {
                    evidence.push(match kernels {
                        1 => "no other kernel runs; in which stream it is is not known: a candidate".to_owned(),
                        _ => format!("{kernels} kernels run, and in which stream each is is not known: a candidate"),
                    });
                    Strength::Candidate
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
                out.holds.push(Hold { strength, ..hold });
            }
        }
    }
}

/// Add the words of the host's memory whose addresses kernels have, and which threads have them too.
pub(super) fn words(process: &Process<'_>, out: &mut Observations) {
    let position = process.context.process;
    let known = known_to(process);
    for core in process.context.gpu_cores {
        for (device, kernel) in core.kernels() {
            for (number, argument) in kernel.arguments.iter().enumerate().take(ARGUMENTS_READ) {
                let address = Addr(*argument);
                if !is_of_host(process.context.image, address) {
                    continue;
                }
                let captured = process.context.image.memory.u32(address).ok();
                let word = captured.or_else(|| core.words.get(argument).copied());
                if word.is_none() {
                    out.gaps.push(Gap::new(
                        format!("the word at {address}, which is argument {} of kernel {}", number + 1, kernel.name),
                        "it is memory of the host that was not captured: `lockscope run --gpu-core` does",
                    ));
                }
                let kernel = key(position, device, kernel);
                out.kernel_words.push(KernelWord {
                    process: position,
                    kernel,
                    argument: number + 1,
                    address,
                    word,
                    known_to: known.get(&address).cloned().unwrap_or_default(),
                });
            }
        }
    }
}

/// The threads that have the addresses of the host which kernels have, by the address: one pass over the stack of each.
fn known_to(process: &Process<'_>) -> HashMap<Addr, Vec<Party>> {
    let kernels = process.context.gpu_cores.iter().flat_map(GpuCore::kernels);
    let arguments = kernels.flat_map(|(_, kernel)| kernel.arguments.iter().take(ARGUMENTS_READ));
    let addresses = arguments.map(|argument| Addr(*argument)).filter(|at| is_of_host(process.context.image, *at));
    let objects = Objects::new(addresses.map(|at| (at, BYTES_OF_WORD)));
    let mut known: HashMap<Addr, Vec<Party>> = HashMap::new();
    for thread in &process.threads {
        for (address, _) in thread.first_references(process, &objects).into_keys() {
            known.entry(address).or_default().push(Party::Thread(process.context.process, thread.image.tid));
        }
    }
    known
}

/// The smallest word that a kernel reads at one go and threads agree by.
const BYTES_OF_WORD: u64 = 4;

/// The driver's facts about it.
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

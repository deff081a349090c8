//! Shared code of the findings about kernels of a GPU: kernels that had not ended, and the host's memory that they
//! have.
//!
//! In: the judged sample, a kernel of a core of the GPU. Out: texts and words. It decides on no finding.

use super::rule::Context;
use crate::gpu::{Device, Kernel};
use crate::limits::verdict::LARGEST_LOOP;
use crate::verdict::assemble::gpu_kernel;
use crate::waits::circumstances::KernelWord;
use crate::waits::{Party, ResourceKey, Wait};

/// At most this many places of a kernel are in the message.
const PLACES: usize = 3;

/// The waits for the GPU of one process.
pub(super) fn waits_for_gpu<'a>(context: &Context<'a>, position: usize) -> Vec<&'a Wait> {
    let own = |wait: &&Wait| matches!(wait.waiter, Party::Thread(of, _) if of == position);
    context.input.observations.waits.iter().filter(own).filter(|wait| wait.resource.kind.is_gpu()).collect()
}

/// "main (5) waits for the GPU .. On GPU 0 first <<<..>>> had not ended: 32 threads of 1 block, all at kernels.cu:188."
pub(super) fn not_ended(context: &Context<'_>, waits: &[&Wait], device: &Device, kernel: &Kernel) -> String {
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
    message
}

fn threads(count: usize) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

/// The words of the host that a kernel may wait for: none where its threads are in more than a small loop, or where no value is known.
pub(super) fn spun_on<'a>(context: &Context<'a>, kernel: &Kernel, key: &ResourceKey) -> Vec<&'a KernelWord> {
    let addresses = || kernel.places.iter().flat_map(|place| place.addresses.iter().copied());
    let is_one_loop =
        addresses().min().zip(addresses().max()).is_some_and(|(first, last)| last - first <= LARGEST_LOOP);
    if !is_one_loop || kernel.collective.is_some() {
        return Vec::new();
    }
    let words = context.input.observations.kernel_words.iter();
    words.filter(|word| word.kernel == *key && word.word.is_some()).collect()
}

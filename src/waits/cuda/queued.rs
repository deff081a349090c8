//! The work that a thread gave to the GPU before it waits there, as far as the code shows it: launches of cooperative
//! kernels, waits for values.
//!
//! In: a thread that waits for the GPU, and the call in which it does. Out: [`Queued`] work. The driver's own queues are not read. The
//! functions that the thread is in are, in a straight line: so it is an inference, and what was queued elsewhere is not seen.

use super::calls;
use crate::code::{CallSite, Code};
use crate::image::gpu::is_of_host;
use crate::image::{Addr, MemoryExt, ProcessImage};
use crate::limits::cuda::FRAMES_READ;
use crate::symbols::base_symbol;
use crate::waits::circumstances::{Condition, Queued, Work};
use crate::waits::model::Party;
use crate::waits::thread::{Process, ThreadView};

/// The work queued before the wait in the native frame `entry`.
pub(super) fn before(process: &Process<'_>, thread: &ThreadView<'_>, entry: usize) -> Vec<Queued> {
    let code = Code::new(process.context.image, process.context.symbols);
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    for frame in frames.iter().skip(entry + 1).take(FRAMES_READ) {
        let sites = code.calls_before(frame, None);
        // Work queued before an earlier wait is done.
        let waited = sites.iter().rposition(|site| site.function.as_deref().is_some_and(only_waits));
        let sites = sites.iter().skip(waited.map_or(0, |waited| waited + 1));
        let found: Vec<Queued> = sites
            .filter_map(|site| {
                let call = calls::bare(base_symbol(site.function.as_deref()?)).to_owned();
                let work = work(process, &call, site)?;
                let waiter = Party::Thread(process.context.process, thread.image.tid);
                Some(Queued { waiter, place: place(process, site), call, work })
            })
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// "main at hang.c:17": the function that the code belongs to, whatever was inlined there.
fn place(process: &Process<'_>, site: &CallSite) -> Option<String> {
    let symbols = process.context.symbols;
    let lines = symbols.source(site.at);
    let line = lines.last().and_then(|one| {
        let file = one.file.as_deref()?.rsplit('/').next()?;
        Some(format!(" at {file}:{}", one.line?))
    });
    let function = symbols.function(site.at).map(|symbol| base_symbol(&symbol.name).to_owned())?;
    Some(format!("{function}{}", line.unwrap_or_default()))
}

fn only_waits(name: &str) -> bool {
    calls::call(base_symbol(name)).is_some_and(|call| call.only_waits)
}

/// The work that a call queues.
fn work(process: &Process<'_>, call: &str, site: &CallSite) -> Option<Work> {
    if calls::is_cooperative_launch(call) {
        // The runtime's launch has the function of the host that stands for the kernel; the driver's a handle.
        let function = site.arguments[0].filter(|_| call.starts_with("cuda")).map(Addr);
        let symbol = function.and_then(|at| process.context.symbols.function(at).filter(|symbol| symbol.address == at));
        return Some(Work::Cooperative(symbol.map(|symbol| symbol.name.to_string())));
    }
    let size = calls::bytes_of_value(call)?;
    let [stream, address, value, flags] = site.arguments;
    let address = address.map(Addr);
    let found = address.and_then(|at| word_of_host(process.context.image, at, size));
    let condition = value.zip(flags).and_then(|(value, flags)| Condition::new(size, value, flags));
    Some(Work::Value { stream: stream.map(Addr), address, found, condition })
}

/// A word of 4 or 8 bytes in the host's own memory; what is the GPU's is not read.
fn word_of_host(image: &ProcessImage, at: Addr, size: usize) -> Option<u64> {
    match size {
        _ if !is_of_host(image, at) => None,
        4 => image.memory.u32(at).ok().map(u64::from),
        _ => image.memory.u64(at).ok(),
    }
}

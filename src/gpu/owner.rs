//! Whose GPU core it is.
//!
//! In: GPU cores and captured processes. Out: [`GpuCores`], each core with its process, and a gap for each that is nobody's. A core
//! names no process; it has the handle of each context, which is an address in the process's memory, and the thread that the
//! driver made for its events, by its id in the process's own PID namespace (seen with 580).

use super::GpuCore;
use crate::image::{Addr, Gap, Image, Mapping, ProcessImage};

/// GPU cores by the position of their process in the image.
#[derive(Debug, Default)]
pub(crate) struct GpuCores(Vec<Vec<GpuCore>>);

impl GpuCores {
    /// Give each its process; what is wrong with them, too.
    pub(crate) fn join(cores: &[GpuCore], image: &Image) -> (GpuCores, Vec<Gap>) {
        let mut of_process: Vec<Vec<GpuCore>> = image.processes.iter().map(|_| Vec::new()).collect();
        let mut gaps = Vec::new();
        for core in cores {
            gaps.extend(core.gaps.iter().cloned());
            let processes = image.processes.iter().enumerate();
            let fitting: Vec<usize> =
                processes.filter(|(_, process)| fits(core, process)).map(|(position, _)| position).collect();
            match fitting.as_slice() {
                [one] => {
                    if let Some(own) = of_process.get_mut(*one) {
                        own.push(core.clone());
                    }
                }
                _ => {
                    let why = match fitting.len() {
                        0 => "its contexts are in the memory of none of these processes",
                        _ => "more than one of these processes fits: which one wrote it is not known",
                    };
                    gaps.push(Gap::new(format!("the GPU core `{}`", core.path), why));
                }
            }
        }
        (GpuCores(of_process), gaps)
    }

    /// One of the first process.
    #[cfg(test)]
    pub(crate) fn of_first(core: GpuCore) -> GpuCores {
        GpuCores(vec![vec![core]])
    }

    /// Those of a process.
    pub(crate) fn of(&self, process: usize) -> &[GpuCore] {
        self.0.get(process).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether a core is of this process.
fn fits(core: &GpuCore, process: &ProcessImage) -> bool {
    // One that stands for the core itself.
    if process.threads.is_empty() && process.mappings.is_empty() {
        return true;
    }
    let mut contexts = core.contexts().peekable();
    contexts.peek().is_some()
        && contexts.all(|context| {
            // A core of the kernel has ids of the dumping process's namespace: then memory alone decides.
            let by_thread = process.threads.iter().any(|thread| thread.ns_tid == context.event_thread);
            let by_memory = Mapping::of(&process.mappings, Addr(context.handle)).is_some();
            by_memory && (by_thread || process.threads.iter().all(|thread| thread.name.is_empty()))
        })
}

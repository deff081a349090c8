//! Which mapped libraries are CUDA's.
//!
//! In: a process with the stacks of its threads. Out: [`Libraries`]. A library on some stack is CUDA's when it exports
//! the entry points of the driver or of the runtime, whatever its file is called; where its file is not at hand, the
//! name decides. A runtime that is linked into a program has no exports: its calls show as those of the driver.

use std::collections::BTreeSet;

use crate::threads::Thread;
use crate::unwind::NativeFrame;
use crate::waits::thread::CapturedProcess;

/// Entry points of the driver and of the runtime. One is enough: other libraries call these, and export none.
const ENTRY_POINTS: [&str; 8] = [
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuOccupancyMaxPotentialBlockSize",
    "cudaLaunchKernel",
    "cudaLaunchHostFunc",
    "cudaStreamSynchronize",
    "cudaMalloc",
];

/// Beginnings of file names: driver and runtime; and what the driver loads into the process for a debugger or a profiler, and
/// runs on threads of its own. Under cuda-gdb such a thread would else be one with a host function (seen with 580.159.04).
const NAMES: [&str; 4] = ["libcuda.so", "libcudart", "libcudadebugger.so", "libcupti.so"];

fn is_named_so(name: &str) -> bool {
    NAMES.iter().any(|known| name.starts_with(known))
}

/// The libraries of CUDA that have frames on some stack.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// Positions among the modules.
    modules: BTreeSet<usize>,
}

impl Libraries {
    /// Find them.
    pub(super) fn find(context: &CapturedProcess<'_>) -> Libraries {
        let list = context.symbols.modules();
        let frames = context.threads.iter().flat_map(|thread| &thread.native.frames);
        let on_stacks: BTreeSet<usize> = frames.filter_map(|frame| list.at(frame.pc)).collect();
        let is_cuda = |module: &usize| {
            let Some(known) = list.list.get(*module).filter(|known| known.name.contains(".so")) else { return false };
            is_named_so(&known.name) || ENTRY_POINTS.iter().any(|name| context.symbols.exports(*module, name))
        };
        Libraries { modules: on_stacks.into_iter().filter(is_cuda).collect() }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// Their names.
    pub(super) fn names<'a>(&'a self, context: &'a CapturedProcess<'_>) -> impl Iterator<Item = &'a str> {
        let list = &context.symbols.modules().list;
        self.modules.iter().filter_map(|module| list.get(*module)).map(|module| &*module.name)
    }

    /// For each native frame of a thread, from the innermost: whether it lies in one.
    pub(super) fn marks(&self, context: &CapturedProcess<'_>, thread: &Thread) -> Vec<bool> {
        let modules = context.symbols.modules();
        let is_cuda = |frame: &NativeFrame| modules.at(frame.pc).is_some_and(|module| self.modules.contains(&module));
        thread.native.frames.iter().map(is_cuda).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_loads_for_a_debugger_is_cudas_too() {
        for name in ["libcuda.so.1", "libcuda.so.580.159.04", "libcudart-f0a1.so.12", "libcudadebugger.so.580.159.04"] {
            assert!(is_named_so(name), "{name}");
        }
        for name in ["libcudnn.so.9", "libcublas.so.12", "libfakecuda.so", "libcudf.so"] {
            assert!(!is_named_so(name), "{name}");
        }
    }
}

//! Which mapped libraries are CUDA's.
//!
//! In: a process with the stacks of its threads. Out: [`Libraries`]. A library on some stack is CUDA's when it exports
//! the entry points of the driver or of the runtime, whatever its file is called; where its file is not at hand, the
//! name decides. A runtime that is linked into a program has no exports: its calls show as those of the driver.

use std::collections::BTreeSet;

use crate::threads::Thread;
use crate::unwind::NativeFrame;
use crate::waits::family::Context;

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

/// The libraries of CUDA that have frames on some stack.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// Positions among the modules.
    modules: BTreeSet<usize>,
}

impl Libraries {
    /// Look for them.
    pub(super) fn find(context: &Context<'_>) -> Libraries {
        let list = context.symbols.modules();
        let frames = context.threads.iter().flat_map(|thread| &thread.native.frames);
        let on_stacks: BTreeSet<usize> = frames.filter_map(|frame| list.at(frame.pc)).collect();
        let is_cuda = |module: &usize| {
            let Some(known) = list.list.get(*module).filter(|known| known.name.contains(".so")) else { return false };
            let by_name = known.name.starts_with("libcuda.so") || known.name.starts_with("libcudart");
            by_name || ENTRY_POINTS.iter().any(|name| context.symbols.exports(*module, name))
        };
        Libraries { modules: on_stacks.into_iter().filter(is_cuda).collect() }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// Their names.
    pub(super) fn names<'a>(&'a self, context: &'a Context<'_>) -> impl Iterator<Item = &'a str> {
        let list = &context.symbols.modules().list;
        self.modules.iter().filter_map(|module| list.get(*module)).map(|module| module.name.as_str())
    }

    /// For each native frame of a thread, from the innermost: whether it lies in one.
    pub(super) fn marks(&self, context: &Context<'_>, thread: &Thread) -> Vec<bool> {
        let modules = context.symbols.modules();
        let is_cuda = |frame: &NativeFrame| modules.at(frame.pc).is_some_and(|module| self.modules.contains(&module));
        thread.native.frames.iter().map(is_cuda).collect()
    }
}

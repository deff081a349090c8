//! Looks as they come from analysis, on their way into a snapshot.
//!
//! In: each sample's image and the results of analysis. Out: a [`Recording`] of the last two. It decodes nothing.

use std::sync::Arc;

use super::model::{Help, SavedLook, SavedProcess};
use super::recorder::{self, Recorder};
use super::roots;
use super::write::{self, Kept};
use crate::image::gpu::GpuUse;
use crate::image::{Gap, Image, KernelFacts, SourceLines, budget};
use crate::limits::snapshot::LOOKS_KEPT;
use crate::python::Python;
use crate::symbols::Symbols;
use crate::threads::Thread;
use crate::unwind::NativeStack;

/// The last looks, ready to be written.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    redact: bool,
    recorders: Vec<Arc<Recorder>>,
    looks: Vec<Kept>,
}

/// One look, as analysis leaves it. The lists are in the order of the image's processes.
#[derive(Debug)]
pub(crate) struct KeptLook<'a> {
    pub(crate) image: &'a Image,
    pub(crate) symbols: &'a [Symbols<'a>],
    pub(crate) threads: &'a [Vec<Thread>],
    pub(crate) python: &'a [Option<Python>],
    /// Whether a process gave facts that are not in its memory.
    pub(crate) helped: &'a [bool],
    pub(crate) of_one_instant: bool,
    /// Lines of source that the report shows, of each process; empty before there is one.
    pub(crate) sources: &'a [Vec<SourceLines>],
    /// How busy the GPUs were.
    pub(crate) gpu: Option<&'a GpuUse>,
}

/// The content and the result of a written snapshot.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    /// With `--redact`: the raw memory that remains in it nevertheless.
    pub(crate) remains: Option<Gap>,
}

impl Recording {
    /// Nothing yet.
    pub(crate) fn new(redact: bool) -> Recording {
        Recording { redact, ..Recording::default() }
    }

    /// Keep what will be read of the memory of `image`.
    pub(crate) fn listen(&mut self, image: &mut Image) {
        self.recorders.clear();
        for process in &mut image.processes {
            let recorder = Arc::new(Recorder::new(Arc::clone(&process.memory)));
            process.memory = Arc::clone(&recorder) as Arc<dyn crate::image::Memory>;
            self.recorders.push(recorder);
        }
    }

    /// Keep a recorded sample; all but the last two are dropped.
    pub(crate) fn keep(&mut self, kept: &KeptLook<'_>) {
        let mut look = SavedLook {
            of_one_instant: kept.of_one_instant,
            gaps: kept.image.gaps.clone(),
            kernel: KernelFacts { gpu: kept.gpu.cloned(), ..kept.image.kernel.clone() },
            taken: kept.image.taken.clone(),
            processes: Vec::with_capacity(kept.image.processes.len()),
        };
        let mut blocks = Vec::new();
        for (position, process) in kept.image.processes.iter().enumerate() {
            let Some(recorder) = self.recorders.get(position) else { break };
            let (threads, python) = (&kept.threads[position], kept.python[position].as_ref());
            roots::keep(recorder, process, threads, python, self.redact);
            let mut saved = SavedProcess::of(process);
            saved.stacks = process.threads.iter().map(|thread| stack(threads, thread.tid)).collect();
            saved.modules = kept.symbols[position].modules().record();
            saved.answers = kept.symbols[position].cache();
            saved.help = python.filter(|_| kept.helped[position]).map(Help::of);
            saved.sources = kept.sources.get(position).cloned().unwrap_or_default();
            saved.faults = recorder.take_faults();
            if recorder.is_full() {
                look.gaps.push(Gap::new(
                    format!("a part of the memory of process {} in the snapshot", process.pid),
                    "it was more than a look may take; what was not kept reads as not captured",
                ));
            }
            blocks.push(recorder.take_blocks());
            look.processes.push(saved);
        }
        self.looks.push(Kept { look, blocks });
        while self.looks.len() > LOOKS_KEPT {
            let dropped = self.looks.remove(0);
            budget::give_back(dropped.blocks.iter().map(recorder::cost).sum());
        }
    }

    /// The file.
    pub(crate) fn write(mut self) -> Option<Written> {
        let remains = self.redact.then(|| write::redact(&mut self.looks)).flatten();
        Some(Written { bytes: write::file(self.looks, self.redact)?, remains })
    }
}

fn stack(threads: &[Thread], tid: i32) -> NativeStack {
    let own = threads.iter().find(|thread| thread.tid == tid).map(|thread| thread.native.clone());
    own.unwrap_or_else(NativeStack::unknown)
}

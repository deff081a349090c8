//! One sample, from an image to observations: modules, symbols, stacks, threads with names, waits and holds.
//!
//! In: an image, and what the subject knows beside it. Out: a [`Sample`]. How often to sample, and what samples prove, is
//! asked in [`super::session`].

use std::rc::Rc;
use std::thread::{Builder, scope};

use super::subject::Subject;
use crate::gpu::GpuCores;
use crate::image::Image;
use crate::image::gpu::GpuUse;
use crate::in_parts;
use crate::modules::Modules;
use crate::python::{self, Python};
use crate::symbols::{SharedTables, Symbols, Tables};
use crate::threads::{self, Thread};
use crate::unwind;
use crate::verdict::frames::{self, ThreadFrames};
use crate::verdict::suspicion::Confirmed;
use crate::verdict::{self, JudgeInput, Judgement};
use crate::waits::{self, Observations};

/// With more threads than this, a second thread writes the report's frames while the waits are decoded. Writing them
/// takes a tenth of the time of a sample with thousands of threads.
const WRITTEN_BESIDE: usize = 512;

/// An image with its stacks, threads and waits. Its lists are by process, in the order of the image's.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) threads: Vec<Vec<Thread>>,
    pub(super) python: Vec<Option<Python>>,
    pub(super) observations: Observations,
    pub(super) gpu: Option<GpuUse>,
    pub(super) gpu_cores: GpuCores,
    /// The threads' frames for the report, if they were written meanwhile.
    pub(super) written: Option<Vec<Vec<ThreadFrames>>>,
}

impl Sample {
    /// All stages up to the observations.
    pub(super) fn of(image: &Image, symbols: &[Symbols<'_>], subject: &dyn Subject, gpu_cores: GpuCores) -> Sample {
        let mut all_threads = Vec::new();
        let mut all_python = Vec::new();
        for (position, (process, symbols)) in image.processes.iter().zip(symbols).enumerate() {
            let count = process.threads.len();
            log::info!(
                "process {} of {}: unwinding {count} threads of {}",
                position + 1,
                image.processes.len(),
                process.pid
            );
            let stacks = subject.stacks(position).unwrap_or_else(|| unwind::stacks(process, symbols.modules()));
            let mut python = python::find(process, symbols);
            if let Some(python) = &mut python {
                python::name_threads(process, python);
            }
            all_threads.push(threads::merge(process, symbols, stacks, python.as_ref()));
            all_python.push(python);
        }
        log::info!("finding out who waits for what");
        let observe = || observe(image, symbols, &all_threads, &all_python, None, &gpu_cores);
        let is_worth = all_threads.iter().map(Vec::len).sum::<usize>() > WRITTEN_BESIDE && in_parts::has_processors();
        let (observations, written) = scope(|scope| {
            let write = || frames::beside_others(&all_threads);
            let writer =
                is_worth.then(|| Builder::new().name("writer".to_owned()).spawn_scoped(scope, write).ok()).flatten();
            (observe(), writer.and_then(|writer| writer.join().ok()))
        });
        Sample { threads: all_threads, python: all_python, observations, gpu: None, gpu_cores, written }
    }

    /// Decodes the waits again, with all that the sample has come to know since.
    pub(super) fn observe_again(&mut self, image: &Image, symbols: &[Symbols<'_>]) {
        self.observations = observe(image, symbols, &self.threads, &self.python, self.gpu.as_ref(), &self.gpu_cores);
    }

    /// Adds names that the own walk lacks, then merges and decodes again if there were any. Returns for each process
    /// whether anything beside its memory was queried.
    pub(super) fn complete(&mut self, image: &Image, symbols: &[Symbols<'_>], subject: &mut dyn Subject) -> Vec<bool> {
        let mut helped = Vec::with_capacity(image.processes.len());
        for (position, process) in image.processes.iter().enumerate() {
            let known = &mut self.python[position];
            let is_helped = subject.complete(position, process, known);
            helped.push(is_helped);
            let Some(python) = known.as_ref().filter(|_| is_helped) else { continue };
            let stacks = process.threads.iter().map(|thread| {
                let own = self.threads[position].iter().find(|merged| merged.tid == thread.tid);
                own.map_or_else(unwind::NativeStack::unknown, |merged| merged.native.clone())
            });
            self.written = None;
            self.threads[position] = threads::merge(process, &symbols[position], stacks.collect(), Some(python));
        }
        if self.observations.depends_on_gpus() {
            self.gpu = subject.gpu(image);
        }
        if self.gpu.is_some() || helped.contains(&true) {
            self.observe_again(image, symbols);
        }
        helped
    }

    /// The input of a judgement.
    pub(super) fn judged_by<'a>(&'a self, image: &'a Image) -> JudgeInput<'a> {
        JudgeInput {
            image,
            threads: &self.threads,
            python: &self.python,
            observations: &self.observations,
            gpu: self.gpu.as_ref(),
            gpu_cores: &self.gpu_cores,
        }
    }

    /// The judgement, with what several samples have confirmed.
    pub(super) fn judge(&self, image: &Image, confirmed: Option<&Confirmed>) -> Judgement {
        verdict::judge(&self.judged_by(image), confirmed)
    }
}

/// The modules of each process, with what is parsed of them; those of the sample before serve again where nothing was
/// mapped or unmapped.
pub(super) fn modules_of(
    image: &Image,
    before: Vec<(Modules, Tables)>,
    shared: &Rc<SharedTables>,
    subject: &dyn Subject,
) -> Vec<(Modules, Tables)> {
    let with_tables = |modules: Modules| {
        let tables = Tables::sharing(&modules, shared);
        (modules, tables)
    };
    let mut before = before.into_iter();
    let modules = |(position, process)| match (subject.modules(position, process), before.next()) {
        (Some(known), _) => with_tables(known),
        (None, Some(before)) if before.0.still_fit(process) => before,
        _ => with_tables(Modules::of(process)),
    };
    image.processes.iter().enumerate().map(modules).collect()
}

pub(super) fn symbols_of<'a>(
    image: &'a Image,
    modules: &'a [(Modules, Tables)],
    subject: &dyn Subject,
) -> Vec<Symbols<'a>> {
    let mut symbols = Vec::new();
    for (position, (process, (modules, tables))) in image.processes.iter().zip(modules).enumerate() {
        symbols.push(Symbols::with_cache(modules, tables, process, subject.symbol_cache(position)));
    }
    symbols
}

fn observe(
    image: &Image,
    symbols: &[Symbols<'_>],
    threads: &[Vec<Thread>],
    python: &[Option<Python>],
    gpu: Option<&GpuUse>,
    gpu_cores: &GpuCores,
) -> Observations {
    let contexts: Vec<waits::CapturedProcess<'_>> = (0..image.processes.len())
        .map(|position| waits::CapturedProcess {
            process: position,
            image: &image.processes[position],
            all: image,
            symbols: &symbols[position],
            threads: &threads[position],
            python: python[position].as_ref(),
            gpu,
            gpu_cores: gpu_cores.of(position),
        })
        .collect();
    waits::observe(&contexts)
}

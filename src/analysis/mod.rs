//! The pipeline from a capture to a report: which stage runs when, and how often to sample.
//!
//! In: processes, cores, or a snapshot. Out: a [`Report`], and on request the data for a snapshot. This module decodes
//! nothing itself. It alone has the order of the stages and the rule for a second sample.
//!
//! A first sample copies registers and stacks under the stop and reads the rest from the running target. If it shows
//! nothing wrong, that is the answer: in a process that hangs, nothing moves between the stop and the read. If it shows
//! a cycle, a lost owner or a wait without end, lockscope samples the target again. This time it copies all pages that
//! the analysis needed under the stop. Each suspicion is confirmed or refuted by its own members
//! ([`mod@confirmation`]), never by the activity of other threads.

mod awaited;
mod code;
mod confirmation;
mod incomplete;
mod lacking;
mod named_late;
mod pyspy;
mod rest;
mod sources;
mod spins;
mod subject;
mod torn;
mod working;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use crate::gpu::{GpuCore, GpuCores};
use crate::image::core::elf::Bytes;
use crate::image::core::{CoreError, CoreFile, Places};
use crate::image::gpu::GpuUse;
use crate::image::live::{AttachError, Stopping};
use crate::image::{Gap, Image, RegisterSource, SourceLines, budget, files_changed};
use crate::in_parts;
use crate::limits;
use crate::limits::analysis::{MOST_FOLLOWINGS, MOST_RETAKEN};
use crate::modules::Modules;
use crate::python::{self, Python};
use crate::report::{Capture, RegistersRead, Report, Verdict, shorten_sentences};
use crate::snapshot::{self, KeptLook, Recording, Written};
use crate::symbols::{SharedTables, Symbols, Tables};
use crate::threads::{self, Thread};
use crate::unwind;
use crate::verdict::frames::{self, ThreadFrames};
use crate::verdict::suspicion::Confirmed;
use crate::verdict::{self, JudgeInput, Judgement};
use crate::waits::{self, Observations};
pub(crate) use code::CodeMapping;
use confirmation::{Confirmation, OfOneInstant};
use spins::Spins;
use subject::{Cores, Live, Recorded, Subject};

/// The processes to attach to and the way to do it. Made by [`AttachOptions::of`]; then each field can be set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttachOptions {
    /// Process ids.
    pub pids: Vec<i32>,
    /// Take all descendants too.
    pub tree: bool,
    /// The processes were found, not named by the user. One that lockscope cannot attach to, for example because a
    /// debugger traces it, is left out with a gap.
    pub found: bool,
    /// Take the descendants that one of them waits for, where not all are taken.
    pub follow: bool,
    /// Where nothing is wrong in these: take the descendants that sleep, in the same session, as a server's workers do.
    pub offspring: bool,
    /// Longest time that the target may be stopped; by the number of its threads where none is given.
    pub max_pause: Option<Duration>,
    /// Which threads may be stopped.
    pub stopping: Stopping,
    /// Read local variables of Python frames.
    pub locals: bool,
    /// Put how each thread was read into the report.
    pub working: bool,
    /// Cores of the GPUs that the processes use, written by NVIDIA's driver.
    pub gpu_cores: Vec<PathBuf>,
    /// Query NCCL's RAS if a process waits for its GPU. One answer covers all ranks of a job, and every rank has to
    /// contribute to it.
    pub nccl_ras: bool,
}

impl AttachOptions {
    /// These processes, without their descendants; with nothing beyond what a report needs.
    pub fn of(pids: impl IntoIterator<Item = i32>) -> AttachOptions {
        AttachOptions {
            pids: pids.into_iter().collect(),
            tree: false,
            found: false,
            follow: false,
            offspring: false,
            max_pause: None,
            stopping: Stopping::AsNeeded,
            locals: false,
            working: false,
            gpu_cores: Vec::new(),
            nccl_ras: true,
        }
    }
}

/// The files to read and the places of the files that they mapped. Made by [`CoreOptions::of`]; then each field can be
/// set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CoreOptions {
    /// Cores, each of one process, or a snapshot; and cores of the GPUs that the processes use.
    pub files: Vec<PathBuf>,
    /// The files that the processes had mapped.
    pub places: Places,
    /// Put how each thread was read into the report.
    pub working: bool,
}

impl CoreOptions {
    /// These cores, or this snapshot, with the files where the processes had them.
    pub fn of(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> CoreOptions {
        CoreOptions { files: files.into_iter().map(Into::into).collect(), places: Places::default(), working: false }
    }
}

/// Whether to keep the data of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The report only.
    Nothing,
    /// A snapshot beside it.
    Snapshot {
        /// Without local variables, environment and arguments.
        redact: bool,
    },
}

/// With more threads than this, a second thread writes the report's frames while the waits are decoded. Writing them
/// takes a tenth of the time of a sample with thousands of threads.
const WRITTEN_BESIDE: usize = 512;

/// The result of `attach` or `post_mortem`.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The report.
    pub report: Report,
    /// The bytes of a snapshot, if one was requested.
    pub snapshot: Option<Vec<u8>>,
    /// Sensitive data that a redacted snapshot still holds.
    pub remains: Option<Gap>,
    /// The code of each process, in the order of the report's.
    pub code: Vec<Vec<CodeMapping>>,
}

impl Outcome {
    /// A report that no look has made.
    pub(crate) fn of(report: Report) -> Outcome {
        Outcome { report, snapshot: None, remains: None, code: Vec::new() }
    }
}

/// Why no report could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// lockscope could not attach to the target.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// lockscope could not read a file.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// A subject that was used up; only a bug in lockscope leads here.
    #[error("there is nothing more to look at")]
    NoMoreLooks,
    /// A snapshot is to be made of a snapshot.
    #[error("`{path}` is a snapshot already; copy it")]
    SnapshotAlready {
        /// The file.
        path: String,
    },
}

/// One sample, analysed.
#[derive(Debug)]
struct Analysis {
    threads: Vec<Vec<Thread>>,
    python: Vec<Option<Python>>,
    observations: Observations,
    gpu: Option<GpuUse>,
    gpu_cores: GpuCores,
    /// The threads' frames for the report, if they were written meanwhile.
    written: Option<Vec<Vec<ThreadFrames>>>,
}

/// The data that a report was made of: memory, and the processes that copied it. Freeing the data of ten thousand
/// threads takes a tenth of a second, so the caller shows the report first.
#[derive(Debug)]
pub(crate) struct MadeOf {
    _subject: Live,
    _last_look: Option<(Image, Analysis)>,
}

/// Attach to live processes, sample as often as needed, report.
pub(crate) fn attach(options: &AttachOptions, keep: Keep) -> Result<Outcome, Error> {
    Ok(attach_and_hold(options, keep)?.0)
}

/// The same with what the report was made of.
pub(crate) fn attach_and_hold(options: &AttachOptions, keep: Keep) -> Result<(Outcome, MadeOf), Error> {
    budget::begin();
    limits::begin();
    let gpus = options.gpu_cores.iter().map(|path| gpu_core(path)).collect::<Result<Vec<_>, _>>()?;
    let mut subject = Live::open(options)?;
    let (outcome, last_look) = examine(&mut subject, &gpus, keep, options.working)?;
    Ok((outcome, MadeOf { _subject: subject, _last_look: last_look }))
}

/// Read a core of GPUs.
fn gpu_core(path: &Path) -> Result<GpuCore, CoreError> {
    let name = path.display().to_string();
    let bytes = Bytes::open(path)?;
    if !GpuCore::is_one(&bytes) {
        return Err(CoreError::NotCore { path: name, what: "no core of a GPU" });
    }
    GpuCore::read(&bytes, &name)
}

/// Read core files or a snapshot, report.
pub(crate) fn post_mortem(options: &CoreOptions, keep: Keep) -> Result<Outcome, Error> {
    budget::begin();
    limits::begin();
    let (mut paths, mut cores, mut gpus) = (Vec::new(), Vec::new(), Vec::new());
    for path in &options.files {
        let (name, bytes) = (path.display().to_string(), Bytes::open(path)?);
        if GpuCore::is_one(&bytes) {
            gpus.push(GpuCore::read(&bytes, &name)?);
        } else {
            cores.push(CoreFile::parse(bytes, &name)?);
            paths.push(path.clone());
        }
    }
    if cores.is_empty() && !gpus.is_empty() {
        return Ok(examine(&mut Cores::of_gpus(&options.files, &gpus), &gpus, keep, options.working)?.0);
    }
    opened(&paths, cores, &gpus, &options.places, keep, options.working)
}

/// The same with files that are open; `paths` names them.
pub(crate) fn opened(
    paths: &[PathBuf],
    cores: Vec<CoreFile>,
    gpus: &[GpuCore],
    places: &Places,
    keep: Keep,
    working: bool,
) -> Result<Outcome, Error> {
    let snapshot = cores.iter().position(snapshot::is_snapshot);
    let Some(position) = snapshot else {
        return Ok(examine(&mut Cores::open(paths, cores, places)?, gpus, keep, working)?.0);
    };
    let path = &paths[position];
    let name = path.display().to_string();
    if cores.len() > 1 {
        return Err(CoreError::NotAlone { path: name }.into());
    }
    if keep != Keep::Nothing {
        return Err(Error::SnapshotAlready { path: name });
    }
    Ok(examine(&mut Recorded::open(path, &cores[position], places)?, gpus, keep, working)?.0)
}

/// Samples and reports; also returns the last sample.
fn examine(
    subject: &mut dyn Subject,
    gpus: &[GpuCore],
    keep: Keep,
    working: bool,
) -> Result<(Outcome, Option<(Image, Analysis)>), Error> {
    let started = Instant::now();
    let mut recording = recording_of(keep);
    let mut modules: Vec<(Modules, Tables)> = Vec::new();
    let shared = Rc::default();
    let mut asleep: HashMap<i32, u64> = HashMap::new();
    let mut confirmation = Confirmation::default();
    let mut spins = Spins::default();
    let mut report: Option<Report> = None;
    let mut sources: Vec<Vec<SourceLines>> = Vec::new();
    let mut longest_pause = 0;
    let mut asked_again = 0;
    let mut began = None;
    let mut looks = 0;
    let mut last_look = None;
    let (mut followed, mut retaken) = (0, 0);
    loop {
        let at = Instant::now();
        log::info!("look {}", looks + 1);
        let mut image = match subject.look() {
            Ok(image) => image,
            // The sample that was for the snapshot alone.
            Err(_) if report.is_some() => break,
            Err(error) => return Err(error),
        };
        remember_sleeps(&mut image, &mut asleep, looks == 0);
        looks += 1;
        longest_pause = longest_pause.max(image.pause_us);
        asked_again = asked_again.max(image.rounds.saturating_sub(1));
        if looks == 1 {
            began = image.taken.as_ref().map(|taken| taken.began.clone());
        }
        modules = modules_of(&image, modules, &shared, subject);
        if let Some(recording) = &mut recording {
            recording.listen(&mut image);
        }
        let (gpu_cores, nobodys) = GpuCores::join(gpus, &image);
        image.gaps.extend(nobodys);
        let symbols = symbols_of(&image, &modules, subject);
        let mut analysis = analyse(&image, &symbols, subject, gpu_cores);
        if looks == 1 && followed < MOST_FOLLOWINGS && subject.follow(&image, &analysis.observations) {
            // The samples start over with the added processes.
            (followed, looks) = (followed + 1, 0);
            recording = recording_of(keep);
            continue;
        }
        let of_one_instant = subject.is_of_one_instant();
        // Also those that a later sample will compare with.
        if retaken < MOST_RETAKEN && torn::is_torn(&image, &analysis.observations, of_one_instant) && subject.retake() {
            (retaken, looks) = (retaken + 1, looks - 1);
            std::thread::sleep(confirmation.pause().saturating_sub(at.elapsed()));
            continue;
        }
        let suspected = verdict::suspected(&judge_input(&image, &analysis));
        // Where nothing is wrong in these, what they have started may hang: a server's workers.
        let is_calm = suspected.suspicions.is_empty();
        if looks == 1 && followed < MOST_FOLLOWINGS && is_calm && subject.follow_asleep() {
            (followed, looks) = (followed + 1, 0);
            recording = recording_of(keep);
            continue;
        }
        let clock = subject.is_live().then_some(at);
        let instant = OfOneInstant { whole: of_one_instant, is_late: &|pid, word| subject.is_late(pid, word) };
        confirmation.look(suspected.suspicions.clone(), &judge_input(&image, &analysis), &instant, clock);
        let mut helped = vec![false; image.processes.len()];
        spins.look(&analysis.observations, &analysis.threads);
        let calm = confirmation.is_empty() && !spins.are_open(looks);
        // The second sample need not cover everything, unless it is to be kept.
        if !confirmation.is_complete()
            && looks == 1
            && recording.is_none()
            && !spins.are_open(looks)
            && subject.has_more()
            && let Some(members) = rest::members(&image, &analysis.observations, &suspected)
        {
            std::thread::sleep(confirmation.pause().saturating_sub(at.elapsed()));
            if subject.has_rested(&members) {
                confirmation.rested();
                looks += 1;
            }
        }
        let confirmed = confirmation.is_complete();
        // Where registers are missing that only a stop can read, the next sample shows more.
        let lacks =
            subject.has_more() && subject.stop(lacking::threads(&image, &analysis.threads, &analysis.observations));
        let settled = (calm || confirmed) && !lacks || !subject.has_more();
        if settled && report.is_none() {
            let in_several_looks = !subject.is_frozen();
            let settle = |observations: &mut Observations| {
                if in_several_looks {
                    spins.drop_unconfirmed(observations, looks, confirmed);
                }
            };
            if named_late::name(&symbols, &mut analysis, &suspected.suspicions) {
                analysis.observations =
                    observe(&image, &symbols, &analysis.threads, &analysis.python, None, &analysis.gpu_cores);
            }
            // Also before: for a thread that was caught at work nobody asks how busy the GPU is.
            settle(&mut analysis.observations);
            let seen_before = &analysis.observations;
            let wakers = confirmed.then(|| (seen_before.wake_sources.clone(), seen_before.known_wakers.clone()));
            helped = complete(&image, &symbols, &mut analysis, subject);
            settle(&mut analysis.observations);
            let seen = (!confirmation.is_empty() && !subject.is_frozen()).then(|| confirmation.confirmed());
            let mut judgement = judge(&image, &analysis, seen);
            if let Some(wakers) = wakers.filter(|_| !confirmation.is_all_in(&judgement.suspicions)) {
                // Decoding again reads more, later: of an interpreter that goes on meanwhile that may say what never was.
                (analysis.observations.wake_sources, analysis.observations.known_wakers) = wakers;
                judgement = judge(&image, &analysis, seen);
            }
            judgement.gaps.extend(subject.late_gaps());
            judgement.gaps.extend(analysis.gpu.iter().flat_map(|gpu| gpu.gaps.clone()));
            let capture = Capture {
                threads: image.processes.iter().map(|p| p.threads.len()).sum(),
                pause_us: longest_pause,
                total_us: started.elapsed().as_micros() as u64,
                looks,
                registers: RegistersRead { asked_again, ..registers_read(&image) },
                began: began.clone(),
                ended: image.taken.as_ref().map(|taken| taken.ended.clone()),
            };
            let (written, input) = (analysis.written.take(), judge_input(&image, &analysis));
            let assembled = verdict::assemble::report(&input, judgement, written, subject.source(), capture);
            let made = report.insert(assembled);
            if matches!(made.verdict, Verdict::Blocked | Verdict::Running) {
                let incomplete = incomplete::sentence(&image, &analysis.observations);
                if let Some(said) = incomplete {
                    made.summary = format!("{said}. {}", made.summary);
                    made.sentence = format!("{said}. {}", made.sentence);
                }
            }
            shorten_sentences(made);
            sources = self::sources::add_scenes(made, &image);
            made.gaps.extend(budget::gaps());
            made.gaps.extend(limits::told().into_iter().map(|met| Gap::new(met.what, met.why)));
            if files_changed() {
                made.gaps.push(Gap::new(
                    "files of the target",
                    "one was cut or overwritten in place while it was read, or its disk failed: names and stacks through it may be wrong",
                ));
            }
            if working {
                self::working::add(made, &image, &symbols, &analysis.threads);
            }
        }
        if let Some(recording) = &mut recording {
            recording.keep(&KeptLook {
                image: &image,
                symbols: &symbols,
                threads: &analysis.threads,
                python: &analysis.python,
                helped: &helped,
                of_one_instant,
                sources: &sources,
                gpu: analysis.gpu.as_ref(),
            });
        }
        // A snapshot keeps two samples also where one was enough: a newer lockscope may see more in it.
        let wants_another = recording.is_some() && looks < 2 && subject.has_more();
        if report.is_some() && !wants_another {
            drop(symbols);
            last_look = Some((image, analysis));
            break;
        }
        std::thread::sleep(confirmation.pause().saturating_sub(at.elapsed()));
    }
    let written = recording.and_then(Recording::write);
    let (snapshot, remains) = written.map_or((None, None), |Written { bytes, remains }| (Some(bytes), remains));
    let code = last_look.as_ref().map(|(image, _)| code::of(image, &modules)).unwrap_or_default();
    Ok((Outcome { report: report.ok_or(Error::NoMoreLooks)?, snapshot, remains, code }, last_look))
}

fn recording_of(keep: Keep) -> Option<Recording> {
    match keep {
        Keep::Nothing => None,
        Keep::Snapshot { redact } => Some(Recording::new(redact)),
    }
}

/// How many threads' registers were read in which way.
fn registers_read(image: &Image) -> RegistersRead {
    let mut read = RegistersRead::default();
    for thread in image.processes.iter().flat_map(|process| &process.threads) {
        match thread.source {
            RegisterSource::Stop => read.by_stop += 1,
            RegisterSource::TaskIterator => read.asleep_by_ebpf += 1,
            RegisterSource::KernelFiles => read.asleep_by_proc += 1,
            RegisterSource::Unsaid => {}
        }
    }
    read
}

/// How long threads have slept is known at the first sample only: the stop itself wakes them for an instant.
fn remember_sleeps(image: &mut Image, first: &mut HashMap<i32, u64>, is_first: bool) {
    for thread in image.processes.iter_mut().flat_map(|p| &mut p.threads) {
        match thread.asleep_ms {
            // By the first sample of this thread: others may have come in later.
            Some(asleep) if is_first && !first.contains_key(&thread.tid) => drop(first.insert(thread.tid, asleep)),
            _ => thread.asleep_ms = first.get(&thread.tid).copied(),
        }
    }
}

/// The modules of each process, with what is parsed of them; those of the sample before serve again where nothing was
/// mapped or unmapped.
fn modules_of(
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

fn symbols_of<'a>(image: &'a Image, modules: &'a [(Modules, Tables)], subject: &dyn Subject) -> Vec<Symbols<'a>> {
    let mut symbols = Vec::new();
    for (position, (process, (modules, tables))) in image.processes.iter().zip(modules).enumerate() {
        symbols.push(Symbols::with_cache(modules, tables, process, subject.symbol_cache(position)));
    }
    symbols
}

fn analyse(image: &Image, symbols: &[Symbols<'_>], subject: &dyn Subject, gpu_cores: GpuCores) -> Analysis {
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
    Analysis { threads: all_threads, python: all_python, observations, gpu: None, gpu_cores, written }
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

/// Adds names that the own walk lacks, then merges and decodes again if there were any. Returns for each process
/// whether anything beside its memory was queried.
fn complete(image: &Image, symbols: &[Symbols<'_>], analysis: &mut Analysis, subject: &mut dyn Subject) -> Vec<bool> {
    let mut helped = Vec::with_capacity(image.processes.len());
    for (position, process) in image.processes.iter().enumerate() {
        let known = &mut analysis.python[position];
        let is_helped = subject.complete(position, process, known);
        helped.push(is_helped);
        let Some(python) = known.as_ref().filter(|_| is_helped) else { continue };
        let stacks = process.threads.iter().map(|thread| {
            let own = analysis.threads[position].iter().find(|merged| merged.tid == thread.tid);
            own.map_or_else(unwind::NativeStack::unknown, |merged| merged.native.clone())
        });
        analysis.written = None;
        analysis.threads[position] = threads::merge(process, &symbols[position], stacks.collect(), Some(python));
    }
    if analysis.observations.waits.iter().any(|wait| wait.resource.kind.is_gpu()) {
        analysis.gpu = subject.gpu(image);
    }
    if analysis.gpu.is_some() || helped.contains(&true) {
        analysis.observations =
            observe(image, symbols, &analysis.threads, &analysis.python, analysis.gpu.as_ref(), &analysis.gpu_cores);
    }
    helped
}

fn judge_input<'a>(image: &'a Image, analysis: &'a Analysis) -> JudgeInput<'a> {
    JudgeInput {
        image,
        threads: &analysis.threads,
        python: &analysis.python,
        observations: &analysis.observations,
        gpu: analysis.gpu.as_ref(),
        gpu_cores: &analysis.gpu_cores,
    }
}

fn judge(image: &Image, analysis: &Analysis, confirmed: Option<&Confirmed>) -> Judgement {
    verdict::judge(&judge_input(image, analysis), confirmed)
}

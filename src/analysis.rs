//! The pipeline from a capture to a report: which stage runs when, and how often to look.
//!
//! In: what to attach to. Out: a [`Report`]. It decodes nothing itself; the order of the stages and the rule for a
//! second look stand here and nowhere else.
//!
//! A first look copies registers and stacks under the stop and reads the rest from the running target. When it
//! shows nothing wrong, that is the answer: in a process that hangs, nothing moves between the stop and the read.
//! When it shows a cycle or a lost owner, the target is stopped again, and this time all pages that the analysis
//! asked for are copied under the stop. Only what such a look shows, equal to what an earlier look showed, is reported.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::image::Image;
use crate::image::live::{AttachError, LiveTarget, Options};
use crate::python::{self, Python};
use crate::report::{Capture, Report, Source};
use crate::symbols::Symbols;
use crate::threads::{self, Thread};
use crate::unwind::{self, Modules};
use crate::verdict::{self, Judgement, Look};
use crate::waits::{self, Observations, Party, ResourceKey};

/// How often the target is stopped at most. Two looks settle a real hang; a third and fourth are for one in which a
/// bystander moved the pages that were wanted.
const MOST_LOOKS: u32 = 4;

/// Two looks that confirm each other are at least this far apart (design, "two looks").
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// What to attach to and how.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// Process ids.
    pub pids: Vec<i32>,
    /// Take all descendants too.
    pub tree: bool,
    /// Longest time that the target may be stopped.
    pub max_pause: Duration,
    /// Read local variables of Python frames.
    pub locals: bool,
}

/// Why no report could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The target could not be looked at.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl Error {
    /// What to try next, beside what the sentence says.
    pub fn hints(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One look, analysed.
struct Analysis {
    threads: Vec<Vec<Thread>>,
    python: Vec<Option<Python>>,
    observations: Observations,
}

/// An edge of a cycle, or a lost owner, as compared between two looks.
type Suspicion = (Party, ResourceKey, Party);

/// Attach to live processes, look as often as needed, report.
pub fn attach(options: AttachOptions) -> Result<Report, Error> {
    let started = Instant::now();
    let mut target = LiveTarget::open(Options {
        pids: options.pids.clone(),
        tree: options.tree,
        max_pause: options.max_pause,
        proc_root: "/proc".into(),
    })?;
    let mut modules: Vec<Modules> = Vec::new();
    let mut asleep: HashMap<i32, u64> = HashMap::new();
    let mut earlier: Option<BTreeSet<Suspicion>> = None;
    let mut longest_pause = 0;
    let mut looks = 0;
    loop {
        let at = Instant::now();
        let mut image = target.look()?;
        remember_sleeps(&mut image, &mut asleep, looks == 0);
        looks += 1;
        longest_pause = longest_pause.max(image.pause_us);
        modules = modules_of(&image, modules);
        let symbols = symbols_of(&image, &modules);
        let mut analysis = analyse(&image, &symbols);
        let judgement = judge(&image, &analysis, None);
        let now = suspicions(&judgement, &analysis.observations);
        let of_one_instant = target.late_reads() == 0;
        let confirmed = earlier.as_ref().is_some_and(|before| *before == now) && of_one_instant;
        if now.is_empty() || confirmed || looks == MOST_LOOKS {
            name_frames(&image, &symbols, &mut analysis, options.locals);
            let verdict = if now.is_empty() { None } else { Some(confirmed) };
            let judgement = judge(&image, &analysis, verdict);
            let look = look(&image, &analysis);
            let capture = Capture {
                threads: image.processes.iter().map(|p| p.threads.len()).sum(),
                pause_us: longest_pause,
                total_us: started.elapsed().as_micros() as u64,
                looks,
            };
            return Ok(verdict::assemble::report(
                &look,
                judgement,
                Source { kind: "live".into(), path: None },
                capture,
            ));
        }
        earlier = Some(now);
        std::thread::sleep(BETWEEN_LOOKS.saturating_sub(at.elapsed()));
    }
}

/// How long threads have slept is known at the first look only: the stop itself wakes them for an instant.
fn remember_sleeps(image: &mut Image, first: &mut HashMap<i32, u64>, is_first: bool) {
    for thread in image.processes.iter_mut().flat_map(|p| &mut p.threads) {
        match thread.asleep_ms {
            Some(asleep) if is_first => drop(first.insert(thread.tid, asleep)),
            _ => thread.asleep_ms = first.get(&thread.tid).copied(),
        }
    }
}

/// The modules of each process; those of the look before serve again where nothing was mapped or unmapped.
fn modules_of(image: &Image, before: Vec<Modules>) -> Vec<Modules> {
    let mut before = before.into_iter();
    image
        .processes
        .iter()
        .map(|process| match before.next() {
            Some(modules) if modules.still_fit(process) => modules,
            _ => Modules::of(process),
        })
        .collect()
}

fn symbols_of<'a>(image: &'a Image, modules: &'a [Modules]) -> Vec<Symbols<'a>> {
    image.processes.iter().zip(modules).map(|(process, modules)| Symbols::new(modules, process)).collect()
}

fn analyse(image: &Image, symbols: &[Symbols<'_>]) -> Analysis {
    let mut all_threads = Vec::new();
    let mut all_python = Vec::new();
    for (process, symbols) in image.processes.iter().zip(symbols) {
        let stacks = unwind::stacks(process, symbols.modules());
        let python = python::find(process, symbols);
        all_threads.push(threads::merge(process, symbols, stacks, python.as_ref()));
        all_python.push(python);
    }
    let observations = observe(image, symbols, &all_threads, &all_python);
    Analysis { threads: all_threads, python: all_python, observations }
}

fn observe(image: &Image, symbols: &[Symbols<'_>], threads: &[Vec<Thread>], python: &[Option<Python>]) -> Observations {
    let contexts: Vec<waits::Context<'_>> = (0..image.processes.len())
        .map(|position| waits::Context {
            process: position,
            image: &image.processes[position],
            all: image,
            symbols: &symbols[position],
            threads: &threads[position],
            python: python[position].as_ref(),
        })
        .collect();
    waits::observe(&contexts)
}

/// Name threads, let py-spy add what the own walk could not say, then merge and decode again with the better names.
fn name_frames(image: &Image, symbols: &[Symbols<'_>], analysis: &mut Analysis, locals: bool) {
    for (position, process) in image.processes.iter().enumerate() {
        let known = &mut analysis.python[position];
        if known.is_none() {
            *known = python::pyspy::threads_of_3_6(process);
        } else if let Some(python) = known {
            python::name_threads(process, python);
            if locals || python.is_incomplete() {
                python::pyspy::enrich(process.pid, python, locals);
            }
        }
        let Some(python) = known else { continue };
        let stacks = analysis.threads[position].iter().map(|t| t.native.clone()).collect();
        analysis.threads[position] = threads::merge(process, &symbols[position], stacks, Some(python));
    }
    analysis.observations = observe(image, symbols, &analysis.threads, &analysis.python);
}

fn look<'a>(image: &'a Image, analysis: &'a Analysis) -> Look<'a> {
    Look { image, threads: &analysis.threads, python: &analysis.python, observations: &analysis.observations }
}

fn judge(image: &Image, analysis: &Analysis, confirmed: Option<bool>) -> Judgement {
    verdict::judge(&look(image, analysis), confirmed)
}

/// The edges of all cycles and all lost owners: what two looks must show alike.
fn suspicions(judgement: &Judgement, observations: &Observations) -> BTreeSet<Suspicion> {
    let edges = judgement.cycles.iter().flat_map(|cycle| &cycle.edges);
    let lost = observations.holds.iter().filter(|hold| hold.gone.is_some()).flat_map(|hold| {
        let waits = observations.waits.iter().filter(|wait| wait.resource == hold.resource);
        waits.map(|wait| (wait.waiter.clone(), hold.resource.clone(), hold.holder.clone()))
    });
    edges.map(|edge| (edge.waiter.clone(), edge.resource.clone(), edge.holder.clone())).chain(lost).collect()
}

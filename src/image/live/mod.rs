//! Live capture: one or several running processes as an [`Image`].
//!
//! In: process ids and limits ([`Options`]). Out: an [`Image`] per [`LiveTarget::look`], or an [`AttachError`] whose
//! text is for the user. All threads of all processes stand still together for at most the pause limit, and go on
//! before this returns; nothing here unwinds or decodes.
//!
//! Order of a look: what a stop would change is read first (`facts`), then the stop (`stop`), the copies under it
//! (`plan`, `copier`), the release; then the image is put together. Memory is never read by lockscope itself but by a process
//! of its own (`copier`, `copying`), which may be left behind by a page that does not come; what is read after the release
//! (`late`, `memory`) has a limit of time for each page. Should lockscope itself be stopped in the midst of it, another process of
//! its own lets it go on (`resumer`).

mod answering;
mod asleep;
mod copier;
mod copying;
mod denial;
mod descriptors;
pub(crate) mod error;
mod facts;
mod files;
mod frozen;
pub(crate) mod gpu;
pub(crate) mod host;
mod late;
mod memory;
mod open;
mod plan;
mod proc_fs;
mod resumer;
mod sockets;
mod spared;
mod stop;
#[cfg(test)]
mod tests;
mod unstopped;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::limits::Bounded;
use crate::limits::live::PARENT_THREADS;
use crate::sys::{DeferredSignals, Span};
use asleep::{Reading, SleepReader, Sleeper};
use copier::{Copier, Copies, Wanted};
pub(crate) use error::AttachError;
use facts::{CpuSample, ProcessFacts, ThreadFacts};
use files::LiveFiles;
use late::{Late, LateProcess, Silent};
use memory::{Copied, LiveMemory};
use proc_fs::ProcFs;
pub(crate) use proc_fs::{parse_arguments, parse_maps};
use resumer::Resumer;
use spared::Early;
use stop::{Outcome, ProcessStop, StopError, Which};

use super::gpu::uses_cuda;
use super::{Gap, Image, Mapping, ProcessImage, RegisterSource, Syscall, TaskState, ThreadImage};
use super::{Memory, share_fork_ancestor};
use crate::arch::Architecture;
use crate::arch::system_calls::POLL;

/// What to look at, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The processes, in lockscope's own PID namespace.
    pub pids: Vec<i32>,
    /// Look at all their descendants too.
    pub tree: bool,
    /// Longest time that the target may stand still.
    pub max_pause: Option<Duration>,
    /// Stop no thread: only those that sleep are read.
    pub no_stop: bool,
    /// Where proc is mounted.
    pub proc_root: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Options { pids: Vec::new(), tree: false, max_pause: None, no_stop: false, proc_root: PathBuf::from("/proc") }
    }
}

/// How often a look starts again when a process replaces its program meanwhile.
const EXEC_ATTEMPTS: u32 = 3;
/// How often a refusal that may be a passing one is tried again.
const REFUSALS: u32 = 5;
/// How often a look without a stop is taken again when a thread that slept has moved meanwhile.
const UNSTOPPED_ATTEMPTS: u32 = 3;
/// How long copying may take where nothing stands still for it.
const UNSTOPPED_TIME: Duration = Duration::from_secs(2);

/// One process, from look to look.
#[derive(Debug)]
struct Target {
    pid: i32,
    /// To tell it from another process that got its id later.
    start_ticks: u64,
    /// Found as a descendant: what fails for it is a gap.
    is_descendant: bool,
    sample: CpuSample,
    /// Pages that analysis wanted and no stop has copied.
    wanted: BTreeSet<u64>,
    memory: Option<Arc<LiveMemory>>,
}

/// Running processes that can be looked at several times.
#[derive(Debug)]
pub(crate) struct LiveTarget {
    proc_fs: ProcFs,
    max_pause: Option<Duration>,
    targets: Vec<Target>,
    gaps: Vec<Gap>,
    released: Option<Instant>,
    /// The system calls of the looks before, by thread.
    calls: HashMap<i32, Syscall>,
    /// File systems and mappings whose pages did not come.
    silent: Arc<Silent>,
    /// Reads threads that sleep, where nothing may be stopped.
    sleepers: Option<SleepReader>,
    /// Some thread moved while the last look was taken without a stop.
    moved: bool,
    /// Lets lockscope go on where it is stopped itself; none where nothing may be stopped, or /proc does not tell.
    resumer: Option<Resumer>,
}

/// What the work under the stop needs.
#[derive(Debug)]
struct Inputs {
    proc_fs: ProcFs,
    facts: Vec<ProcessFacts>,
    /// Pages that looks before wanted, of each process.
    wanted: Vec<BTreeSet<u64>>,
}

/// What was taken of one process under the stop.
#[derive(Debug, Default)]
struct Taken {
    /// A thread of it that lives.
    living: i32,
    /// There was time left to copy any memory.
    is_planned: bool,
    /// The map, where it changed since it was read first.
    mappings: Option<Vec<Mapping>>,
    /// System calls of threads that did not stop.
    calls: BTreeMap<i32, Syscall>,
}

/// The same of each process, and the copies, which the copier still has.
#[derive(Debug)]
struct TakenOfAll {
    processes: Vec<Taken>,
    copies: Copies,
    copier: Copier,
}

impl LiveTarget {
    /// Check that the processes can be looked at, and take the first sample of their CPU time. Nothing is stopped.
    ///
    /// A process that is gone is an error if it is the only one, and a gap otherwise.
    pub(crate) fn open(options: Options) -> Result<LiveTarget, AttachError> {
        let proc_fs = ProcFs::new(options.proc_root);
        let mut gaps = Vec::new();
        let mut named = options.pids;
        let mut seen = BTreeSet::new();
        named.retain(|pid| seen.insert(*pid));
        let single = named.len() == 1;
        let mut targets: Vec<Target> = Vec::new();
        let mut add = |pid: i32, is_descendant: bool| {
            match open::check(&proc_fs, pid) {
                Ok(start_ticks) => targets.push(Target {
                    pid,
                    start_ticks,
                    is_descendant,
                    sample: CpuSample::take(&proc_fs, pid),
                    wanted: BTreeSet::new(),
                    memory: None,
                }),
                Err(error) if is_descendant || (!single && is_gone(&error)) => gaps.push(process_gap(pid, &error)),
                Err(error) => return Err(error),
            }
            Ok(())
        };
        for &pid in &named {
            add(pid, false)?;
        }
        if options.tree {
            let children: Vec<i32> = named.iter().flat_map(|&pid| open::descendants(&proc_fs, pid)).collect();
            for child in children.into_iter().filter(|&child| seen.insert(child)) {
                add(child, true)?;
            }
        }
        if targets.is_empty() {
            return Err(named.first().map_or(AttachError::NoProcess, |&pid| AttachError::NoSuchProcess { pid }));
        }
        let pids: Vec<i32> = targets.iter().map(|target| target.pid).collect();
        let sleepers = options.no_stop.then(|| SleepReader::new(&proc_fs, &pids));
        let resumer = if options.no_stop { None } else { Resumer::start(&proc_fs).ok() };
        Ok(LiveTarget {
            resumer,
            proc_fs,
            max_pause: options.max_pause,
            targets,
            gaps,
            released: None,
            calls: HashMap::new(),
            sleepers,
            moved: false,
            silent: Arc::default(),
        })
    }

    /// Stop all processes together, copy, let them go. When this returns they run.
    pub(crate) fn look(&mut self) -> Result<Image, AttachError> {
        for target in &mut self.targets {
            if let Some(memory) = target.memory.take() {
                target.wanted.extend(memory.late_pages());
            }
        }
        let mut executed = 0;
        let mut refused = 0;
        loop {
            let facts = self.read_facts()?;
            match self.stop_and_take(facts)? {
                Ok((facts, stopped)) => return self.image(facts, stopped),
                Err(StopError::Executed(pid)) => {
                    executed += 1;
                    if executed == EXEC_ATTEMPTS {
                        return Err(AttachError::KeepsExecuting { pid, attempts: EXEC_ATTEMPTS });
                    }
                    // What was wanted of the old program is nothing to the new one.
                    self.targets.iter_mut().filter(|target| target.pid == pid).for_each(|t| t.wanted.clear());
                }
                // A thread that is just ending is refused with the same error as one that may not be traced, and an
                // exec ends all threads but one (seen with a program that calls exec all the time).
                Err(StopError::Denied(_, Errno::EPERM)) if refused < REFUSALS => refused += 1,
                // Each time one process fewer is left, so that this ends.
                Err(StopError::Denied(pid, errno)) => self.drop_target(pid, self.refusal(pid, errno))?,
                Err(StopError::NoAnswer(pid)) => return Err(AttachError::NoAnswer { pid }),
                Err(StopError::Tracer(source)) => {
                    return Err(AttachError::System { action: "start a thread to trace with", source });
                }
            }
        }
    }

    /// Pages of memory that can change, and that analysis of the last image read after the release. The next look
    /// copies them under its stop; with 0 the last image is of one instant.
    pub(crate) fn late_reads(&self) -> usize {
        self.targets.iter().filter_map(|target| target.memory.as_ref()).map(|memory| memory.late_pages().len()).sum()
    }

    /// Whether all that analysis read of the last look was of one instant.
    pub(crate) fn is_of_one_instant(&self) -> bool {
        self.late_reads() == 0 && !self.moved
    }

    /// What analysis could not read after the release of this look and those before, and why.
    pub(crate) fn late_gaps(&self) -> Vec<Gap> {
        self.silent.gaps()
    }

    /// Read what has to be read before the stop, after enough time for a second sample of CPU time.
    fn read_facts(&mut self) -> Result<Vec<ProcessFacts>, AttachError> {
        let wait = self.targets.iter().map(|target| target.sample.time_to_wait()).max().unwrap_or_default();
        std::thread::sleep(wait);
        let mut all = Vec::new();
        let mut ended = Vec::new();
        for target in &mut self.targets {
            let same = proc_fs::stat(&self.proc_fs.process(target.pid))
                .is_some_and(|stat| stat.start_ticks == target.start_ticks);
            let sample = CpuSample::take(&self.proc_fs, target.pid);
            let facts = ProcessFacts::read(&self.proc_fs, target.pid, &target.sample, &sample, self.released);
            match facts.filter(|_| same) {
                Some(facts) => {
                    target.sample = sample;
                    all.push(facts);
                }
                None => ended.push(target.pid),
            }
        }
        for pid in ended {
            self.drop_target(pid, AttachError::Ended { pid })?;
        }
        Ok(all)
    }

    /// Go on without a process, or fail if that is not acceptable.
    fn drop_target(&mut self, pid: i32, error: AttachError) -> Result<(), AttachError> {
        let is_descendant = self.targets.iter().any(|target| target.pid == pid && target.is_descendant);
        if self.targets.len() <= 1 || !(is_descendant || is_gone(&error)) {
            return Err(error);
        }
        self.gaps.push(process_gap(pid, &error));
        self.targets.retain(|target| target.pid != pid);
        Ok(())
    }

    /// Why the kernel refused to let a process be seized.
    fn refusal(&self, pid: i32, _errno: Errno) -> AttachError {
        if self.proc_fs.living_thread(pid).is_none() {
            return AttachError::Ended { pid };
        }
        open::traced(&self.proc_fs, pid).unwrap_or_else(|| open::denied(&self.proc_fs, pid))
    }

    /// Stop, copy, release; the facts are given back. The outer error is lockscope's own.
    #[expect(clippy::type_complexity, reason = "one caller, which takes it apart at once")]
    fn stop_and_take(
        &mut self,
        facts: Vec<ProcessFacts>,
    ) -> Result<Result<(Vec<ProcessFacts>, stop::Stopped<TakenOfAll>), StopError>, AttachError> {
        let threads = facts.iter().flat_map(|facts| &facts.threads);
        let count = threads.clone().count();
        let which = Which {
            pids: facts.iter().map(|facts| facts.pid).collect(),
            spared: threads.filter(|(_, facts)| facts.spared().is_some()).map(|(&tid, _)| tid).collect(),
            max_pause: self.max_pause.unwrap_or_else(|| usual_pause(count)),
        };
        let wanted: Vec<BTreeSet<u64>> = facts
            .iter()
            .map(|facts| self.targets.iter().find(|target| target.pid == facts.pid))
            .map(|target| target.map(|target| target.wanted.clone()).unwrap_or_default())
            .collect();
        let tasks: Vec<i32> = facts.iter().map(|facts| facts.living_thread).collect();
        let pages = pages_needed(&facts, &wanted);
        // Before the stop: to start a process takes time, and may fail.
        let copier = Copier::start(&self.proc_fs, pages, &tasks)
            .map_err(|source| AttachError::System { action: "start a process to copy memory with", source })?;
        let inputs = Arc::new(Inputs { proc_fs: self.proc_fs.clone(), facts, wanted });
        let stopped = if self.sleepers.is_some() {
            let taken = self.take_asleep(&inputs, copier);
            taken.map(|stop::Stopped { result, processes, pause }| stop::Stopped {
                result: Ok(result),
                processes,
                pause,
            })
        } else {
            let shared = Arc::clone(&inputs);
            let work = move |stops: &[ProcessStop], deadline: Instant| take_all(&shared, copier, stops, deadline);
            // Signals that stop this process wait until the resumer is told that all are free.
            let deferred = DeferredSignals::begin();
            let standing = self.resumer.as_ref().map(|resumer| resumer.begin(which.max_pause));
            let stopped = stop::joint_stop(&self.proc_fs, which, work);
            drop(standing);
            drop(deferred);
            self.released = Some(Instant::now());
            stopped
        };
        let stop::Stopped { result, processes, pause } = match stopped {
            Ok(stopped) => stopped,
            Err(error) => return Ok(Err(error)),
        };
        let facts = Arc::try_unwrap(inputs).map(|inputs| inputs.facts);
        match (result, facts) {
            (Err(error), _) => Ok(Err(error)),
            (Ok(result), Ok(facts)) => Ok(Ok((facts, stop::Stopped { result, processes, pause }))),
            // The tracer has told its outcome after the work, which had the other reference.
            (Ok(_), Err(_)) => Ok(Err(StopError::Tracer(io::Error::other("the tracer thread failed")))),
        }
    }

    /// Read the threads that sleep, copy, and believe of it what they slept through.
    fn take_asleep(&mut self, inputs: &Inputs, copier: Copier) -> Result<stop::Stopped<TakenOfAll>, StopError> {
        let pids: Vec<i32> = inputs.facts.iter().map(|facts| facts.pid).collect();
        let proc_fs = &self.proc_fs;
        let mut read = || self.sleepers.as_mut().map(|sleepers| sleepers.read(&pids)).unwrap_or_default();
        let tids = |pid: i32| proc_fs.threads(pid).unwrap_or_default();
        let mut copier = Some(copier);
        let mut attempt = 0;
        while let Some(unused) = copier.take() {
            attempt += 1;
            let before: Reading = read();
            let mut processes: Vec<ProcessStop> =
                pids.iter().map(|&pid| unstopped::outcomes(&tids(pid), &before)).collect();
            let result = take_all(inputs, unused, &processes, Instant::now() + UNSTOPPED_TIME)?;
            let after: Reading = read();
            // Those that ran from the start will run the next time too.
            let mut sleepers_moved = false;
            self.moved = false;
            for (outcomes, &pid) in processes.iter_mut().zip(&pids) {
                let moved = unstopped::moved(outcomes, &tids(pid), &before, &after);
                self.moved |= !moved.is_empty();
                sleepers_moved |= moved.iter().any(|tid| !matches!(outcomes.get(tid), Some(Outcome::Awake { .. })));
                unstopped::take_back(outcomes, &moved, &after);
            }
            if !sleepers_moved || attempt == UNSTOPPED_ATTEMPTS {
                return Ok(stop::Stopped { result, processes, pause: Duration::ZERO });
            }
            copier = Some(result.copier);
        }
        Err(StopError::Tracer(io::Error::other("no copier was left")))
    }

    /// Put the image together; everything runs again.
    fn image(&mut self, facts: Vec<ProcessFacts>, stopped: stop::Stopped<TakenOfAll>) -> Result<Image, AttachError> {
        let mut image =
            Image { pause_us: u64::try_from(stopped.pause.as_micros()).unwrap_or(u64::MAX), ..Image::default() };
        let TakenOfAll { processes: all_taken, copies, copier } = stopped.result;
        let mut copied: Vec<Copied> =
            (0..all_taken.len()).map(|position| Copied::new(copier.ranges(&copies, position))).collect();
        let tasks = all_taken.iter().map(|taken| taken.living).collect();
        let late = Arc::new(Late::new(self.proc_fs.clone(), tasks, copier, Arc::clone(&self.silent)));
        if copies.unfit > 0 {
            image.gaps.push(Gap::new(
                format!("{} KiB of the memory at the stop", copies.unfit / 1024),
                "lockscope could not have the memory to copy it to; it is read after the release",
            ));
        }
        let parts = facts.into_iter().zip(&stopped.processes).zip(all_taken).enumerate();
        for (position, ((facts, outcomes), mut taken)) in parts {
            let pid = facts.pid;
            let threads: Vec<ThreadImage> = outcomes
                .iter()
                .filter_map(|(&tid, outcome)| thread_image(&self.proc_fs, &facts, &taken, tid, outcome))
                .collect();
            if threads.iter().all(|thread| thread.state == TaskState::Zombie) {
                self.drop_target(pid, AttachError::Ended { pid })?;
                continue;
            }
            let left_out = copies.not_reached(position);
            if left_out > 0 || !taken.is_planned {
                let part = if taken.is_planned { format!("{} KiB of ", left_out / 1024) } else { String::new() };
                image.gaps.push(Gap::new(
                    format!("{part}the memory of process {pid} at the stop"),
                    "it did not fit in the pause limit and is read after the release; raise --max-pause",
                ));
            }
            image.gaps.extend(missing_registers(pid, &threads));
            if let Some(why) = threads
                .iter()
                .any(|thread| thread.source == RegisterSource::KernelFiles)
                .then(|| self.sleepers.as_mut()?.unavailable())
                .flatten()
            {
                image.gaps.push(Gap::new(
                    format!("callee-saved registers of threads of process {pid} that were not stopped"),
                    format!("/proc does not tell them, so that some stacks may end early: {why}"),
                ));
            }
            image.gaps.extend(facts.cut.iter().map(|what| {
                Gap::new(
                    format!("a part of the {what} of process {pid}"),
                    "there is more of it than any program is started with, and only the beginning was read",
                )
            }));
            let mappings = taken.mappings.take().unwrap_or(facts.mappings);
            let source = Arc::new(LateProcess::new(Arc::clone(&late), pid, position));
            let copied = copied.get_mut(position).map(std::mem::take).unwrap_or_default();
            let memory = Arc::new(LiveMemory::new(source, mappings.clone(), copied));
            if let Some(target) = self.targets.iter_mut().find(|target| target.pid == pid) {
                target.memory = Some(Arc::clone(&memory));
            }
            let parent_threads = facts.parent.map(|parent| parent_threads(&self.proc_fs, parent, &mappings));
            let parent_threads = parent_threads.unwrap_or_default();
            image.processes.push(ProcessImage {
                architecture: Architecture::NATIVE,
                pid,
                ns_pid: facts.namespace_pid,
                parent: facts.parent,
                parent_threads,
                exe: facts.program,
                cmdline: facts.command_line,
                threads,
                mappings,
                memory,
                files: Arc::new(LiveFiles::new(self.proc_fs.process(facts.living_thread))),
                tracer: None,
                auxiliary: facts.auxiliary,
                descriptors: Vec::new(),
                environment: facts.environment,
            });
        }
        remember_calls(&mut image, &mut self.calls);
        image.kernel = descriptors::read(&self.proc_fs, &mut image.processes);
        if image.processes.iter().any(|process| uses_cuda(&process.mappings)) {
            image.kernel.gpu_driver = self.proc_fs.gpu_driver();
        }
        image.gaps.splice(0..0, self.gaps.iter().cloned());
        Ok(image)
    }
}

/// Whether lockscope may look at a process, found out without touching it; one that is gone may be.
pub(crate) fn may_attach(pid: i32) -> Result<(), AttachError> {
    let proc_fs = ProcFs::new("/proc");
    // Whoever may read the memory may trace (both ask for PTRACE_MODE_ATTACH), unless a filter forbids ptrace itself.
    let denied = open::may_read(&proc_fs, pid).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    if !denied && !denial::is_filtered() {
        return Ok(());
    }
    Err(open::denied(&proc_fs, pid))
}

/// Direct children of a process, of all its threads.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    ProcFs::new("/proc").children(pid)
}

/// The longest stop where the user gives none: enough for all threads also on a machine that is busy (200 threads of Python with
/// 20 frames each take 7 ms on one that is not).
fn usual_pause(threads: usize) -> Duration {
    const LEAST: Duration = Duration::from_millis(50);
    const OF_A_THREAD: Duration = Duration::from_micros(100);
    LEAST.max(OF_A_THREAD * u32::try_from(threads).unwrap_or(u32::MAX))
}

/// Threads without registers: each one, or by their reason how many.
fn missing_registers(pid: i32, threads: &[ThreadImage]) -> Vec<Gap> {
    /// So many are named.
    const FEW: usize = 8;
    let mut by_reason: Vec<(&str, Vec<i32>)> = Vec::new();
    for thread in threads.iter().filter(|thread| thread.state != TaskState::Zombie) {
        let Some(why) = &thread.missing else { continue };
        match by_reason.iter_mut().find(|(known, _)| known == why) {
            Some((_, tids)) => tids.push(thread.tid),
            None => by_reason.push((why, vec![thread.tid])),
        }
    }
    let gap = |what: String, why: &str| Gap::new(format!("registers of {what} of process {pid}"), why);
    let gaps = by_reason.into_iter().map(|(why, tids)| match tids.len() {
        0..=FEW => tids.iter().map(|tid| gap(format!("thread {tid}"), why)).collect(),
        many => vec![gap(format!("{many} threads"), why)],
    });
    gaps.flat_map(|gaps: Vec<Gap>| gaps).collect()
}

/// Errors that mean that the process is not there any more.
fn is_gone(error: &AttachError) -> bool {
    matches!(error, AttachError::NoSuchProcess { .. } | AttachError::Exited { .. } | AttachError::Ended { .. })
}

fn process_gap(pid: i32, error: &AttachError) -> Gap {
    Gap::new(format!("process {pid}"), error.to_string())
}

/// Room for what may have to be copied under the stop, in pages; only what is used takes memory.
fn pages_needed(facts: &[ProcessFacts], wanted: &[BTreeSet<u64>]) -> usize {
    /// For maps, and what else is copied beside the threads.
    const SPARE: usize = 1024;
    let threads: usize = facts.iter().map(|facts| plan::most_pages(facts.threads.len())).sum();
    threads + wanted.iter().map(BTreeSet::len).sum::<usize>() + SPARE
}

/// Everything that is done under the stop. No memory is read here: that is the copier's.
fn take_all(
    inputs: &Inputs,
    mut copier: Copier,
    stops: &[ProcessStop],
    deadline: Instant,
) -> Result<TakenOfAll, StopError> {
    let proc_fs = &inputs.proc_fs;
    let mut processes = Vec::with_capacity(inputs.facts.len());
    let mut stacks: Vec<Vec<Span>> = Vec::with_capacity(inputs.facts.len());
    for (facts, outcomes) in inputs.facts.iter().zip(stops) {
        let living = outcomes.iter().find(|(_, outcome)| !matches!(outcome, Outcome::Ended));
        let living = living.map_or(facts.living_thread, |(&tid, _)| tid);
        // An exec that was over before the first interrupt has raised no event.
        if proc_fs::program(&proc_fs.process(living)) != facts.program {
            return Err(StopError::Executed(facts.pid));
        }
        let mut taken = Taken { living, ..Taken::default() };
        let mut stopped = Vec::new();
        for (&tid, outcome) in outcomes {
            match outcome {
                Outcome::Stopped(registers) => stopped.extend(Architecture::NATIVE.registers(registers.as_slice())),
                Outcome::Asleep(sleeper) => {
                    stopped.extend(sleeper.registers);
                    taken.calls.extend(sleeper.call.map(|call| (tid, call)));
                }
                Outcome::NotStopped { .. } | Outcome::Refused(_) | Outcome::Spared if Instant::now() < deadline => {
                    taken.calls.extend(proc_fs::system_call(&proc_fs.task(facts.pid, tid)).map(|call| (tid, call)));
                }
                _ => {}
            }
        }
        // The map may have changed since; to read it again must not cost too much of the pause, nor wait for a lock
        // that a thread in state D might hold.
        let time_left = deadline.saturating_duration_since(Instant::now());
        let all_stopped = !outcomes.values().any(|outcome| matches!(outcome, Outcome::NotStopped { .. }));
        if all_stopped && facts.map_time * 4 < time_left {
            let text = copier.maps(living, deadline);
            let now = text.map(|bytes| parse_maps(&bytes));
            taken.mappings = now.filter(|now| *now != facts.mappings);
        }
        let mappings = taken.mappings.as_ref().unwrap_or(&facts.mappings);
        let blocked: Vec<Syscall> = taken.calls.values().copied().collect();
        // Thousands of threads take milliseconds.
        taken.is_planned = Instant::now() < deadline;
        let spans = if taken.is_planned { plan::of_threads(mappings, &stopped, &blocked) } else { Vec::new() };
        stacks.push(spans);
        processes.push(taken);
    }
    // Stacks of all processes first, then what earlier looks missed. Pages that are not in memory are not asked for: they might
    // be served by the target itself, which stands still, or not at all.
    let wanted = |process: usize, tid: i32, span: Span| Wanted { tid, process, span, touch: false };
    let mut order: Vec<Wanted> = Vec::new();
    for (process, (taken, spans)) in processes.iter().zip(&stacks).enumerate() {
        order.extend(spans.iter().map(|&span| wanted(process, taken.living, span)));
    }
    let rest = processes.iter().zip(&inputs.facts).zip(&inputs.wanted).zip(&stacks).enumerate();
    for (process, (((taken, facts), pages), held)) in rest {
        let mappings = taken.mappings.as_ref().unwrap_or(&facts.mappings);
        order.extend(plan::of_pages(mappings, pages, held).into_iter().map(|span| wanted(process, taken.living, span)));
    }
    let copies = copier.copy(&order, deadline);
    Ok(TakenOfAll { processes, copies, copier })
}

/// The number of the restarted `call` where its code says that it is poll: of the calls that wait for descriptors the one
/// that is restarted under another number.
fn poll_by_code(architecture: Architecture, call: &Syscall, memory: &dyn Memory) -> Option<i64> {
    let number = architecture.number_by_code(call, memory)?;
    (architecture.system_call(number) == Some(&POLL)).then_some(number)
}

/// Calls with a time-out, and poll, are restarted under another number after a stop. Which it is tells the code, or the
/// look before, if that saw the same arguments at the same place.
fn remember_calls(image: &mut Image, before: &mut HashMap<i32, Syscall>) {
    let same =
        |one: &Syscall, other: &Syscall| (one.arguments, one.pc, one.sp) == (other.arguments, other.pc, other.sp);
    for process in &mut image.processes {
        let architecture = process.architecture;
        let memory = &*process.memory;
        for thread in &mut process.threads {
            let call = thread.registers.and_then(|registers| registers.asleep()).or(thread.syscall);
            let Some(call) = call else { continue };
            if !architecture.is_restart(call.number) {
                before.insert(thread.tid, call);
                continue;
            }
            let earlier = before.get(&thread.tid).filter(|earlier| same(earlier, &call)).map(|earlier| earlier.number);
            // Whether it is being restarted is asked of calls whose time-out is not among their arguments.
            let Some(number) = earlier.or_else(|| poll_by_code(architecture, &call, memory)) else { continue };
            if let Some(registers) = &mut thread.registers {
                registers.system_call = number;
            }
            if let Some(call) = &mut thread.syscall {
                call.number = number;
            }
        }
    }
}

/// The image of one thread; `None` for one that had exited.
fn thread_image(
    proc_fs: &ProcFs,
    process: &ProcessFacts,
    taken: &Taken,
    tid: i32,
    outcome: &Outcome,
) -> Option<ThreadImage> {
    let known = process.threads.get(&tid).cloned();
    // A thread that came into being after the facts were read can be asked for its name still.
    let facts = known.unwrap_or_else(|| ThreadFacts::read(proc_fs, process.pid, tid));
    let state = facts.stat.map_or(TaskState::Other, |stat| stat.task_state());
    let (registers, missing) = match outcome {
        Outcome::Stopped(registers) => match Architecture::NATIVE.registers(registers.as_slice()) {
            Some(registers) => (Some(registers), None),
            None => (None, Some("the kernel gave fewer registers than this machine has".to_owned())),
        },
        Outcome::Asleep(Sleeper { registers: Some(registers), .. }) => (Some(*registers), None),
        // Its call and stack pointer are known; what that lacks is said once for the process.
        Outcome::Asleep(Sleeper { call: Some(_), .. }) => (None, None),
        Outcome::Asleep(_) => (None, Some("it was not stopped, and the kernel tells no system call of it".to_owned())),
        Outcome::Awake { state } => {
            (None, Some(format!("it moved while it was looked at (state {state}), and --no-stop forbids to stop it")))
        }
        Outcome::NotStopped { state: Some('D') } => {
            let place = facts.wait_channel.clone().or_else(|| proc_fs::wait_channel(&proc_fs.task(process.pid, tid)));
            let place = place.map(|function| format!(" in {function}")).unwrap_or_default();
            (None, Some(format!("did not come to its stop (state D{place})")))
        }
        Outcome::NotStopped { state } => {
            let state = state.map(|state| format!(" (state {state})")).unwrap_or_default();
            (None, Some(format!("did not come to its stop within the pause limit{state}; raise --max-pause")))
        }
        Outcome::Refused(errno) => (None, Some(format!("the kernel refused to stop it ({errno})"))),
        Outcome::Spared => {
            let place = facts.wait_channel.as_deref().unwrap_or("a call");
            let why = match facts.spared() {
                Some(Early::PartOfAWrite) => "cut that write short",
                Some(Early::Part) => "make that call return a part of what it waits for",
                _ => "make that call return early",
            };
            let rest = "Its call and stack pointer are the kernel's";
            (None, Some(format!("it sleeps in {place}; it was not stopped: any stop would {why}. {rest}")))
        }
        Outcome::NotReached => {
            (None, Some("the pause limit was over before it was asked to stop; raise --max-pause".to_owned()))
        }
        // A main thread that has exited stands for its process as long as others live.
        Outcome::Ended if tid == process.pid && facts.is_dead() => (None, Some("has exited".to_owned())),
        Outcome::Ended => return None,
    };
    Some(ThreadImage {
        tid,
        ns_tid: facts.status.innermost_id.unwrap_or(tid),
        name: facts.name,
        state,
        registers,
        syscall: taken.calls.get(&tid).copied().or_else(|| match outcome {
            // To ask for thousands of them would have taken its part of the pause.
            Outcome::NotReached | Outcome::NotStopped { .. } => proc_fs::system_call(&proc_fs.task(process.pid, tid)),
            _ => None,
        }),
        wchan: facts.wait_channel,
        cpu_used: facts.cpu_used,
        asleep_ms: facts.asleep_ms,
        start_ticks: facts.stat.map(|stat| stat.start_ticks),
        age_ms: facts
            .stat
            .zip(proc_fs.uptime_ms())
            .map(|(stat, now)| now.saturating_sub(ticks_to_ms(stat.start_ticks))),
        switches: facts.status.switches,
        missing,
        source: match outcome {
            Outcome::Stopped(_) => RegisterSource::Stop,
            Outcome::Asleep(Sleeper { registers: Some(_), .. }) => RegisterSource::TaskIterator,
            Outcome::Asleep(Sleeper { call: Some(_), .. }) => RegisterSource::KernelFiles,
            _ => RegisterSource::Unsaid,
        },
    })
}

fn ticks_to_ms(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1)
}

/// Threads of a process's parent, as (tid as the parent calls it, name): a lock inherited by fork may name one. None where
/// the process has run another program since the fork.
fn parent_threads(proc_fs: &ProcFs, parent: i32, own: &[Mapping]) -> Vec<(i32, String)> {
    let mappings = proc_fs::mappings(&proc_fs.process(parent)).unwrap_or_default();
    if !mappings.is_empty() && !share_fork_ancestor(&mappings, own) {
        return Vec::new();
    }
    let threads = proc_fs.threads(parent).unwrap_or_default();
    threads
        .into_iter()
        .bounded(PARENT_THREADS, || format!("threads of process {parent}"), "threads of a parent that is not captured")
        .map(|tid| {
            let facts = ThreadFacts::read(proc_fs, parent, tid);
            (facts.status.innermost_id.unwrap_or(tid), facts.name)
        })
        .collect()
}

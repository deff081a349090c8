//! Live capture: one or several running processes as an [`Image`].
//!
//! In: process ids and limits ([`Options`]). Out: an [`Image`] per [`LiveTarget::look`], or an [`AttachError`] whose
//! text is for the user. All threads of all processes stand still together for at most the pause limit, and go on
//! before this returns; nothing here unwinds or decodes.
//!
//! The order of a sample:
//! 1. Read everything that a stop would change (`facts`, `sleeps`, `at_once`, `wait_channels`). Several threads of
//!    lockscope's do that where there is much of it. `locked_files` runs beside them.
//! 2. Read the threads that sleep (`asleep`).
//! 3. Stop the others (`rounds`, `stop`) and copy memory under the stop (`taking`, `plan`, `copier`).
//! 4. Check that the sleepers slept on (`unstopped`).
//! 5. Release the threads, and put the image together (`thread_images`).
//!
//! A separate process reads memory (`copier`, `copying`), never lockscope itself: a page that does not come may block
//! that process for ever. A read after the release (`late`, `memory`, for thousands of threads `ahead`) has a time
//! limit for each page. If lockscope itself is stopped during the sample, another process of its own lets it continue
//! (`resumer`).

mod ahead;
mod answering;
mod asleep;
mod at_once;
mod awaited;
mod clusters;
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
mod in_flight;
mod interrupted;
mod kernel_log;
pub(crate) mod lasting;
mod late;
mod launch;
mod leases;
mod locked_files;
mod memory;
mod nccl_ras;
mod offspring;
mod open;
mod plan;
mod proc_fs;
mod reaping;
mod resumer;
mod rounds;
mod sharers;
mod sleeping;
mod sleeps;
mod sockets;
mod sources;
mod spared;
pub(crate) mod stalled;
mod stop;
mod taking;
mod target;
mod tcp_bytes;
#[cfg(test)]
mod tests;
mod thread_images;
mod unstopped;
mod wait_channels;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use asleep::{Reading, SleepReader};
pub(crate) use awaited::Awaited;
pub(crate) use clusters::{of_clusters, together, with_pytorch};
use copier::Copier;
pub(crate) use error::AttachError;
use facts::{CpuSample, ProcessFacts};
use files::LiveFiles;
pub(crate) use files::own_files;
use late::{Late, LateProcess, Silent};
pub(crate) use launch::{Ranked, ancestors, ranks};
use leases::Leases;
use memory::{Copied, LiveMemory, locked};
use proc_fs::ProcFs;
pub(crate) use proc_fs::{parse_arguments, parse_maps};
use resumer::Resumer;
use rounds::{Rounds, Seen};
use sleeps::Clocks;
pub use stop::Stopping;
use stop::{Outcome, StopError};
use taking::{Inputs, TakenOfAll, pages_needed};
use target::Target;
use thread_images::{broken_calls, missing_registers, parent_threads, remember_calls, thread_image};

use super::descriptors::DeadChild;
use super::gpu::uses_cuda;
use super::{Addr, Gap, Image, Launch, ProcessImage, RegisterSource, Syscall, TaskState, ThreadImage};
use crate::arch::Architecture;
use crate::in_parts;
use crate::limits;
use crate::limits::image::{MOST_FOLLOWED, MOST_OFFSPRING};
use crate::sys;

/// The processes to sample, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The processes, in lockscope's own PID namespace.
    pub pids: Vec<i32>,
    /// Sample all their descendants, too.
    pub tree: bool,
    /// lockscope found these processes, the user did not name them: a process that cannot be sampled is left out.
    pub found: bool,
    /// Longest time that the target may stand still.
    pub max_pause: Option<Duration>,
    /// Which threads may be stopped.
    pub stopping: Stopping,
    /// Where proc is mounted.
    pub proc_root: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            pids: Vec::new(),
            tree: false,
            found: false,
            max_pause: None,
            stopping: Stopping::AsNeeded,
            proc_root: PathBuf::from("/proc"),
        }
    }
}

/// How often a sample starts again when a process replaces its program meanwhile.
const EXEC_ATTEMPTS: u32 = 10;
/// How often a refusal that may be a passing one is tried again.
const REFUSALS: u32 = 5;
/// How often lockscope waits for the end of another sample of the same process.
const OTHER_LOOKS: u32 = 5;
/// The least memory that an analysis takes for each thread of the sample.
const HEAP_OF_A_THREAD: usize = 16 << 10;
/// For more threads, two copiers work at a time, where there are two processors.
const OF_ONE_COPIER: usize = 1000;
/// Pages that the copier of the first look has room for beside those of the threads: for what is read later. Memory is taken only for what
/// is copied.
const USUAL_PAGES: usize = 64 << 10;
/// For asking late threads again, of all looks together.
const PATIENCE: Duration = Duration::from_secs(3);

/// A reader for the sleeping threads of these, where not all are stopped.
fn sleep_reader(proc_fs: &ProcFs, stopping: Stopping, targets: &[Target]) -> Option<Arc<Mutex<SleepReader>>> {
    let pids: Vec<i32> = targets.iter().map(|target| target.pid).collect();
    (stopping != Stopping::Always).then(|| Arc::new(Mutex::new(SleepReader::new(proc_fs, &pids))))
}

/// Running processes that lockscope can sample several times.
#[derive(Debug)]
pub(crate) struct LiveTarget {
    proc_fs: ProcFs,
    max_pause: Option<Duration>,
    targets: Vec<Target>,
    gaps: Vec<Gap>,
    /// Processes that the samples go on without: each is tried once.
    left_out: BTreeSet<i32>,
    released: Option<Instant>,
    /// The system calls of the looks before, by thread.
    calls: HashMap<i32, Syscall>,
    /// File systems and mappings whose pages did not come.
    silent: Arc<Silent>,
    stopping: Stopping,
    /// Reads threads that sleep, where not all are stopped.
    sleepers: Option<Arc<Mutex<SleepReader>>>,
    /// Those that the last look left asleep.
    asleep: Reading,
    /// Threads whose registers only a stop shows.
    lacking: BTreeSet<i32>,
    /// The rest of the time for retries of late threads.
    patience: Duration,
    /// Lets lockscope go on where it is stopped itself; none where nothing may be stopped, or /proc does not show it.
    resumer: Option<Resumer>,
    /// One that waits for the first look.
    copier: Option<Copier>,
    /// The reader of the last sample that still works.
    late: Option<Arc<Late>>,
}

impl LiveTarget {
    /// Check that the processes can be sampled, and take the first sample of their CPU time. Nothing is stopped.
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
        let mut refused = None;
        let mut add = |pid: i32, is_found: bool| {
            match Target::open(&proc_fs, pid, is_found) {
                Ok(target) => targets.push(target),
                Err(error) if is_found || (!single && is_gone(&error)) => {
                    gaps.push(process_gap(pid, &error));
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            Ok(())
        };
        for &pid in &named {
            add(pid, options.found)?;
        }
        if options.tree {
            let children: Vec<i32> = named.iter().flat_map(|&pid| open::descendants(&proc_fs, pid)).collect();
            for child in children.into_iter().filter(|&child| seen.insert(child)) {
                add(child, true)?;
            }
        }
        if targets.is_empty() {
            let first = || named.first().map_or(AttachError::NoProcess, |&pid| AttachError::NoSuchProcess { pid });
            return Err(refused.filter(|_| options.found).unwrap_or_else(first));
        }
        // Copies of this process are made while it is small and has one thread: each page that both have is copied when it is
        // written next, and all processors that run a thread of it are interrupted for that.
        let threads = targets.iter().map(|target| target.threads).sum();
        let copier = Copier::spawn(&proc_fs, USUAL_PAGES + plan::most_pages(threads), &[]).ok();
        let copier = copier.map(|copier| match threads > OF_ONE_COPIER && in_parts::has_processors() {
            true => copier.with_second(),
            false => copier,
        });
        let may_stop = options.stopping != Stopping::Never;
        let resumer = may_stop.then(|| Resumer::start(&proc_fs).ok()).flatten();
        let sleepers = sleep_reader(&proc_fs, options.stopping, &targets);
        targets.iter_mut().for_each(|target| target.take_sample(&proc_fs, sleepers.as_ref()));
        // Meanwhile no thread can be started and nothing be mapped, as the iterator is: that is done by now.
        sys::touch_heap(threads.saturating_mul(HEAP_OF_A_THREAD));
        Ok(LiveTarget {
            resumer,
            copier,
            late: None,
            proc_fs,
            max_pause: options.max_pause,
            targets,
            gaps,
            left_out: BTreeSet::new(),
            released: None,
            calls: HashMap::new(),
            stopping: options.stopping,
            sleepers,
            asleep: Reading::new(),
            lacking: BTreeSet::new(),
            patience: PATIENCE,
            silent: Arc::default(),
        })
    }

    /// Also sample the descendants that this leads to. Returns whether there are any. A descendant that cannot be
    /// sampled is a gap.
    pub(crate) fn follow(&mut self, awaited: &BTreeSet<Awaited>) -> bool {
        let captured = self.captured();
        let more = awaited::resolve(&self.proc_fs, &captured, awaited);
        self.take_in(more)
    }

    /// Look at the descendants too that sleep, in the same session; whether there are such.
    pub(crate) fn follow_asleep(&mut self) -> bool {
        let captured = self.captured();
        let mut more = offspring::asleep(&self.proc_fs, &captured).of_session;
        // The rest is counted as passed over.
        more.truncate(MOST_OFFSPRING.saturating_sub(self.targets.len()));
        self.take_in(more)
    }

    /// The children of these that have died.
    pub(crate) fn dead_children(&self) -> Vec<DeadChild> {
        offspring::dead(&self.proc_fs, &self.captured())
    }

    /// How many descendants sleep that are not looked at.
    pub(crate) fn passed_over(&self) -> usize {
        let offspring::Asleep { of_session, of_others } = offspring::asleep(&self.proc_fs, &self.captured());
        of_session.len() + of_others.len()
    }

    fn captured(&self) -> BTreeSet<i32> {
        self.targets.iter().map(|target| target.pid).chain(self.left_out.iter().copied()).collect()
    }

    /// Look at these too; whether there are such.
    fn take_in(&mut self, more: Vec<i32>) -> bool {
        let before = self.targets.len();
        for pid in more {
            match Target::open(&self.proc_fs, pid, true) {
                Ok(_) if self.targets.len() >= MOST_FOLLOWED => {
                    let met =
                        limits::Met::of(MOST_FOLLOWED, "the processes that are waited for", "processes in one look");
                    self.gaps.push(Gap::new(met.what, met.why));
                    break;
                }
                Ok(target) => self.targets.push(target),
                Err(error) => self.leave_out(pid, &error),
            }
        }
        let followed: Vec<i32> = self.targets.iter().skip(before).map(|target| target.pid).collect();
        if let Some(sleepers) = self.sleepers.as_ref().filter(|_| !followed.is_empty()) {
            locked(sleepers).add(&followed);
        }
        let new = self.targets.iter_mut().skip(before);
        new.for_each(|target| target.take_sample(&self.proc_fs, self.sleepers.as_ref()));
        !followed.is_empty()
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
        let mut waited = 0;
        loop {
            let facts = self.read_facts()?;
            if self.had_tracers(&facts)? {
                continue;
            }
            let seen = self.stop_and_take(facts)?.and_then(|(facts, seen)| match self.has_new_threads(&facts, &seen) {
                Some(pid) => Err(StopError::Executed(pid)),
                None => Ok((facts, seen)),
            });
            match seen {
                Ok((facts, seen)) => return self.image(facts, seen),
                Err(StopError::Executed(pid)) => {
                    executed += 1;
                    if executed == EXEC_ATTEMPTS {
                        return Err(AttachError::KeepsExecuting { pid, attempts: EXEC_ATTEMPTS });
                    }
                    // The memory that the old program's analysis needed is meaningless in the new one.
                    self.targets.iter_mut().filter(|target| target.pid == pid).for_each(|t| t.wanted.clear());
                }
                // A thread that is just ending is refused with the same error as one that may not be traced, and an
                // exec ends all threads but one (seen with a program that calls exec all the time).
                Err(StopError::Denied(_, Errno::EPERM)) if refused < REFUSALS => refused += 1,
                Err(StopError::Denied(pid, Errno::EPERM))
                    if waited < OTHER_LOOKS && open::traced_for_long(&self.proc_fs, pid).is_none() =>
                {
                    waited += 1;
                }
                // Each time one process fewer is left, so that this ends.
                Err(StopError::Denied(pid, errno)) => self.drop_target(pid, self.refusal(pid, errno))?,
                Err(StopError::NoAnswer(pid)) => return Err(AttachError::NoAnswer { pid }),
                Err(StopError::Tracer(source)) => {
                    return Err(AttachError::System { action: "start a thread to trace with", source });
                }
                Err(StopError::Copier(source)) => {
                    return Err(AttachError::System { action: "start a process to copy memory with", source });
                }
            }
        }
    }

    /// Pages of memory that can change, and that analysis of the last image read after the release. The next look
    /// copies them under its stop; with 0 the last image is of one instant.
    pub(crate) fn late_reads(&self) -> usize {
        self.targets.iter().filter_map(|target| target.memory.as_ref()).map(|memory| memory.late_pages().len()).sum()
    }

    /// Stop these threads from now on, though they sleep: analysis needs registers of theirs that only a stop shows.
    /// Returns whether that will show more.
    pub(crate) fn stop(&mut self, threads: BTreeSet<i32>) -> bool {
        let known = self.lacking.len();
        self.lacking.extend(threads);
        self.stopping == Stopping::AsNeeded && self.lacking.len() > known
    }

    /// Whether these threads have slept on since before the last look, and these words of these processes are what it read.
    pub(crate) fn has_rested(&self, threads: &BTreeSet<i32>, words: &BTreeMap<i32, BTreeSet<Addr>>) -> bool {
        /// The part of a lock's fields that identifies its owner.
        const FIELDS: usize = 64;
        let memory = |pid: i32| self.targets.iter().find(|target| target.pid == pid)?.memory.as_ref();
        let is_same = |(pid, words): (&i32, &BTreeSet<Addr>)| {
            memory(*pid).is_some_and(|memory| words.iter().all(|word| memory.is_unchanged(*word, FIELDS)))
        };
        // First the words, then the proof that nobody has run until they were read.
        let Some(sleepers) = self.sleepers.as_ref().filter(|_| words.iter().all(is_same)) else { return false };
        let pids: Vec<i32> = words.keys().copied().collect();
        let now = locked(sleepers).read(&pids);
        let stood = |tid: &i32| self.asleep.get(tid).zip(now.get(tid)).is_some_and(|(then, now)| then.stood_until(now));
        threads.iter().all(stood)
    }

    /// Whether analysis read this word after the release, so that it may have changed since.
    pub(crate) fn is_late(&self, pid: i32, word: Addr) -> bool {
        let target = self.targets.iter().find(|target| target.pid == pid);
        target.and_then(|target| target.memory.as_ref()).is_some_and(|memory| memory.is_late(word))
    }

    /// Whether all that analysis read of the last look was of one instant.
    pub(crate) fn is_of_one_instant(&self) -> bool {
        self.late_reads() == 0
    }

    /// The memory that analysis could not read after the release of this sample and earlier ones, and why.
    pub(crate) fn late_gaps(&self) -> Vec<Gap> {
        self.silent.gaps()
    }

    /// A process that lives on though each thread that was known of it has ended: it has replaced its program.
    fn has_new_threads(&self, facts: &[ProcessFacts], seen: &Seen) -> Option<i32> {
        let mut pairs = facts.iter().zip(&seen.processes);
        let is_over = |outcomes: &BTreeMap<i32, Outcome>| outcomes.values().all(|one| matches!(one, Outcome::Ended));
        let (facts, _) = pairs.find(|(facts, outcomes)| is_over(outcomes) && self.lives(facts.pid))?;
        Some(facts.pid)
    }

    /// Whether a target is still the process that it was.
    fn lives(&self, pid: i32) -> bool {
        let target = self.targets.iter().find(|target| target.pid == pid);
        target.is_some_and(|target| self.has_its_id(target)) && self.proc_fs.living_thread(pid).is_some()
    }

    /// Whether no other process has got its id.
    fn has_its_id(&self, target: &Target) -> bool {
        proc_fs::stat(&self.proc_fs.process(target.pid)).is_some_and(|stat| stat.start_ticks == target.start_ticks)
    }

    /// Read what has to be read before the stop, after enough time for a second sample of CPU time.
    fn read_facts(&mut self) -> Result<Vec<ProcessFacts>, AttachError> {
        let time_to_wait = |targets: &[Target]| targets.iter().map(|target| target.sample.time_to_wait()).max();
        let processors = self.targets.iter().flat_map(|target| target.sample.processors()).copied().collect();
        let mut clocks = Clocks::start(&self.proc_fs, processors);
        let wait = time_to_wait(&self.targets).unwrap_or_default();
        // Threads that have slept for longer than that have used nothing meanwhile.
        if !wait.is_zero() && self.targets.iter().all(|target| target.sample.all_sleep()) {
            let read = |target: &Target| self.facts_of(target, (&mut clocks, true));
            let rested: Option<Vec<_>> = self.targets.iter().map(read).collect();
            if let Some(all) = rested.filter(|all| all.iter().all(|(facts, _)| facts.have_all_rested())) {
                return Ok(self.with_samples(all));
            }
        }
        std::thread::sleep(time_to_wait(&self.targets).unwrap_or_default());
        let (mut all, mut ended) = (Vec::new(), Vec::new());
        for target in &self.targets {
            match self.facts_of(target, (&mut clocks, false)) {
                Some(facts) => all.push(facts),
                None => ended.push(target.pid),
            }
        }
        for pid in ended {
            self.drop_target(pid, AttachError::Ended { pid })?;
        }
        Ok(self.with_samples(all))
    }

    /// Check once for each process whether another has stopped it, or will. A traced process is left out; one that was
    /// released meanwhile must be read again. Returns whether there were any.
    fn had_tracers(&mut self, facts: &[ProcessFacts]) -> Result<bool, AttachError> {
        let mut traced = Vec::new();
        for target in self.targets.iter_mut().filter(|target| !target.is_asked_for_tracer) {
            target.is_asked_for_tracer = true;
            traced.extend(
                facts.iter().find(|facts| facts.pid == target.pid && facts.has_tracer()).map(|facts| facts.pid),
            );
        }
        for &pid in &traced {
            if let Some(error) = open::traced_for_long(&self.proc_fs, pid) {
                self.drop_target(pid, error)?;
            }
        }
        Ok(!traced.is_empty())
    }

    /// Those of one process; `None` if it is gone.
    fn facts_of(&self, target: &Target, (clocks, rested): (&mut Clocks, bool)) -> Option<(ProcessFacts, CpuSample)> {
        // An exec ends the thread whose files were being read.
        (0..EXEC_ATTEMPTS).take_while(|_| self.has_its_id(target)).find_map(|_| {
            let ask = (&self.proc_fs, self.sleepers.as_ref());
            ProcessFacts::read(ask, target.pid, &target.sample, (&mut *clocks, rested), self.released)
        })
    }

    /// The facts without the samples, which the next look needs.
    fn with_samples(&mut self, all: Vec<(ProcessFacts, CpuSample)>) -> Vec<ProcessFacts> {
        let keep = |(facts, sample): (ProcessFacts, CpuSample)| {
            if let Some(target) = self.targets.iter_mut().find(|target| target.pid == facts.pid) {
                target.sample = sample;
            }
            facts
        };
        all.into_iter().map(keep).collect()
    }

    /// Go on without a process, or fail if that is not acceptable.
    fn drop_target(&mut self, pid: i32, error: AttachError) -> Result<(), AttachError> {
        let is_found = self.targets.iter().any(|target| target.pid == pid && target.is_found);
        if self.targets.len() <= 1 || !(is_found || is_gone(&error)) {
            return Err(error);
        }
        self.leave_out(pid, &error);
        Ok(())
    }

    /// Take no further sample of a process, for this reason.
    fn leave_out(&mut self, pid: i32, error: &AttachError) {
        self.left_out.insert(pid);
        self.targets.retain(|target| target.pid != pid);
        self.gaps.push(match error {
            AttachError::AlreadyTraced { tracer, name, .. } if self.targets.iter().any(|one| one.pid == *tracer) => Gap::new(
                format!("process {pid}"),
                format!("it is traced by {name} ({tracer}), which is captured: only that process lets it go on after a stop"),
            ),
            error => process_gap(pid, error),
        });
    }

    /// Why the kernel refused to let a process be seized.
    fn refusal(&self, pid: i32, _errno: Errno) -> AttachError {
        if self.proc_fs.living_thread(pid).is_none() {
            return AttachError::Ended { pid };
        }
        open::traced(&self.proc_fs, pid).unwrap_or_else(|| open::denied(&self.proc_fs, pid))
    }

    /// Read sleepers, stop, copy, release; the facts are given back. The outer error is lockscope's own.
    fn stop_and_take(
        &mut self,
        facts: Vec<ProcessFacts>,
    ) -> Result<Result<(Vec<ProcessFacts>, Seen), StopError>, AttachError> {
        let count = facts.iter().map(|facts| facts.threads.len()).sum();
        let wanted: Vec<BTreeSet<u64>> = facts
            .iter()
            .map(|facts| self.targets.iter().find(|target| target.pid == facts.pid))
            .map(|target| target.map(|target| target.wanted.clone()).unwrap_or_default())
            .collect();
        let tasks: Vec<i32> = facts.iter().map(|facts| facts.living_thread).collect();
        let pages = pages_needed(&facts, &wanted);
        // Before the stop: to start a process takes time, and may fail.
        let spare = self.copier.take().or_else(|| self.late.take()?.give_up_copier());
        let copier = Copier::start(&self.proc_fs, pages, &tasks, spare)
            .map_err(|source| AttachError::System { action: "start a process to copy memory with", source })?;
        let inputs = Arc::new(Inputs { proc_fs: self.proc_fs.clone(), facts, wanted });
        let rounds = Rounds {
            proc_fs: &self.proc_fs,
            stopping: self.stopping,
            sleepers: self.sleepers.as_ref(),
            resumer: self.resumer.as_ref(),
            lacking: &self.lacking,
            max_pause: self.max_pause.unwrap_or_else(|| usual_pause(count)),
            patience: self.patience,
        };
        let seen = match rounds.look(&inputs, copier) {
            Ok(seen) => seen,
            Err(error) => return Ok(Err(error)),
        };
        self.patience = self.patience.saturating_sub(seen.spent);
        self.released = seen.released.or(self.released);
        match Arc::try_unwrap(inputs) {
            Ok(inputs) => Ok(Ok((inputs.facts, seen))),
            // The tracer has reported its outcome after the work, which had the other reference.
            Err(_) => Ok(Err(StopError::Tracer(io::Error::other("the tracer thread failed")))),
        }
    }

    /// Put the image together; everything runs again.
    fn image(&mut self, facts: Vec<ProcessFacts>, seen: Seen) -> Result<Image, AttachError> {
        let pause_us = u64::try_from(seen.pause.as_micros()).unwrap_or(u64::MAX);
        let mut image = Image { pause_us, rounds: seen.rounds, ..Image::default() };
        let Seen { processes: outcomes, taken: TakenOfAll { processes: all_taken, copies }, copier, broken, .. } = seen;
        let asleep = outcomes.iter().flatten().filter_map(|(&tid, outcome)| match outcome {
            Outcome::Asleep(sleeper) => Some((tid, *sleeper)),
            _ => None,
        });
        self.asleep = asleep.collect();
        let mut copied: Vec<Copied> =
            (0..all_taken.len()).map(|position| Copied::new(copier.ranges(&copies, position))).collect();
        let tasks = all_taken.iter().map(|taken| taken.living).collect();
        let late = Arc::new(Late::new(self.proc_fs.clone(), tasks, copier, Arc::clone(&self.silent)));
        self.late = Some(Arc::clone(&late));
        if copies.unfit > 0 {
            image.gaps.push(Gap::new(
                format!("{} KiB of the memory at the stop", copies.unfit / 1024),
                "lockscope could not have the memory to copy it to; it is read after the release",
            ));
        }
        let (disk, leases) = (Arc::default(), Arc::new(Leases::begin(&self.proc_fs)));
        let parts = facts.into_iter().zip(&outcomes).zip(all_taken).enumerate();
        for (position, ((facts, outcomes), mut taken)) in parts {
            let pid = facts.pid;
            taken.uptime_ms = self.proc_fs.uptime_ms();
            let mut threads: Vec<ThreadImage> = outcomes
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
            // Where threads may be stopped, a sample will stop those that need more detail.
            let is_by_files = |thread: &ThreadImage| thread.source == RegisterSource::KernelFiles;
            if let Some(why) = (self.stopping == Stopping::Never && threads.iter().any(is_by_files))
                .then(|| locked(self.sleepers.as_ref()?).unavailable().cloned())
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
            if threads.len() > OF_ONE_COPIER {
                memory.expect(threads.len());
            }
            if let Some(target) = self.targets.iter_mut().find(|target| target.pid == pid) {
                target.memory = Some(Arc::clone(&memory));
            }
            for thread in &mut threads {
                // Without its code, no system call can be recognised.
                thread.registers = thread.registers.map(|one| one.settled(thread.ns_tid, &*memory).unwrap_or(one));
            }
            image.gaps.extend(broken_calls(pid, &threads, &broken));
            let parent_threads = facts.parent.map(|parent| parent_threads(&self.proc_fs, parent, &mappings));
            let parent_threads = parent_threads.unwrap_or_default();
            image.processes.push(ProcessImage {
                architecture: Architecture::NATIVE,
                pid,
                ns_pid: facts.namespace_pid,
                parent: facts.parent,
                parent_threads,
                is_copy: facts.is_copy,
                shares_memory_of: facts.parent.filter(|parent| sys::have_same_memory(pid, *parent) == Some(true)),
                exe: facts.program,
                cmdline: facts.command_line,
                threads,
                mappings,
                memory,
                files: Arc::new(LiveFiles::new(
                    self.proc_fs.process(facts.living_thread),
                    Arc::clone(&disk),
                    Arc::clone(&leases),
                )),
                tracer: None,
                auxiliary: facts.auxiliary,
                descriptors: Vec::new(),
                environment: facts.environment,
                launch: Launch::default(),
            });
        }
        remember_calls(&mut image, &mut self.calls);
        image.kernel = descriptors::read(&self.proc_fs, &mut image.processes);
        let mut networks = launch::Networks::default();
        for process in &mut image.processes {
            let target = self.targets.iter_mut().find(|target| target.pid == process.pid);
            let known = target.map(|target| &mut target.launch);
            let read = || launch::read(&self.proc_fs, process);
            let launch = known.map_or_else(read, |known| known.get_or_insert_with(read).clone());
            let connections = launch::connections(&self.proc_fs, process, &launch.namespaces, &mut networks);
            process.launch = Launch { connections, ..launch };
        }
        if image.processes.iter().any(|process| uses_cuda(&process.mappings)) {
            image.kernel.gpu_driver = self.proc_fs.gpu_driver();
        }
        image.gaps.splice(0..0, self.gaps.iter().cloned());
        Ok(image)
    }
}

/// Whether lockscope may sample a process, found out without touching it; one that is gone, or has ended and is not
/// waited for yet, may be sampled: the kernel gives nobody its memory, which says nothing.
pub(crate) fn may_attach(pid: i32) -> Result<(), AttachError> {
    let proc_fs = ProcFs::new("/proc");
    // A process that may read the memory may also trace (both ask for PTRACE_MODE_ATTACH), unless a filter forbids
    // ptrace itself.
    let denied = open::may_read(&proc_fs, pid).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    let denied = (denied || denial::is_filtered()).then(|| open::denied(&proc_fs, pid));
    // Asked last: it may have ended meanwhile.
    let has_ended = || proc_fs::stat(&proc_fs.process(pid)).is_none_or(|stat| stat.ends());
    match denied {
        Some(denied) if !has_ended() => Err(denied),
        _ => Ok(()),
    }
}

/// Direct children of a process, of all its threads.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    ProcFs::new("/proc").children(pid)
}

/// Errors that mean that the process is not there any more.
fn is_gone(error: &AttachError) -> bool {
    matches!(error, AttachError::NoSuchProcess { .. } | AttachError::Exited { .. } | AttachError::Ended { .. })
}

fn process_gap(pid: i32, error: &AttachError) -> Gap {
    Gap::new(format!("process {pid}"), error.to_string())
}

/// The longest stop where the user gives none: enough for all threads also on a machine that is busy (200 threads of Python with
/// 20 frames each take 7 ms on one that is not).
fn usual_pause(threads: usize) -> Duration {
    const LEAST: Duration = Duration::from_millis(50);
    const OF_A_THREAD: Duration = Duration::from_micros(100);
    LEAST.max(OF_A_THREAD * u32::try_from(threads).unwrap_or(u32::MAX))
}

//! Kernel facts read before the stop, since a stop changes them: states, names, counters, CPU time.
//!
//! In: a process id. Out: [`ProcessFacts`]. Nothing is stopped and no memory is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::asleep::SleepReader;
use super::at_once::{self, Standing, Told};
use super::in_flight::since_boot;
use super::proc_fs::{self, ProcFs, ticks_to_ms};
use super::sleeps::Clocks;
use super::spared::{self, Early};
use super::wait_channels::WaitChannels;
use crate::image::{Mapping, Syscall, environment};
use crate::in_parts::ask_each;
use crate::limits::image::LARGEST_ENVIRONMENT;
use crate::limits::live::MOST_SCHED_FILES;

/// Shortest time between two samples of CPU time: several scheduler ticks.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// A processor's clock and the one that start times are in may differ by seconds (see `sleeps`).
const CLOCKS_DIFFER_MS: f64 = 5_000.0;

/// CPU times of a process's threads at one moment, and how often each got a processor, by thread id and start time.
#[derive(Debug, Clone)]
pub(super) struct CpuSample {
    at: Instant,
    used: BTreeMap<(i32, u64), (u64, u64)>,
    /// Those that threads last ran on which sleep.
    processors: BTreeSet<usize>,
    /// Whether all of them sleep.
    all_sleep: bool,
}

impl CpuSample {
    /// A sample without threads yet.
    pub(super) fn begin() -> CpuSample {
        CpuSample { at: Instant::now(), used: BTreeMap::new(), processors: BTreeSet::new(), all_sleep: true }
    }

    /// Take one. `told` has the values of all threads, where the iterator reports them.
    pub(super) fn take(proc_fs: &ProcFs, pid: i32, told: Option<&BTreeMap<i32, Told>>) -> Self {
        let mut sample = CpuSample::begin();
        if let Some(told) = told {
            told.iter().for_each(|(tid, told)| sample.add(*tid, &told.standing(), told.task.used));
            return sample;
        }
        let tids = proc_fs.threads(pid).unwrap_or_default();
        let answers = ask_each(&tids, |&tid| {
            let directory = proc_fs.task(pid, tid);
            Some((proc_fs::stat(&directory)?, proc_fs::cpu_time(&directory)?))
        });
        for (tid, (stat, used)) in tids.into_iter().zip(answers).filter_map(|(tid, told)| Some((tid, told?))) {
            sample.add(tid, &Standing::of(&stat), used);
        }
        sample
    }

    fn add(&mut self, tid: i32, standing: &Standing, used: (u64, u64)) {
        self.used.insert((tid, standing.start_ticks), used);
        self.processors.extend(standing.sleeps_on());
        self.all_sleep &= standing.sleeps_on().is_some() || standing.is_dead();
    }

    /// The time left until the shortest interval is over.
    pub(super) fn time_to_wait(&self) -> Duration {
        SAMPLE_INTERVAL.saturating_sub(self.at.elapsed())
    }

    /// The processors that threads last ran on which slept.
    pub(super) fn processors(&self) -> &BTreeSet<usize> {
        &self.processors
    }

    /// Whether all threads slept: they may have done so for longer than the shortest interval.
    pub(super) fn all_sleep(&self) -> bool {
        self.all_sleep
    }

    /// The thread's CPU time between `earlier` and this sample, and the time between them, in nanoseconds; and how
    /// often it got a processor.
    fn since(&self, earlier: &CpuSample, tid: i32, start_ticks: u64) -> Option<((u64, u64), u64)> {
        let key = (tid, start_ticks);
        let ((used, turns), (used_before, turns_before)) = (*self.used.get(&key)?, *earlier.used.get(&key)?);
        let elapsed = u64::try_from(self.at.duration_since(earlier.at).as_nanos()).ok()?;
        Some(((used.saturating_sub(used_before), elapsed), turns.saturating_sub(turns_before)))
    }
}

/// The kernel's facts about one thread before the stop.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadFacts {
    /// Its name.
    pub(super) name: String,
    /// Its state; `None` if it is gone.
    pub(super) standing: Option<Standing>,
    /// Its id in its innermost PID namespace.
    pub(super) innermost_id: Option<i32>,
    /// Another process traces it.
    pub(super) has_tracer: bool,
    /// Voluntary and involuntary context switches.
    pub(super) switches: Option<(u64, u64)>,
    /// The kernel function that it sleeps in.
    pub(super) wait_channel: Option<String>,
    /// The system call that it sleeps in, where that may be one that a stop would cut short.
    pub(super) call: Option<Syscall>,
    /// CPU time used in an interval.
    pub(super) cpu_used: Option<(u64, u64)>,
    /// How often it got a processor in that interval.
    pub(super) turns: Option<u64>,
    /// When it last ran, in milliseconds of its processor's clock, if the iterator reported it.
    ran: Option<f64>,
    /// How long it has slept.
    pub(super) asleep_ms: Option<u64>,
    /// It has used nothing for [`SAMPLE_INTERVAL`], since it has slept for so long.
    pub(super) has_rested: bool,
}

impl ThreadFacts {
    /// Read those that a stop does not change.
    pub(super) fn read(proc_fs: &ProcFs, pid: i32, tid: i32) -> Self {
        let directory = proc_fs.task(pid, tid);
        let (stat, name) = proc_fs::stat_and_name(&directory).unzip();
        let standing = stat.as_ref().map(Standing::of);
        let channel = proc_fs::wait_channel(&directory);
        let status = proc_fs::status(&directory).unwrap_or_default();
        let facts = ThreadFacts {
            name: name.unwrap_or_default(),
            standing,
            innermost_id: status.innermost_id,
            has_tracer: status.tracer != 0,
            switches: status.switches,
            ..ThreadFacts::default()
        };
        facts.in_call(&directory, channel)
    }

    /// The same for a sleeping thread, with most facts from `told`.
    fn of_sleeper(proc_fs: &ProcFs, (pid, tid): (i32, i32), told: &Told, channels: &WaitChannels) -> Self {
        let directory = proc_fs.task(pid, tid);
        let channel = channels.of(told).or_else(|| proc_fs::wait_channel(&directory));
        let facts = ThreadFacts {
            name: told.task.name(),
            standing: Some(told.standing()),
            innermost_id: Some(told.task.innermost_id),
            has_tracer: told.task.has_tracer,
            switches: Some(told.switches()),
            ran: told.ran(),
            ..ThreadFacts::default()
        };
        facts.in_call(&directory, channel)
    }

    /// With the kernel function that it sleeps in, and its call, where a stop might cut that short.
    fn in_call(mut self, directory: &Path, wait_channel: Option<String>) -> Self {
        let sleeps = self.standing.is_some_and(|standing| standing.state == 'S');
        let may_be_cut = sleeps && spared::is_possible(wait_channel.as_deref());
        self.call = may_be_cut.then(|| proc_fs::system_call(directory)).flatten();
        self.wait_channel = wait_channel;
        self
    }

    /// Whether it has exited.
    pub(super) fn is_dead(&self) -> bool {
        self.standing.is_none_or(|standing| standing.is_dead())
    }
}

/// The kernel's facts about one process before the stop.
#[derive(Debug)]
pub(super) struct ProcessFacts {
    /// Its id.
    pub(super) pid: i32,
    /// A thread of it that lives.
    pub(super) living_thread: i32,
    /// It has called no exec since it was forked.
    pub(super) is_copy: Option<bool>,
    /// Its parent.
    pub(super) parent: Option<i32>,
    /// Its id in the innermost namespace.
    pub(super) namespace_pid: i32,
    /// Its program.
    pub(super) program: Option<PathBuf>,
    /// Its arguments.
    pub(super) command_line: Vec<String>,
    /// The variables of its initial environment that concern CUDA.
    pub(super) environment: Vec<(String, String)>,
    /// The facts that are longer than the part that lockscope read.
    pub(super) cut: Vec<&'static str>,
    /// Its auxiliary vector.
    pub(super) auxiliary: Vec<u8>,
    /// Its map.
    pub(super) mappings: Vec<Mapping>,
    /// The text of it.
    pub(super) map_text: Vec<u8>,
    /// How long the map took to read.
    pub(super) map_time: Duration,
    /// Its threads.
    pub(super) threads: BTreeMap<i32, ThreadFacts>,
}

impl ThreadFacts {
    /// The early result of its sleeping call if it was woken; `None` if a wake-up is harmless.
    pub(super) fn spared(&self) -> Option<Early> {
        match (&self.call, &self.wait_channel) {
            (Some(call), _) => spared::early(call),
            (None, Some(function)) => spared::early_by_place(function),
            (None, None) => None,
        }
    }
}

impl ProcessFacts {
    /// Read all of them; `None` if the process is gone. `earlier` is the first sample of CPU time, and the second is
    /// returned. `released` is when lockscope last woke all its threads. If `wanted`, the result says which threads
    /// have rested.
    pub(super) fn read(
        (proc_fs, sleepers): (&ProcFs, Option<&Arc<Mutex<SleepReader>>>),
        pid: i32,
        earlier: &CpuSample,
        (clocks, wanted): (&mut Clocks, bool),
        released: Option<Instant>,
    ) -> Option<(Self, CpuSample)> {
        let living_thread = proc_fs.living_thread(pid)?;
        let directory = proc_fs.process(living_thread);
        let begin = Instant::now();
        let map_text = proc_fs::map_text(&directory).ok()?;
        let mappings = proc_fs::parse_maps(&map_text);
        let map_time = begin.elapsed();
        let mut now = CpuSample::begin();
        let told = at_once::told(proc_fs, sleepers, pid, true);
        let listed = || proc_fs.threads(pid).ok();
        let tids = told.as_ref().map_or_else(listed, |told| Some(told.keys().copied().collect()))?;
        let of = |tid: &i32| told.as_ref().and_then(|told| told.get(tid));
        let cpu_time = |tid: &i32| proc_fs::cpu_time(&proc_fs.task(pid, *tid));
        let used = ask_each(&tids, |tid| of(tid).map_or_else(|| cpu_time(tid), |told| Some(told.task.used)));
        let sleepers = told.iter().flatten().map(|(&tid, told)| (tid, told));
        let channels = WaitChannels::ask(proc_fs, pid, sleepers);
        let all_facts = ask_each(&tids, |tid| match of(tid).filter(|told| told.is_asleep()) {
            Some(told) => ThreadFacts::of_sleeper(proc_fs, (pid, *tid), told, &channels),
            None => ThreadFacts::read(proc_fs, pid, *tid),
        });
        let mut threads = BTreeMap::new();
        for ((tid, used), mut facts) in tids.into_iter().zip(used).zip(all_facts) {
            if let (Some(standing), Some(used)) = (facts.standing, used) {
                now.add(tid, &standing, used);
                let since = now.since(earlier, tid, standing.start_ticks);
                (facts.cpu_used, facts.turns) = since.unzip();
            }
            threads.insert(tid, facts);
        }
        // Threads whose last run the iterator reported need no read of a file.
        let with_files = wanted || threads.len() <= MOST_SCHED_FILES;
        if with_files || told.is_some() {
            clocks.add(now.processors.clone());
            // A process that came in since then was not stopped.
            let released = released.filter(|instant| earlier.at < *instant);
            tell_sleeps(clocks, pid, &mut threads, (released, with_files));
        }
        let main = threads.get(&pid);
        let (command_line, whole_arguments) = proc_fs::command_line(&directory);
        let (strings, whole_environment) = proc_fs::beginning(&directory.join("environ"), LARGEST_ENVIRONMENT);
        let cut = [("arguments", whole_arguments), ("environment", whole_environment)];
        let stat = proc_fs::stat(&proc_fs.task(pid, pid));
        let facts = ProcessFacts {
            pid,
            living_thread,
            is_copy: stat.as_ref().map(proc_fs::Stat::is_copy),
            parent: stat.map(|stat| stat.parent).filter(|&parent| parent > 0),
            namespace_pid: main.and_then(|main| main.innermost_id).unwrap_or(pid),
            program: proc_fs::program(&directory),
            command_line,
            environment: environment::relevant(&strings),
            cut: cut.into_iter().filter(|(_, whole)| !whole).map(|(what, _)| what).collect(),
            auxiliary: proc_fs::beginning(&directory.join("auxv"), 64 << 10).0,
            mappings,
            map_text,
            map_time,
            threads,
        };
        Some((facts, now))
    }

    /// Whether a thread of it has a tracer.
    pub(super) fn has_tracer(&self) -> bool {
        self.threads.values().any(|facts| facts.has_tracer)
    }

    /// Whether no thread of it used anything for [`SAMPLE_INTERVAL`], because all slept.
    pub(super) fn have_all_rested(&self) -> bool {
        let is_at_rest = |facts: &ThreadFacts| {
            facts.has_rested || facts.is_dead() && facts.cpu_used.is_some_and(|(used, _)| used == 0)
        };
        self.threads.values().all(is_at_rest)
    }
}

/// How long ago a thread began, in milliseconds.
fn age_ms(standing: &Standing) -> f64 {
    let now = since_boot().map_or(f64::MAX, |now| now.as_secs_f64() * 1e3);
    now - ticks_to_ms(standing.start_ticks) as f64
}

/// Set for each sleeping thread how long it has slept, and whether that is long enough: for all of them where files may
/// be read for it.
fn tell_sleeps(
    clocks: &Clocks,
    pid: i32,
    threads: &mut BTreeMap<i32, ThreadFacts>,
    (released, with_files): (Option<Instant>, bool),
) {
    let is_few = threads.len() <= MOST_SCHED_FILES;
    let sleepers = threads.iter().filter_map(|(&tid, facts)| Some((tid, facts.standing?.sleeps_on()?, facts.ran)));
    let sleepers: Vec<(i32, usize, Option<f64>)> = sleepers.filter(|(_, _, ran)| with_files || ran.is_some()).collect();
    let told = ask_each(&sleepers, |&(tid, processor, ran)| clocks.asleep((pid, tid), processor, ran));
    for ((tid, _, ran), asleep) in sleepers.into_iter().zip(told) {
        let (Some(facts), Some(asleep)) = (threads.get_mut(&tid), asleep) else { continue };
        // Nobody sleeps for longer than it has lived. A clock that says far more was no clock of this sleep.
        let age = facts.standing.map_or(f64::MAX, |standing| age_ms(&standing));
        if asleep > age + CLOCKS_DIFFER_MS {
            continue;
        }
        let asleep = asleep.min(age.max(0.0));
        facts.has_rested = asleep >= SAMPLE_INTERVAL.as_secs_f64() * 1e3;
        let asleep = asleep as u64;
        // If its last run was for an earlier look of ours, its sleep began before that: unknown.
        let ours = released.is_some_and(|instant| asleep + 10 >= instant.elapsed().as_millis() as u64);
        facts.asleep_ms = Some(asleep).filter(|_| (is_few || ran.is_some()) && !ours);
    }
}

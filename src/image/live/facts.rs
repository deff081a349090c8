//! What is asked of the kernel before the stop, since a stop changes the answers: states, names, counters, CPU time.
//!
//! In: a process id. Out: [`ProcessFacts`]. Nothing is stopped and no memory is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::in_parts::ask_each;
use super::proc_fs::{self, ProcFs, Stat, Status};
use super::sleeps::Clocks;
use super::spared::{self, Early};
use crate::image::{Mapping, Syscall, environment};
use crate::limits::image::LARGEST_ENVIRONMENT;
use crate::limits::live::MOST_SCHED_FILES;

/// Shortest time between two samples of CPU time: several scheduler ticks.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

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
    fn begin() -> CpuSample {
        CpuSample { at: Instant::now(), used: BTreeMap::new(), processors: BTreeSet::new(), all_sleep: true }
    }

    /// Take one.
    pub(super) fn take(proc_fs: &ProcFs, pid: i32) -> Self {
        let mut sample = CpuSample::begin();
        let tids = proc_fs.threads(pid).unwrap_or_default();
        let told = ask_each(&tids, |&tid| {
            let directory = proc_fs.task(pid, tid);
            Some((proc_fs::stat(&directory)?, proc_fs::cpu_time(&directory)?))
        });
        for (tid, (stat, used)) in tids.into_iter().zip(told).filter_map(|(tid, told)| Some((tid, told?))) {
            sample.add(tid, &stat, used);
        }
        sample
    }

    fn add(&mut self, tid: i32, stat: &Stat, used: (u64, u64)) {
        self.used.insert((tid, stat.start_ticks), used);
        self.processors.extend(sleeps_on(stat));
        self.all_sleep &= sleeps_on(stat).is_some() || stat.is_dead();
    }

    /// What is missing to the shortest interval.
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

    /// What the thread used between `earlier` and this one, and the time between them, in nanoseconds; and how often it got a
    /// processor.
    fn since(&self, earlier: &CpuSample, tid: i32, start_ticks: u64) -> Option<((u64, u64), u64)> {
        let key = (tid, start_ticks);
        let ((used, turns), (used_before, turns_before)) = (*self.used.get(&key)?, *earlier.used.get(&key)?);
        let elapsed = u64::try_from(self.at.duration_since(earlier.at).as_nanos()).ok()?;
        Some(((used.saturating_sub(used_before), elapsed), turns.saturating_sub(turns_before)))
    }
}

/// The processor that a thread last ran on which sleeps.
fn sleeps_on(stat: &Stat) -> Option<usize> {
    let sleeps = matches!(stat.state, 'S' | 'D');
    stat.processor.filter(|_| sleeps).and_then(|processor| usize::try_from(processor).ok())
}

/// What the kernel says of one thread before the stop.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadFacts {
    /// Its name.
    pub(super) name: String,
    /// Its stat.
    pub(super) stat: Option<Stat>,
    /// Its status.
    pub(super) status: Status,
    /// The kernel function that it sleeps in.
    pub(super) wait_channel: Option<String>,
    /// The system call that it sleeps in, where that may be one that a stop would cut short.
    pub(super) call: Option<Syscall>,
    /// CPU time used in an interval.
    pub(super) cpu_used: Option<(u64, u64)>,
    /// How often it got a processor in that interval.
    pub(super) turns: Option<u64>,
    /// How long it has slept.
    pub(super) asleep_ms: Option<u64>,
    /// It has used nothing for [`SAMPLE_INTERVAL`], since it has slept for so long.
    pub(super) has_rested: bool,
}

impl ThreadFacts {
    /// Ask for those that a stop does not change.
    pub(super) fn read(proc_fs: &ProcFs, pid: i32, tid: i32) -> Self {
        let directory = proc_fs.task(pid, tid);
        let (stat, name) = proc_fs::stat_and_name(&directory).unzip();
        let wait_channel = proc_fs::wait_channel(&directory);
        let sleeps = stat.is_some_and(|stat| stat.state == 'S');
        let call = Some(&directory).filter(|_| sleeps && spared::is_possible(wait_channel.as_deref()));
        ThreadFacts {
            name: name.unwrap_or_default(),
            stat,
            status: proc_fs::status(&directory).unwrap_or_default(),
            wait_channel,
            call: call.and_then(|directory| proc_fs::system_call(directory)),
            cpu_used: None,
            turns: None,
            asleep_ms: None,
            has_rested: false,
        }
    }

    /// Whether it has exited.
    pub(super) fn is_dead(&self) -> bool {
        self.stat.is_none_or(|stat| stat.is_dead())
    }
}

/// What the kernel says of one process before the stop.
#[derive(Debug)]
pub(super) struct ProcessFacts {
    /// Its id.
    pub(super) pid: i32,
    /// A thread of it that lives.
    pub(super) living_thread: i32,
    /// Its parent.
    pub(super) parent: Option<i32>,
    /// Its id in the innermost namespace.
    pub(super) namespace_pid: i32,
    /// Its program.
    pub(super) program: Option<PathBuf>,
    /// Its arguments.
    pub(super) command_line: Vec<String>,
    /// What it was started with and concerns CUDA.
    pub(super) environment: Vec<(String, String)>,
    /// What of these is longer than what was read.
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
    /// What the call that it sleeps in would return too early if it was woken; `None` if it may be.
    pub(super) fn spared(&self) -> Option<Early> {
        match (&self.call, &self.wait_channel) {
            (Some(call), _) => spared::early(call),
            (None, Some(function)) => spared::early_by_place(function),
            (None, None) => None,
        }
    }
}

impl ProcessFacts {
    /// Ask for all of them; `None` if the process is gone. `earlier` is the first sample of CPU time, and the second is given back;
    /// `released` says when lockscope last woke all its threads. Which threads have rested is told where that is `wanted`.
    pub(super) fn read(
        proc_fs: &ProcFs,
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
        let tids = proc_fs.threads(pid).ok()?;
        let mut now = CpuSample::begin();
        let used = ask_each(&tids, |&tid| proc_fs::cpu_time(&proc_fs.task(pid, tid)));
        let all_facts = ask_each(&tids, |&tid| ThreadFacts::read(proc_fs, pid, tid));
        let mut threads = BTreeMap::new();
        for ((tid, used), mut facts) in tids.into_iter().zip(used).zip(all_facts) {
            if let (Some(stat), Some(used)) = (facts.stat, used) {
                now.add(tid, &stat, used);
                let since = now.since(earlier, tid, stat.start_ticks);
                (facts.cpu_used, facts.turns) = since.unzip();
            }
            threads.insert(tid, facts);
        }
        if wanted || threads.len() <= MOST_SCHED_FILES {
            clocks.add(now.processors.clone());
            tell_sleeps(clocks, pid, &mut threads, released);
        }
        let main = threads.get(&pid);
        let (command_line, whole_arguments) = proc_fs::command_line(&directory);
        let (strings, whole_environment) = proc_fs::beginning(&directory.join("environ"), LARGEST_ENVIRONMENT);
        let cut = [("arguments", whole_arguments), ("environment", whole_environment)];
        let facts = ProcessFacts {
            pid,
            living_thread,
            parent: main.and_then(|main| main.stat).map(|stat| stat.parent).filter(|&parent| parent > 0),
            namespace_pid: main.and_then(|main| main.status.innermost_id).unwrap_or(pid),
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
        self.threads.values().any(|facts| facts.status.tracer != 0)
    }

    /// Whether no thread of it used anything for [`SAMPLE_INTERVAL`], because all slept.
    pub(super) fn have_all_rested(&self) -> bool {
        let is_at_rest = |facts: &ThreadFacts| {
            facts.has_rested || facts.is_dead() && facts.cpu_used.is_some_and(|(used, _)| used == 0)
        };
        self.threads.values().all(is_at_rest)
    }
}

/// Say of each sleeping thread how long it has slept, and whether that is long enough.
fn tell_sleeps(clocks: &Clocks, pid: i32, threads: &mut BTreeMap<i32, ThreadFacts>, released: Option<Instant>) {
    let is_told = threads.len() <= MOST_SCHED_FILES;
    let sleepers = threads.iter().filter_map(|(&tid, facts)| Some((tid, facts.stat.as_ref().and_then(sleeps_on)?)));
    let sleepers: Vec<(i32, usize)> = sleepers.collect();
    let told = ask_each(&sleepers, |&(tid, processor)| clocks.asleep(pid, tid, processor));
    for ((tid, _), asleep) in sleepers.into_iter().zip(told) {
        let (Some(facts), Some(asleep)) = (threads.get_mut(&tid), asleep) else { continue };
        facts.has_rested = asleep >= SAMPLE_INTERVAL.as_secs_f64() * 1e3;
        let asleep = asleep as u64;
        // If its last run was for an earlier look of ours, its sleep began before that: unknown.
        let ours = released.is_some_and(|instant| asleep + 10 >= instant.elapsed().as_millis() as u64);
        facts.asleep_ms = Some(asleep).filter(|_| is_told && !ours);
    }
}

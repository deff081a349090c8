//! What is asked of the kernel before the stop, since a stop changes the answers: states, names, counters, CPU time.
//!
//! In: a process id. Out: [`ProcessFacts`]. Nothing is stopped and no memory is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::proc_fs::{self, ProcFs, Stat, Status};
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
}

impl CpuSample {
    /// Take one.
    pub(super) fn take(proc_fs: &ProcFs, pid: i32) -> Self {
        let at = Instant::now();
        let used = proc_fs.threads(pid).unwrap_or_default().into_iter().filter_map(|tid| {
            let directory = proc_fs.task(pid, tid);
            Some(((tid, proc_fs::stat(&directory)?.start_ticks), proc_fs::cpu_time(&directory)?))
        });
        CpuSample { at, used: used.collect() }
    }

    /// What is missing to the shortest interval.
    pub(super) fn time_to_wait(&self) -> Duration {
        SAMPLE_INTERVAL.saturating_sub(self.at.elapsed())
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
}

impl ThreadFacts {
    /// Ask for those that a stop does not change.
    pub(super) fn read(proc_fs: &ProcFs, pid: i32, tid: i32) -> Self {
        let directory = proc_fs.task(pid, tid);
        let stat = proc_fs::stat(&directory);
        let wait_channel = proc_fs::wait_channel(&directory);
        let sleeps = stat.is_some_and(|stat| stat.state == 'S');
        let call = Some(&directory).filter(|_| sleeps && spared::is_possible(wait_channel.as_deref()));
        ThreadFacts {
            name: proc_fs::name(&directory).unwrap_or_default(),
            stat,
            status: proc_fs::status(&directory).unwrap_or_default(),
            wait_channel,
            call: call.and_then(|directory| proc_fs::system_call(directory)),
            cpu_used: None,
            turns: None,
            asleep_ms: None,
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
    /// Its map, and how long it took to read.
    pub(super) mappings: Vec<Mapping>,
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
    /// Ask for all of them; `None` if the process is gone. `earlier` gives the first sample of CPU time, and becomes this one;
    /// `released` says when lockscope last woke all its threads.
    pub(super) fn read(proc_fs: &ProcFs, pid: i32, earlier: &mut CpuSample, released: Option<Instant>) -> Option<Self> {
        let living_thread = proc_fs.living_thread(pid)?;
        let directory = proc_fs.process(living_thread);
        let begin = Instant::now();
        let mappings = proc_fs::mappings(&directory).ok()?;
        let map_time = begin.elapsed();
        let tids = proc_fs.threads(pid).ok()?;
        let mut now = CpuSample { at: Instant::now(), used: BTreeMap::new() };
        let used: Vec<Option<(u64, u64)>> =
            tids.iter().map(|&tid| proc_fs::cpu_time(&proc_fs.task(pid, tid))).collect();
        let mut threads = BTreeMap::new();
        for (tid, used) in tids.into_iter().zip(used) {
            let mut facts = ThreadFacts::read(proc_fs, pid, tid);
            if let (Some(stat), Some(used)) = (facts.stat, used) {
                now.used.insert((tid, stat.start_ticks), used);
                let since = now.since(earlier, tid, stat.start_ticks);
                (facts.cpu_used, facts.turns) = since.unzip();
            }
            threads.insert(tid, facts);
        }
        *earlier = now;
        if threads.len() <= MOST_SCHED_FILES {
            tell_sleeps(proc_fs, pid, &mut threads, released);
        }
        let main = threads.get(&pid);
        let (command_line, whole_arguments) = proc_fs::command_line(&directory);
        let (strings, whole_environment) = proc_fs::beginning(&directory.join("environ"), LARGEST_ENVIRONMENT);
        let cut = [("arguments", whole_arguments), ("environment", whole_environment)];
        Some(ProcessFacts {
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
            map_time,
            threads,
        })
    }
}

/// Say of each sleeping thread how long it has slept.
///
/// The kernel notes when a thread last ran by the clock of the CPU it ran on, and these clocks differ from each other
/// and from every clock of user space (by seconds, measured on a virtual machine). So a thread of lockscope's asks
/// on each such CPU for the present reading: its own.
fn tell_sleeps(proc_fs: &ProcFs, pid: i32, threads: &mut BTreeMap<i32, ThreadFacts>, released: Option<Instant>) {
    let sleeper = |facts: &ThreadFacts| {
        facts.stat.filter(|stat| matches!(stat.state, 'S' | 'D')).and_then(|stat| usize::try_from(stat.processor?).ok())
    };
    let processors: BTreeSet<usize> = threads.values().filter_map(sleeper).collect();
    let clocks = processor_clocks(proc_fs, &processors);
    for (&tid, facts) in threads.iter_mut() {
        let Some(&now) = sleeper(facts).and_then(|processor| clocks.get(&processor)) else { continue };
        let Some(last) = proc_fs::last_ran(&proc_fs.task(pid, tid)) else { continue };
        let asleep = (now - last).max(0.0) as u64;
        // If its last run was for an earlier look of ours, its sleep began before that: unknown.
        let ours = released.is_some_and(|instant| asleep + 10 >= instant.elapsed().as_millis() as u64);
        facts.asleep_ms = (!ours).then_some(asleep);
    }
}

/// The scheduler's clock on each of the processors, in milliseconds.
fn processor_clocks(proc_fs: &ProcFs, processors: &BTreeSet<usize>) -> BTreeMap<usize, f64> {
    let own = proc_fs.root().join("thread-self");
    let ask = || {
        let clock = |&processor: &usize| {
            let mut set = CpuSet::new();
            set.set(processor).ok()?;
            // This thread alone, which ends thereafter.
            sched_setaffinity(Pid::from_raw(0), &set).ok()?;
            Some((processor, proc_fs::last_ran(&own)?))
        };
        processors.iter().filter_map(clock).collect()
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("clocks".to_owned());
        builder.spawn_scoped(scope, ask).ok().and_then(|handle| handle.join().ok()).unwrap_or_default()
    })
}

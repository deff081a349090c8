//! How long threads have slept, by the scheduler's own clocks.
//!
//! In: processors, then threads with the processor that each last ran on. Out: milliseconds. Nothing is stopped or woken.
//!
//! The kernel notes when a thread last ran by the clock of the CPU it ran on. These clocks differ from each other and
//! from every clock of user space (by seconds, measured on a virtual machine). So a thread of lockscope's runs on each
//! such CPU and reads the clock there: the time of its own last run. That takes its time, in which other things can be
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::proc_fs::{self, ProcFs};
use crate::sys;

/// A clock's reading in milliseconds, and when it was taken.
type Readings = BTreeMap<usize, (f64, Instant)>;

/// The scheduler's clocks of some processors.
#[derive(Debug)]
pub(super) struct Clocks {
    proc_fs: ProcFs,
    reader: Option<JoinHandle<Readings>>,
    known: Readings,
}

impl Clocks {
    /// Begin to read those of these processors.
    pub(super) fn start(proc_fs: &ProcFs, processors: BTreeSet<usize>) -> Clocks {
        let mut clocks = Clocks { proc_fs: proc_fs.clone(), reader: None, known: Readings::new() };
        clocks.begin(processors);
        clocks
    }

    fn begin(&mut self, processors: BTreeSet<usize>) {
        if processors.is_empty() {
            return;
        }
        let own = self.proc_fs.root().join("thread-self");
        let ask = move || {
            // Otherwise it waits on each processor until the running thread has had its share.
            sys::set_urgent(true);
            let clock = |&processor: &usize| {
                let mut set = CpuSet::new();
                set.set(processor).ok()?;
                // This thread alone, which ends thereafter.
                sched_setaffinity(Pid::from_raw(0), &set).ok()?;
                Some((processor, (proc_fs::last_ran(&own)?, Instant::now())))
            };
            processors.iter().filter_map(clock).collect()
        };
        self.reader = std::thread::Builder::new().name("clocks".to_owned()).spawn(ask).ok();
    }

    fn settle(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.known.extend(reader.join().unwrap_or_default());
        }
    }

    /// Read those of these processors that were not read yet.
    pub(super) fn add(&mut self, processors: BTreeSet<usize>) {
        self.settle();
        self.begin(processors.into_iter().filter(|processor| !self.known.contains_key(processor)).collect());
        self.settle();
    }

    /// How many milliseconds a thread has slept that last ran on this processor, and then at `ran` by its clock where
    /// that is already known. `None` where the time is not available.
    pub(super) fn asleep(&self, (pid, tid): (i32, i32), processor: usize, ran: Option<f64>) -> Option<f64> {
        let last = ran.or_else(|| proc_fs::last_ran(&self.proc_fs.task(pid, tid)))?;
        let (then, at) = self.known.get(&processor)?;
        Some((then + at.elapsed().as_secs_f64() * 1e3 - last).max(0.0))
    }
}

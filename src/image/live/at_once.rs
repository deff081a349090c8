//! The values that lockscope needs of many threads of a process, read for all of them at once.
//!
//! In: the reader of sleeping threads. Out: the content of four files of /proc for each thread, by thread id. There is
//! a result only where the reader supports it and there are many threads. Ten thousand threads have forty thousand such
//! files, and reading them took a quarter of a sample. The result is compared with the files of the main thread in
//! /proc, and dropped where they differ.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::asleep::{Mark, SleepReader, Task};
use super::memory::locked;
use super::proc_fs::{self, ProcFs, Stat};

/// For fewer threads /proc is as fast, and the iterator need not be loaded yet.
const MANY: usize = 64;
/// The kernel's unit of start times in /proc (USER_HZ is 100 on every machine that lockscope knows), in nanoseconds.
const TICK: u64 = 10_000_000;

/// A thread's state, start time and last processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// State letter.
    pub(super) state: char,
    /// Start time in clock ticks since boot.
    pub(super) start_ticks: u64,
    /// CPU that it last ran on.
    pub(super) processor: Option<i32>,
}

impl Standing {
    /// By its `stat`.
    pub(super) fn of(stat: &Stat) -> Standing {
        Standing { state: stat.state, start_ticks: stat.start_ticks, processor: stat.processor }
    }

    /// Whether it has exited.
    pub(super) fn is_dead(&self) -> bool {
        proc_fs::has_exited(self.state)
    }

    /// The processor that it last ran on, if it sleeps.
    pub(super) fn sleeps_on(&self) -> Option<usize> {
        let sleeps = matches!(self.state, 'S' | 'D');
        self.processor.filter(|_| sleeps).and_then(|processor| usize::try_from(processor).ok())
    }
}

/// One thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    mark: Mark,
    /// The values beside those that show whether it moves.
    pub(super) task: Task,
}

impl Told {
    /// Its state. For a thread that moves it was true for a moment only, and the caller reads the rest from /proc.
    pub(super) fn standing(&self) -> Standing {
        let Told { mark, task } = self;
        Standing { state: mark.state, start_ticks: task.started / TICK, processor: task.processor }
    }

    /// Whether it sleeps.
    pub(super) fn is_asleep(&self) -> bool {
        self.mark.is_still() && matches!(self.mark.state, 'S' | 'D')
    }

    /// Voluntary and involuntary context switches.
    pub(super) fn switches(&self) -> (u64, u64) {
        self.mark.switches
    }

    /// When it last ran, in milliseconds of the scheduler's clock of the processor that it ran on.
    pub(super) fn ran(&self) -> Option<f64> {
        self.mark.ran.map(|ran| ran as f64 / 1e6)
    }
}

/// All threads of a process, if they are many and the iterator agrees with /proc. On request with the kernel functions
/// that they are in.
pub(super) fn told(
    proc_fs: &ProcFs,
    sleepers: Option<&Arc<Mutex<SleepReader>>>,
    pid: i32,
    with_calls: bool,
) -> Option<BTreeMap<i32, Told>> {
    let directory = proc_fs.task(pid, pid);
    let main = proc_fs::stat(&directory).filter(|main| main.threads > MANY)?;
    let tasks = locked(sleepers?).tasks(pid, with_calls)?;
    let told: BTreeMap<i32, Told> = tasks.into_iter().map(|(tid, (mark, task))| (tid, Told { mark, task })).collect();
    let own = told.get(&pid)?;
    // Lockscope may be in a time namespace, where /proc counts from another boot.
    let agrees = own.standing().start_ticks == main.start_ticks
        && proc_fs::status(&directory)?.innermost_id.is_none_or(|id| id == own.task.innermost_id);
    agrees.then_some(told)
}

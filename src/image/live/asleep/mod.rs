//! Registers of sleeping threads without a stop.
//!
//! In: processes. Out: a [`Reading`]. It has a [`Mark`] for each thread, and as many registers as are available.
//! Comparison with a later mark shows whether the thread has run in between. Nothing is stopped, woken or written; no
//! memory is read.
//!
//! There are two ways, best first. An eBPF task iterator gives all registers (`iterator`). Otherwise /proc gives a
//! sleeping thread's system call (`kernel_files`). A thread's own stack between two equal marks belongs to one instant.
//! For memory that threads share, all of them must have kept still.

mod iterator;
mod kernel_files;
mod kernel_types;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use iterator::TaskIterator;
pub(super) use iterator::Unavailable;

use super::proc_fs::ProcFs;
use crate::arch::{Registers, Syscall};

/// The values that change when a thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// State letter. A thread that was woken and has not run yet has the counters of before, but state R (measured).
    pub(super) state: char,
    /// It is on a processor, maybe just going to sleep: it could turn round and go on without a switch.
    pub(super) on_cpu: bool,
    /// Voluntary and involuntary context switches.
    pub(super) switches: (u64, u64),
    /// When it last ran, by the kernel's clock of its processor: the start of its sleep. `None` where it is not
    /// reported.
    pub(super) ran: Option<u64>,
}

impl Mark {
    /// Whether it stood still at that moment, and cannot go on without a context switch: asleep, or stopped by a signal.
    pub(super) fn is_still(&self) -> bool {
        matches!(self.state, 'S' | 'D' | 'T') && !self.on_cpu
    }

    /// Whether the thread has stood still from this moment to that of `later`.
    pub(super) fn stood_until(&self, later: &Mark) -> bool {
        self.is_still() && self == later
    }
}

/// The values from the iterator that four files of /proc hold, too. With them, thousands of threads need no read of
/// those files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    /// Its name, with 0 bytes behind it.
    name: [u8; 16],
    /// Its id in its innermost PID namespace.
    pub(super) innermost_id: i32,
    /// Another process traces it.
    pub(super) has_tracer: bool,
    /// The processor that it last ran on, where the kernel reports it.
    pub(super) processor: Option<i32>,
    /// When it started, in nanoseconds since boot; that of the whole machine, not of a time namespace.
    pub(super) started: u64,
    /// CPU time used, in nanoseconds, and how often it got a processor.
    pub(super) used: (u64, u64),
    /// Return addresses in the kernel, innermost first; 0 behind the last. All are 0 where they were not requested or
    /// are not reported.
    pub(super) calls: [u64; CALLS],
}

/// This many return addresses distinguish the functions that threads sleep in: up to six are the scheduler's and a
/// lock's.
const CALLS: usize = 8;

impl Task {
    /// Its name (comm).
    pub(super) fn name(&self) -> String {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(self.name.get(..end).unwrap_or_default()).into_owned()
    }
}

/// The registers or call of a thread that was not stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sleeper {
    /// Its process.
    pub(super) process: i32,
    /// To compare with a later one.
    pub(super) mark: Mark,
    /// All its registers, where the way gives them.
    pub(super) registers: Option<Registers>,
    /// Its system call with stack pointer and pc, where that is all that is known.
    pub(super) call: Option<Syscall>,
}

impl Sleeper {
    /// Whether the thread has stood still from this reading to `later`.
    pub(super) fn stood_until(&self, later: &Sleeper) -> bool {
        self.mark.stood_until(&later.mark)
    }

    /// Whether it sleeps and is known well enough to be left asleep.
    pub(super) fn is_known(&self) -> bool {
        self.mark.is_still() && (self.registers.is_some() || self.call.is_some())
    }

    /// The system call that it sleeps in.
    pub(super) fn call(&self) -> Option<Syscall> {
        self.registers.map_or(self.call, |registers| registers.asleep())
    }
}

/// Threads by their id.
pub(super) type Reading = BTreeMap<i32, Sleeper>;

/// The way to read registers of sleeping threads.
#[derive(Debug)]
enum Way {
    /// The iterator is being loaded.
    Loading(JoinHandle<Result<TaskIterator, Unavailable>>),
    /// By the iterator.
    Iterator(Box<TaskIterator>),
    /// By /proc alone, and why.
    KernelFiles(Unavailable),
}

/// Reads registers of sleeping threads, look after look; what is loaded for it is loaded once.
#[derive(Debug)]
pub(super) struct SleepReader {
    proc_fs: ProcFs,
    way: Way,
}

impl SleepReader {
    /// A reader for the threads of `pids`. The iterator is loaded meanwhile by a thread of its own, so that a caller who has other
    /// things to read first does not wait for it.
    pub(super) fn new(proc_fs: &ProcFs, pids: &[i32]) -> SleepReader {
        let start = || {
            TaskIterator::is_possible(proc_fs)?;
            let (proc_fs, pids) = (proc_fs.clone(), pids.to_vec());
            let loader = std::thread::Builder::new().name("loader".to_owned());
            loader.spawn(move || TaskIterator::load(&proc_fs, &pids)).map_err(|_| Unavailable::NoThread)
        };
        let way = start().map_or_else(Way::KernelFiles, Way::Loading);
        SleepReader { proc_fs: proc_fs.clone(), way }
    }

    /// Read the threads of these processes too.
    pub(super) fn add(&mut self, pids: &[i32]) {
        self.settle();
        if let Way::Iterator(iterator) = &mut self.way
            && let Err(why) = iterator.add(pids)
        {
            self.way = Way::KernelFiles(why);
        }
    }

    /// The same without the iterator.
    #[cfg(test)]
    pub(super) fn by_kernel_files(proc_fs: &ProcFs) -> SleepReader {
        SleepReader { proc_fs: proc_fs.clone(), way: Way::KernelFiles(Unavailable::NoCapability) }
    }

    /// Why all registers are not available; `None` if they are.
    pub(super) fn unavailable(&mut self) -> Option<&Unavailable> {
        self.settle();
        match &self.way {
            Way::KernelFiles(why) => Some(why),
            Way::Loading(_) | Way::Iterator(_) => None,
        }
    }

    /// All threads of the processes that the reader was made for, of those of `pids`, now.
    pub(super) fn read(&mut self, pids: &[i32]) -> Reading {
        self.settle();
        if let Way::Iterator(iterator) = &mut self.way {
            match iterator.read(pids) {
                Ok(records) => return records.into_iter().map(|record| (record.thread, sleeper(record))).collect(),
                Err(error) => self.way = Way::KernelFiles(Unavailable::Refused(error.to_string())),
            }
        }
        kernel_files::read(&self.proc_fs, pids)
    }

    /// The iterator's values for the threads of a process beside their registers, by thread id. On request they include
    /// the kernel functions that the threads are in. `None` where the caller must read /proc.
    pub(super) fn tasks(&mut self, pid: i32, with_calls: bool) -> Option<BTreeMap<i32, (Mark, Task)>> {
        self.settle();
        let Way::Iterator(iterator) = &mut self.way else { return None };
        let records = if with_calls { iterator.read_with_calls(pid) } else { iterator.read(&[pid]) }.ok()?;
        Some(records.into_iter().map(|record| (record.thread, (record.mark, record.task))).collect())
    }

    /// Wait for the loading to be over.
    fn settle(&mut self) {
        if !matches!(self.way, Way::Loading(_)) {
            return;
        }
        let Way::Loading(loader) = std::mem::replace(&mut self.way, Way::KernelFiles(Unavailable::NoThread)) else {
            return;
        };
        self.way = match loader.join() {
            Ok(Ok(iterator)) => Way::Iterator(Box::new(iterator)),
            Ok(Err(why)) => Way::KernelFiles(why),
            Err(_) => Way::KernelFiles(Unavailable::NoThread),
        };
    }
}

fn sleeper(record: iterator::Record) -> Sleeper {
    Sleeper {
        process: record.process,
        mark: record.mark,
        registers: record.registers.filter(|_| record.mark.is_still()),
        call: None,
    }
}

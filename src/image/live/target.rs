//! One sampled process, and the state that lockscope keeps from sample to sample.
//!
//! In: an id. Out: a [`Target`], or why lockscope cannot sample it. Nothing is stopped.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::asleep::SleepReader;
use super::at_once;
use super::error::AttachError;
use super::facts::CpuSample;
use super::memory::LiveMemory;
use super::open;
use super::proc_fs::{ProcFs, Stat};
use crate::image::Launch;

/// One process, from look to look.
#[derive(Debug)]
pub(super) struct Target {
    /// Its id.
    pub(super) pid: i32,
    /// Distinguishes it from another process that got its id later.
    pub(super) start_ticks: u64,
    /// How many threads it had when it was opened.
    pub(super) threads: usize,
    /// Found, as a descendant is, and not named by the user: a failure for it is a gap.
    pub(super) is_found: bool,
    /// The sample of its last CPU times.
    pub(super) sample: CpuSample,
    /// lockscope has checked whether it has a tracer.
    pub(super) is_asked_for_tracer: bool,
    /// Pages that analysis wanted and no stop has copied.
    pub(super) wanted: BTreeSet<u64>,
    /// That of the last look.
    pub(super) memory: Option<Arc<LiveMemory>>,
    /// How it was started, read once.
    pub(super) launch: Option<Launch>,
}

impl Target {
    /// Check that lockscope can sample a process. The first sample of its CPU time is taken thereafter.
    pub(super) fn open(proc_fs: &ProcFs, pid: i32, is_found: bool) -> Result<Target, AttachError> {
        let Stat { start_ticks, threads, .. } = open::check(proc_fs, pid)?;
        let (sample, wanted) = (CpuSample::begin(), BTreeSet::new());
        let is_asked_for_tracer = false;
        Ok(Target {
            pid,
            start_ticks,
            threads,
            is_found,
            sample,
            is_asked_for_tracer,
            wanted,
            memory: None,
            launch: None,
        })
    }

    /// Take the first sample of its CPU time.
    pub(super) fn take_sample(&mut self, proc_fs: &ProcFs, sleepers: Option<&Arc<Mutex<SleepReader>>>) {
        let told = at_once::told(proc_fs, sleepers, self.pid, false);
        self.sample = CpuSample::take(proc_fs, self.pid, told.as_ref());
    }
}

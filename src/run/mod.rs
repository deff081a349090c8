//! Watching a command, or a process that runs already, until it ends or hangs.
//!
//! In: [`Limits`] and the root of a process tree. Out: the reason why the watch ended, with the reports of the last
//! sample. Progress is read from /proc. The target is stopped for a sample only when it stands still, and otherwise
//! rarely enough to cost a hundredth of a processor. This module prints nothing: `run` and `watch` of the command line
//! do.
//!
//! [`Watch`] says when a sample is due and takes it in. Another process takes the samples ([`samplers`]), since nothing
//! that a sample meets may hold up limits and signals. `run` starts its command below that process ([`process_tree`]).

pub(crate) mod children;
pub(crate) mod gpu_attached;
pub(crate) mod gpu_dump;
mod gpu_trigger;
mod guard;
mod incidents;
pub(crate) mod judge;
pub(crate) mod own_names;
pub(crate) mod process_tree;
mod progress;
pub(crate) mod sample;
mod sampler;
pub(crate) mod samplers;
mod spinners;
mod starved;
pub(crate) mod suite;
mod time_limits;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::analysis::{self, AttachOptions, Keep, Outcome};
use crate::image::Gap;
use crate::limits;
use crate::limits::run::MOST_PROCESSES;
use crate::report::{Report, Verdict, Wait};
use judge::{Decision, Judge};
use progress::Progress;
use sample::{Sample, Sampler};
use spinners::Spinners;
use starved::Starved;

/// Time between two passes over /proc.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(200);
/// Longest pause at the final sample of a target that is ended anyway: on a busy machine threads take long to come to their
/// stop.
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// The last sample must show the proof of those before it. If it does not, it is repeated up to this often.
const LAST_LOOKS: usize = 3;

/// When a watch ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// A hang with a proof by absence, or one that another thread may end, has lasted this long.
    pub stuck_after: Duration,
    /// No progress for so long.
    pub hang_after: Option<Duration>,
    /// So long in all.
    pub timeout: Option<Duration>,
}

/// The default of [`Limits::stuck_after`].
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(60);
/// The same where a deadlock was predicted and its threads have met.
const EXPECTED_STANDS: Duration = Duration::from_secs(5);

impl Default for Limits {
    fn default() -> Limits {
        Limits { stuck_after: STUCK_AFTER, hang_after: None, timeout: None }
    }
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// A hang that the samples prove.
    Hang,
    /// No progress for [`Limits::hang_after`].
    NoProgress,
    /// [`Limits::timeout`] has passed.
    Timeout,
    /// A test has run for longer than it may.
    TestTimeout,
}

/// Why a sample came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    /// lockscope could not sample the target.
    #[error(transparent)]
    Target(#[from] analysis::Error),
    /// The same, as the sampling process reports it.
    #[error("{0}")]
    Told(String),
    /// The sampling process has ended.
    #[error("{0}")]
    Lost(String),
    /// It takes too long.
    #[error("a look did not come to its end within {} s and was given up", .0.as_secs())]
    TooLong(Duration),
    /// Too many were lost.
    #[error("looking failed several times and is not tried again")]
    NoLooker,
}

/// A sample, or why there is none. The last one comes with a snapshot.
pub(crate) type LastLook = Result<Box<Outcome>, LookError>;

/// The purpose of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// To see whether it hangs.
    Routine,
    /// To report why the watch is over.
    Last(Reason),
    /// To report, because another program ends it.
    FromOutside,
}

/// A sample that is called for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// At these processes.
    pub pids: Vec<i32>,
    /// The purpose.
    pub purpose: Purpose,
    /// There are more processes than are followed.
    pub in_part: bool,
    /// The folder for cores of the processes' GPUs, if they are requested: only for processes that are killed then.
    #[serde(default)]
    pub gpu_cores: Option<PathBuf>,
    /// Query NCCL's RAS. Only one rank of a job does so, since one query covers all ranks.
    #[serde(default)]
    pub nccl_ras: bool,
}

impl Wanted {
    /// Sample, in this process.
    pub(crate) fn carry_out(&self) -> LastLook {
        let mut look = match self.purpose {
            Purpose::Routine => look(&self.pids, Keep::Nothing, None, self.nccl_ras).map(Box::new)?,
            Purpose::Last(Reason::Hang) => proven_look(&self.pids)?,
            Purpose::Last(_) | Purpose::FromOutside => last_look(&self.pids)?,
        };
        if let (Some(folder), Purpose::Last(reason)) = (&self.gpu_cores, self.purpose) {
            *look = gpu_dump::add(*look, folder, &self.pids, reason != Reason::Hang);
        }
        if self.in_part {
            let met = limits::Met::of(MOST_PROCESSES, "the tree of processes", "processes of a command");
            look.report.gaps.push(Gap::new(met.what, met.why));
        }
        Ok(look)
    }
}

/// The next step after a sample.
#[derive(Debug)]
pub(crate) enum Next {
    /// Something to say, or nothing.
    Event(Event),
    /// Another sample.
    Look(Wanted),
}

/// A report of the watch.
#[derive(Debug)]
pub(crate) enum Event {
    /// Nothing yet.
    Nothing,
    /// A deadlock beside threads that go on: reported once.
    Beside(Box<Report>),
    /// A hang that is not ended yet, as its proof is an absence or another thread may end it: reported once.
    Patient(Box<Report>),
    /// It is over. The last sample, with a snapshot.
    Over(Reason, LastLook),
}

/// A watch over a process tree.
#[derive(Debug)]
pub(crate) struct Watch {
    root: i32,
    with_root: bool,
    limits: Limits,
    began: Instant,
    sampler: Sampler,
    starved: Starved,
    judge: Judge,
    progress: Progress,
    spinners: Spinners,
    /// The limit of a test decides what no recorded owner proves.
    has_test_limit: bool,
    /// The cost of the last pass over the tree.
    cost: Duration,
    gpu_cores: Option<PathBuf>,
}

impl Watch {
    /// Watch the descendants of `root`; with itself or without.
    pub(crate) fn new(root: i32, with_root: bool, limits: Limits) -> Watch {
        Watch {
            root,
            with_root,
            limits,
            began: Instant::now(),
            sampler: Sampler::default(),
            starved: Starved::default(),
            judge: Judge::new(Instant::now(), limits.stuck_after),
            progress: Progress::default(),
            spinners: Spinners::default(),
            has_test_limit: false,
            cost: Duration::ZERO,
            gpu_cores: None,
        }
    }

    /// The last sample takes cores of the GPUs as well, which drivers write into this folder.
    pub(crate) fn with_gpu_cores(self, folder: Option<PathBuf>) -> Watch {
        Watch { gpu_cores: folder, ..self }
    }

    /// The test of these threads was ended, and they stay as they are: what they do to each other is no news.
    pub(crate) fn leave_behind(&mut self, report: &Report) {
        self.judge.leave_behind(Instant::now(), report);
    }

    /// Whether all that is wrong is what was left behind.
    pub(crate) fn was_left_behind(&self, report: &Report) -> bool {
        self.judge.was_told(report)
    }

    /// The same, but that others may have come to wait for it.
    pub(crate) fn is_of_before(&self, report: &Report) -> bool {
        self.judge.is_of_before(report)
    }

    /// The process waits for all that is left: it hangs because of that, whichever thread it is.
    pub(crate) fn end_with_what_is_left(&mut self) {
        self.judge.end_with_what_is_left();
    }

    /// Whether a test runs that has a limit of its own.
    pub(crate) fn has_test_limit(&mut self, has_limit: bool) {
        self.has_test_limit = has_limit;
        self.judge.be_patient_for(Some(self.limits.stuck_after).filter(|_| !has_limit));
    }

    /// The threads of a predicted deadlock stand before their locks: a hang by absence needs less patience.
    pub(crate) fn expects_a_hang(&mut self) {
        self.judge.be_patient_for(Some(self.limits.stuck_after.min(EXPECTED_STANDS)));
    }

    /// Something else begins: what was seen before says nothing of when to sample.
    pub(crate) fn begin_anew(&mut self) {
        self.judge.begin_anew(Instant::now());
        self.progress.begin_anew();
    }

    /// The pause before [`Watch::wanted`] is called again.
    pub(crate) fn rest(&self) -> Duration {
        let left = self.limits.timeout.map(|limit| limit.saturating_sub(self.began.elapsed()));
        // A tree of thousands of processes takes long to pass over: that costs a hundredth of a processor too.
        let rest = BETWEEN_SAMPLES.max(self.cost * judge::COST);
        left.map_or(rest, |left| left.min(rest))
    }

    /// Whether looks have begun to agree on something that is wrong.
    pub(crate) fn is_suspicious(&self) -> bool {
        self.judge.counts_progress()
    }

    /// Whether [`Limits::timeout`] has passed.
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.limits.timeout.is_some_and(|limit| self.began.elapsed() >= limit)
    }

    /// Take a pass over the tree; return the sample that is due.
    pub(crate) fn wanted(&mut self) -> Option<Wanted> {
        let (now, spent) = (Instant::now(), cpu_time());
        let mut sample = self.sampler.take(self.root, self.with_root);
        sample.used_ms = sample.used_ms.saturating_sub(self.spinners.used_ms());
        self.cost = cpu_time().saturating_sub(spent);
        self.judge.sampled(now, &sample);
        if self.limits.hang_after.is_some() || self.judge.counts_progress() {
            self.progress.sampled(now, &sample.pids, judge::COST);
        } else {
            self.progress.begin_anew();
        }
        let still_for = self.still_for(now);
        let stands_for_long = self.limits.hang_after.is_some_and(|limit| still_for >= limit);
        match self.limits.hang_after {
            Some(limit) if still_for >= limit / 2 => self.starved.stands_still(&sample.pids, &self.spinners),
            _ => self.starved.forget(),
        }
        let (pids, in_part) = (sample.pids, sample.in_part);
        let purpose = if self.is_out_of_time() {
            Purpose::Last(Reason::Timeout)
        } else if stands_for_long {
            match self.starved.ask(&pids, &self.spinners) {
                // The next pass shows it.
                None => return None,
                Some(true) => {
                    self.judge.wants_to_work();
                    return None;
                }
                Some(false) => Purpose::Last(Reason::NoProgress),
            }
        } else if self.judge.wants_a_look(now) && !pids.is_empty() {
            Purpose::Routine
        } else {
            return None;
        };
        Some(Wanted { pids, purpose, in_part, gpu_cores: self.gpu_cores.clone(), nccl_ras: false })
    }

    /// For how long the whole tree has shown no sign of progress.
    fn still_for(&self, now: Instant) -> Duration {
        self.judge.still_for(now).min(self.progress.still_for(now))
    }

    /// Take in a sample, which took `cost` of a processor.
    pub(crate) fn looked(&mut self, wanted: Wanted, cost: Duration, look: LastLook) -> Next {
        let Wanted { pids, purpose, in_part, gpu_cores, nccl_ras } = wanted;
        let reason = match purpose {
            Purpose::Routine => {
                let (report, now) = (look.ok().map(|outcome| outcome.report), Instant::now());
                let is_wrong = report.as_ref().is_some_and(|report| report.verdict.exit_code() != 0);
                let alarms = match is_wrong && !self.has_test_limit {
                    true => time_limits::with_alarms(&pids),
                    false => BTreeSet::new(),
                };
                let still_for = self.still_for(now);
                self.progress.looked(now, report.as_ref().map(retrying));
                self.spinners.looked(report.as_ref());
                return match (self.judge.looked(now, cost, report.as_ref(), still_for, &alarms), report) {
                    (Decision::Over, _) => {
                        Next::Look(Wanted { pids, purpose: Purpose::Last(Reason::Hang), in_part, gpu_cores, nccl_ras })
                    }
                    (Decision::Beside, Some(report)) => Next::Event(Event::Beside(Box::new(report))),
                    (Decision::Patient, Some(report)) => Next::Event(Event::Patient(Box::new(report))),
                    _ => Next::Event(Event::Nothing),
                };
            }
            Purpose::Last(reason) => reason,
            Purpose::FromOutside => return Next::Event(Event::Nothing),
        };
        Next::Event(Event::Over(reason, look))
    }

    /// A sample of the whole tree as it is now, on request, with NCCL's RAS if it is to be.
    pub(crate) fn for_others(&mut self, nccl_ras: bool) -> Wanted {
        Wanted { purpose: Purpose::Routine, nccl_ras, ..self.last_from_outside() }
    }

    /// The last sample once more, and cores of GPUs with it, before all is ended.
    pub(crate) fn last_with_gpus(&mut self, reason: Reason, folder: &Path) -> Wanted {
        let wanted = self.last_from_outside();
        Wanted { purpose: Purpose::Last(reason), gpu_cores: Some(folder.to_path_buf()), ..wanted }
    }

    /// A sample of the whole tree as it is now, which another program ends.
    pub(crate) fn last_from_outside(&mut self) -> Wanted {
        let Sample { pids, in_part, .. } = self.sampler.take(self.root, self.with_root);
        Wanted { pids, purpose: Purpose::FromOutside, in_part, gpu_cores: None, nccl_ras: false }
    }
}

/// Names of the incidents in a report, the same in every look.
pub(crate) fn incident_names(report: &Report) -> BTreeSet<String> {
    incidents::incidents(report).into_iter().map(|incident| incident.fingerprint.join("; ")).collect()
}

/// Whether a process that has made no progress only waits for work: nothing is wrong, no thread wants a lock that another has, and its
/// main thread waits for a connection, for events, for a time or for a signal.
pub(crate) fn is_idle(report: &Report) -> bool {
    let waits_for_work = |wait: &Wait| {
        let resource = report.resources.iter().find(|resource| resource.id == wait.resource);
        resource.is_some_and(|resource| wait.timed || resource.brings_work())
    };
    let main = report.processes.first().map(|process| (process.id.as_str(), process.pid));
    let of_main = report.waits.iter().filter(|wait| main == wait.tid.map(|tid| (wait.process.as_str(), tid)));
    let (mut any, mut all) = (false, true);
    for wait in of_main {
        (any, all) = (true, all && waits_for_work(wait));
    }
    let is_lock = |id: &str| report.resources.iter().any(|one| one.id == id && one.properties().is_lock());
    let wants_lock = |wait: &Wait| !wait.timed && wait.tid.is_some() && is_lock(&wait.resource);
    report.verdict == Verdict::Blocked && any && all && !report.waits.iter().any(wants_lock)
}

/// Threads that retry one and the same wait, as for the GIL.
fn retrying(report: &Report) -> BTreeSet<i32> {
    let is_retried =
        |id: &str| report.resources.iter().any(|resource| resource.id == id && resource.properties().is_asked_again());
    report.waits.iter().filter(|wait| wait.retried || is_retried(&wait.resource)).filter_map(|wait| wait.tid).collect()
}

/// The processor time of lockscope. A sample waits for most of its time, between two checks of the target's progress.
pub(crate) fn cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
    nix::time::clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

fn last_look(pids: &[i32]) -> LastLook {
    Ok(look(pids, Keep::Snapshot { redact: false }, Some(LAST_PAUSE), true).map(Box::new)?)
}

fn proven_look(pids: &[i32]) -> LastLook {
    let mut last = last_look(pids);
    for _ in 1..LAST_LOOKS {
        if last.as_ref().is_ok_and(|outcome| outcome.report.verdict.exit_code() != 0) {
            break;
        }
        last = last_look(pids);
    }
    last
}

fn look(pids: &[i32], keep: Keep, max_pause: Option<Duration>, nccl_ras: bool) -> Result<Outcome, analysis::Error> {
    let options = AttachOptions { max_pause, nccl_ras, found: true, ..AttachOptions::of(pids.iter().copied()) };
    analysis::attach(&options, keep)
}

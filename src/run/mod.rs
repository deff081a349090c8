//! Watching a command, or a process that runs already, until it ends or hangs.
//!
//! In: [`Limits`] and the root of a process tree. Out: why the watch ended, with the reports of the last look. Progress is
//! read from /proc; the target is stopped for a look only when it stands still, and else rarely enough to cost a hundredth
//! of a processor. It prints nothing: `run` and `watch` of the command line do.
//!
//! [`Watch`] says when a look is wanted and takes it in. Whoever watches has it done by another process ([`lookers`]), since nothing
//! that a look meets may hold up limits and signals; `run` starts its command below that one ([`family`]).

pub(crate) mod children;
pub(crate) mod family;
pub(crate) mod gpu_attached;
pub(crate) mod gpu_dump;
mod gpu_trigger;
mod guard;
pub(crate) mod judge;
mod looker;
pub(crate) mod lookers;
pub(crate) mod own_names;
pub(crate) mod sample;
mod starved;
pub(crate) mod suite;
mod troubles;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::analysis::{self, AttachOptions, Keep, Outcome};
use crate::image::Gap;
use crate::limits;
use crate::limits::run::MOST_PROCESSES;
use crate::report::Report;
use judge::{Decision, Judge};
use sample::{Sample, Sampler};
use starved::Starved;

/// Time between two samples of /proc.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(200);
/// Longest pause at the final sample of a target that is ended anyway: on a busy machine threads take long to come to their
/// stop.
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// The last look tells what those before it have proven, or is taken again so often.
const LAST_LOOKS: usize = 3;

/// When a watch ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// No progress for so long.
    pub hang_after: Option<Duration>,
    /// So long in all.
    pub timeout: Option<Duration>,
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// A hang that the looks prove.
    Hang,
    /// No progress for [`Limits::hang_after`].
    NoProgress,
    /// [`Limits::timeout`] has passed.
    Timeout,
    /// A test has run for longer than it may.
    TestTimeout,
}

/// Why a look came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    /// The target could not be looked at.
    #[error(transparent)]
    Target(#[from] analysis::Error),
    /// The same, as the process that looks says.
    #[error("{0}")]
    Told(String),
    /// The process that looks is no more.
    #[error("{0}")]
    Lost(String),
    /// It takes too long.
    #[error("a look did not come to its end within {} s and was given up", .0.as_secs())]
    TooLong(Duration),
    /// Too many were lost.
    #[error("looking failed several times and is not tried again")]
    NoLooker,
}

/// A look, or why there is none. The last one comes with a snapshot.
pub(crate) type LastLook = Result<Box<Outcome>, LookError>;

/// What a look is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// To see whether it hangs.
    Routine,
    /// To tell: why the watch is over.
    Last(Reason),
    /// To tell: somebody else ends it.
    FromOutside,
}

/// A look that is called for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// At these processes.
    pub pids: Vec<i32>,
    /// What for.
    pub purpose: Purpose,
    /// There are more processes than are followed.
    pub in_part: bool,
    /// Where the processes' drivers write cores of their GPUs, where they are to: only of what is killed then.
    #[serde(default)]
    pub gpu_cores: Option<PathBuf>,
    /// Ask NCCL's RAS: of the ranks of a job one does, since each of them would be asked by it.
    #[serde(default)]
    pub nccl_ras: bool,
}

impl Wanted {
    /// Look, in this process.
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

/// What follows from a look.
#[derive(Debug)]
pub(crate) enum Next {
    /// Something to say, or nothing.
    Event(Event),
    /// Another look.
    Look(Wanted),
}

/// What the watch has to say.
#[derive(Debug)]
pub(crate) enum Event {
    /// Nothing yet.
    Nothing,
    /// A deadlock beside threads that go on: told once.
    Beside(Box<Report>),
    /// It is over. The last look, with a snapshot.
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
    /// What the last sample cost.
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
            judge: Judge::new(Instant::now()),
            cost: Duration::ZERO,
            gpu_cores: None,
        }
    }

    /// The last look takes cores of the GPUs as well, which drivers write into this folder.
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

    /// Something else begins: what was seen before says nothing of when to look.
    pub(crate) fn begin_anew(&mut self) {
        self.judge.begin_anew(Instant::now());
    }

    /// How long to rest before [`Watch::wanted`] is asked again.
    pub(crate) fn rest(&self) -> Duration {
        let left = self.limits.timeout.map(|limit| limit.saturating_sub(self.began.elapsed()));
        // A tree of thousands of processes takes long to pass over: that costs a hundredth of a processor too.
        let rest = BETWEEN_SAMPLES.max(self.cost * judge::COST);
        left.map_or(rest, |left| left.min(rest))
    }

    /// Whether [`Limits::timeout`] has passed.
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.limits.timeout.is_some_and(|limit| self.began.elapsed() >= limit)
    }

    /// Sample; the look that is called for.
    pub(crate) fn wanted(&mut self) -> Option<Wanted> {
        let (now, spent) = (Instant::now(), cpu_time());
        let sample = self.sampler.take(self.root, self.with_root);
        self.cost = cpu_time().saturating_sub(spent);
        self.judge.sampled(now, &sample);
        let still_for = self.judge.still_for(now);
        let stands_for_long = self.limits.hang_after.is_some_and(|limit| still_for >= limit);
        match self.limits.hang_after {
            Some(limit) if still_for >= limit / 2 => self.starved.stands_still(&sample.pids),
            _ => self.starved.forget(),
        }
        let (pids, in_part) = (sample.pids, sample.in_part);
        let purpose = if self.is_out_of_time() {
            Purpose::Last(Reason::Timeout)
        } else if stands_for_long {
            match self.starved.ask(&pids) {
                // The next sample tells.
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

    /// Take in a look, which took `cost` of a processor.
    pub(crate) fn looked(&mut self, wanted: Wanted, cost: Duration, look: LastLook) -> Next {
        let Wanted { pids, purpose, in_part, gpu_cores, nccl_ras } = wanted;
        let reason = match purpose {
            Purpose::Routine => {
                let report = look.ok().map(|outcome| outcome.report);
                return match (self.judge.looked(Instant::now(), cost, report.as_ref()), report) {
                    (Decision::Over, _) => {
                        Next::Look(Wanted { pids, purpose: Purpose::Last(Reason::Hang), in_part, gpu_cores, nccl_ras })
                    }
                    (Decision::Beside, Some(report)) => Next::Event(Event::Beside(Box::new(report))),
                    _ => Next::Event(Event::Nothing),
                };
            }
            Purpose::Last(reason) => reason,
            Purpose::FromOutside => return Next::Event(Event::Nothing),
        };
        Next::Event(Event::Over(reason, look))
    }

    /// A look at the whole tree as it is now, for somebody who asks, with NCCL's RAS if it is to be.
    pub(crate) fn for_others(&mut self, nccl_ras: bool) -> Wanted {
        Wanted { purpose: Purpose::Routine, nccl_ras, ..self.last_from_outside() }
    }

    /// The last look once more, and cores of GPUs with it, before all is ended.
    pub(crate) fn last_with_gpus(&mut self, reason: Reason, folder: &Path) -> Wanted {
        let wanted = self.last_from_outside();
        Wanted { purpose: Purpose::Last(reason), gpu_cores: Some(folder.to_path_buf()), ..wanted }
    }

    /// A look at the whole tree as it is now, which somebody else ends.
    pub(crate) fn last_from_outside(&mut self) -> Wanted {
        let Sample { pids, in_part, .. } = self.sampler.take(self.root, self.with_root);
        Wanted { pids, purpose: Purpose::FromOutside, in_part, gpu_cores: None, nccl_ras: false }
    }
}

/// What lockscope has used of a processor. A look waits for most of its time, between two samples of the target's progress.
fn cpu_time() -> Duration {
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

//! Watching a command, or a process that runs already, until it ends or hangs.
//!
//! In: [`Limits`] and the root of a process tree. Out: why the watch ended, with the reports of the last look. Progress is
//! read from /proc; the target is stopped for a look only when it stands still, and else rarely enough to cost a hundredth
//! of a processor. It owns no process and prints nothing: `run` and `watch` of the command line do.

pub mod children;
pub mod guard;
pub mod judge;
pub mod sample;
pub mod suite;

use std::time::{Duration, Instant};

use crate::analysis::{self, AttachOptions, Keep, Outcome};
use crate::report::Report;
use judge::{Decision, Judge};
use sample::Sampler;

/// Time between two samples of /proc.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(200);
/// Longest pause of one process at a look; and at the last, at what ends anyway: on a busy machine threads take long to come
/// to their stop.
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// The last look tells what those before it have proven, or is taken again so often.
const LAST_LOOKS: usize = 3;

/// When a watch ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// No progress for so long.
    pub hang_after: Option<Duration>,
    /// So long in all.
    pub timeout: Option<Duration>,
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A hang that the looks prove.
    Hang,
    /// No progress for [`Limits::hang_after`].
    NoProgress,
    /// [`Limits::timeout`] has passed.
    Timeout,
    /// A test has run for longer than it may.
    TestTimeout,
}

/// A look with a snapshot, or why there is none.
pub type LastLook = Result<Box<Outcome>, analysis::Error>;

/// What the watch has to say.
#[derive(Debug)]
pub enum Event {
    /// Nothing yet.
    Nothing,
    /// A deadlock beside threads that go on: told once.
    Beside(Box<Report>),
    /// It is over. The last look, with a snapshot.
    Over(Reason, LastLook),
}

/// A watch over a process tree.
#[derive(Debug)]
pub struct Watch {
    root: i32,
    with_root: bool,
    limits: Limits,
    began: Instant,
    sampler: Sampler,
    judge: Judge,
    /// What the last sample cost.
    cost: Duration,
}

impl Watch {
    /// Watch the descendants of `root`; with itself or without.
    pub fn new(root: i32, with_root: bool, limits: Limits) -> Watch {
        Watch {
            root,
            with_root,
            limits,
            began: Instant::now(),
            sampler: Sampler::default(),
            judge: Judge::new(Instant::now()),
            cost: Duration::ZERO,
        }
    }

    /// How long until the next [`Watch::step`].
    pub fn rest(&self) -> Duration {
        let left = self.limits.timeout.map(|limit| limit.saturating_sub(self.began.elapsed()));
        // A tree of thousands of processes takes long to pass over: that costs a hundredth of a processor too.
        let rest = BETWEEN_SAMPLES.max(self.cost * judge::COST);
        left.map_or(rest, |left| left.min(rest))
    }

    /// Sample, and look where that is called for.
    pub fn step(&mut self) -> Event {
        let (now, spent) = (Instant::now(), cpu_time());
        let sample = self.sampler.take(self.root, self.with_root);
        self.cost = cpu_time().saturating_sub(spent);
        self.judge.sampled(now, &sample);
        let pids = sample.pids;
        if self.limits.timeout.is_some_and(|limit| self.began.elapsed() >= limit) {
            return Event::Over(Reason::Timeout, last_look(&pids));
        }
        if self.limits.hang_after.is_some_and(|limit| self.judge.still_for(now) >= limit) {
            return Event::Over(Reason::NoProgress, last_look(&pids));
        }
        if !self.judge.wants_a_look(now) || pids.is_empty() {
            return Event::Nothing;
        }
        let spent = cpu_time();
        let report = look(&pids, Keep::Nothing, None).map(|outcome| outcome.report);
        let decision = self.judge.looked(Instant::now(), cpu_time().saturating_sub(spent), report.as_ref().ok());
        match (decision, report) {
            (Decision::Over, _) => Event::Over(Reason::Hang, proven_look(&pids)),
            (Decision::Beside, Ok(report)) => Event::Beside(Box::new(report)),
            _ => Event::Nothing,
        }
    }

    /// A look at the whole tree as it is now, with a snapshot.
    pub fn look_now(&mut self) -> LastLook {
        let pids = self.sampler.take(self.root, self.with_root).pids;
        last_look(&pids)
    }
}

/// What lockscope has used of a processor. A look waits for most of its time, between two samples of the target's progress.
fn cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
    nix::time::clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

fn last_look(pids: &[i32]) -> LastLook {
    look(pids, Keep::Snapshot { redact: false }, Some(LAST_PAUSE)).map(Box::new)
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

fn look(pids: &[i32], keep: Keep, max_pause: Option<Duration>) -> Result<Outcome, analysis::Error> {
    let options =
        AttachOptions { pids: pids.to_vec(), tree: false, max_pause, no_stop: false, locals: false, working: false };
    analysis::attach(&options, keep)
}

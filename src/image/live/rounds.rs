//! One sample of all threads: which are left asleep, which are stopped, and which are tried again.
//!
//! In: what was read before, a copier, what the user allows. Out: how each thread fared, and what was taken while it stood
//! still. It decodes nothing.
//!
//! First lockscope reads sleeping threads where they sleep. Then it stops the others, copies memory, and reads the
//! sleepers again before it releases anything. Sleepers that slept through count, with all copies. A sleeper that woke
//! meanwhile is read once more if it sleeps again, and else stopped like the others. Then the copying is repeated. A
//! process whose threads all sleep is never stopped.
//!
//! On a busy machine a thread may take longer to its stop than others may stand waiting for it. Then lockscope releases
//! all and tries again. The late ones come first, and alone, with twice the time (see `stop`). Each attempt runs in a
//! thread of its own, whose end frees those that never came.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::asleep::{Reading, SleepReader};
use super::copier::Copier;
use super::memory::locked;
use super::proc_fs::{self, ProcFs};
use super::resumer::Resumer;
use super::spared;
use super::stop::{self, Outcome, ProcessStop, StopError, Stopped, Stopping, Which, Work};
use super::taking::{Inputs, TakenOfAll, pages_needed, take_all};
use super::unstopped;
use crate::limits::live::{MOST_ROUNDS, MOST_TURNS};
use crate::sys::DeferredSignals;

/// How long copying may take where nothing stands still for it.
const UNSTOPPED_TIME: Duration = Duration::from_secs(2);
/// How often a sample without a stop is repeated when a thread that slept has moved meanwhile.
const UNSTOPPED_ATTEMPTS: u32 = 3;
/// The least time for the first of the late threads at the first retry: no thread stands still meanwhile.
const LEAST_ALLOWANCE: Duration = Duration::from_millis(100);
/// Nothing of the last round is waited for longer before the next.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(250);

/// The means and limits of a sample.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    /// Where proc is.
    pub(super) proc_fs: &'a ProcFs,
    /// Which threads may be stopped.
    pub(super) stopping: Stopping,
    /// Reads threads that sleep; none where all are stopped.
    pub(super) sleepers: Option<&'a Arc<Mutex<SleepReader>>>,
    /// Lets lockscope go on where it is stopped itself.
    pub(super) resumer: Option<&'a Resumer>,
    /// Threads that cannot be read asleep, because analysis needs registers that only a stop shows.
    pub(super) lacking: &'a BTreeSet<i32>,
    /// Longest time that any thread may stand still.
    pub(super) max_pause: Duration,
    /// For asking late threads again, all rounds together.
    pub(super) patience: Duration,
}

/// The result of a sample.
#[derive(Debug)]
pub(super) struct Seen {
    /// How each thread fared, by process.
    pub(super) processes: Vec<ProcessStop>,
    /// The copied state, and the copier that has the copies.
    pub(super) taken: TakenOfAll,
    /// It goes on to serve reads after the release.
    pub(super) copier: Copier,
    /// The longest time that a thread stood still.
    pub(super) pause: Duration,
    /// How often lockscope asked threads to stop.
    pub(super) rounds: u32,
    /// The time that retries of late threads took.
    pub(super) spent: Duration,
    /// When the last of them was released.
    pub(super) released: Option<Instant>,
    /// Threads whose call says EINTR since they were stopped.
    pub(super) broken: BTreeSet<i32>,
}

impl Rounds<'_> {
    /// Look.
    pub(super) fn look(&self, inputs: &Arc<Inputs>, copier: Copier) -> Result<Seen, StopError> {
        if self.stopping == Stopping::Never {
            return self.look_without_stop(inputs, copier);
        }
        let begin = Instant::now();
        let mut copier = copier;
        let mut restless = self.lacking.clone();
        let mut late = BTreeSet::new();
        let mut allowance = Duration::ZERO;
        let mut pause = Duration::ZERO;
        let mut first_round = None;
        let mut broken = BTreeSet::new();
        let (mut rounds, mut asked) = (0, 0);
        loop {
            let mut round = self.round(inputs, copier, restless, late, allowance)?;
            broken.append(&mut round.broken);
            let spent = begin.elapsed().saturating_sub(*first_round.get_or_insert_with(|| begin.elapsed()));
            asked += 1;
            rounds += u32::from(round.released.is_some());
            pause = pause.max(round.pause);
            late = self.late(inputs, &round.processes);
            if late.is_empty() || spent >= self.patience || asked == MOST_ROUNDS {
                let Round { processes, mut taken, copier, released, .. } = round;
                taken.processes.iter_mut().for_each(|taken| taken.rounds = rounds);
                return Ok(Seen { processes, taken, copier, pause, rounds, spent, released, broken });
            }
            log::info!("{} threads did not come to their stop in time and are asked again", late.len());
            allowance =
                (allowance * 2).max(self.max_pause * 2).max(LEAST_ALLOWANCE).min(self.patience.saturating_sub(spent));
            (restless, copier) = (round.restless, round.copier);
            if !copier.wait(Instant::now() + BETWEEN_ROUNDS) {
                copier = self.another_copier(inputs)?;
            }
        }
    }

    /// The thread ids that lockscope did not ask in time, or did not give enough time, with their processes' numbers.
    fn late(&self, inputs: &Inputs, processes: &[ProcessStop]) -> BTreeSet<(usize, i32)> {
        let mut late = BTreeSet::new();
        for (index, (facts, outcomes)) in inputs.facts.iter().zip(processes).enumerate() {
            let state = |tid: i32| proc_fs::stat(&self.proc_fs.task(facts.pid, tid)).map(|stat| stat.state);
            let is_late = |tid: i32, outcome: &Outcome| match outcome {
                Outcome::NotReached | Outcome::Woke => true,
                // A thread that waits in the kernel for something else than its turn will not come the next time
                // either.
                Outcome::NotStopped { state: Some(letter) } => *letter != 'D',
                Outcome::NotStopped { state: None } => state(tid).is_some_and(|letter| letter != 'D'),
                _ => false,
            };
            late.extend(outcomes.iter().filter(|(tid, outcome)| is_late(**tid, outcome)).map(|(tid, _)| (index, *tid)));
        }
        late
    }

    fn another_copier(&self, inputs: &Inputs) -> Result<Copier, StopError> {
        let tasks: Vec<i32> = inputs.facts.iter().map(|facts| facts.living_thread).collect();
        let pages = pages_needed(&inputs.facts, &inputs.wanted);
        Copier::start(self.proc_fs, pages, &tasks, None).map_err(StopError::Copier)
    }

    /// Ask all threads to stop once.
    fn round(
        &self,
        inputs: &Arc<Inputs>,
        copier: Copier,
        restless: BTreeSet<i32>,
        first: BTreeSet<(usize, i32)>,
        allowance: Duration,
    ) -> Result<Round, StopError> {
        let mut turns = Turns {
            inputs: Arc::clone(inputs),
            sleepers: self.sleepers.cloned(),
            copier: Some(copier),
            asleep: Reading::new(),
            restless,
            count: 0,
        };
        let pids: Vec<i32> = inputs.facts.iter().map(|facts| facts.pid).collect();
        let mut left_alone = BTreeSet::new();
        if let Some(now) = turns.read() {
            turns.asleep =
                now.iter().filter(|(tid, _)| !turns.restless.contains(tid)).map(|(&tid, &it)| (tid, it)).collect();
            turns.asleep.retain(|_, sleeper| sleeper.is_known());
            let mut processes: Vec<ProcessStop> = pids.iter().map(|&pid| unstopped::outcomes_of(pid, &now)).collect();
            let is_left = |(tid, outcome): (&i32, &Outcome)| {
                matches!(outcome, Outcome::Ended)
                    || matches!(outcome, Outcome::Asleep(_)) && turns.asleep.contains_key(tid)
            };
            // A process that is gone has no sleeping threads to find.
            let all_sleep = processes.iter().all(|outcomes| !outcomes.is_empty() && outcomes.iter().all(is_left));
            if all_sleep {
                while turns.count < MOST_TURNS {
                    match turns.take(&mut processes, Instant::now() + UNSTOPPED_TIME) {
                        Work::Done(result) => {
                            let (taken, copier, restless) = result?;
                            return Ok(Round {
                                processes,
                                taken,
                                copier,
                                restless,
                                pause: Duration::ZERO,
                                released: None,
                                broken: BTreeSet::new(),
                            });
                        }
                        Work::Again(stop) if stop.is_empty() => {}
                        Work::Again(_) => break,
                    }
                }
            }
            left_alone.extend(turns.asleep.keys().copied());
            // It woke: whatever it is doing now, it is no call that would be cut short.
            let woke = |tid: &i32| now.get(tid).is_some_and(|sleeper| !sleeper.mark.is_still());
            left_alone.extend(early(inputs).filter(|tid| !woke(tid)));
        } else {
            left_alone.extend(early(inputs));
        }
        let max_pause = self.max_pause;
        let which = Which { pids, left_alone, first, allowance, max_pause };
        let work = move |processes: &mut [ProcessStop], deadline: Instant| turns.take(processes, deadline);
        // Signals that stop lockscope wait until the resumer knows that all threads are free.
        let deferred = DeferredSignals::begin();
        let standing = self.resumer.map(|resumer| resumer.begin(which.allowance + max_pause));
        let stopped = stop::joint_stop(self.proc_fs, which, work);
        drop(standing);
        drop(deferred);
        let Stopped { result, processes, pause, broken } = stopped?;
        let (taken, copier, restless) = result?;
        Ok(Round { processes, taken, copier, restless, pause, released: Some(Instant::now()), broken })
    }

    /// Read the threads that sleep, copy, and believe of it what they slept through.
    fn look_without_stop(&self, inputs: &Inputs, mut copier: Copier) -> Result<Seen, StopError> {
        let read = || self.sleepers.map(|sleepers| locked(sleepers).read(&inputs.pids())).unwrap_or_default();
        let tids = |pid: i32| self.proc_fs.threads(pid).unwrap_or_default();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let before: Reading = read();
            let pids = inputs.facts.iter().map(|facts| facts.pid);
            let mut processes: Vec<ProcessStop> =
                pids.clone().map(|pid| unstopped::outcomes(&tids(pid), &before)).collect();
            let taken = take_all(inputs, &mut copier, &processes, Instant::now() + UNSTOPPED_TIME)?;
            let after: Reading = read();
            // Those that ran from the start will run the next time too.
            let mut sleepers_moved = false;
            for (outcomes, pid) in processes.iter_mut().zip(pids) {
                let moved = unstopped::moved(outcomes, &tids(pid), &before, &after);
                sleepers_moved |= moved.iter().any(|tid| !matches!(outcomes.get(tid), Some(Outcome::Awake { .. })));
                unstopped::take_back(outcomes, &moved, &after);
            }
            if !sleepers_moved || attempt == UNSTOPPED_ATTEMPTS {
                let (pause, spent) = (Duration::ZERO, Duration::ZERO);
                let broken = BTreeSet::new();
                return Ok(Seen { processes, taken, copier, pause, rounds: 0, spent, released: None, broken });
            }
        }
    }
}

/// Threads that slept, when the facts were read, in a call that a stop would cut short.
fn early(inputs: &Inputs) -> impl Iterator<Item = i32> + '_ {
    let threads = inputs.facts.iter().flat_map(|facts| &facts.threads);
    threads.filter(|(_, facts)| facts.spared().is_some()).map(|(&tid, _)| tid)
}

/// The result of one round.
struct Round {
    processes: Vec<ProcessStop>,
    taken: TakenOfAll,
    copier: Copier,
    restless: BTreeSet<i32>,
    pause: Duration,
    released: Option<Instant>,
    broken: BTreeSet<i32>,
}

/// The work under the stop, done again as long as sleepers wake.
struct Turns {
    inputs: Arc<Inputs>,
    sleepers: Option<Arc<Mutex<SleepReader>>>,
    copier: Option<Copier>,
    /// Those that were left asleep, as they were read.
    asleep: Reading,
    /// Those that woke once: they are not left asleep a second time.
    restless: BTreeSet<i32>,
    count: u32,
}

/// The copied state, the copier that has the copies, and the threads that must not be left asleep again.
type Taken = (TakenOfAll, Copier, BTreeSet<i32>);

impl Turns {
    /// All threads asleep, where they may be left so.
    fn read(&self) -> Option<Reading> {
        let sleepers = self.sleepers.as_ref()?;
        Some(locked(sleepers).read(&self.inputs.pids()))
    }

    /// Copy, and see who has slept through it.
    fn take(&mut self, processes: &mut [ProcessStop], deadline: Instant) -> Work<Result<Taken, StopError>> {
        self.count += 1;
        for (tid, outcome) in processes.iter_mut().flatten() {
            if let (Outcome::Spared | Outcome::Asleep(_), Some(sleeper)) = (&outcome, self.asleep.get(tid)) {
                *outcome = Outcome::Asleep(*sleeper);
            }
        }
        let Some(mut copier) = self.copier.take() else {
            return Work::Done(Err(StopError::Tracer(io::Error::other("no copier was left"))));
        };
        let taken = match take_all(&self.inputs, &mut copier, processes, deadline) {
            Ok(taken) => taken,
            Err(error) => return Work::Done(Err(error)),
        };
        let now = if self.asleep.is_empty() { None } else { self.read() };
        let stirred = now.as_ref().map(|now| unstopped::stirred(processes, now)).unwrap_or_default();
        if !stirred.is_empty() && self.count < MOST_TURNS && Instant::now() < deadline {
            self.copier = Some(copier);
            return Work::Again(self.read_again(&stirred, &now.unwrap_or_default()));
        }
        for (tid, outcome) in processes.iter_mut().flatten().filter(|(tid, _)| stirred.contains(tid)) {
            *outcome = Outcome::Woke;
            self.restless.insert(*tid);
        }
        Work::Done(Ok((taken, copier, std::mem::take(&mut self.restless))))
    }

    /// Take in those of them that sleep again as they are `now`; the others, who have to be stopped.
    fn read_again(&mut self, stirred: &BTreeSet<i32>, now: &Reading) -> BTreeSet<i32> {
        let mut stop = BTreeSet::new();
        for &tid in stirred {
            let again = now.get(&tid).filter(|sleeper| sleeper.is_known());
            let is_first = self.restless.insert(tid);
            let would_break = |call| spared::early(&call).is_some();
            match again.filter(|sleeper| is_first || sleeper.call().is_some_and(would_break)) {
                Some(sleeper) => drop(self.asleep.insert(tid, *sleeper)),
                None => {
                    self.asleep.remove(&tid);
                    stop.insert(tid);
                }
            }
        }
        stop
    }
}

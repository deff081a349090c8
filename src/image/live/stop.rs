//! The joint stop: all threads of some processes stand still, something is done, all go on.
//!
//! In: process ids, a time budget, and the work to do meanwhile. Out: each thread's registers or why there are none,
//! the work's result, and how long the stop lasted. It reads no memory and decodes nothing. The caller names threads
//! that may be left asleep, and the work may request stops of more threads while the others stand.
//!
//! One thread makes all ptrace calls, and ends with the release: PTRACE_DETACH fails on a thread that never came to its
//! stop (state D), and only its tracer's exit frees it. Threads are seized and interrupted, never attached to, so that
//! no signal is sent and a group-stop is kept. There is no EXITKILL, so that the target lives on whatever happens to
//! lockscope. The tracing thread reads no memory and never waits without a time limit. So its end, by its own will or
//! by SIGKILL, frees the target at once. A call of ptrace that itself does not return is given up: the caller of the
//! stop continues without it, and the threads are free when lockscope ends.
//!
//! The pause, detaches included, stays within its limit: their time is estimated from the time that stopping took. It
//! begins with the first thread that stands. Threads that were late before come first, alone. Until one of them stands,
//! no thread stands still because of them, however busy the machine. The thread that traces is urgent (where it may).
//! It naps longer between two checks than a check takes, so that on a machine with one processor the awaited threads
//! run.
//!
//! Threads that were interrupted and did not come to their stop by then, as on a machine where hundreds wait for a processor, run
//! on; each is let go at the moment when it comes, with its call repaired (to end the tracing before that made 11 of 35 calls
//! return early at a load of 600).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::asleep::Sleeper;
use super::interrupted::Calls;
use super::proc_fs::{self, ProcFs};
use super::reaping;
use crate::arch::Architecture;
use crate::limits::live::MOST_STOP_ROUNDS;
use crate::sys::{self, RegisterBytes};

/// The threads that a sample may stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stopping {
    /// Threads that move, and sleepers whose registers are not available otherwise.
    #[default]
    AsNeeded,
    /// All that no stop would harm.
    Always,
    /// None.
    Never,
}

/// How one thread fared.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    /// It stood still, with these registers; restartable calls show the restart that they were given.
    Stopped(RegisterBytes),
    /// lockscope asked it to stop, and it did not.
    NotStopped {
        /// Its state letter when the waiting ended, if there was time to read it.
        state: Option<char>,
    },
    /// The kernel refused.
    Refused(Errno),
    /// lockscope did not ask it to stop, and knows nothing about it: a stop would change the result of its call.
    Spared,
    /// It was not asked: its seccomp filter may end the process for the call by which the kernel goes on after a stop.
    Filtered,
    /// It was not asked, because it slept all the time and was read so.
    Asleep(Sleeper),
    /// lockscope did not ask it to stop, because nothing may be stopped, and it moved.
    Awake {
        /// Its state letter, or `?`.
        state: char,
    },
    /// It was left asleep, and woke when there was no time left to stop it.
    Woke,
    /// lockscope did not ask it to stop, because the time was over before its turn.
    NotReached,
    /// It had exited, or did so before its stop.
    Ended,
}

/// All threads of a process at the stop, by thread id.
pub(super) type ProcessStop = BTreeMap<i32, Outcome>;

/// The result of a joint stop.
#[derive(Debug)]
pub(super) struct Stopped<T> {
    /// The work's result.
    pub(super) result: T,
    /// The processes, in the requested order.
    pub(super) processes: Vec<ProcessStop>,
    /// From the first thread that stood to the last detach.
    pub(super) pause: Duration,
    /// Threads whose call says EINTR since they were stopped.
    pub(super) broken: BTreeSet<i32>,
}

/// Why there was no joint stop.
#[derive(Debug)]
pub(super) enum StopError {
    /// The process replaced its program meanwhile.
    Executed(i32),
    /// No thread of the process could be seized.
    Denied(i32, Errno),
    /// The kernel did not return from a call that stops a thread of this process or of another one.
    NoAnswer(i32),
    /// The tracer thread could not be started, or failed.
    Tracer(io::Error),
    /// No process could be started to copy memory with.
    Copier(io::Error),
}

/// Threads in state D are waited for this long after the last other one stopped.
const GRACE: Duration = Duration::from_millis(3);
/// Threads that were interrupted and did not come to their stop are waited for so long after the release of the others.
const UNTIL_LATE_ONES_COME: Duration = Duration::from_secs(10);
/// The same where all of them are in state D: what they are in was not interrupted.
const UNTIL_LEFT_IN_D: Duration = Duration::from_millis(20);

/// Which threads to stop: those of `pids`, but not those `left_alone`; and for how long.
#[derive(Debug, Clone)]
pub(super) struct Which {
    /// Processes.
    pub(super) pids: Vec<i32>,
    /// Threads that go on as they are.
    pub(super) left_alone: BTreeSet<i32>,
    /// Threads that may take long to come to their stops, by the processes' order: lockscope asks them before all
    /// others.
    pub(super) first: BTreeSet<(usize, i32)>,
    /// How long to wait for the first of those while nothing stands still.
    pub(super) allowance: Duration,
    /// From the first thread that stands to the last detach.
    pub(super) max_pause: Duration,
}

/// The result of the work.
#[derive(Debug)]
pub(super) enum Work<T> {
    /// That was all.
    Done(T),
    /// It is to be called again, after these threads were stopped, too.
    Again(BTreeSet<i32>),
}

/// Stop threads, do `work`, release them. `work` gets the threads and the instant to be done by, and may say better how they
/// fared. Signals that would end lockscope wait meanwhile: its end between an interrupt and the detach would let calls of the
/// target return early.
pub(super) fn joint_stop<T: Send + 'static>(
    proc_fs: &ProcFs,
    which: Which,
    work: impl FnMut(&mut [ProcessStop], Instant) -> Work<T> + Send + 'static,
) -> Result<Stopped<T>, StopError> {
    let (pids, longest) = (which.pids.clone(), which.allowance + which.max_pause);
    let deferred = sys::DeferredSignals::begin();
    let (tell, told) = channel();
    let (own_proc_fs, tell_id) = (proc_fs.clone(), tell.clone());
    let tracer = std::thread::Builder::new().name("tracer".to_owned()).spawn(move || {
        let _ = tell_id.send(Told::Id(nix::unistd::gettid().as_raw()));
        let outcome = Tracer::new(&own_proc_fs, which).run(work, || drop(tell_id.send(Told::OthersAreFree)));
        let _ = tell.send(Told::Outcome(outcome));
    });
    if let Err(error) = tracer {
        return Err(StopError::Tracer(error));
    }
    let (tracer_id, outcome) = hear(proc_fs, &told, &pids, longest);
    await_exit(proc_fs, tracer_id);
    drop(deferred);
    outcome.unwrap_or(Err(StopError::NoAnswer(pids.first().copied().unwrap_or(0))))
}

/// A message of the tracer thread.
enum Told<T> {
    Id(i32),
    /// Only threads are awaited that run.
    OthersAreFree,
    Outcome(Result<Stopped<T>, StopError>),
}

/// The tracer's thread id and the outcome; none if it does not return from a call. Where it is in one for the sake of an exec of
/// these processes, that is ended.
fn hear<T>(
    proc_fs: &ProcFs,
    told: &Receiver<Told<T>>,
    pids: &[i32],
    longest: Duration,
) -> (i32, Option<Result<Stopped<T>, StopError>>) {
    /// The time between two checks of a late tracer, and the number of consecutive checks that must show it waiting. It
    /// naps itself while it is in time, and on a busy machine it is ready to run.
    const STEP: Duration = Duration::from_millis(20);
    const GLANCES: u32 = 5;
    let begin = Instant::now();
    let mut longest = longest + STEP;
    let mut id = 0;
    let mut waiting = 0;
    loop {
        let heard = told.recv_timeout(STEP);
        if heard.is_err() {
            reaping::free_an_exec(proc_fs, id, pids);
        }
        match heard {
            Ok(Told::Id(tid)) => id = tid,
            Ok(Told::OthersAreFree) => longest = begin.elapsed() + UNTIL_LATE_ONES_COME + STEP,
            Ok(Told::Outcome(outcome)) => return (id, Some(outcome)),
            Err(RecvTimeoutError::Disconnected) => {
                return (id, Some(Err(StopError::Tracer(io::Error::other("the tracer thread failed")))));
            }
            Err(RecvTimeoutError::Timeout) if begin.elapsed() > longest => {
                let state =
                    proc_fs::stat(&proc_fs.root().join("self/task").join(id.to_string())).map(|stat| stat.state);
                waiting = if matches!(state, Some('S' | 'D')) { waiting + 1 } else { 0 };
                if waiting == GLANCES {
                    return (id, None);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A joined thread may still be on its way out of the kernel, and frees what it did not detach only there.
fn await_exit(proc_fs: &ProcFs, tracer_id: i32) {
    let directory = proc_fs.root().join("self/task").join(tracer_id.to_string());
    let begin = Instant::now();
    while tracer_id != 0 && directory.exists() && begin.elapsed() < Duration::from_millis(200) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A thread on its way into the stop.
#[derive(Debug, Clone, Copy)]
enum Progress {
    /// Seized and interrupted.
    Awaited,
    /// Stands still; its signal is to be handed on at the detach.
    Stands { registers: RegisterBytes, undelivered: i32 },
    /// There will be no stop.
    Final(Outcome),
}

#[derive(Debug)]
struct Tracer<'a> {
    proc_fs: &'a ProcFs,
    which: Which,
    threads: Vec<BTreeMap<i32, Progress>>,
    clock: Clock,
    /// The time that interrupting took.
    interrupting: Duration,
    /// The calls that threads sleep in.
    calls: Calls<'a>,
}

/// How long all may last.
#[derive(Debug)]
struct Clock {
    begin: Instant,
    allowance: Duration,
    /// A part of the limit: on a busy machine the last detaches take longer than what went before lets one think.
    most: Duration,
    /// Since when a thread may stand still.
    held: Option<Instant>,
}

impl Clock {
    /// When all must be over.
    fn end(&self) -> Instant {
        self.held.unwrap_or(self.begin + self.allowance) + self.most
    }

    /// Until when stops are waited for. A quarter of the time stays for the copying.
    fn stops_end(&self) -> Instant {
        self.end() - self.most / 4
    }

    /// Until when those are waited for that come first. Half of the time stays for the others.
    fn first_end(&self) -> Instant {
        self.held.map_or(self.begin + self.allowance, |held| held + self.most / 2)
    }
}

impl<'a> Tracer<'a> {
    fn new(proc_fs: &'a ProcFs, which: Which) -> Self {
        let threads = vec![BTreeMap::new(); which.pids.len()];
        let most = which.max_pause * 4 / 5;
        let clock = Clock { begin: Instant::now(), allowance: which.allowance, most, held: None };
        Tracer { proc_fs, which, threads, clock, interrupting: Duration::ZERO, calls: Calls::new(proc_fs) }
    }

    /// `others_are_free` is called when only threads are awaited that run.
    fn run<T>(
        mut self,
        mut work: impl FnMut(&mut [ProcessStop], Instant) -> Work<T>,
        others_are_free: impl FnOnce(),
    ) -> Result<Stopped<T>, StopError> {
        sys::set_urgent(true);
        let mut stopped = self.stop_first().and_then(|()| self.stop_all());
        let mut processes = Vec::new();
        let mut result = None;
        while result.is_none() && stopped.is_ok() {
            let by = self.clock.end().checked_sub(self.release_time()).unwrap_or(self.clock.begin);
            processes = self.outcomes(by);
            match work(&mut processes, by) {
                Work::Done(done) => result = Some(done),
                Work::Again(also) => {
                    for threads in &mut self.threads {
                        threads.retain(|tid, _| !also.contains(tid));
                    }
                    self.which.left_alone.retain(|tid| !also.contains(tid));
                    if !also.is_empty() {
                        stopped = self.stop_all();
                    }
                }
            }
        }
        let pause = self.release();
        sys::set_urgent(false);
        others_are_free();
        self.release_late_ones();
        stopped?;
        let result = result.ok_or_else(|| StopError::Tracer(io::Error::other("the tracer thread failed")))?;
        Ok(Stopped { result, processes, pause, broken: self.calls.broken() })
    }

    /// The expected time to release all interrupted threads, from the time that interrupting them took. Both are a
    /// system call or two a thread, and each makes a thread run (measured: a detach takes about half of a seize and an
    /// interrupt).
    fn release_time(&self) -> Duration {
        const LEAST: Duration = Duration::from_micros(200);
        LEAST + self.interrupting
    }

    /// Stop the threads that come first. Nothing stands still before one of them does.
    fn stop_first(&mut self) -> Result<(), StopError> {
        for (index, tid) in std::mem::take(&mut self.which.first) {
            // No code checks yet which threads have come. The others follow with all threads of the process, or the
            // next time.
            if self.release_time() * 6 >= self.clock.most {
                break;
            }
            if index < self.threads.len() && !self.which.left_alone.contains(&tid) {
                // A refusal of the kernel is found again with all threads of the process.
                if let (progress, None) = self.seize(index, tid) {
                    self.threads[index].insert(tid, progress);
                }
            }
        }
        self.await_stops(Clock::first_end)
    }

    /// Until the time is over, or until what is left of it is needed for the release.
    fn stop_all(&mut self) -> Result<(), StopError> {
        for _ in 0..MOST_STOP_ROUNDS {
            let mut found_new = false;
            for index in 0..self.which.pids.len() {
                found_new |= self.seize_new(index)?;
            }
            if !found_new {
                break;
            }
            let release = self.release_time() * 2;
            let by = move |clock: &Clock| {
                clock.stops_end().min(clock.end().checked_sub(release).unwrap_or(clock.stops_end()))
            };
            self.await_stops(by)?;
            if Instant::now() >= by(&self.clock) {
                break;
            }
        }
        Ok(())
    }

    /// Seize and interrupt the threads of a process that are not yet known; whether there were any.
    fn seize_new(&mut self, index: usize) -> Result<bool, StopError> {
        let pid = self.which.pids[index];
        let mut found_new = false;
        let mut refused = None;
        for tid in self.proc_fs.threads(pid).unwrap_or_default() {
            if self.threads[index].contains_key(&tid) {
                continue;
            }
            if self.which.left_alone.contains(&tid) {
                self.threads[index].insert(tid, Progress::Final(Outcome::Spared));
                continue;
            }
            let now = Instant::now();
            // As long again to let them go, and as long to come to their stops and to be copied.
            if now >= self.clock.stops_end() || now + self.release_time() * 3 >= self.clock.end() {
                self.threads[index].insert(tid, Progress::Final(Outcome::NotReached));
                continue;
            }
            found_new = true;
            self.clock.held.get_or_insert(now);
            let (progress, errno) = self.seize(index, tid);
            refused = errno.or(refused);
            self.threads[index].insert(tid, progress);
        }
        let any_seized = self.threads[index]
            .values()
            .any(|progress| matches!(progress, Progress::Awaited | Progress::Stands { .. }));
        match refused {
            Some(errno) if !any_seized => Err(StopError::Denied(pid, errno)),
            _ => Ok(found_new),
        }
    }

    /// Seize and interrupt a thread; and why the kernel refused.
    fn seize(&mut self, index: usize, tid: i32) -> (Progress, Option<Errno>) {
        let begin = Instant::now();
        let id = Pid::from_raw(tid);
        if !self.calls.may_be_stopped(self.which.pids[index], tid) {
            return (Progress::Final(Outcome::Filtered), None);
        }
        self.calls.before_stop(self.which.pids[index], tid);
        // An exec is reported, since it makes all that was read before worthless.
        let seized = ptrace::seize(id, ptrace::Options::PTRACE_O_TRACEEXEC).and_then(|()| ptrace::interrupt(id));
        self.interrupting += begin.elapsed();
        match seized {
            Ok(()) => (Progress::Awaited, None),
            Err(Errno::ESRCH) => (Progress::Final(Outcome::Ended), None),
            // Threads that have exited are refused with EPERM as well.
            Err(_) if self.state(self.which.pids[index], tid).is_none() => (Progress::Final(Outcome::Ended), None),
            Err(errno) => (Progress::Final(Outcome::Refused(errno)), Some(errno)),
        }
    }

    /// Wait until each thread stands still, has exited, or is not going to stop; or until the clock says so.
    fn await_stops(&mut self, deadline: impl Fn(&Clock) -> Instant) -> Result<(), StopError> {
        const SHORTEST_NAP: Duration = Duration::from_micros(20);
        const LONGEST_NAP: Duration = Duration::from_micros(500);
        let mut nap = SHORTEST_NAP;
        let mut last_arrival = Instant::now();
        loop {
            let glance = Instant::now();
            let mut awaited = 0;
            for index in 0..self.which.pids.len() {
                let waiting: Vec<i32> = self.awaited(index).collect();
                for tid in waiting {
                    match sys::poll_stop(tid) {
                        Ok(None) => awaited += 1,
                        Ok(Some(stop)) => {
                            self.clock.held.get_or_insert(glance);
                            let arrived = arrive(&mut self.calls, self.which.pids[index], tid, stop);
                            self.threads[index].insert(tid, arrived);
                            if stop.is_exec() {
                                return Err(StopError::Executed(self.which.pids[index]));
                            }
                            last_arrival = Instant::now();
                        }
                        Err(_) => {
                            self.threads[index].insert(tid, Progress::Final(Outcome::Ended));
                        }
                    }
                }
            }
            if awaited == 0 || Instant::now() >= deadline(&self.clock) {
                return Ok(());
            }
            if last_arrival.elapsed() >= GRACE && self.only_unstoppable_left() {
                return Ok(());
            }
            std::thread::sleep(nap.max(glance.elapsed()));
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }

    /// Whether all threads still awaited are in state D. Notes threads that have exited.
    fn only_unstoppable_left(&mut self) -> bool {
        let mut only = true;
        for index in 0..self.which.pids.len() {
            let waiting: Vec<i32> = self.awaited(index).collect();
            for tid in waiting {
                match self.state(self.which.pids[index], tid) {
                    None => {
                        self.threads[index].insert(tid, Progress::Final(Outcome::Ended));
                    }
                    Some(state) => only &= state == 'D',
                }
            }
        }
        only
    }

    fn awaited(&self, index: usize) -> impl Iterator<Item = i32> + '_ {
        self.threads[index].iter().filter(|(_, progress)| matches!(progress, Progress::Awaited)).map(|(&tid, _)| tid)
    }

    /// State letter of a thread that has not exited.
    fn state(&self, pid: i32, tid: i32) -> Option<char> {
        proc_fs::stat(&self.proc_fs.task(pid, tid)).filter(|stat| !stat.is_dead()).map(|stat| stat.state)
    }

    /// The outcomes of all threads. For those that did not stop, their states are read until `deadline`.
    fn outcomes(&self, deadline: Instant) -> Vec<ProcessStop> {
        let outcome = |pid: i32, tid: i32, progress: &Progress| match *progress {
            Progress::Stands { registers, .. } => Outcome::Stopped(registers),
            Progress::Final(outcome) => outcome,
            Progress::Awaited if Instant::now() >= deadline => Outcome::NotStopped { state: None },
            Progress::Awaited => match self.state(pid, tid) {
                state @ Some(_) => Outcome::NotStopped { state },
                None => Outcome::Ended,
            },
        };
        self.which
            .pids
            .iter()
            .zip(&self.threads)
            .map(|(&pid, threads)| threads.iter().map(|(&tid, progress)| (tid, outcome(pid, tid, progress))).collect())
            .collect()
    }

    /// Let all go that have come to their stop; how long it lasted.
    fn release(&mut self) -> Duration {
        for (&pid, threads) in self.which.pids.iter().zip(&mut self.threads) {
            for (&tid, progress) in threads {
                match progress {
                    Progress::Stands { undelivered, .. } => let_go(&mut self.calls, tid, *undelivered),
                    Progress::Awaited if let_go_if_come(&mut self.calls, pid, tid) => {
                        *progress = Progress::Final(Outcome::Ended);
                    }
                    _ => {}
                }
            }
        }
        self.clock.held.map_or(Duration::ZERO, |begin| begin.elapsed())
    }

    /// Let the others go as they come to their stop, in which none stands for longer than it takes to repair its call. Those that do
    /// not come go free with this thread's exit.
    fn release_late_ones(&mut self) {
        const NAP: Duration = Duration::from_micros(300);
        let begin = Instant::now();
        let mut last_arrival = begin;
        let mut in_d_since: Option<Instant> = None;
        while begin.elapsed() < UNTIL_LATE_ONES_COME {
            let mut awaited = 0;
            let threads = self.which.pids.iter().zip(&mut self.threads);
            for (&pid, (&tid, progress)) in
                threads.flat_map(|(pid, threads)| threads.iter_mut().map(move |one| (pid, one)))
            {
                if !matches!(progress, Progress::Awaited) {
                    continue;
                }
                if let_go_if_come(&mut self.calls, pid, tid) {
                    *progress = Progress::Final(Outcome::Ended);
                    last_arrival = Instant::now();
                } else {
                    awaited += 1;
                }
            }
            if awaited == 0 {
                return;
            }
            if last_arrival.elapsed() >= GRACE {
                in_d_since = in_d_since.or(Some(Instant::now())).filter(|_| self.only_unstoppable_left());
                last_arrival = Instant::now();
            }
            if in_d_since.is_some_and(|since| since.elapsed() >= UNTIL_LEFT_IN_D) {
                return;
            }
            std::thread::sleep(NAP);
        }
    }
}

/// Let a thread go that stands.
fn let_go(calls: &mut Calls<'_>, tid: i32, undelivered: i32) {
    calls.before_release(tid);
    // Fails only for a thread that was killed in its stop.
    let _ = sys::detach(tid, undelivered);
}

/// Let a thread go that was interrupted, if it has come to its stop since, or was ended; whether that is so.
fn let_go_if_come(calls: &mut Calls<'_>, pid: i32, tid: i32) -> bool {
    match sys::poll_stop(tid) {
        Ok(None) => false,
        Ok(Some(stop)) => {
            if let Progress::Stands { undelivered, .. } = arrive(calls, pid, tid, stop) {
                let_go(calls, tid, undelivered);
            }
            true
        }
        Err(_) => true,
    }
}

/// Read the registers of a thread that has come to its stop, and have the call go on that the stop interrupted.
fn arrive(calls: &mut Calls<'_>, pid: i32, tid: i32, stop: sys::Stop) -> Progress {
    let second = Architecture::NATIVE.second_register_set();
    let Ok(mut registers) = sys::registers(tid, second) else { return Progress::Final(Outcome::Ended) };
    if calls.at_stop(pid, tid, &registers, stop) {
        registers = sys::registers(tid, second).unwrap_or(registers);
    }
    Progress::Stands { registers, undelivered: stop.undelivered() }
}

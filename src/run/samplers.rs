//! Samples by another process, for one that keeps limits: requests, time limits, and a replacement for a lost process.
//!
//! In: a [`Wanted`], and its [`Supervisor`]. Out: the sample, or the reason why there is none. A sampling process can
//! hang or die because of its target. Then it is left behind and another process takes the next sample. Nothing here
//! decides when to sample.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::gpu_trigger::LONGEST_DUMP;
use super::sampler::{self, Answer, Requests};
use super::{Event, LookError, Next, Purpose, Wanted, Watch};
use crate::limits::run::MOST_LOOKERS;
use crate::sys::{self, Ended, Forked};

/// A sample that takes longer than this is given up; on a machine under load the longest took 25 s, of 5,000 threads in
/// one chain.
const TIME_OF_A_LOOK: Duration = Duration::from_secs(120);
/// The same of the last samples of proven hangs, which are up to three.
const TIME_OF_A_PROOF: Duration = Duration::from_secs(60);
/// The same if a limit has passed, or another program waits for the end.
const TIME_OF_A_LAST_LOOK: Duration = Duration::from_secs(10);
/// A sample that uses a processor goes on for this many times as long: a busy machine makes it late, a hang leaves it idle.
const AT_WORK: u32 = 3;
/// A sampling process is idle after this time without processor time.
const UNTIL_IDLE: Duration = Duration::from_secs(2);
/// Between two checks of the supervisor during a sample.
const BETWEEN_CHECKS: Duration = Duration::from_millis(100);
/// A process that was killed and does not end: it waits for something in the kernel, and is left behind.
const UNTIL_LEFT: Duration = Duration::from_secs(2);

/// The sampling processes, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Samplers {
    now: Option<Sampler>,
    /// How many were started since one has answered.
    started: u32,
    /// Left behind, and not ended then.
    left: Vec<i32>,
    /// Whether it was reported that no more samplers are started.
    is_reportable: bool,
}

#[derive(Debug)]
struct Sampler {
    pid: i32,
    requests: Requests,
}

impl Samplers {
    /// With one that serves already.
    pub(super) fn with(pid: i32, socket: UnixStream) -> io::Result<Samplers> {
        let now = Some(Sampler { pid, requests: Requests::new(socket)? });
        Ok(Samplers { now, started: 1, left: Vec::new(), is_reportable: false })
    }

    /// The process id of the current sampler.
    pub(super) fn pid(&self) -> Option<i32> {
        self.now.as_ref().map(|sampler| sampler.pid)
    }

    /// The processor time of the current sampler.
    fn cpu_time(&self) -> Option<Duration> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.pid()?)).ok()?;
        clock_gettime(clock).ok().map(Duration::from)
    }

    /// Readable when it has answered.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.now.as_ref().map(|sampler| sampler.requests.socket().as_fd())
    }

    /// Wait until a sample or one of `others` comes.
    pub(crate) fn wait(&self, others: &[BorrowedFd<'_>], within: Duration) {
        sampler::poll_all(others.iter().copied().chain(self.socket()), within);
    }

    /// A child has ended: how it was lost, if that was the sampler.
    pub(super) fn ended(&mut self, pid: i32, status: u8) -> Option<LookError> {
        self.now.take_if(|sampler| sampler.pid == pid).map(|_| LookError::Lost(how_it_ended(status)))
    }

    /// End the sampler. The kernel lets go what it had stopped.
    pub(super) fn drop_looker(&mut self) {
        let Some(sampler) = self.now.take() else { return };
        let _ = kill(Pid::from_raw(sampler.pid), Signal::SIGKILL);
        let until = Instant::now() + UNTIL_LEFT;
        while matches!(sys::ended_child(Some(sampler.pid), false), Ok(None)) {
            if Instant::now() >= until {
                return self.left.push(sampler.pid);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// It does not answer any more: how it ended.
    pub(super) fn lost(&mut self, error: LookError) -> LookError {
        let Some(sampler) = &self.now else { return error };
        let (pid, until) = (sampler.pid, Instant::now() + UNTIL_LEFT);
        let mut how = None;
        while how.is_none() && Instant::now() < until {
            how = match sys::ended_child(Some(pid), false) {
                Ok(Some(Ended { status, .. })) => Some(status),
                Ok(None) => {
                    std::thread::sleep(Duration::from_millis(1));
                    None
                }
                Err(_) => break,
            };
        }
        self.drop_looker();
        how.map_or(error, |status| LookError::Lost(how_it_ended(status)))
    }

    /// Whether the failure of a sample, which is not the last, should be reported. That no more samplers are started is
    /// reported once.
    pub(crate) fn is_news(&mut self, error: &LookError) -> bool {
        match error {
            LookError::TooLong(_) | LookError::Lost(_) => true,
            LookError::NoLooker => !std::mem::replace(&mut self.is_reportable, true),
            LookError::Target(_) | LookError::Told(_) => false,
        }
    }

    /// Ask for a sample; one at a time.
    fn ask(&mut self, wanted: &Wanted) -> Result<(), LookError> {
        if self.now.is_none() {
            self.now = Some(self.another()?);
        }
        match &mut self.now {
            Some(sampler) => sampler.requests.ask(wanted),
            None => Err(LookError::NoLooker),
        }
    }

    /// The requested sample, once it has come.
    fn answer(&mut self) -> Result<Option<Answer>, LookError> {
        let Some(sampler) = &mut self.now else { return Err(LookError::NoLooker) };
        let answer = sampler.requests.answer();
        if matches!(answer, Ok(Some(_))) {
            self.started = 1;
        }
        answer
    }

    /// A sampler that is no ancestor of its target. If the kernel lets only ancestors attach, it reports so. This
    /// process must have one thread.
    fn another(&mut self) -> Result<Sampler, LookError> {
        self.left.retain(|&pid| matches!(sys::ended_child(Some(pid), false), Ok(None)));
        if self.started >= MOST_LOOKERS {
            return Err(LookError::NoLooker);
        }
        self.started += 1;
        let failed = |error: io::Error| LookError::Lost(error.to_string());
        let (own, theirs) = UnixStream::pair().map_err(failed)?;
        let supervisor = std::process::id() as i32;
        match sys::fork().map_err(|errno| failed(errno.into()))? {
            Forked::Child => {
                drop(own);
                sys::leave_standard_files();
                sys::close_all_but(theirs.as_fd());
                sampler::serve(theirs, supervisor, None);
                std::process::exit(0)
            }
            Forked::Parent(pid) => Ok(Sampler { pid, requests: Requests::new(own).map_err(failed)? }),
        }
    }
}

impl Drop for Samplers {
    fn drop(&mut self) {
        self.drop_looker();
    }
}

fn how_it_ended(status: u8) -> String {
    match status.checked_sub(128).filter(|signal| *signal > 0) {
        Some(signal) => {
            let name = Signal::try_from(i32::from(signal))
                .map_or_else(|_| format!("signal {signal}"), |known| known.to_string());
            format!("the process that looks was ended by {name}")
        }
        None => format!("the process that looks ended with status {status}"),
    }
}

/// The owner of the samplers, which keeps limits and signals while they work.
pub(crate) trait Supervisor {
    /// Its samplers.
    fn samplers(&mut self) -> &mut Samplers;

    /// Wait for a sample or for anything else that is to be seen to, and see to it.
    fn tend(&mut self, within: Duration);

    /// Why the sample that goes on has become useless.
    fn useless(&mut self) -> Option<LookError> {
        None
    }

    /// Whether another program waits for the end of a sample that is not the last.
    fn is_hurried(&self) -> bool {
        false
    }

    /// Whether there is no time left for any sample.
    fn is_over(&self) -> bool {
        false
    }

    /// The sampling process does not answer any more.
    fn lost(&mut self, error: LookError) -> LookError {
        self.samplers().lost(error)
    }

    /// Tell that a sample came to nothing.
    fn tell(&mut self, error: &LookError);

    /// Have a sample taken; also returns its cost.
    fn look(&mut self, wanted: &Wanted) -> Answer {
        let began = Instant::now();
        let (mut used, mut at_work) = (None, began);
        if let Err(error) = self.samplers().ask(wanted) {
            return (Err(self.lost(error)), Duration::ZERO);
        }
        loop {
            match self.samplers().answer() {
                Ok(Some(answer)) => return answer,
                Ok(None) => {}
                Err(error) => return (Err(self.lost(error)), began.elapsed()),
            }
            if let Some(why) = self.useless() {
                return (Err(why), began.elapsed());
            }
            let longest = match wanted.purpose {
                Purpose::Routine if self.is_hurried() => TIME_OF_A_LAST_LOOK,
                Purpose::Routine => TIME_OF_A_LOOK,
                Purpose::Last(super::Reason::Hang) => TIME_OF_A_PROOF,
                Purpose::Last(_) | Purpose::FromOutside => TIME_OF_A_LAST_LOOK,
            };
            // Cores of GPUs come on top, and are read.
            let longest = match (&wanted.gpu_cores, wanted.purpose) {
                (Some(_), Purpose::Last(_)) => longest + LONGEST_DUMP * 2,
                _ => longest,
            };
            let used_now = self.samplers().cpu_time();
            if used_now != used {
                (used, at_work) = (used_now, Instant::now());
            }
            let longest = if at_work.elapsed() < UNTIL_IDLE { longest * AT_WORK } else { longest };
            if began.elapsed() >= longest || self.is_over() {
                self.samplers().drop_looker();
                return (Err(LookError::TooLong(began.elapsed())), began.elapsed());
            }
            self.tend(BETWEEN_CHECKS.min(longest.saturating_sub(began.elapsed())));
        }
    }

    /// Have the sample taken that the watch wants now, and those that follow from it.
    fn step(&mut self, watch: &mut Watch) -> Event {
        let Some(mut wanted) = watch.wanted() else { return Event::Nothing };
        loop {
            let (look, cost) = self.look(&wanted);
            if let (Purpose::Routine, Err(error)) = (wanted.purpose, &look)
                && self.samplers().is_news(error)
            {
                self.tell(error);
            }
            match watch.looked(wanted, cost, look) {
                Next::Look(next) => wanted = next,
                Next::Event(event) => return event,
            }
        }
    }
}

//! Looks by another process, for one that keeps limits: what is asked of it, how long is waited, and another one where it was lost.
//!
//! In: a [`Wanted`], and whoever wants it ([`Supervisor`]). Out: the look, or why there is none. What looks can hang or die of what it
//! looks at; then it is left behind and the next look is another process's. Nothing here decides when to look.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::gpu_trigger::LONGEST_DUMP;
use super::looker::{self, Answer, Requests};
use super::{Event, LookError, Next, Purpose, Wanted, Watch};
use crate::limits::run::MOST_LOOKERS;
use crate::sys::{self, Ended, Forked};

/// A look that takes longer than this is given up; on a machine under load the longest took 25 s, of 5,000 threads in one chain.
const TIME_OF_A_LOOK: Duration = Duration::from_secs(120);
/// The same of the last looks at what was proven to hang, which are up to three.
const TIME_OF_A_PROOF: Duration = Duration::from_secs(60);
/// The same where a limit has passed, or somebody waits for the end.
const TIME_OF_A_LAST_LOOK: Duration = Duration::from_secs(10);
/// Between two checks of the supervisor during a look.
const BETWEEN_CHECKS: Duration = Duration::from_millis(100);
/// A process that was killed and does not end: it waits for something in the kernel, and is left behind.
const UNTIL_LEFT: Duration = Duration::from_secs(2);

/// Those that look, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Lookers {
    now: Option<Looker>,
    /// How many were started since one has answered.
    started: u32,
    /// Left behind, and not ended then.
    left: Vec<i32>,
    /// It was told that there are no more.
    is_told: bool,
}

#[derive(Debug)]
struct Looker {
    pid: i32,
    requests: Requests,
}

impl Lookers {
    /// With one that serves already.
    pub(super) fn with(pid: i32, socket: UnixStream) -> io::Result<Lookers> {
        let now = Some(Looker { pid, requests: Requests::new(socket)? });
        Ok(Lookers { now, started: 1, left: Vec::new(), is_told: false })
    }

    /// The one that there is.
    pub(super) fn pid(&self) -> Option<i32> {
        self.now.as_ref().map(|looker| looker.pid)
    }

    /// Readable when it has answered.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.now.as_ref().map(|looker| looker.requests.socket().as_fd())
    }

    /// Wait until a look or one of `others` comes.
    pub(crate) fn wait(&self, others: &[BorrowedFd<'_>], within: Duration) {
        looker::poll_all(others.iter().copied().chain(self.socket()), within);
    }

    /// A child has ended: how it was lost, if that was the one that looks.
    pub(super) fn ended(&mut self, pid: i32, status: u8) -> Option<LookError> {
        self.now.take_if(|looker| looker.pid == pid).map(|_| LookError::Lost(how_it_ended(status)))
    }

    /// End the one that looks. The kernel lets go what it had stopped.
    pub(super) fn drop_looker(&mut self) {
        let Some(looker) = self.now.take() else { return };
        let _ = kill(Pid::from_raw(looker.pid), Signal::SIGKILL);
        let until = Instant::now() + UNTIL_LEFT;
        while matches!(sys::ended_child(Some(looker.pid), false), Ok(None)) {
            if Instant::now() >= until {
                return self.left.push(looker.pid);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// It does not answer any more: how it ended.
    pub(super) fn lost(&mut self, error: LookError) -> LookError {
        let Some(looker) = &self.now else { return error };
        let (pid, until) = (looker.pid, Instant::now() + UNTIL_LEFT);
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

    /// Whether it is to be told why a look, which is not the last, came to nothing: that no more are started once.
    pub(crate) fn is_news(&mut self, error: &LookError) -> bool {
        match error {
            LookError::TooLong(_) | LookError::Lost(_) => true,
            LookError::NoLooker => !std::mem::replace(&mut self.is_told, true),
            LookError::Target(_) | LookError::Told(_) => false,
        }
    }

    /// Ask for a look; one at a time.
    fn ask(&mut self, wanted: &Wanted) -> Result<(), LookError> {
        if self.now.is_none() {
            self.now = Some(self.another()?);
        }
        match &mut self.now {
            Some(looker) => looker.requests.ask(wanted),
            None => Err(LookError::NoLooker),
        }
    }

    /// A look that was asked for, once it has come.
    fn answer(&mut self) -> Result<Option<Answer>, LookError> {
        let Some(looker) = &mut self.now else { return Err(LookError::NoLooker) };
        let answer = looker.requests.answer();
        if matches!(answer, Ok(Some(_))) {
            self.started = 1;
        }
        answer
    }

    /// One that is no ancestor of what it looks at: where the kernel lets only these look, it says so. This process must have one
    /// thread.
    fn another(&mut self) -> Result<Looker, LookError> {
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
                looker::serve(theirs, supervisor, None);
                std::process::exit(0)
            }
            Forked::Parent(pid) => Ok(Looker { pid, requests: Requests::new(own).map_err(failed)? }),
        }
    }
}

impl Drop for Lookers {
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

/// Whoever has looks taken, and keeps limits and signals meanwhile.
pub(crate) trait Supervisor {
    /// Those that look for it.
    fn lookers(&mut self) -> &mut Lookers;

    /// Wait for a look or for anything else that is to be seen to, and see to it.
    fn tend(&mut self, within: Duration);

    /// Why the look that goes on has become useless.
    fn useless(&mut self) -> Option<LookError> {
        None
    }

    /// Whether somebody waits for the end of a look that is not the last.
    fn is_hurried(&self) -> bool {
        false
    }

    /// Whether there is no time left for any look.
    fn is_over(&self) -> bool {
        false
    }

    /// The process that looks does not answer any more.
    fn lost(&mut self, error: LookError) -> LookError {
        self.lookers().lost(error)
    }

    /// Tell that a look came to nothing.
    fn tell(&mut self, error: &LookError);

    /// Have a look taken; also what it cost.
    fn look(&mut self, wanted: &Wanted) -> Answer {
        let began = Instant::now();
        if let Err(error) = self.lookers().ask(wanted) {
            return (Err(self.lost(error)), Duration::ZERO);
        }
        loop {
            match self.lookers().answer() {
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
            if began.elapsed() >= longest || self.is_over() {
                self.lookers().drop_looker();
                return (Err(LookError::TooLong(began.elapsed())), began.elapsed());
            }
            self.tend(BETWEEN_CHECKS.min(longest.saturating_sub(began.elapsed())));
        }
    }

    /// Have the look taken that the watch wants now, and those that follow from it.
    fn step(&mut self, watch: &mut Watch) -> Event {
        let Some(mut wanted) = watch.wanted() else { return Event::Nothing };
        loop {
            let (look, cost) = self.look(&wanted);
            if let (Purpose::Routine, Err(error)) = (wanted.purpose, &look)
                && self.lookers().is_news(error)
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

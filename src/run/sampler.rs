//! The sampling process, for a process that keeps limits and signals: between `lockscope run` and its command, or
//! beside it.
//!
//! In: requests through a socket, each a [`Wanted`]. Out: an [`Answer`] to each. Under Yama's scope 1 only ancestors may
//! attach, so it stands above the command. A sampling process can hang or die because of its target, so another process
//! keeps the limits, the signals and the command's status. It ends nothing and prints nothing. The supervisor handles the
//! command's end: this process does not take its status. [`super::samplers`] is the supervisor's side.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::{Deserialize, Serialize};

use super::own_names::{LOOKER, take_name};
use super::{LastLook, LookError, Wanted};
use crate::analysis::Outcome;
use crate::limits::run::LONGEST_ANSWER;
use crate::report::Report;
use crate::sys;

/// The beginning of an answer; the bytes of the snapshot follow.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    report: Result<Report, String>,
    snapshot: Option<u64>,
    /// CPU time that the sample took, in nanoseconds.
    cost: u64,
}

/// The result of a request.
pub(super) type Answer = (LastLook, Duration);

/// Serve until the socket closes. `supervisor` is the parent, with which it ends.
pub(super) fn serve(socket: UnixStream, supervisor: i32, command: Option<i32>) {
    take_name(LOOKER);
    sys::prepare_heap();
    // In the midst of a stop it waits for the release: the target's calls go on.
    let _ = nix::sys::prctl::set_pdeathsig(sys::SUPERVISOR_ENDED);
    if nix::unistd::getppid().as_raw() != supervisor {
        return;
    }
    // Orphans of the command stay its descendants, to which it may attach.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    // But not what a fault of its own raises: blocked, it ends the process whatever its action is.
    let mut blocked = SigSet::all();
    for fault in [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGILL, Signal::SIGFPE, Signal::SIGTRAP, Signal::SIGABRT] {
        blocked.remove(fault);
    }
    blocked.remove(sys::SUPERVISOR_ENDED);
    // It goes on by it in any case; who sent it is to be seen (see the resumer of a stop).
    blocked.remove(Signal::SIGCONT);
    let _ = blocked.thread_set_mask();
    let children = SigSet::from(Signal::SIGCHLD);
    let Ok(children) = SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC) else { return };
    // A panic is an answer, see below: nobody reads what it prints.
    std::panic::set_hook(Box::new(|_| ()));
    let mut socket = socket;
    loop {
        let mut polled =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(children.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled, PollTimeout::NONE);
        let has_request = polled[0].any().unwrap_or(true);
        while let Ok(Some(_)) = children.read_signal() {}
        if collect(command) {
            return;
        }
        if !has_request {
            continue;
        }
        let Some(wanted) = read_frame(&mut socket).and_then(|bytes| serde_json::from_slice::<Wanted>(&bytes).ok())
        else {
            return;
        };
        if answer(&mut socket, &wanted).is_err() {
            return;
        }
        // It counts among the memory of the command's control group.
        sys::trim_heap();
    }
}

/// Collect orphans that have ended; whether the command has. That stays as it is, for the supervisor, whose child it becomes with the
/// end of this process.
fn collect(command: Option<i32>) -> bool {
    while let Ok(Some(ended)) = sys::ended_child(None, true) {
        if Some(ended.pid) == command {
            return true;
        }
        let _ = sys::ended_child(Some(ended.pid), false);
    }
    false
}

fn answer(socket: &mut UnixStream, wanted: &Wanted) -> io::Result<()> {
    let spent = super::cpu_time();
    let look = catch_unwind(AssertUnwindSafe(|| wanted.carry_out()));
    let cost = super::cpu_time().saturating_sub(spent);
    let (report, snapshot) = match look {
        Ok(Ok(outcome)) => (Ok(outcome.report), outcome.snapshot),
        Ok(Err(error)) => (Err(error.to_string()), None),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            (Err(format!("a mistake in lockscope ({})", text.unwrap_or("a panic"))), None)
        }
    };
    let header = Header {
        report,
        snapshot: snapshot.as_ref().map(|bytes| bytes.len() as u64),
        cost: u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX),
    };
    write_frame(socket, &serde_json::to_vec(&header).map_err(io::Error::other)?)?;
    socket.write_all(snapshot.as_deref().unwrap_or_default())
}

fn write_frame(socket: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    socket.write_all(&(bytes.len() as u64).to_le_bytes())?;
    socket.write_all(bytes)
}

fn read_frame(socket: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 8];
    socket.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut bytes = Vec::new();
    let read = socket.take(length.min(LONGEST_ANSWER)).read_to_end(&mut bytes).ok()?;
    (read as u64 == length).then_some(bytes)
}

/// The supervisor's end of the socket: it never waits.
#[derive(Debug)]
pub(super) struct Requests {
    socket: UnixStream,
    received: Vec<u8>,
}

impl Requests {
    pub(super) fn new(socket: UnixStream) -> io::Result<Requests> {
        socket.set_nonblocking(true)?;
        Ok(Requests { socket, received: Vec::new() })
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Ask; the requests of thousands of processes fit into the socket's buffer.
    pub(super) fn ask(&mut self, wanted: &Wanted) -> Result<(), LookError> {
        let bytes = serde_json::to_vec(wanted).map_err(|error| LookError::Lost(error.to_string()))?;
        write_frame(&mut self.socket, &bytes).map_err(|error| LookError::Lost(error.to_string()))
    }

    /// The answer, once all of it has come.
    pub(super) fn answer(&mut self) -> Result<Option<Answer>, LookError> {
        let lost = |why: &str| LookError::Lost(why.to_owned());
        let mut piece = [0; 64 << 10];
        let mut is_over = false;
        loop {
            match self.socket.read(&mut piece) {
                // A sampler that ended with the command may have answered before.
                Ok(0) => {
                    is_over = true;
                    break;
                }
                Ok(read) => self.received.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error.to_string())),
            }
            if self.received.len() as u64 > 2 * LONGEST_ANSWER {
                return Err(lost("its answer has no end"));
            }
        }
        match self.whole_answer()? {
            None if is_over => Err(lost("the process that looks has ended")),
            answer => Ok(answer),
        }
    }

    /// The received answer, once it is complete.
    fn whole_answer(&mut self) -> Result<Option<Answer>, LookError> {
        let lost = |why: &str| LookError::Lost(why.to_owned());
        let Some((length, rest)) = self.received.split_first_chunk::<8>() else { return Ok(None) };
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| lost("its answer is damaged"))?;
        let Some((header, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        // Parsed again with each piece of a snapshot that follows: a few, of one sample.
        let header: Header = serde_json::from_slice(header).map_err(|error| lost(&error.to_string()))?;
        let snapshot = match header.snapshot.map(usize::try_from) {
            None => None,
            Some(Ok(length)) => match rest.get(..length) {
                Some(bytes) => Some(bytes.to_vec()),
                None => return Ok(None),
            },
            Some(Err(_)) => return Err(lost("its answer is damaged")),
        };
        self.received.clear();
        let look = match header.report {
            Ok(report) => Ok(Box::new(Outcome { snapshot, ..Outcome::of(report) })),
            Err(why) => Err(LookError::Told(why)),
        };
        Ok(Some((look, Duration::from_nanos(header.cost))))
    }
}

/// Wait until one of them is readable.
pub(super) fn poll_all<'a>(all: impl Iterator<Item = std::os::fd::BorrowedFd<'a>>, within: Duration) {
    let until = Instant::now() + within;
    let mut polled: Vec<PollFd<'_>> = all.map(|one| PollFd::new(one, PollFlags::POLLIN)).collect();
    let left = until.saturating_duration_since(Instant::now());
    let _ = poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
}

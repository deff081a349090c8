//! The resumer: a process of lockscope's that lets it continue if somebody stops it during a stop.
//!
//! In: until when a target may stand still. Out: SIGCONT to lockscope where that time is over and lockscope itself is
//! stopped: only its tracer can release the target. No program can put off SIGSTOP, to it or to its group. After the
//! release lockscope is stopped again, unless another process has continued it. The resumer traces nothing. It has a
//! session of its own, which no signal of a terminal and of lockscope's group reaches.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::time::TimeSpec;
use nix::sys::uio::pread;
use nix::unistd::{Pid, read, setsid, write};

use super::copier;
use super::proc_fs::ProcFs;
use crate::sys;

/// Between two glances at a lockscope that is late.
const BETWEEN_GLANCES: Duration = Duration::from_millis(2);
/// A message of lockscope: the microseconds until the target must be free. This value: it is free.
const FREE: u64 = u64::MAX;
/// Messages of the resumer: it stands in its own session, and it has let lockscope go on.
const READY: u8 = b'r';
const RESUMED: u8 = b'!';
/// For the resumer to get a processor for the first time, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A resumer that serves.
#[derive(Debug)]
pub(super) struct Resumer {
    socket: OwnedFd,
    child: i32,
    is_ready: AtomicBool,
}

impl Resumer {
    /// Start one; this process is who it looks after.
    pub(super) fn start(proc_fs: &ProcFs) -> io::Result<Resumer> {
        let own = Pid::this();
        // The state of this process is in that file, for any reader.
        let stat = File::open(proc_fs.process(own.as_raw()).join("stat"))?;
        let (socket, other) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let mut kept = [other.as_raw_fd(), stat.as_raw_fd()];
        kept.sort_unstable();
        let child = sys::start_apart(&kept, || serve(other.as_fd(), stat.as_fd(), own))?;
        Ok(Resumer { socket: socket.into(), child, is_ready: AtomicBool::new(false) })
    }

    /// From now on until the value is dropped a target stands still, for so long at most. Signals that stop this process must be
    /// deferred for longer.
    pub(super) fn begin(&self, max_pause: Duration) -> StandingStill<'_> {
        self.wait_until_ready();
        sys::note_continues(self.child);
        self.tell(u64::try_from(max_pause.as_micros()).unwrap_or(FREE - 1));
        StandingStill { resumer: self }
    }

    /// Until then it stands in lockscope's group, and is stopped with it.
    fn wait_until_ready(&self) {
        if !self.is_ready.swap(true, Ordering::Relaxed) {
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(PATIENCE)), None);
            let _ = read(&self.socket, &mut [0; 1]);
        }
    }

    fn tell(&self, microseconds: u64) {
        let _ = write(&self.socket, &microseconds.to_ne_bytes());
    }
}

impl Drop for Resumer {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child), Signal::SIGKILL);
        copier::collect_later(self.child);
    }
}

/// A target stands still.
#[derive(Debug)]
pub(super) struct StandingStill<'a> {
    resumer: &'a Resumer,
}

impl Drop for StandingStill<'_> {
    fn drop(&mut self) {
        self.resumer.tell(FREE);
        let mut said = [0; 64];
        let count = read(&self.resumer.socket, &mut said).unwrap_or(0);
        let was_resumed = said.iter().take(count).any(|byte| *byte == RESUMED);
        let by_others = sys::was_continued_by_others();
        if was_resumed && !by_others {
            // lockscope stays stopped, as the sender of the signal intended.
            let _ = raise(Signal::SIGSTOP);
        }
    }
}

/// The code that runs in the resumer. System calls only: it is a copy of a process whose other threads are missing.
fn serve(socket: BorrowedFd<'_>, stat: BorrowedFd<'_>, lockscope: Pid) {
    let _ = setsid();
    let _ = nix::sys::prctl::set_name(c"lockscope-wake");
    let _ = write(socket, &[READY]);
    let mut due: Option<Instant> = None;
    loop {
        let wait = due.map(|due| due.saturating_duration_since(Instant::now()).max(BETWEEN_GLANCES));
        let mut polled = [PollFd::new(socket, PollFlags::POLLIN)];
        match ppoll(&mut polled, wait.map(TimeSpec::from_duration), None) {
            Ok(0) => {
                if is_stopped(stat) {
                    // Said before, so that it is known when it goes on.
                    let _ = write(socket, &[RESUMED]);
                    let _ = kill(lockscope, Signal::SIGCONT);
                }
                continue;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let mut message = [0; 8];
        match read(socket, &mut message) {
            Ok(8) => {
                let microseconds = u64::from_ne_bytes(message);
                let pause = Duration::from_micros(microseconds);
                due = if microseconds == FREE { None } else { Instant::now().checked_add(pause) };
            }
            Err(Errno::EINTR) => {}
            _ => return,
        }
    }
}

/// Whether the process of this /proc/PID/stat is stopped: the letter behind the name, which is the last thing in parentheses.
fn is_stopped(stat: BorrowedFd<'_>) -> bool {
    let mut bytes = [0; 512];
    let Ok(length) = pread(stat, &mut bytes, 0) else { return false };
    let text = bytes.get(..length).unwrap_or_default();
    let name_end = text.iter().rposition(|byte| *byte == b')');
    name_end.and_then(|end| text.get(end + 2)) == Some(&b'T')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_stopped_is_told_by_its_letter() {
        let mut other = std::process::Command::new("sleep").arg("20").spawn().expect("sleep starts");
        let pid = Pid::from_raw(other.id() as i32);
        let stat = File::open(format!("/proc/{pid}/stat")).expect("its state");
        assert!(!is_stopped(stat.as_fd()));
        kill(pid, Signal::SIGSTOP).expect("sent");
        while !is_stopped(stat.as_fd()) {
            std::thread::yield_now();
        }
        kill(pid, Signal::SIGCONT).expect("sent");
        while is_stopped(stat.as_fd()) {
            std::thread::yield_now();
        }
        other.kill().and_then(|()| other.wait()).expect("it ends");
    }

    #[test]
    fn whoever_stops_our_group_does_not_stop_it() {
        for _ in 0..20 {
            let resumer = Resumer::start(&ProcFs::new("/proc")).expect("it starts");
            let standing = resumer.begin(Duration::from_secs(1));
            assert_eq!(nix::unistd::getsid(Some(Pid::from_raw(resumer.child))), Ok(Pid::from_raw(resumer.child)));
            drop(standing);
        }
    }

    #[test]
    fn nobody_is_stopped_who_was_not_resumed() {
        let resumer = Resumer::start(&ProcFs::new("/proc")).expect("it starts");
        drop(resumer.begin(Duration::ZERO));
        drop(resumer.begin(Duration::from_secs(1)));
    }
}

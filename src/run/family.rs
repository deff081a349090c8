//! A command as a grandchild, with all that descends from it, and the process between that looks at it.
//!
//! ```text
//! supervisor   this process: limits, signals, the command's exit status; it never looks
//!   looker     looks when it is asked to, and may hang or die of it
//!     command  and whatever it starts
//!   guard      ends the command's group should the supervisor be killed
//! ```
//!
//! In: a command line. Out: its exit status as a shell would give it, looks, and signals to the whole tree. Whatever becomes of the
//! looker, the command goes on and is then this process's child. Nothing here decides when to look.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, pipe2, setpgid};

use super::LookError;
use super::children::{MARK, REPORT_DIRECTORY, end_tree};
use super::guard::Guard;
use super::looker;
use super::lookers::Lookers;
use super::sample::has_ended;
use crate::sys::{self, Ended, Forked};

/// A command and its descendants.
#[derive(Debug)]
pub(crate) struct Family {
    command: i32,
    /// Readable once the command has ended, on kernels that have that.
    end: Option<OwnedFd>,
    status: Option<u8>,
    lookers: Lookers,
    /// The command leads a process group of its own, which ends with lockscope.
    guard: Option<Guard>,
    own_group: bool,
}

/// What the command needs to begin, and its word that it could not.
#[derive(Debug)]
struct Start {
    go: File,
    failure: File,
}

/// What the command gets beside the environment.
#[derive(Debug, Clone, Copy)]
struct Surroundings<'a> {
    report_directory: Option<&'a Path>,
    variables: &'a [(&'static str, OsString)],
}

/// Whether there is a terminal that a command could ask: as for a password, even if its standard files are others.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

impl Family {
    /// Start a command with these signals blocked. Whatever it leaves behind becomes a child of the looker, or of this process.
    /// Without a terminal it gets a process group of its own: who ends lockscope's group, as test runners and schedulers do, would else
    /// end the command before it can be looked at. With a terminal that would take the terminal away from it. This process must have
    /// one thread.
    pub(crate) fn start(
        command: &[OsString],
        report_directory: Option<&Path>,
        variables: &[(&'static str, OsString)],
        blocked: SigSet,
    ) -> io::Result<Family> {
        let surroundings = Surroundings { report_directory, variables };
        // Without it orphans go to init, and are not seen any more.
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let own_group = !has_terminal();
        let (own, theirs) = UnixStream::pair()?;
        let (wait_for_go, go) = pipe2(OFlag::O_CLOEXEC)?;
        let (failure, tell_failure) = pipe2(OFlag::O_CLOEXEC)?;
        let supervisor = std::process::id() as i32;
        let looker = match sys::fork()? {
            Forked::Child => {
                drop((own, go, failure));
                let start = Start { go: File::from(wait_for_go), failure: File::from(tell_failure) };
                between(command, surroundings, &blocked, own_group, theirs, start, supervisor);
                // What was copied from the supervisor is not to be dropped here.
                std::process::exit(0)
            }
            Forked::Parent(pid) => pid,
        };
        drop((theirs, wait_for_go, tell_failure));
        let mut own = own;
        let mut pid = [0; 4];
        own.read_exact(&mut pid)?;
        let mut family = Family {
            command: i32::from_le_bytes(pid),
            end: sys::process_descriptor(i32::from_le_bytes(pid)).ok(),
            status: None,
            lookers: Lookers::with(looker, own)?,
            guard: if own_group { Guard::start().ok() } else { None },
            own_group,
        };
        if let Some(guard) = &mut family.guard {
            guard.watch(family.command);
        }
        // Only now does it begin: whatever ends this process from here on ends it too.
        File::from(go).write_all(b"g")?;
        let mut errno = [0; 4];
        match File::from(failure).read_exact(&mut errno) {
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(errno))),
            // Closed by the beginning of the program.
            Err(_) => Ok(family),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.command
    }

    /// Collect what has ended; the command's own status once that has. `Err` says once how the process that looks was lost.
    pub(crate) fn reap(&mut self) -> Result<Option<u8>, LookError> {
        let mut lost = None;
        self.collect(&mut lost);
        if self.status.is_none() && self.lookers.pid().is_some() && self.command_has_ended() {
            // The status is the looker's to take, which may hang; without it, it is ours.
            self.drop_looker();
            self.collect(&mut None);
            if self.status.is_none() {
                self.status = super::sample::exit_status(self.command);
            }
        }
        match (self.status, lost) {
            (None, Some(error)) => Err(error),
            (status, _) => Ok(status),
        }
    }

    fn collect(&mut self, lost: &mut Option<LookError>) {
        while let Ok(Some(Ended { pid, status })) = sys::ended_child(None, false) {
            if pid == self.command {
                self.status = Some(status);
            } else if let Some(error) = self.lookers.ended(pid, status) {
                *lost = Some(error);
            }
        }
    }

    fn command_has_ended(&self) -> bool {
        match &self.end {
            Some(end) => {
                let mut polled = [nix::poll::PollFd::new(end.as_fd(), nix::poll::PollFlags::POLLIN)];
                matches!(nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO), Ok(1))
            }
            None => has_ended(self.command),
        }
    }

    /// End the process that looks. The kernel lets go what it had stopped, and gives its children to this one.
    fn drop_looker(&mut self) {
        self.lookers.drop_looker();
    }

    /// Those that look.
    pub(crate) fn lookers(&mut self) -> &mut Lookers {
        &mut self.lookers
    }

    /// The process that looks does not answer any more: how it ended, or that the command has, with which it ends.
    pub(crate) fn lost_looker(&mut self, error: LookError) -> LookError {
        let error = self.lookers.lost(error);
        match self.reap() {
            Ok(Some(_)) => LookError::Told("it has ended".into()),
            _ => error,
        }
    }

    /// Wait until a look, the command's end or one of `others` comes.
    pub(crate) fn wait(&self, others: &[BorrowedFd<'_>], within: Duration) {
        let socket = self.lookers.socket();
        let end = self.end.as_ref().filter(|_| self.status.is_none()).map(|end| end.as_fd());
        looker::poll_all(others.iter().copied().chain(socket).chain(end), within);
    }

    /// Send a signal on to the command, or to its group; what the terminal sent has come to a command without a group already.
    pub(crate) fn forward(&self, signal: Signal, by_terminal: bool) {
        let command = Pid::from_raw(self.command);
        let _ = match (self.status, self.own_group) {
            (Some(_), _) => return,
            (None, true) => killpg(command, signal),
            (None, false) if by_terminal => return,
            (None, false) => kill(command, signal),
        };
    }

    /// End the whole tree: `signal`, then after `grace` SIGKILL to what is left. The command itself is told also where /proc does not
    /// name it.
    pub(crate) fn end(&mut self, signal: Signal, grace: Duration) {
        const AFTER_KILL: Duration = Duration::from_secs(5);
        const STEP: Duration = Duration::from_millis(20);
        let (own, begin) = (std::process::id() as i32, Instant::now());
        if !has_proc() {
            // With it as parent the end would not be seen.
            self.drop_looker();
            self.forward(signal, false);
            self.forward(Signal::SIGCONT, false);
            while !matches!(self.reap(), Ok(Some(_))) && begin.elapsed() < grace + AFTER_KILL {
                if begin.elapsed() >= grace {
                    self.forward(Signal::SIGKILL, false);
                }
                std::thread::sleep(STEP);
            }
            return;
        }
        end_tree(own, None, signal, grace, || {
            let _ = self.reap();
        });
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.drop_looker();
    }
}

/// Whether processes can be found in /proc.
fn has_proc() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// The process between, in which the command is started: it becomes the looker.
fn between(
    command: &[OsString],
    surroundings: Surroundings<'_>,
    blocked: &SigSet,
    own_group: bool,
    mut socket: UnixStream,
    start: Start,
    supervisor: i32,
) {
    let pid = match sys::fork() {
        Ok(Forked::Child) => {
            become_command(command, surroundings, blocked, own_group, start);
            #[expect(clippy::exit, reason = "the end of a process that was forked for this alone")]
            std::process::exit(i32::from(super::children::NOT_FOUND))
        }
        Ok(Forked::Parent(pid)) => pid,
        Err(_) => return,
    };
    if own_group {
        // By both, so that it is so for whoever comes first.
        let _ = setpgid(Pid::from_raw(pid), Pid::from_raw(pid));
    }
    sys::leave_standard_files();
    sys::close_all_but(socket.as_fd());
    // Its files are closed, by number.
    std::mem::forget(start);
    if socket.write_all(&pid.to_le_bytes()).is_ok() {
        looker::serve(socket, supervisor, Some(pid));
    }
}

/// Become the command, as soon as all is ready for it; returns only if that fails.
fn become_command(
    command: &[OsString],
    surroundings: Surroundings<'_>,
    blocked: &SigSet,
    own_group: bool,
    mut start: Start,
) {
    if own_group {
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    }
    // The end of the pipe says that whoever was to watch over it is no more.
    if start.go.read_exact(&mut [0]).is_err() {
        return;
    }
    let Some((program, arguments)) = command.split_first() else { return };
    let mut program = Command::new(program);
    program.args(arguments).env(MARK, "1");
    if let Some(directory) = surroundings.report_directory {
        program.env(REPORT_DIRECTORY, directory);
    }
    program.envs(surroundings.variables.iter().map(|(name, value)| (name, value)));
    let _ = blocked.thread_set_mask();
    let error = program.exec();
    let _ = start.failure.write_all(&error.raw_os_error().unwrap_or(nix::libc::ENOENT).to_le_bytes());
}

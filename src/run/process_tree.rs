//! A command as a grandchild, with all that descends from it, and the process between, which samples it.
//!
//! ```text
//! supervisor   this process: limits, signals, the command's exit status; it never samples
//!   command    and whatever it starts
//!   sampler    samples on request, and may hang or die of it
//!   guard      ends the command's group should the supervisor be killed
//! ```
//!
//! Under Yama's scope 1 only ancestors may look. There the sampler stands above a keeper, which is the command's parent and does
//! nothing but wait for its end: a command that is to end with its parent (PR_SET_PDEATHSIG) outlives a sampler that is lost.
//!
//! In: a command line. Out: its exit status as a shell would give it, looks, and signals to the whole tree. Whatever becomes of the
//! sampler, the command goes on and is then this process's child. Nothing here decides when to look.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, pipe2, setpgid};

use super::LookError;
use super::children::{self, MARK, REPORT_DIRECTORY, end_tree};
use super::guard::Guard;
use super::own_names::{KEEPER, take_name};
use super::sample::has_ended;
use super::sampler;
use super::samplers::Samplers;
use crate::sys::{self, Ended, Forked};

/// A command and its descendants.
#[derive(Debug)]
pub(crate) struct Family {
    command: i32,
    /// The process with whose end the command has ended, with the same status: its keeper, or itself.
    kept_by: i32,
    /// Readable once the command has ended, on kernels that have that.
    end: Option<OwnedFd>,
    status: Option<u8>,
    samplers: Samplers,
    /// The command leads a process group of its own, which ends with lockscope.
    guard: Option<Guard>,
    own_group: bool,
}

/// The pipe that lets the command begin, and the one that reports that it could not.
#[derive(Debug)]
struct Start {
    go: File,
    failure: File,
}

/// Data that the command gets beside the environment.
#[derive(Debug, Clone, Copy)]
struct Surroundings<'a> {
    report_directory: Option<&'a Path>,
    variables: &'a [(&'static str, OsString)],
    mark: &'a str,
}

/// Whether there is a terminal that a command could ask: as for a password, even if its standard files are others.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

impl Family {
    /// Starts a command with these signals blocked. Processes that it leaves behind become children of the sampler, or
    /// of this process. Without a terminal it gets a process group of its own. Otherwise a test runner or scheduler
    /// that ends lockscope's group would end the command before its last sample. With a terminal, a group of its own
    /// would take the terminal away from it. This process must have one thread.
    pub(crate) fn start(
        command: &[OsString],
        report_directory: Option<&Path>,
        variables: &[(&'static str, OsString)],
        blocked: SigSet,
    ) -> io::Result<Family> {
        let mark = children::mark();
        let surroundings = Surroundings { report_directory, variables, mark: &mark };
        // Without it orphans go to init, and are not seen any more.
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let own_group = !has_terminal();
        let (own, theirs) = UnixStream::pair()?;
        let (wait_for_go, go) = pipe2(OFlag::O_CLOEXEC)?;
        let (failure, tell_failure) = pipe2(OFlag::O_CLOEXEC)?;
        let supervisor = std::process::id() as i32;
        let is_between = only_ancestors_may_look();
        let child = match sys::fork()? {
            Forked::Child => {
                drop((own, go, failure));
                let start = Start { go: File::from(wait_for_go), failure: File::from(tell_failure) };
                match is_between {
                    true => between(command, surroundings, &blocked, own_group, theirs, start, supervisor),
                    false => become_command(command, surroundings, &blocked, own_group, start),
                }
                // The copies of the supervisor's values are not dropped here.
                std::process::exit(if is_between { 0 } else { i32::from(children::NOT_FOUND) })
            }
            Forked::Parent(pid) => pid,
        };
        drop((theirs, wait_for_go, tell_failure));
        let mut own = own;
        let (kept_by, command, samplers) = match is_between {
            true => {
                let mut next = || -> io::Result<i32> {
                    let mut pid = [0; 4];
                    own.read_exact(&mut pid)?;
                    Ok(i32::from_le_bytes(pid))
                };
                let (keeper, command) = (next()?, next()?);
                (keeper, command, Samplers::with(child, own)?)
            }
            false => {
                if own_group {
                    let _ = setpgid(Pid::from_raw(child), Pid::from_raw(child));
                }
                (child, child, Samplers::default())
            }
        };
        let mut family = Family {
            command,
            kept_by,
            end: sys::process_descriptor(kept_by).ok(),
            status: None,
            samplers,
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

    /// Collect what has ended; the command's own status once that has. `Err` says once how the sampling process was
    /// lost.
    pub(crate) fn reap(&mut self) -> Result<Option<u8>, LookError> {
        let mut lost = None;
        self.collect(&mut lost);
        if self.status.is_none() && self.samplers.pid().is_some() && self.command_has_ended() {
            // The status is the sampler's to take, which may hang; without it, it is ours.
            self.drop_looker();
            self.collect(&mut None);
            if self.status.is_none() {
                self.status = super::sample::exit_status(self.kept_by);
            }
        }
        match (self.status, lost) {
            (None, Some(error)) => Err(error),
            (status, _) => Ok(status),
        }
    }

    fn collect(&mut self, lost: &mut Option<LookError>) {
        while let Ok(Some(Ended { pid, status })) = sys::ended_child(None, false) {
            if pid == self.kept_by {
                self.status = Some(status);
            } else if let Some(error) = self.samplers.ended(pid, status) {
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
            None => has_ended(self.kept_by),
        }
    }

    /// End the sampling process. The kernel lets go what it had stopped, and gives its children to this one.
    fn drop_looker(&mut self) {
        self.samplers.drop_looker();
    }

    /// The samplers.
    pub(crate) fn samplers(&mut self) -> &mut Samplers {
        &mut self.samplers
    }

    /// The sampling process does not answer any more: how it ended, or that the command has, with which it ends.
    pub(crate) fn lost_looker(&mut self, error: LookError) -> LookError {
        let error = self.samplers.lost(error);
        match self.reap() {
            Ok(Some(_)) => LookError::Told("it has ended".into()),
            _ => error,
        }
    }

    /// Wait until a sample, the command's end or one of `others` comes.
    pub(crate) fn wait(&self, others: &[BorrowedFd<'_>], within: Duration) {
        let socket = self.samplers.socket();
        let end = self.end.as_ref().filter(|_| self.status.is_none()).map(|end| end.as_fd());
        sampler::poll_all(others.iter().copied().chain(socket).chain(end), within);
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

    /// Ends the whole tree: `signal`, then after `grace` SIGKILL to the rest. The command itself gets the signal even
    /// if /proc does not name it.
    pub(crate) fn end(&mut self, signal: Signal, grace: Duration) {
        const AFTER_KILL: Duration = Duration::from_secs(5);
        const STEP: Duration = Duration::from_millis(20);
        let (own, begin) = (std::process::id() as i32, Instant::now());
        if !has_proc() {
            // Above the command's parent it would hide the end.
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

/// Whether only ancestors may attach and this process has no right to do so otherwise: Yama's scope 1. Then the sampler
/// stands between this process and the command. Otherwise this process is the command's parent. It never samples, so a
/// command that ends with its parent (PR_SET_PDEATHSIG) survives the loss of a sampler.
fn only_ancestors_may_look() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let is_open = scope.is_ok_and(|scope| scope.trim() == "0") || !Path::new("/proc/sys/kernel/yama").exists();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    !is_open && rights & CAP_SYS_PTRACE == 0
}

/// Whether processes can be found in /proc.
fn has_proc() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// The process between, below which the command is started: it becomes the sampler.
fn between(
    command: &[OsString],
    surroundings: Surroundings<'_>,
    blocked: &SigSet,
    own_group: bool,
    mut socket: UnixStream,
    start: Start,
    supervisor: i32,
) {
    let keeper = match sys::fork() {
        Ok(Forked::Child) => {
            let status = keep(command, surroundings, blocked, own_group, &mut socket, start);
            #[expect(clippy::exit, reason = "the end of a process that was forked for this alone")]
            std::process::exit(i32::from(status))
        }
        Ok(Forked::Parent(pid)) => pid,
        Err(_) => return,
    };
    sys::leave_standard_files();
    sys::close_all_but(socket.as_fd());
    // Its files are closed, by number.
    std::mem::forget(start);
    sampler::serve(socket, supervisor, Some(keeper));
}

/// Be the command's parent, whatever becomes of the one that looks; its exit status.
fn keep(
    command: &[OsString],
    surroundings: Surroundings<'_>,
    blocked: &SigSet,
    own_group: bool,
    socket: &mut UnixStream,
    start: Start,
) -> u8 {
    let pid = match sys::fork() {
        Ok(Forked::Child) => {
            become_command(command, surroundings, blocked, own_group, start);
            return super::children::NOT_FOUND;
        }
        Ok(Forked::Parent(pid)) => pid,
        Err(_) => return super::children::NOT_FOUND,
    };
    if own_group {
        // By both, so that it holds for the first of them.
        let _ = setpgid(Pid::from_raw(pid), Pid::from_raw(pid));
    }
    // Signals that end or stop lockscope's group are not for it.
    let signals = SigSet::all();
    let _ = signals.thread_block();
    take_name(KEEPER);
    let pids = [std::process::id() as i32, pid].map(i32::to_le_bytes);
    let _ = socket.write_all(pids.as_flattened());
    sys::leave_standard_files();
    sys::close_all();
    // Its files are closed, by number.
    std::mem::forget(start);
    loop {
        match sys::ended_child(Some(pid), false) {
            Ok(Some(ended)) => return ended.status,
            Ok(None) => drop(signals.wait()),
            Err(_) => return super::children::NOT_FOUND,
        }
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
    // The end of the pipe means that its supervisor has ended.
    if start.go.read_exact(&mut [0]).is_err() {
        return;
    }
    let Some((program, arguments)) = command.split_first() else { return };
    let mut program = Command::new(program);
    program.args(arguments).env(MARK, surroundings.mark);
    if let Some(directory) = surroundings.report_directory {
        program.env(REPORT_DIRECTORY, directory);
    }
    program.envs(surroundings.variables.iter().map(|(name, value)| (name, value)));
    let _ = blocked.thread_set_mask();
    let error = sys::become_command(&mut program);
    let _ = start.failure.write_all(&error.raw_os_error().unwrap_or(nix::libc::ENOENT).to_le_bytes());
}

//! A command as a child, with all that descends from it.
//!
//! In: a command line. Out: its exit status as a shell would give it, and signals to the whole tree. It starts and ends
//! processes and watches nothing.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::guard::Guard;
use super::sample::{Sampler, start_time};

/// Tells children that they are watched: a `lockscope run` among them steps back.
pub const MARK: &str = "LOCKSCOPE";

/// Tells children where reports go.
pub const REPORT_DIRECTORY: &str = "LOCKSCOPE_REPORT_DIR";

/// timeout(1): not executable, not found, killed by signal n is 128 + n.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub const NOT_FOUND: u8 = 127;

/// How long what hangs may take to end by a signal, unless the user says otherwise.
pub const GRACE: Duration = Duration::from_secs(3);

/// A child and its descendants.
#[derive(Debug)]
pub struct Family {
    child: i32,
    status: Option<u8>,
    /// The child leads a process group of its own, which ends with lockscope.
    guard: Option<Guard>,
}

/// The exit status for a command that could not be started.
pub fn failure(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Become the command; returns only if that fails.
pub fn become_it(command: &[OsString]) -> io::Error {
    match command.split_first() {
        Some((program, arguments)) => Command::new(program).args(arguments).exec(),
        None => io::Error::from(io::ErrorKind::NotFound),
    }
}

/// Start the command. Not by [`Command`], whose child has the mask of the thread that starts it: a thread that may have signals
/// delivered takes those that are meant to be passed on.
fn spawn(command: &[OsString], report_directory: Option<&Path>, blocked: &SigSet, own_group: bool) -> io::Result<Pid> {
    let words = command.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let program = words.first().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut environment = std::env::vars_os().collect::<BTreeMap<_, _>>();
    environment.insert(MARK.into(), "1".into());
    if let Some(directory) = report_directory {
        environment.insert(REPORT_DIRECTORY.into(), directory.into());
    }
    let variable =
        |(name, value): (OsString, OsString)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat());
    let environment = environment.into_iter().map(variable).collect::<Result<Vec<_>, _>>()?;
    let mut attributes = PosixSpawnAttr::init()?;
    let mut flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
    attributes.set_sigmask(blocked)?;
    // Rust's runtime ignores it, and that is inherited.
    attributes.set_sigdefault(&[Signal::SIGPIPE].into_iter().collect())?;
    if own_group {
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
        attributes.set_pgroup(Pid::from_raw(0))?;
    }
    attributes.set_flags(flags)?;
    Ok(posix_spawnp(program, &PosixSpawnFileActions::init()?, &attributes, &words, &environment)?)
}

impl Family {
    /// Start a command with these signals blocked. Whatever it leaves behind becomes a child of this process. Without a terminal
    /// it gets a process group of its own: who ends lockscope's group, as test runners and schedulers do, would else end the
    /// command before it can be looked at. With a terminal that would take the terminal away from it.
    pub fn start(command: &[OsString], report_directory: Option<&Path>, blocked: SigSet) -> io::Result<Family> {
        // Without it orphans go to init, and are not seen any more.
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let mut guard = if has_terminal() { None } else { Guard::start().ok() };
        let child = spawn(command, report_directory, &blocked, guard.is_some())?.as_raw();
        if let Some(guard) = &mut guard {
            guard.watch(child);
        }
        Ok(Family { child, status: None, guard })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child
    }

    /// Collect what has ended; the command's own status once that has.
    pub fn reap(&mut self) -> Option<u8> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return self.status,
                Ok(WaitStatus::Exited(pid, status)) if pid.as_raw() == self.child => self.status = Some(status as u8),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == self.child => {
                    self.status = Some((128 + signal as i32) as u8);
                }
                Err(Errno::EINTR) | Ok(_) => {}
                Err(_) => return self.status,
            }
        }
    }

    /// Send a signal on to the command, or to its group; what the terminal sent has come to a command without a group already.
    pub fn forward(&self, signal: Signal, by_terminal: bool) {
        let child = Pid::from_raw(self.child);
        let _ = match (self.status, &self.guard) {
            (Some(_), _) => return,
            (None, Some(_)) => killpg(child, signal),
            (None, None) if by_terminal => return,
            (None, None) => kill(child, signal),
        };
    }

    /// End the whole tree: `signal`, then after `grace` SIGKILL to what is left.
    pub fn end(&mut self, signal: Signal, grace: Duration) {
        end_tree(std::process::id() as i32, false, signal, grace, || {
            self.reap();
        });
    }
}

/// Whether there is a terminal that a command could ask: as for a password, even if its standard files are others.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// End the descendants of a process, and where wished itself: `signal`, then after `grace` SIGKILL to what is left. `meanwhile`
/// is called again and again.
pub fn end_tree(root: i32, with_root: bool, signal: Signal, grace: Duration, mut meanwhile: impl FnMut()) {
    const STEP: Duration = Duration::from_millis(20);
    const AFTER_KILL: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    let mut tree = living(root, with_root);
    for process in &tree {
        process.signal(signal);
        // A stopped process takes the signal when it goes on.
        process.signal(Signal::SIGCONT);
    }
    while begin.elapsed() < grace + AFTER_KILL {
        meanwhile();
        // What lost its parent has left the tree, and must end all the same.
        tree.retain(Process::lives);
        let new = living(root, with_root).into_iter().filter(|one| !tree.contains(one)).collect::<Vec<_>>();
        tree.extend(new);
        if tree.is_empty() {
            return;
        }
        if begin.elapsed() >= grace {
            tree.iter().for_each(|process| process.signal(Signal::SIGKILL));
        }
        std::thread::sleep(STEP);
    }
}

/// A process, told from a later one of the same id by its start.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    started: u64,
}

impl Process {
    fn lives(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    fn signal(&self, signal: Signal) {
        if self.lives() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

fn living(root: i32, with_root: bool) -> Vec<Process> {
    let pids = Sampler::default().take(root, with_root).pids;
    let process = |pid| start_time(pid).map(|started| Process { pid, started });
    pids.into_iter().filter_map(process).collect()
}

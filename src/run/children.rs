//! The processes that descend from one: the marks that a command inherits, and the end of a whole tree.
//!
//! In: the root of a tree. Out: signals to it. It starts nothing and watches nothing.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::sample::{Sampler, start_time};
use crate::sys;

/// Tells children that they are watched, and by which process ([`mark`]): a `lockscope run` among them steps back.
pub(crate) const MARK: &str = "LOCKSCOPE";

/// The value of [`MARK`] for the children of this process: its id, and when it started.
pub(crate) fn mark() -> String {
    let pid = std::process::id();
    format!("{pid}:{}", start_time(pid as i32).unwrap_or_default())
}

/// The process that watches this one already, by a [`mark`] whose process still runs. A mark that was left in a shell, or that comes
/// from another PID namespace, is none.
pub(crate) fn outer_supervisor() -> Option<i32> {
    let value = std::env::var(MARK).ok()?;
    let (pid, started) = value.split_once(':')?;
    let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
    (pid != std::process::id() as i32 && start_time(pid) == Some(started)).then_some(pid)
}

/// Tells children where reports go.
pub(crate) const REPORT_DIRECTORY: &str = "LOCKSCOPE_REPORT_DIR";

/// timeout(1): not executable, not found, killed by signal n is 128 + n.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// How long what hangs may take to end by a signal, unless the user says otherwise.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// The exit status for a command that could not be started.
pub(crate) fn failure(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Become the command; returns only if that fails.
pub(crate) fn become_it(command: &[OsString]) -> io::Error {
    match command.split_first() {
        Some((program, arguments)) => sys::become_command(Command::new(program).args(arguments)),
        None => io::Error::from(io::ErrorKind::NotFound),
    }
}

/// End the descendants of a process: `signal`, then after `grace` SIGKILL to what is left; and itself, where there is a signal for
/// it. `meanwhile` is called again and again.
pub(crate) fn end_tree(
    root: i32,
    for_root: Option<Signal>,
    signal: Signal,
    grace: Duration,
    mut meanwhile: impl FnMut(),
) {
    let with_root = for_root.is_some();
    const STEP: Duration = Duration::from_millis(20);
    const AFTER_KILL: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    let mut tree = living(root, with_root);
    for process in &tree {
        process.signal(for_root.filter(|_| process.pid == root).unwrap_or(signal));
        // A stopped process takes the signal when it goes on.
        process.signal(Signal::SIGCONT);
    }
    while begin.elapsed() < grace + AFTER_KILL {
        meanwhile();
        // A process that lost its parent has left the tree, and must end, too.
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

/// A process. Its start distinguishes it from a later one of the same id.
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

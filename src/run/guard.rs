//! A second process that ends a command's group when lockscope itself is killed.
//!
//! In: the group, through a pipe, before the command begins. Signals to lockscope's group do not reach a command in a
//! group of its own, so that lockscope can sample first; but SIGKILL leaves lockscope no time to pass it on, and then
//! the guard does. It watches nothing and outlives lockscope by no more than that.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, pipe2, setpgid};

use super::own_names::{GUARD, take_name};
use crate::sys::{self, Forked};

/// A guard that runs.
#[derive(Debug)]
pub(super) struct Guard {
    pid: i32,
    pipe: File,
}

impl Guard {
    /// Start one, in a group of its own. This process must have one thread.
    pub(super) fn start() -> io::Result<Guard> {
        let (end, pipe) = pipe2(OFlag::O_CLOEXEC)?;
        match sys::fork()? {
            Forked::Child => {
                run(File::from(end));
                std::process::exit(0)
            }
            Forked::Parent(pid) => Ok(Guard { pid, pipe: File::from(pipe) }),
        }
    }

    /// This group ends with lockscope from now on: what was written is read also when lockscope ends directly after.
    pub(super) fn watch(&mut self, group: i32) {
        self.tell(&format!("{group}\n"));
    }

    fn tell(&mut self, line: &str) {
        let _ = self.pipe.write_all(line.as_bytes());
    }
}

impl Drop for Guard {
    /// The command has ended in its own way: what it left behind is not ours to end.
    fn drop(&mut self) {
        self.tell("0\n");
        // It ends by itself as soon as the pipe is closed, and is nobody's to wait for then.
        let _ = sys::ended_child(Some(self.pid), false);
    }
}

/// Be the guard: wait for the end of the pipe, and end the group that was named last.
fn run(mut pipe: File) {
    // Signals that end or stop lockscope's group must not reach the guard.
    let _ = SigSet::all().thread_block();
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    take_name(GUARD);
    sys::leave_standard_files();
    sys::close_all_but(pipe.as_fd());
    let mut told = String::new();
    let _ = pipe.read_to_string(&mut told);
    let group = told.lines().last().and_then(|line| line.parse().ok()).filter(|group| *group > 1);
    if let Some(group) = group {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

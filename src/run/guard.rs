//! A second process that ends a command's group when lockscope itself is killed.
//!
//! In: the group, on its standard input. A command in a group of its own is not reached by whoever signals lockscope's group, so
//! that lockscope can look first; but SIGKILL leaves lockscope no time to pass it on, and then the guard does. It watches
//! nothing and outlives lockscope by no more than that.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::sample::take_name;

/// The hidden subcommand.
pub const COMMAND: &str = "guard";

/// What it calls itself: it is no part of what is watched.
pub(super) const NAME: &str = "lockscope-guard";

/// A guard that runs.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Start one, in a group of its own.
    pub(super) fn start() -> io::Result<Guard> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("lockscope").arg(COMMAND).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Guard)
    }

    /// This group ends with lockscope from now on.
    pub(super) fn watch(&mut self, group: i32) {
        self.tell(&format!("{group}\n"));
    }

    fn tell(&mut self, line: &str) {
        if let Some(pipe) = &mut self.0.stdin {
            let _ = pipe.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guard {
    /// The command has ended in its own way: what it left behind is not ours to end.
    fn drop(&mut self) {
        self.tell("0\n");
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Be the guard: wait for the end of standard input, and end the group that was named last.
pub fn run() {
    take_name(NAME);
    let mut told = String::new();
    let _ = io::stdin().lock().read_to_string(&mut told);
    let group = told.lines().last().and_then(|line| line.parse().ok()).filter(|group| *group > 1);
    if let Some(group) = group {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

//! The command that runs for each event.
//!
//! In: a line for the shell, variables, and the event as JSON. Out: nothing but what the command does. Commands run beside the watch,
//! few at a time, and each for a limited time.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};

use crate::cli::output;
use crate::render::escape;

/// Commands that run at a time; an event beyond that starts none, and a message says so.
const MOST_AT_A_TIME: usize = 8;
/// How long a command may run.
const LONGEST: Duration = Duration::from_secs(60);
/// How long the end of the watch waits for commands.
const AT_THE_END: Duration = Duration::from_secs(10);

/// Commands that run.
#[derive(Debug)]
pub(super) struct Commands {
    line: String,
    running: Vec<(Child, Instant)>,
}

impl Commands {
    pub(super) fn of(line: String) -> Commands {
        Commands { line, running: Vec::new() }
    }

    /// Start the command; `event` is its standard input.
    pub(super) fn start(&mut self, variables: &BTreeMap<&'static str, String>, event: &str) {
        self.tend();
        if self.running.len() >= MOST_AT_A_TIME {
            return output::say("lockscope: the commands of earlier events still run; none is started for this one");
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.line).envs(variables).stdin(Stdio::piped()).stdout(Stdio::null());
        // The command takes signals as others do; one that comes in this moment ends the watch by itself.
        let mut signals = SigSet::empty();
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
        let _ = signals.thread_unblock();
        let started = command.spawn();
        let _ = signals.thread_block();
        match started {
            Ok(mut child) => {
                // An event is shorter than what a pipe holds, so that a command which reads nothing holds up nothing.
                if let Some(mut input) = child.stdin.take() {
                    let longest = LONGEST_EVENT.min(event.len());
                    let end = (0..=longest).rev().find(|at| event.is_char_boundary(*at)).unwrap_or(0);
                    let _ = input
                        .write_all(event.get(..end).unwrap_or_default().as_bytes())
                        .and_then(|()| input.write_all(b"\n"));
                }
                self.running.push((child, Instant::now()));
            }
            Err(error) => output::say(&escape(&format!("lockscope: cannot run `{}`: {error}", self.line))),
        }
    }

    /// See to those that have ended, and end those that run for too long.
    pub(super) fn tend(&mut self) {
        let line = &self.line;
        self.running.retain_mut(|(child, began)| match child.try_wait() {
            Ok(None) if began.elapsed() < LONGEST => true,
            Ok(None) => {
                let _ = child.kill().and_then(|()| child.wait());
                output::say(&escape(&format!("lockscope: `{line}` ran for {} s and was ended", LONGEST.as_secs())));
                false
            }
            Ok(Some(status)) => {
                if !status.success() {
                    output::say(&escape(&format!("lockscope: `{line}` ended with {status}")));
                }
                false
            }
            Err(_) => false,
        });
    }

    /// Wait for those that still run, for a while.
    pub(super) fn finish(&mut self) {
        let until = Instant::now() + AT_THE_END;
        while !self.running.is_empty() && Instant::now() < until {
            self.tend();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Bytes of an event that a command gets.
const LONGEST_EVENT: usize = 60 << 10;

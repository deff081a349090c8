//! `lockscope run -- COMMAND`: runs it, and ends it with a report when it hangs.
//!
//! In: its arguments. Out: the command's own exit status, or 124 after a hang, which [`super::hang_report`] tells of. Signals to
//! lockscope go on to the command.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::hang_report::{HangReporter, Watched};
use super::{CliError, OnHang, RunArguments, output};
use crate::image::live;
use crate::run::children::{self, Family};
use crate::run::{Event, Reason, Watch};

/// timeout(1): it was ended; lockscope itself failed.
const ENDED: u8 = 124;
const FAILED: u8 = 125;

/// Signals that are passed on.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

pub(super) fn run(arguments: &RunArguments) -> ExitCode {
    match watched(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::say(&error.to_string());
            ExitCode::from(FAILED)
        }
    }
}

fn watched(arguments: &RunArguments) -> Result<u8, CliError> {
    // The outer one watches everything below it.
    if std::env::var_os(children::MARK).is_some() {
        let error = children::become_it(&arguments.command);
        return Ok(not_started(arguments, &error));
    }
    let reporter = HangReporter::prepare(&arguments.reports, std::process::id() as i32)?;
    reporter.remove_stale_junit();
    let (signals, before) = block().map_err(|error| CliError::new(format!("cannot wait for signals: {error}")))?;
    let mut family = match Family::start(&arguments.command, reporter.directory(), before) {
        Ok(family) => family,
        Err(error) => return Ok(not_started(arguments, &error)),
    };
    if let Err(error) = live::may_attach(family.pid()) {
        output::say(&format!(
            "lockscope: a hang can be ended by --timeout or --hang-after only, without a report: {error}"
        ));
    }
    let watched = Watched::command(named(arguments));
    let mut kill_at = None;
    let mut watch = Watch::new(std::process::id() as i32, false, arguments.limits.limits());
    loop {
        if let Some(status) = family.reap() {
            return Ok(status);
        }
        match watch.step() {
            Event::Nothing => {}
            Event::Beside(report) => reporter.report_partial_hang(&watched, &report),
            Event::Over(reason, outcome) => {
                // It may have ended by itself while it was looked at.
                if let Some(status) = family.reap() {
                    return Ok(status);
                }
                reporter.report_hang(&watched, reason, &outcome);
                if arguments.on_hang == OnHang::Report && reason != Reason::Timeout {
                    return Ok(until_it_ends(&mut family, &signals));
                }
                family.end(arguments.signal, arguments.kill_after.unwrap_or(children::GRACE));
                return Ok(ENDED);
            }
        }
        if kill_at.is_some_and(|time| Instant::now() >= time) {
            family.end(Signal::SIGKILL, Duration::ZERO);
            return Ok(family.reap().unwrap_or(ENDED));
        }
        for (signal, by_terminal) in arrived(&signals, watch.rest()) {
            if signal == Signal::SIGTERM {
                // Whoever runs the tests gives up: this is the last time to look.
                reporter.report_end_from_outside(&watched, &watch.look_now());
                kill_at = kill_at.or(arguments.kill_after.map(|time| Instant::now() + time));
            }
            pass_on(&family, signal, by_terminal);
        }
    }
}

fn not_started(arguments: &RunArguments, error: &std::io::Error) -> u8 {
    output::say(&CliError::new(format!("cannot run {}: {error}", named(arguments))).to_string());
    children::failure(error)
}

/// "`make`".
fn named(arguments: &RunArguments) -> String {
    format!("`{}`", arguments.command.first().map(|word| word.to_string_lossy()).unwrap_or_default())
}

fn until_it_ends(family: &mut Family, signals: &SignalFd) -> u8 {
    const STEP: Duration = Duration::from_secs(1);
    loop {
        if let Some(status) = family.reap() {
            return status;
        }
        for (signal, by_terminal) in arrived(signals, STEP) {
            pass_on(family, signal, by_terminal);
        }
    }
}

/// Send a signal on, and stop with the command where it is to stop: a shell waits for that.
fn pass_on(family: &Family, signal: Signal, by_terminal: bool) {
    family.forward(signal, by_terminal);
    if signal == Signal::SIGTSTP {
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
    }
}

/// Signals arrive at a descriptor from now on; and what was blocked before.
fn block() -> nix::Result<(SignalFd, SigSet)> {
    let mut set: SigSet = PASSED_ON.into_iter().collect();
    set.add(Signal::SIGCHLD);
    let before = SigSet::thread_get_mask()?;
    set.thread_block()?;
    Ok((SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?, before))
}

/// The signals that come within a time, each with whether the terminal sent it; the end of a child ends the wait.
fn arrived(signals: &SignalFd, within: Duration) -> Vec<(Signal, bool)> {
    /// From the kernel, as at Ctrl-C (asm-generic/siginfo.h).
    const SI_KERNEL: i32 = 0x80;
    let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
    let _ = poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout);
    let mut all = Vec::new();
    while let Ok(Some(one)) = signals.read_signal() {
        if let Ok(signal) = Signal::try_from(one.ssi_signo as i32)
            && signal != Signal::SIGCHLD
        {
            all.push((signal, one.ssi_code == SI_KERNEL));
        }
    }
    all
}

//! `lockscope run -- COMMAND`: runs it, and ends it with a report when it hangs.
//!
//! In: its arguments. Out: the command's own exit status, or 124 after a hang, with the report on standard error and in the
//! report directory. Signals to lockscope go on to the command.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::{CliError, OnHang, RunArguments, output};
use crate::analysis::Outcome;
use crate::render::{self, Format, Style};
use crate::report::Report;
use crate::run::children::{self, Family};
use crate::run::{Event, Reason, Watch};

/// timeout(1): it was ended; lockscope itself failed.
const ENDED: u8 = 124;
const FAILED: u8 = 125;

/// Signals that are passed on.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
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
    let directory = arguments.limits.report_dir.as_deref().map(ReportDirectory::prepare).transpose()?;
    let (signals, before) = block().map_err(|error| CliError::new(format!("cannot wait for signals: {error}")))?;
    let folder = directory.as_ref().map(|directory| directory.0.as_path());
    let mut family = match Family::start(&arguments.command, folder, before) {
        Ok(family) => family,
        Err(error) => return Ok(not_started(arguments, &error)),
    };
    let told = Told { directory: directory.as_ref(), what: named(arguments) };
    let mut watch = Watch::new(std::process::id() as i32, false, arguments.limits.limits());
    loop {
        if let Some(status) = family.reap() {
            return Ok(status);
        }
        match watch.step() {
            Event::Nothing => {}
            Event::Beside(report) => told.beside(&report),
            Event::Over(reason, outcome) => {
                // It may have ended by itself while it was looked at.
                if let Some(status) = family.reap() {
                    return Ok(status);
                }
                told.over(reason, outcome.as_deref());
                if arguments.on_hang == OnHang::Report && reason != Reason::Timeout {
                    return Ok(until_it_ends(&mut family, &signals));
                }
                family.end(arguments.signal, arguments.kill_after);
                return Ok(ENDED);
            }
        }
        for (signal, by_terminal) in arrived(&signals, watch.rest()) {
            if signal == Signal::SIGTERM {
                // Whoever runs the tests gives up: this is the last time to look.
                told.ended_from_outside(watch.look_now().as_ref());
            }
            // The terminal has sent it to the command as well.
            if !by_terminal {
                family.forward(signal);
            }
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
            if !by_terminal {
                family.forward(signal);
            }
        }
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

/// Where reports go, if the user said so.
#[derive(Debug)]
pub(super) struct ReportDirectory(PathBuf);

impl ReportDirectory {
    /// Make it, and see that it can be written to.
    pub(super) fn prepare(path: &Path) -> Result<ReportDirectory, CliError> {
        let refused = |error: std::io::Error| CliError::new(format!("cannot write to `{}`: {error}", path.display()));
        std::fs::create_dir_all(path).map_err(refused)?;
        let path = path.canonicalize().map_err(refused)?;
        let probe = path.join(format!(".lockscope-{}", std::process::id()));
        std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe)).map_err(refused)?;
        Ok(ReportDirectory(path))
    }

    /// Report, JSON and snapshot of a look; the names tell processes and machines apart.
    fn keep(&self, outcome: &Outcome) -> Result<PathBuf, CliError> {
        let host = nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = format!("hang-{host}-{}", std::process::id());
        for format in [Format::Text, Format::Json] {
            let ending = if format == Format::Text { "txt" } else { "json" };
            output::report(&self.0.join(format!("{name}.{ending}")), &outcome.report, format)?;
        }
        output::snapshot(&self.0.join(format!("{name}.snapshot.zst")), outcome)?;
        Ok(self.0.join(format!("{name}.txt")))
    }
}

/// What is told of a hang, and to whom.
pub(super) struct Told<'a> {
    pub(super) directory: Option<&'a ReportDirectory>,
    /// What is watched.
    pub(super) what: String,
}

impl Told<'_> {
    /// It hangs.
    pub(super) fn over(&self, reason: Reason, outcome: Option<&Outcome>) {
        let why = match reason {
            Reason::Hang => "hangs",
            Reason::NoProgress => "has made no progress for the time given by --hang-after",
            Reason::Timeout => "has run for the time given by --timeout",
        };
        output::say(&format!("lockscope: {} {why}", self.what));
        self.tell(outcome);
    }

    /// Somebody else ends it.
    fn ended_from_outside(&self, outcome: Option<&Outcome>) {
        output::say(&format!("lockscope: {} is being ended from outside (SIGTERM); this is where it stood", self.what));
        self.tell(outcome);
    }

    /// Something in it hangs, and the rest goes on.
    pub(super) fn beside(&self, report: &Report) {
        output::say(&format!("lockscope: a part of {} hangs, and the rest goes on", self.what));
        text(report);
    }

    fn tell(&self, outcome: Option<&Outcome>) {
        let Some(outcome) = outcome else {
            return output::say("lockscope: it could not be looked at any more");
        };
        text(&outcome.report);
        match self.directory.map(|directory| directory.keep(outcome)) {
            Some(Ok(path)) => output::say(&format!("lockscope: written to {} and beside it", path.display())),
            Some(Err(error)) => output::say(&error.to_string()),
            None => {}
        }
    }
}

fn text(report: &Report) {
    let mut bytes = Vec::new();
    if render::render(report, Format::Text, &Style::plain(), &mut bytes).is_ok() {
        let _ = std::io::stderr().lock().write_all(&bytes);
    }
}

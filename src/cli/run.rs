//! `lockscope run -- COMMAND`: runs it, and ends it with a report when it hangs.
//!
//! In: its arguments. Out: the command's own exit status, or 124 after a hang. A run is [`Session`]'s; with `--provoke` there are
//! several, which [`provoke`] decides on.

use std::path::PathBuf;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::hang_report::HangReporter;
use super::session::{PASSED_ON, Session, named, not_started, unwatched};
use super::{CliError, Color, RunArguments, output, provoke};
use crate::render;
use crate::run::children;

/// timeout(1): lockscope itself failed.
pub(super) const FAILED: u8 = 125;

pub(super) fn run(arguments: &RunArguments, color: Color) -> ExitCode {
    match watched(arguments, color) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::say(&error.to_string());
            ExitCode::from(FAILED)
        }
    }
}

fn watched(arguments: &RunArguments, color: Color) -> Result<u8, CliError> {
    // The outer one watches everything below it.
    if let Some(outer) = children::outer_supervisor() {
        if has_options(arguments) {
            let name = named(arguments);
            output::say(&render::escape(&format!(
                "lockscope: process {outer}, another `lockscope run`, watches {name} already: the options of this one have no effect"
            )));
        }
        let error = children::become_it(&arguments.command);
        return Ok(not_started(arguments, &error));
    }
    let reporter = HangReporter::prepare(&arguments.reports, std::process::id() as i32, color)?;
    reporter.remove_stale_junit();
    let (signals, before) = match block() {
        Ok(signals) => signals,
        Err(Errno::EMFILE | Errno::ENFILE) => return Ok(unwatched(arguments)),
        Err(error) => return Err(CliError::new(format!("cannot wait for signals: {error}"))),
    };
    let session = Session { arguments, reporter, signals, before };
    match &arguments.provoke {
        Some(given) => provoke::run(&session, given.as_deref()),
        None => Ok(session.run_once(None)?.status),
    }
}

/// Whether there is an option that only the outermost `run` can honour.
fn has_options(arguments: &RunArguments) -> bool {
    let given = std::env::var_os(children::REPORT_DIRECTORY).map(PathBuf::from);
    let limits = &arguments.limits;
    limits.timeout.is_some()
        || limits.hang_after.is_some()
        || arguments.reports.junit.is_some()
        || arguments.record.is_some()
        || arguments.provoke.is_some()
        || arguments.reports.report_dir != given
}

/// Signals arrive at a descriptor from now on; and what was blocked before.
fn block() -> nix::Result<(SignalFd, SigSet)> {
    let mut set: SigSet = PASSED_ON.into_iter().collect();
    set.add(Signal::SIGCHLD);
    let before = SigSet::thread_get_mask()?;
    set.thread_block()?;
    Ok((SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?, before))
}

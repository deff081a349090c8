//! `lockscope watch PID`: looks at a process tree until it hangs or ends.
//!
//! In: its arguments. Out: the report of a hang on standard error and in the report directory; exit status 1 for a hang, 0
//! when the process ended, 2 when it could not be watched. It ends nothing.

use std::process::ExitCode;

use super::hang_report::{HangReporter, Watched};
use super::{CliError, WatchArguments};
use crate::image::live;
use crate::run::{Event, Watch};

pub(super) fn run(arguments: &WatchArguments) -> Result<ExitCode, CliError> {
    let reporter = HangReporter::prepare(&arguments.reports, arguments.pid)?;
    reporter.remove_stale_junit();
    let is_there = || std::path::Path::new(&format!("/proc/{}", arguments.pid)).exists();
    if !is_there() {
        return Err(CliError::new(live::AttachError::NoSuchProcess { pid: arguments.pid }.to_string()));
    }
    live::may_attach(arguments.pid).map_err(|error| CliError::new(error.to_string()))?;
    let watched = Watched::command(format!("process {}", arguments.pid));
    let mut watch = Watch::new(arguments.pid, true, arguments.limits.limits());
    loop {
        match watch.step() {
            Event::Nothing => {}
            Event::Beside(report) => reporter.report_partial_hang(&watched, &report),
            Event::Over(reason, outcome) => {
                reporter.report_hang(&watched, reason, &outcome);
                return Ok(ExitCode::from(1));
            }
        }
        if !is_there() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(watch.rest());
    }
}

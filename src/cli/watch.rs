//! `lockscope watch PID`: samples a process tree until it hangs or ends.
//!
//! In: its arguments. Out: the report of a hang on standard error and in the report directory; exit status 1 for a
//! hang, 0 when the process ended, 2 when it could not be watched. It ends nothing. Samples are another process's, so
//! that one that hangs holds up no limit.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::hang_report::{HangReporter, Watched};
use super::{CliError, Color, WatchArguments, output, processes, service};
use crate::image::live;
use crate::render;
use crate::run::samplers::{Samplers, Supervisor};
use crate::run::{self, Event, LookError, Reason, Watch};

pub(super) fn run(arguments: &WatchArguments, color: Color) -> Result<ExitCode, CliError> {
    if arguments.is_service() {
        return service::run(arguments, color);
    }
    let pids = processes::resolve(&arguments.processes, "watch")?;
    let Some(pid) = pids.first().copied() else { return Err(CliError::new("no process is named")) };
    let reporter = HangReporter::prepare(&arguments.reports, pid, color)?;
    reporter.remove_stale_junit();
    if !is_there(pid) {
        return Err(CliError::new(live::AttachError::NoSuchProcess { pid }.to_string()));
    }
    live::may_attach(pid).map_err(|error| CliError::new(error.to_string()))?;
    let watched = Watched::command(format!("process {}", pid));
    let limits = arguments.limits.limits();
    let mut watch = Watch::new(pid, true, limits);
    let due = limits.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut watching = Watching { pid, samplers: Samplers::default(), due };
    loop {
        match watching.step(&mut watch) {
            Event::Nothing => {}
            Event::Beside(report) => reporter.report_partial_hang(&watched, &report),
            Event::Patient(report) => reporter.report_early(&watched, "", &report),
            Event::Over(Reason::NoProgress, Ok(outcome)) if run::is_idle(&outcome.report) => watch.begin_anew(),
            Event::Over(reason, outcome) => {
                reporter.report_hang(&watched, reason, &outcome);
                return Ok(ExitCode::from(1));
            }
        }
        if !is_there(pid) {
            return Ok(ExitCode::SUCCESS);
        }
        watching.tend(watch.rest());
    }
}

fn is_there(pid: i32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

struct Watching {
    pid: i32,
    samplers: Samplers,
    /// When the watch is over.
    due: Option<Instant>,
}

impl Supervisor for Watching {
    fn samplers(&mut self) -> &mut Samplers {
        &mut self.samplers
    }

    fn tend(&mut self, within: Duration) {
        self.samplers.wait(&[], within);
    }

    fn useless(&mut self) -> Option<LookError> {
        (!is_there(self.pid)).then(|| LookError::Told("it has ended".into()))
    }

    fn is_hurried(&self) -> bool {
        self.due.is_some_and(|due| Instant::now() >= due)
    }

    fn tell(&mut self, error: &LookError) {
        output::say(&render::escape(&format!("lockscope: {error}; process {} is watched on", self.pid)));
    }
}

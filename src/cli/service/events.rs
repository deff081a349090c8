//! Events of a service: lines of JSON, a command for each, and how many an hour.
//!
//! In: what happened to which process, with the report. Out: a line on standard output, a command that runs beside. The text of a hang
//! is [`super::super::hang_report`]'s.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::command::Commands;
use super::targets::Target;
use crate::cli::{WatchArguments, output};
use crate::image::taken::timestamp;
use crate::render::{self, escape};
use crate::report::Report;

/// In which time the events are counted.
const AN_HOUR: Duration = Duration::from_secs(3600);

/// A change in the state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Happened {
    /// It hangs.
    Hang,
    /// A part of it hangs, and the rest goes on.
    Part,
    /// It hung, and goes on.
    Recovered,
}

/// An event, as its line of JSON has it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Event {
    pub(super) event: Happened,
    /// RFC 3339, UTC.
    time: String,
    host: Option<String>,
    pid: i32,
    /// The name, unit or kernel's name by which the process was found.
    pub(super) name: String,
    verdict: &'static str,
    /// The code of the first finding.
    pub(super) code: Option<String>,
    sentence: String,
    /// Where each member stands in the program's own code.
    places: Vec<String>,
    /// The report as text, where there is a folder for reports; beside it are the other formats.
    report: Option<PathBuf>,
}

impl Event {
    pub(super) fn new(event: Happened, target: &Target, report: &Report, file: Option<PathBuf>) -> Event {
        Event {
            event,
            time: timestamp(SystemTime::now()),
            host: nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned()),
            pid: target.pid,
            name: target.name.clone(),
            verdict: report.verdict.as_str(),
            code: report.findings.first().map(|finding| finding.code.clone()),
            sentence: render::headline(report).replace('`', ""),
            places: render::places_of_members(report),
            report: file.filter(|_| event != Happened::Recovered),
        }
    }

    /// The same for a command of the shell.
    fn variables(&self) -> BTreeMap<&'static str, String> {
        let event = match self.event {
            Happened::Hang => "hang",
            Happened::Part => "part",
            Happened::Recovered => "recovered",
        };
        let report = self.report.as_ref().map(|path| path.display().to_string());
        [
            ("LOCKSCOPE_EVENT", event.to_owned()),
            ("LOCKSCOPE_PID", self.pid.to_string()),
            ("LOCKSCOPE_NAME", self.name.clone()),
            ("LOCKSCOPE_VERDICT", self.verdict.to_owned()),
            ("LOCKSCOPE_CODE", self.code.clone().unwrap_or_default()),
            ("LOCKSCOPE_SENTENCE", self.sentence.clone()),
            ("LOCKSCOPE_REPORT", report.unwrap_or_default()),
        ]
        .into_iter()
        // No variable can have it.
        .map(|(name, value)| (name, value.replace('\0', "")))
        .collect()
    }
}

/// Where events go.
#[derive(Debug)]
pub(super) struct Events {
    commands: Option<Commands>,
    most: usize,
    /// When events of the last hour were reported.
    reported: VecDeque<Instant>,
    held_back: u64,
    is_quiet: bool,
}

impl Events {
    pub(super) fn of(arguments: &WatchArguments) -> Events {
        Events {
            commands: arguments.exec.clone().map(Commands::of),
            most: usize::try_from(arguments.most_events).unwrap_or(usize::MAX),
            reported: VecDeque::new(),
            held_back: 0,
            is_quiet: arguments.reports.quiet,
        }
    }

    /// Whether one more may be reported in this hour. The others are counted; a message announces the first of them.
    pub(super) fn may_report(&mut self) -> bool {
        let now = Instant::now();
        while self.reported.front().is_some_and(|at| now.saturating_duration_since(*at) >= AN_HOUR) {
            self.reported.pop_front();
        }
        if self.reported.len() < self.most {
            self.reported.push_back(now);
            return true;
        }
        if self.held_back == 0 {
            output::say(&format!("lockscope: {} events in an hour: further ones are only counted", self.most));
        }
        self.held_back += 1;
        false
    }

    /// How many were not reported.
    pub(super) fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Print a line, and start the command.
    pub(super) fn report(&mut self, event: &Event, is_json: bool) {
        let line = serde_json::to_string(event).unwrap_or_default();
        if is_json {
            if let Err(error) = output::to_stdout(format!("{line}\n").as_bytes()) {
                output::say(&error.to_string());
            }
        } else if event.event == Happened::Recovered && !self.is_quiet {
            output::say(&escape(&format!("lockscope: {} ({}) goes on again", event.name, event.pid)));
        }
        if let Some(commands) = &mut self.commands {
            commands.start(&event.variables(), &line);
        }
    }

    /// See to commands that have ended, or run for too long.
    pub(super) fn tend(&mut self) {
        if let Some(commands) = &mut self.commands {
            commands.tend();
        }
    }

    /// Wait for commands that still run.
    pub(super) fn finish(&mut self) {
        if let Some(commands) = &mut self.commands {
            commands.finish();
        }
    }
}

//! The arguments of `watch`, and those that it shares with `run` and the monitor of tests.
//!
//! In: what the user typed. Out: typed values; it opens no file and samples no process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::values::{ProcessName, period, process};
use crate::run::Limits;
use crate::run::children::REPORT_DIRECTORY;

/// Arguments of `watch`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WatchArguments {
    /// The processes to watch, by id or name, each with all its descendants
    #[arg(value_name = "PID|NAME", value_parser = process, required_unless_present = "units")]
    pub processes: Vec<ProcessName>,
    /// Watch the processes of a systemd unit, as `nginx` or `nginx.service`; can be repeated; implies --service
    #[arg(long = "unit", value_name = "UNIT")]
    pub units: Vec<String>,
    /// Go on after a hang and after restarts, with all processes of these names, until SIGTERM; report each hang once
    #[arg(long)]
    pub service: bool,
    /// Print each event as one line of JSON on standard output, and no text; implies --service
    #[arg(long)]
    pub json: bool,
    /// Run CMD by `sh -c` for each event, with the event as JSON on its standard input and as LOCKSCOPE_EVENT, LOCKSCOPE_PID,
    /// LOCKSCOPE_NAME, LOCKSCOPE_VERDICT, LOCKSCOPE_CODE, LOCKSCOPE_SENTENCE and LOCKSCOPE_REPORT; implies --service
    #[arg(long, value_name = "CMD")]
    pub exec: Option<String>,
    /// Keep metrics in FILE, in OpenMetrics format, for the textfile collector of node_exporter; implies --service
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Report at most N events an hour; the rest is counted
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub most_events: u32,
    /// When to end.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Where to write.
    #[command(flatten)]
    pub reports: ReportArguments,
}

impl WatchArguments {
    /// Whether it goes on after a hang.
    pub(super) fn is_service(&self) -> bool {
        let has_option = !self.units.is_empty() || self.json || self.exec.is_some() || self.metrics_file.is_some();
        self.service || has_option || self.processes.len() > 1
    }
}

/// When `run` and `watch` end what they watch.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LimitArguments {
    /// Also take it for a hang when the whole has shown no sign of progress for this long (30s, 5m, 1h; seconds without a unit)
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub hang_after: Option<Duration>,
    /// Also end it after this long
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub timeout: Option<Duration>,
    /// How long a hang must stand that no recorded owner proves, or that an alarm or a watchdog of its own may end
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "60s")]
    pub stuck_after: Duration,
}

/// Where the report of a hang goes, beside standard error.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ReportArguments {
    /// A folder for the reports (text, HTML, JSON, Markdown, JUnit) and a snapshot; made if it is not there
    #[arg(long, value_name = "DIR", env = REPORT_DIRECTORY, value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub report_dir: Option<PathBuf>,
    /// Write JUnit's XML with the hang as a failed test; only after a hang, and what was there before is removed
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Print only errors: the exit status tells, and reports are written to files
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl ReportArguments {
    /// The folder for the reports. An empty name, as of a variable that is set to nothing, is none.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.report_dir.as_deref().filter(|folder| !folder.as_os_str().is_empty())
    }
}

impl LimitArguments {
    /// Those that end a watch.
    pub(super) fn limits(&self) -> Limits {
        Limits { stuck_after: self.stuck_after, hang_after: self.hang_after, timeout: self.timeout }
    }
}

//! The command line: typed arguments first, the system touched second.
//!
//! One file a subcommand. Reports go to standard output, everything else to standard error. Exit status: 0 nothing
//! wrong found, 1 found, 2 could not look.

mod args;
mod attach;
mod core;
mod demo;
mod demo_target;
mod explain;
mod generate;
mod hang_report;
mod manual;
mod monitor;
mod output;
mod private_file;
mod progress;
mod run;
mod schema;
mod snapshot;
mod version;
mod watch;

use std::fmt;
use std::process::ExitCode;

use clap::Parser;

pub(crate) use args::{
    AttachArguments, CoreArguments, GenerateArguments, Generated, MonitorArguments, OnHang, OutputArguments,
    ReportArguments, RunArguments, SnapshotArguments, WatchArguments,
};

/// Could not look: usage, permission, no such process.
const EXIT_FAILURE: u8 = 2;

/// Why lockscope could not do what it was asked to: one sentence, and what to try next.
#[derive(Debug)]
pub(crate) struct CliError {
    /// Lower case, without a full stop.
    pub message: String,
    /// Next steps.
    pub hints: Vec<String>,
}

impl CliError {
    /// An error without a hint.
    pub(crate) fn new(message: impl Into<String>) -> CliError {
        CliError { message: message.into(), hints: Vec::new() }
    }

    /// The same with one more hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CliError {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "error: {}", crate::render::escape(&self.message))?;
        for hint in &self.hints {
            write!(formatter, "\nhint: {}", crate::render::escape(hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for CliError {}

impl From<crate::analysis::Error> for CliError {
    fn from(error: crate::analysis::Error) -> CliError {
        CliError::new(error.to_string())
    }
}

/// Parse the arguments of this process, do it, say how it went.
pub fn run() -> ExitCode {
    // clap itself ends the process on wrong usage, with 2.
    let arguments = args::Arguments::parse();
    let done = match arguments.command {
        args::Command::Attach(arguments) => attach::run(&arguments),
        args::Command::Core(arguments) => core::run(&arguments),
        args::Command::Snapshot(arguments) => snapshot::run(&arguments),
        args::Command::Run(arguments) => return run::run(&arguments),
        args::Command::Watch(arguments) => watch::run(&arguments),
        args::Command::Monitor(arguments) => monitor::run(&arguments),
        args::Command::Explain { finding } => explain::run(finding.as_deref()),
        args::Command::Schema => schema::run(),
        args::Command::Generate(arguments) => generate::run(&arguments),
        args::Command::Demo => demo::run(),
        args::Command::DemoTarget => demo_target::run(),
    };
    done.unwrap_or_else(|error| {
        output::say(&error.to_string());
        ExitCode::from(EXIT_FAILURE)
    })
}

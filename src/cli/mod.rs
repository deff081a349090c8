//! The command line: typed arguments first, the system touched second.
//!
//! One file a subcommand. Reports go to standard output, everything else to standard error. Exit status: 0 nothing
//! wrong found, 1 found, 2 could not sample.

mod args;
mod attach;
mod calls;
mod clusters;
mod core;
mod core_input;
mod demo;
mod demo_target;
mod digests;
mod explain;
mod generate;
mod hang_report;
mod help;
mod job;
mod man_pages;
mod merge;
mod mistakes;
mod monitor;
mod output;
mod private_file;
mod processes;
mod progress;
mod provoke;
mod rank;
mod record;
mod reproducer;
mod requests;
mod run;
mod schema;
mod service;
mod session;
mod snapshot;
mod spawned;
mod test_end;
mod test_journal;
mod values;
mod version;
mod watch;
mod watch_arguments;

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

pub(crate) use args::{
    AttachArguments, Color, CoreArguments, GenerateArguments, Generated, JobArguments, MergeArguments,
    MonitorArguments, OnHang, OutputArguments, Record, RecordArguments, RunArguments, SnapshotArguments,
};
pub(crate) use values::ProcessName;
pub(crate) use watch_arguments::{ReportArguments, WatchArguments};

use crate::render;

/// No sample: usage, permission, no such process.
const EXIT_FAILURE: u8 = 2;

/// The reason why lockscope failed: one sentence, and the next thing to try.
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
        write!(formatter, "error: {}", render::escape(&self.message))?;
        for hint in &self.hints {
            write!(formatter, "\nhint: {}", render::escape(hint))?;
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
    crate::sys::take_actions();
    let words: Vec<OsString> = std::env::args_os().collect();
    // Only `--help` and errors need the sections below the options, so only then are they laid out.
    let parsed = args::Arguments::command().try_get_matches_from(&words);
    let parsed = parsed.or_else(|_| man_pages::command().try_get_matches_from(&words));
    let arguments = match parsed.and_then(|matches| args::Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return not_understood(&words, &error),
    };
    let color = arguments.color;
    if arguments.command.only_looks() {
        crate::sys::prepare_heap();
    }
    crate::image::live::stalled::when_a_file_stalls(end_stalled);
    let done = match arguments.command {
        args::Command::Attach(arguments) => attach::run(&arguments, color),
        args::Command::Core(arguments) => core::run(&arguments, color),
        args::Command::Snapshot(arguments) => snapshot::run(&arguments),
        args::Command::Run(arguments) => return run::run(&arguments, color),
        args::Command::Watch(arguments) => watch::run(&arguments, color),
        args::Command::Monitor(arguments) => monitor::run(&arguments),
        args::Command::Record(arguments) => record::run(&arguments, color),
        args::Command::Job(arguments) => job::run(&arguments, color),
        args::Command::Merge(arguments) => merge::run(&arguments, color),
        args::Command::Explain { finding } => explain::run(finding.as_deref()),
        args::Command::Help { word } => help::run(word.as_deref(), color),
        args::Command::Schema => schema::run(),
        args::Command::Generate(arguments) => generate::run(&arguments),
        args::Command::Demo => demo::run(color),
        args::Command::DemoTarget => demo_target::run(),
    };
    done.unwrap_or_else(|error| {
        output::say(&error.to_string());
        ExitCode::from(EXIT_FAILURE)
    })
}

#[expect(clippy::exit, reason = "the thread that waits for the page takes no other way out")]
fn end_stalled(files: &[String]) {
    output::say(&stalled(files).to_string());
    std::process::exit(i32::from(EXIT_FAILURE));
}

/// A sample that cannot come to its end.
fn stalled(files: &[String]) -> CliError {
    let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
    let error = CliError::new(format!(
        "a file of the target did not come for 10 s: its file system answered at first, and is another program's or machine's ({})",
        files.join(", ")
    ));
    error.hint("nothing stood still for it. Look again: what gives no answer at the start is left out, and told")
}

/// Help and version, which clap calls errors too, or what is wrong with the words and what was meant.
fn not_understood(words: &[OsString], error: &clap::Error) -> ExitCode {
    // If that fails, there is no other way to report it.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    for hint in mistakes::hints(&words, error.kind()) {
        output::say(&render::escape(&format!("hint: {hint}")));
    }
    // As timeout(1): the command's own 2 must not be taken for it.
    let is_run = words.iter().find(|word| !word.starts_with('-')).is_some_and(|word| word == "run");
    let is_shown = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    ExitCode::from(if is_run && !is_shown { run::FAILED } else { EXIT_FAILURE })
}

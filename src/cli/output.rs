//! Where reports go: standard output, or files that only their owner can read.
//!
//! With `-o` nothing goes to standard output but what `-o -` asks for; one line on standard error says what was
//! found. A reader that closes its pipe early is no error.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{CliError, Color, OutputArguments, private_file};
use crate::analysis::{Keep, Outcome};
use crate::render::{self, Detail, Format, Style};
use crate::report::Report;

/// One place to write a report to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Standard output.
    Stdout(Format),
    /// A file.
    File(PathBuf, Format),
    /// A file with a snapshot, whatever its ending.
    Snapshot(PathBuf),
}

/// The destinations of the report, checked before any process is sampled.
pub(super) fn destinations(arguments: &OutputArguments) -> Result<Vec<Destination>, CliError> {
    if arguments.files.is_empty() {
        if arguments.quiet {
            return Ok(Vec::new());
        }
        return Ok(vec![Destination::Stdout(arguments.format.unwrap_or(Format::Text))]);
    }
    let file = |path: &PathBuf| {
        if is_stdout(path) {
            return Ok(Destination::Stdout(arguments.format.unwrap_or(Format::Text)));
        }
        if is_snapshot(path) {
            return Ok(Destination::Snapshot(path.clone()));
        }
        match Format::from_path(path).or(arguments.format) {
            Some(format) => Ok(Destination::File(path.clone(), format)),
            None => Err(CliError::new(format!("the ending of `{}` names no format", path.display()))
                .hint("use .txt, .html, .md, .json, .sarif, .dot, .gv, .svg, .mmd or .snapshot, or say --format")),
        }
    };
    arguments.files.iter().map(file).collect()
}

/// How text is laid out on standard output.
pub(super) fn style(color: Color) -> Style {
    let style = Style::for_stdout();
    Style { color: is_colored(color, style.color), ..style }
}

/// The user's choice, else that of the environment.
pub(super) fn is_colored(color: Color, otherwise: bool) -> bool {
    match color {
        Color::Auto => otherwise,
        Color::Always => true,
        Color::Never => false,
    }
}

/// `-`, as many programs call it.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether a name says that a snapshot is wanted.
fn is_snapshot(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.strip_suffix(".zst").unwrap_or(&name).ends_with(".snapshot")
}

/// The data that must be kept for these destinations.
pub(super) fn keep(destinations: &[Destination]) -> Keep {
    let wanted = destinations.iter().any(|destination| matches!(destination, Destination::Snapshot(_)));
    if wanted { Keep::Snapshot { redact: false } } else { Keep::Nothing }
}

/// Write what was found to each destination; the exit status that the verdict asks for.
pub(super) fn write(
    outcome: &Outcome,
    destinations: &[Destination],
    arguments: &OutputArguments,
    color: Color,
) -> Result<ExitCode, CliError> {
    let detail = arguments.detail();
    let report = &outcome.report;
    if let Some(tid) = detail.thread {
        let mut threads = report.processes.iter().flat_map(|process| &process.threads);
        if !threads.any(|thread| thread.has_id(tid)) {
            return Err(CliError::new(format!("there is no thread {tid} among those that were looked at"))
                .hint("--all tells of each"));
        }
    }
    let mut files = Vec::new();
    let mut stdout = false;
    for destination in destinations {
        match destination {
            Destination::Stdout(format) => {
                stdout = true;
                to_stdout(&rendered(report, *format, &Style { detail, ..style(color) })?)?;
            }
            Destination::File(path, format) => {
                self::report(path, report, *format, detail)?;
                files.push(path.display().to_string());
            }
            Destination::Snapshot(path) => {
                snapshot(path, outcome)?;
                files.push(path.display().to_string());
            }
        }
    }
    if !stdout && !arguments.quiet {
        headline(report, &format!("written to {}", files.join(", ")));
    }
    Ok(ExitCode::from(report.verdict.exit_code()))
}

fn rendered(report: &Report, format: Format, style: &Style) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    render::render(report, format, style, &mut bytes)
        .map_err(|error| CliError::new(format!("cannot render the report: {error}")))?;
    Ok(bytes)
}

/// Write a report to a file that only its owner can read.
pub(super) fn report(path: &Path, report: &Report, format: Format, detail: Detail) -> Result<(), CliError> {
    // Addresses in SARIF are relative to where the sources are.
    let working_directory = std::env::current_dir().ok().filter(|_| format == Format::Sarif);
    named(path, &rendered(report, format, &Style { detail, working_directory, ..Style::plain() })?)
}

/// One line on standard error: what was found, and what became of it.
pub(super) fn headline(report: &Report, what_became: &str) {
    say(&render::escape(&format!("{}: {}; {what_became}", report.verdict.as_str(), render::headline(report))));
}

/// Write a snapshot, compressed where its name says so and on standard output (`-`); its size in bytes.
pub(super) fn snapshot(path: &Path, outcome: &Outcome) -> Result<usize, CliError> {
    let bytes = outcome.snapshot.as_deref().unwrap_or_default();
    let is_packed = is_stdout(path) || path.extension().is_some_and(|ending| ending == "zst");
    let packed = is_packed.then(|| crate::snapshot::packed(bytes));
    let bytes = packed.as_deref().unwrap_or(bytes);
    if is_stdout(path) {
        to_stdout(bytes)?
    } else {
        named(path, bytes)?
    }
    Ok(bytes.len())
}

/// Write a file that only its owner can read, or say which could not be written.
pub(super) fn named(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    private_file::write(path, bytes)
        .map_err(|error| CliError::new(format!("cannot write `{}`: {error}", path.display())))
}

/// Write to standard output; a closed pipe means that the reader has what it wanted.
pub(super) fn to_stdout(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A line on standard error; if that fails, there is no other way to report it.
pub(super) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(format: Option<Format>, files: &[&str]) -> OutputArguments {
        OutputArguments { format, files: files.iter().map(PathBuf::from).collect(), ..OutputArguments::default() }
    }

    #[test]
    fn endings_win_over_the_format() {
        let to = |format, files: &[&str]| destinations(&arguments(format, files)).map_err(|error| error.to_string());
        assert_eq!(to(None, &[]), Ok(vec![Destination::Stdout(Format::Text)]));
        assert_eq!(to(Some(Format::Json), &[]), Ok(vec![Destination::Stdout(Format::Json)]));
        assert_eq!(to(Some(Format::Dot), &["a.json"]), Ok(vec![Destination::File("a.json".into(), Format::Json)]));
        assert_eq!(
            to(Some(Format::Dot), &["a", "-"]),
            Ok(vec![Destination::File("a".into(), Format::Dot), Destination::Stdout(Format::Dot)])
        );
        let quiet = OutputArguments { quiet: true, ..arguments(Some(Format::Json), &[]) };
        assert_eq!(destinations(&quiet).unwrap(), []);
        assert!(to(None, &["a"]).unwrap_err().contains("hint: use .txt"));
    }
}

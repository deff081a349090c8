//! Where reports go: standard output, or files that only their owner can read.
//!
//! With `-o` nothing goes to standard output but what `-o -` asks for; one line on standard error says what was
//! found. A reader that closes its pipe early is no error.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{CliError, OutputArguments};
use crate::render::{self, Format, Style};
use crate::report::Report;

/// One place to write a report to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Standard output.
    Stdout(Format),
    /// A file.
    File(PathBuf, Format),
}

/// What the user asked for, checked before any process is looked at.
pub(super) fn destinations(arguments: &OutputArguments) -> Result<Vec<Destination>, CliError> {
    if arguments.files.is_empty() {
        return Ok(vec![Destination::Stdout(arguments.format.unwrap_or(Format::Text))]);
    }
    let file = |path: &PathBuf| {
        if path == Path::new("-") {
            return Ok(Destination::Stdout(arguments.format.unwrap_or(Format::Text)));
        }
        match Format::from_path(path).or(arguments.format) {
            Some(format) => Ok(Destination::File(path.clone(), format)),
            None => Err(CliError::new(format!("the ending of `{}` names no format", path.display()))
                .hint("use .txt, .json, .dot or .gv, or say --format")),
        }
    };
    arguments.files.iter().map(file).collect()
}

/// Write `report` to each destination.
pub(super) fn write(report: &Report, destinations: &[Destination]) -> Result<(), CliError> {
    let mut files = Vec::new();
    let mut stdout = false;
    for destination in destinations {
        let mut bytes = Vec::new();
        let (format, style) = match destination {
            Destination::Stdout(format) => (*format, Style::for_stdout()),
            Destination::File(_, format) => (*format, Style::plain()),
        };
        render::render(report, format, &style, &mut bytes)
            .map_err(|error| CliError::new(format!("cannot render the report: {error}")))?;
        match destination {
            Destination::Stdout(_) => {
                stdout = true;
                to_stdout(&bytes)?;
            }
            Destination::File(path, _) => {
                to_file(path, &bytes)
                    .map_err(|error| CliError::new(format!("cannot write `{}`: {error}", path.display())))?;
                files.push(path.display().to_string());
            }
        }
    }
    if !stdout {
        let title = report.findings.first().map(|finding| format!(": {}", finding.title)).unwrap_or_default();
        let line = format!("{}{title}; written to {}", report.verdict.as_str(), files.join(", "));
        say(&render::escape(&line));
    }
    Ok(())
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

/// A line on standard error; nobody is left to tell if that fails.
pub(super) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Reports carry paths, arguments and on request local variables: nobody else may read them, also where the file
/// existed with wider permissions.
fn to_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(format: Option<Format>, files: &[&str]) -> OutputArguments {
        OutputArguments { format, files: files.iter().map(PathBuf::from).collect() }
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
        assert!(to(None, &["a"]).unwrap_err().contains("hint: use .txt"));
    }

    #[test]
    fn files_are_private_also_when_they_existed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.txt");
        std::fs::write(&path, "a longer text than the new one").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        to_file(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

//! `lockscope record`: which orders of locks could deadlock, by what `run --record` wrote down; and the same when the command ended.
//!
//! In: files of the recorder, of one run or of many. Out: one report. A file that cannot be read is a gap.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{CliError, Color, RecordArguments, output};
use crate::analysis::Outcome;
use crate::forecast::{self, Recording, Suppressions};
use crate::image::Gap;
use crate::limits;
use crate::limits::forecast::MOST_FILES;
use crate::recorder::library;
use crate::recorder::orders::Orders;
use crate::report::{Report, Severity, Verdict};
use crate::verdict::explain;

/// How the recorder's files end.
const ENDING: &str = "orders";

/// Read the files that `arguments` name and write one report.
pub(super) fn run(arguments: &RecordArguments, color: Color) -> Result<ExitCode, CliError> {
    if arguments.preload {
        let preload = library::preload().map_err(|error| CliError::new(error.to_string()))?;
        output::to_stdout(format!("{}\n", preload.to_string_lossy()).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let destinations = output::destinations(&arguments.output)?;
    let suppressions = suppressions(arguments.suppressions.as_deref())?;
    limits::begin();
    let files = files(&arguments.inputs)?;
    let report = of_files(&files, &suppressions);
    let is_bad = arguments.strict && is_bad(&report);
    output::write(&Outcome::of(report), &destinations, &arguments.output, color)?;
    Ok(ExitCode::from(u8::from(is_bad)))
}

/// The recorder's files among these files and folders.
fn files(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for input in inputs {
        let failed = |error| CliError::new(format!("cannot read `{}`: {error}", input.display()));
        match std::fs::metadata(input).map_err(failed)?.is_dir() {
            true => add(input, &mut files).map_err(failed)?,
            false => files.push(input.clone()),
        }
    }
    if files.is_empty() {
        return Err(CliError::new("there is no file of a recorder")
            .hint("`lockscope run --record --report-dir DIR -- COMMAND` keeps those of a command in DIR/orders"));
    }
    Ok(files)
}

/// Whether a recorder wrote a file, by how it begins.
pub(super) fn is_recorders(path: &Path) -> bool {
    let mut begin = [0; 16];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && Orders::is_one(&begin)
}

/// The recordings in these files and folders; an error if one of them cannot be read.
pub(super) fn recordings(inputs: &[PathBuf]) -> Result<Vec<Recording>, CliError> {
    limits::begin();
    let read = |path: &PathBuf| {
        Recording::read(path).map_err(|why| CliError::new(format!("cannot read `{}`: {why}", path.display())))
    };
    files(inputs)?.iter().take(MOST_FILES).map(read).collect()
}

/// The readable recordings of a folder.
pub(super) fn recordings_of(folder: &Path) -> Vec<Recording> {
    let mut files = Vec::new();
    // The report at the end of the command has the others as gaps.
    let _ = add(folder, &mut files);
    limits::begin();
    files.iter().take(MOST_FILES).filter_map(|path| Recording::read(path).ok()).collect()
}

/// Whether there is more than notes.
pub(super) fn is_bad(report: &Report) -> bool {
    report.verdict == Verdict::CouldDeadlock && report.findings.iter().any(|finding| finding.severity < Severity::Note)
}

/// The suppressions of a file, if there is one.
pub(super) fn suppressions(file: Option<&Path>) -> Result<Suppressions, CliError> {
    let Some(file) = file else { return Ok(Suppressions::default()) };
    let name = file.display();
    let text =
        std::fs::read_to_string(file).map_err(|error| CliError::new(format!("cannot read `{name}`: {error}")))?;
    Suppressions::parse(&text).map_err(|error| CliError::new(format!("`{name}`: {error}")))
}

/// The report on what was written to a folder, if anything was.
pub(super) fn of_folder(folder: &Path, suppressions: &Suppressions) -> Option<Report> {
    let mut files = Vec::new();
    add(folder, &mut files).ok()?;
    limits::begin();
    (!files.is_empty()).then(|| of_files(&files, suppressions))
}

fn add(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.is_symlink() {
            add(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == ENDING) {
            files.push(path);
        }
    }
    Ok(())
}

fn of_files(files: &[PathBuf], suppressions: &Suppressions) -> Report {
    let mut recordings = Vec::new();
    let mut gaps = Vec::new();
    if files.len() > MOST_FILES {
        limits::met(MOST_FILES, "files of recorded processes", "files");
    }
    for path in files.iter().take(MOST_FILES) {
        match Recording::read(path) {
            Ok(recording) => recordings.push(recording),
            Err(why) => gaps.push(Gap::new(format!("`{}`", path.display()), why)),
        }
    }
    let help = explain(forecast::CODE).map(|explanation| explanation.help.clone()).unwrap_or_default();
    let mut report = forecast::report(&recordings, suppressions, &help);
    // Unreadable files come first: the last gap is in every report.
    report.gaps.splice(0..0, gaps);
    report
}

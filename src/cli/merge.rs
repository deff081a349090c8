//! `lockscope merge`: one verdict over the digests of a job's nodes.

use std::process::ExitCode;

use super::{CliError, Color, MergeArguments, digests, output};
use crate::analysis::Outcome;
use crate::job;
use crate::report::Gap;

/// Read the files that `arguments` name and write one report, or one digest of them all.
pub(super) fn run(arguments: &MergeArguments, color: Color) -> Result<ExitCode, CliError> {
    let mut wanted = arguments.output.clone();
    let (together, reports): (Vec<_>, Vec<_>) = wanted.files.into_iter().partition(|path| digests::is_digest(path));
    wanted.files = reports;
    let is_report_wanted = together.is_empty() || !wanted.files.is_empty();
    let destinations = output::destinations(&wanted)?;
    crate::limits::begin();
    let taken = digests::read(&arguments.inputs)?;
    if let Some(version) = taken.digest.later_version().filter(|_| !together.is_empty()) {
        return Err(CliError::new(format!(
            "a file is of version {version} of digests, of which this lockscope does not know all, and would lose it"
        ))
        .hint("merge into a digest with the lockscope that wrote it; for a report this one will do"));
    }
    for path in &together {
        output::named(path, &taken.digest.write())?;
    }
    let mut report = job::report(&taken.digest);
    report.gaps.extend(taken.gaps);
    report.gaps.extend(crate::limits::told().into_iter().map(|met| Gap::new(met.what, met.why)));
    if !is_report_wanted {
        let written: Vec<String> = together.iter().map(|path| path.display().to_string()).collect();
        if !arguments.output.quiet {
            output::headline(&report, &format!("written to {}", written.join(", ")));
        }
        return Ok(ExitCode::from(report.verdict.exit_code()));
    }
    output::write(&Outcome::of(report), &destinations, &wanted, color)
}

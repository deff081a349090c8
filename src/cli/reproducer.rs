//! `--reproducer FILE` of `attach` and `core`: the orders of a hang, for `lockscope run --provoke=FILE`.
//!
//! In: what a look came to. Out: a text file; a line on standard error where there is no cycle to write.

use std::path::Path;

use super::{CliError, output};
use crate::analysis::Outcome;
use crate::image::Addr;
use crate::provoke::{NativePlace, reproducer, text};

/// Write the cycles of a report to a file, if there are any.
pub(super) fn write(file: Option<&Path>, outcome: &Outcome, is_quiet: bool) -> Result<(), CliError> {
    let Some(file) = file else { return Ok(()) };
    let report = &outcome.report;
    let locate = |process: &str, pc: u64| {
        let position = report.processes.iter().position(|one| one.id == process)?;
        let pc = Addr(pc);
        let code = outcome.code.get(position)?.iter().find(|code| code.addresses.contains(&pc))?;
        Some(NativePlace {
            module: code.path.clone(),
            build: code.build.clone(),
            offset: Some(pc - code.addresses.start + code.offset),
            ..NativePlace::default()
        })
    };
    let predictions = reproducer::predictions(report, &locate);
    if predictions.is_empty() {
        output::say(&format!(
            "lockscope: `{}` was not written: the report has no cycle of threads that wait for locks",
            file.display()
        ));
        return Ok(());
    }
    let made_by = format!("Written by lockscope {}.", env!("CARGO_PKG_VERSION"));
    output::named(file, text::write(&predictions, &made_by).as_bytes())?;
    if !is_quiet {
        output::say(&format!("lockscope: `lockscope run --provoke={} -- COMMAND` makes it happen", file.display()));
    }
    Ok(())
}

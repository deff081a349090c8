//! `lockscope snapshot`: saves everything that `lockscope core` needs to analyse running processes elsewhere.

use std::process::ExitCode;

use super::{CliError, SnapshotArguments, output, processes, progress};
use crate::analysis::{self, AttachOptions, Keep};

/// Look at the processes that `arguments` name and write a snapshot.
pub(super) fn run(arguments: &SnapshotArguments) -> Result<ExitCode, CliError> {
    let options = AttachOptions {
        tree: arguments.tree,
        follow: !arguments.no_tree,
        offspring: !arguments.no_tree,
        max_pause: arguments.stopping.max_pause,
        stopping: arguments.stopping.choice(),
        locals: arguments.locals,
        ..AttachOptions::of(processes::resolve(&arguments.processes, "snapshot")?)
    };
    let outcome =
        progress::unless(arguments.quiet, || analysis::attach(&options, Keep::Snapshot { redact: arguments.redact }))?;
    let size = output::snapshot(&arguments.file, &outcome)?;
    if arguments.quiet {
        return Ok(ExitCode::SUCCESS);
    }
    let to = if output::is_stdout(&arguments.file) {
        "standard output".into()
    } else {
        arguments.file.display().to_string()
    };
    let written = format!("{} KiB written to {to}", size.div_ceil(1024));
    output::headline(&outcome.report, &written);
    if let Some(remains) = &outcome.remains {
        output::say(&format!("note: {}: {}", remains.what, remains.why));
    }
    Ok(ExitCode::SUCCESS)
}

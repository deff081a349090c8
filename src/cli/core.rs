//! `lockscope core`: look at core files or at a snapshot.

use std::process::ExitCode;

use super::{CliError, Color, CoreArguments, output, progress};
use crate::analysis::{self, CoreOptions};
use crate::image::core::Places;

/// Look at the files that `arguments` name and write the report.
pub(super) fn run(arguments: &CoreArguments, color: Color) -> Result<ExitCode, CliError> {
    let destinations = output::destinations(&arguments.output)?;
    let places = Places {
        exe: arguments.exe.clone(),
        sysroot: arguments.sysroot.clone(),
        debug_directories: arguments.debug_directories.clone(),
    };
    for (option, path) in [("--exe", &places.exe), ("--sysroot", &places.sysroot)] {
        if let Some(path) = path.as_ref().filter(|path| !path.exists()) {
            return Err(CliError::new(format!("{option}: there is no `{}`", path.display())));
        }
    }
    let options = CoreOptions { files: arguments.cores.clone(), places, working: arguments.output.wants_working() };
    let outcome =
        progress::unless(arguments.output.quiet, || analysis::post_mortem(&options, output::keep(&destinations)))?;
    output::write(&outcome, &destinations, &arguments.output, color)
}

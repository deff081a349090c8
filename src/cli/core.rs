//! `lockscope core`: report from core files or a snapshot.

use std::process::ExitCode;

use super::core_input::{self, CoreInput};
use super::{CliError, Color, CoreArguments, output, progress, reproducer};
use crate::analysis::{self, CoreOptions};
use crate::image::core::Places;

/// Read the files that `arguments` name and write the report.
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
    let (mut files, mut input) = (arguments.cores.clone(), None);
    if files.iter().filter(|file| core_input::is_meant(file)).count() > 1 {
        return Err(CliError::new("standard input can be one core only"));
    }
    if let Some(file) = files.iter_mut().find(|file| core_input::is_meant(file)) {
        let core = input.insert(CoreInput::read(arguments.most_input)?);
        *file = core.path();
    }
    let options = CoreOptions { files, places, working: arguments.output.wants_working() };
    let mut outcome =
        progress::unless(arguments.output.quiet, || analysis::post_mortem(&options, output::keep(&destinations)))?;
    // The path of the temporary copy says nothing to readers.
    if let (Some(path), Some(input)) = (&mut outcome.report.source.path, &input) {
        *path = path.replace(&input.path().display().to_string(), core_input::NAME);
    }
    let written = output::write(&outcome, &destinations, &arguments.output, color)?;
    reproducer::write(arguments.reproducer.as_deref(), &outcome, arguments.output.quiet)?;
    Ok(written)
}

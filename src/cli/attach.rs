//! `lockscope attach`: look at running processes.

use super::{AttachArguments, CliError};
use crate::analysis::{self, AttachOptions};
use crate::report::Report;

/// Look at the processes that `arguments` name.
pub(super) fn run(arguments: &AttachArguments) -> Result<Report, CliError> {
    let options = AttachOptions {
        pids: arguments.pids.clone(),
        tree: arguments.tree,
        max_pause: arguments.max_pause,
        locals: arguments.locals,
    };
    Ok(analysis::attach(options)?)
}

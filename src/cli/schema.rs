//! `lockscope schema`: the JSON schema of the report.

use std::process::ExitCode;

use super::{CliError, output};
use crate::render::json;

/// Print the schema.
pub(super) fn run() -> Result<ExitCode, CliError> {
    output::to_stdout(format!("{:#}\n", json::schema()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

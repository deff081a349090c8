//! The pipeline from processes to a report. To be filled.

use std::time::Duration;

use crate::report::Report;

/// What to look at, and how.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// Processes, the first one's progress decides between running and blocked.
    pub pids: Vec<i32>,
    /// Also all descendants.
    pub tree: bool,
    /// Longest time to keep a process stopped.
    pub max_pause: Duration,
    /// Local variables of Python frames.
    pub locals: bool,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    hints: Vec<String>,
}

impl Error {
    /// What to try next.
    pub fn hints(&self) -> Vec<String> {
        self.hints.clone()
    }
}

/// Look at running processes.
pub fn attach(options: AttachOptions) -> Result<Report, Error> {
    Err(Error { message: format!("cannot look at {:?} yet", options.pids), hints: Vec::new() })
}

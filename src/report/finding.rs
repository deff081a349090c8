//! What was recognised, how grave it is and who takes part.
//!
//! In: nothing. Out: types of the report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::waits::model::Certainty;

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// It hangs because of this.
    Error,
    /// It may hang or stall because of this.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word in JSON and text.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// Whether a finding is about what was seen to happen. What says nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingClass {
    /// It did not happen, and could.
    Possible,
}

/// A recognised situation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Finding {
    /// Its name in the contract.
    pub code: String,
    /// How grave.
    pub severity: Severity,
    /// `possible`: it did not happen, and could. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FindingClass>,
    /// A headline.
    pub title: String,
    /// What happens, in sentences.
    pub message: String,
    /// How sure: `exact` only where all of its premises were read.
    #[serde(default = "not_said")]
    pub certainty: Certainty,
    /// Threads that take part.
    pub threads: Vec<ThreadReference>,
    /// Resources that take part.
    pub resources: Vec<String>,
    /// Of a wait without end: what could have ended it, and why that cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<String>,
    /// What to change.
    pub help: Vec<String>,
    /// Public reports of the same.
    pub references: Vec<String>,
}

/// For a finding of version 1.0, which says nothing of it.
fn not_said() -> Certainty {
    Certainty::Inferred
}

/// A thread by process and tid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ThreadReference {
    /// Process.
    pub process: String,
    /// Thread.
    pub tid: i32,
}

impl ThreadReference {
    pub(crate) fn key(&self) -> (&str, i32) {
        (self.process.as_str(), self.tid)
    }
}

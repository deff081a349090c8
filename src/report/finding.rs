//! A recognised situation: its severity and its participants.
//!
//! In: nothing. Out: types of the report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::waits::model::Certainty;
use crate::waits::proof::Proof;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// The process hangs because of this.
    Error,
    /// The process may hang or stall because of this.
    Warning,
    /// For information.
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

/// Whether a finding is about something that happened. A finding without a class is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingClass {
    /// It did not happen, but could.
    Possible,
}

/// A recognised situation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Finding {
    /// Its code in the contract.
    pub code: String,
    /// Its severity.
    pub severity: Severity,
    /// `possible`: it did not happen, but could. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FindingClass>,
    /// A headline.
    pub title: String,
    /// The events, in sentences.
    pub message: String,
    /// Its certainty: `exact` only if all of its premises were read.
    #[serde(default = "not_said")]
    pub certainty: Certainty,
    /// Its proof: the weakest of its premises. (Since 1.2.)
    #[serde(default = "Proof::unstated")]
    pub proof: Proof,
    /// Participating threads.
    pub threads: Vec<ThreadReference>,
    /// Participating resources.
    pub resources: Vec<String>,
    /// For a wait without end: everything that could have ended it, and why it cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<String>,
    /// The recommended changes.
    pub help: Vec<String>,
    /// Public reports of the same problem.
    pub references: Vec<String>,
}

/// The proof of a finding of version 1.0, which has no field for it.
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

//! The head of a report: the participants, each at the lines of source where it took something and waits.
//!
//! In: nothing. Out: plain data, ready to be set out. It is made in `verdict::scenes`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ThreadReference;

/// A participant, or several with the same activity, at the lines of source that matter. (Since 1.1.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Participant {
    /// `Thread-1 (14016)`; for several `pool_0 (14016) and 31 more`.
    pub who: String,
    /// The threads; none for a participant that is no thread.
    pub threads: Vec<ThreadReference>,
    /// Their places: the last one is the place of the wait.
    pub places: Vec<ParticipantPlace>,
}

/// A function, with the lines that matter in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ParticipantPlace {
    /// The source file, by its absolute path if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line that the function is at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The function, or module and offset if it has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The file was changed after the process began, so these may not be the lines that run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    /// The lines that matter there, in their order.
    pub lines: Vec<ParticipantLine>,
}

/// A line of source, and the participant's action there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ParticipantLine {
    /// Its number, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Its text, if it may be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// "holds it", "waits, held by Thread-2".
    pub does: String,
    /// Where in the text the lock's name stands, else the call: the number of bytes before it. (Since 1.2.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

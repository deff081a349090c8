//! What a person reads first: those who take part, each at the lines of source where he took something and waits.
//!
//! In: nothing. Out: plain data, ready to be set out. It is made in `verdict::scenes`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ThreadReference;

/// Somebody who takes part, or several who do the same, at the lines of source that matter. (Since 1.1.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Scene {
    /// `Thread-1 (14016)`, or of several `pool_0 (14016) and 31 more`.
    pub who: String,
    /// The threads; none for whoever is no thread.
    pub threads: Vec<ThreadReference>,
    /// Where they are: the place where they wait is the last.
    pub places: Vec<ScenePlace>,
}

/// A function, and what happens in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ScenePlace {
    /// The source file, by its absolute path where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line that the function is at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The function, or module and offset of one without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The file was changed after the process began: these may not be the lines that run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    /// What happens there, in the order of the lines.
    pub lines: Vec<SceneLine>,
}

/// A line of source, and what somebody does there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SceneLine {
    /// Its number, where it is known at which line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Its text, where that may be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// "holds it", "waits, held by Thread-2".
    pub does: String,
}

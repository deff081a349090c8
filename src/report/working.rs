//! The steps of reading a thread, with all data to check each step in a debugger.
//!
//! Part of a [`Report`](super::Report) on request only (`--verbose`, `--raw`): it is many times as long as the rest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The captured data of one thread.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Working {
    /// The system call that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_call: Option<SystemCall>,
    /// Registers at the stop: name and value.
    pub registers: Vec<(String, String)>,
    /// Native frames as they were unwound, innermost first, with those that run Python.
    pub native: Vec<NativeFrame>,
    /// The reason why there are no more frames.
    pub end: String,
    /// Memory of the resources that it waits for and holds, if they lie in memory.
    pub memory: Vec<Words>,
}

/// A system call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SystemCall {
    /// Its number.
    pub number: i64,
    /// Its name, if it is a call that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All six argument registers, used or not.
    pub arguments: Vec<String>,
}

/// A native frame before merging.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct NativeFrame {
    /// Function.
    pub function: Option<String>,
    /// Module.
    pub module: Option<String>,
    /// Offset of the pc in its module.
    pub module_offset: Option<String>,
    /// Instruction pointer.
    pub pc: String,
    /// Stack pointer.
    pub sp: String,
    /// Canonical frame address; unknown in the last frame.
    pub cfa: Option<String>,
    /// The way in which it was found.
    pub trust: super::Trust,
    /// Callee-saved registers that are known there: name and value; in the innermost frames only.
    pub registers: Vec<(String, String)>,
}

/// Words of memory.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Words {
    /// The resource at this address.
    pub resource: String,
    /// Address of the first word.
    pub address: String,
    /// Words of four bytes, as gdb's `x/16xw` prints them.
    pub words: Vec<String>,
}

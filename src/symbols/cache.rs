//! Earlier answers: the queries to a module, and their results.
//!
//! In: queries of one sample. Out: the same answers again, also on a machine without the files: a snapshot carries
//! them. Nothing is looked up here.

use std::collections::BTreeMap;

use super::{LockPath, SourceFrame, Symbol, Variable};
use crate::image::Addr;

/// Answers by question. That there is no answer is one as well.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SymbolCache {
    /// Functions that cover an address.
    pub functions: BTreeMap<Addr, Option<Symbol>>,
    /// Data objects that cover an address.
    pub objects: BTreeMap<Addr, Option<Symbol>>,
    /// Symbols by name, by position of the module.
    pub named: BTreeMap<usize, BTreeMap<String, Option<Symbol>>>,
    /// First addresses of the functions that cover an address.
    #[serde(default)]
    pub starts: BTreeMap<Addr, Option<Addr>>,
    /// Functions that a slot of the linker stands for.
    #[serde(default)]
    pub slots: BTreeMap<Addr, Option<String>>,
    /// Source positions.
    pub sources: BTreeMap<Addr, Vec<SourceFrame>>,
    /// Guards and locks among the variables of a place.
    #[serde(default)]
    pub variables: BTreeMap<Addr, Vec<Variable>>,
    /// Paths to locks from the variables of a place.
    #[serde(default)]
    pub paths: BTreeMap<Addr, Vec<LockPath>>,
    /// The same from the data of its unit.
    #[serde(default)]
    pub data_paths: BTreeMap<Addr, Vec<LockPath>>,
}

//! The input of the rules of findings and of the summary, and the result of a rule.
//!
//! In: one judged sample. Out: nothing of its own: [`super::findings`] and [`super::summary`] both stand on this.

use super::names::Names;
use super::{DeadEnd, JudgeInput, Orphan};
use crate::graph::Cycle;
use crate::waits::{Party, ResourceKey};

/// The input of a rule.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) input: &'a JudgeInput<'a>,
    pub(super) names: &'a Names<'a>,
    pub(super) cycles: &'a [Cycle],
    pub(super) orphans: &'a [Orphan],
    pub(super) dead_ends: &'a [DeadEnd],
    /// The role of each thread, by the positions of its process and its own.
    pub(super) roles: &'a Roles,
}

/// Roles of threads, in the order of [`JudgeInput::threads`].
pub(super) type Roles = Vec<Vec<Option<&'static crate::threads::Role>>>;

/// A finding before it has ids; empty texts are filled from the explanation.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Position of the cycle that it explains.
    pub(super) cycle: Option<usize>,
    /// In place of the explanation's title.
    pub(super) title: Option<String>,
    pub(super) message: String,
    pub(super) parties: Vec<Party>,
    pub(super) resources: Vec<ResourceKey>,
    /// In place of the explanation's help.
    pub(super) help: Vec<String>,
    /// In place of the first piece of the explanation's help: the same, with names.
    pub(super) first_help: Option<String>,
}

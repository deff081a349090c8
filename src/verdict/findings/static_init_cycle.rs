//! `static-init-cycle`: initialisers of static variables, or once functions, that wait for each other.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "static-init-cycle",
        title: "initialisers wait for each other",
        severity: Severity::Error,
        text: "A function's static variable (or a once function) is initialised by the first thread that comes; others wait until it is done. Here the initialiser itself waits: for another variable whose initialiser needs this one, for a thread that it joins, or for a lock or the GIL that a waiting thread has.\n\nWho runs an initialiser is recorded nowhere: it is inferred from the thread whose code stands between the acquisition and the release of the guard.",
        help: &[
            "let no initialiser use another one's variable: merge them, or build both in one function that is called first",
            "initialise eagerly, before threads start",
            "release the GIL before a static initialiser that other threads may run (pybind11: gil_safe_call_once_and_store)",
        ],
        references: &["pybind/pybind11#4877", "mattias800/prosper#1196"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.has_kind("static_guard") || cycle.has_kind("pthread_once"))
}

//! `stop-the-world-blocked`: a pause of all Python threads does not come about.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "stop-the-world-blocked",
        title: "a pause of all Python threads waits for a thread that cannot pause",
        severity: Severity::Error,
        text: "In a process without a GIL the garbage collector, and whatever else needs all threads to stand still, asks every thread that is attached to the interpreter to pause, and waits until the last one has. A thread that stays attached inside native code and waits there for what the one who asked holds never comes to the pause. It is what the deadlock of GIL and native lock has become.",
        help: &[
            "detach around calls of native code that can block: Py_BEGIN_ALLOW_THREADS, Cython's nogil, ctypes.CDLL instead of PyDLL",
            "release native locks before calling back into Python, where any allocation may start a collection",
        ],
        references: &["python/cpython#137433"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.has_kind("py_stop_the_world"))
}

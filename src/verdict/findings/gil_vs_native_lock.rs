//! `gil-vs-native-lock`: the GIL and a native lock are taken in both orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-vs-native-lock",
        title: "Python GIL <-> native lock",
        severity: Severity::Error,
        text: "One thread holds the GIL and waits for a lock of native code. The thread that holds this lock waits for the GIL. It usually took the lock with the GIL released and asked for the GIL again before it released the lock.",
        help: &[
            "release the GIL before taking the native lock (Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release, nogil)",
            "or release the native lock before asking for the GIL again: never call Python under it",
        ],
        references: &["NVIDIA/cuda-python#2840", "pytorch/pytorch#97833"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| context.gil_waiter(cycle).is_some() && cycle.edges.len() > 1)
}

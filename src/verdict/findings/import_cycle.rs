//! `import-cycle`: a module is imported by a thread that the import itself waits for.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "import-cycle",
        title: "an import waits for a thread that waits for the import",
        severity: Severity::Error,
        text: "While the body of a module runs, its thread has the import lock of that module. Another thread that imports the module waits for this lock, and the body of the module waits for that thread: it joins it, or waits for its result. Python sees cycles of imports and breaks them, but it does not see a wait for a thread.",
        help: &[
            "start no thread from the body of a module and wait for it there: do it in a function that is called after the import",
            "import what the thread needs before it is started, at the top of its own module",
        ],
        references: &["python/cpython#125037"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.has_kind("py_import_lock"))
}

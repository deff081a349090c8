//! `loader-lock-cycle`: a cycle through the lock of the dynamic loader.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "loader-lock-cycle",
        title: "a lock is waited for under the dynamic loader's lock",
        severity: Severity::Error,
        text: "dlopen, dlclose, dl_iterate_phdr and the constructors and destructors of libraries run with the loader's lock held. Code that runs there waits for another thread (it joins it, or needs a lock or the GIL that the thread has), and that thread needs the loader's lock: because it loads a library, resolves a symbol, throws an exception, or touches a thread-local variable of a library for the first time.",
        help: &[
            "do not start and join threads, or take locks, in constructors and destructors of libraries: do it in an explicit init function after dlopen returned",
            "in a dl_iterate_phdr callback only copy what is needed; call back into Python, or lock, after it returned",
            "load the libraries that the other thread needs before, from the main thread",
        ],
        references: &["CppMicroServices/CppMicroServices#291", "joblib/threadpoolctl#239", "python/cpython#157573"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.has_kind("loader_lock"))
}

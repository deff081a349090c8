//! `finalizing-interpreter`: at its end a program waits for what a daemon thread took with it.
//!
//! In: the judged look. Out: drafts of the finding. Whose interpreter is being finalised is known to the look.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "finalizing-interpreter",
        title: "a program that ends waits for a lock of a thread that its end has stopped",
        severity: Severity::Error,
        text: "When the main thread has come to its end, Python finalises the interpreter. From then on a daemon thread that asks for the GIL is ended (up to 3.13) or parked for good (3.14 on), wherever it is, with whatever it holds. Finalisers, atexit functions and destructors of C++ still run, and here one of them waits for a lock that such a thread had.",
        help: &[
            "do not use daemon threads for work that takes locks: tell them to stop, and join them before the program ends",
            "take no lock in __del__ and in atexit functions that a daemon thread may hold",
        ],
        references: &["python/cpython#87135"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let look = context.look;
    let is_finalizing = |process: usize| {
        look.python.get(process).and_then(Option::as_ref).is_some_and(|python| python.finalizing.is_some())
    };
    let orphans = context.orphans.iter().filter(|orphan| {
        let resource = &look.observations.holds[orphan.hold].resource;
        let described = look.observations.resource(resource);
        orphan.gone == Gone::Exited && described.is_some_and(|described| is_finalizing(described.process))
    });
    context.orphan_drafts_of(orphans)
}

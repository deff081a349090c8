//! `gil-vs-native-lock`: the GIL and a native lock are taken in both orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::Party;

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
    let mut drafts = context.cycle_drafts(|cycle| context.gil_waiter(cycle).is_some() && cycle.edges.len() > 1);
    // The lock does not say who has it, but nobody is left who could release it.
    let seen = context.look.observations;
    for end in context.dead_ends {
        let waiters = end.waits.iter().map(|wait| &seen.waits[*wait].waiter);
        let holds_gil = |waiter: &&Party| {
            let mut holds = seen.holds.iter().filter(|hold| hold.resource.kind == "gil" && hold.holder == **waiter);
            holds.any(|hold| seen.waits.iter().any(|wait| wait.resource == hold.resource))
        };
        let Some(holder) = waiters.clone().find(holds_gil) else { continue };
        let key = &seen.hopeless[end.hopeless].resource;
        drafts.push(Draft {
            message: format!(
                "{} holds the GIL and waits for {}, which nobody is left to release: the threads that could wait for the GIL.",
                context.names.party_in_full(holder),
                context.names.resource(key),
            ),
            parties: vec![holder.clone()],
            resources: vec![key.clone()],
            ..Draft::default()
        });
    }
    drafts
}

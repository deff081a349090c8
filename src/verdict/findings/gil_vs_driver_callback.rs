//! `gil-vs-driver-callback`: a driver callback needs the GIL while its holder waits for the driver.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-vs-driver-callback",
        title: "Python GIL <-> lock inside the CUDA driver",
        severity: Severity::Error,
        text: "The CUDA driver calls a function that the program gave it, and keeps a lock of its own while that function runs. The function is Python, so it needs the GIL. Another thread holds the GIL and has entered a driver call that needs the same lock. Each waits for the other.\n\nA program can run for hours before two threads meet like this: the callback is short, and most driver calls are too.",
        help: &[
            "give CUDA a native callback instead of a Python function (numba does since 0.46; numba/numba#4581)",
            "release the GIL around the driver call that the holder of the GIL makes (ctypes.CDLL does, ctypes.PyDLL does not)",
        ],
        references: &["numba/numba#4581", "rapidsai/ucx-py#187", "rapidsai/cudf#528"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| {
        context.gil_waiter(cycle).is_some_and(|edge| context.callback(edge).is_some())
            && cycle.edges.iter().any(|edge| edge.resource.kind != "gil" && context.in_driver(edge))
    });
    for draft in &mut drafts {
        let Some(cycle) = draft.cycle.and_then(|position| context.cycles.get(position)) else { continue };
        let Some(edge) = context.gil_waiter(cycle) else { continue };
        if let Some(callback) = context.callback(edge) {
            draft.message += &format!(
                " {} is inside {}, which the driver called from {}.",
                context.names.party(&edge.waiter),
                callback.function,
                callback.api
            );
        }
        if let Some(other) = cycle.edges.iter().find(|edge| edge.resource.kind != "gil" && context.in_driver(edge)) {
            let who = context.names.party(&other.waiter);
            let who = who.split(" (").next().unwrap_or(&who).to_string();
            draft.help = vec![
                RULE.explanation.help[0].to_string(),
                format!("release the GIL around the driver call that {who} makes"),
            ];
        }
    }
    drafts
}

//! `gil-vs-native-lock`: the GIL and a native lock are taken in both orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::cpython::EXTENSION;
use crate::waits::{Party, ResourceKey};

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
    let seen = context.look.observations;
    for end in context.dead_ends {
        let wanted = &seen.hopeless[end.hopeless].resource;
        let mut waiters = end.waits.iter().map(|wait| &seen.waits[*wait].waiter);
        // What the thread keeps others from: the GIL, while it waits for a native lock whose holder nothing names; or a
        // native lock, under which Python was called and waits.
        let keeps = |waiter: &Party| {
            let mut holds = seen.holds.iter().filter(|hold| hold.holder == *waiter);
            holds.find(|hold| {
                let opposed = match hold.resource.kind {
                    "gil" => !wanted.kind.starts_with("py_"),
                    _ => wanted.kind.starts_with("py_") && is_native(context, &hold.resource),
                };
                opposed && seen.waits.iter().any(|wait| wait.resource == hold.resource)
            })
        };
        let Some((waiter, hold)) = waiters.find_map(|waiter| Some((waiter, keeps(waiter)?))) else { continue };
        drafts.push(Draft {
            message: format!(
                "{} {} and waits for {}, and those who could give that wait for {}.",
                context.names.party_in_full(waiter),
                context.names.held(&hold.resource),
                context.names.resource(wanted),
                context.names.resource(&hold.resource),
            ),
            parties: vec![waiter.clone()],
            resources: vec![wanted.clone(), hold.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

/// Whether a lock is one of native code: of libc, or an extension's own.
fn is_native(context: &Context<'_>, key: &ResourceKey) -> bool {
    let resource = || context.look.observations.resource(key);
    matches!(key.kind, "pthread_mutex" | "pthread_rwlock")
        || resource().is_some_and(|resource| resource.word(EXTENSION).is_some())
}

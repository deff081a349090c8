//! `gil-held-in-blocking-cuda-call`: the GIL is held while its holder waits for the GPU, and others want it.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::cuda;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-held-in-blocking-cuda-call",
        title: "the GIL is held by a thread that waits for the GPU",
        severity: Severity::Warning,
        text: "A call that waits for the GPU was made without releasing the GIL. No Python code of the process runs until the GPU is done: not the threads that load data, not a heartbeat, not a handler of a signal. If one of them would have had to give the GPU something, nothing ever goes on.",
        help: &[
            "release the GIL around the call (ctypes.CDLL does and ctypes.PyDLL does not; Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release, `with nogil`)",
            "a call that frees memory, an event or a stream waits as well: do not let it run in a finaliser of Python",
        ],
        references: &["pytorch/pytorch#132520", "pytorch/pytorch#119393", "NVIDIA/numba-cuda#317"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let mut drafts = Vec::new();
    for wait in seen.waits.iter().filter(|wait| cuda::KINDS.contains(&wait.resource.kind)) {
        let in_cycle = context.cycles.iter().any(|cycle| cycle.parties().any(|party| party == wait.waiter));
        let gil = seen.holds.iter().find(|hold| hold.holder == wait.waiter && hold.resource.kind == "gil");
        let Some(gil) = gil.filter(|_| !in_cycle) else { continue };
        let others = seen.waits.iter().filter(|other| other.resource == gil.resource);
        let others: Vec<_> = others.map(|other| other.waiter.clone()).collect();
        if others.is_empty() {
            continue;
        }
        let count = match others.len() {
            1 => "1 thread waits".to_owned(),
            count => format!("{count} threads wait"),
        };
        let names = context.names;
        drafts.push(Draft {
            message: format!(
                "{} holds the GIL and waits for {}{}; {count} for the GIL.",
                names.party_in_full(&wait.waiter),
                names.waited_for(wait),
                names.call(&wait.waiter, wait.frame).phrase(),
            ),
            parties: std::iter::once(wait.waiter.clone()).chain(others).collect(),
            resources: vec![wait.resource.clone(), gil.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

//! The threads that could wake a thread that waits for an event, a queue or a condition.
//!
//! In: a wait that no release by a holder ends. Out: candidates: threads with a frame that has the object at hand, and
//! whose code uses a name that gives the awaited resource. Other code may reach the object too, so these are never more
//! than candidates.

use std::collections::BTreeSet;

use super::Facts;
use crate::image::Addr;
use crate::python::inspect::{Referrer, frames_of};
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Hold, Party, Strength};
use crate::waits::observations::Observations;

/// Methods that end a wait for an object of `threading`, `queue` or `concurrent.futures`.
pub(super) const WAKING: &[&str] = &[
    "set",
    "notify",
    "notify_all",
    "put",
    "put_nowait",
    "get",
    "get_nowait",
    "task_done",
    "release",
    "abort",
    "set_result",
    "set_exception",
];

/// Add the candidates for `wait`, a wait for the object at `object` or the condition of it.
pub(super) fn find(
    blocked: &Blocked<'_>,
    facts: &Facts<'_>,
    wait: &ThreadWait,
    object: Option<Addr>,
    out: &mut Observations,
) {
    let process = blocked.process(wait);
    let inspector = &facts.inspector;
    let key = &wait.blocked_on.resource.key;
    let objects = object.into_iter().chain([key.address]);
    let places: BTreeSet<Referrer> = objects.flat_map(|object| inspector.referrers(object)).collect();
    let mut known = None;
    for Referrer { state, depth } in places {
        let thread = &inspector.python.threads[state];
        let Some(position) = thread.tid.and_then(|tid| process.position(tid)).filter(|_| known != Some(state)) else {
            continue;
        };
        let frame = frames_of(thread).nth(depth).filter(|frame| !frame.origin.waits_for_caller());
        let Some((frame, open)) = frame.and_then(|frame| Some((frame, inspector.frame(frame)?))) else { continue };
        let Some(method) = WAKING.iter().find(|name| open.uses(name)) else { continue };
        if blocked.waits_for(key, wait.process, position) {
            continue;
        }
        known = Some(state);
        let thread = &process.threads[position];
        let evidence = vec![format!("{} has it at hand in {} and calls {method}", thread.describe(), frame.function)];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, None, evidence);
        out.holds.push(Hold { strength: Strength::Candidate, frame: thread.merged_python(frame.address), ..hold });
    }
}

//! Who could wake a thread that waits for an event, a queue or a condition.
//!
//! In: a wait that nobody's hold ends. Out: candidates: threads with a frame that has the object at hand and whose code uses a
//! name that gives what is waited for. Other code may reach the object too, so that these are never more than candidates.

use super::super::facts::Process;
use super::super::family::{Found, exact_hold, waits_for};
use super::super::{Certainty, Hold, Observations, Party};
use super::{Facts, is_library};
use crate::image::Addr;
use crate::python::inspect::frames_of;

/// Methods that end a wait for an object of `threading`, `queue` or `concurrent.futures`.
const WAKING: &[&str] = &[
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
/// Frames of one thread that are asked.
const MOST_FRAMES: usize = 64;

/// Add the candidates for `found`, a wait for the object at `object` or the condition of it.
pub(super) fn find(process: &Process<'_>, waits: &[Found], facts: &Facts<'_>, found: &Found, out: &mut Observations) {
    let inspector = &facts.inspector;
    let key = &found.decoded.resource.key;
    let object = found.decoded.resource.state.iter().find(|(name, _)| *name == "object");
    let object = object.map_or(key.address, |(_, object)| Addr(*object as u64));
    for state in &inspector.python.threads {
        let Some(position) = state.tid.and_then(|tid| process.position(tid)) else { continue };
        if waits_for(waits, key, found.process, position) {
            continue;
        }
        let own = frames_of(state).take(MOST_FRAMES).filter(|frame| !is_library(&frame.file));
        let waking = own.filter_map(|frame| Some((frame, inspector.frame(frame)?))).find_map(|(frame, open)| {
            let method = open.uses().iter().find(|name| WAKING.contains(&name.as_str()))?.clone();
            let has_it = inspector.has_at_hand(&open, object) || inspector.has_at_hand(&open, key.address);
            has_it.then_some((frame, method))
        });
        let Some((frame, method)) = waking else { continue };
        let thread = &process.threads[position];
        let evidence = vec![format!("{} has it at hand in {} and calls {method}", thread.describe(), frame.function)];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, None, evidence);
        out.holds.push(Hold { certainty: Certainty::Candidate, frame: thread.merged_python(frame.address), ..hold });
    }
}

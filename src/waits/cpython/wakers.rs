//! The threads that could wake a thread that waits for an event, a queue or a condition.
//!
//! In: a wait that no release by a holder ends. Out: candidates. These are threads inside a `with` block of the object
//! (they have a unit of a semaphore) or of an object that leads to it, as a connection leads to its pool. And they are
//! threads with a frame that has the object at hand and whose code uses a name that gives the awaited resource. Other
//! code may reach the object too, so these are never more than candidates.

use std::collections::{BTreeSet, HashSet};

use super::{Facts, with_blocks};
use crate::image::Addr;
use crate::limits::cpython::{BLOCKS_LED, LED_TO};
use crate::python::inspect::{Inspector, Referrer, frames_of};
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Hold, Party, Strength, TakenAt};
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

/// Steps from a connection to the queue of its pool: the engine, the pool, the queue, the condition.
const STEPS: usize = 4;

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
    let mut inside = BTreeSet::new();
    for (position, block) in inspector.entered().iter().enumerate() {
        let leads = |object: Addr| facts.led_to().get(position).is_some_and(|led| led.contains(&object));
        let is_inside = block.object != key.address
            && object.is_some_and(|object| object == block.object || leads(object) || leads(key.address));
        if !is_inside {
            continue;
        }
        let position = inspector.python.threads[block.state].tid.and_then(|tid| process.position(tid));
        let Some(position) = position.filter(|_| inside.insert(block.state)) else { continue };
        let thread = &process.threads[position];
        let what = if Some(block.object) == object { "it" } else { "an object that leads to it" };
        let evidence = vec![format!("{} is inside a `with` block of {what}", thread.describe())];
        let hold = exact_hold(key, Party::Thread(process.context.process, thread.image.tid), None, evidence);
        let (taken, frame) = (with_blocks::taken_at(inspector, block), thread.merged_python(block.frame));
        out.holds.push(Hold { strength: Strength::Candidate, taken, frame, ..hold });
    }
    let class = object.and_then(|object| inspector.objects().class_name(object)).unwrap_or_default();
    let is_semaphore = class.ends_with("Semaphore");
    let mut known = None;
    for Referrer { state, depth } in places {
        let thread = &inspector.python.threads[state];
        let is_new = known != Some(state) && !inside.contains(&state);
        let Some(position) = thread.tid.and_then(|tid| process.position(tid)).filter(|_| is_new) else { continue };
        let frame = frames_of(thread).nth(depth).filter(|frame| !frame.origin.waits_for_caller());
        let Some((frame, open)) = frame.and_then(|frame| Some((frame, inspector.frame(frame)?))) else { continue };
        let Some(method) = WAKING.iter().find(|name| open.uses(name)) else { continue };
        // Between `acquire()` and the `release()` of a `finally`: it has a unit, and wants another.
        let waits_here = || frames_of(thread).take(depth).all(|inner| inner.origin.waits_for_caller());
        let is_guarded = || open.is_protected() && open.uses("acquire") && open.uses("release");
        let has_unit = || is_semaphore && is_guarded() && !waits_here();
        let has_unit = has_unit();
        if blocked.waits_for(key, wait.process, position) && !has_unit {
            continue;
        }
        known = Some(state);
        let line = open.line_of_last_call("acquire", inspector.python.version).filter(|_| has_unit);
        let taken = line.map(|line| TakenAt::at(&*frame.file, line, &*frame.function));
        let thread = &process.threads[position];
        let evidence =
            vec![format!("{} has a reference to it in {} and calls {method}", thread.describe(), frame.function)];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, None, evidence);
        let at = thread.merged_python(frame.address);
        out.holds.push(Hold { strength: Strength::Candidate, taken, frame: at, ..hold });
    }
}

/// The objects that attributes of what the first blocks were entered for lead to, and attributes of these.
pub(super) fn led_to(inspector: &Inspector<'_>) -> Vec<HashSet<Addr>> {
    let objects = inspector.objects();
    let led = |object: Addr| {
        let (mut seen, mut last) = (HashSet::from([object]), vec![object]);
        for _ in 0..STEPS {
            let values = last.iter().filter(|one| !inspector.is_plain(**one));
            let values = values.flat_map(|one| objects.attributes(*one).unwrap_or_default()).map(|(_, value)| value);
            last = values.filter(|value| seen.len() < LED_TO && seen.insert(*value)).collect();
        }
        seen
    };
    inspector.entered().iter().take(BLOCKS_LED).map(|block| led(block.object)).collect()
}

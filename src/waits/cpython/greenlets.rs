//! Greenlets of gevent and eventlet: threads of Python that share one thread of the system.
//!
//! In: a thread that sleeps in the loop of a hub. Out: a wait for the loop, which replaces the wait for any socket that
//! it watches. A gap, where the greenlets that are switched out cannot be listed; `greenlet_waits` finds what they wait for.

use super::Facts;
use crate::image::Gap;
use crate::limits::cpython::HUB_FRAMES;
use crate::python::PythonFrame;
use crate::waits::blocked_on::BlockedOn;
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::model::Resource;
use crate::waits::thread::{Process, ThreadView};

/// The files of the functions that run a loop on behalf of greenlets, and whose they are.
const HUBS: [(&str, &str); 2] = [("gevent.hub", "gevent"), ("eventlet.hubs.hub", "eventlet")];

/// The wait of a thread that runs a hub's loop.
pub(super) fn decode(
    process: &Process<'_>,
    facts: &Facts<'_>,
    thread: &ThreadView<'_>,
    below: &BlockedOn,
) -> Option<BlockedOn> {
    let inner = facts.inspector.stack(thread.image.tid).next()?;
    let (frame, library) = hub(facts, thread.image.tid)?;
    let resource = Resource {
        key: key(process, kinds::EVENT_LOOP, frame.address),
        process: process.context.process,
        label: format!("the loop of {library}'s hub").into(),
        state: Vec::new(),
        role: None,
    };
    let evidence = vec![format!("it is in {} of {library}, which waits on behalf of all greenlets", inner.function)];
    let at = thread.merged_python(frame.address);
    let decoded = BlockedOn { at, ..below.refined(resource, &[], evidence) };
    Some(match facts.greenlets_if_known() {
        Some(_) => decoded,
        None => {
            let what = format!("greenlets of thread {}", thread.describe());
            let why =
                "the objects that the collector tracks could not be listed, so what greenlets wait for is not known";
            decoded.with_gap(Gap::new(what, why))
        }
    })
}

/// The frame of a thread that rests in the loop of a hub, and the library. Code that runs in its own greenlet is never in a system call
/// of the hub.
pub(super) fn hub<'f>(facts: &'f Facts<'_>, tid: i32) -> Option<(&'f PythonFrame, &'static str)> {
    facts.inspector.stack(tid).take(HUB_FRAMES).find_map(|frame| {
        let (_, library) = HUBS.iter().find(|(module, _)| frame.origin.is_package(module))?;
        Some((frame, *library))
    })
}

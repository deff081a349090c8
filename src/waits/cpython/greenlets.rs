//! Greenlets of gevent and eventlet: threads of Python that share one thread of the system.
//!
//! In: a thread that sleeps in the loop of a hub. Out: a wait for the loop, which replaces the wait for any socket that
//! it watches. Also a gap: the waits and holds of greenlets are on stacks that were switched out, which are not read.

use super::Facts;
use crate::image::Gap;
use crate::limits::cpython::HUB_FRAMES;
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
    // Code that runs in its own greenlet is never in a system call of the hub.
    let inner = facts.inspector.stack(thread.image.tid).next()?;
    let hub = facts.inspector.stack(thread.image.tid).take(HUB_FRAMES).find_map(|frame| {
        let (_, library) = HUBS.iter().find(|(module, _)| frame.origin.is_package(module))?;
        Some((frame, *library))
    });
    let (frame, library) = hub?;
    let resource = Resource {
        key: key(process, kinds::EVENT_LOOP, frame.address),
        process: process.context.process,
        label: format!("the loop of {library}'s hub").into(),
        state: Vec::new(),
        role: None,
    };
    // `threading` is patched to make greenlets: those that it knows beside threads of the system.
    let known =
        facts.inspector.globals("threading", "_active").filter_map(|dict| facts.inspector.objects().items(dict));
    let idents: Vec<u64> = known.flatten().filter_map(|(ident, _)| facts.inspector.objects().unsigned(ident)).collect();
    let is_thread = |ident: &u64| facts.inspector.with_ident(*ident).is_some();
    let count = idents.iter().filter(|ident| !is_thread(ident)).count();
    let how_many = match count {
        0 => "greenlets".to_owned(),
        1 => "1 greenlet of `threading` and others".to_owned(),
        several => format!("{several} greenlets of `threading` and others"),
    };
    let ask = if library == "gevent" { "; `gevent.util.print_run_info()` tells it from within" } else { "" };
    let why =
        format!("what greenlets wait for and hold stands on stacks that were switched out, which are not read{ask}");
    let gap = Gap::new(format!("{how_many} of thread {}", thread.describe()), why);
    let evidence = vec![format!("it is in {} of {library}, which waits on behalf of all greenlets", inner.function)];
    Some(BlockedOn { at: thread.merged_python(frame.address), ..below.refined(resource, &[], evidence) }.with_gap(gap))
}

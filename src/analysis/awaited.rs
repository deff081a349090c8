//! Which other processes a look calls for: those that a captured process waits for.
//!
//! In: a captured image with its waits. Out: what is waited for outside of the processes ([`Awaited`]). Whether that leads to a
//! process that may be looked at is found elsewhere (`image::live`).

use std::collections::BTreeSet;

use crate::image::Image;
use crate::image::live::Awaited;
use crate::waits::Observations;
use crate::waits::model::{Party, Scope};

/// What the processes of a look wait for outside of themselves.
pub(super) fn outside(image: &Image, observations: &Observations) -> BTreeSet<Awaited> {
    let mut awaited = BTreeSet::new();
    let mut reads = false;
    for wait in &observations.waits {
        let Party::Thread(process, _) = wait.waiter else { continue };
        let Some(of) = image.processes.get(process).map(|process| process.pid) else { continue };
        let key = &wait.resource;
        match &key.scope {
            Scope::Process(_) => {}
            Scope::Shared(device, inode, _) => drop(awaited.insert(Awaited::Memory { of, file: (*device, *inode) })),
            Scope::Child(_, named) => drop(awaited.insert(Awaited::Child { of, named: *named })),
            Scope::System(_) => reads = true,
        }
    }
    if reads {
        // Of pipes, sockets and events that a thread waits for.
        awaited.extend(image.kernel.ends.iter().map(|end| Awaited::End { pid: end.pid }));
    }
    // Of locks on files the kernel tells the process.
    awaited.extend(observations.holds.iter().filter(|hold| hold.gone.is_none()).filter_map(|hold| match hold.holder {
        Party::Absent(_, pid) if pid > 0 => Some(Awaited::End { pid }),
        _ => None,
    }));
    awaited
}

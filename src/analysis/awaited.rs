//! Other processes that a sample needs: those that a captured process waits for.
//!
//! In: a captured image with its waits. Out: the objects outside the processes that they wait for ([`Awaited`]).
//! `image::live` finds out whether they lead to a process that lockscope may attach to.

use std::collections::BTreeSet;

use crate::image::Image;
use crate::image::live::Awaited;
use crate::waits::model::{Party, Scope};
use crate::waits::{Observations, Wait, kinds};

/// Objects outside the captured processes that these wait for.
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
    for known in observations.known_wakers.iter().filter(|known| known.is_reportable) {
        if let Scope::Process(process) = known.resource.scope
            && let Some(process) = image.processes.get(process)
        {
            awaited.insert(Awaited::AddressSpace { of: process.pid });
        }
    }
    // A process with the same address space may have what seems to be the waiter's own, or post its semaphore.
    for hold in observations.holds.iter().filter(|hold| hold.gone.is_none()) {
        let is_shared_by_all = |wait: &&Wait| {
            wait.resource == hold.resource && (wait.waiter == hold.holder || *wait.resource.kind == *kinds::SEMAPHORE)
        };
        if let Scope::Process(process) = hold.resource.scope
            && let Some(process) = image.processes.get(process)
            && observations.waits.iter().any(|wait| is_shared_by_all(&wait))
        {
            awaited.insert(Awaited::AddressSpace { of: process.pid });
        }
    }
    if reads {
        // The ends of pipes, sockets and events that a thread waits for.
        awaited.extend(image.kernel.ends.iter().map(|end| Awaited::End { pid: end.pid }));
    }
    // The kernel names the process that holds a lock on a file.
    awaited.extend(observations.holds.iter().filter(|hold| hold.gone.is_none()).filter_map(|hold| match hold.holder {
        Party::Absent(_, pid) if pid > 0 => Some(Awaited::End { pid }),
        _ => None,
    }));
    awaited
}

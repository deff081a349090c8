//! Devices that do nothing any more: a wait for one has no end.
//!
//! In: a wait for the GPU, and the messages of the kernel's driver about the devices of the process. Out: that no
//! thread or event ends the wait.

use crate::waits::blocked_on::ThreadWait;
use crate::waits::model::{Certainty, KnownWakers};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Report that a wait for a lost device has no end.
pub(super) fn no_end(process: &Process<'_>, wait: &ThreadWait, out: &mut Observations) {
    let errors = process.context.gpu.into_iter().flat_map(|gpu| gpu.errors_of(process.context.image));
    let mut gone = errors.filter(|error| error.is_the_end());
    let Some(error) = gone.next() else { return };
    out.known_wakers.push(KnownWakers {
        resource: wait.blocked_on.resource.key.clone(),
        why: format!("the kernel's driver has written {}, which does nothing any more until it is reset", error.told()),
        certainty: Certainty::Inferred,
        ruled_out: Vec::new(),
        whole_process: false,
        is_reportable: true,
    });
}

//! Devices that do nothing any more: whoever waits for one waits without end.
//!
//! In: a wait for the GPU, and what the kernel's driver has written of the devices of the process. Out: that nobody ends it.

use crate::waits::blocked_on::ThreadWait;
use crate::waits::model::{Certainty, Enclosed};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Add that nobody ends a wait for a device that is gone.
pub(super) fn no_end(process: &Process<'_>, wait: &ThreadWait, out: &mut Observations) {
    let errors = process.context.gpu.into_iter().flat_map(|gpu| gpu.errors_of(process.context.image));
    let mut gone = errors.filter(|error| error.is_the_end());
    let Some(error) = gone.next() else { return };
    out.enclosed.push(Enclosed {
        resource: wait.blocked_on.resource.key.clone(),
        why: format!("the kernel's driver has written {}, which does nothing any more until it is reset", error.told()),
        certainty: Certainty::Inferred,
        ruled_out: Vec::new(),
        whole_process: false,
        is_told: true,
    });
}

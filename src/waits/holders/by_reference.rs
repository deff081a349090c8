//! Threads that have the address of a lock at hand: candidates, where nobody records the holder and no call takes it.
//!
//! In: a lock's address and size. Out: holds that are candidates. Waiters are none.

use crate::image::Addr;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Certainty, Hold, Party};
use crate::waits::observations::Observations;

/// Threads that do not wait for the lock and have its address in a register or on their stack: candidates.
pub fn candidates(blocked: &Blocked<'_>, found: &ThreadWait, lock: Addr, size: u64, out: &mut Observations) {
    /// Looking through every stack for every lock would cost the square of their number.
    const MOST_THREADS: usize = 512;
    let process = blocked.process(found);
    let key = &found.blocked_on.resource.key;
    for (position, thread) in process.threads.iter().enumerate().take(MOST_THREADS) {
        if blocked.waits_for(key, found.process, position) {
            continue;
        }
        let Some(reference) = thread.find_reference(process, lock, size, 0) else { continue };
        let evidence = vec![
            format!("{} has its address: {}", thread.describe(), reference.place),
            "the lock records no owner: a candidate".into(),
        ];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, None, evidence);
        out.holds.push(Hold { certainty: Certainty::Candidate, frame: thread.merged(reference.native), ..hold });
    }
}

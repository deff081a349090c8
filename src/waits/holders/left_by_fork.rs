//! The party that represents the threads that fork left behind in the parent.
//!
//! In: a process and what is known of its parent. Out: a party that is gone, with the reason. Whether a lock was held by one
//! of these threads is for the caller to say.

use crate::image::share_fork_ancestor;
use crate::waits::holders::Blocked;
use crate::waits::model::{Gone, Party};
use crate::waits::thread::Process;

/// The party that represents the threads that fork left behind in the parent, if the process came from one with
/// several.
pub(crate) fn left_by_fork(blocked: &Blocked<'_>, process: &Process<'_>) -> Option<(Party, Gone, String)> {
    let image = process.context.image;
    let parent = image.parent?;
    let captured = blocked.processes().iter().find(|other| other.context.image.pid == parent);
    let several = captured.map_or(image.parent_threads.len(), |parent| parent.threads.len()) > 1;
    let was_one = captured.is_none_or(|parent| share_fork_ancestor(&parent.context.image.mappings, &image.mappings));
    if !several || !was_one || image.shares_memory_of.is_some() {
        return None;
    }
    let why = format!("its parent {parent} has other threads, which fork did not copy");
    Some((Party::Absent(process.context.process, 0), Gone::LeftInParent, why))
}

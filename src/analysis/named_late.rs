//! Source lines of the threads that seem deadlocked, where the time of the look was over before they had theirs.
//!
//! In: suspicions. Out: their threads with all frames that the debug information knows. Frames have other positions
//! then, so the caller decodes the waits again.

use std::collections::BTreeSet;

use super::sample::Sample;
use crate::image::budget;
use crate::symbols::Symbols;
use crate::threads;
use crate::verdict::suspicion::Suspicion;
use crate::waits::Party;

/// Whether any thread was named.
pub(super) fn name<'a>(
    symbols: &[Symbols<'_>],
    sample: &mut Sample,
    suspicions: impl IntoIterator<Item = &'a Suspicion>,
) -> bool {
    let mut members = BTreeSet::new();
    for suspicion in suspicions {
        for link in suspicion.links.iter().chain(suspicion.shared.links()) {
            for party in [Some(&link.waiter), link.holder.as_ref()].into_iter().flatten() {
                if let Party::Thread(process, tid) = party {
                    members.insert((*process, *tid));
                }
            }
        }
    }
    if members.is_empty() || !budget::members_come_next() {
        return false;
    }
    log::info!("naming {} threads that seem deadlocked", members.len());
    for (process, tid) in members {
        let (Some(threads), Some(symbols)) = (sample.threads.get_mut(process), symbols.get(process)) else {
            continue;
        };
        let python = sample.python.get(process).and_then(Option::as_ref);
        if let Some(thread) = threads.iter_mut().find(|thread| thread.tid == tid) {
            threads::merge_again(symbols, thread, python);
        }
    }
    sample.written = None;
    true
}

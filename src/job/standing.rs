//! Waits that did not change from the first round to the second.
//!
//! In: a rank and a wait of its last sample. Out: a [`Standing`]. The same request and number alone prove nothing: a
//! healthy ring of large messages showed the same ones in two rounds, and a healthy ping-pong the same request
//! (measured). One of three things must hold. The request's words are the same, with the counters of bytes among them.
//! Or the thread slept all the time, by the kernel. Or it ran in the call and never left it, by the processor. The last
//! one does not show whether messages reach the thread: [`super::held`] answers that.

use std::time::Duration;

use super::digest::{Look, Member, RankWait};
use super::gather::Rank;

/// A thread that ran for so long within a call that polls has seen whatever had come before: a poll takes microseconds.
pub(crate) const LEAST_POLLED: Duration = Duration::from_millis(20);

/// Whether a wait lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It ended, and another one began.
    Moved,
    /// It was seen once.
    Once,
    /// Both rounds show the like, and nothing says whether it moved in between.
    Alike,
    /// It stood still.
    Still,
}

/// Whether `wait` of the last sample of `rank` lasted since the round before.
pub(super) fn standing(rank: &Rank<'_>, wait: &RankWait) -> Standing {
    let Some((before, _)) = rank.before else { return Standing::Once };
    if !is_in(before, wait) {
        return Standing::Moved;
    }
    if is_reportable(rank, wait) || has_polled(wait) { Standing::Still } else { Standing::Alike }
}

/// Whether a rank went on from one round to the next: it is in another wait, or has enqueued more.
pub(super) fn went_on(rank: &Rank<'_>) -> bool {
    let Some((before, _)) = rank.before else { return false };
    let mut waits = rank.now.waits.iter().filter(|wait| wait.holds_up_main);
    waits.any(|wait| !is_in(before, wait)) || before.enqueued != rank.now.enqueued
}

/// Whether the rank was in the same wait in the round before, and has not left it since.
fn is_in(before: &Member, wait: &RankWait) -> bool {
    let is_same = |earlier: &RankWait| {
        earlier.tid == wait.tid
            && earlier.collective == wait.collective
            && earlier.connection == wait.connection
            && earlier.held_by == wait.held_by
            && (wait.held_by.is_none() || earlier.label == wait.label)
    };
    !wait.left && before.waits.iter().any(is_same)
}

/// Whether the library's own words, or the kernel's record of its sleep, show that a wait in both rounds did not
/// change.
pub(super) fn is_reportable(rank: &Rank<'_>, wait: &RankWait) -> bool {
    let marked = wait.collective.as_ref().is_some_and(|collective| collective.mark.is_some());
    let since = rank.before.and_then(|(_, look)| between(look, rank.look));
    marked || wait.since_ms.zip(since).is_some_and(|(slept, between)| slept >= between)
}

/// Whether the thread ran in the call for long enough, and never left it.
fn has_polled(wait: &RankWait) -> bool {
    wait.polled_ms.is_some_and(|polled| u128::from(polled) >= LEAST_POLLED.as_millis())
}

/// Milliseconds from the beginning of one sample to the beginning of another of the same machine.
fn between(first: &Look, second: &Look) -> Option<u64> {
    u64::try_from((second.begin()? - first.begin()?).num_milliseconds()).ok()
}

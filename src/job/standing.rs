//! What stood still from the first round to the second.
//!
//! In: a rank and a wait of its last look. Out: a [`Standing`]. The same request and number alone prove nothing: a healthy ring of
//! large messages showed the same ones in two rounds, and a healthy ping-pong the same request (measured). Its words must be the
//! same, with the counters of bytes among them; or the thread slept all the time, by the kernel's word.

use chrono::{DateTime, FixedOffset};

use super::digest::{Look, RankWait};
use super::gather::Rank;

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

/// Whether `wait` of the last look at `rank` lasted since the round before.
pub(super) fn standing(rank: &Rank<'_>, wait: &RankWait) -> Standing {
    let Some((before, look)) = rank.before else { return Standing::Once };
    let is_same = |earlier: &&RankWait| {
        earlier.tid == wait.tid && earlier.collective == wait.collective && earlier.connection == wait.connection
    };
    if !before.waits.iter().any(|earlier| is_same(&earlier)) {
        return Standing::Moved;
    }
    let marked = wait.collective.as_ref().is_some_and(|collective| collective.mark.is_some());
    let slept = wait.since_ms.zip(between(look, rank.look)).is_some_and(|(slept, between)| slept >= between);
    if marked || slept { Standing::Still } else { Standing::Alike }
}

/// Milliseconds from the beginning of one look to the beginning of another of the same machine.
fn between(first: &Look, second: &Look) -> Option<u64> {
    let time = |text: &str| DateTime::<FixedOffset>::parse_from_rfc3339(text).ok();
    let span = time(&second.began)? - time(&first.began)?;
    u64::try_from(span.num_milliseconds()).ok()
}

//! Whether two looks show the same hang: each suspicion by its own members.
//!
//! In: the suspicions of one look after the other, with the threads. Out: [`Confirmed`], and whether and when to look again. A
//! suspicion is confirmed when both looks show the same links and no member's wait ended in between, by the kernel's counters of
//! context switches and the start of its sleep; a wait without a time-out for a lock is one also while the thread is in the very same call, by its stack,
//! since signals and retries wake it for a moment. What other threads do in the meantime confirms or denies nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::spins::{Part, steady_part};
use crate::image::ThreadImage;
use crate::verdict::JudgeInput;
use crate::verdict::suspicion::{Confirmed, Link, Suspicion};
use crate::waits::kinds::Topic;
use crate::waits::{Party, ResourceKey, Wait};

/// Two looks that confirm each other are at least this far apart (design, "two looks").
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The same of a ring with a time-out in it: locks that are tried for a moment, given back and tried again stand in rings that
/// last no longer.
const BETWEEN_TIMED: Duration = Duration::from_millis(1200);

/// A suspicion as the last look showed it.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Where the members' threads wait, by their stacks.
    places: BTreeMap<Link, Part>,
    /// Since when each look has shown it, with the very same waits.
    since: Option<Instant>,
}

/// The looks so far.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    known: BTreeMap<Suspicion, Known>,
    threads: HashMap<i32, ThreadImage>,
    seen: Confirmed,
    /// A time-out is among what the last look suspects and has not confirmed.
    waits_for_time: bool,
}

impl Confirmation {
    /// Take in another look. `clock`: when it was taken, where that counts.
    pub(super) fn look(
        &mut self,
        now: Vec<Suspicion>,
        input: &JudgeInput<'_>,
        of_one_instant: bool,
        clock: Option<Instant>,
    ) {
        let before = std::mem::take(&mut self.known);
        let threads = input.image.processes.iter().flat_map(|process| &process.threads);
        let threads: HashMap<i32, ThreadImage> = threads.map(|thread| (thread.tid, thread.clone())).collect();
        self.seen = Confirmed::default();
        self.waits_for_time = false;
        let waits = input.observations.waits.iter().rev();
        let waits: Waits<'_> = waits.map(|wait| ((&wait.waiter, &wait.resource), wait)).collect();
        for suspicion in now {
            let mut known = Known { places: places(&suspicion, &waits, input), since: clock };
            if let Some(earlier) = before.get(&suspicion) {
                let still: Vec<Option<bool>> =
                    suspicion.0.iter().map(|link| self.stood_still(link, earlier, &known, &waits, &threads)).collect();
                if still.contains(&Some(false)) {
                    self.seen.refuted.insert(suspicion.clone());
                } else {
                    known.since = earlier.since;
                    let is_proven = of_one_instant || still.iter().all(|still| *still == Some(true));
                    let is_timed = suspicion.0.iter().any(|link| wait_of(link, &waits).is_some_and(|wait| wait.timed));
                    let lasted = clock.zip(known.since).map(|(now, since)| now.duration_since(since));
                    let is_long = !is_timed || lasted.is_none_or(|lasted| lasted >= BETWEEN_TIMED);
                    self.waits_for_time |= !is_long;
                    if is_proven && is_long {
                        self.seen.confirmed.insert(suspicion.clone());
                    } else if !is_long {
                        // What ends before is no hang.
                        self.seen.refuted.insert(suspicion.clone());
                    }
                }
            }
            self.known.insert(suspicion, known);
        }
        self.threads = threads;
    }

    /// Take in that all that the last look suspects has stood unchanged since.
    pub(super) fn rested(&mut self) {
        self.seen.confirmed = self.known.keys().cloned().collect();
    }

    /// Whether the last look suspects nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether all that the last look suspects is confirmed.
    pub(super) fn is_complete(&self) -> bool {
        !self.known.is_empty() && self.known.keys().all(|suspicion| self.seen.confirmed.contains(suspicion))
    }

    /// What is confirmed and refuted.
    pub(super) fn confirmed(&self) -> &Confirmed {
        &self.seen
    }

    /// How long after this look the next one is to be taken.
    pub(super) fn pause(&self) -> Duration {
        if self.waits_for_time { BETWEEN_TIMED } else { BETWEEN_LOOKS }
    }

    /// Whether a member's wait never ended since the look before; `None` where that is not known.
    fn stood_still(
        &self,
        link: &Link,
        earlier: &Known,
        known: &Known,
        waits: &Waits<'_>,
        threads: &HashMap<i32, ThreadImage>,
    ) -> Option<bool> {
        let Party::Thread(_, tid) = link.waiter else {
            // The very same wait of a task is shown by what it says of itself; a process is one by its threads.
            return Some(true);
        };
        let moved = ran(self.threads.get(&tid)?, threads.get(&tid)?);
        if moved == Some(false) {
            return Some(true);
        }
        let wait = wait_of(link, waits)?;
        // Bytes come and go through a pipe while the same call is made again and again, and so do wake-ups.
        let has_to_rest = wait.timed || wait.resource.kind.topic == Topic::Data || wait.resource.kind.is_wake_up();
        if has_to_rest {
            return moved.map(|moved| !moved);
        }
        let places = earlier.places.get(link).zip(known.places.get(link));
        let is_same = places.map(|(before, now)| before.fits(now));
        if wait.spinning {
            // It goes round: only the same place says something.
            return is_same.filter(|is_same| *is_same);
        }
        is_same.or(moved.map(|moved| !moved))
    }
}

/// Whether a thread ran between two looks at it. A round of its own code is not told from what a stop adds.
fn ran(before: &ThreadImage, now: &ThreadImage) -> Option<bool> {
    let counted = now.switches.zip(before.switches).map(|_| false);
    now.stood_since(before).map_or(counted, |stood| Some(!stood))
}

/// The waits of a look: a ring may have thousands of members.
type Waits<'l> = HashMap<(&'l Party, &'l ResourceKey), &'l Wait>;

/// The wait of a link.
fn wait_of<'l>(link: &Link, waits: &Waits<'l>) -> Option<&'l Wait> {
    waits.get(&(&link.waiter, &link.resource)).copied()
}

/// Where the threads of a suspicion wait.
fn places(suspicion: &Suspicion, waits: &Waits<'_>, input: &JudgeInput<'_>) -> BTreeMap<Link, Part> {
    let place = |link: &Link| Some((link.clone(), steady_part(wait_of(link, waits)?, input.threads)?));
    suspicion.0.iter().collect::<BTreeSet<_>>().into_iter().filter_map(place).collect()
}

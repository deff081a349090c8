//! Whether two samples show the same hang: each suspicion by its own members.
//!
//! In: the suspicions of one sample after the other, with the threads. Out: [`Confirmed`], and whether and when to
//! sample again. A suspicion is confirmed when both samples show the same links and no member's wait ended in between.
//! The kernel's counters of context switches and the start of the sleep show that. A wait for a lock without a time-out
//! may wake for a moment, because of signals and retries. It also counts as the same if the thread is in the very same
//! call, by its stack. Activity of other threads in the meantime confirms or denies nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use super::spins::{Part, steady_part};
use crate::image::{Addr, ThreadImage};
use crate::verdict::JudgeInput;
use crate::verdict::suspicion::{Confirmed, Link, Shared, Suspicion};
use crate::waits::kinds::Topic;
use crate::waits::{Party, ResourceKey, Scope, Wait};

/// Two samples that confirm each other are at least this far apart (design, "two looks").
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The same of a ring with a time-out in it: locks that are tried for a moment, given back and tried again stand in rings that
/// last no longer.
const BETWEEN_TIMED: Duration = Duration::from_millis(1200);

/// The parts of a sample that are of one instant.
pub(super) struct OfOneInstant<'a> {
    /// All that was read.
    pub(super) whole: bool,
    /// Whether a word of a process was read after the release.
    pub(super) is_late: &'a dyn Fn(i32, Addr) -> bool,
}

/// The members' state in a sample.
#[derive(Debug, Default)]
struct Look {
    threads: HashMap<i32, ThreadImage>,
    /// Where their threads wait, by their stacks.
    places: BTreeMap<Link, Part>,
}

/// Changes of some members since the sample before.
#[derive(Debug, Clone, Copy)]
struct Standing {
    /// Whether no member's wait ended; `None` where that is not known of all.
    stood: Option<bool>,
    /// Whether any has a time-out.
    is_timed: bool,
}

impl Standing {
    fn and(self, other: Standing) -> Standing {
        let stood = match (self.stood, other.stood) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
        Standing { stood, is_timed: self.is_timed || other.is_timed }
    }
}

impl Look {
    /// Whether a member's wait never ended from this sample to a `later` one, with its `waits`; `None` where that is
    /// not known.
    ///
    /// A thread that ran meanwhile and stands in the very same call is in the same wait, but a word that was read after
    /// the release (`is_late`) may be of another one: a thread that waited, got the lock and released it would seem to
    /// wait for itself.
    fn stood_still(&self, link: &Link, later: &Look, waits: &Waits<'_>, is_late: bool) -> Option<bool> {
        let Party::Thread(_, tid) = link.waiter else {
            // The very same wait of a task is shown by what it says of itself; a process is one by its threads.
            return Some(true);
        };
        let moved = ran(self.threads.get(&tid)?, later.threads.get(&tid)?);
        if moved == Some(false) {
            return Some(true);
        }
        let wait = wait_of(link, waits)?;
        // Bytes come and go through a pipe while the same call is made again and again, and so do wake-ups.
        let has_to_rest = wait.timed || wait.resource.kind.topic == Topic::Data || wait.resource.kind.is_wake_up();
        if has_to_rest && !wait.retried {
            return moved.map(|moved| !moved);
        }
        let places = self.places.get(link).zip(later.places.get(link));
        let is_same = places.map(|(before, now)| before.fits(now)).filter(|is_same| !(*is_same && is_late));
        if wait.spinning {
            // It goes round: only the same place says something.
            return is_same.filter(|is_same| *is_same);
        }
        if is_late { is_same } else { is_same.or(moved.map(|moved| !moved)) }
    }
}

/// The samples so far.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    /// The suspicions of the last sample. Each has the time since when every sample has shown it, with the very same
    /// waits.
    known: BTreeMap<Suspicion, Option<Duration>>,
    last: Look,
    seen: Confirmed,
    /// A time-out is among what the last sample suspects and has not confirmed.
    waits_for_time: bool,
}

impl Confirmation {
    /// Take in another sample. `clock`: when it began and ended, since a moment that all samples share; `None` where the
    /// image says none.
    pub(super) fn look(
        &mut self,
        now: Vec<Suspicion>,
        input: &JudgeInput<'_>,
        instant: &OfOneInstant<'_>,
        clock: Option<Range<Duration>>,
    ) {
        let before = std::mem::take(&mut self.known);
        self.seen = Confirmed::default();
        self.waits_for_time = false;
        let waits = input.observations.waits.iter().rev();
        let waits: Waits<'_> = waits.map(|wait| ((&wait.waiter, &wait.resource), wait)).collect();
        let shared: BTreeSet<&Shared> = now.iter().map(|suspicion| &suspicion.shared).collect();
        let links: BTreeSet<&Link> = now.iter().flat_map(|suspicion| &suspicion.links).collect();
        let links = links.into_iter().chain(shared.iter().flat_map(|shared| shared.links()));
        let threads = input.image.processes.iter().flat_map(|process| &process.threads);
        let look = Look {
            threads: threads.map(|thread| (thread.tid, thread.clone())).collect(),
            places: links
                .filter_map(|link| Some((link.clone(), steady_part(wait_of(link, &waits)?, input.threads)?)))
                .collect(),
        };
        let standing = |links: &BTreeSet<Link>| {
            let none = Standing { stood: Some(true), is_timed: false };
            links.iter().fold(none, |all, link| {
                let is_timed = wait_of(link, &waits).is_some_and(|wait| wait.timed);
                let is_late = match link.resource.scope {
                    Scope::Process(position) if !instant.whole && !link.resource.address.is_null() => {
                        let process = input.image.processes.get(position);
                        process.is_some_and(|process| (instant.is_late)(process.pid, link.resource.address))
                    }
                    _ => false,
                };
                all.and(Standing { stood: self.last.stood_still(link, &look, &waits, is_late), is_timed })
            })
        };
        let of_shared: BTreeMap<Shared, Standing> =
            shared.into_iter().map(|shared| (shared.clone(), standing(shared.links()))).collect();
        let standings: Vec<Standing> = now
            .iter()
            .map(|suspicion| {
                let own = standing(&suspicion.links);
                of_shared.get(&suspicion.shared).map_or(own, |shared| own.and(*shared))
            })
            .collect();
        for (suspicion, standing) in now.into_iter().zip(standings) {
            let mut since = clock.as_ref().map(|clock| clock.start);
            if let Some(earlier) = before.get(&suspicion) {
                if standing.stood == Some(false) {
                    self.seen.refuted.insert(suspicion.clone());
                } else {
                    since = *earlier;
                    let is_proven = instant.whole || standing.stood == Some(true);
                    let lasted = clock.as_ref().zip(since).map(|(now, since)| now.end.saturating_sub(since));
                    let is_long = !standing.is_timed || lasted.is_none_or(|lasted| lasted >= BETWEEN_TIMED);
                    self.waits_for_time |= !is_long;
                    if is_proven && is_long {
                        self.seen.confirmed.insert(suspicion.clone());
                    } else if !is_long {
                        // A ring that ends sooner is no hang.
                        self.seen.refuted.insert(suspicion.clone());
                    }
                }
            }
            self.known.insert(suspicion, since);
        }
        self.last = look;
    }

    /// Take in that all that the last sample suspects has stood unchanged since.
    pub(super) fn rested(&mut self) {
        self.seen.confirmed = self.known.keys().cloned().collect();
    }

    /// Whether the last sample suspects nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether all that the last sample suspects is confirmed.
    pub(super) fn is_complete(&self) -> bool {
        !self.known.is_empty() && self.known.keys().all(|suspicion| self.seen.confirmed.contains(suspicion))
    }

    /// Whether all that the last sample suspects is among these.
    pub(super) fn is_all_in(&self, suspicions: &[Suspicion]) -> bool {
        // There may be thousands of both.
        let among: BTreeSet<&Suspicion> = suspicions.iter().collect();
        self.known.keys().all(|suspicion| among.contains(suspicion))
    }

    /// The confirmed and refuted suspicions.
    pub(super) fn confirmed(&self) -> &Confirmed {
        &self.seen
    }

    /// How long after this sample the next one is to be taken.
    pub(super) fn pause(&self) -> Duration {
        if self.waits_for_time { BETWEEN_TIMED } else { BETWEEN_LOOKS }
    }
}

/// Whether a thread ran between two samples of it. A round of its own code cannot be distinguished from the effect of a
/// stop.
fn ran(before: &ThreadImage, now: &ThreadImage) -> Option<bool> {
    let counted = now.switches.zip(before.switches).map(|_| false);
    now.stood_since(before).map_or(counted, |stood| Some(!stood))
}

/// The waits of a sample: a ring may have thousands of members.
type Waits<'l> = HashMap<(&'l Party, &'l ResourceKey), &'l Wait>;

/// The wait of a link.
fn wait_of<'l>(link: &Link, waits: &Waits<'l>) -> Option<&'l Wait> {
    waits.get(&(&link.waiter, &link.resource)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::kinds::PTHREAD_MUTEX;
    use crate::waits::{Certainty, Needs};

    /// Compares two samples of thread 7, which waits for a mutex: its switches, and the call site of its wait.
    fn stood(before: (u64, u64), now: (u64, u64), is_late: bool) -> Option<bool> {
        let resource = ResourceKey { kind: PTHREAD_MUTEX, scope: Scope::Process(0), address: Addr(0x1000) };
        let waiter = Party::Thread(0, 7);
        let link =
            Link { waiter: waiter.clone(), resource: resource.clone(), mode: None, holder: None, said: Vec::new() };
        let look = |(switches, call): (u64, u64)| Look {
            threads: [(7, ThreadImage { switches: Some((switches, 0)), ..ThreadImage::new(7) })].into(),
            places: [(link.clone(), Part::of_call(Addr(call)))].into(),
        };
        let wait = Wait {
            waiter: waiter.clone(),
            resource: resource.clone(),
            mode: None,
            needs: Needs::All,
            timed: false,
            retried: false,
            since_ms: None,
            frame: None,
            certainty: Certainty::Exact,
            evidence: Vec::new(),
            spinning: false,
            place: None,
        };
        let waits: Waits<'_> = [((&waiter, &resource), &wait)].into();
        look(before).stood_still(&link, &look(now), &waits, is_late)
    }

    #[test]
    fn a_word_that_was_read_late_may_be_of_another_wait() {
        // It slept on: nobody can have given it the lock.
        assert_eq!(stood((4, 0x10), (4, 0x10), true), Some(true));
        // It woke, and is in the call again: at the stop it waits, and has the lock or not by what was read then.
        assert_eq!(stood((4, 0x10), (6, 0x10), false), Some(true));
        assert_eq!(stood((4, 0x10), (6, 0x10), true), None);
        // It is elsewhere.
        assert_eq!(stood((4, 0x10), (6, 0x20), true), Some(false));
        assert_eq!(stood((4, 0x10), (6, 0x20), false), Some(false));
    }
}

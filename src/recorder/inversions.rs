//! Lock orders that could deadlock, found in one process that did not hang.
//!
//! In: [`Orders`]. Out: [`Inversion`]s of two threads or more: each took, by waiting, a lock that the next one held.
//! Four conditions must hold. The threads are different. A thread's wanted lock and the next thread's hold of it
//! exclude each other, which two readers do not. No two threads hold a further lock in ways that exclude each other,
//! because it would keep them apart (a gate, the GIL too). And no lock is a signal, released by a thread that had not
//! taken it. If thread creation and joins keep the threads apart in this run, the inversion is [`Meeting::Ordered`]:
//! another run, or another caller, may not join. This module knows no names and no lines: two inversions at the same
//! places are two here.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::orders::{Dependency, LockId, Orders, Taken, WakeUp};
use super::table::Mode;
use crate::limits;
use crate::limits::recorder::{MOST_ALIKE, MOST_INVERSIONS, MOST_RING, MOST_STEPS, MOST_THREADS, MOST_WAKE_UPS};

/// Whether those who take part could have met in the run that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meeting {
    /// Nothing that was seen kept them apart.
    Possible,
    /// One had ended, or not begun, when the other did its part: by who made and joined whom.
    Ordered,
}

/// A step of one thread: it held one lock and took the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'o> {
    /// All that is known of it.
    pub(crate) dependency: &'o Dependency,
    /// The lock that the one before it wants.
    pub(crate) held: &'o Taken,
}

/// A circle of steps: what each wants the next one holds.
#[derive(Debug, Clone)]
pub(crate) struct Inversion<'o> {
    /// Two to [`MOST_RING`].
    pub(crate) steps: Vec<Step<'o>>,
    /// Whether they could have met.
    pub(crate) meeting: Meeting,
}

/// The possible deadlocks, and how much of the recording was compared.
#[derive(Debug)]
pub(crate) struct Found<'o> {
    /// All that could.
    pub(crate) inversions: Vec<Inversion<'o>>,
    /// Times that a lock was taken under another which were compared with no other: there were too many of the same
    /// two.
    pub(crate) not_compared: usize,
}

/// All that could deadlock.
pub(crate) fn find(orders: &Orders) -> Found<'_> {
    let edges = Edges::of(orders);
    let mut search = Search { orders, order: HappensBefore::of(orders), found: Vec::new(), steps: 0 };
    for &first in edges.next.keys() {
        search.extend(&edges, &mut vec![first]);
    }
    Found { inversions: search.found, not_compared: edges.not_compared }
}

/// Where a lock was taken.
type Place = (crate::image::Addr, u32);

fn place(taken: &Taken) -> Place {
    (taken.at, taken.site)
}

/// Steps by the lock that is held and the one that is wanted.
struct Edges<'o> {
    steps: BTreeMap<(LockId, LockId), Vec<Step<'o>>>,
    next: BTreeMap<LockId, BTreeSet<LockId>>,
    /// Steps that are left out, beyond the first [`MOST_ALIKE`] of two locks.
    not_compared: usize,
}

impl<'o> Edges<'o> {
    fn of(orders: &'o Orders) -> Edges<'o> {
        let mut edges = Edges { steps: BTreeMap::new(), next: BTreeMap::new(), not_compared: 0 };
        let mut alike: HashMap<(LockId, Place, Place, Vec<LockId>), BTreeSet<u32>> = HashMap::new();
        for dependency in &orders.dependencies {
            let wanted = dependency.wanted.lock;
            if orders.signals.contains(&wanted) {
                continue;
            }
            for held in dependency.held.iter().filter(|held| held.lock != wanted) {
                if orders.signals.contains(&held.lock) {
                    continue;
                }
                // Many threads that do the same add nothing to some of them. One thread may appear several times,
                // because before and after it made and joined others it may have met different ones.
                let all = dependency.held.iter().map(|held| held.lock).collect();
                let same = alike.entry((wanted, place(&dependency.wanted), place(held), all)).or_default();
                if same.len() == MOST_THREADS && !same.contains(&dependency.thread) {
                    continue;
                }
                same.insert(dependency.thread);
                let steps = edges.steps.entry((held.lock, wanted)).or_default();
                match steps.len() < MOST_ALIKE {
                    true => steps.push(Step { dependency, held }),
                    false => edges.not_compared += 1,
                }
                edges.next.entry(held.lock).or_default().insert(wanted);
            }
        }
        edges
    }
}

struct Search<'o> {
    orders: &'o Orders,
    order: HappensBefore<'o>,
    found: Vec<Inversion<'o>>,
    steps: usize,
}

impl<'o> Search<'o> {
    /// Follow a path of locks to each ring through it. The first lock of a path is the lowest, so that each ring is
    /// found once; no lock has an edge to one of the path but the next and the first, or there is a shorter ring.
    fn extend(&mut self, edges: &Edges<'o>, path: &mut Vec<LockId>) {
        let (Some(&first), Some(&last)) = (path.first(), path.last()) else { return };
        let has = |from, to| edges.steps.contains_key(&(from, to));
        for &next in edges.next.get(&last).into_iter().flatten().filter(|next| **next > first) {
            let inner = path.get(1..).unwrap_or_default();
            let before = path.get(..path.len() - 1).unwrap_or_default();
            if path.contains(&next)
                || before.iter().any(|one| has(*one, next))
                || inner.iter().any(|one| has(next, *one))
            {
                continue;
            }
            if self.is_enough() {
                return;
            }
            self.steps += 1;
            path.push(next);
            if has(next, first) {
                let ends = path.iter().zip(path.iter().cycle().skip(1));
                let lists: Vec<_> = ends.filter_map(|(held, wanted)| edges.steps.get(&(*held, *wanted))).collect();
                self.consider(&lists);
            } else if path.len() < MOST_RING {
                self.extend(edges, path);
            }
            path.pop();
        }
    }

    /// Whether one of the limits is met, which the report says.
    fn is_enough(&self) -> bool {
        let what = || format!("the orders of locks of process {}", self.orders.process);
        if self.found.len() >= MOST_INVERSIONS {
            limits::met(MOST_INVERSIONS, what(), "combinations");
            return true;
        }
        if self.steps >= MOST_STEPS {
            limits::met(MOST_STEPS, what(), "combinations");
            return true;
        }
        false
    }

    /// Take one step of each list.
    fn consider(&mut self, lists: &[&Vec<Step<'o>>]) {
        let Some((first, rest)) = lists.split_first() else { return };
        let mut chosen = Vec::new();
        for step in first.iter() {
            chosen.push(*step);
            self.choose(&mut chosen, rest);
            chosen.pop();
        }
    }

    fn choose(&mut self, chosen: &mut Vec<Step<'o>>, lists: &[&Vec<Step<'o>>]) {
        if self.is_enough() {
            return;
        }
        self.steps += 1;
        let Some((first, rest)) = lists.split_first() else {
            if let Some(meeting) = self.judge(chosen) {
                self.found.push(Inversion { steps: chosen.clone(), meeting });
            }
            return;
        };
        for step in first.iter() {
            chosen.push(*step);
            if self.fits(chosen) {
                self.choose(chosen, rest);
            }
            chosen.pop();
        }
    }

    /// Whether the last of them may stand beside the others.
    fn fits(&self, steps: &[Step<'o>]) -> bool {
        let Some((last, others)) = steps.split_last() else { return false };
        let before = others.last().map(|before| &before.dependency.wanted);
        before.is_some_and(|wanted| exclude_each_other(wanted, last.held))
            && others.iter().all(|other| {
                other.dependency.thread != last.dependency.thread && !have_gate(other.dependency, last.dependency)
            })
    }

    fn judge(&mut self, steps: &[Step<'o>]) -> Option<Meeting> {
        let (first, last) = (steps.first()?, steps.last()?);
        if !exclude_each_other(&last.dependency.wanted, first.held) {
            return None;
        }
        let mut meeting = Meeting::Possible;
        for (position, one) in steps.iter().enumerate() {
            for other in steps.iter().skip(position + 1) {
                if self.order.are_ordered(one.dependency, other.dependency) {
                    meeting = Meeting::Ordered;
                }
            }
        }
        Some(meeting)
    }
}

fn exclude_each_other(one: &Taken, other: &Taken) -> bool {
    one.mode != Mode::Reading || other.mode != Mode::Reading
}

fn have_gate(one: &Dependency, other: &Dependency) -> bool {
    gate(one, other).is_some()
}

/// What both hold and only one of them can.
fn gate<'o>(one: &'o Dependency, other: &Dependency) -> Option<&'o Taken> {
    one.held.iter().find(|held| other.held.iter().any(|its| its.lock == held.lock && exclude_each_other(held, its)))
}

/// What keeps two steps apart.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Apart<'o> {
    /// One thread does both.
    OneThread,
    /// Both hold this, which only one of them can.
    Gate(&'o Taken),
    /// One was over when the other began, by who made and joined whom.
    Ordered,
}

/// What keeps each of these steps apart from each of those; none where two of them could meet, or there are no two.
pub(crate) fn apart<'o>(orders: &'o Orders, ones: &[&'o Dependency], others: &[&'o Dependency]) -> Option<Apart<'o>> {
    let mut order = HappensBefore::of(orders);
    let mut why = None;
    for (one, other) in ones.iter().flat_map(|one| others.iter().map(move |other| (*one, *other))).take(MOST_STEPS) {
        why = Some(match gate(one, other) {
            _ if one.thread == other.thread => Apart::OneThread,
            Some(lock) => Apart::Gate(lock),
            None if order.are_ordered(one, other) => Apart::Ordered,
            None => return None,
        });
    }
    why
}

/// A wait to be woken, and a wake-up by another thread that was seen for it and may come before it.
pub(crate) fn wake_ups(orders: &Orders) -> Vec<[&WakeUp; 2]> {
    let mut order = HappensBefore::of(orders);
    let mut found: Vec<[&WakeUp; 2]> = Vec::new();
    for wait in &orders.waits {
        let wakes = |other: &&WakeUp| other.taken.lock == wait.taken.lock && other.thread != wait.thread;
        for other in orders.wake_ups.iter().filter(wakes) {
            let known = |known: &[&WakeUp; 2]| {
                let [one, two] = known.map(|event| place(&event.taken));
                one == place(&wait.taken) && two == place(&other.taken)
            };
            let (one, two) = ((wait.thread, wait.segment), (other.thread, other.segment));
            let is_ordered = wait.part == other.part && (order.is_before(one, two) || order.is_before(two, one));
            if found.len() < MOST_WAKE_UPS && !is_ordered && !found.iter().any(known) {
                found.push([wait, other]);
            }
        }
    }
    found
}

/// The order of events, by the creation and joining of threads.
struct HappensBefore<'o> {
    orders: &'o Orders,
    joined: HashMap<u32, Vec<(u32, u32)>>,
    known: HashMap<[(u32, u32); 2], bool>,
}

impl<'o> HappensBefore<'o> {
    fn of(orders: &'o Orders) -> HappensBefore<'o> {
        let mut joined: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
        for (thread, segment, other) in &orders.joined {
            joined.entry(*thread).or_default().push((*segment, *other));
        }
        HappensBefore { orders, joined, known: HashMap::new() }
    }

    fn are_ordered(&mut self, one: &Dependency, other: &Dependency) -> bool {
        // Tests run one after the other because of who runs them.
        if one.part != other.part {
            return false;
        }
        let (one, other) = ((one.thread, one.segment), (other.thread, other.segment));
        self.is_before(one, other) || self.is_before(other, one)
    }

    /// Whether what a thread did in a segment was over when another came to one of its own: found backwards from there.
    fn is_before(&mut self, one: (u32, u32), other: (u32, u32)) -> bool {
        if let Some(known) = self.known.get(&[one, other]) {
            return *known;
        }
        let (mut seen, mut open, mut is_before) = (BTreeSet::new(), vec![other], false);
        while let Some((thread, segment)) = open.pop() {
            if !seen.insert((thread, segment)) {
                continue;
            }
            if thread == one.0 && one.1 <= segment {
                is_before = true;
                break;
            }
            open.extend(self.orders.made.get(&thread));
            let ends = self.joined.get(&thread).into_iter().flatten().filter(|(at, _)| *at < segment);
            open.extend(ends.map(|(_, ended)| (*ended, u32::MAX)));
        }
        self.known.insert([one, other], is_before);
        is_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Addr;
    use crate::recorder::table::LockKind;

    fn lock(address: u64, mode: Mode) -> Taken {
        let lock = LockId { address: Addr(address), generation: 0 };
        Taken { lock, kind: LockKind::ReadWriteLock, mode, at: Addr(address), site: 0 }
    }

    fn took(thread: u32, held: &[u64], wanted: u64) -> Dependency {
        let held = held.iter().map(|one| lock(*one, Mode::Alone)).collect();
        Dependency { thread, segment: 0, part: 0, wanted: lock(wanted, Mode::Alone), held }
    }

    fn meetings(orders: &Orders) -> Vec<(usize, Meeting)> {
        find(orders).inversions.iter().map(|one| (one.steps.len(), one.meeting)).collect()
    }

    fn of(dependencies: Vec<Dependency>) -> Orders {
        Orders { dependencies, ..Orders::default() }
    }

    #[test]
    fn two_orders_of_two_threads_could_deadlock() {
        assert_eq!(meetings(&of(vec![took(1, &[10], 20), took(2, &[20], 10)])), [(2, Meeting::Possible)]);
        // One thread never waits for itself.
        assert_eq!(meetings(&of(vec![took(1, &[10], 20), took(1, &[20], 10)])), []);
        // The same order, and a lock that ended before the other began at its address.
        assert_eq!(meetings(&of(vec![took(1, &[10], 20), took(2, &[10], 20)])), []);
        let mut other = took(2, &[20], 10);
        other.held[0].lock.generation = 2;
        assert_eq!(meetings(&of(vec![took(1, &[10], 20), other])), []);
    }

    #[test]
    fn a_gate_keeps_them_apart_and_readers_do_not_exclude_each_other() {
        assert_eq!(meetings(&of(vec![took(1, &[5, 10], 20), took(2, &[5, 20], 10)])), []);
        // A gate that both only read is none.
        let mut both = [took(1, &[5, 10], 20), took(2, &[5, 20], 10)];
        both.iter_mut().for_each(|one| one.held[0].mode = Mode::Reading);
        assert_eq!(meetings(&of(both.to_vec())), [(2, Meeting::Possible)]);
        let mut readers = [took(1, &[10], 20), took(2, &[20], 10)];
        for one in &mut readers {
            one.wanted.mode = Mode::Reading;
            one.held[0].mode = Mode::Reading;
        }
        assert_eq!(meetings(&of(readers.to_vec())), []);
        readers[0].wanted.mode = Mode::Alone;
        // It waits for the reader, which waits for nobody: a third one may read what the first does.
        assert_eq!(meetings(&of(readers.to_vec())), []);
        readers[1].wanted.mode = Mode::Alone;
        assert_eq!(meetings(&of(readers.to_vec())), [(2, Meeting::Possible)]);
    }

    #[test]
    fn three_may_wait_for_each_other() {
        let ring = vec![took(1, &[10], 20), took(2, &[20], 30), took(3, &[30], 10)];
        assert_eq!(meetings(&of(ring.clone())), [(3, Meeting::Possible)]);
        let mut gated = ring.clone();
        for one in &mut gated[..2] {
            one.held.push(lock(5, Mode::Alone));
        }
        assert_eq!(meetings(&of(gated)), []);
        assert_eq!(meetings(&of(ring[..2].to_vec())), []);
    }

    #[test]
    fn rings_of_more_are_found_once_and_shorter_ones_stand_for_longer() {
        let ring = |count: u64| -> Vec<Dependency> {
            (0..count).map(|one| took(one as u32 + 1, &[10 + one], 10 + (one + 1) % count)).collect()
        };
        for count in [4, 5, MOST_RING as u64] {
            assert_eq!(meetings(&of(ring(count))), [(count as usize, Meeting::Possible)], "{count}");
        }
        assert_eq!(meetings(&of(ring(MOST_RING as u64 + 1))), []);
        let mut with_pair = ring(4);
        with_pair.push(took(9, &[11], 10));
        assert_eq!(meetings(&of(with_pair)), [(2, Meeting::Possible)]);
    }

    #[test]
    fn signals_are_no_locks() {
        let mut orders = of(vec![took(1, &[10], 20), took(2, &[20], 10)]);
        orders.signals.insert(LockId { address: Addr(20), generation: 0 });
        assert_eq!(meetings(&orders), []);
    }

    #[test]
    fn ways_that_are_not_compared_are_counted() {
        // Each at a place of its own.
        let way = |place: u64| {
            let mut way = took(1, &[10], 20);
            way.wanted.at = Addr(place);
            way
        };
        let of_ways = |count: usize| of((0..count as u64).map(way).chain([took(2, &[20], 10)]).collect());
        let (all, more) = (of_ways(MOST_ALIKE), of_ways(MOST_ALIKE + 3));
        assert_eq!((find(&all).not_compared, find(&more).not_compared), (0, 3));
        assert_eq!(find(&more).inversions.len(), MOST_ALIKE);
        // Threads that do the same are no ways of their own.
        let alike = of((0..2 * MOST_ALIKE as u32).map(|thread| took(thread, &[10], 20)).collect());
        assert_eq!(find(&alike).not_compared, 0);
    }

    #[test]
    fn what_one_thread_does_again_and_again_takes_no_others_place() {
        // The first thread makes threads and does the same between, and the last of them the other way.
        let again = |segment: u32| Dependency { segment, ..took(1, &[10], 20) };
        let mut dependencies: Vec<Dependency> = (0..3 * MOST_THREADS as u32).map(again).collect();
        assert_eq!(meetings(&of([dependencies.clone(), vec![took(1, &[20], 10)]].concat())), []);
        dependencies.extend([took(2, &[10], 20), took(1, &[20], 10)]);
        assert_eq!(meetings(&of(dependencies)), [(2, Meeting::Possible)]);
        // It has met only who lived when it did so for the last time.
        let mut orders = of([(0..3 * MOST_THREADS as u32).map(again).collect(), vec![took(9, &[20], 10)]].concat());
        orders.made.insert(9, (1, 3 * MOST_THREADS as u32 - 2));
        let met = meetings(&orders);
        assert!(met.contains(&(2, Meeting::Possible)), "{met:?}");
    }

    #[test]
    fn joins_are_told_and_silence_nothing() {
        let mut orders = of(vec![took(2, &[10], 20), took(3, &[20], 10)]);
        // The first thread makes both, and joins the one before it makes the other.
        orders.made.extend([(2, (1, 0)), (3, (1, 2))]);
        orders.joined.push((1, 1, 2));
        assert_eq!(meetings(&orders), [(2, Meeting::Ordered)]);
        orders.joined.clear();
        assert_eq!(meetings(&orders), [(2, Meeting::Possible)]);
        // A thread between them joins the first, and is joined itself.
        orders.made.extend([(4, (1, 0)), (2, (4, 0))]);
        orders.joined.extend([(4, 1, 2), (1, 1, 4)]);
        assert_eq!(meetings(&orders), [(2, Meeting::Ordered)]);
        // Two tests: one ended before the other.
        orders.dependencies[1].part = 1;
        assert_eq!(meetings(&orders), [(2, Meeting::Possible)]);
    }
}

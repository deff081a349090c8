//! The same work on many items, done by several threads of lockscope.
//!
//! In: items and a function. Out: the function's results, in the order of the items. Queries to the kernel about ten
//! thousand threads take half a second of one processor, and formatting their frames takes a tenth. Both only use the
//! processor and wait for nothing else.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

/// Items in one part. Workers take parts one by one, so a worker that gets more processor time does more of them.
const PART: usize = 32;
/// At most this many workers, if there are as many processors and items. More workers would wait for each other in the
/// kernel.
const WORKERS: usize = 8;

/// The results of `ask`, one for each item.
pub(crate) fn ask_each<Thing: Sync, Answer: Send>(
    things: &[Thing],
    ask: impl Fn(&Thing) -> Answer + Sync,
) -> Vec<Answer> {
    make_each(things, || (), |(), thing| ask(thing))
}

/// The results of `make`, one for each item. Each worker keeps a value from one item to the next, which starts as
/// `begin()`.
pub(crate) fn make_each<'t, Thing: Sync, Kept, Made: Send>(
    things: &'t [Thing],
    begin: impl Fn() -> Kept + Sync,
    make: impl Fn(&mut Kept, &'t Thing) -> Made + Sync,
) -> Vec<Made> {
    let work =
        |kept: &mut Kept, part: &'t [Thing]| -> Vec<Made> { part.iter().map(|thing| make(kept, thing)).collect() };
    let workers = if things.len() <= 2 * PART { 1 } else { most_workers().min(things.len() / PART) };
    if workers == 1 {
        return work(&mut begin(), things);
    }
    let parts: Vec<&[Thing]> = things.chunks(PART).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        let (mut done, mut kept) = (BTreeMap::new(), begin());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(number) else { return done };
            done.insert(number, work(&mut kept, part));
        }
    };
    let mut done = scope(|scope| {
        let help = |_| Builder::new().name("helper".to_owned()).spawn_scoped(scope, take);
        let helpers: Vec<_> = (1..workers).map(help).collect();
        let mut done = take();
        done.extend(helpers.into_iter().flatten().flat_map(|helper| helper.join().unwrap_or_default()));
        done
    });
    // Parts that a failed helper took are done again.
    let again = |part| work(&mut begin(), part);
    let all = parts.iter().enumerate().flat_map(|(number, part)| done.remove(&number).unwrap_or_else(|| again(part)));
    all.collect()
}

/// Whether two threads or processes can work at a time.
pub(crate) fn has_processors() -> bool {
    processors() > 1
}

fn most_workers() -> usize {
    processors().min(WORKERS)
}

fn processors() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_things() {
        for count in [0, 1, 64, 65, 1000] {
            let things: Vec<usize> = (0..count).collect();
            let twice: Vec<usize> = things.iter().map(|thing| thing * 2).collect();
            assert_eq!(ask_each(&things, |thing| thing * 2), twice, "{count}");
        }
    }

    #[test]
    fn many_are_asked_about_by_several_and_few_by_one() {
        let askers = |count: usize, expected: usize| {
            let (all, seen) = (Barrier::new(expected), Mutex::new(HashSet::new()));
            let things: Vec<usize> = (0..count).collect();
            ask_each(&things, |_| {
                // The first question of each waits for those of the others.
                if seen.lock().expect("not poisoned").insert(thread::current().id()) {
                    all.wait();
                }
            });
            assert_eq!(seen.into_inner().expect("not poisoned").len(), expected, "{count}");
        };
        askers(64, 1);
        askers(3 * PART, most_workers().min(3));
        askers(1000, most_workers());
    }
}

//! The same question about each of many threads, asked by several threads of lockscope's.
//!
//! In: things and a question. Out: the answers, in the order of the things. To ask the kernel about ten thousand threads takes half a
//! second of one processor, and nothing in it waits for anything but that.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

/// So many are asked about before the next are taken: whoever gets a processor goes on, whatever the other one gets.
const PART: usize = 32;
/// As many ask at once, where there are so many processors and so many to ask about: beyond that they wait for each other in the kernel.
const ASKERS: usize = 8;

/// What `ask` says of each.
pub(super) fn ask_each<Thing: Sync, Answer: Send>(
    things: &[Thing],
    ask: impl Fn(&Thing) -> Answer + Sync,
) -> Vec<Answer> {
    let askers = if things.len() <= 2 * PART { 1 } else { most_askers().min(things.len() / PART) };
    if askers == 1 {
        return things.iter().map(ask).collect();
    }
    let parts: Vec<&[Thing]> = things.chunks(PART).collect();
    let next = AtomicUsize::new(0);
    let answers = |part: &[Thing]| -> Vec<Answer> { part.iter().map(&ask).collect() };
    let work = || {
        let mut done = BTreeMap::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(number) else { return done };
            done.insert(number, answers(part));
        }
    };
    let mut done = scope(|scope| {
        let help = |_| Builder::new().name("reader".to_owned()).spawn_scoped(scope, work);
        let helpers: Vec<_> = (1..askers).map(help).collect();
        let mut done = work();
        done.extend(helpers.into_iter().flatten().flat_map(|helper| helper.join().unwrap_or_default()));
        done
    });
    // What a helper took that failed is asked once more.
    let all = parts.iter().enumerate().flat_map(|(number, part)| done.remove(&number).unwrap_or_else(|| answers(part)));
    all.collect()
}

fn most_askers() -> usize {
    available_parallelism().map_or(1, NonZero::get).min(ASKERS)
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
        askers(3 * PART, most_askers().min(3));
        askers(1000, most_askers());
    }
}

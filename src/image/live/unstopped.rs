//! A sample without a stop: the threads that stood still meanwhile, and the facts about them.
//!
//! In: two readings of sleeping threads ([`Reading`]), one from before memory was copied, one from after. Out: an [`Outcome`] for
//! each thread, as a stop would give it. Nothing is read here.

use std::collections::BTreeSet;

use super::asleep::Reading;
use super::stop::{Outcome, ProcessStop};

/// The outcomes of the threads of a process by `reading`. Threads that it does not list began since or are gone.
pub(super) fn outcomes(tids: &[i32], reading: &Reading) -> ProcessStop {
    let outcome = |tid: &i32| match reading.get(tid) {
        Some(sleeper) if sleeper.mark.is_still() => Outcome::Asleep(*sleeper),
        Some(sleeper) if matches!(sleeper.mark.state, 'X' | 'Z') => Outcome::Ended,
        Some(sleeper) => Outcome::Awake { state: sleeper.mark.state },
        None => Outcome::Awake { state: '?' },
    };
    tids.iter().map(|tid| (*tid, outcome(tid))).collect()
}

/// The outcomes of all threads that `reading` lists of a process.
pub(super) fn outcomes_of(pid: i32, reading: &Reading) -> ProcessStop {
    let tids: Vec<i32> = reading.iter().filter(|(_, sleeper)| sleeper.process == pid).map(|(&tid, _)| tid).collect();
    outcomes(&tids, reading)
}

/// Those that were left asleep, and have not slept until `now`.
pub(super) fn stirred(processes: &[ProcessStop], now: &Reading) -> BTreeSet<i32> {
    let stirred = |(tid, outcome): (&i32, &Outcome)| match outcome {
        Outcome::Asleep(sleeper) => !now.get(tid).is_some_and(|now| sleeper.stood_until(now)),
        _ => false,
    };
    processes.iter().flatten().filter(|of| stirred(*of)).map(|(&tid, _)| tid).collect()
}

/// Those of a process, whose threads are now `tids`, that did not stand still from `before` to `after`.
pub(super) fn moved(outcomes: &ProcessStop, tids: &[i32], before: &Reading, after: &Reading) -> BTreeSet<i32> {
    let stood = |tid: &i32| {
        let known = matches!(outcomes.get(tid), Some(Outcome::Asleep(_)));
        known && before.get(tid).zip(after.get(tid)).is_some_and(|(before, after)| before.stood_until(after))
    };
    let ended = |tid: &i32| matches!(outcomes.get(tid), Some(Outcome::Ended));
    outcomes.keys().chain(tids).filter(|tid| !stood(tid) && !ended(tid)).copied().collect()
}

/// Take back the outcomes of threads that have moved.
pub(super) fn take_back(outcomes: &mut ProcessStop, moved: &BTreeSet<i32>, after: &Reading) {
    for &tid in moved {
        let state = after.get(&tid).map_or('?', |sleeper| sleeper.mark.state);
        outcomes.insert(tid, Outcome::Awake { state });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::live::asleep::{Mark, Sleeper};

    fn sleeper(state: char, switches: u64) -> Sleeper {
        let mark = Mark { state, on_cpu: false, switches: (switches, 0), ran: Some(1) };
        Sleeper { process: 1, mark, registers: None, call: None }
    }

    #[test]
    fn only_who_stood_still_all_the_time_counts() {
        // 1 sleeps on, 2 was woken and did not run, 3 ran a round, 4 runs, 5 is new, 6 has exited.
        let before = Reading::from([
            (1, sleeper('S', 5)),
            (2, sleeper('D', 5)),
            (3, sleeper('S', 5)),
            (4, sleeper('R', 5)),
            (6, sleeper('X', 5)),
        ]);
        let after = Reading::from([
            (1, sleeper('S', 5)),
            (2, sleeper('R', 5)),
            (3, sleeper('S', 6)),
            (4, sleeper('R', 5)),
            (5, sleeper('S', 1)),
        ]);
        let mut outcomes = outcomes(&[1, 2, 3, 4, 6], &before);
        let moved = moved(&outcomes, &[1, 2, 3, 4, 5], &before, &after);
        assert_eq!(moved, BTreeSet::from([2, 3, 4, 5]));
        take_back(&mut outcomes, &moved, &after);
        assert!(matches!(outcomes[&1], Outcome::Asleep(_)));
        assert!(matches!(outcomes[&2], Outcome::Awake { state: 'R' }));
        assert!(matches!(outcomes[&5], Outcome::Awake { state: 'S' }));
        assert!(matches!(outcomes[&6], Outcome::Ended));
    }

    #[test]
    fn a_thread_on_its_way_to_sleep_does_not_stand_still() {
        let mut going = sleeper('S', 5);
        going.mark.on_cpu = true;
        assert!(!going.stood_until(&going));
    }
}

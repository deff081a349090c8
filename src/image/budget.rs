//! How much memory and processor time one look may take for what its input announces: a few kilobytes can unpack to
//! terabytes.
//!
//! In: the sizes of data to unpack, copy or list. Out: whether the data still fits, and a [`Gap`] for each refusal.
//! There is one budget for a whole sample with all its processes and files, kept by the thread that takes the sample.
//! The code that copies a live target's memory bounds it itself. Time bounds source lines, without which every verdict
//! is the same; the threads of a suspicion get theirs from a part of their own. Steps bound what goes over a foreign
//! table from its beginning for each question: the number of frames times the length of a table has no bound of its own.

use std::cell::RefCell;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::Gap;

/// For everything together, in bytes. With what is counted nowhere (the program itself, the report, stacks of 10,000 threads) the
/// peak stays under 1 GiB. Measured: 200 threads of torch with 400 libraries take 60 MiB of it.
const OF_A_LOOK: u64 = 512 << 20;
/// Processor time of the thread that takes the sample, after which no source line is looked up, and what there is beyond that
/// for threads of a suspicion. Waiting and other processes of a busy machine do not count.
const TIME: Duration = Duration::from_secs(10);
const TIME_OF_MEMBERS: Duration = Duration::from_secs(5);
/// Steps over foreign tables, of a nanosecond or so each: about as long as [`TIME`].
const STEPS: u64 = 10_000_000_000;
/// So many refusals are named.
const MOST_GAPS: usize = 16;

#[derive(Debug)]
struct Budget {
    left: u64,
    refused: Vec<Gap>,
    /// The processor time of the thread when source lines end; none outside of a sample.
    until: Option<Duration>,
    /// They have ended once.
    is_late: bool,
    /// Steps that are left.
    steps: u64,
}

impl Budget {
    const fn whole(until: Option<Duration>) -> Budget {
        Budget { left: OF_A_LOOK, refused: Vec::new(), until, is_late: false, steps: STEPS }
    }
}

thread_local! {
    static BUDGET: RefCell<Budget> = const { RefCell::new(Budget::whole(None)) };
}

/// Begin a sample: the whole budget is there again.
pub(crate) fn begin() {
    BUDGET.with_borrow_mut(|budget| *budget = Budget::whole(processor_time().map(|now| now + TIME)));
}

/// The processor time of the calling thread.
fn processor_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}

/// Whether there is time for more source lines. A gap says where there is none.
pub(crate) fn has_time() -> bool {
    let is_over = BUDGET.with_borrow(|budget| budget.until).is_some_and(|until| processor_time() > Some(until));
    if is_over && !BUDGET.with_borrow_mut(|budget| std::mem::replace(&mut budget.is_late, true)) {
        note(Gap::new(
            "source lines of further code",
            format!(
                "the look had taken {} s of a processor; after that threads that seem deadlocked get theirs, for {} s more",
                TIME.as_secs(),
                TIME_OF_MEMBERS.as_secs()
            ),
        ));
    }
    !is_over
}

/// Whether source lines were left out for want of time. If so, the threads of a suspicion get a part of their own.
pub(crate) fn members_come_next() -> bool {
    BUDGET.with_borrow_mut(|budget| {
        if budget.is_late {
            budget.until = processor_time().map(|now| now + TIME_OF_MEMBERS);
        }
        budget.is_late
    })
}

/// Whether the look may go over one more foreign table; a gap names the purpose where it may not.
pub(crate) fn may_go_over(what: impl FnOnce() -> String) -> bool {
    let may = BUDGET.with_borrow(|budget| budget.steps > 0);
    if !may {
        note(Gap::new(what(), "the look went over the tables of the target's files and code for as long as it may"));
    }
    may
}

/// Takes the steps of one pass over a table from the budget.
pub(crate) fn went_over(steps: u64) {
    BUDGET.with_borrow_mut(|budget| budget.steps = budget.steps.saturating_sub(steps));
}

/// Bytes that are left.
pub(crate) fn left() -> u64 {
    BUDGET.with_borrow(|budget| budget.left)
}

/// Take `bytes`. Where fewer are left, nothing is taken, and their purpose becomes a gap.
pub(crate) fn take(bytes: u64, what: impl FnOnce() -> String) -> bool {
    BUDGET.with_borrow_mut(|budget| match budget.left.checked_sub(bytes) {
        Some(left) => {
            budget.left = left;
            true
        }
        None => {
            if budget.refused.len() < MOST_GAPS {
                let why = format!(
                    "it takes {} MiB of memory, and {} MiB of the {} MiB that a look may take in all are left",
                    bytes.div_ceil(1 << 20),
                    budget.left >> 20,
                    OF_A_LOOK >> 20,
                );
                let gap = Gap::new(what(), why);
                if !budget.refused.contains(&gap) {
                    budget.refused.push(gap);
                }
            }
            false
        }
    })
}

/// Something else that a sample could not have within its bounds, for example of time.
pub(crate) fn note(gap: Gap) {
    BUDGET.with_borrow_mut(|budget| {
        if budget.refused.len() < MOST_GAPS && !budget.refused.contains(&gap) {
            budget.refused.push(gap);
        }
    });
}

/// Give back what was taken and is not needed any more.
pub(crate) fn give_back(bytes: u64) {
    BUDGET.with_borrow_mut(|budget| budget.left = budget.left.saturating_add(bytes).min(OF_A_LOOK));
}

/// The refusals since the last call.
pub(crate) fn gaps() -> Vec<Gap> {
    BUDGET.with_borrow_mut(|budget| std::mem::take(&mut budget.refused))
}

/// A list that grows by what the budget has left, a piece at a time.
pub(crate) fn make_room<T>(list: &mut Vec<T>, what: impl FnOnce() -> String) -> bool {
    const PIECE: usize = 1 << 16;
    if list.len() < list.capacity() {
        return true;
    }
    let fits = take((PIECE * size_of::<T>()) as u64, what);
    if fits {
        // Not doubled: half of it might never be used.
        list.reserve_exact(PIECE);
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_with_a_gap() {
        begin();
        went_over(STEPS - 1);
        assert!(may_go_over(|| unreachable!()) && gaps().is_empty());
        went_over(2);
        assert!(!may_go_over(|| "lines".into()));
        assert_eq!(gaps().len(), 1);
        begin();
        assert!(may_go_over(|| unreachable!()));
    }

    #[test]
    fn after_its_time_members_come_next() {
        begin();
        assert!(has_time() && !members_come_next() && gaps().is_empty());
        BUDGET.with_borrow_mut(|budget| budget.until = Some(Duration::ZERO));
        assert!(!has_time() && !has_time() && gaps().len() == 1);
        assert!(members_come_next() && has_time());
        begin();
    }

    #[test]
    fn what_does_not_fit_is_a_gap_and_takes_nothing() {
        begin();
        assert!(take(OF_A_LOOK - 10, || unreachable!()));
        assert!(!take(11, || "notes of `a`".into()) && !take(11, || "notes of `a`".into()));
        assert!(take(10, || unreachable!()));
        let gaps = gaps();
        assert!(gaps.len() == 1 && gaps[0].why.contains("512 MiB"), "{gaps:?}");
        give_back(8);
        assert!(take(8, || unreachable!()) && !take(1, String::new));
        begin();
        let mut list: Vec<[u8; 1 << 10]> = Vec::new();
        let mut count = 0;
        while make_room(&mut list, || "a list".into()) {
            list.push([0; 1 << 10]);
            count += 1;
            if count > 200 {
                break;
            }
        }
        assert_eq!(count, 201);
        begin();
    }
}

//! Threads that could run and get no processor: they make no progress, but are not blocked.
//!
//! In: the processes of a tree, now and again. Out: whether one of their threads could run all the time in between, or
//! was mostly taken off a processor. On a busy machine such a thread may use as little time as one that hangs: a
//! program that starts up, takes locks by `sched_yield`, or runs with a low priority. A thread that wakes now and then,
//! and sleeps again, could not run all the time, however long it waits for its turn.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process::{Process, Task};

use super::spinners::Spinners;

/// A program that starts up sleeps now and then, for a file or a page of it. It is taken off a processor more often
/// than that, and at least this often.
const LEAST_TAKEN: u64 = 2;

/// How often a thread came off a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turns {
    /// To sleep.
    slept: u64,
    /// While it could have gone on.
    taken: u64,
    /// It could run now.
    can_run: bool,
}

impl Turns {
    fn of(task: &Task) -> Option<Turns> {
        let status = task.status().ok()?;
        Some(Turns {
            slept: status.voluntary_ctxt_switches?,
            taken: status.nonvoluntary_ctxt_switches?,
            can_run: status.state.starts_with('R'),
        })
    }
}

/// A process and a thread of it.
type Thread = (i32, i32);
/// The turns of each thread.
type AllTurns = BTreeMap<Thread, Turns>;

/// Threads as they were before.
#[derive(Debug, Default)]
pub(super) struct Starved {
    /// All of them, when the tree had stood still for some time.
    all: Option<AllTurns>,
    /// Threads that could run at the last call, and how often each had gone to sleep.
    could_run: Option<BTreeSet<(Thread, u64)>>,
}

impl Starved {
    /// The tree stands still: from the first of these calls on it is counted how often its threads come off a processor.
    pub(super) fn stands_still(&mut self, pids: &[i32], spinners: &Spinners) {
        self.all.get_or_insert_with(|| turns(pids, spinners));
    }

    /// Whether a thread of these works, however little: it could run, and has not slept since the last call; or it was
    /// mostly taken off a processor since the tree stands still. `None` at the first call.
    pub(super) fn ask(&mut self, pids: &[i32], spinners: &Spinners) -> Option<bool> {
        let now = turns(pids, spinners);
        if self.all.as_ref().is_some_and(|before| mostly_taken(before, &now)) {
            return Some(true);
        }
        let can_run = now.into_iter().filter(|(_, turns)| turns.can_run);
        self.compare(can_run.map(|(thread, turns)| (thread, turns.slept)).collect())
    }

    fn compare(&mut self, now: BTreeSet<(Thread, u64)>) -> Option<bool> {
        let is_one_of_before = self.could_run.as_ref().map(|before| !before.is_disjoint(&now));
        self.could_run = Some(now);
        is_one_of_before
    }

    /// The next call is the first one again.
    pub(super) fn forget(&mut self) {
        *self = Starved::default();
    }
}

/// Whether one of these threads came off a processor more often because it was taken off than to sleep.
fn mostly_taken(before: &AllTurns, now: &AllTurns) -> bool {
    now.iter().any(|(thread, now)| {
        before.get(thread).is_some_and(|before| {
            let taken = now.taken.saturating_sub(before.taken);
            taken >= LEAST_TAKEN && taken > now.slept.saturating_sub(before.slept)
        })
    })
}

/// Those of the threads of processes, without those that spin in a call which only waits; none of one that is gone.
fn turns(pids: &[i32], spinners: &Spinners) -> AllTurns {
    let tasks = pids.iter().filter_map(|&pid| Some((pid, Process::new(pid).and_then(|process| process.tasks()).ok()?)));
    let tasks = tasks.flat_map(|(pid, tasks)| tasks.flatten().map(move |task| (pid, task)));
    let tasks = tasks.filter(|(_, task)| !spinners.has(task.tid));
    tasks.filter_map(|(pid, task)| Some(((pid, task.tid), Turns::of(&task)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use procfs::process::Stat;

    use super::*;

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Ended {
        /// A shell with this script, once it is so far.
        fn start(script: &str, is_so_far: impl Fn(&Stat) -> bool) -> Ended {
            let child = Ended(Command::new("sh").args(["-c", script]).spawn().expect("a shell"));
            while !Process::new(child.pid()).and_then(|one| one.stat()).is_ok_and(|stat| is_so_far(&stat)) {
                std::thread::yield_now();
            }
            child
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).expect("an id")
        }
    }

    #[test]
    fn who_works_wants_a_processor_however_little_it_gets() {
        let works = Ended::start("while :; do :; done", |stat| stat.comm == "sh");
        let sleeps = Ended::start("exec sleep 100", |stat| stat.comm == "sleep" && stat.state == 'S');
        let both = [sleeps.pid(), works.pid()];
        let mut starved = Starved::default();
        assert_eq!(starved.ask(&both, &Spinners::default()), None);
        // At first it may wait for pages of its program.
        while starved.ask(&both, &Spinners::default()) != Some(true) {}
        assert_eq!(starved.ask(&[sleeps.pid()], &Spinners::default()), Some(false));
        assert_eq!(starved.ask(&[sleeps.pid()], &Spinners::default()), Some(false));
        starved.forget();
        assert_eq!(starved.ask(&[0, -1], &Spinners::default()), None);
        assert_eq!(starved.ask(&[0, -1], &Spinners::default()), Some(false));
    }

    #[test]
    fn who_is_woken_now_and_then_has_slept_in_between() {
        let mut starved = Starved::default();
        let list = |all: &[(i32, u64)]| all.iter().map(|(tid, slept)| ((1, *tid), *slept)).collect();
        assert_eq!(starved.compare(list(&[(1, 7), (2, 40)])), None);
        assert_eq!(starved.compare(list(&[(2, 41)])), Some(false));
        assert_eq!(starved.compare(list(&[(2, 42), (3, 0)])), Some(false));
        assert_eq!(starved.compare(list(&[(3, 0)])), Some(true));
    }

    #[test]
    fn who_is_mostly_taken_off_a_processor_works() {
        let of =
            |tid: i32, slept: u64, taken: u64| AllTurns::from([((1, tid), Turns { slept, taken, can_run: false })]);
        let before = of(1, 40, 10);
        let works = |slept: u64, taken: u64| mostly_taken(&before, &of(1, slept, taken));
        // It reads files, and is taken off in between.
        assert!(works(43, 20) && works(40, 12));
        // It sleeps, is woken now and then, or by a clock that ticks all the time, and seldom has to go before it sleeps again.
        assert!(!works(40, 10) && !works(42, 10) && !works(140, 15) && !works(40, 11));
        // Another one, which has come since.
        assert!(!mostly_taken(&before, &of(2, 0, 9)));
    }
}

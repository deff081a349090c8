//! Threads that want a processor and get none: they stand still, but not by themselves.
//!
//! In: the processes of a tree, now and again. Out: whether one of their threads has wanted a processor all the time in between. On a
//! busy machine such a thread may use as little time as one that hangs: what starts up there, takes locks by `sched_yield`, or runs
//! with a low priority. Who is woken now and then, and sleeps again, wants none all the time, however long it waits for its turn.

use std::collections::BTreeSet;

use procfs::process::Process;

/// Threads that could run, as they were last.
#[derive(Debug, Default)]
pub(super) struct Starved {
    /// Process, thread, and how often that has gone to sleep.
    before: Option<BTreeSet<(i32, i32, u64)>>,
}

impl Starved {
    /// Whether a thread of these wants to run, and has not slept since this was asked last; `None` if nobody has asked before.
    pub(super) fn ask(&mut self, pids: &[i32]) -> Option<bool> {
        self.compare(pids.iter().flat_map(|&pid| runnable(pid)).collect())
    }

    fn compare(&mut self, now: BTreeSet<(i32, i32, u64)>) -> Option<bool> {
        let is_one_of_before = self.before.as_ref().map(|before| !before.is_disjoint(&now));
        self.before = Some(now);
        is_one_of_before
    }

    /// What comes now is asked anew.
    pub(super) fn forget(&mut self) {
        self.before = None;
    }
}

/// The threads of a process that could run; none where it is gone.
fn runnable(pid: i32) -> Vec<(i32, i32, u64)> {
    let Ok(tasks) = Process::new(pid).and_then(|process| process.tasks()) else { return Vec::new() };
    let could_run = tasks.flatten().filter(|task| task.stat().is_ok_and(|stat| stat.state == 'R'));
    could_run.filter_map(|task| Some((pid, task.tid, task.status().ok()?.voluntary_ctxt_switches?))).collect()
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
        assert_eq!(starved.ask(&both), None);
        // At first it may wait for pages of its program.
        while starved.ask(&both) != Some(true) {}
        assert_eq!(starved.ask(&[sleeps.pid()]), Some(false));
        assert_eq!(starved.ask(&[sleeps.pid()]), Some(false));
        starved.forget();
        assert_eq!(starved.ask(&[0, -1]), None);
        assert_eq!(starved.ask(&[0, -1]), Some(false));
    }

    #[test]
    fn who_is_woken_now_and_then_has_slept_in_between() {
        let mut starved = Starved::default();
        assert_eq!(starved.compare([(1, 1, 7), (1, 2, 40)].into()), None);
        assert_eq!(starved.compare([(1, 2, 41)].into()), Some(false));
        assert_eq!(starved.compare([(1, 2, 42), (1, 3, 0)].into()), Some(false));
        assert_eq!(starved.compare([(1, 3, 0)].into()), Some(true));
    }
}

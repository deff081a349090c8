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
        let now: BTreeSet<(i32, i32, u64)> = pids.iter().flat_map(|&pid| runnable(pid)).collect();
        let before = self.before.replace(now)?;
        self.before.as_ref().map(|now| !before.is_disjoint(now))
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
    use std::time::Duration;

    use super::*;

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_never_sleeps_wants_a_processor_and_who_is_woken_now_and_then_does_not() {
        let start = |script: &str| Ended(Command::new("sh").args(["-c", script]).spawn().expect("a shell"));
        let (works, sleeps) = (start("while :; do :; done"), start("while sleep 0.01; do :; done"));
        let pid = |child: &Ended| i32::try_from(child.0.id()).expect("an id");
        // It may be just about to run its program.
        let state = || procfs::process::Process::new(pid(&works)).and_then(|one| one.stat()).map(|stat| stat.comm);
        while state().ok().as_deref() != Some("sh") {
            std::thread::yield_now();
        }
        let mut starved = Starved::default();
        assert_eq!(starved.ask(&[pid(&works)]), None);
        std::thread::sleep(Duration::from_millis(200));
        // However little it gets on a busy machine.
        assert_eq!(starved.ask(&[pid(&sleeps), pid(&works)]), Some(true));
        assert_eq!(starved.ask(&[pid(&sleeps)]), Some(false));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(starved.ask(&[pid(&sleeps)]), Some(false));
        starved.forget();
        assert_eq!(starved.ask(&[0, -1]), None);
        assert_eq!(starved.ask(&[0, -1]), Some(false));
    }
}

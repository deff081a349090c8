//! Whether a whole process tree shows any sign of progress: what `--hang-after` and `--stuck-after` count.
//!
//! In: the processes of a tree, again and again. Out: since when none of them has shown a sign. Signs are bytes read or written, page
//! faults, threads and processes that come and go, and voluntary context switches: a thread slept, was woken and slept again. CPU time
//! is [`super::sample`]'s. It never decides when to sample: a ring is found by samples, whatever else goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use procfs::FromRead;
use procfs::process::{Process, Stat};

/// Between two readings: each opens a file for each thread.
const BETWEEN_READINGS: Duration = Duration::from_secs(1);
/// A thread that a sample stopped has gone back to sleep after this time, also on a busy machine.
const AFTER_A_LOOK: Duration = Duration::from_millis(500);

/// The counters of one process, which a sample does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters {
    started: u64,
    faults: u64,
    /// Bytes and calls that read or write; 0 where the kernel lets nobody read them.
    bytes: u64,
}

/// How often each thread went to sleep of its own accord.
type Switches = BTreeMap<i32, u64>;

/// Signs of progress, as far as they were checked.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last time that something moved.
    since: Option<Instant>,
    processes: BTreeMap<i32, Counters>,
    /// `None` after a sample, which makes threads switch by itself.
    switches: Option<Switches>,
    next: Option<Instant>,
    /// Threads that retry one and the same wait, as for the GIL: their wake-ups are no sign.
    retrying: BTreeSet<i32>,
}

impl Progress {
    /// Read the counters, if it is time. `cost` is the share of a processor that this may take at most, as 1 : `cost`.
    pub(super) fn sampled(&mut self, now: Instant, pids: &[i32], cost: u32) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        let began = Instant::now();
        let processes: BTreeMap<i32, Counters> = pids.iter().filter_map(|&pid| Some((pid, counters(pid)?))).collect();
        let switches: Switches = pids.iter().flat_map(|&pid| voluntary_switches(pid)).collect();
        self.compare(now, processes, switches);
        self.next = Some(now + BETWEEN_READINGS.max(began.elapsed() * cost));
    }

    fn compare(&mut self, now: Instant, processes: BTreeMap<i32, Counters>, switches: Switches) {
        let has_moved = self.processes != processes
            || self.switches.as_ref().is_some_and(|before| {
                before.len() != switches.len()
                    || switches.iter().any(|(tid, count)| {
                        before.get(tid) != Some(count) && !(self.retrying.contains(tid) && before.contains_key(tid))
                    })
            });
        if has_moved || self.since.is_none() {
            self.since = Some(now);
        }
        (self.processes, self.switches) = (processes, Some(switches));
    }

    /// A sample is over. `retrying` are the threads that it saw retry one and the same wait.
    pub(super) fn looked(&mut self, now: Instant, retrying: Option<BTreeSet<i32>>) {
        self.switches = None;
        self.next = Some(now + AFTER_A_LOOK);
        self.retrying = retrying.unwrap_or_default();
    }

    /// For how long nothing has shown a sign.
    pub(super) fn still_for(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Something else begins.
    pub(super) fn begin_anew(&mut self) {
        *self = Progress::default();
    }
}

fn counters(pid: i32) -> Option<Counters> {
    let stat = fs::File::open(format!("/proc/{pid}/stat")).map(Stat::from_read).ok()?.ok()?;
    let bytes = Process::new(pid)
        .and_then(|process| process.io())
        .map_or(0, |io| [io.rchar, io.wchar, io.syscr, io.syscw].into_iter().fold(0, u64::wrapping_add));
    Some(Counters { started: stat.starttime, faults: stat.minflt.wrapping_add(stat.majflt), bytes })
}

fn voluntary_switches(pid: i32) -> Switches {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.filter_map(|task| Some((task.tid, task.status().ok()?.voluntary_ctxt_switches?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sign_counts_and_a_look_does_not() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let one = |bytes: u64, faults: u64| BTreeMap::from([(1, Counters { started: 5, faults, bytes })]);
        let slept = |main: u64, other: u64| Switches::from([(1, main), (2, other)]);
        let mut progress = Progress::default();
        progress.compare(at(0), one(10, 3), slept(7, 7));
        progress.compare(at(5), one(10, 3), slept(7, 7));
        assert_eq!(progress.still_for(at(6)), Duration::from_secs(6));
        for (now, bytes, faults, switches) in
            [(7, 11, 3, slept(7, 7)), (8, 11, 4, slept(7, 7)), (9, 11, 4, slept(7, 8)), (10, 11, 4, Switches::new())]
        {
            progress.compare(at(now), one(bytes, faults), switches);
            assert_eq!(progress.still_for(at(now)), Duration::ZERO, "{now}");
        }
        progress.compare(at(11), one(11, 4), slept(9, 9));
        // The sample made the threads switch, and saw one retry its wait.
        progress.looked(at(12), Some(BTreeSet::from([2])));
        progress.compare(at(13), one(11, 4), slept(12, 30));
        progress.compare(at(14), one(11, 4), slept(12, 500));
        assert_eq!(progress.still_for(at(14)), Duration::from_secs(3));
        progress.compare(at(15), one(11, 4), slept(13, 500));
        assert_eq!(progress.still_for(at(15)), Duration::ZERO);
    }

    #[test]
    fn who_sleeps_shows_nothing_and_who_prints_does() {
        let script =
            ["exec sleep 20", "while :; do read -t 0.05 line < /dev/zero; printf x; sleep 0.05; done > /dev/null"];
        for (script, is_still) in script.into_iter().zip([true, false]) {
            let mut child = std::process::Command::new("bash").args(["-c", script]).spawn().expect("bash");
            let pid = child.id() as i32;
            std::thread::sleep(Duration::from_millis(500));
            let mut progress = Progress::default();
            progress.sampled(Instant::now(), &[pid], 100);
            std::thread::sleep(Duration::from_millis(1200));
            progress.sampled(Instant::now(), &[pid], 100);
            assert_eq!(progress.still_for(Instant::now()) >= Duration::from_secs(1), is_still, "{script}");
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
    }
}

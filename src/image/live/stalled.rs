//! The handling of a sample whose mapped file stops answering.
//!
//! In: names of mapped files whose file system may fall silent. Out: a call of the caller's function, after a thread of
//! lockscope itself has waited for a page for too long. Only the end of the process ends that thread: nothing here lets
//! it go on. Threads of the target are not checked: none stands still when files are read.

use std::collections::BTreeMap;
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use procfs::process::Process;

/// A page of a file that answered before has come by then.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often own threads are checked.
const TURN: Duration = Duration::from_millis(500);

/// The names of the files, in order.
static FILES: Mutex<Vec<String>> = Mutex::new(Vec::new());

type Told = Box<dyn Fn(&[String]) + Send + Sync>;

static TOLD: OnceLock<Told> = OnceLock::new();

/// Call this with the names of all such files when a thread has waited for too long. The first caller of a process is taken.
pub(crate) fn when_a_file_stalls(told: impl Fn(&[String]) + Send + Sync + 'static) {
    let _ = TOLD.set(Box::new(told));
}

/// This file is mapped although its file system may fall silent.
pub(super) fn is_mapped(path: &str) {
    static WATCH: Once = Once::new();
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if !files.iter().any(|file| file == path) {
        files.push(path.to_owned());
    }
    drop(files);
    if TOLD.get().is_some() {
        // Without this thread, lockscope works as it would without a watch.
        WATCH.call_once(|| drop(std::thread::Builder::new().name("file watch".into()).spawn(watch)));
    }
}

fn watch() {
    let mut waiting = Waiting::default();
    loop {
        std::thread::sleep(TURN);
        if waiting.longest(Instant::now(), &states()) >= PATIENCE {
            let files = FILES.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(told) = TOLD.get() {
                told(&files);
            }
            return;
        }
    }
}

/// The state of each thread of this process: its id, whether it waits for a page, and how often it was switched. A
/// thread that waits for a page is asleep in no system call. Its state depends on the file system (S for FUSE, until a
/// signal comes, D for others).
fn states() -> Vec<(i32, bool, u64)> {
    let Ok(tasks) = Process::myself().and_then(|own| own.tasks()) else { return Vec::new() };
    let state = |task: procfs::process::Task| {
        let status = task.status().ok()?;
        let switches = status.voluntary_ctxt_switches? + status.nonvoluntary_ctxt_switches?;
        let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", task.tid)).ok()?;
        Some((task.tid, call.starts_with("-1 "), switches))
    };
    tasks.flatten().filter_map(state).collect()
}

/// Since when threads wait.
#[derive(Debug, Default)]
struct Waiting {
    /// By thread: its switches, and when it was first seen with them in its wait.
    since: BTreeMap<i32, (u64, Instant)>,
}

impl Waiting {
    /// For how long a thread has been in one wait.
    fn longest(&mut self, now: Instant, states: &[(i32, bool, u64)]) -> Duration {
        let waits = states.iter().filter(|(_, waits, _)| *waits);
        let same = |(tid, _, switches): &(i32, bool, u64)| {
            let before = self.since.get(tid).filter(|(counted, _)| counted == switches);
            (*tid, (*switches, before.map_or(now, |(_, since)| *since)))
        };
        self.since = waits.map(same).collect();
        self.since.values().map(|(_, since)| now.duration_since(*since)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_and_the_same_wait_is_long() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut waiting = Waiting::default();
        assert_eq!(waiting.longest(at(0), &[(7, true, 5)]), Duration::ZERO);
        assert_eq!(waiting.longest(at(4), &[(7, true, 5), (8, true, 1)]), Duration::from_secs(4));
        // Another wait, then none, then that of another thread.
        assert_eq!(waiting.longest(at(6), &[(7, true, 6), (8, true, 1)]), Duration::from_secs(2));
        assert_eq!(waiting.longest(at(9), &[(7, true, 6), (8, false, 1)]), Duration::from_secs(3));
        assert_eq!(waiting.longest(at(10), &[(8, true, 1)]), Duration::ZERO);
    }

    #[test]
    fn own_threads_are_told() {
        let own = nix::unistd::gettid().as_raw();
        // A list of threads may lack some while others end.
        let is_told = |_| states().iter().any(|(tid, waits, _)| *tid == own && !waits);
        assert!((0..10).any(is_told));
    }
}

//! The end of a test that hangs: inside of its process, where that still runs code of its own, else with the process.
//!
//! In: the findings, and the runner's abilities ([`Runner`]). Out: words in the file that it shares, and a signal, upon
//! which its handler raises in the main thread. Whether the test has ended then, the runner says; the monitor waits for
//! that. It samples nothing, and ends no process.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::FromRead;
use procfs::process::{Process, Status, Task};

use super::hang_report::Told;
use crate::run::suite::Runner;

/// A test that has not ended after so long is ended with its process: to clear up may block again.
const UNTIL_PROCESS: Duration = Duration::from_secs(2);
/// The same on a machine so busy that the process gets no processor: what it has waited for one does not count before.
const UNTIL_PROCESS_WHEN_BUSY: Duration = Duration::from_secs(20);
/// A main thread that has slept for so long since the last signal is in the next wait, as for the threads of a pool that a `with`
/// block leaves.
const UNTIL_AGAIN: Duration = Duration::from_millis(400);

/// The longest plan of tests that is read: the names of 100,000.
const LONGEST_PLAN: u64 = 32 << 20;

/// The files that the runner shares.
#[derive(Debug, Default)]
pub(super) struct Shared {
    told: Option<File>,
    plan: Option<File>,
    coverage: Option<File>,
}

impl Shared {
    /// Open them by the numbers under which this process has inherited them.
    pub(super) fn open(runner: &Runner) -> Shared {
        let path = |number: Option<i32>| number.map(|number| format!("/proc/self/fd/{number}"));
        let write = |number| path(number).and_then(|path| OpenOptions::new().write(true).open(path).ok());
        Shared {
            told: write(runner.told),
            plan: path(runner.plan).and_then(|path| File::open(path).ok()),
            coverage: write(runner.coverage),
        }
    }

    /// Say what was found in `test`.
    fn tell(&mut self, number: u64, test: Option<&str>, told: &Told) -> Option<()> {
        let words = serde_json::json!({
            "number": number, "test": test, "headline": told.headline, "text": told.text, "is_known": told.is_known
        });
        let file = self.told.as_mut()?;
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(words.to_string().as_bytes())).ok()
    }

    /// Request to save the coverage; returns whether the runner can.
    pub(super) fn ask_for_coverage(&mut self) -> bool {
        self.coverage.as_mut().is_some_and(|pipe| pipe.write_all(b"s").is_ok())
    }

    /// The tests that were to run.
    pub(super) fn plan(&mut self) -> Vec<String> {
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.plan {
            let _ = file.rewind();
            let _ = file.take(LONGEST_PLAN).read_to_end(&mut bytes);
        }
        // The last line may be cut.
        let text = String::from_utf8_lossy(&bytes);
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }
}

/// Signals to a runner that is to end its test.
#[derive(Debug)]
pub(super) struct Interrupting {
    pid: i32,
    signal: Signal,
    /// When it was sent, and how often the main thread had gone to sleep then.
    sent: (Instant, Option<u64>),
    /// When it was sent first, and how long each thread had waited for a processor then.
    began: (Instant, BTreeMap<i32, Duration>),
}

impl Interrupting {
    /// Say what was found and send the signal, where the runner has a handler for it.
    pub(super) fn begin(
        runner: &Runner,
        shared: &mut Shared,
        pid: i32,
        number: u64,
        test: Option<&str>,
        told: &Told,
    ) -> Option<Interrupting> {
        let signal = Signal::try_from(runner.interrupts?).ok()?;
        shared.tell(number, test, told)?;
        let began = (Instant::now(), waited_for_processors(pid));
        let mut interrupting = Interrupting { pid, signal, sent: (Instant::now(), None), began };
        interrupting.send().then_some(interrupting)
    }

    /// Whether the test may take longer to its end.
    pub(super) fn may_go_on(&self) -> bool {
        let (at, before) = &self.began;
        let elapsed = at.elapsed();
        if elapsed < UNTIL_PROCESS {
            return true;
        }
        let since = |(tid, now): (i32, Duration)| now.saturating_sub(before.get(&tid).copied().unwrap_or_default());
        // The GIL's holder may be the thread that waits for a processor.
        let waited = waited_for_processors(self.pid).into_iter().map(since).max().unwrap_or_default();
        elapsed < (UNTIL_PROCESS + waited).min(UNTIL_PROCESS_WHEN_BUSY)
    }

    /// Send it again, where the main thread has not moved since.
    pub(super) fn again(&mut self) {
        let (at, switches) = self.sent;
        match status(self.pid) {
            Some(status) if at.elapsed() >= UNTIL_AGAIN && status.state.starts_with('S') => {
                if status.voluntary_ctxt_switches == switches {
                    self.send();
                } else {
                    self.sent = (Instant::now(), status.voluntary_ctxt_switches);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self) -> bool {
        // Without a handler it would end the process.
        let Some(status) = status(self.pid).filter(|status| catches(status, self.signal)) else { return false };
        let sent = kill(Pid::from_raw(self.pid), self.signal).is_ok();
        self.sent = (Instant::now(), status.voluntary_ctxt_switches);
        sent
    }
}

/// The signal by which the process ends as after failed tests; else SIGTERM.
pub(super) fn ending_signal(runner: &Runner, pid: i32) -> Signal {
    let own = runner.ends.and_then(|number| Signal::try_from(number).ok());
    own.filter(|signal| status(pid).is_some_and(|status| catches(&status, *signal))).unwrap_or(Signal::SIGTERM)
}

fn status(pid: i32) -> Option<Status> {
    File::open(format!("/proc/{pid}/task/{pid}/status")).ok().and_then(|file| Status::from_read(file).ok())
}

/// How long each thread of a process has been ready to run and did not.
fn waited_for_processors(pid: i32) -> BTreeMap<i32, Duration> {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    let waited = |task: Task| Some((task.tid, Duration::from_nanos(task.schedstat().ok()?.run_delay)));
    tasks.into_iter().flatten().flatten().filter_map(waited).collect()
}

fn catches(status: &Status, signal: Signal) -> bool {
    status.sigcgt >> (signal as i32 - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_handler_no_signal_is_sent() {
        let own = status(std::process::id() as i32).expect("a status");
        assert!(!catches(&own, Signal::SIGSTKFLT));
        let runner = Runner { interrupts: Some(Signal::SIGSTKFLT as i32), ends: Some(1), ..Runner::default() };
        let told = Told { headline: String::new(), text: String::new(), is_known: false };
        let pid = std::process::id() as i32;
        assert!(Interrupting::begin(&runner, &mut Shared::default(), pid, 1, None, &told).is_none());
        assert_eq!(ending_signal(&runner, pid), Signal::SIGTERM);
    }

    #[test]
    fn a_plan_is_whole_lines() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"a.py::one\nb.py::two\nc.py::th").expect("written");
        let mut shared = Shared { plan: Some(file), ..Shared::default() };
        assert_eq!(shared.plan(), ["a.py::one", "b.py::two"]);
        assert_eq!(shared.plan().len(), 2);
    }
}

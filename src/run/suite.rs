//! A test runner's reports on its tests, and the name of the test that a report shows.
//!
//! In: the lines of a runner's plugin, or a [`Report`]. Out: the test that runs now with its time limit, the results of those
//! that ended; or a name found in the frames. It reads no pipe and has no clock.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::limits::run::{LONGEST_LINE, MOST_READ_LATER, MOST_RESULTS};
use crate::render::junit::{TestOutcome, TestResult};
use crate::report::{Frame, FrameKind, Report};

/// A line of a runner, as JSON.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    /// The runner has allowed the samples, and waits for the answer.
    Ready(Runner),
    Start {
        test: String,
        timeout: Option<f64>,
    },
    Finish {
        test: String,
        outcome: TestOutcome,
        seconds: f64,
        #[serde(default)]
        text: Option<String>,
        reason: Option<String>,
    },
    /// The message about a hang has ended the test's phase from inside.
    Ended {
        number: u64,
    },
    /// The answer to the request to save what was measured.
    Coverage {
        kept: Option<PathBuf>,
        #[serde(default)]
        why: Option<String>,
    },
    /// A debugger has the word.
    Pause,
    Resume,
    /// The tests are over, and the process is about to wait for its threads.
    Over,
}

/// A runner's means against a hang, and the work to do in its place. Descriptors are numbers of files that it shares.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Runner {
    /// The signal by which it ends the test that runs.
    pub interrupts: Option<i32>,
    /// The signal by which it ends as after failed tests, without running any code of its own.
    pub ends: Option<i32>,
    /// Where it reads what was found.
    pub told: Option<i32>,
    /// The tests that it is to run, a line each.
    pub plan: Option<i32>,
    /// The file for requests to save the measured coverage.
    pub coverage: Option<i32>,
    /// Where it keeps which tests have failed.
    pub last_failed: Option<PathBuf>,
    /// Another program reports a process that was ended.
    pub is_silent: bool,
}

/// A test that runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunningTest {
    /// Its node id.
    pub name: String,
    /// Since when.
    pub since: Instant,
    /// How long it may run.
    pub timeout: Option<Duration>,
}

/// The reports of a runner so far.
#[derive(Debug, Default)]
pub(crate) struct TestLog {
    /// Lines that came during a sample. They belong to the test that ran then.
    later: Vec<u8>,
    rest: Vec<u8>,
    overlong: bool,
    /// The runner waits for the answer to its `ready`, or has it.
    pub runner: Option<Runner>,
    /// The last hang whose test the runner has ended.
    pub ended_inside: u64,
    /// The fate of the measured coverage.
    pub coverage: Option<Result<PathBuf, String>>,
    /// A debugger has the word: nothing is a hang.
    pub paused: bool,
    /// It was so, and what comes now is to be seen soon.
    pub resumed: bool,
    /// The tests are over, and the process waits for what they have left.
    pub over: bool,
    /// The test that runs.
    pub running: Option<RunningTest>,
    /// How many tests have begun: one may run again under its name.
    pub begun: u64,
    /// Those that ended.
    pub ended: Vec<TestResult>,
}

impl TestLog {
    /// Keep bytes that come while a sample is taken, until [`TestLog::catch_up`].
    pub(crate) fn read_later(&mut self, bytes: &[u8]) {
        self.later.extend_from_slice(bytes);
    }

    /// Whether more may be kept so.
    pub(crate) fn takes_more(&self) -> bool {
        self.later.len() < MOST_READ_LATER
    }

    /// Take in what was kept.
    pub(crate) fn catch_up(&mut self, now: Instant) {
        let later = std::mem::take(&mut self.later);
        self.read(&later, now);
    }

    /// Take in bytes as they come.
    pub(crate) fn read(&mut self, bytes: &[u8], now: Instant) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.rest.len() + piece.len() > LONGEST_LINE {
                self.overlong = true;
                self.rest.clear();
            }
            if !self.overlong {
                self.rest.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                // A line of a newer plugin, or half a line, is nobody's harm.
                if !std::mem::take(&mut self.overlong)
                    && let Ok(line) = serde_json::from_slice(&line)
                {
                    self.take(line, now);
                }
            }
        }
    }

    fn take(&mut self, line: Line, now: Instant) {
        match line {
            Line::Ready(runner) => self.runner = Some(runner),
            Line::Ended { number } => {
                self.ended_inside = number;
                // The test's clean-up has a time limit of its own.
                if let Some(running) = &mut self.running {
                    running.since = now;
                }
            }
            Line::Coverage { kept, why } => {
                self.coverage = Some(kept.ok_or_else(|| why.unwrap_or_else(|| "there is none".into())));
            }
            Line::Pause => self.paused = true,
            Line::Over => self.over = true,
            Line::Resume => {
                (self.paused, self.resumed) = (false, true);
                // The time in the debugger is not the test's.
                if let Some(running) = &mut self.running {
                    running.since = now;
                }
            }
            Line::Start { test, timeout } => {
                self.begun += 1;
                let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                self.running = Some(RunningTest { name: test, since: now, timeout: timeout.filter(|t| !t.is_zero()) });
            }
            Line::Finish { test, outcome, seconds, text, reason } => {
                self.running = None;
                if self.ended.len() < MOST_RESULTS {
                    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                    let text = text.unwrap_or_default();
                    self.ended.push(TestResult { name: test, outcome, time, text, reason });
                }
            }
        }
    }

    /// When the running test's time is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let running = self.running.as_ref().filter(|_| !self.paused)?;
        running.since.checked_add(running.timeout?)
    }
}

/// The test that a report shows at work: the function that pytest or unittest has called, as `file:line function`.
pub(crate) fn shown_in(report: &Report) -> Option<String> {
    let threads = report.processes.iter().flat_map(|process| &process.threads);
    threads.into_iter().find_map(|thread| {
        let python: Vec<&Frame> = thread.frames.iter().filter(|frame| frame.kind == FrameKind::Python).collect();
        // A fixture, or a test that unittest runs for pytest, lies further in than pytest's own call.
        python.windows(2).find(|pair| calls_tests(pair[1]) && !calls_tests(pair[0])).and_then(|pair| named(pair[0]))
    })
}

fn calls_tests(frame: &Frame) -> bool {
    /// File and function of the runners, from their sources: pytest 6 to 9, CPython 3.7 to 3.15. Whatever unittest's file
    /// calls outside of itself is a test, or what surrounds one.
    const CALLERS: [(&str, &str); 3] = [
        ("_pytest/python.py", "pytest_pyfunc_call"),
        ("_pytest/fixtures.py", "call_fixture_func"),
        ("unittest/case.py", ""),
    ];
    let (Some(file), Some(function)) = (frame.file.as_deref(), frame.function.as_deref()) else { return false };
    frame.belongs_to.is_some() && CALLERS.iter().any(|(path, name)| file.ends_with(path) && function.ends_with(name))
}

fn named(frame: &Frame) -> Option<String> {
    let file = frame.file.as_deref()?;
    let name = file.rsplit('/').next().unwrap_or(file);
    Some(format!("{name}::{}", frame.function.as_deref()?.replace('.', "::")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces_and_bad_ones_are_passed_over() {
        let mut log = TestLog::default();
        let start = Instant::now();
        log.read(b"{\"event\":\"ready\"}\n{\"event\":\"sta", start);
        assert!(log.runner == Some(Runner::default()) && log.running.is_none());
        log.read_later(b"rt\",\"te");
        assert!(log.takes_more() && log.running.is_none());
        log.catch_up(start);
        log.read(b"st\":\"a.py::t\",\"timeout\":2.5}\nnonsense\n{\"event\":\"new\"}\n", start);
        assert_eq!(log.deadline(), Some(start + Duration::from_millis(2500)));
        log.read(&vec![b'x'; 3 * LONGEST_LINE], start);
        log.read(b"\n{\"event\":\"pause\"}\n", start);
        assert_eq!(log.deadline(), None);
        log.read(b"{\"event\":\"resume\"}\n", start + Duration::from_secs(9));
        assert_eq!(log.deadline(), Some(start + Duration::from_millis(11_500)));
        log.read(
            b"{\"event\":\"finish\",\"test\":\"a.py::t\",\"outcome\":\"failed\",\"seconds\":1e99,\"text\":\"E\"}\n",
            start,
        );
        assert!(log.running.is_none() && log.deadline().is_none());
        assert_eq!((log.ended.len(), log.ended[0].outcome), (1, TestOutcome::Failed));
        log.read(b"{\"event\":\"ready\",\"interrupts\":16,\"told\":7,\"newer\":1}\n", start);
        assert_eq!(log.runner, Some(Runner { interrupts: Some(16), told: Some(7), ..Runner::default() }));
        log.read(b"{\"event\":\"ended\",\"number\":3}\n{\"event\":\"coverage\",\"kept\":null}\n", start);
        assert_eq!((log.ended_inside, log.coverage), (3, Some(Err("there is none".into()))));
        let mut log = TestLog::default();
        for timeout in ["null", "0", "-1", "1e400"] {
            log.read(format!("{{\"event\":\"start\",\"test\":\"t\",\"timeout\":{timeout}}}\n").as_bytes(), start);
            assert_eq!(log.deadline(), None, "{timeout}");
        }
    }

    fn shown(frames: &[(&str, &str)]) -> Option<String> {
        let belongs_to = |file: &str| (!file.starts_with("/t/")).then_some("another package");
        let frames: Vec<serde_json::Value> = frames
            .iter()
            .map(|(file, function)| {
                serde_json::json!({"kind": "python", "function": function, "module": null, "file": file, "line": 1,
                "pc": null, "trust": null, "belongs_to": belongs_to(file)})
            })
            .collect();
        let report = serde_json::json!({"schema": "", "version": "", "lockscope": "", "source": {"kind": "live", "path": null},
            "verdict": "blocked", "summary": "", "resources": [], "waits": [], "holds": [], "cycles": [], "findings": [],
            "gaps": [], "capture": {"threads": 1, "pause_us": 0, "total_us": 0, "looks": 1},
            "processes": [{"id": "p0", "pid": 1, "exe": null, "cmdline": [], "parent": null, "python": null, "cuda": null,
                "threads": [{"tid": 1, "ns_tid": 1, "name": "", "os_name": "", "state": "sleeping", "frames": frames}]}]});
        shown_in(&serde_json::from_value(report).expect("a report"))
    }

    #[test]
    fn the_test_is_what_the_runner_called() {
        let pytest = ("/v/_pytest/python.py", "pytest_pyfunc_call");
        assert_eq!(
            shown(&[
                ("/t/lib.py", "take"),
                ("/t/test_a.py", "TestB.test_c"),
                pytest,
                ("/v/pluggy/_callers.py", "_multicall")
            ]),
            Some("test_a.py::TestB::test_c".into())
        );
        let case = ("/usr/lib/python3.11/unittest/case.py", "TestCase.run");
        let inner = ("/usr/lib/python3.11/unittest/case.py", "TestCase._callTestMethod");
        assert_eq!(
            shown(&[("/t/lib.py", "take"), ("/t/test_u.py", "test_d"), inner, case]),
            Some("test_u.py::test_d".into())
        );
        assert_eq!(shown(&[("/t/main.py", "run"), ("/t/main.py", "<module>")]), None);
        // A file of the program's own that is called as a runner's is.
        assert_eq!(shown(&[("/t/lib.py", "take"), ("/t/unittest/case.py", "run")]), None);
    }
}

//! `lockscope monitor`: watches a process that runs tests, which tells it what it runs. For plugins of test runners.
//!
//! In: lines on standard input, as [`crate::run::suite`] reads them. Out: two lines of JSON on standard output, then reports;
//! a test that hangs or runs out of time ends with its process. It stands outside of the process's family: a test that waits
//! for its children, or counts them, sees none more. Looks are another process's, so that one that hangs holds up no time limit.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::hang_report::{HangReporter, Watched};
use super::{CliError, Color, MonitorArguments, OnHang, output};
use crate::image::live;
use crate::render;
use crate::render::junit::TestOutcome;
use crate::run::children::{GRACE, end_tree};
use crate::run::lookers::{Lookers, Supervisor};
use crate::run::own_names::{MONITOR, take_name};
use crate::run::sample::start_time;
use crate::run::suite::TestLog;
use crate::run::{Event, LastLook, Limits, LookError, Reason, Watch};

/// What hangs while no test runs: the collection, or the end of the run.
const OUTSIDE: &str = "the test run outside of its tests";
/// Lines are read together: each time the pipe is looked at costs the tests a little.
const BETWEEN_READS: Duration = Duration::from_millis(50);

pub(super) fn run(arguments: &MonitorArguments) -> Result<ExitCode, CliError> {
    let reporter = HangReporter::prepare(&arguments.reports, arguments.of, Color::Never)?;
    let failed = |what: &str, error: io::Error| CliError::new(format!("cannot {what}: {error}"));
    nix::unistd::daemon(true, true).map_err(|errno| failed("leave the family", errno.into()))?;
    // The tree of a `lockscope run` knows it by this name.
    take_name(MONITOR);
    let answer = |line: serde_json::Value| {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| failed("answer", error))
    };
    answer(serde_json::json!({"pid": std::process::id()}))?;
    let Some(started) = start_time(arguments.of) else { return Ok(ExitCode::SUCCESS) };
    let lookers = Lookers::default();
    let (log, told) = (TestLog::default(), None);
    let mut monitor = Monitor { arguments, reporter, log, told, lookers, is_closed: false };
    let mut answered = false;
    let mut watch = Watch::new(arguments.of, true, Limits::default());
    let mut due = Instant::now();
    loop {
        if !monitor.read_until(monitor.or_deadline(due)) || start_time(arguments.of) != Some(started) {
            return Ok(ExitCode::SUCCESS);
        }
        if monitor.log.ready && !answered {
            answered = true;
            let answered = match live::may_attach(arguments.of) {
                Ok(()) => answer(serde_json::json!({"may_look": true})),
                Err(error) => answer(serde_json::json!({"may_look": false, "why": error.to_string()})),
            };
            answered?;
            // Whoever reads the answers comes to their end.
            let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
            let _ = nowhere.map(nix::unistd::dup2_stdout);
        }
        let left = monitor.or_deadline(due).saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(BETWEEN_READS.min(left));
            continue;
        }
        if let Some(ended) = monitor.look_if_due(&mut watch) {
            return Ok(ended);
        }
        due = Instant::now() + watch.rest();
    }
}

struct Monitor<'a> {
    arguments: &'a MonitorArguments,
    reporter: HangReporter,
    log: TestLog,
    /// The test of which was told already.
    told: Option<String>,
    lookers: Lookers,
    /// The runner says no more.
    is_closed: bool,
}

impl Monitor<'_> {
    /// Read what comes until a time, or once; false at the end of the pipe.
    fn read_until(&mut self, due: Instant) -> bool {
        self.log.catch_up(Instant::now());
        if self.is_closed {
            return false;
        }
        let stdin = io::stdin();
        let wait = due.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut polled, timeout), Ok(count) if count > 0) {
            return true;
        }
        let bytes = self.read();
        self.log.read(&bytes, Instant::now());
        !self.is_closed
    }

    /// What is there to be read, once.
    fn read(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let length = match nix::unistd::read(io::stdin().as_fd(), &mut bytes) {
            Ok(length) => length,
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => return Vec::new(),
            Err(_) => 0,
        };
        self.is_closed = length == 0;
        bytes.truncate(length);
        bytes
    }

    /// A time, or when the running test's is over.
    fn or_deadline(&self, due: Instant) -> Instant {
        self.log.deadline().filter(|_| !self.was_told()).map_or(due, |deadline| deadline.min(due))
    }

    /// Whether the test that runs was told of, and goes on by the user's wish.
    fn was_told(&self) -> bool {
        self.told.as_deref() == Some(self.name())
    }

    fn name(&self) -> &str {
        self.log.running.as_ref().map_or(OUTSIDE, |running| &running.name)
    }

    /// Look, if it is time; the exit status at the end.
    fn look_if_due(&mut self, watch: &mut Watch) -> Option<ExitCode> {
        if self.log.paused || self.was_told() {
            return None;
        }
        if self.log.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            let (look, _) = self.look(&watch.last_from_outside());
            return self.report_hang(Reason::TestTimeout, &look);
        }
        match self.step(watch) {
            Event::Nothing => None,
            Event::Beside(report) => {
                self.reporter.report_partial_hang(&self.watched(), &report);
                None
            }
            Event::Over(reason, look) => self.report_hang(reason, &look),
        }
    }

    fn watched(&self) -> Watched {
        let running = self.log.running.as_ref();
        Watched {
            name: self.name().to_owned(),
            is_test: true,
            since: running.map_or_else(Instant::now, |running| running.since),
            ended: self.log.ended.clone(),
        }
    }

    fn report_hang(&mut self, reason: Reason, look: &LastLook) -> Option<ExitCode> {
        // The line that the runner has begun.
        output::say("");
        self.reporter.report_hang(&self.watched(), reason, look);
        if self.arguments.on_hang == OnHang::Report {
            self.told = Some(self.name().to_owned());
            return None;
        }
        let count = |outcome| self.log.ended.iter().filter(|result| result.outcome == outcome).count();
        output::say(&format!(
            "lockscope: process {} is ended; before this test {} passed, {} failed, {} were skipped",
            self.arguments.of,
            count(TestOutcome::Passed),
            count(TestOutcome::Failed) + count(TestOutcome::Error),
            count(TestOutcome::Skipped),
        ));
        end_tree(self.arguments.of, true, Signal::SIGTERM, GRACE, || ());
        Some(ExitCode::from(1))
    }
}

impl Supervisor for Monitor<'_> {
    fn lookers(&mut self) -> &mut Lookers {
        &mut self.lookers
    }

    /// The runner must not wait for its pipe while a look is taken.
    fn tend(&mut self, within: Duration) {
        let stdin = io::stdin();
        if self.is_closed || !self.log.takes_more() {
            return self.lookers.wait(&[], within);
        }
        self.lookers.wait(&[stdin.as_fd()], within);
        let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if matches!(poll(&mut polled, PollTimeout::ZERO), Ok(count) if count > 0) {
            let bytes = self.read();
            self.log.read_later(&bytes);
        }
    }

    fn useless(&mut self) -> Option<LookError> {
        start_time(self.arguments.of).is_none().then(|| LookError::Told("it has ended".into()))
    }

    fn is_hurried(&self) -> bool {
        self.log.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn tell(&mut self, error: &LookError) {
        output::say(&render::escape(&format!("lockscope: {error}; {} goes on", self.name())));
    }
}

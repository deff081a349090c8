//! `lockscope monitor`: watches a process that runs tests, and reports its tests to it. For plugins of test runners.
//!
//! In: lines on standard input, as [`crate::run::suite`] reads them. Out: two lines of JSON on standard output, then
//! reports. A test that hangs or runs out of time is ended inside of its process ([`super::test_end`]), or with it. In
//! the latter case this module prints the runner's final report ([`super::test_journal`]). It stands outside of the
//! process tree: a test that waits for its children, or counts them, sees none more. Another process takes the samples,
//! so a sample that hangs holds up no time limit.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::hang_report::{HangReporter, Watched};
use super::test_end::{Interrupting, Shared, ending_signal};
use super::test_journal::Journal;
use super::{CliError, Color, MonitorArguments, OnHang, output};
use crate::image::live;
use crate::render;
use crate::render::junit::{TestOutcome, TestResult};
use crate::run::children::{GRACE, end_tree};
use crate::run::gpu_dump::GpuDumps;
use crate::run::own_names::{MONITOR, take_name};
use crate::run::sample::start_time;
use crate::run::samplers::{Samplers, Supervisor};
use crate::run::suite::{Runner, TestLog};
use crate::run::{Event, LastLook, Limits, LookError, Reason, Watch};

/// The name of the watched part while no test runs: the collection, or the end of the run.
const OUTSIDE: &str = "the test run outside of its tests";
/// Lines are read together, because each read of the pipe costs the tests a little.
const BETWEEN_READS: Duration = Duration::from_millis(50);
/// The same while a process waits for the answer.
const BETWEEN_HASTY_READS: Duration = Duration::from_millis(10);
/// The length of a test's captured output that is shown. The end says most.
const LONGEST_CAPTURED: u64 = 16 << 10;
/// How long a thread of the runner may take to save what was measured.
const UNTIL_COVERAGE: Duration = Duration::from_secs(5);

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
    let gpu_cores = gpu_cores(arguments);
    let variables = gpu_cores.as_ref().map(GpuDumps::variables).unwrap_or_default();
    let variables = variables.into_iter().map(|(name, value)| (name, value.to_string_lossy().into_owned()));
    let variables: BTreeMap<&str, String> = variables.collect();
    answer(serde_json::json!({"pid": std::process::id(), "variables": variables}))?;
    let Some(started) = start_time(arguments.of) else { return Ok(ExitCode::SUCCESS) };
    let samplers = Samplers::default();
    let (log, told) = (TestLog::default(), None);
    let (runner, shared, began) = (Runner::default(), Shared::default(), Instant::now());
    let mut monitor = Monitor {
        arguments,
        reporter,
        log,
        told,
        samplers,
        is_closed: false,
        runner,
        shared,
        hangs: 0,
        began,
        gpu_cores,
        asks_gpus: false,
    };
    let mut answered = false;
    let mut watch = Watch::new(arguments.of, true, Limits { stuck_after: arguments.stuck_after, ..Limits::default() });
    let mut due = Instant::now();
    loop {
        if !monitor.read_until(monitor.or_deadline(due)) || start_time(arguments.of) != Some(started) {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(runner) = monitor.log.runner.take().filter(|_| !answered) {
            answered = true;
            monitor.meet(runner);
            let answered = match live::may_attach(arguments.of) {
                Ok(()) => answer(serde_json::json!({"may_look": true})),
                Err(error) => answer(serde_json::json!({"may_look": false, "why": error.to_string()})),
            };
            answered?;
            // Closing the answers lets their reader come to its end.
            let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
            let _ = nowhere.map(nix::unistd::dup2_stdout);
        }
        if std::mem::take(&mut monitor.log.resumed) {
            watch.begin_anew();
        }
        watch.has_test_limit(monitor.log.deadline().is_some());
        if monitor.log.over {
            watch.end_with_what_is_left();
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
    /// The test whose hang was reported already, and its number in order.
    told: Option<(String, u64)>,
    samplers: Samplers,
    /// The runner says no more.
    is_closed: bool,
    runner: Runner,
    shared: Shared,
    /// How many hangs there were.
    hangs: u64,
    began: Instant,
    /// Where drivers write cores of the GPUs.
    gpu_cores: Option<GpuDumps>,
    /// They have been asked to, which ends the process.
    asks_gpus: bool,
}

/// The folder for cores of GPUs, if they are requested and possible.
fn gpu_cores(arguments: &MonitorArguments) -> Option<GpuDumps> {
    // A process that goes on must keep its context.
    if !arguments.gpu_core || arguments.on_hang == OnHang::Report || GpuDumps::is_done_by_another() {
        return None;
    }
    let told = |why| output::say(&format!("lockscope: no core of the GPU will be written: {why}"));
    GpuDumps::prepare().map_err(told).ok()
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

    /// Reads the available bytes, once.
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

    /// Whether a hang of the running test was reported, and the test goes on by the user's wish.
    fn was_told(&self) -> bool {
        self.told.as_ref().is_some_and(|(name, begun)| name == self.name() && *begun == self.log.begun)
    }

    fn name(&self) -> &str {
        self.log.running.as_ref().map_or(OUTSIDE, |running| &running.name)
    }

    fn meet(&mut self, runner: Runner) {
        self.shared = Shared::open(&runner);
        if runner.is_silent && self.arguments.on_hang == OnHang::Kill {
            self.reporter.be_silent();
        }
        self.runner = runner;
    }

    /// Sample, if it is time; the exit status at the end.
    fn look_if_due(&mut self, watch: &mut Watch) -> Option<ExitCode> {
        if self.log.paused || self.was_told() {
            return None;
        }
        if self.log.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            let (look, _) = self.look(&watch.last_from_outside());
            return self.report_hang(watch, Reason::TestTimeout, &look);
        }
        match self.step(watch) {
            Event::Nothing => None,
            Event::Beside(report) => {
                self.reporter.report_partial_hang(&self.watched(Vec::new()), &report);
                None
            }
            Event::Patient(report) => {
                let until = if self.log.deadline().is_some() { "; its time limit decides" } else { "" };
                self.reporter.report_early(&self.watched(Vec::new()), until, &report);
                None
            }
            Event::Over(reason, look) => self.report_hang(watch, reason, &look),
        }
    }

    fn watched(&self, not_run: Vec<TestResult>) -> Watched {
        let running = self.log.running.as_ref();
        Watched {
            name: self.name().to_owned(),
            is_test: true,
            since: running.map_or_else(Instant::now, |running| running.since),
            ended: self.log.ended.iter().cloned().chain(not_run).collect(),
        }
    }

    fn report_hang(&mut self, watch: &mut Watch, reason: Reason, look: &LastLook) -> Option<ExitCode> {
        if self.arguments.on_hang == OnHang::Report {
            // The line that the runner has begun.
            output::say("");
            self.reporter.report_hang(&self.watched(Vec::new()), reason, look);
            self.told = Some((self.name().to_owned(), self.log.begun));
            return None;
        }
        self.hangs += 1;
        let is_known = look.as_ref().is_ok_and(|outcome| watch.was_left_behind(&outcome.report));
        let was_left = look.as_ref().is_ok_and(|outcome| watch.is_of_before(&outcome.report));
        let in_test = self.log.running.is_some();
        // The test that hangs: when it has ended, another one may run.
        let test = self.name().to_owned();
        let told = self.reporter.tell_inside(reason, look, is_known, was_left && in_test);
        if self.ends_inside(&told) {
            self.reporter.next();
            if !is_known {
                self.reporter.report_to_ci(&test, look);
            }
            if let Ok(outcome) = look {
                watch.leave_behind(&outcome.report);
            }
            return None;
        }
        if self.is_closed || start_time(self.arguments.of).is_none() {
            return Some(ExitCode::SUCCESS);
        }
        self.end_process(watch, reason, look, &told.headline);
        Some(ExitCode::from(1))
    }

    /// Have the runner end its test; whether it has.
    fn ends_inside(&mut self, told: &super::hang_report::Told) -> bool {
        let test = self.log.running.as_ref().map(|running| running.name.clone());
        let (pid, number) = (self.arguments.of, self.hangs);
        let begun = Interrupting::begin(&self.runner, &mut self.shared, pid, number, test.as_deref(), told);
        let Some(mut interrupting) = begun else { return false };
        while interrupting.may_go_on() {
            if !self.read_until(Instant::now() + BETWEEN_HASTY_READS) || start_time(pid).is_none() {
                return false;
            }
            let runs = self.log.running.as_ref().map(|running| &running.name);
            if self.log.ended_inside == number || runs != test.as_ref() {
                return true;
            }
            interrupting.again();
        }
        false
    }

    /// End the process, and say what the runner would have said.
    fn end_process(&mut self, watch: &mut Watch, reason: Reason, look: &LastLook, headline: &str) {
        let pid = self.arguments.of;
        let (captured, plan) = (captured(pid), self.shared.plan());
        let is_silent = self.runner.is_silent;
        let journal = Journal {
            ended: &self.log.ended,
            hung: self.log.running.as_ref().map(|running| running.name.as_str()),
            headline,
            captured: &captured,
            plan: &plan,
            time: self.began.elapsed(),
        };
        let (text, not_run) = (journal.text(), journal.not_run());
        let not_run = not_run.into_iter().map(|name| TestResult {
            name: name.to_owned(),
            outcome: TestOutcome::Skipped,
            time: Duration::ZERO,
            text: "not run: lockscope had to end pytest".to_owned(),
            reason: None,
        });
        let watched = self.watched(not_run.collect());
        let noted = self.runner.last_failed.as_deref().map(|file| journal.note_failures(file));
        if !is_silent {
            output::say("");
        }
        self.reporter.report_hang(&watched, reason, look);
        if !is_silent && self.runner.plan.is_some() {
            let _ = io::stderr().lock().write_all(text.as_bytes());
            if let Some(Err(error)) = noted {
                output::say(&format!("lockscope: which tests failed could not be noted for --lf: {error}"));
            }
        }
        self.keep_coverage();
        // The driver ends the process when it has written a core. Its parent may then go on, and end this process, so
        // everything is reported before.
        if let Some(with_gpus) = self.look_at_gpus(watch, reason) {
            output::say("lockscope: the same with what ran on the GPUs:");
            self.reporter.report_hang(&watched, reason, &with_gpus);
        }
        end_tree(pid, Some(ending_signal(&self.runner, pid)), Signal::SIGTERM, GRACE, || ());
    }

    /// The last sample with cores of the GPUs, where these are wanted.
    fn look_at_gpus(&mut self, watch: &mut Watch, reason: Reason) -> Option<LastLook> {
        let wanted = watch.last_with_gpus(reason, self.gpu_cores.as_ref()?.folder());
        self.asks_gpus = true;
        let (look, _) = self.look(&wanted);
        Some(look).filter(Result::is_ok)
    }

    /// Saves the measured coverage, if a thread of the runner can still run.
    fn keep_coverage(&mut self) {
        if !self.shared.ask_for_coverage() {
            return;
        }
        let until = Instant::now() + UNTIL_COVERAGE;
        while self.log.coverage.is_none() && Instant::now() < until {
            if !self.read_until(Instant::now() + BETWEEN_HASTY_READS) {
                break;
            }
        }
        let said = match &self.log.coverage {
            Some(Ok(file)) => format!("coverage was saved to {}, and no table is printed", file.display()),
            Some(Err(why)) => format!("the coverage of this process is lost: {why}"),
            None => "the coverage of this process is lost: none of its threads can run Python".to_owned(),
        };
        output::say(&render::escape(&format!("lockscope: {said}")));
    }
}

/// The last output of the test, if the runner captures it into a file that has no name.
fn captured(pid: i32) -> String {
    let read = |descriptor: i32| -> io::Result<String> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let metadata = std::fs::metadata(&path)?;
        // A pipe would have to be opened, and what has a name is no secret of the runner's.
        if !metadata.is_file() || !std::fs::read_link(&path)?.to_string_lossy().ends_with(" (deleted)") {
            return Ok(String::new());
        }
        let (mut file, length) = (File::open(&path)?, metadata.len());
        file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_CAPTURED)))?;
        let mut bytes = Vec::new();
        file.take(LONGEST_CAPTURED).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    [1, 2].into_iter().filter_map(|descriptor| read(descriptor).ok()).collect()
}

impl Supervisor for Monitor<'_> {
    fn samplers(&mut self) -> &mut Samplers {
        &mut self.samplers
    }

    /// The runner must not wait for its pipe while a sample is taken.
    fn tend(&mut self, within: Duration) {
        let stdin = io::stdin();
        if self.is_closed || !self.log.takes_more() {
            return self.samplers.wait(&[], within);
        }
        self.samplers.wait(&[stdin.as_fd()], within);
        let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if matches!(poll(&mut polled, PollTimeout::ZERO), Ok(count) if count > 0) {
            let bytes = self.read();
            self.log.read_later(&bytes);
        }
    }

    fn useless(&mut self) -> Option<LookError> {
        let has_ended = !self.asks_gpus && start_time(self.arguments.of).is_none();
        has_ended.then(|| LookError::Told("it has ended".into()))
    }

    fn is_hurried(&self) -> bool {
        self.log.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn tell(&mut self, error: &LookError) {
        output::say(&render::escape(&format!("lockscope: {error}; {} goes on", self.name())));
    }
}

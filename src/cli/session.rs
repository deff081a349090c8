//! One run of the command of `lockscope run`, from its start to its end or its hang.
//!
//! In: the arguments of `run`, where reports go, a descriptor for signals, and targets for the recorder. Out: the exit status, or
//! 124 after a hang, which [`super::hang_report`] reports; and where the recorder wrote. Signals to lockscope go on to the command.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use super::hang_report::{HangReporter, Watched};
use super::rank::Rank;
use super::{CliError, OnHang, Record, RunArguments, output, record};
use crate::forecast::Suppressions;
use crate::image::live;
use crate::provoke::{NativePlace, Prediction, reproducer};
use crate::recorder::library;
use crate::recorder::targets::{self, TargetFile};
use crate::render;
use crate::report::{Cycle, Report};
use crate::run::children;
use crate::run::gpu_dump::GpuDumps;
use crate::run::process_tree::Family;
use crate::run::samplers::{Samplers, Supervisor};
use crate::run::{Event, LookError, Next, Purpose, Reason, Wanted, Watch};

/// timeout(1): it was ended.
const ENDED: u8 = 124;
/// `--record=strict`: the command ended well, and could deadlock.
const COULD_DEADLOCK: u8 = 1;

/// Longest time that a rank which hangs is kept for the looks at the others; and one whose time is over.
const FOR_RANKS: Duration = Duration::from_secs(30);
const OUT_OF_TIME: Duration = Duration::from_secs(10);
/// Between two samples of threads that a prediction has brought together.
const BETWEEN_EXPECTED: Duration = Duration::from_secs(2);
/// Between two looks for answers.
const BETWEEN_ANSWERS: Duration = Duration::from_millis(200);

/// Signals that are passed on.
pub(super) const PASSED_ON: [Signal; 9] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// The common part of all runs of a command.
pub(super) struct Session<'a> {
    pub(super) arguments: &'a RunArguments,
    pub(super) reporter: HangReporter,
    pub(super) signals: SignalFd,
    /// Signals that were blocked before.
    pub(super) before: SigSet,
}

/// Targets that a command is run with.
pub(super) struct Provoked<'a> {
    /// The file for the recorder.
    pub(super) file: &'a TargetFile,
    /// The origin of the predictions, for people.
    pub(super) source: &'a str,
    /// Those of the file.
    pub(super) predictions: Vec<&'a Prediction>,
}

/// How a run ended.
pub(super) struct Ended {
    /// The status to end with.
    pub(super) status: u8,
    /// It hung, was ended from outside, or could not be run: it is not run again.
    is_over: bool,
    recording: Option<Recording>,
}

impl Ended {
    fn at_once(status: u8) -> Ended {
        Ended { status, is_over: true, recording: None }
    }

    /// Whether there is no sense in another run.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Where the recorder wrote.
    pub(super) fn folder(&self) -> Option<&Path> {
        Some(&self.recording.as_ref()?.folder)
    }
}

impl Session<'_> {
    /// The user's file of known places.
    pub(super) fn suppressions(&self) -> Option<&Path> {
        self.arguments.suppressions.as_deref()
    }

    /// For how long to run it again.
    pub(super) fn provoke_for(&self) -> Duration {
        self.arguments.provoke_for
    }

    /// Run the command.
    pub(super) fn run_once(&self, provoked: Option<&Provoked<'_>>) -> Result<Ended, CliError> {
        let Session { arguments, reporter, signals, before } = self;
        let gpu_cores = gpu_cores(arguments);
        let mut variables = gpu_cores.as_ref().map(GpuDumps::variables).unwrap_or_default();
        let recording = Recording::prepare(arguments, provoked.is_none(), &mut variables)?;
        variables.extend(provoked.map(|provoked| (targets::VARIABLE, provoked.file.variable())));
        let family = match Family::start(&arguments.command, reporter.directory(), &variables, *before) {
            Ok(family) => family,
            Err(error)
                if matches!(
                    error.raw_os_error().map(Errno::from_raw),
                    Some(Errno::EMFILE | Errno::ENFILE | Errno::EAGAIN)
                ) =>
            {
                let _ = before.thread_set_mask();
                return Ok(Ended::at_once(unwatched(arguments)));
            }
            Err(error) => return Ok(Ended::at_once(not_started(arguments, &error))),
        };
        if let Err(error) = live::may_attach(family.pid()) {
            output::say(&format!(
                "lockscope: a hang can be ended by --timeout or --hang-after only, without a report: {error}"
            ));
        }
        let folder = gpu_cores.as_ref().map(|cores| cores.folder().to_path_buf());
        let watch = Watch::new(std::process::id() as i32, false, arguments.limits.limits()).with_gpu_cores(folder);
        let watched = Watched::command(named(arguments));
        let rank = Rank::here(reporter.directory());
        let run = Run {
            arguments,
            rank,
            reporter,
            watched,
            family,
            signals,
            watch,
            held: None,
            told: false,
            is_over: false,
            kill_at: None,
            gpu_cores,
            recording,
            provoked,
            expected: Expected::default(),
        };
        Ok(run.until_it_ends())
    }
}

/// A command that runs, with all that watches over it.
struct Run<'a> {
    arguments: &'a RunArguments,
    /// The command is a rank of a job, whose digests go where the reports go.
    rank: Option<Rank>,
    reporter: &'a HangReporter,
    watched: Watched,
    family: Family,
    signals: &'a SignalFd,
    watch: Watch,
    /// A SIGTERM that goes on to the command after the last look, since when, and whether the terminal sent it.
    held: Option<(Instant, bool)>,
    /// The hang is reported, and the user wants it to go on.
    told: bool,
    /// It hung, or somebody ended it from outside.
    is_over: bool,
    /// When the command is killed.
    kill_at: Option<Instant>,
    /// Where drivers write cores of GPUs.
    gpu_cores: Option<GpuDumps>,
    recording: Option<Recording>,
    provoked: Option<&'a Provoked<'a>>,
    expected: Expected,
}

/// A deadlock that was predicted, and whose threads have met.
#[derive(Default)]
struct Expected {
    /// How often.
    meetings: u64,
    /// When they met last, or a sample was taken because of that; none where that showed nothing.
    since: Option<Instant>,
    /// The threads of the cycles of that sample.
    cycles: BTreeSet<Vec<i32>>,
}

/// Where the recorder writes.
struct Recording {
    folder: PathBuf,
    suppressions: Suppressions,
    /// Nobody asked for the files.
    _temporary: Option<tempfile::TempDir>,
}

impl Recording {
    /// Have the command recorded, where that is wanted; in the folder that is kept, if there is one and `is_kept`.
    fn prepare(
        arguments: &RunArguments,
        is_kept: bool,
        variables: &mut Vec<(&'static str, OsString)>,
    ) -> Result<Option<Recording>, CliError> {
        if arguments.record.is_none() && arguments.provoke.is_none() {
            return Ok(None);
        }
        if let Some(program) = arguments.command.first() {
            library::may_record(program).map_err(|error| CliError::new(error.to_string()))?;
            if let Some(why) = library::why_not_seen(program) {
                let name = program.display();
                output::say(&render::escape(&format!("lockscope: nothing of `{name}` will be recorded: {why}")));
            }
        }
        let suppressions = record::suppressions(arguments.suppressions.as_deref())?;
        variables.push((library::PRELOAD, library::preload().map_err(|error| CliError::new(error.to_string()))?));
        let failed = |error| CliError::new(format!("cannot make a folder for the recorder: {error}"));
        let (folder, temporary) = match arguments.reports.folder().filter(|_| is_kept) {
            Some(directory) => (directory.join("orders"), None),
            None => {
                let folder = tempfile::Builder::new().prefix("lockscope-orders-").tempdir().map_err(failed)?;
                (folder.path().to_path_buf(), Some(folder))
            }
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        variables.push((library::FOLDER, folder.clone().into_os_string()));
        variables.extend(arguments.provoke.as_ref().map(|_| (library::ENDS, OsString::from("1"))));
        variables.extend(library::filters().map(|count| (library::FILTERS, count)));
        Ok(Some(Recording { folder, suppressions, _temporary: temporary }))
    }
}

/// The place for cores of GPUs, if the user wants them and the driver can write them.
fn gpu_cores(arguments: &RunArguments) -> Option<GpuDumps> {
    // A command that goes on must keep its context.
    if !arguments.gpu_core || arguments.on_hang == OnHang::Report {
        return None;
    }
    GpuDumps::prepare()
        .map_err(|why| output::say(&format!("lockscope: no core of the GPU will be written: {why}")))
        .ok()
}

impl Run<'_> {
    /// The status to end with.
    fn until_it_ends(mut self) -> Ended {
        let status = self.status();
        Ended { status, is_over: self.is_over, recording: self.recording }
    }

    fn status(&mut self) -> u8 {
        loop {
            if let Some(status) = self.reap() {
                return self.ended_by_itself(status);
            }
            if let Some(status) = self.kill_if_due() {
                return status;
            }
            self.answer_others();
            let ended = match (self.held.is_some(), self.told) {
                // The test runner gives up: this is the last time for a sample.
                (true, _) => {
                    self.last_look_from_outside();
                    None
                }
                // It goes on until its time is over.
                (false, true) if !self.watch.is_out_of_time() => None,
                (false, _) => {
                    let wanted = self.provoked_hang().or_else(|| self.watch.wanted());
                    wanted.and_then(|wanted| self.follow(wanted))
                }
            };
            if let Some(status) = ended {
                return status;
            }
            let rest = self.rank.as_ref().map_or(Duration::MAX, Rank::rest);
            self.tend(self.watch.rest().min(rest));
        }
    }

    /// Report failed kernels and orders of locks once the command has ended; the status to end with.
    fn ended_by_itself(&self, status: u8) -> u8 {
        guarded(|| self.tell_of_kernel_errors());
        if self.provoked.is_some() { status } else { self.tell_of_orders(status) }
    }

    /// The last sample, if two samples since the threads of a prediction met agree on a cycle. Threads that spin use a processor, so
    /// that no usual sample proves a hang of theirs.
    fn provoked_hang(&mut self) -> Option<Wanted> {
        let meetings = self.provoked?.file.meetings();
        if meetings > self.expected.meetings {
            self.watch.expects_a_hang();
            self.expected = Expected { meetings, since: Some(Instant::now()), cycles: BTreeSet::new() };
        }
        self.expected.since.filter(|since| since.elapsed() >= BETWEEN_EXPECTED)?;
        let wanted = self.watch.for_others(false);
        let (look, _) = self.look(&wanted);
        let cycles = look.map(|outcome| cycles_of(&outcome.report)).unwrap_or_default();
        let is_proven = !self.expected.cycles.is_disjoint(&cycles);
        self.expected.since = Some(Instant::now()).filter(|_| !cycles.is_empty());
        self.expected.cycles = cycles;
        let purpose = Purpose::Last(Reason::Hang);
        is_proven.then_some(Wanted { purpose, ..wanted })
    }

    /// Look at the rank for whoever asks, if somebody does.
    fn answer_others(&mut self) {
        let Some(request) = self.rank.as_mut().and_then(Rank::request) else { return };
        let asks = self.rank.as_ref().is_some_and(|rank| rank.asks_nccl(&request));
        let mut wanted = self.watch.for_others(asks);
        wanted.pids = Rank::ranks_among(wanted.pids);
        let (look, _) = self.look(&wanted);
        let Some(rank) = &mut self.rank else { return };
        if let Err(error) = rank.answer(&request, look.as_ref().ok().map(|outcome| &outcome.report)) {
            output::say(&error.to_string());
        }
    }

    /// Have all ranks of the job looked at twice before anything of it is ended.
    fn gather_ranks(&mut self, longest: Duration) {
        let begin = Instant::now();
        let Some(Ok(())) = self.rank.as_mut().map(Rank::ask) else { return };
        loop {
            self.answer_others();
            let is_over = self.rank.as_mut().is_none_or(|rank| rank.has_all_answers().unwrap_or(true));
            // A command that is ended from outside waits for nothing.
            if is_over || begin.elapsed() >= longest || self.held.is_some() || self.is_over() {
                break;
            }
            if self.useless().is_some() {
                break;
            }
            self.tend(BETWEEN_ANSWERS);
        }
        if let Some(rank) = &mut self.rank {
            let count = rank.close();
            let ranks = if count == 1 { "1 rank was".to_owned() } else { format!("{count} ranks were") };
            let folder = rank.folder().display().to_string();
            let line = format!("lockscope: {ranks} looked at twice: `lockscope merge {folder}` tells of the job");
            output::say(&render::escape(&line));
        }
    }

    /// Whether cores of GPUs were requested from drivers, which ends the command.
    fn asked_for_gpu_cores(&self) -> bool {
        self.gpu_cores.as_ref().is_some_and(GpuDumps::were_asked_for)
    }

    /// Say which kernels failed, where drivers wrote cores unasked and ended the command for that.
    fn tell_of_kernel_errors(&self) {
        let errors = self.gpu_cores.as_ref().map(GpuDumps::errors).unwrap_or_default();
        for error in errors {
            output::say(&render::escape(&format!("lockscope: {error}")));
        }
    }

    /// Say which orders of locks could deadlock in a command that has ended; the status to end with.
    fn tell_of_orders(&self, status: u8) -> u8 {
        let Some(recording) = &self.recording else { return status };
        let mut is_bad = false;
        guarded(|| {
            if let Some(report) = record::of_folder(&recording.folder, &recording.suppressions) {
                is_bad = record::is_bad(&report);
                self.reporter.report_orders(&self.watched, &report);
            }
        });
        let is_strict = self.arguments.record == Some(Record::Strict);
        if is_bad && is_strict && status == 0 { COULD_DEADLOCK } else { status }
    }

    /// Look, and do what follows; the status to end with.
    fn follow(&mut self, mut wanted: Wanted) -> Option<u8> {
        loop {
            let (look, cost) = self.look(&wanted);
            // It may have ended by itself during the sample, unless the driver has ended it for its core.
            if !self.asked_for_gpu_cores()
                && let Some(status) = self.reap()
            {
                return Some(self.ended_by_itself(status));
            }
            if let (Purpose::Routine, Err(error)) = (wanted.purpose, &look)
                && self.family.samplers().is_news(error)
            {
                self.tell(error);
            }
            let event = match self.watch.looked(wanted, cost, look) {
                Next::Look(next) => {
                    wanted = next;
                    continue;
                }
                Next::Event(event) => event,
            };
            match event {
                Event::Nothing => {}
                Event::Beside(mut report) => {
                    self.say_if_made_to_happen(&mut report);
                    guarded(|| self.reporter.report_partial_hang(&self.watched, &report));
                }
                Event::Patient(mut report) => {
                    self.say_if_made_to_happen(&mut report);
                    let until = format!(
                        "; it goes on until nothing has changed for {} s (--stuck-after)",
                        self.arguments.limits.stuck_after.as_secs_f64()
                    );
                    guarded(|| self.reporter.report_early(&self.watched, &until, &report));
                }
                Event::Over(reason, mut look) => {
                    self.is_over = true;
                    if let Ok(outcome) = &mut look {
                        self.say_if_made_to_happen(&mut outcome.report);
                    }
                    self.gather_ranks(if reason == Reason::Timeout { OUT_OF_TIME } else { FOR_RANKS });
                    guarded(|| self.reporter.report_hang(&self.watched, reason, &look));
                    if self.arguments.on_hang == OnHang::Report && reason != Reason::Timeout {
                        self.told = true;
                        return None;
                    }
                    // Its calls of CUDA fail from now on: it must not go on with that.
                    if self.asked_for_gpu_cores() {
                        self.family.end(Signal::SIGKILL, Duration::ZERO);
                        return Some(ENDED);
                    }
                    self.family.end(self.arguments.signal, self.arguments.kill_after.unwrap_or(children::GRACE));
                    return Some(ENDED);
                }
            }
            return None;
        }
    }

    /// Say in the report that threads were held back, and whether what they came to was predicted.
    fn say_if_made_to_happen(&self, report: &mut Report) {
        let Some(provoked) = self.provoked.filter(|_| report.verdict.exit_code() != 0) else { return };
        let (counts, source) = (provoked.file.counts(), provoked.source);
        if counts.iter().all(|counts| counts.tries == 0) {
            return;
        }
        // A thread whose time is over may still come to wait for its partner.
        let has_met = counts.iter().any(|counts| counts.met > 0);
        let is_predicted = || {
            let cycles = reproducer::predictions(report, &|_, _| Some(NativePlace::default()));
            cycles.iter().any(|cycle| provoked.predictions.iter().any(|prediction| prediction.waits_as(cycle)))
        };
        report.made_to_happen = Some(match has_met || is_predicted() {
            true => format!("predicted by {source}"),
            false => format!("threads were held back, but in another way than predicted by {source}"),
        });
    }

    fn last_look_from_outside(&mut self) {
        let wanted = self.watch.last_from_outside();
        let (look, _) = self.look(&wanted);
        let Some((_, by_terminal)) = self.held.take() else { return };
        if !matches!(self.family.reap(), Ok(Some(_))) {
            guarded(|| self.reporter.report_end_from_outside(&self.watched, &look));
        }
        pass_on(&self.family, Signal::SIGTERM, by_terminal);
    }

    /// The command's own status, once it has ended.
    fn reap(&mut self) -> Option<u8> {
        self.family.reap().unwrap_or_else(|error| {
            self.tell(&error);
            None
        })
    }

    fn kill_if_due(&mut self) -> Option<u8> {
        self.kill_at.filter(|time| Instant::now() >= *time)?;
        self.family.end(Signal::SIGKILL, Duration::ZERO);
        Some(self.reap().unwrap_or(ENDED))
    }
}

/// Limits and signals hold while a look is taken.
impl Supervisor for Run<'_> {
    fn samplers(&mut self) -> &mut Samplers {
        self.family.samplers()
    }

    /// Wait, and pass signals on as they come. The first SIGTERM waits for a look, another one does not.
    fn tend(&mut self, within: Duration) {
        self.family.wait(&[self.signals.as_fd()], within);
        for (signal, by_terminal) in arrived(self.signals) {
            self.is_over |= matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT);
            if signal == Signal::SIGTERM && self.held.is_none() {
                self.held = Some((Instant::now(), by_terminal));
                let after = self.arguments.kill_after.map(|time| Instant::now() + time);
                self.kill_at = self.kill_at.or(after);
            } else {
                pass_on(&self.family, signal, by_terminal);
            }
        }
    }

    fn useless(&mut self) -> Option<LookError> {
        // The driver has ended it for its core, and the look goes on.
        if self.asked_for_gpu_cores() {
            return None;
        }
        match self.family.reap() {
            Ok(None) => None,
            Ok(Some(_)) => Some(LookError::Told("it has ended".into())),
            Err(error) => Some(error),
        }
    }

    fn is_hurried(&self) -> bool {
        self.held.is_some() || self.watch.is_out_of_time()
    }

    fn is_over(&self) -> bool {
        self.kill_at.is_some_and(|time| Instant::now() >= time)
    }

    fn lost(&mut self, error: LookError) -> LookError {
        self.family.lost_looker(error)
    }

    fn tell(&mut self, error: &LookError) {
        output::say(&render::escape(&format!("lockscope: {error}; {} goes on", self.watched.name)));
    }
}

/// The threads of each cycle of a report.
fn cycles_of(report: &Report) -> BTreeSet<Vec<i32>> {
    let threads = |cycle: &Cycle| cycle.edges.iter().filter_map(|edge| edge.waiter).collect();
    report.cycles.iter().map(threads).collect()
}

/// A mistake in telling is no reason to end what is watched.
fn guarded(tell: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(tell)).is_err() {
        output::say("lockscope: the report could not be made (a mistake in lockscope)");
    }
}

pub(super) fn not_started(arguments: &RunArguments, error: &std::io::Error) -> u8 {
    output::say(&CliError::new(format!("cannot run {}: {error}", named(arguments))).to_string());
    children::failure(error)
}

/// Run the command with nobody to watch over it, since there are too few descriptors or processes for that.
pub(super) fn unwatched(arguments: &RunArguments) -> u8 {
    let name = named(arguments);
    output::say(&render::escape(&format!(
        "lockscope: too few descriptors or processes are left (ulimit -n, -u): {name} runs unwatched"
    )));
    not_started(arguments, &children::become_it(&arguments.command))
}

/// "`make`".
pub(super) fn named(arguments: &RunArguments) -> String {
    format!("`{}`", arguments.command.first().map(|word| word.to_string_lossy()).unwrap_or_default())
}

/// Send a signal on, and stop with the command where it is to stop: a shell waits for that.
fn pass_on(family: &Family, signal: Signal, by_terminal: bool) {
    family.forward(signal, by_terminal);
    if signal == Signal::SIGTSTP {
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
    }
}

/// The signals that have come, each with whether the terminal sent it.
fn arrived(signals: &SignalFd) -> Vec<(Signal, bool)> {
    /// From the kernel, as at Ctrl-C (asm-generic/siginfo.h).
    const SI_KERNEL: i32 = 0x80;
    let mut all = Vec::new();
    while let Ok(Some(one)) = signals.read_signal() {
        if let Ok(signal) = Signal::try_from(one.ssi_signo as i32)
            && signal != Signal::SIGCHLD
        {
            all.push((signal, one.ssi_code == SI_KERNEL));
        }
    }
    all
}

//! `lockscope watch --service`: watches processes by name, unit or id, through restarts, and reports each hang once.
//!
//! In: its arguments. Out: events ([`events`]) and metrics ([`metrics`]); exit status 0 when SIGTERM or --timeout ends it and nothing
//! hangs, 1 when something hangs at the end of --timeout, or when all processes that were named by id have ended and one of them hung;
//! 2 when nothing can be watched. It ends nothing. A process that only waits for work is no event.
//!
//! All processes share one process that looks, and one budget: searches, samples and looks take a hundredth of a processor
//! together. Only a look at what seems to hang already is taken beyond that.

mod command;
mod events;
mod metrics;
mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use self::events::{Event, Events, Happened};
use self::metrics::Metrics;
use self::targets::{Target, Targets};
use super::hang_report::{HangReporter, Watched};
use super::{CliError, Color, WatchArguments, output};
use crate::report::Report;
use crate::run::samplers::{Samplers, Supervisor};
use crate::run::{self, LastLook, LookError, Next, Purpose, Reason, Wanted, Watch};

/// Between two searches for processes.
const BETWEEN_SEARCHES: Duration = Duration::from_secs(2);
/// Between two rounds of samples, at least.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);
/// Between two looks at a process that hangs: whether it goes on, and whether something else has come to hang.
const WHILE_HUNG: Duration = Duration::from_secs(30);
/// Searches, samples and looks together take at most a hundredth of a processor.
const SHARE: u32 = 100;
/// Searches take at most a quarter of that, and so do samples.
const SHARE_OF_EACH: u32 = 4 * SHARE;
/// Between two searches, and between two rounds of samples, at most.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// Looks may take this much more at the beginning.
const BURST: Duration = Duration::from_secs(1);

/// Watch until it is over.
pub(super) fn run(arguments: &WatchArguments, color: Color) -> Result<ExitCode, CliError> {
    let mut signals = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
    let failed = |errno: nix::Error| CliError::new(format!("cannot receive signals: {errno}"));
    signals.thread_block().map_err(failed)?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(failed)?;
    let mut service = Service {
        arguments,
        color,
        targets: Targets::of(arguments),
        watched: BTreeMap::new(),
        samplers: Samplers::default(),
        signals,
        events: Events::of(arguments),
        metrics: Metrics::default(),
        current: None,
        is_news: false,
        ending: false,
        began: Instant::now(),
        spent: Duration::ZERO,
    };
    // An error about a folder or file comes before the watch begins.
    HangReporter::prepare(&arguments.reports, 0, color)?;
    if let Some(file) = &arguments.metrics_file {
        service.metrics.write(file)?;
    }
    service.serve()
}

/// One process that is watched, with its descendants.
struct One {
    target: Target,
    watch: Watch,
    reporter: HangReporter,
    /// Names of the incidents that were reported and still stand.
    told: BTreeSet<String>,
    /// Time of the next look, once it hangs.
    hung: Option<Instant>,
}

struct Service<'a> {
    arguments: &'a WatchArguments,
    color: Color,
    targets: Targets,
    watched: BTreeMap<i32, One>,
    samplers: Samplers,
    signals: SignalFd,
    events: Events,
    metrics: Metrics,
    /// The process of the look in progress.
    current: Option<i32>,
    /// Something has happened that the metrics do not have yet.
    is_news: bool,
    ending: bool,
    began: Instant,
    /// Processor time of all looks.
    spent: Duration,
}

impl Service<'_> {
    fn serve(&mut self) -> Result<ExitCode, CliError> {
        let due = self.arguments.limits.timeout.and_then(|timeout| self.began.checked_add(timeout));
        let mut search = self.began;
        loop {
            if Instant::now() >= search {
                let before = run::cpu_time();
                self.search()?;
                let cost = run::cpu_time().saturating_sub(before);
                search = Instant::now() + BETWEEN_SEARCHES.max(cost * SHARE_OF_EACH).min(LONGEST_REST);
            }
            if self.targets.are_over() && self.watched.is_empty() {
                return Ok(ExitCode::from(u8::from(self.metrics.has_hung())));
            }
            let cost = self.round();
            self.events.tend();
            if self.ending {
                self.finish();
                return Ok(ExitCode::SUCCESS);
            }
            if due.is_some_and(|due| Instant::now() >= due) {
                self.finish();
                return Ok(ExitCode::from(u8::from(self.watched.values().any(|one| one.hung.is_some()))));
            }
            let rest = BETWEEN_ROUNDS.max(cost * SHARE_OF_EACH).min(LONGEST_REST);
            let until = due.map_or(rest, |due| rest.min(due.saturating_duration_since(Instant::now())));
            self.tend(until);
        }
    }

    /// Write the metrics as they are at the end, and wait for commands.
    fn finish(&mut self) {
        self.events.finish();
        self.write_metrics();
    }

    fn write_metrics(&mut self) {
        let hung = self.watched.values().map(|one| (one.target.name.clone(), one.hung.is_some()));
        self.metrics.set_watched(hung.collect(), self.events.held_back());
        if let Some(Err(error)) = self.arguments.metrics_file.as_deref().map(|file| self.metrics.write(file)) {
            output::say(&error.to_string());
        }
    }

    /// Find processes that have come, and leave those that have ended.
    fn search(&mut self) -> Result<(), CliError> {
        self.watched.retain(|pid, one| run::sample::start_time(*pid) == Some(one.target.started));
        for target in self.targets.search()? {
            if self.watched.contains_key(&target.pid) {
                continue;
            }
            let mut reporter = HangReporter::prepare(&self.arguments.reports, target.pid, self.color)?;
            if self.arguments.json {
                reporter.be_silent();
            }
            let limits = run::Limits { timeout: None, ..self.arguments.limits.limits() };
            let watch = Watch::new(target.pid, true, limits);
            let (pid, told) = (target.pid, BTreeSet::new());
            self.watched.insert(pid, One { target, watch, reporter, told, hung: None });
        }
        self.write_metrics();
        Ok(())
    }

    /// A sample of each process, and the looks that are called for; what the samples took of a processor.
    fn round(&mut self) -> Duration {
        let pids: Vec<i32> = self.watched.keys().copied().collect();
        let mut sampled = Duration::ZERO;
        for pid in pids {
            let Some(mut one) = self.watched.remove(&pid) else { continue };
            let before = run::cpu_time();
            let wanted = match one.hung {
                None => one.watch.wanted(),
                Some(next) => (Instant::now() >= next).then(|| one.watch.for_others(false)),
            };
            sampled += run::cpu_time().saturating_sub(before);
            if let Some(wanted) = wanted.filter(|wanted| self.may_look(&one, wanted)) {
                self.current = Some(pid);
                self.look_at(&mut one, wanted);
                self.current = None;
            }
            self.watched.insert(pid, one);
            if std::mem::take(&mut self.is_news) {
                self.write_metrics();
            }
            if self.ending {
                break;
            }
        }
        sampled
    }

    /// Whether there is time for a look. A suspected hang, and the last look, always have time.
    fn may_look(&self, one: &One, wanted: &Wanted) -> bool {
        let has_left = self.spent + run::cpu_time() <= BURST + self.began.elapsed() / SHARE;
        wanted.purpose != Purpose::Routine || one.watch.is_suspicious() || has_left
    }

    fn look_at(&mut self, one: &mut One, mut wanted: Wanted) {
        loop {
            let is_routine = wanted.purpose == Purpose::Routine;
            let (look, cost) = self.look(&wanted);
            self.spent += cost;
            self.metrics.looked(cost);
            if let Err(error) = &look
                && is_routine
                && self.samplers.is_news(error)
            {
                self.tell(error);
            }
            if one.hung.is_some() {
                return self.looked_again(one, &look, cost);
            }
            match one.watch.looked(wanted, cost, look) {
                Next::Look(next) => wanted = next,
                Next::Event(run::Event::Nothing | run::Event::Patient(_)) => return,
                Next::Event(run::Event::Beside(report)) => return self.beside(one, &report),
                Next::Event(run::Event::Over(reason, look)) => return self.over(one, reason, &look),
            }
        }
    }

    /// A part hangs, and the rest goes on.
    fn beside(&mut self, one: &mut One, report: &Report) {
        if self.is_new(one, report) {
            let watched = Watched::command(one.target.described());
            self.report(one, report, Happened::Part, &mut |one| one.reporter.report_partial_hang(&watched, report));
        }
    }

    /// It hangs, or has made no progress.
    fn over(&mut self, one: &mut One, reason: Reason, look: &LastLook) {
        let report = look.as_ref().ok().map(|outcome| &outcome.report);
        let Some(report) = report else {
            return one.watch.begin_anew();
        };
        if reason == Reason::NoProgress && run::is_idle(report) {
            return one.watch.begin_anew();
        }
        one.hung = Some(Instant::now() + WHILE_HUNG);
        if self.is_new(one, report) {
            let watched = Watched::command(one.target.described());
            self.report(one, report, Happened::Hang, &mut |one| one.reporter.report_hang(&watched, reason, look));
        }
        self.is_news = true;
    }

    /// A look at a process that hung.
    fn looked_again(&mut self, one: &mut One, look: &LastLook, cost: Duration) {
        one.hung = Some(Instant::now() + WHILE_HUNG.max(cost * SHARE));
        let Ok(outcome) = look else { return };
        let report = &outcome.report;
        if report.verdict.exit_code() == 0 && !one.told.iter().any(|name| name.starts_with(NO_PROGRESS)) {
            (one.hung, one.told) = (None, BTreeSet::new());
            one.watch.begin_anew();
            self.report(one, report, Happened::Recovered, &mut |_| ());
        } else if report.verdict.exit_code() == 0 {
            // It had made no progress: whether it does now is for the samples to say.
            (one.hung, one.told) = (None, BTreeSet::new());
            one.watch.begin_anew();
        }
    }

    /// Whether a report has an incident that is new for this process; it counts as reported then.
    fn is_new(&self, one: &mut One, report: &Report) -> bool {
        let mut names = run::incident_names(report);
        if names.is_empty() {
            names.insert(format!("{NO_PROGRESS} {}", report.summary));
        }
        let is_new = !names.is_subset(&one.told);
        one.told.extend(names);
        is_new
    }

    fn report(&mut self, one: &mut One, report: &Report, happened: Happened, say: &mut dyn FnMut(&mut One)) {
        let file = one.reporter.text_file(happened == Happened::Part);
        let event = Event::new(happened, &one.target, report, file);
        self.metrics.count(&event);
        if self.events.may_report() {
            say(one);
            one.reporter.next();
            self.events.report(&event, self.arguments.json);
        }
        self.is_news = true;
    }
}

/// The name of a hang without an incident.
const NO_PROGRESS: &str = "no progress";

impl Supervisor for Service<'_> {
    fn samplers(&mut self) -> &mut Samplers {
        &mut self.samplers
    }

    fn tend(&mut self, within: Duration) {
        self.samplers.wait(&[self.signals.as_fd()], within);
        while let Ok(Some(_)) = self.signals.read_signal() {
            self.ending = true;
        }
    }

    fn useless(&mut self) -> Option<LookError> {
        let is_there = |pid: i32| run::sample::start_time(pid).is_some();
        let has_ended = self.current.is_some_and(|pid| !is_there(pid));
        has_ended.then(|| LookError::Told("it has ended".into()))
    }

    fn is_over(&self) -> bool {
        self.ending
    }

    fn tell(&mut self, error: &LookError) {
        output::say(&crate::render::escape(&format!("lockscope: {error}; the watch goes on")));
    }
}

//! `lockscope run --provoke`: runs the command, and then again with its predictions, so that what could deadlock does.
//!
//! In: the arguments of `run`. Out: its exit status: that of a hang where one happened, with its report; else the
//! command's own, with the reason why each prediction did not happen. A run is [`Session`]'s.

use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

use super::session::{Ended, Provoked, Session};
use super::{CliError, output, record};
use crate::forecast::{self, Recording, Suppressions};
use crate::limits::provoke::{LARGEST_FILE, MOST_PREDICTIONS, MOST_TOLD};
use crate::provoke::outcome::{self, Seen};
use crate::provoke::{Prediction, resolve, text};
use crate::recorder::targets::{Counts, MOST, Target, TargetFile, Times};
use crate::render;

/// For how long a thread is held at a place: the first time in the first run, the longest, and all times of a run.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
const PLACE: Duration = Duration::from_secs(10);
/// After this many runs without it, a place counts as unreachable.
const ENOUGH: u32 = 2;

/// A prediction that the command is run with.
struct Attempt {
    prediction: Prediction,
    pairs: Vec<[Target; 2]>,
    seen: Seen,
    /// In how many runs.
    runs: u32,
    /// Another run could tell more.
    is_open: bool,
}

impl Attempt {
    /// Take in what one run of the command counted and recorded.
    fn add(&mut self, new: Vec<Counts>, recordings: &[Recording]) {
        self.runs += 1;
        // A place that was passed often has been held at for the longest time.
        let is_exhausted = new.iter().any(|one| one.time >= PLACE);
        let was_held = new.iter().any(|one| one.tries > 0);
        self.seen.counts = match self.seen.counts.as_slice() {
            [] => new,
            before => before.iter().zip(new).map(|(one, other)| one.and(other)).collect(),
        };
        self.seen.apart = forecast::apart(recordings, &self.pairs);
        let is_absent = self.seen.counts.iter().any(|counts| counts.passed == 0);
        // A wait that the program guards well is the rule, and needs no long trials.
        let is_apart = self.runs >= ENOUGH && (self.seen.apart.is_some() || is_absent || self.prediction.is_wake_up());
        self.is_open = was_held && !is_exhausted && !is_apart;
    }
}

/// Run the command as often as it takes, and say what became of each prediction; the status to end with.
pub(super) fn run(session: &Session<'_>, given: Option<&Path>) -> Result<u8, CliError> {
    let suppressions = record::suppressions(session.suppressions())?;
    let (predictions, source, first) = match given {
        Some(path) => (read(path, &suppressions)?, format!("`{}`", path.display()), None),
        None => {
            let ended = session.run_once(None)?;
            if ended.is_over() {
                return Ok(ended.status);
            }
            let recordings = recorded(&ended);
            let mut predictions = forecast::predictions(&recordings, &suppressions);
            predictions.extend(forecast::wake_ups(&recordings, &suppressions));
            (predictions, "the run before".to_owned(), Some(ended))
        }
    };
    if predictions.is_empty() {
        say("no orders of locks that could deadlock were seen: there is nothing to make happen");
    }
    let mut attempts = attempts(predictions);
    if attempts.is_empty() {
        // The command runs in any case: it may be a test.
        return first.map_or_else(|| Ok(session.run_once(None)?.status), |ended| Ok(ended.status));
    }
    let first = first.map(|ended| ended.status);
    let (status, recordings) = repeat(session, &source, &mut attempts, first)?;
    if let Some(recordings) = recordings {
        tell(&attempts, &recordings);
    }
    Ok(status)
}

/// The predictions of a file of orders, or of the recorder's files.
fn read(path: &Path, suppressions: &Suppressions) -> Result<Vec<Prediction>, CliError> {
    let failed = |why: &dyn Display| CliError::new(format!("cannot read `{}`: {why}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if metadata.is_file() && !record::is_recorders(path) {
        if metadata.len() > LARGEST_FILE {
            return Err(failed(&"it is too large for a file of orders"));
        }
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        return text::read(&String::from_utf8_lossy(&bytes)).map_err(|error| {
            failed(&error)
                .hint("`lockscope core SNAPSHOT --reproducer FILE` and `attach PID --reproducer FILE` write one")
        });
    }
    Ok(forecast::predictions(&record::recordings(&[path.to_path_buf()])?, suppressions))
}

fn recorded(ended: &Ended) -> Vec<Recording> {
    ended.folder().map(record::recordings_of).unwrap_or_default()
}

/// Predictions that can be tried; a line says why another cannot.
fn attempts(predictions: Vec<Prediction>) -> Vec<Attempt> {
    let (mut attempts, mut pairs) = (Vec::new(), 0);
    let count = predictions.len();
    for prediction in predictions {
        match resolve::targets(&prediction) {
            Err(why) => say(&format!("cannot be made to happen: {}: {why}", prediction.title)),
            Ok(targets) if attempts.len() < MOST_PREDICTIONS && pairs + targets.len() <= MOST / 2 => {
                pairs += targets.len();
                attempts.push(Attempt { prediction, pairs: targets, seen: Seen::default(), runs: 0, is_open: true });
            }
            Ok(_) => {}
        }
    }
    if count > MOST_PREDICTIONS {
        say(&format!("{} more predictions are not tried: `lockscope record` tells of all", count - MOST_PREDICTIONS));
    }
    attempts
}

/// Run until it hangs, all was tried, or the time is over; the status to end with, and what the last run recorded, unless it hung or
/// was ended from outside. `before` is the status of a run without targets: the first status other than 0 counts.
fn repeat(
    session: &Session<'_>,
    source: &str,
    attempts: &mut [Attempt],
    before: Option<u8>,
) -> Result<(u8, Option<Vec<Recording>>), CliError> {
    let failed = |error| CliError::new(format!("cannot make a file of targets for the recorder: {error}"));
    let folder = tempfile::Builder::new().prefix("lockscope-targets-").tempdir().map_err(failed)?;
    let path = folder.path().canonicalize().map_err(failed)?.join("targets");
    let until = Instant::now() + session.provoke_for();
    let mut limit = FIRST;
    let mut status = before.unwrap_or(0);
    loop {
        let open = || attempts.iter().filter(|attempt| attempt.is_open);
        let pairs: Vec<[Target; 2]> = open().flat_map(|attempt| attempt.pairs.iter().cloned()).collect();
        let all = until.saturating_duration_since(Instant::now());
        let times = Times { first: limit, longest: LONGEST, place: PLACE, all };
        let file = TargetFile::write(&path, &pairs, times).map_err(failed)?;
        let predictions = open().map(|attempt| &attempt.prediction).collect();
        let ended = session.run_once(Some(&Provoked { file: &file, source, predictions }))?;
        if ended.is_over() {
            return Ok((ended.status, None));
        }
        if ended.status != 0 && before == Some(0) {
            say(&format!(
                "the command ended with status {} when threads were held back, and with 0 before",
                ended.status
            ));
        }
        if status == 0 {
            status = ended.status;
        }
        let (recordings, mut counts) = (recorded(&ended), file.counts().into_iter());
        for attempt in attempts.iter_mut().filter(|attempt| attempt.is_open) {
            let new = counts.by_ref().take(attempt.pairs.len()).collect();
            attempt.add(new, &recordings);
        }
        if limit >= LONGEST || Instant::now() >= until || attempts.iter().all(|attempt| !attempt.is_open) {
            return Ok((status, Some(recordings)));
        }
        limit = (limit * 2).min(LONGEST);
    }
}

/// Say why what was predicted did not happen.
fn tell(attempts: &[Attempt], recordings: &[Recording]) {
    // A wait that looks at what it waits for first, as nearly all do, loses no wake-up: one line says so of all these.
    let (guarded, attempts): (Vec<&Attempt>, Vec<&Attempt>) =
        attempts.iter().partition(|attempt| attempt.prediction.is_wake_up() && attempt.seen.has_met());
    if !guarded.is_empty() {
        let waits = if guarded.len() == 1 { "1 wait" } else { &format!("{} waits", guarded.len()) };
        say(&format!("no wake-up was lost: of {waits} the wake-up was made to come first, and none needed it"));
    }
    for Attempt { prediction, seen, .. } in attempts.iter().take(MOST_TOLD) {
        let members = prediction.members.iter().zip(&seen.counts);
        let absent = members.filter(|(_, counts)| counts.passed + counts.alone == 0).map(|(member, _)| member).next();
        let nearest = absent.map(|member| forecast::nearest(recordings, &member.second)).unwrap_or_default();
        let reason = outcome::reason(prediction, seen, &nearest);
        say(&format!("not made to happen: {}: {reason}", prediction.title));
        let passed = outcome::passed(prediction, seen);
        say(&format!("  passed with the first lock held: {passed} ({})", outcome::tried(seen)));
    }
    if let Some(more) = attempts.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        say(&format!("not made to happen: {more} more"));
    }
}

fn say(line: &str) {
    output::say(&render::escape(&format!("lockscope: {line}")));
}

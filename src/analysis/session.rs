//! The samples of one session: what each proves, whether another is worth its stop, and the report that settles it.
//!
//! In: a subject. Out: an [`Outcome`], and the last sample. [`Session::weigh`] has the whole rule: one sample is enough
//! where nothing is wrong, or where what is wrong was confirmed by its members; a process that others wait for is added,
//! and the samples start over; an image that was torn is taken again; what only a stop can read is stopped for. Nothing
//! is decoded here ([`super::sample`]).

use std::collections::HashMap;
use std::time::Instant;

use super::confirmation::{Confirmation, OfOneInstant};
use super::sample::{self, Sample};
use super::spins::Spins;
use super::subject::Subject;
use super::{Error, Keep, Outcome, code, lacking, rest, torn};
use crate::gpu::{GpuCore, GpuCores};
use crate::image::taken::Taken;
use crate::image::{Image, SourceLines};
use crate::limits::analysis::{MOST_FOLLOWINGS, MOST_RETAKEN};
use crate::report::{Capture, Report};
use crate::snapshot::{KeptLook, Recording, Written};
use crate::symbols::Symbols;
use crate::verdict::{self, Suspected};

/// Samples and reports; also returns the last sample.
pub(super) fn examine(
    subject: &mut dyn Subject,
    gpus: &[GpuCore],
    keep: Keep,
    working: bool,
) -> Result<(Outcome, Option<(Image, Sample)>), Error> {
    let mut session = Session::new(subject, keep, working);
    let (mut modules, shared) = (Vec::new(), std::rc::Rc::default());
    let last = loop {
        let at = Instant::now();
        let Some(mut image) = session.look(at)? else { break None };
        modules = sample::modules_of(&image, modules, &shared, session.subject);
        if let Some(recording) = &mut session.recording {
            recording.listen(&mut image);
        }
        let (gpu_cores, nobodys) = GpuCores::join(gpus, &image);
        image.gaps.extend(nobodys);
        let symbols = sample::symbols_of(&image, &modules, session.subject);
        let mut sample = Sample::of(&image, &symbols, session.subject, gpu_cores);
        let mut helped = vec![false; image.processes.len()];
        match session.weigh(&image, &sample) {
            Next::StartOver => {
                session.start_over();
                continue;
            }
            Next::Retake => {
                session.wait();
                continue;
            }
            Next::Sample => {}
            Next::Settle(suspected) => helped = session.settle(&image, &symbols, &mut sample, &suspected),
        }
        if session.keep(&image, &symbols, &sample, &helped) {
            drop(symbols);
            break Some((image, sample));
        }
        session.wait();
    };
    let written = session.recording.take().and_then(Recording::write);
    let (snapshot, remains) = written.map_or((None, None), |Written { bytes, remains }| (Some(bytes), remains));
    let code = last.as_ref().map(|(image, _)| code::of(image, &modules)).unwrap_or_default();
    Ok((Outcome { report: session.report.ok_or(Error::NoMoreLooks)?, snapshot, remains, code }, last))
}

/// The next step after a sample.
enum Next {
    /// Processes were added: the samples start over with them.
    StartOver,
    /// The image was torn; it counts for nothing.
    Retake,
    /// Another sample is needed before a report, or, after it, for the snapshot.
    Sample,
    /// This sample is enough for the report.
    Settle(Suspected),
}

/// The state of a session: its samples so far.
pub(super) struct Session<'s> {
    pub(super) subject: &'s mut dyn Subject,
    keep: Keep,
    pub(super) working: bool,
    /// The session's start.
    pub(super) started: Instant,
    /// This sample's start.
    at: Instant,
    /// Samples that count.
    pub(super) looks: u32,
    followed: usize,
    retaken: usize,
    /// How long each thread slept at its first sample, in milliseconds.
    asleep: HashMap<i32, u64>,
    pub(super) confirmation: Confirmation,
    pub(super) spins: Spins,
    recording: Option<Recording>,
    pub(super) capture: Capture,
    pub(super) report: Option<Report>,
    /// Source lines that the report shows, for the snapshot.
    pub(super) sources: Vec<Vec<SourceLines>>,
}

impl<'s> Session<'s> {
    fn new(subject: &'s mut dyn Subject, keep: Keep, working: bool) -> Session<'s> {
        let now = Instant::now();
        Session {
            subject,
            keep,
            working,
            started: now,
            at: now,
            looks: 0,
            followed: 0,
            retaken: 0,
            asleep: HashMap::new(),
            confirmation: Confirmation::default(),
            spins: Spins::default(),
            recording: recording_of(keep),
            capture: Capture::default(),
            report: None,
            sources: Vec::new(),
        }
    }

    /// The next image; `None` where the sample was wanted for the snapshot alone, and there is none.
    fn look(&mut self, at: Instant) -> Result<Option<Image>, Error> {
        self.at = at;
        log::info!("look {}", self.looks + 1);
        let mut image = match self.subject.look() {
            Ok(image) => image,
            Err(_) if self.report.is_some() => return Ok(None),
            Err(error) => return Err(error),
        };
        remember_sleeps(&mut image, &mut self.asleep, self.looks == 0);
        self.looks += 1;
        let capture = &mut self.capture;
        capture.pause_us = capture.pause_us.max(image.pause_us);
        capture.registers.asked_again = capture.registers.asked_again.max(image.rounds.saturating_sub(1));
        if self.looks == 1 {
            capture.began = image.taken.as_ref().map(|taken| taken.began.clone());
        }
        Ok(Some(image))
    }

    /// Adds what this sample shows to what those before it have, and decides what follows.
    fn weigh(&mut self, image: &Image, sample: &Sample) -> Next {
        let may_follow = self.looks == 1 && self.followed < MOST_FOLLOWINGS;
        if may_follow && self.subject.follow(image, &sample.observations) {
            return Next::StartOver;
        }
        let of_one_instant = self.subject.is_of_one_instant();
        // Also those that a later sample will compare with.
        if self.retaken < MOST_RETAKEN
            && torn::is_torn(image, &sample.observations, of_one_instant)
            && self.subject.retake()
        {
            (self.retaken, self.looks) = (self.retaken + 1, self.looks - 1);
            return Next::Retake;
        }
        let suspected = verdict::suspected(&sample.judged_by(image));
        // Where nothing is wrong in these, what they have started may hang: a server's workers.
        if may_follow && suspected.suspicions.is_empty() && self.subject.follow_asleep() {
            return Next::StartOver;
        }
        let clock = if self.subject.is_live() {
            let at = self.at.duration_since(self.started);
            Some(at..at)
        } else {
            image.taken.as_ref().and_then(Taken::span)
        };
        let subject = &*self.subject;
        let instant = OfOneInstant { whole: of_one_instant, is_late: &|pid, word| subject.is_late(pid, word) };
        self.confirmation.look(suspected.suspicions.clone(), &sample.judged_by(image), &instant, clock);
        self.spins.look(&sample.observations, &sample.threads);
        let is_calm = self.confirmation.is_empty() && !self.spins.are_open(self.looks);
        self.rest_instead(image, sample, &suspected);
        // Where registers are missing that only a stop can read, the next sample shows more.
        let lacks = self.subject.has_more()
            && self.subject.stop(lacking::threads(image, &sample.threads, &sample.observations));
        let is_settled = (is_calm || self.confirmation.is_complete()) && !lacks || !self.subject.has_more();
        if is_settled && self.report.is_none() { Next::Settle(suspected) } else { Next::Sample }
    }

    /// The second sample need not cover everything, unless it is to be kept: that the members of a suspicion rested
    /// between two moments confirms it, too.
    fn rest_instead(&mut self, image: &Image, sample: &Sample, suspected: &Suspected) {
        if self.confirmation.is_complete()
            || self.looks != 1
            || self.recording.is_some()
            || self.spins.are_open(self.looks)
            || !self.subject.has_more()
        {
            return;
        }
        let Some(members) = rest::members(image, &sample.observations, suspected) else { return };
        self.wait();
        if self.subject.has_rested(&members) {
            self.confirmation.rested();
            self.looks += 1;
        }
    }

    /// Keeps the sample for the snapshot. Whether it was the last.
    fn keep(&mut self, image: &Image, symbols: &[Symbols<'_>], sample: &Sample, helped: &[bool]) -> bool {
        if let Some(recording) = &mut self.recording {
            recording.keep(&KeptLook {
                image,
                symbols,
                threads: &sample.threads,
                python: &sample.python,
                helped,
                of_one_instant: self.subject.is_of_one_instant(),
                sources: &self.sources,
                gpu: sample.gpu.as_ref(),
            });
        }
        // A snapshot keeps two samples also where one was enough: a newer lockscope may see more in it.
        let wants_another = self.recording.is_some() && self.looks < 2 && self.subject.has_more();
        self.report.is_some() && !wants_another
    }

    fn start_over(&mut self) {
        (self.followed, self.looks) = (self.followed + 1, 0);
        self.recording = recording_of(self.keep);
    }

    /// Until the next sample may begin: two that are too near to each other prove nothing.
    fn wait(&self) {
        std::thread::sleep(self.confirmation.pause().saturating_sub(self.at.elapsed()));
    }
}

fn recording_of(keep: Keep) -> Option<Recording> {
    match keep {
        Keep::Nothing => None,
        Keep::Snapshot { redact } => Some(Recording::new(redact)),
    }
}

/// How long threads have slept is known at the first sample only: the stop itself wakes them for an instant.
fn remember_sleeps(image: &mut Image, first: &mut HashMap<i32, u64>, is_first: bool) {
    for thread in image.processes.iter_mut().flat_map(|p| &mut p.threads) {
        match thread.asleep_ms {
            // By the first sample of this thread: others may have come in later.
            Some(asleep) if is_first && !first.contains_key(&thread.tid) => drop(first.insert(thread.tid, asleep)),
            _ => thread.asleep_ms = first.get(&thread.tid).copied(),
        }
    }
}

//! The report of the sample that settles a session.
//!
//! In: the session and its last sample. Out: its report, with all gaps. Facts that cost time
//! and serve only a report are read here and no earlier: names through py-spy, source lines, how busy the GPUs are.

use super::sample::Sample;
use super::session::Session;
use super::{incomplete, named_late, sources, working};
use crate::image::{Gap, Image, RegisterSource, budget, files_changed};
use crate::limits;
use crate::report::{Capture, RegistersRead, Report, Verdict, shorten_sentences};
use crate::symbols::Symbols;
use crate::verdict::{self, Judgement, Suspected};
use crate::waits::Observations;

impl Session<'_> {
    /// Makes the report. Returns for each process whether anything beside its memory was queried.
    pub(super) fn settle(
        &mut self,
        image: &Image,
        symbols: &[Symbols<'_>],
        sample: &mut Sample,
        suspected: &Suspected,
    ) -> Vec<bool> {
        let (mut judgement, helped) = self.judged(image, symbols, sample, suspected);
        judgement.gaps.extend(self.subject.late_gaps());
        judgement.gaps.extend(sample.gpu.iter().flat_map(|gpu| gpu.gaps.clone()));
        let capture = Capture {
            threads: image.processes.iter().map(|process| process.threads.len()).sum(),
            total_us: self.started.elapsed().as_micros() as u64,
            looks: self.looks,
            registers: RegistersRead { asked_again: self.capture.registers.asked_again, ..registers_read(image) },
            ended: image.taken.as_ref().map(|taken| taken.ended.clone()),
            ..self.capture.clone()
        };
        let (written, input) = (sample.written.take(), sample.judged_by(image));
        let mut report = verdict::assemble::report(&input, judgement, written, self.subject.source(), capture);
        say_what_is_missing(&mut report, image, &sample.observations);
        shorten_sentences(&mut report);
        self.sources = sources::add_scenes(&mut report, image);
        report.gaps.extend(gaps_of_the_whole());
        if self.working {
            working::add(&mut report, image, symbols, &sample.threads);
        }
        self.report = Some(report);
        helped
    }

    /// The judgement of this sample, once all that a report needs is read.
    fn judged(
        &mut self,
        image: &Image,
        symbols: &[Symbols<'_>],
        sample: &mut Sample,
        suspected: &Suspected,
    ) -> (Judgement, Vec<bool>) {
        let is_confirmed = self.confirmation.is_complete();
        if named_late::name(symbols, sample, &suspected.suspicions) {
            sample.observe_again(image, symbols);
        }
        // Also before: for a thread that was caught at work nobody asks how busy the GPU is.
        self.drop_unconfirmed(&mut sample.observations);
        let seen_before = &sample.observations;
        let wakers = is_confirmed.then(|| (seen_before.wake_sources.clone(), seen_before.known_wakers.clone()));
        let helped = sample.complete(image, symbols, self.subject);
        self.drop_unconfirmed(&mut sample.observations);
        let is_seen = !self.confirmation.is_empty() && !self.subject.is_frozen();
        let confirmed = is_seen.then(|| self.confirmation.confirmed());
        let mut judgement = sample.judge(image, confirmed);
        if let Some(wakers) = wakers.filter(|_| !self.confirmation.is_all_in(&judgement.suspicions)) {
            // Decoding again reads more, later: of an interpreter that goes on meanwhile that may say what never was.
            (sample.observations.wake_sources, sample.observations.known_wakers) = wakers;
            judgement = sample.judge(image, confirmed);
        }
        (judgement, helped)
    }

    /// Drops waits that spin, unless the samples so far show that they last.
    fn drop_unconfirmed(&self, observations: &mut Observations) {
        if !self.subject.is_frozen() {
            self.spins.drop_unconfirmed(observations, self.looks, self.confirmation.is_complete());
        }
    }
}

/// Puts what could not be read before a verdict without a fault.
fn say_what_is_missing(report: &mut Report, image: &Image, observations: &Observations) {
    if !matches!(report.verdict, Verdict::Blocked | Verdict::Running) {
        return;
    }
    if let Some(said) = incomplete::sentence(image, observations) {
        report.summary = format!("{said}. {}", report.summary);
        report.sentence = format!("{said}. {}", report.sentence);
    }
}

/// Gaps from limits, budgets and files that changed.
fn gaps_of_the_whole() -> Vec<Gap> {
    let mut gaps = budget::gaps();
    gaps.extend(limits::told().into_iter().map(|met| Gap::new(met.what, met.why)));
    if files_changed() {
        gaps.push(Gap::new(
            "files of the target",
            "one was cut or overwritten in place while it was read, or its disk failed: names and stacks through it may be wrong",
        ));
    }
    gaps
}

/// How many threads' registers were read in which way.
fn registers_read(image: &Image) -> RegistersRead {
    let mut read = RegistersRead::default();
    for thread in image.processes.iter().flat_map(|process| &process.threads) {
        match thread.source {
            RegisterSource::Stop => read.by_stop += 1,
            RegisterSource::TaskIterator => read.asleep_by_ebpf += 1,
            RegisterSource::KernelFiles => read.asleep_by_proc += 1,
            RegisterSource::Unsaid => {}
        }
    }
    read
}

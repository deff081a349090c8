//! `lockscope run` as the prefix of one rank of a job: it answers requests for samples of that rank, and requests
//! samples of the others.
//!
//! In: the folder of reports, and the launcher's variables in the environment. Out: digests in that folder, which
//! `lockscope merge` joins. A rank that hangs is not ended before the others were sampled twice, because the launcher
//! ends them all with it. This module samples nothing itself, and never waits.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::CliError;
use super::calls::Calls;
use super::requests::{Answers, Request, answer, requests};
use crate::image::live;
use crate::job::{Look, Witness, distil, witnesses};
use crate::launcher;
use crate::report::Report;

/// Between two reads of the folder.
const TURN: Duration = Duration::from_secs(1);
/// The same while answers are waited for.
const SHORT_TURN: Duration = Duration::from_millis(200);
/// Least time between two rounds: what moves has moved by then.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(500);
/// Longest time that the first round is waited for.
const FOR_FIRST: Duration = Duration::from_secs(15);
/// Longest time that calls are counted for a second one: nobody waits for so long for answers.
const FOR_SECOND: Duration = Duration::from_secs(60);

/// A rank of a job, and the folder for requests to its job.
#[derive(Debug)]
pub(super) struct Rank {
    folder: PathBuf,
    /// Its number.
    number: u32,
    answered: BTreeSet<(String, u8)>,
    /// Answers to earlier requests, which later ones replace.
    written: Vec<(String, PathBuf)>,
    next: Instant,
    asked: Option<Asked>,
    counting: Option<Counting>,
}

/// Calls that are counted for a request from its first round to its second. Another request replaces it, since calls
/// that one request saw may not be those that the other has counted.
#[derive(Debug)]
struct Counting {
    /// The request.
    id: String,
    calls: Calls,
    begun: Instant,
    /// Since when there is a second one to be answered.
    second: Option<Instant>,
    /// The answer to the first round if the sample that settles the counted calls fails.
    first: Option<(Look, Vec<Witness>)>,
}

/// The sample of this rank; `None` if it saw no rank.
fn told(request: &Request, report: &Report) -> Option<(Look, Vec<Witness>)> {
    let mut look = distil(report, request.round, request.seen());
    // Other ranks of the node are others' business.
    look.partial = true;
    let look = look.named();
    (!look.members.is_empty()).then(|| (look, witnesses(report)))
}

/// A request of this rank.
#[derive(Debug)]
struct Asked {
    id: String,
    /// Nobody else has asked for the same.
    is_own: bool,
    round: u8,
    answers: Answers,
    since: Instant,
    /// When the second round begins, once the first is over.
    pause: Option<Instant>,
}

impl Rank {
    /// The rank that this process is the prefix of, if a launcher says that it is one.
    pub(super) fn here(folder: Option<&Path>) -> Option<Rank> {
        let folder = folder?.to_path_buf();
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let variables: Vec<(String, String)> =
            std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        let number = launcher::membership(&variables)?.rank;
        // Requests from before its start are over.
        let before = requests(&folder, &BTreeSet::new());
        let answered = before.into_iter().map(|request| (request.id, request.round)).collect();
        Some(Rank { folder, number, answered, written: Vec::new(), next: Instant::now(), asked: None, counting: None })
    }

    /// A request that is to be answered now.
    pub(super) fn request(&mut self) -> Option<Request> {
        // The requester has gone away.
        self.counting.take_if(|counting| counting.begun.elapsed() >= FOR_SECOND);
        if let Some(counting) = &mut self.counting {
            counting.calls.sample();
        }
        if Instant::now() < self.next {
            return None;
        }
        let is_short = self.asked.is_some() || self.are_counted();
        self.next = Instant::now() + if is_short { SHORT_TURN } else { TURN };
        let request = requests(&self.folder, &self.answered).into_iter().next()?;
        // A thread that polls is to have run for long enough by then.
        let is_short = |counting: &mut Counting| {
            let since = *counting.second.get_or_insert_with(Instant::now);
            !counting.calls.have_polled(since)
        };
        let counting = self.counting.as_mut().filter(|counting| request.round == 2 && counting.id == request.id);
        if counting.is_some_and(is_short) { None } else { Some(request) }
    }

    /// How long this rank may rest. Counted calls are checked now and then.
    pub(super) fn rest(&self) -> Duration {
        if self.are_counted() { SHORT_TURN / 2 } else { Duration::MAX }
    }

    fn are_counted(&self) -> bool {
        self.counting.as_ref().is_some_and(|counting| counting.calls.are_counted())
    }

    /// Whether this rank is the one that asks NCCL's RAS for this request.
    pub(super) fn asks_nccl(&self, request: &Request) -> bool {
        request.asks_nccl == Some(self.number)
    }

    /// The command's processes that are ranks or helpers of ranks; all of them if none is a rank.
    pub(super) fn ranks_among(pids: Vec<i32>) -> Vec<i32> {
        let ranks: BTreeSet<i32> = live::ranks().into_iter().map(|rank| rank.pid).collect();
        let own: Vec<i32> = pids.iter().copied().filter(|pid| ranks.contains(pid)).collect();
        if own.is_empty() { pids } else { own }
    }

    /// Answer with a sample that was taken for it; nothing if that failed.
    pub(super) fn answer(&mut self, request: &Request, report: Option<&Report>) -> Result<(), CliError> {
        self.answered.insert((request.id.clone(), request.round));
        // The next one may wait already.
        self.next = Instant::now();
        let own = self.counting.take_if(|counting| counting.id == request.id);
        let Some((mut look, witnesses)) = report.and_then(|report| told(request, report)) else {
            // The one before it was good, but of nobody is known that he was not called anew since.
            let first = own.and_then(|own| own.first).filter(|_| request.round == 1);
            return first.map_or(Ok(()), |(look, witnesses)| self.write(request, look, witnesses));
        };
        match (request.round, own) {
            (1, Some(mut own)) => {
                own.calls.settle(&look);
                self.counting = Some(Counting { first: None, ..own });
            }
            (1, None) => {
                let (id, begun) = (request.id.clone(), Instant::now());
                let mut own = Counting { id, calls: Calls::default(), begun, second: None, first: None };
                if own.calls.begin_with(&look) {
                    // The request comes again at once, and is answered then.
                    self.counting = Some(Counting { first: Some((look, witnesses)), ..own });
                    self.answered.remove(&(request.id.clone(), 1));
                    return Ok(());
                }
                self.counting = Some(own);
            }
            (_, own) => look = own.map(|own| own.calls).unwrap_or_default().put_into(look),
        }
        self.write(request, look, witnesses)
    }

    fn write(&mut self, request: &Request, look: Look, witnesses: Vec<Witness>) -> Result<(), CliError> {
        let path = answer(&self.folder, request, look, witnesses)?;
        self.written.push((request.id.clone(), path));
        if request.round == 2 {
            let is_old = |(id, _): &(String, PathBuf)| *id != request.id;
            for (_, old) in self.written.iter().filter(|one| is_old(one)) {
                let _ = std::fs::remove_file(old);
            }
            self.written.retain(|one| !is_old(one));
        }
        Ok(())
    }

    /// Request two rounds from all ranks, unless it has done so, or another rank has.
    pub(super) fn ask(&mut self) -> Result<(), CliError> {
        if self.asked.is_some() {
            return Ok(());
        }
        let open = requests(&self.folder, &BTreeSet::new());
        let others =
            open.iter().find(|one| one.round == 1 && !open.iter().any(|two| two.round == 2 && two.id == one.id));
        let is_own = others.is_none();
        let id = match others {
            Some(other) => other.id.clone(),
            None => {
                let id = Request::fresh();
                Request::of(&id, 1).write(&self.folder)?;
                id
            }
        };
        self.next = Instant::now();
        self.asked =
            Some(Asked { id, is_own, round: 1, answers: Answers::default(), since: Instant::now(), pause: None });
        Ok(())
    }

    /// Whether both rounds are complete. The second is requested once the first is complete, or has taken long enough.
    pub(super) fn has_all_answers(&mut self) -> Result<bool, CliError> {
        let Some(asked) = &mut self.asked else { return Ok(true) };
        asked.answers.poll(&self.folder, &asked.id, asked.round);
        let is_over = asked.answers.are_complete();
        if asked.round == 2 {
            return Ok(is_over);
        }
        match asked.pause {
            None if is_over || asked.since.elapsed() >= FOR_FIRST => {
                asked.pause = Some(Instant::now() + BETWEEN_ROUNDS);
            }
            Some(pause) if Instant::now() >= pause => {
                let (second, set) = Request::after(&asked.id, &asked.answers);
                if requests(&self.folder, &BTreeSet::new()).iter().all(|one| (&one.id, one.round) != (&asked.id, 2)) {
                    second.write_with(&set, &self.folder)?;
                }
                (asked.round, asked.answers) = (2, Answers::default());
            }
            _ => {}
        }
        Ok(false)
    }

    /// How many ranks have answered the last round, and end the asking.
    pub(super) fn close(&mut self) -> usize {
        let Some(mut asked) = self.asked.take() else { return 0 };
        asked.answers.poll(&self.folder, &asked.id, asked.round);
        for round in (1..=2).filter(|_| asked.is_own) {
            Request::of(&asked.id, round).withdraw(&self.folder);
        }
        asked.answers.ranks()
    }

    /// Where the digests are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(folder: &Path) -> Rank {
        Rank {
            folder: folder.to_path_buf(),
            number: 0,
            answered: BTreeSet::new(),
            written: Vec::new(),
            next: Instant::now(),
            asked: None,
            counting: None,
        }
    }

    /// The counting for a request whose first sample succeeded.
    fn counting(id: &str) -> Counting {
        let first = Look { round: 1, partial: true, ..Look::default() }.named();
        let (id, begun) = (id.to_owned(), Instant::now());
        Counting { id, calls: Calls::default(), begun, second: None, first: Some((first, Vec::new())) }
    }

    fn answers(rank: &Rank) -> usize {
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let files = std::fs::read_dir(&rank.folder).expect("the folder").flatten().map(name);
        files.filter(|name| !name.starts_with('.')).count()
    }

    #[test]
    fn a_look_that_only_settles_what_is_counted_may_come_to_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut rank = rank(folder.path());
        rank.counting = Some(counting("a-1"));
        rank.answer(&Request::of("a-1", 1), None).expect("an answer");
        assert_eq!((answers(&rank), rank.counting.is_none()), (1, true));
        assert!(rank.answered.contains(&("a-1".to_owned(), 1)));
        // A rank without any sample answers nothing.
        rank.answer(&Request::of("b-1", 1), None).expect("nothing");
        rank.counting = Some(counting("c-1"));
        rank.answer(&Request::of("c-1", 2), None).expect("nothing");
        assert_eq!(answers(&rank), 1);
    }

    #[test]
    fn of_two_who_ask_at_once_each_has_an_answer_and_only_its_own_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut rank = rank(folder.path());
        rank.counting = Some(counting("a-1"));
        rank.answer(&Request::of("c-1", 2), None).expect("nothing");
        assert_eq!(rank.counting.as_ref().map(|counting| counting.id.as_str()), Some("a-1"));
        // Nobody has asked for long: what is counted for nobody ends.
        rank.counting = Some(Counting { begun: Instant::now() - FOR_SECOND, ..counting("a-1") });
        assert!(rank.request().is_none() && rank.counting.is_none());
        // Both are answered, the first rounds before the second.
        for (id, round) in [("b-1", 2), ("b-1", 1), ("a-1", 1)] {
            Request::of(id, round).write(folder.path()).expect("a request");
        }
        let mut asked = Vec::new();
        rank.next = Instant::now();
        while let Some(request) = rank.request() {
            rank.answered.insert((request.id.clone(), request.round));
            rank.next = Instant::now();
            asked.push((request.id, request.round));
        }
        assert_eq!(asked, [("a-1", 1), ("b-1", 1), ("b-1", 2)].map(|(id, round)| (id.to_owned(), round)));
    }
}

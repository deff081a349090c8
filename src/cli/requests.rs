//! Requests for samples of the ranks of a job, as files in a folder that all of its nodes have.
//!
//! In: the folder. Out: [`Request`]s that other processes have written there, and the [`Answers`] to one. Files appear
//! by their rename, so that no reader sees half of one. They are polled, because network file systems send no
//! notifications, and have locks that hang. `lockscope run` in front of each rank answers, since it may always attach
//! to its children. The requester samples nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{CliError, digests, output};
use crate::job::{Digest, Look, Seen, Witness, first_on_gpu};
use crate::limits::Bounded;
use crate::limits::job::{LARGEST_REQUEST, MOST_FILES};

/// How names of requests begin and end.
const NAME: (&str, &str) = ("ask-", ".request");
/// `schema` of the file.
const SCHEMA: &str = "lockscope.request";

/// A requested round of samples.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Request {
    schema: String,
    /// Its identity.
    pub(super) id: String,
    /// 1 or 2.
    pub(super) round: u8,
    /// Samples of the first round that were there when it was written.
    #[serde(default)]
    saw: BTreeSet<String>,
    /// Or the name of a set of them, which has a file of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saw_set: Option<String>,
    /// The rank whose `run` queries NCCL's RAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asks_nccl: Option<u32>,
}

impl Request {
    /// A name that no other request has.
    pub(super) fn fresh() -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{:x}-{:x}", now.as_nanos(), std::process::id())
    }

    /// Ask for a round.
    pub(super) fn of(id: &str, round: u8) -> Request {
        Request {
            schema: SCHEMA.to_owned(),
            id: id.to_owned(),
            round,
            saw: BTreeSet::new(),
            saw_set: None,
            asks_nccl: None,
        }
    }

    /// Ask for the second round, with these answers to the first; and the set of these, where there are many.
    pub(super) fn after(id: &str, first: &Answers) -> (Request, Digest) {
        let (seen, set) = Seen::of(first.names());
        let asks_nccl = first_on_gpu(first.looks());
        (Request { saw: seen.names, saw_set: seen.set, asks_nccl, ..Request::of(id, 2) }, set)
    }

    /// The samples that its answers may name.
    pub(super) fn seen(&self) -> Seen {
        Seen { names: self.saw.clone(), set: self.saw_set.clone() }
    }

    /// Let all see it; the set before it.
    pub(super) fn write_with(&self, set: &Digest, folder: &Path) -> Result<(), CliError> {
        if let Some(name) = self.saw_set.as_ref().filter(|_| !set.is_empty()) {
            output::named(&folder.join(digests::name_of_set(name)), &set.write())?;
        }
        self.write(folder)
    }

    fn file(&self) -> String {
        format!("{}{}.{}{}", NAME.0, self.id, self.round, NAME.1)
    }

    /// Let all see it.
    pub(super) fn write(&self, folder: &Path) -> Result<(), CliError> {
        let bytes = serde_json::to_vec(self).map_err(|error| CliError::new(error.to_string()))?;
        output::named(&folder.join(self.file()), &bytes)
    }

    /// Nobody has to answer any more.
    pub(super) fn withdraw(&self, folder: &Path) {
        // A file that another process has removed is gone, too.
        let _ = fs::remove_file(folder.join(self.file()));
    }

    /// The file with this name, if it is one.
    fn read(path: &Path) -> Option<Request> {
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(LARGEST_REQUEST + 1).read_to_end(&mut bytes).ok()?;
        let request: Request = serde_json::from_slice(&bytes).ok()?;
        let is_named =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let fits = request.schema == SCHEMA && (1..=2).contains(&request.round) && is_named(&request.id);
        // Its name says the same, so that it names the files of its answers and no others.
        (fits && path.file_name().is_some_and(|name| *name == *request.file())).then_some(request)
    }
}

/// Names of files of a folder that are wanted.
fn names(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let wanted = paths.filter(|path| path.file_name().is_some_and(|name| is_wanted(&name.to_string_lossy())));
    // Opening a FIFO would wait until its other end is opened.
    let wanted = wanted.filter(|path| path.is_file());
    let mut all: Vec<PathBuf> =
        wanted.bounded(MOST_FILES, || format!("the folder `{}`", folder.display()), "files").collect();
    all.sort();
    all
}

/// The requests in a folder but those that are known already, first rounds first.
pub(super) fn requests(folder: &Path, known: &BTreeSet<(String, u8)>) -> Vec<Request> {
    let is_known = |name: &str| known.iter().any(|(id, round)| Request::of(id, *round).file() == name);
    let files = names(folder, |name| name.starts_with(NAME.0) && name.ends_with(NAME.1) && !is_known(name));
    let mut all: Vec<Request> = files.iter().filter_map(|path| Request::read(path)).collect();
    all.sort_by(|one, other| (one.round, &one.id).cmp(&(other.round, &other.id)));
    all
}

/// Answer a request with the sample of the ranks of this node or process, and with what witnesses said meanwhile; the
/// file.
pub(super) fn answer(
    folder: &Path,
    request: &Request,
    look: Look,
    witnesses: Vec<Witness>,
) -> Result<PathBuf, CliError> {
    let path = folder.join(digests::name_of_answer(&look, &request.id));
    let mut digest = Digest::default();
    digest.add(look);
    witnesses.into_iter().for_each(|witness| digest.add_witness(witness));
    output::named(&path, &digest.write()).map(|()| path)
}

/// The answers to one round of a request, each read once.
#[derive(Debug, Default)]
pub(super) struct Answers {
    files: BTreeMap<PathBuf, Option<Digest>>,
}

impl Answers {
    /// Take in what has come.
    pub(super) fn poll(&mut self, folder: &Path, id: &str, round: u8) {
        let ending = digests::ending_of_answers(id, round);
        for path in names(folder, |name| name.ends_with(&ending)) {
            self.files.entry(path.clone()).or_insert_with(|| digests::read(&[path]).ok().map(|taken| taken.digest));
        }
    }

    fn looks(&self) -> impl Iterator<Item = &Look> {
        self.files.values().flatten().flat_map(Digest::looks)
    }

    /// Names of the samples.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.looks().map(|look| look.id.clone()).collect()
    }

    /// How many ranks have been sampled.
    pub(super) fn ranks(&self) -> usize {
        let members = self.looks().flat_map(|look| &look.members);
        members.filter_map(|member| member.identity.rank).collect::<BTreeSet<u32>>().len()
    }

    /// Whether all ranks have been sampled, by what they say of the size of their job.
    pub(super) fn are_complete(&self) -> bool {
        let members = self.looks().flat_map(|look| &look.members);
        let size = members.filter_map(|member| member.identity.size).max();
        size.is_some_and(|size| self.ranks() as u64 >= u64::from(size))
    }

    /// All of them.
    pub(super) fn digest(&self) -> Digest {
        let mut all = Digest::default();
        self.files.values().flatten().for_each(|digest| all.merge(digest.clone()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_only_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let id = Request::fresh();
        let first = Request::of(&id, 1);
        let mut answers = Answers::default();
        let mut digest = Digest::default();
        digest.add(Look { round: 1, ..Look::default() }.named());
        answers.files.insert("a".into(), Some(digest));
        let (second, _) = Request::after(&id, &answers);
        assert_eq!((second.saw.len(), second.asks_nccl), (1, None));
        for request in [&second, &first] {
            request.write(folder.path()).expect("written");
        }
        let mut known = BTreeSet::new();
        assert_eq!(requests(folder.path(), &known), [first.clone(), second.clone()]);
        known.insert((id, 1));
        assert_eq!(requests(folder.path(), &known), [second]);
        first.withdraw(folder.path());
        first.withdraw(folder.path());
    }

    #[test]
    fn what_is_no_request_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("ask-1.1.request", "{");
        write("ask-2.1.request", r#"{"schema":"lockscope.request","id":"../3","round":1}"#);
        write("ask-3.1.request", r#"{"schema":"lockscope.request","id":"4","round":1}"#);
        write("ask-5.9.request", r#"{"schema":"lockscope.request","id":"5","round":9}"#);
        nix::unistd::mkfifo(&folder.path().join("ask-6.1.request"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert_eq!(requests(folder.path(), &BTreeSet::new()), []);
        assert_eq!(requests(&folder.path().join("nowhere"), &BTreeSet::new()), []);
    }
}

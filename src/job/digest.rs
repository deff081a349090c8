//! The data that lockscope keeps of samples at the ranks of nodes: a set, which merges with others, and its file.
//!
//! In: samples, or the bytes of a file. Out: a [`Digest`], or a [`DigestError`] that says why the file is none. It
//! holds no arguments, no variables and no stacks. For each rank it holds its identity, the waits of its main thread
//! and of threads in collectives, and its verdict. The file's own claims are checked: a sample whose name is not that
//! of its content was changed.

// All of its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::content::{self, hash};
use super::long_message::shortened;
use super::witness::Witness;
use crate::limits::job::MOST_NAMED;
use crate::report::{Certainty, ClusterMember, Enqueued, Gap, Host, Identity, ThreadState, Verdict};
use crate::waits::collective::Collective;

/// `schema` of the file.
const SCHEMA: &str = "lockscope.digest";
/// The version that is written. Additions raise the number behind the point, and readers skip what they do not know.
const VERSION: &str = "1.8";
/// Versions whose samples have nothing that this one does not know.
const KNOWN: [&str; 9] = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", VERSION];

/// Samples of ranks of jobs, each once, in order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    looks: BTreeMap<String, Look>,
    witnesses: BTreeMap<String, Witness>,
    /// Names of many samples, by the name of all of them.
    sets: BTreeMap<String, BTreeSet<String>>,
    /// The version of a file that may say more than is kept of it here.
    later: Option<String>,
}

/// Samples of the first round that were there when one of the second began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// A few, by their names.
    pub(crate) names: BTreeSet<String>,
    /// Many, by the name of all of them: in each sample of thousands they would be thousands of thousands.
    pub(crate) set: Option<String>,
}

impl Seen {
    /// These samples. If they are too many to name, also a digest that has to contain their set.
    pub(crate) fn of(names: BTreeSet<String>) -> (Seen, Digest) {
        let mut digest = Digest::default();
        if names.len() <= MOST_NAMED {
            return (Seen { names, set: None }, digest);
        }
        let name = name_of_set(&names);
        digest.sets.insert(name.clone(), names);
        (Seen { names: BTreeSet::new(), set: Some(name) }, digest)
    }
}

/// The name that its content gives a set.
fn name_of_set(names: &BTreeSet<String>) -> String {
    let mut all = String::with_capacity(names.iter().map(|name| name.len() + 1).sum());
    for name in names {
        if !all.is_empty() {
            all.push(' ');
        }
        all += name;
    }
    format!("{:032x}", hash(all.as_bytes()))
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    schema: String,
    version: String,
    lockscope: String,
    looks: Vec<Look>,
    /// Since 1.1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    witnesses: Vec<Witness>,
    /// Since 1.2.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sets: BTreeMap<String, BTreeSet<String>>,
}

/// The header of a file. Files of any version have it.
#[derive(Debug, Deserialize)]
struct Header {
    schema: Option<String>,
    version: Option<String>,
    lockscope: Option<String>,
}

impl Header {
    fn of(written: &Written) -> Header {
        let text = |text: &String| Some(text.clone());
        Header { schema: text(&written.schema), version: text(&written.version), lockscope: text(&written.lockscope) }
    }
}

/// One sample of the ranks of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    /// Its name: made from its content.
    #[serde(default)]
    pub id: String,
    /// 1 or 2.
    pub round: u8,
    /// The machine.
    pub host: Host,
    /// When it began and ended, by that machine's clock (RFC 3339, UTC).
    pub began: String,
    pub ended: String,
    /// Samples of the first round that were written when it began.
    #[serde(default)]
    pub saw: BTreeSet<String>,
    /// Or the name of a set of them. Since 1.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saw_set: Option<String>,
    /// It is at some ranks of the node, and says nothing of the others there. Since 1.2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// The ranks.
    pub members: Vec<Member>,
    /// Ranks that run there, but that lockscope could not attach to. Since 1.6.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Threads of equal stacks. Until 1.3: no reader used them, and in a file for each rank they were half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<Class>>,
    /// Data that could not be read.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// A rank that runs, but that lockscope could not attach to, for example because a debugger traces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub rank: u32,
    pub why: String,
}

/// One process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub pid: i32,
    /// Its program.
    pub program: String,
    pub identity: Identity,
    /// The verdict on this process alone.
    pub verdict: Verdict,
    /// The problem inside of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Told>,
    /// Its main thread.
    pub main: Doing,
    /// Waits for other processes: of the main thread, and of threads that it waits for; and of others in operations between ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<RankWait>,
    /// Other threads that run the program's code and may do something for other ranks.
    #[serde(default)]
    pub others: usize,
    /// The first of these that may act, whatever the rank waits for. Since 1.8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_thread: Option<Doing>,
    /// Its TCP connections, this end and the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<(String, String)>,
    /// The bytes that each of these connections has carried, both ways together; none if nobody counts. Since 1.5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Option<u64>>,
    /// Its role in a cluster of workers. (Since 1.2.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterMember>,
    /// How many threads it has. Since 1.4.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub threads: usize,
    /// Threads by their class: its place among those of the sample, and how many. Until 1.3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<(usize, usize)>,
    /// Processes that work for it, and that it waits for. Since 1.4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helpers: Vec<Helper>,
    /// The last operation that it enqueued in each group of ranks. Since 1.2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enqueued: Vec<Enqueued>,
    /// One of its threads waits for a GPU. Since 1.5.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_gpu: bool,
    /// A witness's account of it that is no wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnessed: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Member {
    /// Its connections, and what each has carried where that is counted.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&str, &str, Option<u64>)> {
        let counts = self.carried.iter().copied().chain(std::iter::repeat(None));
        self.connections.iter().zip(counts).map(|((local, remote), count)| (local.as_str(), remote.as_str(), count))
    }

    /// How many threads it has, as any version says it.
    pub(super) fn count_of_threads(&self) -> usize {
        self.classes.iter().fold(self.threads, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// A finding inside of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub code: String,
    pub title: String,
    pub message: String,
    pub certainty: Certainty,
    /// Threads of this process that take part. (Since 1.2.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tids: Vec<i32>,
}

/// A process that inherited a rank from another one and works for that, as a DataLoader's worker does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Helper {
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// `worker of a PyTorch DataLoader`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its main thread.
    pub main: Doing,
}

/// The activity of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doing {
    pub tid: i32,
    pub name: String,
    pub state: ThreadState,
    /// The line of the program where it is.
    pub place: String,
    /// The object that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
}

fn time(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc())
}

/// A wait for another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankWait {
    pub tid: i32,
    /// The main thread cannot go on without it.
    pub holds_up_main: bool,
    pub label: String,
    pub place: String,
    pub timed: bool,
    pub certainty: Certainty,
    /// How long the thread has slept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// How long the thread ran within the call without leaving it, from the round before until this sample was over, as
    /// far as that was counted. Since 1.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled_ms: Option<u64>,
    /// How much of that it had run how long after the end of the sample before, in milliseconds both: after which, how
    /// much. For ranks that were sampled at other times. Since 1.7.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub polled_by: Vec<(u64, u64)>,
    /// Likewise, that it has left the call since then, and so is in another one. Since 1.7.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// The operation between ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<Collective>,
    /// The TCP connection, this end and the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<(String, String)>,
    /// The process that has what the main thread needs in the end. Since 1.8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<HeldBy>,
}

/// The process of a rank that has what another rank waits for, or the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldBy {
    pub pid: i32,
    /// It holds a lock. Else it is the only process at the other end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_lock: bool,
    /// The waits between the main thread and this one, for the beginning of a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    pub evidence: String,
}

/// Threads with equal stacks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Class {
    pub name: String,
    pub state: String,
    /// Kinds of the objects that they wait for.
    pub waits: Vec<String>,
    pub place: String,
    /// A digest of the functions of the stack.
    pub stack: String,
}

/// Why a file is no digest that can be taken in.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum DigestError {
    /// Something else.
    #[error("`{path}` is no digest of lockscope's: {why}; `lockscope job -o FILE` writes one")]
    NotOne {
        /// The file.
        path: String,
        /// The missing part.
        why: String,
    },
    /// Written by a later version.
    #[error(
        "`{path}` was written by lockscope {writer} in version {version} of digests, which this one does not know; merge with that one"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        version: String,
        /// The version of lockscope that wrote it.
        writer: String,
    },
    /// Cut, or changed.
    #[error("`{path}` is damaged: {why}; copy it again, or look again")]
    Damaged {
        /// The file.
        path: String,
        /// The damage.
        why: String,
    },
}

impl Look {
    /// When it began, by the clock of its machine.
    pub(crate) fn begin(&self) -> Option<DateTime<Utc>> {
        time(&self.began)
    }

    /// When it was over, likewise.
    pub(crate) fn end(&self) -> Option<DateTime<Utc>> {
        time(&self.ended)
    }

    /// Marks these ranks, which run in these processes, as left out, with the reason. A gap of one of these processes
    /// becomes a gap of the job.
    #[must_use]
    pub(crate) fn without(mut self, ranks: impl IntoIterator<Item = (u32, i32)>) -> Look {
        for (rank, pid) in ranks {
            if self.members.iter().any(|member| member.pid == pid) {
                continue;
            }
            let is_its = |gap: &Gap| gap.what == format!("process {pid}");
            let why = self.gaps.iter().find(|gap| is_its(gap)).map(|gap| gap.why.clone());
            self.gaps.retain(|gap| !is_its(gap));
            self.left_out.extend(why.map(|why| LeftOut { rank, why: shortened(&why) }));
        }
        self.named()
    }

    /// The same sample with the name of its content.
    #[must_use]
    pub(crate) fn named(mut self) -> Look {
        self.id = self.content();
        self
    }

    /// The name that its content gives it; it has none while that is found.
    fn content(&mut self) -> String {
        let own = std::mem::take(&mut self.id);
        let name = content::name(self);
        self.id = own;
        name
    }
}

impl Digest {
    /// Take in a sample; one that is there already stays.
    pub(crate) fn add(&mut self, look: Look) {
        let look = if look.id.is_empty() { look.named() } else { look };
        self.looks.insert(look.id.clone(), look);
    }

    /// Take in all samples of another.
    pub(crate) fn merge(&mut self, other: Digest) {
        self.looks.extend(other.looks);
        self.witnesses.extend(other.witnesses);
        self.sets.extend(other.sets);
        self.later = self.later.take().max(other.later);
    }

    /// Whether it has nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.looks.is_empty() && self.witnesses.is_empty() && self.sets.is_empty()
    }

    /// The same samples after changes.
    pub(super) fn with_looks(&self, looks: Vec<Look>) -> Digest {
        let mut with = Digest { looks: BTreeMap::new(), ..self.clone() };
        looks.into_iter().for_each(|look| with.add(look));
        with
    }

    /// The samples that a set of this name has.
    pub(super) fn set(&self, name: &str) -> Option<&BTreeSet<String>> {
        self.sets.get(name)
    }

    /// Take in another program's account of ranks.
    pub(crate) fn add_witness(&mut self, witness: Witness) {
        self.witnesses.insert(witness.id.clone(), witness);
    }

    /// The witnesses, in order of their names.
    pub(super) fn witnesses(&self) -> impl Iterator<Item = &Witness> {
        self.witnesses.values()
    }

    /// The samples, in order of their names.
    pub(crate) fn looks(&self) -> impl Iterator<Item = &Look> {
        self.looks.values()
    }

    /// The version of the files that it was read from, if that is a later one. Their samples are named by content that
    /// this version does not know. So the digest can be reported, but not written again.
    pub(crate) fn later_version(&self) -> Option<&str> {
        self.later.as_deref()
    }

    /// The file: equal digests are equal bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let written = Written {
            schema: SCHEMA.to_owned(),
            version: VERSION.to_owned(),
            lockscope: env!("CARGO_PKG_VERSION").to_owned(),
            looks: self.looks.values().cloned().collect(),
            witnesses: self.witnesses.values().cloned().collect(),
            sets: self.sets.clone(),
        };
        let mut bytes = serde_json::to_vec(&written).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Whether these bytes say that they are a digest.
    pub(crate) fn is_one(bytes: &[u8]) -> bool {
        bytes.get(..64).unwrap_or(bytes).windows(SCHEMA.len()).any(|part| part == SCHEMA.as_bytes())
    }

    /// A file again; `path` names it in errors.
    pub(crate) fn read(bytes: &[u8], path: &str) -> Result<Digest, DigestError> {
        let path = || path.to_owned();
        if !Digest::is_one(bytes) {
            return Err(DigestError::NotOne { path: path(), why: "it does not begin as one".to_owned() });
        }
        let damaged = |why: String| DigestError::Damaged { path: path(), why };
        let read = serde_json::from_slice::<Written>(bytes);
        let header = match &read {
            Ok(written) => Header::of(written),
            // One of a later version need not have what this one wants.
            Err(_) => serde_json::from_slice(bytes).map_err(|error| damaged(what_is_wrong(&error)))?,
        };
        let version = header.version.unwrap_or_default();
        if header.schema.as_deref() != Some(SCHEMA) {
            return Err(DigestError::NotOne { path: path(), why: "its schema has another name".to_owned() });
        }
        if version.split('.').next() != VERSION.split('.').next() {
            let writer = header.lockscope.unwrap_or_else(|| "of another version".to_owned());
            return Err(DigestError::Newer { path: path(), version, writer });
        }
        let written = read.map_err(|error| damaged(what_is_wrong(&error)))?;
        let later = (!KNOWN.contains(&version.as_str())).then(|| version.clone());
        let mut digest = Digest { later, ..Digest::default() };
        for mut look in written.looks {
            // A later version may have added to it what this one does not know, and names it by that too.
            if KNOWN.contains(&version.as_str()) && look.content() != look.id {
                return Err(damaged("a look in it was changed after it was written".to_owned()));
            }
            digest.add(look);
        }
        for witness in written.witnesses {
            if KNOWN.contains(&version.as_str()) && witness.content() != witness.id {
                return Err(damaged("a witness in it was changed after it was written".to_owned()));
            }
            digest.add_witness(witness);
        }
        for (name, names) in written.sets {
            if name_of_set(&names) != name {
                return Err(damaged("a set of looks in it was changed after it was written".to_owned()));
            }
            digest.sets.insert(name, names);
        }
        Ok(digest)
    }
}

fn what_is_wrong(error: &serde_json::Error) -> String {
    if error.is_eof() { "it is cut".to_owned() } else { format!("it cannot be read ({error})") }
}

//! A dump of PyTorch's Flight Recorder: the operations that one rank has enqueued lately, with the lines that did it.
//!
//! In: the dump, as a pickle (`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`) or JSON (`_dump_fr_trace_json`), version 2. Out: an [`Account`] for
//! each group of the rank. An operation that the recorder has retired, or calls completed, is over. The dump does not say whose it is: that
//! is the number at the end of the file's name, as PyTorch writes it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Account;
use crate::limits::job::LARGEST_JOB;
use crate::report::Gap;
use crate::waits::collective::{Called, Collective, synchronises};

/// Folders of libraries: the line of the program is the first that is in none.
const LIBRARIES: [&str; 4] = ["/site-packages/", "/dist-packages/", "/lib/python3", "/torch/"];

/// Whether a dump is one, by its shape.
pub(super) fn is_one(value: &Value) -> bool {
    value.get("entries").is_some_and(Value::is_array) && value.get("pg_config").is_some_and(Value::is_object)
}

/// One account for each group.
pub(super) fn accounts(value: &Value, file: &str) -> Result<(Vec<Account>, Vec<Gap>), String> {
    if !is_one(value) {
        return Err("it has no `entries` and `pg_config`".to_owned());
    }
    let version = value.get("version").and_then(Value::as_str).unwrap_or_default();
    if !version.starts_with("2.") {
        return Err(format!("it is of version `{version}`, and only 2 is known"));
    }
    let rank = rank_of(value, file).ok_or_else(|| {
        "nothing says of which rank it is: its name ends in no number, as PyTorch's do; give it that name".to_owned()
    })?;
    let groups = Groups::of(value);
    let entries: &[Value] = value.get("entries").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut found: BTreeMap<String, Account> = BTreeMap::new();
    let mut begun: BTreeMap<String, u64> = BTreeMap::new();
    for entry in entries {
        let (number, name) = groups.of_entry(entry);
        let account = found.entry(number.clone()).or_insert_with(|| Account {
            rank,
            pid: None,
            group: name,
            ranks: groups.ranks(&number),
            last: None,
            inside: None,
            data: String::new(),
            place: String::new(),
            since: None,
        });
        let is_message = entry.get("is_p2p").and_then(Value::as_bool).unwrap_or(false);
        let seq = number_of(entry, if is_message { "p2p_seq_id" } else { "collective_seq_id" });
        if !is_message {
            account.last = account.last.max(seq);
        }
        let over = entry.get("retired").and_then(Value::as_bool).unwrap_or(false)
            || entry.get("state").and_then(Value::as_str) == Some("completed");
        let order = number_of(entry, "record_id").or_else(|| number_of(entry, "time_created_ns")).unwrap_or(0);
        // The last one that it has entered, until there is one that it has not left.
        if account.inside.is_none() && seq.is_some() && seq == account.last {
            account.data = data(entry);
            account.place = place(entry);
        }
        if over || begun.get(&number).is_some_and(|first| *first <= order) {
            continue;
        }
        begun.insert(number, order);
        account.inside = Some(operation(entry, account, seq, is_message));
        account.data = data(entry);
        account.place = place(entry);
        account.since = number_of(entry, "time_created_ns");
    }
    let gaps = if entries.is_empty() {
        vec![Gap::new(format!("what rank {rank} has enqueued"), "its Flight Recorder is empty")]
    } else {
        Vec::new()
    };
    Ok((found.into_values().collect(), gaps))
}

/// The rank of the job: the dump's own word where it has one, else the number at the end of the file's name.
fn rank_of(value: &Value, file: &str) -> Option<u32> {
    let own = value.get("rank").and_then(Value::as_u64);
    let stem = file.rsplit('/').next()?.split('.').next()?;
    let digits = stem.len() - stem.bytes().rev().take_while(u8::is_ascii_digit).count();
    let named = || stem.get(digits..).and_then(|number| number.parse().ok());
    own.or_else(named).and_then(|rank| u32::try_from(rank).ok()).filter(|rank| *rank < LARGEST_JOB)
}

/// A number, which JSON of some versions has as a text.
fn number_of(entry: &Value, name: &str) -> Option<u64> {
    let value = entry.get(name)?;
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

/// The groups of the dump.
struct Groups<'v> {
    config: Option<&'v serde_json::Map<String, Value>>,
    /// Descriptions that several groups have.
    shared: BTreeSet<&'v str>,
}

impl<'v> Groups<'v> {
    fn of(value: &'v Value) -> Groups<'v> {
        let (mut first, mut shared) = (BTreeMap::new(), BTreeSet::new());
        for entry in value.get("entries").and_then(Value::as_array).into_iter().flatten() {
            if let Some((name, described)) = name_of(entry)
                && *first.entry(described).or_insert(name) != name
            {
                shared.insert(described);
            }
        }
        Groups { config: value.get("pg_config").and_then(Value::as_object), shared }
    }

    /// Its name in the dump, and one for people that all its ranks have.
    fn of_entry(&self, entry: &Value) -> (String, String) {
        let Some((name, described)) = name_of(entry) else { return (String::new(), "a group".to_owned()) };
        let told = match described {
            "" | "undefined" => format!("group {name}"),
            described if self.shared.contains(described) => format!("{described} {name}"),
            described => described.to_owned(),
        };
        (name.to_owned(), told)
    }

    /// Its ranks in the job; none of a group that is not described.
    fn ranks(&self, name: &str) -> Vec<u32> {
        let Some(config) = self.config else { return Vec::new() };
        let named = |group: &&Value| group.get("name").and_then(Value::as_str) == Some(name);
        // A dump of a job with one group may call it by no name there.
        let group = config.get(name).or_else(|| config.values().find(named));
        let group = group.or_else(|| config.values().next().filter(|_| config.len() == 1));
        match group.and_then(|group| group.get("ranks")) {
            Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
            Some(list) => serde_json::from_value(list.clone()).unwrap_or_default(),
            None => Vec::new(),
        }
    }
}

/// Name and description of an entry's group.
fn name_of(entry: &Value) -> Option<(&str, &str)> {
    let group = entry.get("process_group")?;
    Some((group.get(0)?.as_str()?, group.get(1).and_then(Value::as_str).unwrap_or_default()))
}

/// `nccl:all_reduce`, `nccl:_all_gather_base`, `nccl:recv 1<-0`.
fn operation(entry: &Value, account: &Account, seq: Option<u64>, is_message: bool) -> Collective {
    let named = entry.get("profiling_name").and_then(Value::as_str).unwrap_or_default();
    let Called { backend, op: name, other } = Called::of(named);
    let in_job = |number: u32| match account.ranks.is_empty() {
        true => Some(number),
        false => account.ranks.get(usize::try_from(number).ok()?).copied(),
    };
    let place = account.ranks.iter().position(|rank| *rank == account.rank);
    Collective {
        backend: backend.to_owned(),
        group: Some(account.group.clone()),
        op: name.to_owned(),
        seq,
        rank: place.and_then(|place| u32::try_from(place).ok()),
        size: u32::try_from(account.ranks.len()).ok().filter(|size| *size > 0 && !is_message),
        peers: other.and_then(in_job).into_iter().collect(),
        synchronises: !is_message && synchronises(name),
        ..Collective::default()
    }
}

/// `Float [8, 4]`: what all ranks must give alike.
fn data(entry: &Value) -> String {
    let types = entry.get("input_dtypes").and_then(Value::as_array).into_iter().flatten();
    let sizes = entry.get("input_sizes").and_then(Value::as_array).into_iter().flatten();
    let part = |(kind, size): (&Value, &Value)| {
        let size: Vec<String> = size.as_array().into_iter().flatten().map(Value::to_string).collect();
        format!("{} [{}]", kind.as_str().unwrap_or_default(), size.join(", "))
    };
    types.zip(sizes).map(part).collect::<Vec<_>>().join(", ")
}

/// The first line that is no library's: `train.py:88 step`.
fn place(entry: &Value) -> String {
    let frames = entry.get("frames").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_python = |frame: &&Value| text(frame, "filename").ends_with(".py");
    let is_own = |frame: &&Value| !LIBRARIES.iter().any(|part| text(frame, "filename").contains(part));
    let python = || frames.iter().filter(is_python);
    let Some(frame) = python().find(is_own).or_else(|| python().next()) else { return String::new() };
    let file = text(frame, "filename").rsplit('/').next().unwrap_or_default();
    format!("{file}:{} {}", number_of(frame, "line").unwrap_or(0), text(frame, "name"))
}

fn text<'v>(frame: &'v Value, name: &str) -> &'v str {
    frame.get(name).and_then(Value::as_str).unwrap_or_default()
}

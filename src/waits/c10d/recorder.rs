//! PyTorch's Flight Recorder in memory: which operations a rank has enqueued, and so which it has not.
//!
//! In: a process. Out: a [`Recorder`]. It is on by default, also for gloo. Reading it needs no running code: its object
//! is a static variable, whose name the file's symbols have. Its shape shows the offsets of its parts. The entries are
//! numbered, and their count gives their size. The name of the operation (`gloo:all_reduce`) gives the offset of the
//! fields before it. Their order has been the same since 2.1 (torch/csrc/distributed/c10d/FlightRecorder.hpp, `Entry`).
//! Seen on 2.15.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::BTreeMap;

use super::gloo::vector;
use super::store::text;
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::c10d::{
    LARGEST_ENTRY, LARGEST_GROUP, LARGEST_NUMBER, MOST_ENTRIES, MOST_GROUPS, MOST_MAPPED, MOST_RECORDED,
    WORDS_OF_OBJECT,
};
use crate::waits::collective::{Called, Enqueued};
use crate::waits::thread::Process;

/// The static variables: of gloo and others, of NCCL since 2.15 and before, and before 2.7.
const INSTANCES: [&str; 4] = [
    "_ZZN4c10d14FlightRecorderIN3c105EventEE3getEvE8instance",
    "_ZZN4c10d14FlightRecorderIN3c104cuda9CUDAEventEE3getEvE8instance",
    "_ZZN4c10d14FlightRecorderIN2at4cuda9CUDAEventEE3getEvE8instance",
    "_ZZN4c10d14FlightRecorder3getEvE9instance_",
];
/// Libraries that have one.
const LIBRARIES: [&str; 2] = ["libtorch_cpu.so", "libtorch_cuda.so"];

/// Members of the recorder: `enabled_`, and the vector of entries, which a search finds. Behind it are `max_entries_`,
/// `next_` and `id_`.
mod ring {
    pub(super) const CAPACITY_BEHIND_ENTRIES: u64 = 24;
    pub(super) const NEXT_BEHIND_ENTRIES: u64 = 32;
    pub(super) const COUNT_BEHIND_ENTRIES: u64 = 40;
}

/// Members of an entry, before its name: the tuple of a group's name and description, which libstdc++ stores backwards, and the
/// numbers of collectives and messages; and `isP2P_` behind it. `retired_` is the last.
mod entry {
    pub(super) const DESCRIPTION: u64 = 88;
    pub(super) const GROUP: u64 = 56;
    pub(super) const COLLECTIVE: u64 = 24;
    pub(super) const MESSAGE: u64 = 16;
    pub(super) const IS_MESSAGE_BEHIND: u64 = 80;
    pub(super) const RETIRED_FROM_END: u64 = 8;
}

/// A node of libstdc++'s `std::map`: colour, parent, left, right; then what it has.
mod node {
    pub(super) const PARENT: u64 = 8;
    pub(super) const LEFT: u64 = 16;
    pub(super) const RIGHT: u64 = 24;
    pub(super) const CONTENT: u64 = 32;
    pub(super) const VALUE: u64 = CONTENT + 64;
    pub(super) const COUNT_BEHIND_HEADER: u64 = 32;
}

/// An operation that the rank has enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) group: String,
    pub(super) description: String,
    /// `gloo:all_reduce`.
    pub(super) name: String,
    pub(super) seq: u64,
    pub(super) is_message: bool,
    pub(super) retired: bool,
}

/// The content of a process's recorder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Recorder {
    /// The last ones, in the order in which they were enqueued.
    pub(super) entries: Vec<Entry>,
    /// Ranks of the job in each group.
    pub(super) ranks: BTreeMap<String, Vec<u32>>,
}

impl Recorder {
    /// That of a process; `None` where it has none, or none that can be read.
    pub(super) fn of(process: &Process<'_>) -> Option<Recorder> {
        let modules = &process.context.symbols.modules().list;
        let has_one = |name: &str| LIBRARIES.iter().any(|library| name.starts_with(library));
        let all = modules.iter().enumerate().filter(|(_, module)| has_one(&module.name));
        let instances = all.flat_map(|(index, _)| {
            INSTANCES.into_iter().filter_map(move |name| process.context.symbols.find(index, name))
        });
        instances.into_iter().find_map(|symbol| {
            let at = process.memory().u64(symbol.address).ok().filter(|at| *at != 0)?;
            Recorder::read(process.memory(), Addr(at))
        })
    }

    /// The recorder at `at`.
    pub(super) fn read(memory: &dyn Memory, at: Addr) -> Option<Recorder> {
        if memory.u8(at).ok()? != 1 {
            return None;
        }
        (1..WORDS_OF_OBJECT).map(|word| at + 8 * word).find_map(|place| {
            let entries = entries(memory, place)?;
            let ranks = (6..WORDS_OF_OBJECT).map(|word| place + 8 * word).find_map(|at| ranks(memory, at, &entries));
            Some(Recorder { entries, ranks: ranks.unwrap_or_default() })
        })
    }

    /// A group's name for people, which all its ranks have for it.
    pub(super) fn called(&self, entry: &Entry) -> String {
        match entry.description.as_str() {
            "" | "undefined" => format!("group {}", entry.group),
            described => {
                let shared = self.entries.iter().any(|one| one.description == described && one.group != entry.group);
                if shared { format!("{described} {}", entry.group) } else { described.to_owned() }
            }
        }
    }

    /// That it has an operation, as evidence.
    pub(super) fn says(&self, entry: &Entry) -> String {
        format!("the Flight Recorder has it as number {} of {}: {}", entry.id, self.called(entry), entry.name)
    }

    /// The first operation of a back end that was enqueued and is not done.
    pub(super) fn first_open(&self, backend: &str) -> Option<&Entry> {
        let is_of = |entry: &&Entry| !entry.retired && Called::of(&entry.name).backend == backend;
        self.entries.iter().filter(is_of).min_by_key(|entry| entry.id)
    }

    /// The last collective of each group that the rank has enqueued.
    pub(super) fn enqueued(&self) -> Vec<Enqueued> {
        let mut groups: BTreeMap<&str, &Entry> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| !entry.is_message) {
            let last = groups.entry(&entry.group).or_insert(entry);
            if last.seq <= entry.seq {
                *last = entry;
            }
        }
        let of = |entry: &&Entry| {
            let (backend, op) = entry.name.split_once(':').unwrap_or(("torch", &entry.name));
            Enqueued {
                backend: backend.to_owned(),
                group: self.called(entry),
                last: entry.seq,
                op: op.to_owned(),
                over: entry.retired,
                size: self.ranks.get(&entry.group).and_then(|ranks| u32::try_from(ranks.len()).ok()),
            }
        };
        groups.values().map(of).take(MOST_GROUPS).collect()
    }
}

/// The last entries of the vector at `place`, oldest first.
fn entries(memory: &dyn Memory, place: Addr) -> Option<Vec<Entry>> {
    let (begin, end) = vector(memory, place)?;
    let most = memory.u64(place + ring::CAPACITY_BEHIND_ENTRIES).ok()?;
    let next = memory.u64(place + ring::NEXT_BEHIND_ENTRIES).ok()?;
    let recorded = memory.u64(place + ring::COUNT_BEHIND_ENTRIES).ok()?;
    let length = end - begin;
    if begin.is_null() || length == 0 || most == 0 || most > MOST_ENTRIES || next > most || recorded == 0 {
        return None;
    }
    // It grows until it is a ring, so its size is that of the recorded entries.
    let count = recorded.min(most);
    let stride = length / count;
    let is_one = length.is_multiple_of(count) && stride.is_multiple_of(8) && (128..LARGEST_ENTRY).contains(&stride);
    // Where which entry stands follows from its number.
    let numbered = |index: u64| {
        let own = memory.u64(begin + index * stride).ok();
        own.is_some_and(|id| id < recorded && id % most == index)
    };
    if !is_one || !(0..count.min(4)).all(numbered) {
        return None;
    }
    let named = (2..stride / 8).map(|word| 8 * word).find(|offset| {
        *offset >= entry::DESCRIPTION && text(memory, begin + *offset).is_some_and(|name| is_operation(&name))
    })?;
    let newest = recorded.checked_sub(1)? % most;
    let mut found = Vec::new();
    for back in 0..count.min(MOST_RECORDED) {
        let index = (newest + count - back % count) % count;
        let Some(one) = entry(memory, begin + index * stride, stride, named) else { break };
        found.push(one);
    }
    found.reverse();
    (!found.is_empty()).then_some(found)
}

/// `gloo:all_reduce`, `nccl:recv 1<-0`.
fn is_operation(name: &str) -> bool {
    name.split_once(':').is_some_and(|(backend, operation)| {
        !backend.is_empty() && backend.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !operation.is_empty()
    })
}

fn entry(memory: &dyn Memory, at: Addr, stride: u64, named: u64) -> Option<Entry> {
    let field = |before: u64| named.checked_sub(before).map(|offset| at + offset);
    let name = text(memory, at + named).filter(|name| is_operation(name))?;
    let is_message = memory.u8(at + named + entry::IS_MESSAGE_BEHIND).ok().filter(|flag| *flag < 2)? == 1;
    let retired = memory.u8(at + stride - entry::RETIRED_FROM_END).ok().filter(|flag| *flag < 2)? == 1;
    let number = field(if is_message { entry::MESSAGE } else { entry::COLLECTIVE })?;
    Some(Entry {
        id: memory.u64(at).ok()?,
        group: text(memory, field(entry::GROUP)?).unwrap_or_default(),
        description: text(memory, field(entry::DESCRIPTION)?).unwrap_or_default(),
        name,
        seq: memory.u64(number).ok().filter(|seq| *seq < LARGEST_NUMBER)?,
        is_message,
        retired,
    })
}

/// The map from groups to their ranks, if the header of one is at `at`: its keys are groups of the entries.
fn ranks(memory: &dyn Memory, at: Addr, entries: &[Entry]) -> Option<BTreeMap<String, Vec<u32>>> {
    let count = memory.u64(at + node::COUNT_BEHIND_HEADER).ok()?;
    if count == 0 || count > MOST_MAPPED {
        return None;
    }
    let root = memory.u64(at + node::PARENT).ok()?;
    let mut open = vec![root];
    let mut found = BTreeMap::new();
    let mut left = count;
    while let Some(word) = open.pop() {
        if word == 0 {
            continue;
        }
        left = left.checked_sub(1)?;
        let node = Addr(word);
        let (name, list) = (text(memory, node + node::CONTENT + 32)?, vector(memory, node + node::VALUE)?);
        let length = list.1 - list.0;
        if !length.is_multiple_of(8) || length / 8 > u64::from(LARGEST_GROUP) {
            return None;
        }
        let numbers: Option<Vec<u32>> =
            (0..length / 8).map(|index| u32::try_from(memory.u64(list.0 + 8 * index).ok()?).ok()).collect();
        found.insert(name, numbers?);
        open.push(memory.u64(node + node::LEFT).ok()?);
        open.push(memory.u64(node + node::RIGHT).ok()?);
    }
    let is_known = entries.iter().any(|entry| found.contains_key(&entry.group));
    (left == 0 && is_known).then_some(found)
}

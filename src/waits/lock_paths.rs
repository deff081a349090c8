//! Names for locks that have none: the path to them from a variable of the program, `bank.accounts[1].guard` of main.
//!
//! In: resources, the threads that wait for them or have them, and the paths of debug information
//! ([`LockPath`](crate::symbols::LockPath)). Out: better names. A name that leads to two locks is none: the parameters of a function
//! that runs in two threads have one name for two locks. Then the member and its class name the lock, `Account::guard`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::kinds::World;
use super::model::{Party, Resource, ResourceKey};
use super::observations::Observations;
use super::thread::{Process, ThreadView};
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::waits::{MOST_ELEMENTS, PATH_FRAMES, PATH_READS, PATH_THREADS};
use crate::symbols::{LockPath, Step};

/// Name the locks.
pub(super) fn find(processes: &[Process<'_>], out: &mut Observations) {
    for (position, process) in processes.iter().enumerate() {
        let is_open = |resource: &&Resource| resource.process == position && is_nameless(process, resource);
        let open: Vec<ResourceKey> = out.resources.iter().filter(is_open).map(|one| one.key.clone()).collect();
        if open.is_empty() {
            continue;
        }
        let addresses = open.iter().map(|key| key.address).collect();
        let mut search = Search { process, addresses, reads: PATH_READS, found: Vec::new() };
        for thread in concerned(process, &open, out) {
            search.thread(thread);
        }
        let names = search.names();
        for resource in out.resources.iter_mut().filter(|one| open.contains(&one.key)) {
            let Some((name, function)) = names.get(&resource.key.address) else { continue };
            let label = std::mem::take(&mut resource.label);
            let detail = label.detail.clone();
            resource.label = super::label::Label {
                noun: label.noun,
                wanted: label.wanted,
                detail,
                function: function.clone(),
                name: Some(name.clone()),
                ..Default::default()
            };
        }
    }
}

/// Whether a lock is called by its address, or by its distance from the start of an object.
fn is_nameless(process: &Process<'_>, resource: &Resource) -> bool {
    let label = &resource.label;
    let is_native = resource.key.kind.world == World::Native && !resource.key.address.is_null();
    let is_own = process.context.image.mapping(resource.key.address).is_some();
    is_native && is_own && (label.name.is_none() && label.at.is_some() || label.name.is_some() && label.offset != 0)
}

/// The main thread, and those that wait for these resources or have them.
fn concerned<'p, 'a>(
    process: &'p Process<'a>,
    open: &[ResourceKey],
    out: &Observations,
) -> impl Iterator<Item = &'p ThreadView<'a>> {
    let waiters = out.waits.iter().filter(|wait| open.contains(&wait.resource)).map(|wait| &wait.waiter);
    let holders = out.holds.iter().filter(|hold| open.contains(&hold.resource)).map(|hold| &hold.holder);
    let position = |party: &Party| match party {
        Party::Thread(of, tid) if *of == process.context.process => process.position(*tid),
        _ => None,
    };
    let main = process.position(process.context.image.pid);
    let mut seen = BTreeSet::new();
    let others: Vec<usize> = waiters.chain(holders).filter_map(position).collect();
    let all = main.into_iter().chain(others).filter(move |position| seen.insert(*position)).take(PATH_THREADS);
    let all: Vec<usize> = all.collect();
    all.into_iter().filter_map(|position| process.threads.get(position))
}

/// A way to a lock.
struct Found {
    address: Addr,
    name: String,
    function: Option<String>,
    member: Option<String>,
}

struct Search<'p, 'a> {
    process: &'p Process<'a>,
    addresses: BTreeSet<Addr>,
    /// Words that may still be read.
    reads: usize,
    found: Vec<Found>,
}

impl Search<'_, '_> {
    /// The variables of the outermost frames reach furthest.
    fn thread(&mut self, thread: &ThreadView<'_>) {
        let Some(merged) = thread.thread else { return };
        let has_lines =
            |native: usize| thread.frames().iter().any(|frame| frame.native == Some(native) && frame.file.is_some());
        let frames = merged.native.frames.iter().enumerate().rev();
        for (_, frame) in frames.filter(|(native, _)| has_lines(*native)).take(PATH_FRAMES) {
            for path in self.process.context.symbols.lock_paths(frame.lookup) {
                let Some(start) = path.place.address(frame.cfa, &frame.registers) else { continue };
                self.follow(&path, &path.steps, start, &mut Vec::new());
            }
        }
    }

    /// Follow the rest of a path from an address, with the numbers of elements so far.
    fn follow(&mut self, path: &LockPath, steps: &[Step], at: Addr, numbers: &mut Vec<u64>) {
        let Some((step, rest)) = steps.split_first() else {
            if self.addresses.contains(&at) {
                self.found.push(Found {
                    address: at,
                    name: path.named(numbers),
                    function: path.function.as_deref().map(|name| name.split('(').next().unwrap_or(name).to_owned()),
                    member: path.member.clone(),
                });
            }
            return;
        };
        let memory = self.process.memory();
        let Some((elements, stride, count)) = (match step {
            Step::Bytes(more) => return self.follow(path, rest, at + *more, numbers),
            Step::Pointer => {
                let Some(to) = self.word(memory, at).filter(|to| !to.is_null()) else { return };
                return self.follow(path, rest, to, numbers);
            }
            Step::Nodes { links } => {
                for node in self.nodes(memory, at, links) {
                    self.follow(path, rest, node, numbers);
                }
                return;
            }
            Step::Elements { stride, count } => Some((at, *stride, *count)),
            Step::Between { first, end, stride } => {
                let ends = self.word(memory, at + *first).zip(self.word(memory, at + *end));
                ends.and_then(|(first, end)| Some((first, *stride, end.0.checked_sub(first.0)? / stride)))
            }
            Step::Counted { pointer, length, stride } => {
                let both = self.word(memory, at + *pointer).zip(self.word(memory, at + *length));
                both.map(|(first, length)| (first, *stride, length.0))
            }
        }) else {
            return;
        };
        // A lock in the elements themselves needs no reading.
        for number in 0..count.min(MOST_ELEMENTS) {
            if self.reads == 0 {
                return;
            }
            numbers.push(number);
            self.follow(path, rest, elements + number.wrapping_mul(stride), numbers);
            numbers.pop();
        }
    }

    fn word(&mut self, memory: &dyn Memory, at: Addr) -> Option<Addr> {
        self.reads = self.reads.checked_sub(1)?;
        memory.pointer(at).ok()
    }

    /// The nodes that a pointer leads to.
    fn nodes(&mut self, memory: &dyn Memory, pointer: Addr, links: &[u64]) -> Vec<Addr> {
        let mut open: Vec<Addr> = self.word(memory, pointer).into_iter().collect();
        let mut seen = HashSet::new();
        let mut nodes = Vec::new();
        while let Some(node) = open.pop().filter(|_| (nodes.len() as u64) < MOST_ELEMENTS) {
            if node.is_null() || !seen.insert(node) {
                continue;
            }
            nodes.push(node);
            for link in links {
                open.extend(self.word(memory, node + *link));
            }
        }
        nodes
    }

    /// A name for each address that was found: the first that leads to no other, else the member.
    fn names(self) -> BTreeMap<Addr, (String, Option<String>)> {
        let mut led: BTreeMap<(&str, Option<&str>), BTreeSet<Addr>> = BTreeMap::new();
        for found in &self.found {
            led.entry((&found.name, found.function.as_deref())).or_default().insert(found.address);
        }
        let is_only = |found: &&Found| {
            led.get(&(found.name.as_str(), found.function.as_deref())).is_some_and(|addresses| addresses.len() == 1)
        };
        let name = |address: &Addr| {
            let of_it = || self.found.iter().filter(|found| found.address == *address);
            let only = of_it().find(is_only).map(|found| (found.name.clone(), found.function.clone()));
            let any = || {
                let member = of_it().find_map(|found| found.member.clone());
                Some((member.or_else(|| of_it().next().map(|found| found.name.clone()))?, None))
            };
            Some((*address, only.or_else(any)?))
        };
        self.addresses.iter().filter_map(name).collect()
    }
}

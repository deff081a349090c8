//! Names for locks that have none: the path to them from a variable of the program, `bank.accounts[1].guard` of main.
//!
//! In: resources, the threads that wait for them or have them, and the paths of debug information
//! ([`LockPath`]). Out: better names. A name that leads to two locks is none: the parameters of a
//! function that runs in two threads have one name for two locks. Then the member and its class name the lock,
//! `Account::guard`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::kinds::{self, World};
use super::model::{Party, Resource, ResourceKey};
use super::observations::Observations;
use super::thread::{Process, ThreadView};
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::waits::{MOST_ELEMENTS, PATH_FRAMES, PATH_READS, PATH_THREADS};
use crate::symbols::{LockPath, Step, is_of_library};
use crate::unwind::NativeFrame;

/// Bytes of the largest lock of a C library (`pthread_rwlock_t` of glibc).
const SIZE_OF_LOCK: u64 = 56;

/// The same of locks that are words, as those of Rust's standard library: all else there is what they guard.
const SIZE_OF_WORDS: u64 = 16;

/// Name the locks.
pub(super) fn find(processes: &[Process<'_>], out: &mut Observations) {
    for (position, process) in processes.iter().enumerate() {
        let is_open = |resource: &&Resource| resource.process == position && is_nameless(process, resource);
        let open: Vec<ResourceKey> = out.resources.iter().filter(is_open).map(|one| one.key.clone()).collect();
        if open.is_empty() {
            continue;
        }
        let addresses: BTreeSet<Addr> = open.iter().map(|key| key.address).collect();
        // Members of data are called by the data's name, not by a variable that leads there.
        let is_data = |key: &ResourceKey| out.resource(key).is_some_and(|one| one.label.name.is_some());
        let data_first = open.iter().any(is_data);
        let mut search = Search { process, addresses, reads: PATH_READS, data: HashSet::new(), found: Vec::new() };
        let frames: Vec<&NativeFrame> = concerned(process, &open, out).flat_map(frames_of_program).collect();
        search.find(&frames, data_first);
        let names = search.names();
        for resource in out.resources.iter_mut().filter(|one| open.contains(&one.key)) {
            let Some((name, function)) = names.get(&resource.key.address) else { continue };
            // The whole object is called as its symbol says, which has its namespace.
            let is_whole = resource.label.name.is_some() && resource.label.offset == 0 && !name.contains(['.', '[']);
            if is_whole {
                continue;
            }
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
    let is_part = || label.offset != 0 || is_first_part(process, resource);
    is_native && is_own && (label.name.is_none() && label.at.is_some() || label.name.is_some() && is_part())
}

/// Whether a lock that has the name of an object of data may be but its first member: the object is larger than the lock.
fn is_first_part(process: &Process<'_>, resource: &Resource) -> bool {
    let object = process.context.symbols.object(resource.key.address);
    let largest = if resource.key.kind == kinds::FUTEX { SIZE_OF_WORDS } else { SIZE_OF_LOCK };
    object.is_some_and(|object| object.address == resource.key.address && object.size > largest)
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
    /// No other frame that is searched has a variable of this name.
    is_only: bool,
}

struct Search<'p, 'a> {
    process: &'p Process<'a>,
    addresses: BTreeSet<Addr>,
    /// Words that may still be read.
    reads: usize,
    /// Data whose paths were followed: several frames may be of one unit.
    data: HashSet<(Addr, String)>,
    found: Vec<Found>,
}

/// The frames of a thread that run code of the program with debug information, outermost first: their variables reach
/// furthest.
fn frames_of_program<'a>(thread: &ThreadView<'a>) -> impl Iterator<Item = &'a NativeFrame> {
    let frames = thread.frames();
    let is_of_program = move |native: usize| {
        let mut merged = frames.iter().filter(|frame| frame.native == Some(native) && frame.file.is_some());
        merged.any(|frame| frame.function.as_deref().is_some_and(|name| !is_of_library(name)))
    };
    let all = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    all.iter()
        .enumerate()
        .rev()
        .filter(move |(native, _)| is_of_program(*native))
        .map(|(_, frame)| frame)
        .take(PATH_FRAMES)
}

impl Search<'_, '_> {
    /// Search until each lock has a name of its own: the variables of all frames, then the data of their units, or the data first.
    fn find(&mut self, frames: &[&NativeFrame], data_first: bool) {
        let symbols = self.process.context.symbols;
        let starts: Vec<Option<Addr>> = frames.iter().map(|frame| symbols.function_start(frame.lookup)).collect();
        // Another frame of the same function may have these names for other locks.
        let is_only = |start: &Option<Addr>| starts.iter().filter(|other| *other == start).count() == 1;
        let locals = frames.iter().zip(&starts).map(|(frame, start)| (*frame, false, is_only(start)));
        let data = frames.iter().map(|frame| (*frame, true, true));
        let mut ways: Vec<_> = locals.chain(data).collect();
        if data_first {
            ways.sort_by_key(|(_, is_data, _)| !is_data);
        }
        for (frame, is_data, is_only) in ways {
            let paths = if is_data { symbols.data_paths(frame.lookup) } else { symbols.lock_paths(frame.lookup) };
            let before = self.found.len();
            for path in paths {
                let Some(start) = path.place.address(frame.cfa, &frame.registers) else { continue };
                if is_data && !self.data.insert((start, path.name.clone())) {
                    continue;
                }
                self.follow(&path, &path.steps, start, &mut Vec::new());
            }
            let new = self.found.get_mut(before..).unwrap_or_default();
            new.iter_mut().for_each(|found| found.is_only = is_only);
            let (led, are_new) = (self.led(), self.found.len() > before);
            let is_named = |address: &Addr| self.only_name(&led, *address).is_some_and(|found| found.is_only);
            if are_new && self.addresses.iter().all(is_named) {
                return;
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
                    is_only: false,
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

    /// The addresses that each name leads to.
    fn led(&self) -> BTreeMap<Name<'_>, BTreeSet<Addr>> {
        let mut led: BTreeMap<Name<'_>, BTreeSet<Addr>> = BTreeMap::new();
        for found in &self.found {
            led.entry((&found.name, found.function.as_deref())).or_default().insert(found.address);
        }
        led
    }

    /// The first way to an address whose name leads to no other.
    fn only_name(&self, led: &BTreeMap<Name<'_>, BTreeSet<Addr>>, address: Addr) -> Option<&Found> {
        self.found.iter().find(|found| {
            let name = (found.name.as_str(), found.function.as_deref());
            found.address == address && led.get(&name).is_some_and(|addresses| addresses.len() == 1)
        })
    }

    /// A name for each address that was found: the first that leads to no other, else the member.
    fn names(self) -> BTreeMap<Addr, (String, Option<String>)> {
        let led = self.led();
        let name = |address: &Addr| {
            let only = self.only_name(&led, *address).map(|found| (found.name.clone(), found.function.clone()));
            let any = || {
                let of_it = || self.found.iter().filter(|found| found.address == *address);
                let member = of_it().find_map(|found| found.member.clone());
                Some((member.or_else(|| of_it().next().map(|found| found.name.clone()))?, None))
            };
            Some((*address, only.or_else(any)?))
        };
        self.addresses.iter().filter_map(name).collect()
    }
}

/// A name, and the function whose variable it is of.
type Name<'n> = (&'n str, Option<&'n str>);

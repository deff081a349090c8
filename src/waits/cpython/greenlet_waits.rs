//! The waits of greenlets and the holders of their locks.
//!
//! In: greenlets that are switched out, with their frames. Out: waits whose waiter is a greenlet. A greenlet waits for the
//! object of its library that has it among its waiters, so that this object wakes it: a lock, an event, a queue, another
//! greenlet. A lock has a holder where its owner is noted, or a greenlet is in a `with` block of it. No ring of greenlets is
//! proven, since the callbacks of the hub's loop are not read. Waits for the loop itself (sockets, timers) are not looked at:
//! the thread waits for these.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::event_loops::{at, resource_of, wait};
use super::tasks::Task;
use super::{Cpython, Facts};
use crate::image::Addr;
use crate::limits::cpython::{NEAR_A_GREENLET, TASKS_WAITING, WAITERS_OF_ONE};
use crate::python::PythonFrame;
use crate::python::greenlets::{Greenlet, parts};
use crate::python::objects::Objects;
use crate::waits::holders::{Blocked, add_resource, exact_hold};
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::label::Label;
use crate::waits::model::{Hold, Party, Resource, Strength, TakenAt, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// The frames of a greenlet that may have the awaited object at hand, the innermost first.
const INNERMOST: usize = 4;
/// Steps from what a frame has to an object that has the greenlet among its waiters: a lock of the program's own class, the
/// lock of the library in it, that one's inner lock.
const STEPS: usize = 3;
/// The packages whose objects wake greenlets.
const LIBRARIES: [&str; 2] = ["gevent", "eventlet"];
/// The attribute by which a recursive lock notes its owner.
const OWNER: &str = "_owner";
/// The methods of a lock.
const LOCKS: [&str; 2] = ["acquire", "release"];

/// An object that has a greenlet among its waiters.
struct Found {
    object: Addr,
    /// The object that led to it: a recursive lock.
    around: Addr,
}

/// Add what greenlets wait for and who holds it.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        let all = facts.greenlets();
        let named = names(all);
        let task = |position: usize| Task {
            object: all[position].object,
            kind: kinds::GREENLET,
            name: named[position].clone(),
            tid: None,
            waits_for: None,
            coroutines: Vec::new(),
        };
        for (position, greenlet) in all.iter().enumerate().take(TASKS_WAITING) {
            let Some(found) = awaited(facts, greenlet) else { continue };
            let place = own_frame(greenlet);
            let waiter = task(position);
            if let Some(other) = all.iter().position(|other| other.object == found.object) {
                wait(process, &waiter, &resource_of(process, &task(other)), ("it waits for its end", place), out);
                continue;
            }
            let resource = resource(process, facts, greenlet, &found);
            let is_known = out.resource(&resource.key).is_some();
            let evidence = format!("it is among the waiters of the object at {}, {}", found.object, at(place));
            wait(process, &waiter, &resource, (&evidence, place), out);
            if is_known || resource.key.kind != kinds::GREENLET_LOCK {
                continue;
            }
            let owner = owner(facts.inspector.objects(), found.around, all);
            let holders: Vec<(usize, Option<TakenAt>)> = match owner {
                Some(owner) => vec![(owner, None)],
                None => (0..all.len()).filter_map(|other| Some((other, block(facts, &all[other], &found)?))).collect(),
            };
            for (holder, taken) in &holders {
                let own = resource_of(process, &task(*holder));
                add_resource(out, &own);
                let (name, place) = (&named[*holder], at(own_frame(&all[*holder])));
                let (evidence, strength) = match (owner, holders.len()) {
                    (Some(_), _) => (format!("it has noted that {name} has it, {place}"), Strength::Recorded),
                    (None, 1) => (format!("{name} has entered its `with` block, {place}"), Strength::Sole),
                    _ => (format!("{name} has entered its `with` block, {place}"), Strength::Candidate),
                };
                let hold = exact_hold(&resource.key, Party::Resource(own.key), None, vec![evidence]);
                out.holds.push(Hold { strength, taken: taken.clone(), ..hold });
            }
        }
    }
}

/// The timers and watchers of a hub's loop are not read: each ring of greenlets may end by one of them.
pub(super) fn wake_sources(rings: &BTreeSet<Party>, out: &mut Observations) {
    let of_greenlets = |party: &&Party| matches!(party, Party::Resource(key) if key.kind == kinds::GREENLET);
    for party in rings.iter().filter(of_greenlets) {
        let what = "what the loop of its hub may still call is not read: `gevent.util.print_run_info()` tells more";
        out.wake_source_for(party, Waker::ByItself, what);
    }
}

/// The names of all greenlets: the outermost function of the program, with a number where several run the same.
fn names(all: &[Greenlet]) -> Vec<String> {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    let names = all.iter().map(|greenlet| {
        let own = greenlet.frames.iter().rfind(|frame| !is_library(frame)).or(greenlet.frames.last());
        let name = own.map_or("not begun", |frame| &*frame.function);
        let name = if name == "<module>" { "main" } else { name.rsplit('.').next().unwrap_or(name) };
        let number = count.entry(name.to_owned()).or_default();
        *number += 1;
        if *number == 1 { name.to_owned() } else { format!("{name} #{number}") }
    });
    names.collect()
}

fn is_library(frame: &PythonFrame) -> bool {
    frame.origin.waits_for_caller() || LIBRARIES.iter().any(|library| frame.origin.is_package(library))
}

/// The innermost frame that is not a library's.
fn own_frame(greenlet: &Greenlet) -> Option<&PythonFrame> {
    greenlet.frames.iter().find(|frame| !is_library(frame))
}

/// The object that wakes a greenlet, searched for from what its innermost frames have at hand.
fn awaited(facts: &Facts<'_>, greenlet: &Greenlet) -> Option<Found> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let mut todo: VecDeque<(Addr, Addr, usize)> = VecDeque::new();
    for frame in greenlet.frames.iter().take(INNERMOST) {
        let Some(open) = inspector.frame(frame) else { continue };
        let at_hand = open.stack().into_iter().chain(open.variables().into_iter().map(|(_, value)| value));
        todo.extend(at_hand.map(|object| (object, object, 0)));
    }
    let mut seen: HashSet<Addr> = HashSet::from([greenlet.object]);
    while let Some((object, around, depth)) = todo.pop_front().filter(|_| seen.len() < NEAR_A_GREENLET) {
        if object.is_null() || !seen.insert(object) || inspector.is_plain(object) && objects.bound(object).is_none() {
            continue;
        }
        if let Some(bound) = objects.bound(object) {
            todo.push_back((bound.object, bound.object, depth));
            continue;
        }
        let parts = parts(objects, object);
        if is_of_library(objects, object) && parts.iter().any(|part| has_waiter(objects, *part, greenlet.object)) {
            return Some(Found { object, around: wrapper(facts, greenlet, object).unwrap_or(around) });
        }
        if depth < STEPS {
            todo.extend(parts.into_iter().map(|part| (part, object, depth + 1)));
        }
    }
    None
}

/// An object of the library that has this one inside and that a method of it runs for, as a recursive lock has its lock.
fn wrapper(facts: &Facts<'_>, greenlet: &Greenlet, inner: Addr) -> Option<Addr> {
    let objects = facts.inspector.objects();
    let of_library = greenlet.frames.iter().take_while(|frame| is_library(frame));
    let mut owners = of_library.filter_map(|frame| facts.inspector.frame(frame)?.first());
    owners.find(|own| *own != inner && is_of_library(objects, *own) && parts(objects, *own).contains(&inner))
}

/// Whether the class of an object is one of the libraries'.
fn is_of_library(objects: &Objects<'_>, object: Addr) -> bool {
    let Some((_, order)) = objects.class(object).and_then(|class| objects.class_parts(class)) else { return false };
    let module = |class: &Addr| match objects.is_heap_class(*class) {
        true => objects.text(objects.item(objects.class_parts(*class)?.0?, "__module__")?),
        false => objects.name_of_class(*class).map(|name| name.to_string()),
    };
    let is_its = |module: &str| LIBRARIES.contains(&module.split('.').next().unwrap_or(module));
    order.iter().any(|class| module(class).is_some_and(|module| is_its(&module)))
}

/// Whether a list of waiters has a greenlet: its `switch`, a waiter that leads to it, or itself.
fn has_waiter(objects: &Objects<'_>, list: Addr, greenlet: Addr) -> bool {
    let class = objects.class_name(list);
    if !matches!(class.as_deref(), Some("list" | "collections.deque")) {
        return false;
    }
    let has = |of: Addr| is_of_library(objects, of) && objects.words_of(of).contains(&greenlet);
    // A waiter for several things has a waiter of its own.
    let leads = |waiter: Addr| {
        let of = objects.bound(waiter).map_or(waiter, |bound| bound.object);
        of == greenlet || has(of) || is_of_library(objects, of) && objects.words_of(of).into_iter().any(has)
    };
    objects.sequence(list, WAITERS_OF_ONE).unwrap_or_default().into_iter().any(leads)
}

fn resource(process: &Process<'_>, facts: &Facts<'_>, greenlet: &Greenlet, found: &Found) -> Resource {
    let objects = facts.inspector.objects();
    let class = objects.class_name(found.around).unwrap_or_default();
    let order = objects.class(found.object).and_then(|class| objects.class_parts(class)).map(|(_, order)| order);
    let defines = |name: &str| {
        let dicts = order.iter().flatten().filter_map(|class| objects.class_parts(*class)?.0);
        dicts.into_iter().any(|dict| objects.item(dict, name).is_some())
    };
    let is_lock = LOCKS.iter().all(|name| defines(name));
    let name = facts.inspector.name_of(found.around, greenlet.frames.iter().take(INNERMOST));
    Resource {
        key: key(process, if is_lock { kinds::GREENLET_LOCK } else { kinds::TASK_EVENT }, found.object),
        process: process.context.process,
        label: Label::from(class.rsplit('.').next().unwrap_or(&class)).named(name),
        state: Vec::new(),
        role: None,
    }
}

/// The greenlet that a recursive lock has noted as its owner, as an object or by its ident.
fn owner(objects: &Objects<'_>, lock: Addr, all: &[Greenlet]) -> Option<usize> {
    let owner = objects.member(lock, OWNER).or_else(|| objects.attribute(lock, OWNER))?;
    let ident = objects.unsigned(owner).map(Addr);
    all.iter().position(|greenlet| greenlet.object == owner || Some(greenlet.object) == ident)
}

/// The line at which a greenlet has entered a block of a lock, or of the object around it.
fn block(facts: &Facts<'_>, greenlet: &Greenlet, found: &Found) -> Option<Option<TakenAt>> {
    let objects = facts.inspector.objects();
    greenlet.frames.iter().find_map(|frame| {
        let entered = facts.inspector.frame(frame)?.entered_with_lines();
        let is_it = |object: Addr| {
            object == found.object || object == found.around || parts(objects, object).contains(&found.object)
        };
        let block = entered.into_iter().find(|block| is_it(block.object))?;
        Some(block.line.map(|line| TakenAt::at(&*frame.file, line, &*frame.function)))
    })
}

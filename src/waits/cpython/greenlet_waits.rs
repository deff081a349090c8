//! What greenlets wait for, who holds it, and what could still end that.
//!
//! In: greenlets that are switched out, with their frames. Out: waits whose waiter is a greenlet. A greenlet waits for the
//! object of its library that has it among its waiters, so that this object wakes it: a lock, an event, a queue, another
//! greenlet. A lock has a holder where its owner is noted, or a greenlet is in a `with` block of it. A ring of greenlets
//! lasts unless something that still runs can reach one of its locks, or throws into one of its greenlets. Waits for the
//! loop itself (sockets, timers) are not looked at: the thread waits for these.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::event_loops::{self, resource_of, wait};
use super::signals;
use super::tasks::Task;
use super::{Cpython, Facts, lasts};
use crate::image::{Addr, TaskState};
use crate::limits::cpython::{NEAR_A_GREENLET, TASKS_WAITING, WAITERS_OF_ONE};
use crate::python::PythonFrame;
use crate::python::greenlets::{Greenlet, parts};
use crate::python::heap;
use crate::python::objects::Objects;
use crate::python::reach;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::rings::behind;
use crate::waits::holders::{Blocked, exact_hold};
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
/// The attributes by which a recursive lock notes its owner, and the lock in it.
const OWNER: &str = "_owner";
/// The methods of a lock.
const LOCKS: [&str; 2] = ["acquire", "release"];

/// An object that has a greenlet among its waiters.
struct Found {
    object: Addr,
    /// What led to it: a recursive lock.
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
                crate::waits::holders::add_resource(out, &own);
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

/// Add what could still end the waits of greenlets that are in rings.
pub(super) fn wake_sources(
    facts: &Facts<'_>,
    process: &Process<'_>,
    own: &[ThreadWait],
    rings: &BTreeSet<Party>,
    out: &mut Observations,
) {
    let of_greenlets = |party: &&Party| matches!(party, Party::Resource(key) if key.kind == kinds::GREENLET);
    let waiting: BTreeSet<Party> = rings.iter().filter(of_greenlets).cloned().collect();
    if waiting.is_empty() {
        return;
    }
    let behind = behind(&waiting, out);
    let all = facts.greenlets();
    let party = |greenlet: &Greenlet| Party::Resource(key(process, kinds::GREENLET, greenlet.object));
    // Who goes on: other greenlets, also those that have not begun, watchers and timers, other threads.
    let inspector = &facts.inspector;
    let going = || all.iter().filter(|greenlet| !behind.contains(&party(greenlet)));
    let (called, of_library): (Vec<Addr>, Vec<Addr>) =
        watchers(facts).into_iter().partition(|object| !is_of_library(inspector.objects(), *object));
    let mut by_watchers = reach::from(inspector, called, false);
    by_watchers.also(of_library);
    let mut reached = vec![("a watcher or timer of the loop", by_watchers)];
    for greenlet in going().take(TASKS_WAITING) {
        let frames = greenlet.frames.iter().filter(|frame| !is_library(frame));
        reached.push(("another greenlet", reach::from_frames(inspector, frames)));
        if greenlet.frames.is_empty() {
            reached.push(("a greenlet that has not begun", reach::from(inspector, [greenlet.object], false)));
        }
    }
    let threads = process.threads.iter().enumerate().filter(|(position, thread)| {
        let runs_hub = super::greenlets::hub(facts, thread.image.tid).is_some();
        thread.image.state != TaskState::Zombie && !runs_hub && !lasts(own, *position)
    });
    for (_, thread) in threads {
        reached.extend(
            inspector
                .states(thread.image.tid)
                .map(|(state, _)| ("another thread", reach::by_thread_or_open(inspector, state))),
        );
    }
    // Who ends one member of a ring, or gives back what it waits for, ends the ring.
    let awaited = out.waits.iter().filter(|wait| waiting.contains(&wait.waiter)).map(|wait| wait.resource.address);
    let members: Vec<&Greenlet> = all.iter().filter(|greenlet| waiting.contains(&party(greenlet))).collect();
    let objects: Vec<Addr> = awaited.chain(members.iter().map(|greenlet| greenlet.object)).collect();
    let by_code = reached.iter().find_map(|(who, reached)| {
        let has = objects.iter().any(|object| reached.has(*object)).then(|| "it can reach a member or its lock".into());
        has.or_else(|| reached.anything.clone()).map(|how: String| format!("{who} may end it: {how}"))
    });
    let is_thrown_into = members.iter().any(|greenlet| facts.may_be_bound("throw", greenlet.object));
    let by_timer =
        is_thrown_into.then(|| "something throws into a member after a time, or when it is asked to".to_owned());
    let by_signals = signals::that_end_tasks(facts, process, &objects, Some(process.context.image.pid));
    for party in &waiting {
        by_code.iter().chain(&by_timer).for_each(|what| out.wake_source_for(party, Waker::ByItself, what));
        by_signals.iter().for_each(|(by, what)| out.wake_source_for(party, by.clone(), what));
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

fn at(frame: Option<&PythonFrame>) -> String {
    event_loops::at(frame)
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
            return Some(Found { object, around });
        }
        if depth < STEPS {
            todo.extend(parts.into_iter().map(|part| (part, object, depth + 1)));
        }
    }
    None
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

/// The line at which a greenlet has entered a block of a lock, or of what is around it.
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

/// Watchers, timers and callbacks of the libraries' loops, and the hubs themselves.
fn watchers(facts: &Facts<'_>) -> Vec<Addr> {
    let objects = facts.inspector.objects();
    let hubs = facts.inspector.living().filter_map(|(_, state)| super::greenlets::hub(facts, state.tid?));
    // A hub of gevent is a greenlet, and has watchers for all; that of eventlet has timers and listeners.
    let hubs = hubs.filter_map(|frame| facts.inspector.frame(frame)?.first());
    let hubs = hubs.filter(|hub| objects.attribute(*hub, "listeners").is_some());
    let hubs = hubs.flat_map(|hub| objects.attributes(hub).unwrap_or_default()).map(|(_, value)| value);
    let is_greenlet = |object: &Addr| facts.greenlets().iter().any(|greenlet| greenlet.object == *object);
    let mut of_library: std::collections::HashMap<Addr, bool> = std::collections::HashMap::new();
    let mut is_watcher = |object: &Addr| {
        let Some(class) = objects.class(*object) else { return false };
        *of_library.entry(class).or_insert_with(|| {
            let name = objects.name_of_class(class).unwrap_or_default();
            is_of_library(objects, *object) && WATCHERS.contains(&name.rsplit('.').next().unwrap_or(&name))
        })
    };
    let tracked = heap::tracked(&facts.inspector).unwrap_or_default();
    let found = tracked.iter().copied().filter(|object| is_watcher(object) && !is_greenlet(object));
    let mut todo: VecDeque<(Addr, usize)> =
        found.flat_map(|watcher| parts(objects, watcher)).chain(hubs).map(|part| (part, 0)).collect();
    // The libraries' own code does what the program has asked for: that is found behind its objects.
    let (mut seen, mut called) = (HashSet::new(), Vec::new());
    while let Some((object, depth)) = todo.pop_front() {
        if object.is_null() || !seen.insert(object) {
            continue;
        }
        let class = objects.class_name(object);
        if matches!(class.as_deref(), Some("method" | "builtin_function_or_method" | "builtin_method")) {
            todo.extend(objects.words_of(object).into_iter().map(|part| (part, depth)));
        } else if is_greenlet(&object) {
            called.push(object);
        } else if let Some(items) = objects.sequence(object, WAITERS_OF_ONE) {
            todo.extend(items.into_iter().map(|item| (item, depth)));
        } else if is_of_library(objects, object) {
            called.push(object);
            let parts = if depth < STEPS { parts(objects, object) } else { Vec::new() };
            todo.extend(parts.into_iter().map(|part| (part, depth + 1)));
        } else if !is_code_of_library(facts, object) {
            called.push(object);
        }
    }
    called
}

/// Whether a function is one of the libraries' own. Those that Cython compiled have their globals among their words.
fn is_code_of_library(facts: &Facts<'_>, object: Addr) -> bool {
    let objects = facts.inspector.objects();
    if let Some(function) = objects.function(object) {
        let origin = facts.inspector.frames().code_origin(function.code);
        return origin.is_some_and(|origin| LIBRARIES.iter().any(|library| origin.is_package(library)));
    }
    let module = |word: Addr| objects.text(word).or_else(|| objects.text(objects.item(word, "__name__")?));
    let is_its = |name: String| LIBRARIES.contains(&name.split('.').next().unwrap_or(&name));
    let is_compiled = objects.class_name(object).is_some_and(|class| class.ends_with("cython_function_or_method"));
    is_compiled && objects.words_of(object).into_iter().filter_map(module).any(is_its)
}

/// The classes of watchers and timers (gevent 1.5 to 26.9: gevent.libev.corecext, gevent._ffi.watcher; eventlet.hubs.timer).
const WATCHERS: &[&str] = &[
    "timer",
    "io",
    "async_",
    "signal",
    "child",
    "stat",
    "fork",
    "idle",
    "prepare",
    "check",
    "callback",
    "Timer",
    "LocalTimer",
];

//! The futures that asyncio tasks await, other than locks and tasks, and the code that could still complete them.
//!
//! In: tasks of loops that threads run. Out: a wait of the task for its future, named after the object of the library that made
//! the future (Event, Queue, Semaphore, ...), with its [`KnownWakers`]: whatever can reach the future could complete it. These are
//! the loop's own timers, callbacks and watched descriptors, other tasks (by their code, and by what is called when they end),
//! other threads, handlers of signals, and finalisers. Which of the tasks and threads can never go on is found by the graph.
//! A wait is reported only if the loop's run itself stands behind it: a worker that idles beside others is no mistake.

use std::collections::{BTreeSet, HashMap};

use super::event_loops::{self, own_frame};
use super::loops::Loop;
use super::task_reach::{OfTask, called_at_end, ends_all};
use super::tasks::{Task, is_task};
use super::{Cpython, Facts, signals, task_holders, trio, trio_wake_sources};
use crate::image::{Addr, Descriptor, Gap, TaskState};
use crate::limits::cpython::TASKS_WAITING;
use crate::limits::waits::MOST_ASKED;
use crate::python::reach::{self, Reached};
use crate::waits::blocked_on::{BlockedOn, ThreadWait};
use crate::waits::holders::{Blocked, add_resource, exact_hold};
use crate::waits::identity::key;
use crate::waits::kinds::{self, Topic};
use crate::waits::label::Label;
use crate::waits::model::{
    Certainty, Completion, Hold, KnownWakers, Party, Resource, ResourceKey, Role, Scope, Strength, WakeSource, Waker,
};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// The act that ends a wait in a method of the library, by class and method; the class alone where any method will do.
const COMPLETIONS: &[(&str, &str, Completion)] = &[
    ("Queue", "get", Completion::Put),
    ("Queue", "put", Completion::Get),
    ("Event", "", Completion::Set),
    ("Condition", "wait", Completion::Notify),
    ("Condition", "wait_for", Completion::Notify),
    ("Semaphore", "", Completion::Release),
    ("Lock", "", Completion::Unlock),
    ("Barrier", "", Completion::Arrive),
    ("StreamReader", "", Completion::Send),
    ("Server", "wait_closed", Completion::Close),
    ("MemorySendChannel", "", Completion::Get),
    ("MemoryReceiveChannel", "", Completion::Put),
];

/// A task's wait for a future.
struct Awaited<'f> {
    task: &'f Task,
    event_loop: &'f Loop,
    future: Addr,
    resource: Resource,
    /// The object that the program knows: the queue, the event, or the future itself.
    called: Option<Addr>,
    /// The program has a name for the future. Without a name, the program meant the wait to have no end.
    is_named: bool,
}

/// A thread in the selector of a loop waits for what the loop can run. Its loop's own wake-up descriptor is none of the program's.
pub(super) fn decode(
    process: &Process<'_>,
    facts: &Facts<'_>,
    thread: &ThreadView<'_>,
    below: &BlockedOn,
) -> Option<BlockedOn> {
    let is_of_kernel = below.futex.is_none() && below.call.is_some();
    let own = facts.loops().iter().rfind(|one| one.tid == thread.image.tid && one.is_idle).filter(|_| is_of_kernel)?;
    // trio gives the kernel a limit of a day where it has no timer.
    let below = &BlockedOn { timed: below.timed && own.has_timers, ..below.clone() };
    let descriptors: Vec<&Descriptor> =
        process.context.image.descriptors.iter().filter(|one| own.wake_up_descriptors.contains(&one.number)).collect();
    let is_its = |name: &str| descriptors.iter().any(|descriptor| is_of(name, &descriptor.target));
    let is_own = |key: &ResourceKey| matches!(&key.scope, Scope::System(name) if is_its(name));
    let mut others = below.also.clone();
    others.retain(|other| !is_own(&other.resource.key));
    if !is_own(&below.resource.key) {
        let one_of = 1 + others.len();
        return (others.len() < below.also.len()).then(|| BlockedOn { also: others, one_of, ..below.clone() });
    }
    // A signal that it handles is one of several ways in which any loop goes on.
    if others.iter().any(|other| other.resource.key.kind != kinds::SIGNAL) {
        let first = others.remove(0);
        let one_of = 1 + others.len();
        return Some(BlockedOn { also: others, one_of, ..below.instead(first) });
    }
    let resource = resource_of_loop(process, thread, own);
    let evidence =
        vec![format!("it waits in the selector of the event loop at {}, which watches nothing else", own.object)];
    Some(below.refined(resource, &[], evidence))
}

/// Whether the name of a kernel object is that of a descriptor: both have its inode.
fn is_of(scope: &str, target: &str) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let inode = digits(target);
    !inode.is_empty() && scope.split(|c: char| !c.is_ascii_digit()).any(|part| part == inode)
}

fn resource_of_loop(process: &Process<'_>, thread: &ThreadView<'_>, event_loop: &Loop) -> Resource {
    Resource {
        key: key(process, kinds::EVENT_LOOP, event_loop.object),
        process: process.context.process,
        label: format!("the event loop of {}", thread.name()).into(),
        state: Vec::new(),
        role: None,
    }
}

/// Add what tasks await, who could end that, and which task a loop runs for.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        if facts.loops().is_empty() && facts.tasks().is_empty() {
            continue;
        }
        let own = blocked.waits_of(process.context.process);
        runs_for(process, facts, own, out);
        let awaited = awaited(process, facts, out);
        if !awaited.is_empty() {
            wakers(process, facts, own, &awaited, out);
            ends(process, facts, &awaited, out);
            task_holders::inside(process, facts, awaited.iter().map(|one| (one.task, &one.resource)), out);
        }
    }
}

/// A loop's thread waits for the task at whose end the loop stops.
fn runs_for(process: &Process<'_>, facts: &Facts<'_>, own: &[ThreadWait], out: &mut Observations) {
    for event_loop in facts.loops() {
        let resource = key(process, kinds::EVENT_LOOP, event_loop.object);
        let is_waited_for = own.iter().any(|wait| wait.blocked_on.resource.key == resource);
        let root = event_loop.root.and_then(|root| tasks_of(facts).find(|task| task.object == root));
        if let Some(root) = root.filter(|_| is_waited_for) {
            let task = event_loops::resource_of(process, root);
            add_resource(out, &task);
            let evidence = vec![format!("run_until_complete of the loop waits for {}", root.name)];
            let hold = exact_hold(&resource, Party::Resource(task.key), None, evidence);
            out.holds.push(Hold { strength: Strength::Inferred, ..hold });
        }
    }
}

/// The waits of tasks for futures. Tasks that wait for locks and for tasks are decoded elsewhere, and have their waits by now.
fn awaited<'f>(process: &Process<'_>, facts: &'f Facts<'_>, out: &mut Observations) -> Vec<Awaited<'f>> {
    let objects = facts.inspector.objects();
    let mut all = Vec::new();
    for task in tasks_of(facts).take(TASKS_WAITING) {
        let is_of_trio = task.kind == kinds::TRIO_TASK;
        // The code that ends a wait of trio has the task itself.
        let future =
            if is_of_trio { trio::waits(&facts.inspector, task).then_some(task.object) } else { task.waits_for };
        let Some(future) = future.filter(|future| is_of_trio || !is_task(objects, *future)) else { continue };
        let party = Party::Resource(key(process, task.kind, task.object));
        if let Some(wait) = out.waits.iter().find(|wait| wait.waiter == party) {
            let resource = &wait.resource;
            let is_held = out.holds.iter().any(|hold| hold.resource == *resource && hold.is_known());
            // A lock whose taker no block shows ends like any other wait: who reaches the future may give it back.
            let lock = out.resource(resource).filter(|_| resource.kind == kinds::ASYNCIO_LOCK && !is_held).cloned();
            if let (Some(mut resource), Some(event_loop)) = (lock, loop_of(facts, task)) {
                resource.role = Some(Role::Completed(Completion::Unlock));
                out.resources.iter_mut().filter(|one| one.key == resource.key).for_each(|one| one.role = resource.role);
                let called = Some(resource.key.address);
                all.push(Awaited { task, event_loop, future, resource, called, is_named: true });
            }
            continue;
        }
        let place = own_frame(facts, task);
        let thing = thing(facts, task, future);
        let name = thing.called.and_then(|object| facts.inspector.name_of(object, place.iter()));
        let resource = Resource {
            key: key(process, kinds::TASK_EVENT, thing.identity),
            process: process.context.process,
            label: thing.label.named(name.as_deref()),
            state: Vec::new(),
            role: Some(thing.role),
        };
        let what = if is_of_trio { "it is parked".to_owned() } else { format!("it awaits the future at {future}") };
        let evidence = format!("{what}, {}", event_loops::at(place.as_ref()));
        event_loops::wait(process, task, &resource, (&evidence, place.as_ref()), out);
        match loop_of(facts, task) {
            Some(event_loop) => {
                let (called, is_named) = (thing.called, name.is_some());
                all.push(Awaited { task, event_loop, future, resource, called, is_named });
            }
            None => unknown_loop(process, facts, task, out),
        }
    }
    all
}

/// A loop of another library than asyncio: its tasks are asyncio's, and what else it may run is not read.
pub(super) fn unknown_loop(process: &Process<'_>, facts: &Facts<'_>, task: &Task, out: &mut Observations) {
    let objects = facts.inspector.objects();
    let class = objects.field(task.object, 0).and_then(|own| objects.class_name(own)).unwrap_or_default();
    let what = format!("handles of the event loop of process {}", process.context.image.pid);
    if !out.gaps.iter().any(|gap| gap.what == what) {
        let why = "is not read: no thread runs it, or it is none of asyncio's own (uvloop)";
        out.gaps.push(Gap::new(what, format!("what the {class} of {} may still run {why}", task.name)));
    }
}

/// The loop that a task belongs to, if a thread runs it.
fn loop_of<'f>(facts: &'f Facts<'_>, task: &Task) -> Option<&'f Loop> {
    let own = match run_of(facts, task) {
        Some(run) => run.runner,
        None => facts.inspector.objects().field(task.object, 0)?,
    };
    facts.loops().iter().find(|one| one.object == own)
}

/// The run of trio that a task belongs to.
fn run_of<'f>(facts: &'f Facts<'_>, task: &Task) -> Option<&'f trio::Run> {
    let is_its = |run: &&trio::Run| run.tasks.iter().any(|one| one.object == task.object);
    facts.trio().iter().find(is_its).filter(|_| task.kind == kinds::TRIO_TASK)
}

/// Tasks of asyncio, then those of trio.
fn tasks_of<'f>(facts: &'f Facts<'_>) -> impl Iterator<Item = &'f Task> {
    facts.tasks().iter().chain(facts.trio().iter().flat_map(|run| &run.tasks))
}

/// The library's object that a task awaits.
struct Thing {
    label: Label,
    role: Role,
    /// The object that the program knows.
    called: Option<Addr>,
    /// The innermost object of the library, which all have in common that wait for the same; else the future.
    identity: Addr,
}

/// The functions of the library between the task's own code and the future say what is awaited: the outermost by what name, the
/// innermost which object it is.
fn thing(facts: &Facts<'_>, task: &Task, future: Addr) -> Thing {
    let inspector = &facts.inspector;
    let (objects, frames) = (inspector.objects(), inspector.frames());
    let opened = task.coroutines.iter().rev().filter_map(|coroutine| frames.of_generator(*coroutine));
    let of_library = opened.take_while(|(_, code)| frames.code_origin(*code).is_some_and(|of| of.waits_for_caller()));
    let calls: Vec<(String, Option<Addr>)> = of_library
        .map(|(frame, code)| {
            let name = frames.code_name(code).unwrap_or_default();
            let name = name.rsplit('.').next().unwrap_or(&name).to_owned();
            (name, frames.at(frame, code).and_then(|open| open.variable("self")))
        })
        .collect();
    let resolve = Role::Completed(Completion::Resolve);
    let library = if task.kind == kinds::TRIO_TASK { "trio" } else { "asyncio" };
    let Some((method, object)) = calls.last() else {
        return Thing { label: Label::from("Future"), role: resolve, called: Some(future), identity: future };
    };
    let Some(object) = *object else {
        let label = Label::from(format!("{library}.{method}").as_str());
        return Thing { label, role: resolve, called: None, identity: future };
    };
    let identity = calls.iter().find_map(|(_, own)| *own).unwrap_or(future);
    let class = objects.class_name(object).unwrap_or_else(|| "object".into());
    let number = |name: &str| objects.attribute(object, name).and_then(|value| objects.unsigned(value));
    let unfinished = number("_unfinished_tasks").filter(|_| method == "join");
    let is_it = |(of, by, _): &&(&str, &str, Completion)| class.ends_with(of) && (by.is_empty() || by == method);
    let role = match unfinished {
        Some(count) => Role::UnfinishedItems { count },
        None => COMPLETIONS.iter().find(is_it).map_or(resolve, |(.., by)| Role::Completed(*by)),
    };
    let method = if method.starts_with("__") { "async with" } else { method };
    let detail = match (unfinished, number("_parties"), role) {
        (Some(count), ..) => format!("{method}, {count} unfinished"),
        (_, Some(parties), _) => format!("{method}, {parties} parties"),
        (.., Role::Completed(Completion::Get)) => format!("{method}, full"),
        (.., Role::Completed(Completion::Put)) => format!("{method}, empty"),
        _ => method.to_owned(),
    };
    Thing {
        label: Label::from(format!("{library}.{class}").as_str()).with_detail(Some(&detail)),
        role,
        called: Some(object),
        identity,
    }
}

/// The objects that the loop's own parts can reach, read once a loop.
struct Around {
    /// Timers, ready callbacks, and watched descriptors with an end elsewhere.
    by_loop: Option<Reached>,
    by_enclosed: Vec<Enclosed>,
    by_signals: Reached,
}

/// A watched descriptor whose other end this process has itself: something comes from it only if a thread of its own sends.
struct Enclosed {
    /// The waits of its loop's thread there.
    resources: Vec<ResourceKey>,
    reached: Reached,
}

impl Around {
    fn of(
        process: &Process<'_>,
        facts: &Facts<'_>,
        own: &[ThreadWait],
        event_loop: &Loop,
        out: &Observations,
    ) -> Around {
        let inspector = &facts.inspector;
        let is_of_loop = |wait: &&ThreadWait| {
            process.threads.get(wait.thread).is_some_and(|thread| thread.image.tid == event_loop.tid)
        };
        let keys: Vec<&ResourceKey> = own.iter().filter(is_of_loop).map(|wait| &wait.blocked_on.resource.key).collect();
        // The thread's waits at a descriptor, if none of them has its other end elsewhere.
        let enclosed = |number: i32| -> Option<Vec<ResourceKey>> {
            let target = &process.context.image.descriptors.iter().find(|one| one.number == number)?.target;
            let is_its = |key: &&&ResourceKey| matches!(&key.scope, Scope::System(name) if is_of(name, target));
            let resources: Vec<ResourceKey> = keys.iter().filter(is_its).map(|key| (*key).clone()).collect();
            (!resources.is_empty() && resources.iter().all(|key| has_own_end(process, key, out))).then_some(resources)
        };
        let mut by_enclosed = Vec::new();
        let mut apart = BTreeSet::new();
        for (number, key) in event_loop.watched.iter().take(TASKS_WAITING) {
            if let Some(resources) = enclosed(*number) {
                apart.insert(*key);
                let reached = reach::from_or_open(inspector, std::iter::once(*key));
                by_enclosed.push(Enclosed { resources, reached });
            }
        }
        let others = |runs: &Vec<Addr>| {
            reach::from_or_open(inspector, runs.iter().copied().filter(|object| !apart.contains(object)))
        };
        Around {
            by_loop: event_loop.runs.as_ref().map(others),
            by_enclosed,
            by_signals: reach::from_or_open(inspector, event_loop.signal_handlers),
        }
    }
}

/// Whether nobody but this process has the other end of a resource.
fn has_own_end(process: &Process<'_>, key: &ResourceKey, out: &Observations) -> bool {
    let own = process.context.process;
    let is_own = |party: &Party| matches!(party, Party::Process(of) | Party::Thread(of, _) if *of == own);
    let mut holders = out.holds.iter().filter(|hold| hold.resource == *key).map(|hold| &hold.holder).peekable();
    let is_known = || out.known_wakers.iter().any(|known| known.resource == *key);
    if holders.peek().is_some() { holders.all(is_own) } else { is_known() }
}

/// Add who could complete each future.
fn wakers(
    process: &Process<'_>,
    facts: &Facts<'_>,
    own: &[ThreadWait],
    awaited: &[Awaited<'_>],
    out: &mut Observations,
) {
    if tasks_of(facts).nth(TASKS_WAITING).is_some() {
        let what = format!("asyncio tasks of process {}", process.context.image.pid);
        out.gaps
            .push(Gap::new(what, format!("who could end the waits of more than {TASKS_WAITING} tasks is not known")));
        return;
    }
    let mut around: HashMap<Addr, Around> = HashMap::new();
    for event_loop in facts.loops() {
        around.entry(event_loop.object).or_insert_with(|| Around::of(process, facts, own, event_loop, out));
    }
    let tasks: Vec<OfTask<'_>> = tasks_of(facts).map(|task| OfTask::new(facts, task)).collect();
    let mut sources: HashMap<Addr, Vec<(Waker, String)>> = HashMap::new();
    for one in awaited {
        let is_within = |reached: &Reached| reached.has(one.future) || reached.has(one.task.object);
        let mut found: Vec<(Waker, String)> = Vec::new();
        match around.get(&one.event_loop.object) {
            Some(Around { by_loop: Some(by_loop), by_enclosed, by_signals }) => {
                if is_within(by_loop) || by_loop.anything.is_some() {
                    let what = "a timer, a callback or a watched descriptor of its event loop can reach what it awaits";
                    found.push((Waker::ByItself, what.into()));
                } else if let Some(name) = ends_all(by_loop) {
                    let what = format!("a timer or a callback of its event loop uses {name}, which reaches every task");
                    found.push((Waker::ByItself, what));
                }
                for Enclosed { resources, reached } in by_enclosed {
                    if is_within(reached) || reached.anything.is_some() || ends_all(reached).is_some() {
                        let what = "what its event loop waits for at a descriptor can reach what it awaits";
                        let party = |key: &ResourceKey| Waker::Party(Party::Resource(key.clone()));
                        found.extend(resources.iter().map(|key| (party(key), what.to_owned())));
                    }
                }
                if is_within(by_signals) || by_signals.anything.is_some() || ends_all(by_signals).is_some() {
                    let what = "a handler for a signal that its event loop has can reach what it awaits";
                    found.push((Waker::OnRequest, what.into()));
                }
            }
            _ => found.push((Waker::ByItself, "what its event loop may still run could not be read".into())),
        }
        found.extend(signals::that_end_tasks(
            facts,
            process,
            &[one.future, one.task.object, one.event_loop.object],
            Some(one.event_loop.tid),
        ));
        if one.event_loop.watching.contains(&one.task.object) {
            found.push((Waker::ByItself, "it waits for a descriptor".into()));
        }
        if !one.event_loop.is_idle {
            let what = "the loop's thread is inside a callback".to_owned();
            found.push((Waker::Party(Party::Thread(process.context.process, one.event_loop.tid)), what));
        }
        // Checking tasks, threads and finalisers is expensive, and changes nothing about a wait that ends by itself.
        if found.iter().any(|(by, _)| *by == Waker::ByItself) {
            sources.insert(one.future, found);
            continue;
        }
        // The effects of a library's own task on other threads are found through those threads.
        let is_own =
            |other: &Task| run_of(facts, other).is_some_and(|run| trio_wake_sources::is_of_trio(facts, run, other));
        for of_other in tasks.iter().filter(|of| of.task.object != one.task.object && !is_own(of.task)) {
            let (other, reached) = (of_other.task, of_other.reached());
            let every = ends_all(reached);
            let how = if is_within(reached) {
                "can reach what it awaits".to_owned()
            } else if let Some(why) = &reached.anything {
                why.clone()
            } else if let Some(name) = every {
                format!("uses {name}, which reaches every task")
            } else {
                continue;
            };
            let party = Party::Resource(key(process, other.kind, other.object));
            found.push((Waker::Party(party), format!("task {} {how}", other.name)));
            task_holders::by_design(process, of_other, (&one.resource, one.called), out);
        }
        if let Some(run) = run_of(facts, one.task) {
            found.extend(trio_wake_sources::sources(facts, process, run, one.task, &tasks));
        }
        if !found.iter().any(|(by, _)| *by == Waker::ByItself) {
            found.extend(by_threads(process, facts, one));
            found.extend(by_finalisers(facts, one));
        }
        sources.insert(one.future, found);
    }
    let behind = behind_roots(facts, awaited, &sources, out);
    // The loop's own thread waits for its tasks.
    let loops: BTreeSet<i32> = facts.loops().iter().map(|one| one.tid).collect();
    let is_of_no_loop = |party: &Party| !matches!(party, Party::Thread(_, tid) if loops.contains(tid));
    let waiters: BTreeSet<Party> = out.waits.iter().map(|wait| wait.waiter.clone()).filter(is_of_no_loop).collect();
    for one in awaited {
        let found = sources.remove(&one.future).unwrap_or_default();
        let goes_on = one.event_loop.runs.as_ref().is_none_or(|runs| !runs.is_empty());
        let is_meant = !one.is_named && found.is_empty() && goes_on;
        let is_reportable = behind.contains(&one.task.object) && !is_meant;
        // If only another waiter could end this wait, it follows from that waiter's wait.
        let is_task = |party: &Party| matches!(party, Party::Resource(key) if key.kind.topic == Topic::Task);
        let is_waiter = |party: &Party| is_task(party) || waiters.contains(party);
        let follows = found.iter().any(|(by, _)| matches!(by, Waker::Party(party) if is_waiter(party)));
        match out.known_wakers.iter_mut().find(|known| known.resource == one.resource.key) {
            Some(known) => known.is_reportable |= is_reportable,
            None => out.known_wakers.push(KnownWakers {
                resource: one.resource.key.clone(),
                why: "no task, timer, descriptor or thread that goes on can reach what it awaits".into(),
                certainty: Certainty::Inferred,
                ruled_out: Vec::new(),
                whole_process: follows,
                is_reportable,
            }),
        }
        let resource = &one.resource.key;
        // One object may have several futures: code that completes one of them need not reach the others.
        let waiter = Some(Party::Resource(key(process, one.task.kind, one.task.object)));
        out.wake_sources.extend(found.into_iter().map(|(by, what)| WakeSource {
            resource: resource.clone(),
            waiter: waiter.clone(),
            by,
            what,
        }));
        out.read_of.push((process.context.process, Some(one.event_loop.tid)));
    }
}

/// Add the tasks whose end leads to what another one awaits: those that it waits for, shields or has in its group. Each is a candidate,
/// since the end of one may not be enough.
fn ends(process: &Process<'_>, facts: &Facts<'_>, awaited: &[Awaited<'_>], out: &mut Observations) {
    for child in facts.tasks().iter().take(TASKS_WAITING) {
        let called = called_at_end(facts, child);
        for one in awaited.iter().filter(|one| called.contains(&one.future) && one.task.object != child.object) {
            let own = event_loops::resource_of(process, child);
            add_resource(out, &own);
            let evidence = vec![format!("a callback for the end of {} has the future at {}", child.name, one.future)];
            let hold = exact_hold(&one.resource.key, Party::Resource(own.key), None, evidence);
            out.holds.push(Hold { strength: Strength::Candidate, ..hold });
        }
    }
}

/// Threads beside the loop's own that could complete the future, cancel the task, or call into the loop.
fn by_threads(process: &Process<'_>, facts: &Facts<'_>, one: &Awaited<'_>) -> Vec<(Waker, String)> {
    let is_other =
        |thread: &&ThreadView<'_>| thread.image.tid != one.event_loop.tid && thread.image.state != TaskState::Zombie;
    let others: Vec<&ThreadView<'_>> = process.threads.iter().filter(is_other).collect();
    if others.len() > MOST_ASKED {
        let what = format!("one of {} other threads may reach what it awaits", others.len());
        return vec![(Waker::Party(Party::Process(process.context.process)), what)];
    }
    let targets = [one.future, one.task.object, one.event_loop.object];
    let reaches = |reached: &Reached| reached.anything.is_some() || targets.iter().any(|target| reached.has(*target));
    let party = |thread: &ThreadView<'_>| Waker::Party(Party::Thread(process.context.process, thread.image.tid));
    let mut found = Vec::new();
    for thread in others {
        let mut states = facts.inspector.states(thread.image.tid).peekable();
        // A thread without Python takes no part in what a loop awaits, but code that calls Python may.
        let is_native = states.peek().is_none();
        if is_native || states.any(|(state, _)| reaches(&facts.reached_or_open(state))) {
            found.push((
                party(thread),
                format!("{} may complete what it awaits, or call into its loop", thread.describe()),
            ));
        }
    }
    found
}

fn by_finalisers(facts: &Facts<'_>, one: &Awaited<'_>) -> Option<(Waker, String)> {
    let reaches =
        |reached: &Reached| reached.anything.is_some() || reached.has(one.future) || reached.has(one.task.object);
    let finaliser = facts.finalisers().iter().find(|finaliser| reaches(&finaliser.reached))?;
    Some((Waker::ByItself, format!("the collector may run {}, which may reach what it awaits", finaliser.name)))
}

/// The tasks that the end of a loop's run, or a thread, stands behind: the one that it runs for, those that this one waits for,
/// and so on.
fn behind_roots(
    facts: &Facts<'_>,
    awaited: &[Awaited<'_>],
    sources: &HashMap<Addr, Vec<(Waker, String)>>,
    out: &Observations,
) -> BTreeSet<Addr> {
    let mut behind: BTreeSet<Addr> = BTreeSet::new();
    let of_task = |party: &Party| match party {
        Party::Resource(key) => Some(key.address),
        _ => None,
    };
    let by_threads: BTreeSet<&ResourceKey> =
        out.waits.iter().filter(|wait| matches!(wait.waiter, Party::Thread(..))).map(|wait| &wait.resource).collect();
    // A thread waits for the future of the task that it gave to the loop.
    let given = out.holds.iter().filter(|hold| by_threads.contains(&hold.resource));
    let given = given.filter_map(|hold| of_task(&hold.holder));
    let mut todo: Vec<Addr> = facts.loops().iter().filter_map(|one| one.root).chain(given).collect();
    while let Some(task) = todo.pop() {
        if !behind.insert(task) {
            continue;
        }
        let is_it = |party: &Party| matches!(party, Party::Resource(key) if key.address == task && key.kind.topic == Topic::Task);
        for wait in out.waits.iter().filter(|wait| is_it(&wait.waiter)) {
            todo.push(wait.resource.address);
            let holders = out.holds.iter().filter(|hold| hold.resource == wait.resource);
            todo.extend(holders.filter_map(|hold| of_task(&hold.holder)));
        }
        let own = awaited.iter().find(|one| one.task.object == task).and_then(|one| sources.get(&one.future));
        todo.extend(own.into_iter().flatten().filter_map(|(by, _)| match by {
            Waker::Party(party) => of_task(party),
            _ => None,
        }));
    }
    behind
}

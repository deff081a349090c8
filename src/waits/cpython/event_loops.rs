//! The waits of asyncio tasks: for locks of asyncio, for each other, for a loop whose thread is blocked.
//!
//! In: tasks and all waits of threads. Out: waits whose waiter is a task, and who holds what these wait for. A task is a
//! resource that waits; a cycle of tasks shows no thread that waits for a lock, since the loop itself is idle.

use super::tasks::{RUN, Task, is_task};
use super::threading_objects::method;
use super::{Cpython, Facts};
use crate::image::{Addr, Gap};
use crate::limits::Bounded;
use crate::limits::cpython::{GATHERED_FUTURES, TASKS_WAITING};
use crate::origin::Origin;
use crate::python::PythonFrame;
use crate::python::inspect::frames_of;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, add_resource, exact_hold};
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::label::Label;
use crate::waits::model::{Certainty, Hold, Needs, Party, Resource, Role, Strength, TakenAt, Wait};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Where a lock of anyio has noted its task.
const OWNER: &str = "_owner_task";

/// Add what the tasks of each process wait for.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        let mut frames = facts.inspector.python.threads.iter().flat_map(frames_of);
        if frames.any(|frame| frame.origin.is_stdlib("asyncio")) {
            of_tasks(process, facts, out);
            of_timers(process, facts, out);
        } else if facts.trio().is_empty() {
            continue;
        }
        for wait in blocked.waits_of(process.context.process) {
            of_a_loop(process, facts, wait, out);
        }
    }
}

/// Tasks that wait for locks of asyncio and for other tasks.
fn of_tasks(process: &Process<'_>, facts: &Facts<'_>, out: &mut Observations) {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let frames = inspector.frames();
    let count = facts.tasks().len();
    if count > TASKS_WAITING {
        let what = format!("asyncio tasks of process {}", process.context.image.pid);
        out.gaps.push(Gap::new(what, format!("what {TASKS_WAITING} of its {count} tasks wait for was looked at")));
    }
    for task in facts.tasks().iter().take(TASKS_WAITING) {
        let inner = task.coroutines.last().and_then(|inner| frames.of_generator(*inner));
        let in_lock = inner.and_then(|(frame, code)| {
            let lock = frames.at(frame, code)?.first()?;
            let name = frames.code_name(code)?;
            (name.rsplit('.').next()? == "acquire" && &*objects.class_name(lock)? == "Lock").then_some(lock)
        });
        if let Some(lock) = in_lock {
            let place = own_frame(facts, task);
            let name = place.as_ref().and_then(|frame| inspector.name_of(lock, std::iter::once(frame)));
            let owner = objects.member(lock, OWNER).filter(|owner| !objects.is_none(*owner));
            let resource = Resource {
                key: key(process, kinds::ASYNCIO_LOCK, lock),
                process: process.context.process,
                label: Label::from(if owner.is_some() { "anyio.Lock" } else { "asyncio.Lock" }).named(name),
                state: Vec::new(),
                role: None,
            };
            let is_known = out.resource(&resource.key).is_some();
            let evidence = format!("{} in Lock.acquire of it", at(place.as_ref()));
            wait(process, task, &resource, (&evidence, place.as_ref()), out);
            if is_known {
                continue;
            }
            if let Some(owner) = owner {
                for holder in facts.tasks().iter().filter(|other| other.object == owner) {
                    let own = resource_of(process, holder);
                    add_resource(out, &own);
                    let frame = own_frame(facts, holder);
                    let evidence = format!("it has noted that {} has it, {}", holder.name, at(frame.as_ref()));
                    out.holds.push(exact_hold(&resource.key, Party::Resource(own.key), None, vec![evidence]));
                }
                continue;
            }
            let block = |other: &'_ Task| other.blocks(inspector).with_lock(objects, lock);
            let holders: Vec<_> = facts.tasks().iter().filter_map(|other| Some((other, block(other)?))).collect();
            for (holder, block) in &holders {
                let frame = own_frame(facts, holder);
                let evidence = format!("{} has entered its `async with` block, {}", holder.name, at(frame.as_ref()));
                let own = resource_of(process, holder);
                add_resource(out, &own);
                let party = Party::Resource(own.key);
                let strength = if holders.len() == 1 { Strength::Sole } else { Strength::Candidate };
                let hold = exact_hold(&resource.key, party, None, vec![evidence]);
                let taken = block.taken.clone();
                out.holds.push(Hold { strength, taken, ..hold });
            }
            continue;
        }
        let Some(future) = task.waits_for else { continue };
        let gathered = || {
            objects.bounded_sequence(objects.attribute(future, "_children")?, GATHERED_FUTURES, || {
                format!("futures that {} gathers", task.name)
            })
        };
        let (others, evidence) = if is_task(objects, future) {
            (vec![future], "it awaits that task")
        } else if let Some(tasks) = of_group(facts, task, future) {
            (tasks, "its group waits for that task")
        } else {
            (gathered().unwrap_or_default(), "it awaits that task")
        };
        for other in facts.tasks().iter().filter(|other| others.contains(&other.object)) {
            let place = own_frame(facts, task);
            wait(process, task, &resource_of(process, other), (evidence, place.as_ref()), out);
        }
    }
}

/// The tasks of the group whose block a task leaves: it awaits the future that the end of the last of them completes. Groups of
/// asyncio and of anyio have it under the same name.
fn of_group(facts: &Facts<'_>, task: &Task, future: Addr) -> Option<Vec<Addr>> {
    let (objects, frames) = (facts.inspector.objects(), facts.inspector.frames());
    task.coroutines.iter().rev().find_map(|coroutine| {
        let (frame, code) = frames.of_generator(*coroutine)?;
        frames.code_origin(code).filter(Origin::waits_for_caller)?;
        let group = frames.at(frame, code)?.first()?;
        objects.member(group, "_on_completed_fut").filter(|known| *known == future)?;
        objects.bounded_sequence(objects.member(group, "_tasks")?, GATHERED_FUTURES, || {
            format!("tasks of the group that {} waits for", task.name)
        })
    })
}

/// A thread that rests in its loop's selector until the next timer waits for that timer, too: the end of a child, or data
/// in a pipe, is but another of the events that it takes.
fn of_timers(process: &Process<'_>, facts: &Facts<'_>, out: &mut Observations) {
    for one in facts.loops().iter().filter(|one| one.is_idle && one.has_timers) {
        let waiter = Party::Thread(process.context.process, one.tid);
        let is_outside = |wait: &&Wait| wait.waiter == waiter && wait.timed && wait.resource.kind != kinds::EVENT_LOOP;
        let Some(model) = out.waits.iter().find(is_outside).cloned() else { continue };
        let resource = Resource {
            key: key(process, kinds::TIMER, one.object),
            process: process.context.process,
            label: "the next timer of its event loop".into(),
            state: Vec::new(),
            role: None,
        };
        add_resource(out, &resource);
        out.waits.iter_mut().filter(|wait| wait.waiter == waiter).for_each(|wait| wait.needs = Needs::Any);
        let evidence = vec!["its loop has timers, and its wait ends with the next of them".to_owned()];
        out.waits.push(Wait { resource: resource.key, needs: Needs::Any, evidence, ..model });
    }
}

/// The innermost coroutine of a task that is no function of asyncio.
pub(super) fn own_frame(facts: &Facts<'_>, task: &Task) -> Option<PythonFrame> {
    let frames = task.coroutines.iter().rev().filter_map(|coroutine| facts.inspector.frames().suspended(*coroutine));
    frames.into_iter().find(|frame| !frame.origin.waits_for_caller())
}

/// Where a frame is.
fn taken_at(frame: &PythonFrame) -> Option<TakenAt> {
    Some(TakenAt::at(&*frame.file, frame.line?, &*frame.function))
}

/// "at app.py:31 in fetch".
pub(super) fn at(frame: Option<&PythonFrame>) -> String {
    let Some(frame) = frame else { return "its innermost coroutine is".into() };
    let file = frame.file.rsplit('/').next().unwrap_or(&frame.file);
    let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("it is at {file}{line} in {}", frame.function)
}

/// A thread that waits inside of a callback of its loop: no task of the loop goes on meanwhile.
fn of_a_loop(process: &Process<'_>, facts: &Facts<'_>, own_wait: &ThreadWait, out: &mut Observations) {
    let tid = process.threads[own_wait.thread].image.tid;
    let stack: Vec<&PythonFrame> = facts.inspector.stack(tid).collect();
    let of_asyncio =
        |frame: &&PythonFrame| frame.origin.is_stdlib("asyncio.base_events") && method(frame) == "_run_once";
    let of_trio = |frame: &PythonFrame| frame.origin.is_package(RUN) && method(frame) == "unrolled_run";
    let turn = stack.iter().position(|frame| of_asyncio(frame) || of_trio(frame));
    let Some(turn) = turn else { return };
    let calls_back =
        || stack[..turn].iter().any(|frame| frame.origin.is_stdlib("asyncio.events") && method(frame) == "_run");
    if of_asyncio(&stack[turn]) && !calls_back() {
        return;
    }
    let all = facts.tasks().iter().chain(facts.trio().iter().flat_map(|run| &run.tasks));
    let own: Vec<&Task> = all.filter(|task| task.tid == Some(tid)).collect();
    let name = process.threads[own_wait.thread].name();
    let key = key(process, kinds::EVENT_LOOP, stack[turn].address);
    // A thread may wait for several things at once.
    if out.resource(&key).is_some() {
        return;
    }
    let resource = Resource {
        key,
        process: process.context.process,
        label: format!("the event loop of {name}").into(),
        role: Some(Role::EventLoop { tasks: own.len() }),
        state: Vec::new(),
    };
    add_resource(out, &resource);
    let what = || format!("asyncio tasks of the event loop of {name}");
    for task in own.iter().bounded(TASKS_WAITING, what, "tasks of one loop") {
        wait(process, task, &resource, ("its loop's thread is inside of a callback", None), out);
    }
    let evidence =
        vec![format!("{} runs the loop and is in one of its callbacks", process.threads[own_wait.thread].describe())];
    let frame = process.threads[own_wait.thread].merged_python(stack[turn].address);
    let holder = Party::Thread(process.context.process, tid);
    out.holds.push(Hold { frame, ..exact_hold(&resource.key, holder, None, evidence) });
}

pub(super) fn resource_of(process: &Process<'_>, task: &Task) -> Resource {
    Resource {
        key: key(process, task.kind, task.object),
        process: process.context.process,
        label: format!("{} {}", if task.kind == kinds::GREENLET { "greenlet" } else { "task" }, task.name).into(),
        state: Vec::new(),
        role: None,
    }
}

/// A task waits for a thing, in this frame of it.
pub(super) fn wait(
    process: &Process<'_>,
    task: &Task,
    resource: &Resource,
    (evidence, place): (&str, Option<&PythonFrame>),
    out: &mut Observations,
) {
    let own = resource_of(process, task);
    add_resource(out, &own);
    add_resource(out, resource);
    out.waits.push(Wait {
        waiter: Party::Resource(own.key),
        resource: resource.key.clone(),
        mode: None,
        needs: Needs::All,
        timed: false,
        retried: false,
        since_ms: None,
        frame: None,
        certainty: Certainty::Exact,
        evidence: vec![format!("{}: {evidence}", task.name)],
        spinning: false,
        place: place.and_then(taken_at),
    });
}

//! Tasks of trio: which there are, what they wait for, and who has that.
//!
//! In: threads that run trio. Out: waits of tasks for locks, for units of limiters and for the tasks of their
//! nurseries. trio notes in a lock which task has it, in a task whether it waits, and in a nursery whose end is
//! awaited. All of this is read, none inferred. A run inside of another event loop (guest mode) is on no stack and is
//! not found. Locks of anyio lead to trio's. `trio_wake_sources` finds the code that could still end a task's wait.

use super::event_loops::{at, own_frame, resource_of, wait};
use super::tasks::{RUN, Task, chain};
use super::threading_objects::method;
use super::{Cpython, Facts};
use crate::image::{Addr, Gap};
use crate::limits::cpython::{MOST_TASKS, TASKS_WAITING};
use crate::origin::Origin;
use crate::python::PythonFrame;
use crate::python::inspect::{Inspector, frames_of};
use crate::waits::holders::{Blocked, add_resource, exact_hold};
use crate::waits::identity::key;
use crate::waits::kinds::{self, Kind};
use crate::waits::label::Label;
use crate::waits::model::{Needs, Party, Resource};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Functions that lie between what a task called and the loop.
const BETWEEN: [&str; 4] = ["_async_yield", "_real_async_yield", "wait_task_rescheduled", "park"];
/// The attribute in which anyio keeps trio's lock.
const WRAPPED: &str = "_Lock__original";

/// A call of `trio.run` that has not come back.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) runner: Addr,
    pub(super) tasks: Vec<Task>,
}

/// All that run on threads of the process.
pub(super) fn all(inspector: &Inspector<'_>) -> Vec<Run> {
    let objects = inspector.objects();
    let mut found: Vec<(Addr, Option<i32>)> = Vec::new();
    for (_, thread) in inspector.living() {
        let runs = frames_of(thread)
            .filter(|frame| frame.origin.is_package(RUN) && ["run", "unrolled_run"].contains(&method(frame)));
        let runners = runs.filter_map(|frame| inspector.frame(frame)?.variable("runner"));
        for runner in runners {
            if !found.iter().any(|(known, _)| *known == runner) {
                found.push((runner, thread.tid));
            }
        }
    }
    let run = |(runner, tid): (Addr, Option<i32>)| {
        let set = objects.member(runner, "tasks")?;
        let mut tasks = objects.bounded_sequence(set, MOST_TASKS as u64, || "tasks of trio".into())?;
        tasks.sort_unstable();
        let tasks = tasks.into_iter().filter_map(|object| task(inspector, object, tid)).collect();
        Some(Run { runner, tasks })
    };
    found.into_iter().filter_map(run).collect()
}

fn task(inspector: &Inspector<'_>, object: Addr, tid: Option<i32>) -> Option<Task> {
    let objects = inspector.objects();
    let name = objects.member(object, "name").and_then(|name| objects.text(name))?;
    // Where its function is matters little; those of trio itself have no function's name.
    let name = if name.starts_with('<') { &name } else { name.rsplit('.').next().unwrap_or(&name) };
    // Tasks of one function differ by their number.
    let number = objects.member(object, "_counter").and_then(|number| objects.unsigned(number));
    let number = number.map(|number| format!(" #{number}")).unwrap_or_default();
    let coroutines = chain(inspector, objects.member(object, "coro")?);
    let name = format!("{name}{number}");
    (!coroutines.is_empty()).then_some(Task { object, kind: kinds::TRIO_TASK, name, tid, waits_for: None, coroutines })
}

/// Whether a task waits: it has yielded to the loop, which has nothing to send it yet. How a wait is aborted is taken away when
/// that was tried, though a nursery goes on waiting for its tasks.
pub(super) fn waits(inspector: &Inspector<'_>, task: &Task) -> bool {
    let (objects, frames) = (inspector.objects(), inspector.frames());
    let is_none = |name: &str| objects.member(task.object, name).map(|value| objects.is_none(value));
    let innermost = task.coroutines.last().and_then(|inner| frames.of_generator(*inner));
    let name = innermost.and_then(|(_, code)| frames.code_name(code)).unwrap_or_default();
    is_none("_abort_func") == Some(false) || is_none("_next_send_fn") == Some(true) && BETWEEN.contains(&name.as_str())
}

/// Add what tasks wait for.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        for run in facts.trio() {
            let count = run.tasks.len();
            if count > TASKS_WAITING {
                let what = format!("trio tasks of process {}", process.context.image.pid);
                out.gaps
                    .push(Gap::new(what, format!("what {TASKS_WAITING} of its {count} tasks wait for was looked at")));
            }
            for task in run.tasks.iter().take(TASKS_WAITING).filter(|task| waits(&facts.inspector, task)) {
                of_task(process, facts, run, task, out);
            }
        }
    }
}

/// The call of a task that waits: the name of the method, its object, and its frame's position in the coroutine.
fn call(inspector: &Inspector<'_>, task: &Task) -> Option<(String, Addr, usize)> {
    let frames = inspector.frames();
    task.coroutines.iter().enumerate().rev().find_map(|(position, coroutine)| {
        let (frame, code) = frames.of_generator(*coroutine)?;
        let name = frames.code_name(code)?;
        let name = name.rsplit('.').next().unwrap_or(&name).to_owned();
        let is_own = frames.code_origin(code).is_some_and(|of| of.waits_for_caller());
        if BETWEEN.contains(&name.as_str()) && is_own {
            return None;
        }
        // Nothing is known about a function of the program's.
        Some(is_own.then(|| Some((name, frames.at(frame, code)?.first()?, position))))
    })??
}

fn of_task(process: &Process<'_>, facts: &Facts<'_>, run: &Run, task: &Task, out: &mut Observations) {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let Some((name, object, position)) = call(inspector, task) else { return };
    match name.as_str() {
        "acquire" => {
            let lock = objects.member(object, WRAPPED).unwrap_or(object);
            let Some(owner) = objects.member(lock, "_owner") else { return };
            let (kind, class) = (kinds::TRIO_LOCK, objects.class_name(lock).unwrap_or_default());
            let holders = run.tasks.iter().filter(|other| other.object == owner).collect();
            for_what_others_have(process, facts, task, (kind, lock, &class, position), holders, out);
        }
        "acquire_on_behalf_of" => {
            let Some(borrowers) = objects.member(object, "_borrowers") else { return };
            let Some(borrowers) = objects.sequence(borrowers, MOST_TASKS as u64) else { return };
            let has_one = |other: &&Task| {
                borrowers.contains(&other.object) || borrowers.iter().any(|one| borrows_for(inspector, other, *one))
            };
            let holders: Vec<&Task> = run.tasks.iter().filter(has_one).collect();
            if holders.len() == borrowers.len() {
                let what = (kinds::TRIO_LIMITER, object, "CapacityLimiter", position);
                for_what_others_have(process, facts, task, what, holders, out);
            }
        }
        "_nested_child_finished" => {
            let children = objects.member(object, "_children");
            let children = children.and_then(|children| objects.sequence(children, MOST_TASKS as u64));
            let children = children.unwrap_or_default();
            for child in run.tasks.iter().filter(|other| children.contains(&other.object)) {
                wait(
                    process,
                    task,
                    &resource_of(process, child),
                    ("its nursery waits for that task", own_frame(facts, task).as_ref()),
                    out,
                );
            }
        }
        _ => {}
    }
}

/// Whether a task has borrowed a unit in the name of this object, as `to_thread.run_sync` does: a function of the library has it in
/// a variable, and has come beyond the call that waits for the unit.
fn borrows_for(inspector: &Inspector<'_>, task: &Task, borrower: Addr) -> bool {
    let frames = inspector.frames();
    task.coroutines.iter().any(|coroutine| {
        let Some((frame, code)) = frames.of_generator(*coroutine) else { return false };
        let is_own = frames.code_origin(code).is_some_and(|of| of.waits_for_caller());
        let name = frames.code_name(code).unwrap_or_default();
        let has =
            || frames.at(frame, code).is_some_and(|open| open.variables().iter().any(|(_, one)| *one == borrower));
        is_own && !name.ends_with("acquire_on_behalf_of") && has()
    })
}

/// A wait for a lock or a unit that other tasks have; the object and how far in the call is.
fn for_what_others_have(
    process: &Process<'_>,
    facts: &Facts<'_>,
    task: &Task,
    (kind, object, class, position): (&'static Kind, Addr, &str, usize),
    holders: Vec<&Task>,
    out: &mut Observations,
) {
    let place = own_frame(facts, task);
    let resource = Resource {
        key: key(process, kind, object),
        process: process.context.process,
        label: Label::from(format!("trio.{class}").as_str()).named(name_of(
            facts,
            task,
            object,
            position,
            place.as_ref(),
        )),
        state: Vec::new(),
        role: None,
    };
    let is_known = out.resource(&resource.key).is_some();
    let evidence = format!("{} and waits for it", at(place.as_ref()));
    wait(process, task, &resource, (&evidence, place.as_ref()), out);
    if let Some(added) = out.waits.last_mut().filter(|_| holders.len() > 1) {
        added.needs = Needs::Any;
    }
    if is_known {
        return;
    }
    for holder in &holders {
        let frame = own_frame(facts, holder);
        let evidence = format!("it has noted that {} has it, {}", holder.name, at(frame.as_ref()));
        let own = resource_of(process, holder);
        add_resource(out, &own);
        let hold = exact_hold(&resource.key, Party::Resource(own.key), None, vec![evidence]);
        out.holds.push(hold);
    }
}

/// The program's name for it, or for the object around it: anyio's lock, a Condition.
fn name_of(
    facts: &Facts<'_>,
    task: &Task,
    object: Addr,
    position: usize,
    place: Option<&PythonFrame>,
) -> Option<String> {
    let inspector = &facts.inspector;
    let frames = inspector.frames();
    let around = task.coroutines.iter().take(position + 1).rev().map_while(|coroutine| {
        let (frame, code) = frames.of_generator(*coroutine)?;
        frames.code_origin(code).filter(Origin::waits_for_caller)?;
        frames.at(frame, code)?.first()
    });
    std::iter::once(object).chain(around).find_map(|one| inspector.name_of(one, std::iter::once(place?)))
}

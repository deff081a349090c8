//! The role of a process in Ray: a worker that runs tasks or is an actor, or a driver. The source is the object that
//! Ray keeps about it.
//!
//! In: the modules and stacks of a process. Out: a [`ClusterMember`] with its cluster, job, worker and actor, and the
//! work and waits of its threads. A task that a thread runs is identified by its function: its id lies in C++ alone,
//! and Ray's own list of tasks has it.

use super::super::Facts;
use super::super::dask::class_of;
use super::super::threading_objects::method;
use super::{ids, requests};
use crate::image::Addr;
use crate::launcher::JobEngine;
use crate::python::PythonFrame;
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;
use crate::waits::cluster::{ClusterMember, ClusterPart, ClusterRequest, ClusterRole, RunningTask};
use crate::waits::thread::{Process, ThreadView};

/// `mode` of `ray._private.worker.global_worker`: `SCRIPT_MODE` is a driver, `WORKER_MODE` runs tasks (ray/_private/worker.py).
const MODES: [(u64, ClusterPart); 2] = [(0, ClusterPart::Client), (1, ClusterPart::Worker)];
/// The function that calls the methods of actors, and its module.
const EXECUTOR: (&str, &str) = ("actor_method_executor", "ray._private.function_manager");
/// The function that runs tasks without a thread of their own, and its module.
const LOOP: (&str, &str) = ("main_loop", "ray._private.worker");
/// C++ functions of `_raylet.so` around tasks (src/ray/core_worker): of the main thread of a worker, and of each thread of a pool
/// (task_execution/thread_pool.cc). If actors have pools at all, all of their methods run in these.
const MAIN: &str = "ray::core::CoreWorker::RunTaskExecutionLoop";
const POOL: &str = "ray::core::BoundedExecutor::BoundedExecutor(";
/// The id of a worker, in letters (src/ray/common/constants.h, `kUniqueIDSize`).
const WORKER_ID: usize = 56;

/// A process's own account of its role in Ray; `None` where it is no participant.
pub(in super::super) fn member(facts: &Facts<'_>, process: &Process<'_>) -> Option<ClusterMember> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let memory = process.memory();
    let connected = |worker: &Addr| {
        objects.attribute(*worker, "core_worker").is_some_and(|core| !objects.is_none(core))
            && objects.attribute(*worker, "_is_connected").and_then(|is| objects.unsigned(is)) != Some(0)
    };
    let worker = inspector.globals("ray._private.worker", "global_worker").find(connected)?;
    let mode = objects.attribute(worker, "mode").and_then(|mode| objects.unsigned(mode))?;
    let (_, role) = MODES.iter().find(|(number, _)| *number == mode)?;
    let is_worker = *role == ClusterPart::Worker;
    let node = objects.attribute(worker, "node");
    let of_node = |name: &str| text(objects, node?, name);
    let actors = objects.attribute(worker, "actors").and_then(|actors| objects.items(actors)).unwrap_or_default();
    let actor = actors.into_iter().find_map(|(id, actor)| Some((ids::actor(memory, objects, id)?, actor)));
    let arguments = || inspector.globals("__main__", "args").find_map(|args| text(objects, args, "worker_id"));
    let id = if is_worker { arguments() } else { None };
    let mut member = ClusterMember {
        engine: JobEngine::Ray,
        scheduler: of_node("_gcs_address"),
        job: objects.attribute(worker, "_cached_job_id").and_then(|job| ids::job(memory, objects, job)),
        ..ClusterMember::default()
    };
    for thread in &process.threads {
        let stack: Vec<&PythonFrame> = inspector.stack(thread.image.tid).collect();
        if is_worker && stack.iter().any(|frame| requests::is_of_the_look(inspector, frame)) {
            // A task by which lockscope samples others.
            return None;
        }
        if let Some(task) = is_worker.then(|| task(inspector, &stack)).flatten() {
            member.running.push(RunningTask { tid: thread.image.tid, task, ..RunningTask::default() });
        }
        let request = requests::find(process, facts, thread).filter(|request| !request.is_of_the_look);
        let Some(request) = request else { continue };
        let task = member.running.last().filter(|task| task.tid == thread.image.tid).map(|task| task.task.clone());
        member.job = member.job.or_else(|| request.wanted.first().map(|wanted| wanted.job.clone()));
        let names: Vec<String> = request.wanted.into_iter().map(|wanted| wanted.task).collect();
        member.requests.push(ClusterRequest {
            tid: thread.image.tid,
            task,
            what: request.what,
            request: names.join(" "),
            names,
            timed: request.timed,
            place: request.place,
            is_undone: request.is_undone,
        });
    }
    member.roles.push(ClusterRole {
        role: *role,
        address: of_node("_node_ip_address"),
        name: actor.as_ref().map(|(_, actor)| class_of(objects, *actor)),
        id: id.filter(|id| id.len() == WORKER_ID),
        threads: is_worker.then(|| threads(process, &member, actor.is_some())).flatten(),
        node: of_node("_node_id"),
        actor: actor.map(|(id, _)| id),
    });
    Some(member)
}

/// The function of the task that a thread runs.
fn task(inspector: &Inspector<'_>, stack: &[&PythonFrame]) -> Option<String> {
    let is = |frame: &PythonFrame, (function, module): (&str, &str)| {
        method(frame) == function && frame.origin.is_package(module)
    };
    let at = stack.iter().rposition(|frame| is(frame, EXECUTOR) || is(frame, LOOP))?;
    let inner = stack.get(..at)?.iter().rev();
    let frame = inner.clone().find(|frame| !requests::is_own(inspector, frame) && !is(frame, EXECUTOR))?;
    let function = frame.function.rsplit("<locals>.").next().unwrap_or(&frame.function);
    Some(function.to_owned())
}

/// How many tasks it runs at a time, where its stacks say so.
fn threads(process: &Process<'_>, member: &ClusterMember, is_actor: bool) -> Option<u32> {
    let inside = |thread: &ThreadView<'_>, name: &str| {
        let frames = thread.frames();
        frames.iter().filter_map(|frame| frame.function.as_deref()).any(|function| function.contains(name))
    };
    let main = process.threads.iter().find(|thread| inside(thread, MAIN))?;
    if !is_actor {
        return Some(1);
    }
    let pool = process.threads.iter().filter(|thread| inside(thread, POOL)).count();
    let in_main = member.running.iter().any(|task| task.tid == main.image.tid);
    match pool + usize::from(in_main) {
        0 => None,
        count => u32::try_from(count).ok(),
    }
}

fn text(objects: &Objects<'_>, object: Addr, attribute: &str) -> Option<String> {
    objects.attribute(object, attribute).and_then(|text| objects.text(text))
}

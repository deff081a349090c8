//! The role of a process in a cluster: worker, scheduler, client, nanny. The source is the objects that their classes
//! keep lists of.
//!
//! In: the modules of a process. Out: a [`Cluster`], and of it a [`ClusterMember`] with what its threads run, hold and wait for. Names
//! are those that the scheduler knows: a worker's address, a task's key.

use std::collections::BTreeMap;

use super::super::Facts;
use super::{class_of, key_text, requests};
use crate::image::Addr;
use crate::launcher::JobEngine;
use crate::limits;
use crate::limits::cpython::{CLUSTER_OBJECTS, CLUSTER_TASKS};
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;
use crate::waits::cluster::{
    ClusterLease, ClusterMember, ClusterPart, ClusterRequest, ClusterRole, Granted, RunningTask, WaitingTask,
};
use crate::waits::thread::Process;

/// Classes with a list of their instances, and what such an instance makes of a process; the first is what a process is at heart.
const CLASSES: [(&str, &str, ClusterPart); 4] = [
    ("distributed.worker", "Worker", ClusterPart::Worker),
    ("distributed.scheduler", "Scheduler", ClusterPart::Scheduler),
    ("distributed.nanny", "Nanny", ClusterPart::Nanny),
    ("distributed.client", "Client", ClusterPart::Client),
];

/// A process's part of a cluster.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Cluster {
    /// The address of the scheduler.
    pub(super) scheduler: Option<String>,
    pub(super) roles: Vec<(Addr, ClusterRole)>,
}

/// The cluster found in the modules of a process; `None` where it is in no cluster.
pub(in super::super) fn find(inspector: &Inspector<'_>) -> Option<Cluster> {
    let objects = inspector.objects();
    let mut cluster = Cluster::default();
    for (module, class, role) in CLASSES {
        for class in inspector.globals(module, class) {
            for object in instances(objects, class) {
                // A client inside of a worker is that of its tasks.
                let is_inner = role == ClusterPart::Client
                    && cluster.roles.iter().any(|(_, other)| other.role == ClusterPart::Worker);
                let scheduler = scheduler_of(objects, object, role);
                let role = described(objects, object, role);
                if is_inner || scheduler.is_none() {
                    continue;
                }
                cluster.scheduler = cluster.scheduler.or(scheduler);
                cluster.roles.push((object, role));
            }
        }
    }
    (!cluster.roles.is_empty()).then_some(cluster)
}

/// The living instances of a class that keeps weak references to them.
fn instances(objects: &Objects<'_>, class: Addr) -> Vec<Addr> {
    let dict = objects.class_parts(class).and_then(|(dict, _)| dict);
    let set = dict.and_then(|dict| objects.item(dict, "_instances"));
    let data = set.and_then(|set| objects.attribute(set, "data"));
    let what = || "workers, schedulers and clients of one process".to_owned();
    let references = data.and_then(|data| objects.bounded_sequence(data, CLUSTER_OBJECTS, what)).unwrap_or_default();
    let living = references.into_iter().filter_map(|reference| objects.field(reference, 0));
    let mut living: Vec<Addr> =
        living.filter(|object| objects.class(*object).is_some_and(|class| objects.is_class(class))).collect();
    living.sort_unstable();
    living
}

/// The address of the scheduler that an object knows.
fn scheduler_of(objects: &Objects<'_>, object: Addr, role: ClusterPart) -> Option<String> {
    if role == ClusterPart::Scheduler {
        return text(objects, object, "_address");
    }
    let scheduler = objects.member(object, "scheduler")?;
    text(objects, scheduler, "addr").or_else(|| text(objects, scheduler, "_address"))
}

fn described(objects: &Objects<'_>, object: Addr, role: ClusterPart) -> ClusterRole {
    let name = objects.member(object, "name").and_then(|name| key_text(objects, name));
    let threads =
        || objects.member(objects.member(object, "state")?, "nthreads").and_then(|count| objects.unsigned(count));
    ClusterRole {
        role,
        address: text(objects, object, "_address"),
        name,
        id: text(objects, object, "id"),
        threads: if role == ClusterPart::Worker { threads().and_then(|count| u32::try_from(count).ok()) } else { None },
        ..ClusterRole::default()
    }
}

fn text(objects: &Objects<'_>, object: Addr, attribute: &str) -> Option<String> {
    objects.member(object, attribute).and_then(|text| objects.text(text))
}

/// A process's own account of its membership in a cluster.
pub(in super::super) fn member(facts: &Facts<'_>, process: &Process<'_>) -> Option<ClusterMember> {
    let cluster = facts.cluster()?;
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let mut member = ClusterMember {
        engine: JobEngine::Dask,
        scheduler: cluster.scheduler.clone(),
        roles: cluster.roles.iter().map(|(_, role)| role.clone()).collect(),
        ..ClusterMember::default()
    };
    let mut tasks: BTreeMap<i32, String> = BTreeMap::new();
    for (object, role) in &cluster.roles {
        match role.role {
            ClusterPart::Worker => of_worker(facts, process, *object, &mut member),
            ClusterPart::Scheduler => of_scheduler(objects, *object, &mut member),
            _ => {}
        }
    }
    member.running.iter().for_each(|running| drop(tasks.insert(running.tid, running.task.clone())));
    for thread in &process.threads {
        let tid = thread.image.tid;
        let request = requests::find(facts, tid).filter(|request| !request.is_over && !request.is_of_the_look);
        let Some(request) = request else { continue };
        member.requests.push(ClusterRequest {
            tid,
            task: tasks.get(&tid).cloned(),
            what: request.what,
            names: request.names,
            request: request.mark,
            timed: request.timed,
            place: request.place,
            is_undone: false,
        });
    }
    for lease in facts.leases() {
        let tid = lease.state.and_then(|state| inspector.python.threads.get(state)?.tid);
        member.leases.push(ClusterLease {
            what: lease.what,
            name: lease.name.clone(),
            most: lease.most,
            leases: lease.leases.clone(),
            tid,
            task: tid.and_then(|tid| tasks.get(&tid).cloned()),
            place: lease
                .taken
                .as_ref()
                .map(|taken| {
                    let file = taken.file.rsplit('/').next().unwrap_or(&taken.file);
                    let function = taken.function.rsplit('.').next().unwrap_or(&taken.function);
                    format!("{file}:{} {function}", taken.line)
                })
                .unwrap_or_default(),
            is_entered: lease.is_entered,
        });
    }
    Some(member)
}

/// The keys of the tasks in a set.
fn keys(objects: &Objects<'_>, set: Option<Addr>) -> Vec<String> {
    let what = || "tasks of a worker".to_owned();
    let list = set.and_then(|set| objects.bounded_sequence(set, CLUSTER_TASKS, what)).unwrap_or_default();
    let key = |task: Addr| objects.member(task, "key").and_then(|key| key_text(objects, key));
    let mut keys: Vec<String> = list.into_iter().filter_map(key).collect();
    keys.sort();
    keys
}

fn of_worker(facts: &Facts<'_>, process: &Process<'_>, worker: Addr, member: &mut ClusterMember) {
    let objects = facts.inspector.objects();
    let state = objects.member(worker, "state");
    let of_state = |name: &str| objects.member(state?, name);
    let seceded = keys(objects, of_state("long_running"));
    // A HeapSet keeps its items in a set beside the heap.
    let ready = of_state("ready").map(|ready| objects.member(ready, "_data").unwrap_or(ready));
    member.ready.extend(keys(objects, ready));
    let threads = objects.member(worker, "active_threads").and_then(|dict| objects.items(dict)).unwrap_or_default();
    for (ident, key) in threads {
        let position = objects.unsigned(ident).and_then(|ident| facts.thread_with_ident(process, ident));
        let thread = position.and_then(|position| process.threads.get(position));
        let (Some(thread), Some(task)) = (thread, key_text(objects, key)) else { continue };
        member.running.push(RunningTask {
            tid: thread.image.tid,
            has_seceded: seceded.contains(&task),
            task,
            ..RunningTask::default()
        });
    }
    member.running.sort_by_key(|running| running.tid);
}

fn of_scheduler(objects: &Objects<'_>, scheduler: Addr, member: &mut ClusterMember) {
    let all = objects.member(scheduler, "tasks").and_then(|tasks| objects.items(tasks)).unwrap_or_default();
    if all.len() as u64 > CLUSTER_TASKS {
        limits::met(CLUSTER_TASKS, "tasks of a scheduler", "tasks");
    }
    for (_, task) in all.into_iter().take(crate::image::saturated(CLUSTER_TASKS)) {
        if text(objects, task, "_state").as_deref() != Some("waiting") {
            continue;
        }
        let key = objects.member(task, "key").and_then(|key| key_text(objects, key));
        let on = keys(objects, objects.member(task, "waiting_on"));
        member.waiting.extend(key.map(|task| WaitingTask { task, on }));
    }
    member.waiting.sort_by(|one, other| one.task.cmp(&other.task));
    let extensions = objects.member(scheduler, "extensions");
    let extension = |name: &str| objects.item(extensions?, name);
    let Some(semaphores) = extension("semaphores") else { return };
    if class_of(objects, semaphores) != "SemaphoreExtension" {
        return;
    }
    let most = objects.member(semaphores, "max_leases").and_then(|dict| objects.items(dict)).unwrap_or_default();
    let leases = objects.member(semaphores, "leases").and_then(|dict| objects.items(dict)).unwrap_or_default();
    for (name, given) in leases {
        let Some(called) = key_text(objects, name) else { continue };
        let given = objects.items(given).unwrap_or_default();
        let most = most.iter().find(|(other, _)| key_text(objects, *other).as_ref() == Some(&called));
        member.granted.push(Granted {
            name: called,
            most: most.and_then(|(_, most)| objects.unsigned(*most)),
            leases: given.into_iter().filter_map(|(lease, _)| objects.text(lease)).collect(),
        });
    }
    member.granted.sort_by(|one, other| one.name.cmp(&other.name));
}

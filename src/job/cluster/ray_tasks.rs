//! Ray's accounts of tasks and processes: states and names of tasks, and the threads that run them.
//!
//! In: what a process of Ray's says of itself, and accounts of tasks. Out: names of processes, the tasks of threads, the actor of a task.
//! It knows of no other process.

use std::collections::BTreeMap;

use super::super::digest::Digest;
use super::super::witness::TaskAccount;
use crate::launcher::JobEngine;
use crate::report::{ClusterMember, ClusterPart};

/// The number of letters of a task's id that are its actor's (src/ray/common/id.h).
const ACTOR_PART: usize = 16;
/// How the id of no actor begins.
const NO_ACTOR: &str = "ffffffffffffffffffffffff";
/// States of tasks in which nothing is left to be done (src/ray/protobuf/common.proto, `TaskStatus`).
pub(super) const OVER: [&str; 2] = ["FINISHED", "FAILED"];
/// A task is with its actor, which has no thread for it, or waits for one that was sent before.
pub(super) const WITH_ITS_ACTOR: &str = "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY";
const RUNS: &str = "RUNNING";
/// Letters of an id that suffice for people to distinguish two of a cluster.
pub(super) const SHORT: usize = 8;

/// Whether a process is one of Ray's.
pub(super) fn is_of_it(cluster: &ClusterMember) -> bool {
    cluster.engine == JobEngine::Ray
}

/// The witnesses' accounts of tasks in a digest. If two accounts are about the same task, the one that has seen more of
/// it counts.
pub(super) fn tasks(digest: &Digest) -> BTreeMap<&str, &TaskAccount> {
    let mut found: BTreeMap<&str, &TaskAccount> = BTreeMap::new();
    let rank = |one: &TaskAccount| {
        (one.attempt, OVER.contains(&one.state.as_str()), one.state == RUNS, one.state == WITH_ITS_ACTOR)
    };
    for account in digest.witnesses().flat_map(|witness| &witness.tasks) {
        let best = found.entry(&account.task).or_insert(account);
        if rank(best) < rank(account) {
            *best = account;
        }
    }
    found
}

/// The full and the short name of a process: "actor Partner 7f037e7e".
pub(super) fn names(cluster: &ClusterMember) -> (String, String) {
    let Some(role) = cluster.roles.first() else { return ("a process".to_owned(), "process".to_owned()) };
    let called = match (&role.actor, &role.name, &role.id) {
        (Some(actor), Some(class), _) => format!("actor {class} {}", short(actor)),
        (Some(actor), None, _) => format!("actor {}", short(actor)),
        (None, _, Some(worker)) => format!("worker {}", short(worker)),
        (None, ..) if role.role == ClusterPart::Client => return ("the driver".to_owned(), "driver".to_owned()),
        (None, ..) => "a worker".to_owned(),
    };
    let brief = called.strip_prefix("actor ").unwrap_or(&called).to_owned();
    (called, brief)
}

pub(super) fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// The tasks that run, by the workers that run them.
pub(super) fn by_worker<'d>(tasks: &BTreeMap<&'d str, &'d TaskAccount>) -> BTreeMap<&'d str, Vec<&'d TaskAccount>> {
    let mut found: BTreeMap<&str, Vec<&TaskAccount>> = BTreeMap::new();
    for task in tasks.values().filter(|task| task.state == RUNS) {
        if let Some(worker) = &task.worker {
            found.entry(worker).or_default().push(task);
        }
    }
    found
}

/// The ids of the tasks that threads run: Ray names the worker, and the function names the thread if only one runs it.
pub(super) fn ids<'d>(
    cluster: &ClusterMember,
    running: &BTreeMap<&'d str, Vec<&'d TaskAccount>>,
) -> BTreeMap<i32, &'d str> {
    let worker = cluster.roles.iter().find_map(|role| role.id.as_deref());
    let Some(own) = worker.and_then(|worker| running.get(worker)) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for running in &cluster.running {
        let function = last_part(&running.task);
        let alike = cluster.running.iter().filter(|other| last_part(&other.task) == function).count();
        let mut told = own.iter().filter(|task| last_part(&task.name) == function);
        if let (1, Some(task), None) = (alike, told.next(), told.next()) {
            found.insert(running.tid, task.task.as_str());
        }
    }
    found
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The actor whose task this is.
pub(super) fn actor_of(task: &str) -> Option<&str> {
    task.get(ACTOR_PART..).filter(|actor| !actor.starts_with(NO_ACTOR) && actor.len() > NO_ACTOR.len())
}

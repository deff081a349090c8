//! Processes that work for a rank, as the workers of a DataLoader do: they have its rank by inheritance, and are none.
//!
//! In: the report of a sample of both. Out: the helpers that the rank waits for and that do not wait for it, each with
//! its activity. If the rank is in an operation with others, its helpers do not count.

use std::collections::BTreeSet;

use super::digest::{Helper, RankWait};
use super::lines::{doing, is_helper, program};
use crate::limits::job::MOST_HELPERS;
use crate::report::{FrameKind, Process, Report, Thread};

/// Where a process that Python has forked begins: what lies further out is its parent's stack.
const BEGINNING: (&str, &str) = ("_bootstrap", "multiprocessing/process.py");

/// The processes that hold up a rank. `chain` is its main thread with the threads that it waits for.
pub(super) fn waited_for<'r>(
    report: &'r Report,
    rank: &Process,
    chain: &BTreeSet<i32>,
    waits: &[RankWait],
) -> Vec<&'r Process> {
    if waits.iter().any(|wait| wait.holds_up_main) {
        return Vec::new();
    }
    let works_for = |process: &&Process| {
        // A worker of a cluster is a member of its own, also where a client's process has started it.
        process.id != rank.id
            && process.cluster.is_none()
            && (process.parent == Some(rank.pid) || is_helper(process) && is_same_rank(process, rank))
    };
    let helpers: Vec<&Process> = report.processes.iter().filter(works_for).collect();
    if helpers.is_empty() {
        return helpers;
    }
    let held_by = |waiter: &Process, tids: &BTreeSet<i32>| -> BTreeSet<&str> {
        let waits = report.waits.iter().filter(|wait| wait.process == waiter.id);
        let wanted: BTreeSet<&str> = waits
            .filter(|wait| wait.tid.is_some_and(|tid| tids.contains(&tid)))
            .map(|wait| wait.resource.as_str())
            .collect();
        let holds = report.holds.iter().filter(|hold| wanted.contains(hold.resource.as_str()));
        holds.map(|hold| hold.process.as_str()).collect()
    };
    let among = |tids: &BTreeSet<i32>| {
        let holders = held_by(rank, tids);
        let found = helpers.iter().copied().filter(|helper| holders.contains(helper.id.as_str()));
        // A helper that waits for the rank is idle.
        let is_at_work = |helper: &&Process| {
            let main = BTreeSet::from([main(helper).map_or(helper.pid, |main| main.tid)]);
            !held_by(helper, &main).contains(rank.id.as_str())
        };
        found.filter(is_at_work).collect::<Vec<_>>()
    };
    let found = among(chain);
    if !found.is_empty() {
        return found;
    }
    // A thread of Python's between the main thread and the workers, as one that pins memory.
    let is_python = |thread: &&Thread| thread.frames.iter().any(|frame| frame.kind == FrameKind::Python);
    among(&rank.threads.iter().filter(is_python).map(|thread| thread.tid).collect())
}

fn is_same_rank(one: &Process, other: &Process) -> bool {
    let rank = |process: &Process| process.identity.as_ref().map(|identity| (identity.rank, identity.job.clone()));
    rank(one) == rank(other)
}

/// The main thread of a process.
pub(super) fn main(process: &Process) -> Option<&Thread> {
    process.threads.iter().find(|thread| thread.tid == process.pid).or(process.threads.first())
}

/// The part of their data that a digest keeps.
pub(super) fn kept(report: &Report, helpers: &[&Process]) -> Vec<Helper> {
    let helper = |process: &&Process| {
        let main = own_part(main(process)?);
        Some(Helper {
            pid: process.pid,
            program: program(process),
            role: main.role.clone(),
            main: doing(report, process, &main),
        })
    };
    helpers.iter().filter_map(helper).take(MOST_HELPERS).collect()
}

/// A thread without the frames that it has from before the fork.
fn own_part(thread: &Thread) -> Thread {
    let mut own = thread.clone();
    let is_beginning = |frame: &crate::report::Frame| {
        frame.belongs_to.is_some()
            && frame.function.as_deref().is_some_and(|name| name.ends_with(BEGINNING.0))
            && frame.file.as_deref().is_some_and(|file| file.ends_with(BEGINNING.1))
    };
    if let Some(end) = own.frames.iter().position(is_beginning) {
        own.frames.truncate(end);
    }
    own
}

/// "a worker of a PyTorch DataLoader (python3.11 6845)".
pub(super) fn called(role: Option<&str>, program: &str, pid: i32) -> String {
    let role = role.filter(|role| !role.starts_with("in ")).unwrap_or("process of its own");
    format!("a {role} ({program} {pid})")
}

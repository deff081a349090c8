//! The events that could still end the waits of trio's tasks that wait for one another.
//!
//! In: tasks in a ring. Out: [wake sources](crate::waits::model::WakeSource). Nothing else goes on in a run, so only
//! these cancel a task of trio:
//! - a time limit of a scope around it;
//! - a task that has the scope or its nursery and cancels it;
//! - another task of a nursery around it that raises;
//! - a thread that calls into the run.

use std::collections::BTreeSet;

use super::task_reach::{OfTask, may_fail};
use super::tasks::Task;
use super::trio::Run;
use super::{Facts, lasts};
use crate::image::{Addr, TaskState};
use crate::limits;
use crate::limits::cpython::{CANCEL_SCOPES, TASKS_WAITING};
use crate::limits::waits::MOST_ASKED;
use crate::python::objects::Objects;
use crate::python::reach::{self, CANCELS, Reached};
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::rings::behind;
use crate::waits::identity::key;
use crate::waits::model::{Party, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Names by which a thread calls into a run.
const CALLS_IN: &[&str] = &["run_sync_soon", "from_thread", "BlockingPortal"];

/// The objects that may cancel a task: scopes and nurseries around it.
struct Around {
    scopes: BTreeSet<Addr>,
    nurseries: BTreeSet<Addr>,
    has_limit: bool,
}

/// Add what could end waits of tasks in rings.
pub(super) fn find(
    facts: &Facts<'_>,
    process: &Process<'_>,
    own: &[ThreadWait],
    rings: &BTreeSet<Party>,
    out: &mut Observations,
) {
    let party = |task: &Task| Party::Resource(key(process, task.kind, task.object));
    for run in facts.trio() {
        let in_ring = |task: &&Task| rings.contains(&party(task));
        let tasks = || run.tasks.iter().take(TASKS_WAITING);
        if !tasks().any(|task| in_ring(&task)) {
            continue;
        }
        let behind = behind(rings, out);
        let others: Vec<(&Task, Around, Reached)> = tasks()
            .filter(|task| !behind.contains(&party(task)) && !is_of_trio(facts, run, task))
            .map(|task| (task, around(facts, task), reach::from(&facts.inspector, task.coroutines.clone(), false)))
            .collect();
        for task in tasks().filter(in_ring) {
            if let Some(what) = way_out(facts, process, own, run, task, &others) {
                out.wake_source_for(&party(task), Waker::ByItself, &what);
                out.read_of.push((process.context.process, task.tid));
            }
        }
    }
}

/// The parts of its run that could end the wait of a task: a limit around it, and each other task that can cancel a
/// scope or raise in a nursery around it. The tasks come with the objects that they can reach.
pub(super) fn sources(
    facts: &Facts<'_>,
    process: &Process<'_>,
    run: &Run,
    task: &Task,
    tasks: &[OfTask<'_>],
) -> Vec<(Waker, String)> {
    let mine = around(facts, task);
    if mine.has_limit {
        return vec![(Waker::ByItself, "a time limit around it (a cancel scope with a deadline) ends it".into())];
    }
    let is_other = |other: &Task| other.object != task.object && !is_of_trio(facts, run, other);
    let mut found = Vec::new();
    for of_other in tasks.iter().filter(|of| is_other(of.task)) {
        let (other, reached) = (of_other.task, of_other.reached());
        let has = mine.scopes.iter().chain(&mine.nurseries).any(|one| reached.has(*one));
        let cancels = has && CANCELS.iter().any(|name| reached.uses(name));
        let may_raise = may_fail(reached);
        let shares = || around(facts, other).nurseries.iter().any(|one| mine.nurseries.contains(one));
        if cancels || may_raise && shares() {
            let party = Party::Resource(key(process, other.kind, other.object));
            found.push((Waker::Party(party), format!("task {} may cancel it", other.name)));
        }
    }
    found
}

fn way_out(
    facts: &Facts<'_>,
    process: &Process<'_>,
    own: &[ThreadWait],
    run: &Run,
    task: &Task,
    others: &[(&Task, Around, Reached)],
) -> Option<String> {
    let mine = around(facts, task);
    if mine.has_limit {
        return Some("a time limit around it (a cancel scope with a deadline) ends it".into());
    }
    let reaches = |reached: &Reached| {
        let has = mine.scopes.iter().chain(&mine.nurseries).any(|one| reached.has(*one));
        has && CANCELS.iter().any(|name| reached.uses(name))
    };
    for (other, of_other, reached) in others {
        if reached.anything.is_some() || reaches(reached) {
            return Some(format!("task {} goes on, can reach a scope around it, and may cancel that", other.name));
        }
        if may_fail(reached) && of_other.nurseries.iter().any(|one| mine.nurseries.contains(one)) {
            return Some(format!("task {} of the same nursery goes on and may raise, which cancels it", other.name));
        }
    }
    let threads = process.threads.iter().enumerate().filter(|(position, thread)| {
        Some(thread.image.tid) != task.tid && thread.image.state != TaskState::Zombie && !lasts(own, *position)
    });
    threads.take(MOST_ASKED).find_map(|(_, thread)| {
        let calls_in = |reached: &Reached| {
            reached.has(run.runner) && reached.anything.is_some()
                || CALLS_IN.iter().any(|name| reached.uses(name))
                || reaches(reached)
        };
        let mut states = facts.inspector.states(thread.image.tid);
        let found = states.any(|(state, _)| calls_in(&facts.reached_by(state)));
        found.then(|| format!("{} can call into its run, and may end it", thread.describe()))
    })
}

/// Whether a task is one of trio's own, as the one that runs the requests of threads.
pub(super) fn is_of_trio(facts: &Facts<'_>, run: &Run, task: &Task) -> bool {
    let objects = facts.inspector.objects();
    let of_runner = |name: &str| objects.member(run.runner, name);
    let nursery = objects.member(task.object, "_parent_nursery");
    let outermost = of_runner("init_task") == Some(task.object);
    let is_main = of_runner("main_task") == Some(task.object);
    outermost || !is_main && nursery.is_some_and(|nursery| of_trio(objects, nursery, of_runner("init_task")))
}

/// Whether a nursery is one of the outermost task, in which trio runs what is its own.
fn of_trio(objects: &Objects<'_>, nursery: Addr, init: Option<Addr>) -> bool {
    init.is_some() && objects.member(nursery, "_parent_task") == init
}

/// The scopes and nurseries around a task.
fn around(facts: &Facts<'_>, task: &Task) -> Around {
    let objects = facts.inspector.objects();
    let mut found = Around { scopes: BTreeSet::new(), nurseries: BTreeSet::new(), has_limit: false };
    let some = |object: Addr, name: &str| objects.member(object, name).filter(|one| !objects.is_none(*one));
    let mut status = some(task.object, "_cancel_status");
    while let Some(here) = status {
        if found.scopes.len() >= CANCEL_SCOPES {
            limits::met(CANCEL_SCOPES, format!("scopes around task {}", task.name), "cancel scopes");
            found.has_limit = true;
            break;
        }
        let Some(scope) = some(here, "_scope").filter(|scope| found.scopes.insert(*scope)) else { break };
        let deadline = some(scope, "_registered_deadline").and_then(|deadline| objects.float(deadline));
        found.has_limit |= deadline.is_none_or(f64::is_finite);
        status = some(here, "_parent");
    }
    let mut nursery = some(task.object, "_parent_nursery");
    while let Some(here) = nursery.filter(|here| found.nurseries.len() < CANCEL_SCOPES && found.nurseries.insert(*here))
    {
        nursery = some(here, "_parent_task").and_then(|parent| some(parent, "_parent_nursery"));
    }
    found
}

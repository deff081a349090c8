//! `concurrent.futures.ProcessPoolExecutor`: which of its workers will set a future.
//!
//! In: a wait for a future, and the frames of the thread that manages the pool. Out: holds by the workers that run a
//! function of the program. A worker that waits for its next task holds nothing. So a future that is not done belongs
//! to a running function, or to one that comes after it. There is a result only if all workers are captured.

use super::threading_objects::method;
use super::{Cpython, Facts};
use crate::image::Addr;
use crate::limits::cpython::POOL_WORKERS;
use crate::python::PythonFrame;
use crate::python::inspect::frames_of;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Hold, Party, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

const EXECUTOR: &str = "concurrent.futures.process";
/// Functions of the thread that manages the workers: from 3.9 on, and before.
const MANAGERS: [&str; 2] = ["run", "_queue_management_worker"];

/// Add the workers that may run what sets `future`.
pub(super) fn holders(
    family: &Cpython<'_>,
    blocked: &Blocked<'_>,
    facts: &Facts<'_>,
    (wait, future): (&ThreadWait, Addr),
    out: &mut Observations,
) {
    let process = blocked.process(wait);
    let Some(workers) = workers(facts, future).and_then(|list| captured(facts, blocked, process, list)) else { return };
    let busy: Vec<(&Process<'_>, usize, Addr)> =
        workers.into_iter().filter_map(|worker| runs(family.facts(worker)?, worker)).collect();
    let strength = if busy.len() == 1 { Strength::Inferred } else { Strength::Candidate };
    for (worker, position, frame) in busy {
        let thread = &worker.threads[position];
        let evidence = vec![format!(
            "the Future at {future} stands in the work of the pool, of which {} of process {} runs a task",
            thread.describe(),
            worker.context.image.pid
        )];
        let holder = Party::Thread(worker.context.process, thread.image.tid);
        let hold = exact_hold(&wait.blocked_on.resource.key, holder, None, evidence);
        out.holds.push(Hold { strength, frame: thread.merged_python(frame), ..hold });
    }
}

/// The table of workers of the pool that has this future among its work.
fn workers(facts: &Facts<'_>, future: Addr) -> Option<Addr> {
    let objects = facts.inspector.objects();
    facts.inspector.living().find_map(|(_, state)| {
        let is_manager = |frame: &&PythonFrame| frame.origin.is_stdlib(EXECUTOR) && MANAGERS.contains(&method(frame));
        let frame = frames_of(state).find(is_manager)?;
        let open = facts.inspector.frame(frame)?;
        let of = |name: &str| open.variable(name).or_else(|| objects.attribute(open.first()?, name));
        let work = objects.items(of("pending_work_items")?)?;
        let is_it = |(_, item): &(Addr, Addr)| objects.attribute(*item, "future") == Some(future);
        work.iter().any(is_it).then(|| of("processes")).flatten()
    })
}

/// The processes of a table of workers, if each of them was captured.
fn captured<'b>(
    facts: &Facts<'_>,
    blocked: &'b Blocked<'_>,
    process: &Process<'_>,
    workers: Addr,
) -> Option<Vec<&'b Process<'b>>> {
    let objects = facts.inspector.objects();
    let items = objects.items(workers).filter(|items| items.len() as u64 <= POOL_WORKERS)?;
    let of = |(pid, _): (Addr, Addr)| {
        let pid = objects.unsigned(pid)?;
        let is_it = |one: &&Process<'_>| {
            one.context.image.ns_pid as u64 == pid && one.context.image.parent == Some(process.context.image.pid)
        };
        blocked.processes().iter().find(is_it)
    };
    items.into_iter().map(of).collect()
}

/// The main thread of a worker, with the frame of the function that it runs.
fn runs<'b>(facts: &Facts<'_>, worker: &'b Process<'b>) -> Option<(&'b Process<'b>, usize, Addr)> {
    let main = worker.threads.iter().find(|thread| thread.image.tid == worker.context.image.pid)?;
    let stack: Vec<&PythonFrame> = facts.inspector.stack(main.image.tid).collect();
    let at = stack.iter().position(|frame| frame.origin.is_stdlib(EXECUTOR) && method(frame) == "_process_worker")?;
    let inner = stack.get(at.checked_sub(1)?)?;
    let takes_or_gives = inner.origin.is_stdlib("multiprocessing.queues")
        || inner.origin.is_stdlib(EXECUTOR) && method(inner) != "_process_chunk";
    (!takes_or_gives).then_some((worker, main.position, inner.address))
}

//! Processes in which everything stands still: no thread is left that could wake another.
//!
//! In: all waits of a look. Out: for each process all of whose threads wait without end for things that only its own
//! threads can give, those things as [`Unsatisfiable`]; or, where fork left the other threads behind, as held by these. Locks
//! whose holder is known are not judged here: where they close a cycle, that says more.

use crate::image::descriptors::{FAULT_SIGNALS, INTERRUPT_SIGNAL};
use crate::image::{Gap, TaskState};
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold, left_by_fork};
use crate::waits::kinds::{self, Giver, Kind};
use crate::waits::model::{Certainty, Hold, Needs, Party, Scope, Unsatisfiable};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Add what nobody is left to give.
pub(super) fn find(blocked: &Blocked<'_>, out: &mut Observations) {
    for (position, process) in blocked.processes().iter().enumerate() {
        let own = blocked.waits_of(position);
        // A handler may post a semaphore. Python's own for SIGINT does not, it only asks for an end.
        let harmless = FAULT_SIGNALS | if process.context.python.is_some() { INTERRUPT_SIGNAL } else { 0 };
        let handles = process.context.all.kernel.handles(process.context.image.pid, !harmless);
        if handles == Some(true) || !stands_still(process, own) {
            continue;
        }
        let living = living(process);
        // Whoever holds a lock is one of those that wait, or gone.
        let is_given_by_thread = |kind: &Kind| match kind.giver {
            Giver::AnyThread => true,
            Giver::Holder => kind.is_lock(),
            Giver::Outside => false,
        };
        let wanted: Vec<&ThreadWait> =
            own.iter().filter(|found| is_given_by_thread(found.blocked_on.resource.key.kind)).collect();
        // A library's idle threads wait for work that Python code would give them: they are not what is wrong.
        let runs_python =
            |found: &&&ThreadWait| process.threads[found.thread].thread.is_some_and(|one| one.python.is_some());
        let of_python: Vec<&ThreadWait> = wanted.iter().filter(runs_python).copied().collect();
        for found in if of_python.is_empty() { wanted } else { of_python } {
            let key = &found.blocked_on.resource.key;
            let is_known = out.unsatisfiable.iter().any(|known| known.resource == *key);
            // Whoever is known to hold it is looked for in cycles.
            // A generator that has stopped holds it for nobody.
            let counts =
                |hold: &Hold| hold.certainty > Certainty::Candidate && !matches!(hold.holder, Party::Resource(_));
            let is_held = out.holds.iter().any(|hold| hold.resource == *key && counts(hold));
            if is_known || is_held {
                continue;
            }
            match left_by_fork::left_by_fork(blocked, process) {
                Some((holder, gone, why)) if living == 1 => {
                    let evidence = vec![format!("{why}: whoever would have woken it is not here")];
                    let hold = exact_hold(key, holder, None, evidence);
                    out.holds.push(Hold { gone: Some(gone), certainty: Certainty::Inferred, ..hold });
                }
                _ if handles.is_none() => {
                    let what = format!("who could give {}", found.blocked_on.resource.label);
                    let why = "no thread of the process can, as all wait; whether it has handlers for signals, which could, \
                               is not in a core";
                    out.gaps.push(Gap::new(what, why));
                }
                _ => {
                    let why = match living {
                        1 => "it is the only thread of its process, and nobody else can wake it".to_owned(),
                        count => format!(
                            "{} of the process wait for each other or to be woken, and none is left to do it",
                            if count == 2 { "both threads".to_owned() } else { format!("all {count} threads") }
                        ),
                    };
                    out.unsatisfiable.push(Unsatisfiable { resource: key.clone(), why, whole_process: true });
                }
            }
        }
    }
}

fn living(process: &Process<'_>) -> usize {
    process.threads.iter().filter(|thread| thread.image.state != TaskState::Zombie).count()
}

/// Whether every living thread waits, without a time-out, for what only threads of the process can give.
fn stands_still(process: &Process<'_>, own: &[ThreadWait]) -> bool {
    let inside = |found: &ThreadWait| {
        let ThreadWait { blocked_on, .. } = found;
        let key = &blocked_on.resource.key;
        matches!(key.scope, Scope::Process(_))
            && key.kind.giver != Giver::Outside
            && !blocked_on.timed
            && !blocked_on.spinning
            && (blocked_on.needs == Needs::All || key.kind == kinds::PY_CONDITION)
    };
    own.iter().all(inside)
        && process.threads.iter().enumerate().all(|(position, thread)| {
            let waits = own.iter().any(|found| found.thread == position);
            thread.image.state == TaskState::Zombie || waits && thread.image.registers.is_some()
        })
}

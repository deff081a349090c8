//! Locks of `multiprocessing`: which process has taken one.
//!
//! In: a wait for a semaphore in shared memory that belongs to a `SemLock`. Out: holds. Each process has an object of its own
//! for the same semaphore, with the count of how often this process has taken it and the thread that did last; fork copies
//! the thread's ident but sets the count to 0, so that the count decides. The objects are found from the frames of each
//! process: what is neither in a variable nor in an attribute or global at hand is not found.

use std::collections::HashSet;

use super::{Cpython, Facts, lasts};
use crate::image::{Addr, MemoryExt, TaskState};
use crate::limits;
use crate::limits::cpython::SHARED_OBJECTS;
use crate::limits::waits::MOST_ASKED;
use crate::python::inspect::{Entered, Inspector, frames_of};
use crate::python::reach::Reached;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::identity::key;
use crate::waits::model::{Gone, Hold, Party, Scope, Strength, WakeSource, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// `SemLockObject` of Modules/_multiprocessing/semaphore.c behind the head: handle, last_tid, count, maxvalue, kind
/// [live on 3.8 to 3.14]. The greatest value is 1 for locks. It is not for semaphores, conditions and events, which any
/// process may post.
const HANDLE: u64 = 0;
const LAST_THREAD: u64 = 8;
const COUNT: u64 = 16;
const UNITS: u64 = 20;
const KIND: u64 = 24;
/// A kind that any process may release: not `RECURSIVE_MUTEX`.
const SEMAPHORE: i32 = 1;

/// Add who has the lock that `wait` waits for.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, wait: &ThreadWait, out: &mut Observations) {
    let resource = &wait.blocked_on.resource;
    let before = out.holds.len();
    // Those that have an object of it at hand, whatever that says.
    let mut asked = Vec::new();
    let mut is_lock = true;
    // Threads that could release a lock that they did not take. If a holder is in a `with` block of it, they do not
    // count.
    let (mut wake_sources, mut is_in_block) = (Vec::new(), false);
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        let objects = facts.inspector.objects();
        for object in facts.shared() {
            let Some(handle) = objects.field(*object, HANDLE) else { continue };
            let count = process.memory().i32(*object + objects.head() + COUNT).unwrap_or(0);
            let own = key(process, resource.key.kind, handle);
            if (&own.scope, own.address) != (&resource.key.scope, resource.key.address) {
                continue;
            }
            asked.push(process.context.image.pid);
            let number = |offset: u64| process.memory().i32(*object + objects.head() + offset).unwrap_or(0);
            is_lock &= number(UNITS) == 1;
            if number(KIND) == SEMAPHORE {
                releasers(facts, process, blocked, wait, *object, &mut wake_sources);
            }
            if count <= 0 {
                continue;
            }
            let ident = objects.field(*object, LAST_THREAD).map_or(0, |ident| ident.0);
            let evidence = format!(
                "the SemLock at {object} in process {} says count = {count}, last_tid = {ident:#x}",
                process.context.image.pid
            );
            let holder = match facts.thread_with_ident(process, ident) {
                Some(position) => Party::Thread(process.context.process, process.threads[position].image.tid),
                None => Party::Process(process.context.process),
            };
            let is_of = |block: &Entered| {
                block.object == *object || objects.attribute(block.object, "_semlock") == Some(*object)
            };
            let is_entered = facts.inspector.entered().iter().any(is_of);
            is_in_block |= is_entered;
            let hold = exact_hold(&resource.key, holder, None, vec![evidence]);
            // It shows only that this process has taken it more often than posted it, as the slots of a bounded queue. A
            // recursive lock has to be given back by its taker, and a thread in a block of it does so.
            let strength = match number(UNITS) {
                1 if is_entered => hold.strength,
                _ if number(KIND) != SEMAPHORE => hold.strength,
                _ => Strength::Candidate,
            };
            out.holds.push(Hold { strength, ..hold });
        }
    }
    if !is_in_block && out.holds.len() > before {
        out.wake_sources.extend(wake_sources);
    }
    let nobody = || nobody(blocked.process(wait), &resource.key.scope, &asked);
    if let Some(why) = (is_lock && out.holds.len() == before).then(nobody).flatten() {
        let holder = Party::Absent(blocked.process(wait).context.process, 0);
        let hold = exact_hold(&resource.key, holder, None, vec![why]);
        out.holds.push(Hold { gone: Some(Gone::ProcessDead), strength: Strength::Inferred, ..hold });
    } else if out.holds.len() == before {
        let why = match is_lock {
            true => {
                "no captured process has an object of it that says it has taken it: its holder is another process \
                 (capture that too), or has ended"
            }
            false => {
                "no captured process has an object of it that says it has taken it; it is no lock, so each process that \
                 maps it may release it"
            }
        };
        out.nobody_named(resource, why);
    }
}

/// Add threads that go on and release a lock which they did not take: whose code says so and does not say that it takes it.
fn releasers(
    facts: &Facts<'_>,
    process: &Process<'_>,
    blocked: &Blocked<'_>,
    wait: &ThreadWait,
    object: Addr,
    wake_sources: &mut Vec<WakeSource>,
) {
    let own = blocked.waits_of(process.context.process);
    let going = process.threads.iter().enumerate().filter(|(position, thread)| {
        thread.image.state != TaskState::Zombie && !lasts(own, *position) && !is_waiter(wait, process, *position)
    });
    for (_, thread) in going.take(MOST_ASKED) {
        let releases = |reached: &Reached| reached.gives_away() && (reached.has(object) || reached.anything.is_some());
        if facts.inspector.states(thread.image.tid).any(|(state, _)| releases(&facts.reached_by(state))) {
            let what = format!("{} can release it, though it did not take it", thread.describe());
            let by = Waker::Party(Party::Thread(process.context.process, thread.image.tid));
            let resource = wait.blocked_on.resource.key.clone();
            wake_sources.push(WakeSource { resource, waiter: None, by, what });
        }
    }
}

fn is_waiter(wait: &ThreadWait, process: &Process<'_>, position: usize) -> bool {
    wait.process == process.context.process && wait.thread == position
}

/// How it is known that no living process has taken a lock, if that is so: the kernel says who maps its semaphore, and each of
/// these was `asked`.
fn nobody(process: &Process<'_>, scope: &Scope, asked: &[i32]) -> Option<String> {
    let Scope::Shared(device, inode, _) = scope else { return None };
    let sharers = process.context.all.kernel.sharers(*device, *inode)?;
    // An unreadable process with the waiter's name may belong to the same process tree.
    let all_asked = !sharers.processes.is_empty()
        && sharers.processes.iter().all(|(pid, _)| asked.contains(pid))
        && sharers.are_all_of(process.context.image);
    all_asked.then(|| {
        let count = match sharers.processes.len() {
            1 => "the only process that maps its semaphore has".to_owned(),
            count => format!("the {count} processes that map its semaphore have"),
        };
        format!("{count} an object of it that says it was not taken there: whoever took it has ended")
    })
}

/// Whether a `SemLock` is one that more than one can take, or that need not be given back: a semaphore, and objects
/// built of them.
pub(super) fn is_semaphore(inspector: &Inspector<'_>, object: Addr) -> bool {
    // Two numbers of 32 bits in a word.
    inspector.objects().field(object, COUNT).is_some_and(|word| word.0 >> 32 != 1)
}

/// The `SemLock` objects that the frames of a process have at hand.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Addr> {
    let objects = facts.inspector.objects();
    let mut found = Vec::new();
    at_hand(&facts.inspector, |object| {
        let lock = objects.attribute(object, "_semlock").unwrap_or(object);
        let is_lock = objects.class_name(lock).as_deref() == Some("_multiprocessing.SemLock");
        if is_lock && !found.contains(&lock) {
            found.push(lock);
        }
    });
    found
}

/// Give each object that the frames of a process have at hand, once: in variables, entered blocks and globals that the code names,
/// and in attributes of these.
pub(super) fn at_hand(inspector: &Inspector<'_>, mut take: impl FnMut(Addr)) {
    let objects = inspector.objects();
    let mut roots = Vec::new();
    for (_, thread) in inspector.living() {
        for frame in frames_of(thread).filter_map(|frame| inspector.frame(frame)) {
            roots.extend(frame.variables().into_iter().map(|(_, value)| value));
            roots.extend(frame.entered());
            roots.extend(inspector.named_globals(&frame).iter().map(|(_, value)| *value));
        }
    }
    let mut seen = HashSet::new();
    for root in roots {
        if seen.len() >= SHARED_OBJECTS {
            limits::met(SHARED_OBJECTS, "objects of multiprocessing that a process has at hand", "objects");
            break;
        }
        if !seen.insert(root) || inspector.is_plain(root) {
            continue;
        }
        take(root);
        for (_, value) in objects.attributes(root).unwrap_or_default() {
            if seen.len() < SHARED_OBJECTS && seen.insert(value) && !inspector.is_plain(value) {
                take(value);
            }
        }
    }
}

//! The holders of Python locks, and the threads that can end other waits of Python threads.
//!
//! In: waits for Python objects. Out: holds. A recursive lock, an import lock and a joined thread record an owner. A plain
//! `threading.Lock` records none: its holder is the thread with an entered `with` block of it ([`super::with_blocks`]), and
//! as long as the lock says that it is locked and one thread only has such a block, no other holder is left but by misuse.
//! A bare `acquire()` leaves no trace but the names that the code uses, and gives candidates.

use super::event_loops::resource_of;
use super::task_reach::called_at_end;
use super::with_blocks::{Held, gives_back};
use super::{
    Cpython, Facts, HolderRule, critical_sections, dask, executors, generators, managers, multiprocessing,
    stop_the_world, wakers,
};
use crate::image::{Addr, MemoryExt};
use crate::limits;
use crate::python::inspect::{Referrer, frames_of};
use crate::python::objects::Objects;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::by_reference::is_looked_at_whole;
use crate::waits::holders::left_by_fork;
use crate::waits::holders::{Blocked, add_resource, exact_hold};
use crate::waits::identity::key;
use crate::waits::kinds;
use crate::waits::model::{Gone, Hold, Party, Resource, Strength, TakenAt};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Size of `_thread.lock` behind the head where it is a byte (PyMutex) and has no pointer to a semaphore.
const BYTE_FORM: u64 = 8;
/// The byte `locked` of the other form, behind the head.
const LOCKED: u64 = 16;
/// Owner of a recursive lock behind the head, in both forms.
const OWNER: u64 = 8;

/// Add who holds the Python object that `wait` waits for.
pub(super) fn find(
    family: &Cpython<'_>,
    blocked: &Blocked<'_>,
    wait: &ThreadWait,
    rule: &HolderRule,
    out: &mut Observations,
) {
    let process = blocked.process(wait);
    let Some(facts) = family.facts(process) else { return };
    let resource = &wait.blocked_on.resource;
    match *rule {
        HolderRule::OwnerField => match facts.inspector.objects().field(resource.key.address, OWNER) {
            Some(Addr(0)) | None => {}
            Some(Addr(ident)) => by_ident(blocked, facts, wait, ident, format!("its owner field is {ident:#x}"), out),
        },
        HolderRule::NotedOwner(None) => {}
        HolderRule::NotedOwner(Some(ident)) => {
            by_ident(blocked, facts, wait, ident, format!("its attribute owner is {ident}"), out);
        }
        HolderRule::FileOwner(0) => {}
        HolderRule::FileOwner(ident) => {
            by_ident(blocked, facts, wait, ident, format!("its owner field is {ident:#x}"), out);
        }
        HolderRule::Lock => plain(family, blocked, facts, wait, out),
        HolderRule::End(ident) => {
            if let Some(position) = facts.thread_with_ident(process, ident) {
                let thread = &process.threads[position];
                let evidence = vec![format!("its ident is that of {}", thread.describe())];
                let holder = Party::Thread(process.context.process, thread.image.tid);
                out.holds.push(exact_hold(&resource.key, holder, None, evidence));
            }
        }
        HolderRule::Wakers { object, .. } => wakers::find(blocked, facts, wait, object, out),
        HolderRule::Future(future) => {
            let Some(pending) = facts.work().of(future) else {
                by_tasks(process, facts, wait, future, out);
                return executors::holders(family, blocked, facts, (wait, future), out);
            };
            for (worker, frame) in &pending.workers {
                out.holds.extend(hold(process, facts, wait, *worker, *frame, vec![pending.evidence.clone()]));
            }
        }
        HolderRule::Multiprocessing => multiprocessing::find(family, blocked, wait, out),
        HolderRule::Pause => stop_the_world::attached(process, wait, out),
        HolderRule::PauseEnd => stop_the_world::requester(process, wait, out),
        HolderRule::CriticalSection(mutex) => critical_sections::holders(blocked, facts, wait, mutex, out),
        HolderRule::Lease => dask::holders(family, blocked, &resource.key, out),
    }
}

/// A hold by the thread of a thread state, in one of its frames; exact until it is made less.
fn hold(
    process: &Process<'_>,
    facts: &Facts<'_>,
    wait: &ThreadWait,
    state: usize,
    frame: Addr,
    evidence: Vec<String>,
) -> Option<Hold> {
    let tid = facts.inspector.python.threads.get(state)?.tid?;
    let thread = &process.threads[process.position(tid)?];
    let holder = Party::Thread(process.context.process, tid);
    let hold = exact_hold(&wait.blocked_on.resource.key, holder, None, evidence);
    Some(Hold { frame: thread.merged_python(frame), ..hold })
}

/// The task of an event loop at whose end a future of another thread is set.
fn by_tasks(process: &Process<'_>, facts: &Facts<'_>, wait: &ThreadWait, future: Addr, out: &mut Observations) {
    for task in facts.tasks().iter().filter(|task| called_at_end(facts, task).contains(&future)) {
        let own = resource_of(process, task);
        add_resource(out, &own);
        let evidence = vec![format!("a callback for the end of {} has the Future at {future}", task.name)];
        out.holds.push(exact_hold(&wait.blocked_on.resource.key, Party::Resource(own.key), None, evidence));
    }
}

/// The thread with an ident, or the thread that had it and is gone.
fn by_ident(
    blocked: &Blocked<'_>,
    facts: &Facts<'_>,
    wait: &ThreadWait,
    ident: u64,
    said: String,
    out: &mut Observations,
) {
    let process = blocked.process(wait);
    let key = &wait.blocked_on.resource.key;
    let left = left_by_fork::left_by_fork(blocked, process);
    let Some(position) = facts.thread_with_ident(process, ident) else {
        let (holder, gone, why) = match left {
            Some((holder, gone, why)) => (holder, gone, format!("no thread of this process has it: {why}")),
            None => {
                let why = "no thread of this process has that ident".to_owned();
                (Party::Absent(process.context.process, 0), Gone::Exited, why)
            }
        };
        out.holds.push(Hold { gone: Some(gone), ..exact_hold(key, holder, None, vec![said, why]) });
        return;
    };
    let thread = &process.threads[position];
    let mut evidence = vec![format!("{said}, the ident of {}", thread.describe())];
    let has_state = facts.inspector.states(thread.image.tid).next().is_some();
    if facts.inspector.python.finalizing.is_some() && !has_state {
        // From 3.14 on such a thread sleeps in pause() for ever.
        evidence.push("the interpreter is being finalised and has parked that thread for good".into());
        let holder = Party::Absent(process.context.process, thread.image.tid);
        out.holds.push(Hold { gone: Some(Gone::Exited), ..exact_hold(key, holder, None, evidence) });
        return;
    }
    let of_thread = |held: &&Held| facts.inspector.python.threads[held.state].tid == Some(thread.image.tid);
    let block = facts.held().iter().filter(|held| held.lock == key.address && held.is_direct).find(of_thread);
    let mut strength = Strength::Recorded;
    if left.is_some() && thread.image.tid != process.context.image.pid && block.is_none() {
        // A thread that was started after a fork may have got the address of one that the fork left behind.
        strength = Strength::Inferred;
        evidence.push("a thread that fork left behind may have had the same ident".into());
    }
    let frame = block.and_then(|block| thread.merged_python(block.frame));
    evidence.extend(block.map(|block| format!("{} {}", thread.describe(), block.how)));
    let holder = Party::Thread(process.context.process, thread.image.tid);
    let taken = block.and_then(|block| block.taken.clone());
    out.holds.push(Hold { frame, taken, strength, ..exact_hold(key, holder, None, evidence) });
}

/// The holder of a `threading.Lock`, by the first of these rules that names one.
fn plain(family: &Cpython<'_>, blocked: &Blocked<'_>, facts: &Facts<'_>, wait: &ThreadWait, out: &mut Observations) {
    let process = blocked.process(wait);
    let lock = wait.blocked_on.resource.key.address;
    let Some(true) = is_locked(process, facts, lock) else { return };
    let blocks = |is_direct: bool| -> Vec<&Held> {
        facts.held().iter().filter(|held| held.lock == lock && held.is_direct == is_direct).collect()
    };
    let direct = blocks(true);
    if direct.is_empty() {
        let elsewhere = in_the_parent(family, blocked, wait, lock).or_else(|| in_a_task(process, facts, wait, lock));
        if let Some(hold) = elsewhere.or_else(|| in_a_generator(process, facts, wait, lock, out)) {
            let is_certain = hold.is_known();
            out.holds.push(hold);
            if is_certain {
                return;
            }
        }
    }
    let (places, is_sole_holder) = if direct.is_empty() { (blocks(false), false) } else { (direct, true) };
    let alone = places.len() == 1;
    let mut holds: Vec<Hold> = places
        .into_iter()
        .filter_map(|held| {
            let tid = facts.inspector.python.threads.get(held.state).and_then(|state| state.tid);
            let who = tid.and_then(|tid| process.position(tid)).map(|position| process.threads[position].describe());
            let how = format!("{} {}", who.unwrap_or_else(|| "a thread".into()), held.how);
            let hold = hold(process, facts, wait, held.state, held.frame, vec!["the lock is locked".into(), how])?;
            Some(Hold { taken: held.taken.clone(), ..hold })
        })
        .map(|hold| Hold {
            strength: if is_sole_holder && alone { Strength::Sole } else { Strength::Inferred },
            ..hold
        })
        .collect();
    if holds.is_empty() {
        holds = by_bare_acquire(blocked, facts, wait, lock);
    }
    if holds.is_empty()
        && let Some(by_clients) = managers::holders(family, blocked, facts, wait, out)
    {
        out.holds.extend(by_clients);
        return;
    }
    if holds.len() > 1 {
        holds.iter_mut().for_each(|hold| hold.strength = Strength::Candidate);
    }
    if holds.is_empty() && facts.inspector.python.finalizing.is_some() {
        let why = "the interpreter is being finalised, which ends or parks daemon threads with what they hold, and no other \
                   thread is inside a `with` block of it";
        let holder = Party::Absent(process.context.process, 0);
        let hold =
            exact_hold(&wait.blocked_on.resource.key, holder, None, vec!["the lock is locked".into(), why.into()]);
        holds.push(Hold { gone: Some(Gone::Exited), strength: Strength::Inferred, ..hold });
    }
    if holds.is_empty() {
        facts.suspended().passed_over.iter().for_each(|met| limits::tell(met.clone()));
        facts.inspector.tell_deep_threads();
        let or_fork = match process.context.image.is_copy {
            Some(true) => ", or fork copied the lock while a thread had it that fork did not copy",
            _ => "",
        };
        let why = format!(
            "it is locked, a threading.Lock records no owner, and no thread is inside a `with` block of it or has a reference to \
             it in a function that calls acquire: the function that took it has returned{or_fork}"
        );
        out.nobody_named(&wait.blocked_on.resource, why);
    }
    out.holds.extend(holds);
}

/// Whether a `_thread.lock` says that it is locked.
fn is_locked(process: &Process<'_>, facts: &Facts<'_>, lock: Addr) -> Option<bool> {
    let objects = facts.inspector.objects();
    let byte = |offset: u64| process.memory().u8(lock + objects.head() + offset).ok();
    match objects.basic_size(lock)?.checked_sub(objects.head())? {
        BYTE_FORM => Some(byte(0)? & 1 == 1),
        _ => Some(byte(LOCKED)? == 1),
    }
}

/// The process that this one was forked from had the lock: there its holder is found, here it never comes.
fn in_the_parent(family: &Cpython<'_>, blocked: &Blocked<'_>, wait: &ThreadWait, lock: Addr) -> Option<Hold> {
    let process = blocked.process(wait);
    let parent =
        blocked.processes().iter().find(|other| Some(other.context.image.pid) == process.context.image.parent)?;
    let facts = family.facts(parent)?;
    let held = facts.held().iter().find(|held| held.lock == lock && held.is_direct)?;
    let tid = facts.inspector.python.threads.get(held.state)?.tid?;
    let thread = &parent.threads[parent.position(tid)?];
    let why = format!(
        "in process {}, which forked this one, {} {}; fork copied the lock, which has this address there too, but not the \
         thread",
        parent.context.image.pid,
        thread.describe(),
        held.how
    );
    let holder = Party::Absent(process.context.process, tid);
    let hold = exact_hold(&wait.blocked_on.resource.key, holder, None, vec!["the lock is locked".into(), why]);
    let taken = held.taken.clone();
    Some(Hold { gone: Some(Gone::LeftInParent), taken, strength: Strength::Inferred, ..hold })
}

/// A task of an event loop has stopped inside the lock's `with` block: only the loop's thread can let it go on.
fn in_a_task(process: &Process<'_>, facts: &Facts<'_>, wait: &ThreadWait, lock: Addr) -> Option<Hold> {
    let inspector = &facts.inspector;
    let has = |coroutine: &Addr| {
        generators::generator_with_locks(inspector, *coroutine, "coroutine").filter(|one| one.has(lock))
    };
    let all = facts.tasks().iter().chain(facts.trio().iter().flat_map(|run| &run.tasks));
    let mut holders = all.filter_map(|task| Some((task, task.coroutines.iter().find_map(has)?)));
    let (task, coroutine) = holders.next()?;
    let tid = task.tid?;
    let evidence = vec![
        "the lock is locked".into(),
        format!(
            "the {} of task {} is inside the lock's `with` block, and only the event loop of thread {tid} can let it go on",
            coroutine.label, task.name
        ),
    ];
    // No frame of the thread took it: the coroutine has none there while it is suspended.
    let (state, _) = inspector.states(tid).next()?;
    let hold = hold(process, facts, wait, state, Addr(0), evidence)?;
    let suspended_at = coroutine.stopped_at.clone();
    let taken = coroutine.taken(lock).map(|taken| TakenAt { task: Some(task.name.clone()), suspended_at, ..taken });
    let strength = if holders.next().is_none() { Strength::Sole } else { Strength::Inferred };
    Some(Hold { strength, taken, ..hold })
}

/// A generator has stopped inside the lock's `with` block.
fn in_a_generator(
    process: &Process<'_>,
    facts: &Facts<'_>,
    wait: &ThreadWait,
    lock: Addr,
    out: &mut Observations,
) -> Option<Hold> {
    let mut holders = facts.suspended().list.iter().filter(|one| one.has(lock));
    let one = holders.next()?;
    let resource = Resource {
        key: key(process, kinds::PY_GENERATOR, one.generator),
        process: process.context.process,
        label: one.label.clone().with_detail(one.stopped_at.as_ref().map(|at| format!("at {at}"))),
        state: Vec::new(),
        role: None,
    };
    add_resource(out, &resource);
    let stopped = one.stopped_at.as_ref().map(|at| format!(" and has stopped at {at}")).unwrap_or_default();
    let evidence =
        vec!["the lock is locked".into(), format!("the {} is inside the lock's `with` block{stopped}", one.label)];
    let taken = one.taken(lock);
    let hold = exact_hold(&wait.blocked_on.resource.key, Party::Resource(resource.key), None, evidence);
    // A thread that waits for a Condition of the lock has released it, also in the name of a generator.
    let threads = &facts.inspector.python.threads;
    let may_be_back = threads.iter().any(|thread| gives_back(&facts.inspector, thread, usize::MAX, lock));
    let alone = holders.next().is_none() && !may_be_back;
    let strength = if alone { Strength::Sole } else { Strength::Candidate };
    Some(Hold { strength, taken, ..hold })
}

/// The method `acquire`, as it stands on the value stack for a call.
fn is_acquire(objects: &Objects<'_>, slot: Addr) -> bool {
    let name = objects.function_name(slot).or_else(|| objects.bound(slot).map(|bound| bound.name));
    name.as_deref() == Some("acquire")
}

/// Threads with a frame that has the lock at hand and whose code calls `acquire`: candidates. One alone whose frame is in a
/// protected range and calls `release` as well is inside of `try ... finally`; another one is the sole candidate.
fn by_bare_acquire(blocked: &Blocked<'_>, facts: &Facts<'_>, wait: &ThreadWait, lock: Addr) -> Vec<Hold> {
    let process = blocked.process(wait);
    let inspector = &facts.inspector;
    let key = &wait.blocked_on.resource.key;
    let mut holds = Vec::new();
    let mut guarded = Vec::new();
    let mut known = None;
    for Referrer { state, depth } in inspector.referrers(lock) {
        let thread = &inspector.python.threads[state];
        let Some(position) = thread.tid.and_then(|tid| process.position(tid)).filter(|_| known != Some(state)) else {
            continue;
        };
        let frame = frames_of(thread).nth(depth);
        let Some((frame, open)) = frame.and_then(|frame| Some((frame, inspector.frame(frame)?))) else { continue };
        if !open.uses("acquire") {
            continue;
        }
        // In a waiter's own frame the acquire may be the very call that it waits in.
        let waits_here = depth == 0 && blocked.waits_for(key, wait.process, position);
        if waits_here && open.stack().into_iter().any(|slot| is_acquire(inspector.objects(), slot)) {
            continue;
        }
        let is_guarded = open.is_protected() && open.uses("release") && !waits_here;
        let how = match is_guarded {
            true => "is inside a protected range, has a reference to the lock and calls acquire and release",
            false => "has a reference to the lock and calls acquire",
        };
        let evidence = vec!["the lock is locked".into(), format!("{} {how}", frame.function)];
        if let Some(hold) = hold(process, facts, wait, state, frame.address, evidence) {
            known = Some(state);
            guarded.push(is_guarded);
            holds.push(Hold { strength: Strength::Candidate, ..hold });
        }
    }
    match (holds.as_mut_slice(), guarded.as_slice()) {
        ([hold], [true]) => hold.strength = Strength::Inferred,
        // No other thread has it at hand and takes it. But if the holder itself waits for the lock, another thread may
        // have it.
        ([hold], _) => {
            let waits = |thread: &ThreadWait| {
                let tid = process.threads[thread.thread].image.tid;
                thread.blocked_on.resource.key == *key && hold.holder == Party::Thread(wait.process, tid)
            };
            let is_waiter = blocked.waits_of(wait.process).iter().any(waits);
            if !is_waiter && is_looked_at_whole(blocked, wait.process) {
                hold.strength = Strength::SoleCandidate;
            }
        }
        _ => {}
    }
    holds
}

//! From an owner's id in a lock word to a party of the graph, and how sure that is.
//!
//! In: the id as libc wrote it, the lock's place. Out: a [`Hold`] or a [`Gap`]. The rule is that of design
//! section 4: an id alone proves little, since ids are used again and fork copies locks without their owners.

use crate::image::{Gap, share_fork_ancestor};
use crate::limits::holders::{GENERATIONS, GREATEST_ID};
use crate::waits::blocked_on::{Owner, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Certainty, Gone, Hold, Party, Resource, Scope};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Add the hold of `owner`, or the gap that stands for it.
pub(crate) fn resolve(blocked: &Blocked<'_>, wait: &ThreadWait, owner: &Owner, out: &mut Observations) {
    let process = blocked.process(wait);
    let resource = &wait.blocked_on.resource;
    if let Some(position) = process.libc_tid(owner.tid) {
        out.holds.push(held_by_thread(process, position, wait, owner));
        return;
    }
    // The kernel gives no task a greater id (PID_MAX_LIMIT): such a word is of another kind, or damaged, and names
    // nobody who could have gone.
    if !(1..=GREATEST_ID).contains(&owner.tid) {
        out.gaps.push(Gap::new(
            format!("owner of {}", resource.label),
            format!("{}: that is no thread's id", owner.evidence.join("; ")),
        ));
        return;
    }
    match &resource.key.scope {
        Scope::Shared(device, inode, _) => {
            if let Some(hold) = held_in_other_process(blocked, wait, owner, (*device, *inode)) {
                out.holds.push(hold);
            } else if owner.died {
                out.holds.push(absent_holder(
                    process,
                    resource,
                    owner,
                    Gone::ProcessDead,
                    "the lock word says that its owner died",
                ));
            } else if let Some(sharers) = known_to_lack(process, (*device, *inode), owner.tid) {
                let text = match sharers {
                    1 => format!(
                        "no other process maps this memory, and no thread of process {} has the id {}",
                        process.context.image.pid, owner.tid
                    ),
                    _ => format!(
                        "of the {sharers} processes that map this memory none has a thread with the id {}",
                        owner.tid
                    ),
                };
                out.holds.push(absent_holder(process, resource, owner, Gone::ProcessDead, &text));
            } else {
                out.gaps.push(Gap::new(
                    format!("owner of {}", resource.label),
                    format!(
                        "thread {} holds it, in a process outside the capture; capture that process too",
                        owner.tid
                    ),
                ));
            }
        }
        _ => out.holds.push(held_by_missing_thread(blocked, process, resource, owner)),
    }
}

/// How many processes map a file, if all of them are known and none has a thread of this id.
fn known_to_lack(process: &Process<'_>, (device, inode): ((i32, i32), u64), id: i32) -> Option<usize> {
    let sharers = process.context.all.kernel.sharers(device, inode)?;
    sharers.lacks(id).then_some(sharers.processes.len())
}

/// A hold by a thread of the same process.
fn held_by_thread(process: &Process<'_>, position: usize, wait: &ThreadWait, owner: &Owner) -> Hold {
    let thread = &process.threads[position];
    let waiter = &process.threads[wait.thread];
    let mut evidence = owner.evidence.clone();
    let holder = Party::Thread(process.context.process, thread.image.tid);
    if thread.image.ns_tid != thread.image.tid {
        evidence.push(format!("the target's own name for thread {} is {}", thread.image.tid, owner.tid));
    }
    let mut certainty = Certainty::Exact;
    let mut frame = None;
    if position == wait.thread {
        evidence.push("the owner is the waiting thread itself".into());
    } else if let Some(reference) = thread.find_reference(process, owner.lock, owner.size) {
        frame = reference.native.and_then(|native| thread.merged(native));
        evidence.push(format!("{} has the lock's address: {}", thread.image.tid, reference.place));
    } else {
        // Without a trace of the lock on the owner, a thread younger than the waiter may have got the id of an
        // owner that died (reproduced, libc.md section 3). A blocked one is accepted: it cannot be unlocking.
        let younger = match (thread.image.start_ticks, waiter.image.start_ticks) {
            (Some(owner), Some(waiter)) => owner > waiter,
            _ => false,
        };
        // It was there before the wait began: the id is its own. Start times are known to within a tick of 10 ms.
        let older_than_wait =
            thread.image.age_ms.zip(waiter.image.asleep_ms).is_some_and(|(age, asleep)| age >= asleep + 10);
        if younger && !older_than_wait && thread.call.is_none() {
            certainty = Certainty::Inferred;
            evidence.push(format!(
                "thread {} is younger than the waiter and nothing on its stack names the lock: its id may be a reused one",
                thread.image.tid
            ));
        }
    }
    Hold { frame, certainty, ..exact_hold(&wait.blocked_on.resource.key, holder, owner.mode, evidence) }
}

/// A hold by a thread of another captured process that maps the same file.
fn held_in_other_process(
    blocked: &Blocked<'_>,
    wait: &ThreadWait,
    owner: &Owner,
    file: ((i32, i32), u64),
) -> Option<Hold> {
    let mut candidates = blocked.processes().iter().enumerate().filter(|(position, other)| {
        *position != wait.process
            && other.libc_tid(owner.tid).is_some()
            && other.context.image.mappings.iter().any(|m| m.shared && (m.device, m.inode) == file)
    });
    let (_, other) = candidates.next()?;
    let thread = &other.threads[other.libc_tid(owner.tid)?];
    let mut evidence = owner.evidence.clone();
    evidence.push(format!(
        "process {} maps the same memory (device {}:{}, inode {}) and has thread {}",
        other.context.image.pid, file.0.0, file.0.1, file.1, owner.tid
    ));
    let mut hold = exact_hold(
        &wait.blocked_on.resource.key,
        Party::Thread(other.context.process, thread.image.tid),
        owner.mode,
        evidence,
    );
    if candidates.next().is_some() {
        // Two PID namespaces: the number alone does not decide.
        hold.certainty = Certainty::Candidate;
        hold.evidence.push("another captured process that maps it has a thread of this number too".into());
    }
    Some(hold)
}

/// The owner of a private lock that is no thread of its process: left in the parent by fork, or exited.
fn held_by_missing_thread(blocked: &Blocked<'_>, process: &Process<'_>, resource: &Resource, owner: &Owner) -> Hold {
    let mut child = process.context.image;
    for _ in 0..GENERATIONS {
        let named = child.parent_threads.iter().find(|(tid, _)| *tid == owner.tid);
        if let Some((tid, name)) = named {
            let parent = child.parent.map_or_else(|| "the parent".into(), |pid| format!("the parent process {pid}"));
            let text = format!("thread {tid} '{name}' lives in {parent}: fork copied the lock but not the thread");
            return absent_holder(process, resource, owner, Gone::LeftInParent, &text);
        }
        let Some(parent) = blocked.processes().iter().find(|p| Some(p.context.image.pid) == child.parent) else {
            break;
        };
        if let Some(position) = parent.libc_tid(owner.tid) {
            let text = format!(
                "thread {} lives in process {}: fork copied the lock but not the thread",
                parent.threads[position].describe(),
                parent.context.image.pid
            );
            return absent_holder(process, resource, owner, Gone::LeftInParent, &text);
        }
        child = parent.context.image;
    }
    // Whose parent died before it is another's child now.
    let relative = blocked.processes().iter().find(|other| {
        other.context.process != process.context.process
            && other.libc_tid(owner.tid).is_some()
            && share_fork_ancestor(&other.context.image.mappings, &process.context.image.mappings)
    });
    if let Some(relative) = relative
        && let Some(position) = relative.libc_tid(owner.tid)
    {
        let text = format!(
            "thread {} lives in process {}, whose programs and libraries lie at the same random addresses: both were one \
             before a fork, which copied the lock but not the thread",
            relative.threads[position].describe(),
            relative.context.image.pid
        );
        return absent_holder(process, resource, owner, Gone::LeftInParent, &text);
    }
    let text = format!("no thread of process {} has the id {}", process.context.image.pid, owner.tid);
    absent_holder(process, resource, owner, Gone::Exited, &text)
}

/// A hold by a party that is gone.
fn absent_holder(process: &Process<'_>, resource: &Resource, owner: &Owner, gone: Gone, why: &str) -> Hold {
    let mut evidence = owner.evidence.clone();
    evidence.push(why.to_owned());
    let holder = Party::Absent(process.context.process, owner.tid);
    Hold { gone: Some(gone), ..exact_hold(&resource.key, holder, owner.mode, evidence) }
}

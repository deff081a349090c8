//! From an owner's id in a lock word to a party of the graph, and how sure that is.
//!
//! In: the id as libc wrote it, the lock's place. Out: a [`Hold`] or a [`Gap`](crate::image::Gap). The rule is that of design
//! section 4: an id alone proves little, since ids are used again and fork copies locks without their owners.

use crate::image::{TaskState, share_fork_ancestor};
use crate::limits::holders::{GENERATIONS, GREATEST_ID};
use crate::waits::blocked_on::{Owner, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Gone, Hold, Party, Resource, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// Add the hold of `owner`, or the gap that stands for it.
pub(crate) fn resolve(blocked: &Blocked<'_>, wait: &ThreadWait, owner: &Owner, out: &mut Observations) {
    let process = blocked.process(wait);
    let resource = &wait.blocked_on.resource;
    let known = std::iter::once(process)
        .chain(blocked.with_same_memory(process))
        .find_map(|one| Some((one, one.libc_tid(owner.tid)?)));
    if let Some((of, position)) = known {
        let hold = held_by_thread(process, (of, position), wait, owner);
        out.holds.push(match another_with_its_id(blocked, process, wait, (of, position), owner) {
            Some(doubt) => {
                let evidence = hold.evidence.into_iter().chain([doubt]).collect();
                Hold { strength: Strength::Candidate, evidence, ..hold }
            }
            None => hold,
        });
        return;
    }
    // The kernel gives no task a greater id (PID_MAX_LIMIT): the word is of another kind, or damaged, and names no
    // thread that could have gone.
    if !(1..=GREATEST_ID).contains(&owner.tid) {
        return out.nobody_named(resource, format!("{}: that is no thread's id", owner.evidence.join("; ")));
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
            } else if let Some(pid) = copy_among_sharers(blocked, process, (*device, *inode), owner.tid) {
                let why = "may be the copy of the thread that has it, whose own process has ended";
                out.nobody_named(resource, format!("the first thread of process {pid} {why}"));
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
                let why = "in a process outside the capture; capture that process too";
                out.nobody_named(resource, format!("thread {} holds it, {why}", owner.tid));
            }
        }
        _ => match uncaptured_owner_of_memory(blocked, process) {
            Some(pid) => out.nobody_named(
                resource,
                format!(
                    "thread {} holds it, of process {pid} outside the capture, whose memory this process has; capture that \
                     process too",
                    owner.tid
                ),
            ),
            None => out.holds.push(held_by_missing_thread(blocked, process, resource, owner)),
        },
    }
}

/// Why the number of the owner may be that of another thread than the captured one: one of another PID namespace that maps the same
/// memory, or one made by clone() that has the waiter's own descriptor.
fn another_with_its_id(
    blocked: &Blocked<'_>,
    process: &Process<'_>,
    wait: &ThreadWait,
    (of, position): (&Process<'_>, usize),
    owner: &Owner,
) -> Option<String> {
    if let Scope::Shared(device, inode, _) = &wait.blocked_on.resource.key.scope {
        let sharers = process.context.all.kernel.sharers(*device, *inode)?;
        let others = sharers.processes.iter().filter(|(pid, _)| *pid != of.context.image.pid);
        let unread = sharers.unread.iter().map(|(pid, _, ids)| (pid, ids));
        let mut others = others.map(|(pid, ids)| (pid, ids)).chain(unread);
        let other = others.find(|(_, ids)| ids.contains(&owner.tid)).map(|(pid, _)| *pid)?;
        return Some(format!("process {other} maps it, too, and has a thread that calls itself {}", owner.tid));
    }
    let is_waiter = of.context.process == wait.process && position == wait.thread;
    let other = blocked.with_same_memory(process).next().filter(|_| is_waiter)?;
    Some(format!("process {} has the same memory, and may have the waiter's descriptor", other.context.image.pid))
}

/// The process whose memory this one has, where it is not captured.
fn uncaptured_owner_of_memory(blocked: &Blocked<'_>, process: &Process<'_>) -> Option<i32> {
    let owner = blocked.processes().get(process.context.memory_owner())?;
    owner.context.image.shares_memory_of
}

/// A process that maps a file and was forked after this id was given out, without an exec since: its first thread may be the copy of
/// the thread with that id.
fn copy_among_sharers(
    blocked: &Blocked<'_>,
    process: &Process<'_>,
    (device, inode): ((i32, i32), u64),
    id: i32,
) -> Option<i32> {
    let sharers = process.context.all.kernel.sharers(device, inode)?;
    // Whose parent has ended is another's child now; whose parent maps the file, too, is that one's copy.
    let is_sharer = |pid: &i32| sharers.processes.iter().any(|(other, _)| other == pid);
    let may_be = |pid: i32| {
        let captured = blocked.processes().iter().find(|one| one.context.image.pid == pid);
        captured.is_none_or(|one| {
            let image = one.context.image;
            image.is_copy != Some(false) && !image.parent.is_some_and(|parent| is_sharer(&parent))
        })
    };
    // Ids grow.
    sharers.processes.iter().map(|(pid, _)| *pid).find(|pid| *pid > id && may_be(*pid))
}

/// How many processes map a file, if all of them are known and none has a thread of this id.
fn known_to_lack(process: &Process<'_>, (device, inode): ((i32, i32), u64), id: i32) -> Option<usize> {
    let sharers = process.context.all.kernel.sharers(device, inode)?;
    sharers.lacks(id).then_some(sharers.processes.len())
}

/// A hold by a thread of the waiter's process, or of one that has the same memory.
fn held_by_thread(
    process: &Process<'_>,
    (of, position): (&Process<'_>, usize),
    wait: &ThreadWait,
    owner: &Owner,
) -> Hold {
    let thread = &of.threads[position];
    let waiter = &process.threads[wait.thread];
    let is_own = of.context.process == process.context.process;
    let mut evidence = owner.evidence.clone();
    let holder = Party::Thread(of.context.process, thread.image.tid);
    if !is_own {
        let (one, other) = (process.context.image.pid, of.context.image.pid);
        evidence
            .push(format!("processes {one} and {other} have one address space, and {other} has thread {}", owner.tid));
    }
    if thread.image.ns_tid != thread.image.tid {
        evidence.push(format!("the target's own name for thread {} is {}", thread.image.tid, owner.tid));
    }
    let mut strength = Strength::Recorded;
    let mut frame = None;
    if is_own && position == wait.thread {
        evidence.push("the owner is the waiting thread itself".into());
    } else if let Some(reference) = thread.find_reference(of, owner.lock, owner.size) {
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
            strength = Strength::Inferred;
            evidence.push(format!(
                "thread {} is younger than the waiter and nothing on its stack names the lock: its id may be a reused one",
                thread.image.tid
            ));
        }
    }
    Hold { frame, strength, ..exact_hold(&wait.blocked_on.resource.key, holder, owner.mode, evidence) }
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
        hold.strength = Strength::Candidate;
        hold.evidence.push("another captured process that maps it has a thread of this number too".into());
    }
    Some(hold)
}

/// The owner of a private lock that is no thread of its process: the thread that forked, or one that fork left in the parent, or one
/// that exited.
fn held_by_missing_thread(blocked: &Blocked<'_>, process: &Process<'_>, resource: &Resource, owner: &Owner) -> Hold {
    let mut child = process.context.image;
    for _ in 0..GENERATIONS {
        let parent = blocked.processes().iter().find(|p| Some(p.context.image.pid) == child.parent);
        if let Some(parent) = parent
            && let Some(position) = parent.libc_tid(owner.tid)
        {
            let thread = &parent.threads[position];
            if let Some(copy) = copy_of(process, |copy| copy.pthread.is_some() && copy.pthread == thread.pthread) {
                let of = format!("thread {} of process {}", thread.describe(), parent.context.image.pid);
                return held_by_copy(process, copy, resource, owner, &of);
            }
            let text = format!(
                "thread {} lives in process {}: fork copied the lock but not the thread",
                thread.describe(),
                parent.context.image.pid
            );
            return absent_holder(process, resource, owner, Gone::LeftInParent, &text);
        }
        if let Some((tid, name)) = child.parent_threads.iter().find(|(tid, _)| *tid == owner.tid) {
            // A process that forks on its first thread goes on in its child on the stack that the kernel made.
            let is_first = child.parent == Some(*tid);
            if let Some(copy) = copy_of(process, |copy| is_first && runs_on_first_stack(process, copy)) {
                return held_by_copy(process, copy, resource, owner, &format!("thread {tid} '{name}' of the parent"));
            }
            let parent = child.parent.map_or_else(|| "the parent".into(), |pid| format!("the parent process {pid}"));
            let text = format!("thread {tid} '{name}' lives in {parent}: fork copied the lock but not the thread");
            return absent_holder(process, resource, owner, Gone::LeftInParent, &text);
        }
        let Some(parent) = parent else { break };
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
    // An id from before the fork may be that of the thread that forked, whose process has ended meanwhile.
    let image = process.context.image;
    let is_from_before = image.is_copy == Some(true) && owner.tid < image.ns_pid;
    let lives = |copy: &ThreadView<'_>| copy.image.state != TaskState::Zombie;
    if let Some(copy) = copy_of(process, lives).filter(|_| is_from_before) {
        let hold = held_by_copy(process, copy, resource, owner, "a thread that has ended, or which it is a copy of,");
        return Hold { strength: Strength::Candidate, ..hold };
    }
    absent_holder(process, resource, owner, Gone::Exited, &text)
}

/// The first thread of a forked process, if it is the copy of the wanted thread.
fn copy_of(process: &Process<'_>, is_copy: impl Fn(&ThreadView<'_>) -> bool) -> Option<usize> {
    let first = process.position(process.context.image.pid)?;
    process.threads.get(first).filter(|thread| is_copy(thread)).map(|_| first)
}

/// Whether a thread runs on the stack that the kernel gave the first thread of the program.
fn runs_on_first_stack(process: &Process<'_>, thread: &ThreadView<'_>) -> bool {
    let mapping = thread.sp().and_then(|sp| process.context.image.mapping(sp));
    mapping.and_then(|mapping| mapping.path.as_deref()) == Some("[stack]")
}

/// A hold by the thread that forked: it lives on in the child under another id.
fn held_by_copy(process: &Process<'_>, copy: usize, resource: &Resource, owner: &Owner, of: &str) -> Hold {
    let thread = &process.threads[copy];
    let mut evidence = owner.evidence.clone();
    evidence.push(format!("{of} forked this process while it had the lock, and goes on here as {}", thread.describe()));
    let holder = Party::Thread(process.context.process, thread.image.tid);
    Hold { strength: Strength::Inferred, ..exact_hold(&resource.key, holder, owner.mode, evidence) }
}

/// A hold by a party that is gone.
fn absent_holder(process: &Process<'_>, resource: &Resource, owner: &Owner, gone: Gone, why: &str) -> Hold {
    let mut evidence = owner.evidence.clone();
    evidence.push(why.to_owned());
    let holder = Party::Absent(process.context.process, owner.tid);
    Hold { gone: Some(gone), ..exact_hold(&resource.key, holder, owner.mode, evidence) }
}

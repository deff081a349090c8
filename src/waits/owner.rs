//! From an owner's id in a lock word to a party of the graph, and how sure that is.
//!
//! In: the id as libc wrote it, the lock's place. Out: a [`Hold`] or a [`Gap`]. The rule is that of design
//! section 4: an id alone proves little, since ids are used again and fork copies locks without their owners.

use super::cuda::calls::is_api;
use super::facts::{Process, ThreadFacts};
use super::family::{Found, Look, exact_hold, waits_for};
use super::kernel::OtherEnd;
use super::libc::call_sites::Calls;
use super::{Certainty, Gone, Hold, Observations, Party, Resource, Scope};
use crate::image::{Addr, Gap, share_fork_ancestor};

/// Generations of parents asked for an owner that fork left behind.
const GENERATIONS: usize = 16;

/// What a lock's own words say of its holder.
#[derive(Debug, Clone)]
pub enum Ownership {
    /// Nothing: it has no holder, or none that is recorded.
    Unknown,
    /// The id of a thread.
    Tid(Owner),
    /// The thread at this position, with what was read.
    Thread(usize, Vec<String>),
    /// A number of readers without names.
    Readers(u32, Addr),
    /// The writer that is in front of a reader in the queue of the rwlock here.
    QueuedWriter(Addr),
    /// Whoever's code has taken the lock here by such calls: nobody records it.
    ByCalls(Addr, &'static Calls),
    /// The processes with the other end of a descriptor.
    OtherEnd(OtherEnd),
    /// The process with this id, until it ends.
    End(i32),
    /// Whoever has the lock on the file of this descriptor.
    FileLock(i32),
    /// Whoever changed this semaphore of a System V set last, if the waiter wants to take units of it.
    LastChange {
        /// The set.
        set: i32,
        /// Which one.
        number: u16,
        /// The waiter takes units, and does not wait for 0.
        takes: bool,
    },
    /// Whoever has the address of the lock here at hand, of so many bytes: nobody records it, and no call takes it.
    AtHand(Addr, u64),
}

/// An owner as a lock names it.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The id in the lock.
    pub tid: i32,
    /// The kernel marked the lock: its owner died (robust and priority-inheriting ones).
    pub died: bool,
    /// "write" for the writer of an rwlock.
    pub mode: Option<&'static str>,
    /// Address of the lock, as the waiter's process sees it.
    pub lock: Addr,
    /// Bytes of the lock.
    pub size: u64,
    /// What was read.
    pub evidence: Vec<String>,
}

/// Add the hold of `owner`, or the gap that stands for it.
pub fn resolve(look: &Look<'_>, found: &Found, owner: Owner, out: &mut Observations) {
    let process = &look.processes[found.process];
    let resource = &found.decoded.resource;
    if let Some(position) = process.libc_tid(owner.tid) {
        out.holds.push(live(process, position, found, &owner));
        return;
    }
    // The kernel gives no task a greater id (PID_MAX_LIMIT): such a word is of another kind, or damaged, and names
    // nobody who could have gone.
    const GREATEST_ID: i32 = 1 << 22;
    if !(1..=GREATEST_ID).contains(&owner.tid) {
        out.gaps.push(Gap::new(
            format!("owner of {}", resource.label),
            format!("{}: that is no thread's id", owner.evidence.join("; ")),
        ));
        return;
    }
    match &resource.key.scope {
        Scope::Shared(device, inode, _) => {
            if let Some(hold) = elsewhere(look, found, &owner, (*device, *inode)) {
                out.holds.push(hold);
            } else if owner.died {
                out.holds.push(absent(
                    process,
                    resource,
                    &owner,
                    Gone::ProcessDead,
                    "the lock word says that its owner died",
                ));
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
        _ => out.holds.push(gone(look, process, resource, &owner)),
    }
}

/// Threads that do not wait for the lock and have its address in a register or on their stack: candidates.
pub fn at_hand(look: &Look<'_>, waits: &[Found], found: &Found, lock: Addr, size: u64, out: &mut Observations) {
    /// Looking through every stack for every lock would cost the square of their number.
    const MOST_THREADS: usize = 512;
    let process = &look.processes[found.process];
    let key = &found.decoded.resource.key;
    for (position, thread) in process.threads.iter().enumerate().take(MOST_THREADS) {
        if waits_for(waits, key, found.process, position) {
            continue;
        }
        let Some(mention) = thread.mention(process, lock, size, 0) else { continue };
        let evidence = vec![
            format!("{} has its address: {}", thread.describe(), mention.place),
            "the lock records no owner: a candidate".into(),
        ];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, None, evidence);
        out.holds.push(Hold { certainty: Certainty::Candidate, frame: thread.merged(mention.native), ..hold });
    }
}

/// A hold by a thread of the same process.
fn live(process: &Process<'_>, position: usize, found: &Found, owner: &Owner) -> Hold {
    let thread = &process.threads[position];
    let waiter = &process.threads[found.thread];
    let mut evidence = owner.evidence.clone();
    let holder = Party::Thread(process.context.process, thread.image.tid);
    if thread.image.ns_tid != thread.image.tid {
        evidence.push(format!("the target's own name for thread {} is {}", thread.image.tid, owner.tid));
    }
    let mut certainty = Certainty::Exact;
    let mut frame = None;
    if position == found.thread {
        evidence.push("the owner is the waiting thread itself".into());
    } else if let Some(mention) = thread.mention(process, owner.lock, owner.size, 0) {
        frame = thread.merged(mention.native);
        evidence.push(format!("{} has the lock's address: {}", thread.image.tid, mention.place));
    } else {
        // A driver keeps its locks behind pointers that leave no trace in its callers' frames: when both threads are
        // in driver calls, the owner's call is where the lock was taken.
        if let (Some(_), Some((native, name))) = (driver_call(waiter), driver_call(thread)) {
            frame = thread.merged(native);
            evidence.push(format!("{} is in the driver call {name}", thread.image.tid));
        }
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
    Hold { frame, certainty, ..exact_hold(&found.decoded.resource.key, holder, owner.mode, evidence) }
}

/// The outermost call of the CUDA driver or runtime on a thread's stack.
fn driver_call<'t>(thread: &'t ThreadFacts<'_>) -> Option<(usize, &'t str)> {
    thread.names(usize::MAX).filter(|(_, name)| is_api(name)).last()
}

/// A hold by a thread of another captured process that maps the same file.
fn elsewhere(look: &Look<'_>, found: &Found, owner: &Owner, file: ((i32, i32), u64)) -> Option<Hold> {
    let mut candidates = look.processes.iter().enumerate().filter(|(position, other)| {
        *position != found.process
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
        &found.decoded.resource.key,
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
fn gone(look: &Look<'_>, process: &Process<'_>, resource: &Resource, owner: &Owner) -> Hold {
    let mut child = process.context.image;
    for _ in 0..GENERATIONS {
        let named = child.parent_threads.iter().find(|(tid, _)| *tid == owner.tid);
        if let Some((tid, name)) = named {
            let parent = child.parent.map_or_else(|| "the parent".into(), |pid| format!("the parent process {pid}"));
            let text = format!("thread {tid} '{name}' lives in {parent}: fork copied the lock but not the thread");
            return absent(process, resource, owner, Gone::LeftInParent, &text);
        }
        let Some(parent) = look.processes.iter().find(|p| Some(p.context.image.pid) == child.parent) else { break };
        if let Some(position) = parent.libc_tid(owner.tid) {
            let text = format!(
                "thread {} lives in process {}: fork copied the lock but not the thread",
                parent.threads[position].describe(),
                parent.context.image.pid
            );
            return absent(process, resource, owner, Gone::LeftInParent, &text);
        }
        child = parent.context.image;
    }
    // Whose parent died before it is another's child now.
    let relative = look.processes.iter().find(|other| {
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
        return absent(process, resource, owner, Gone::LeftInParent, &text);
    }
    let text = format!("no thread of process {} has the id {}", process.context.image.pid, owner.tid);
    absent(process, resource, owner, Gone::Exited, &text)
}

/// A hold by a party that is gone.
fn absent(process: &Process<'_>, resource: &Resource, owner: &Owner, gone: Gone, why: &str) -> Hold {
    let mut evidence = owner.evidence.clone();
    evidence.push(why.to_owned());
    let holder = Party::Absent(process.context.process, owner.tid);
    Hold { gone: Some(gone), ..exact_hold(&resource.key, holder, owner.mode, evidence) }
}

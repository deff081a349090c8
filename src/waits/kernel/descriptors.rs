//! Waits for pipes and file locks: who has the other end, who holds the lock.
//!
//! In: a call on a descriptor, and what the kernel tells of descriptors and locks. Out: the resource, and its holders:
//! processes, since a descriptor is a process's. That a pipe has no other end but the waiter's own is said as a
//! [`Hopeless`] wait. It opens nothing and asks the kernel nothing.

use super::super::facts::Process;
use super::super::family::{Found, Look, exact_hold, waits_for};
use super::super::{Certainty, Hopeless, Needs, Observations, Party, Resource, ResourceKey, Scope};
use super::Call;
use crate::image::descriptors::FileLock;
use crate::image::{Addr, Descriptor, Gap, TaskState};

const NR_FCNTL: i64 = 72;
const NR_FLOCK: i64 = 73;
/// write, pwrite64, writev.
const WRITES: [i64; 3] = [1, 18, 20];

/// The pipe or file lock that `call` waits for.
pub(super) fn decode(process: &Process<'_>, call: Call) -> Option<(Resource, Needs, String)> {
    let number = call.arguments[0] as i32;
    let descriptor = process.context.image.descriptors.iter().find(|descriptor| descriptor.number == number)?;
    let (kind, scope, label, needs) = if matches!(call.number, NR_FCNTL | NR_FLOCK) {
        let inode = descriptor.inode?;
        let what = if call.number == NR_FLOCK { "flock" } else { "fcntl lock" };
        let label = format!("{what} on {}", descriptor.target);
        ("file_lock", format!("file-lock:{what}:{inode}:{}", descriptor.target), label, Needs::All)
    } else if descriptor.is_pipe {
        let (side, label) = match WRITES.contains(&call.number) {
            true => ("room", format!("room in {}", descriptor.target)),
            false => ("data", format!("data in {}", descriptor.target)),
        };
        // Any of those at the other end may write, or read, and end the wait.
        ("pipe", format!("pipe:{side}:{}", descriptor.target), label, Needs::Any)
    } else {
        return None;
    };
    let key = ResourceKey { kind, scope: Scope::System(scope), address: Addr(0) };
    let evidence = format!("its descriptor {number} is {}", descriptor.target);
    Some((Resource { key, process: process.context.process, label, state: Vec::new() }, needs, evidence))
}

/// Add who can end the wait `found`.
pub(super) fn holders(look: &Look<'_>, waits: &[Found], found: &Found, out: &mut Observations) {
    let Scope::System(name) = &found.decoded.resource.key.scope else { return };
    let Some(call) = found.decoded.call else { return };
    let process = &look.processes[found.process];
    let number = call.arguments[0] as i32;
    let Some(descriptor) = process.context.image.descriptors.iter().find(|one| one.number == number) else { return };
    if name.starts_with("pipe:") {
        other_ends(look, waits, found, descriptor, !WRITES.contains(&call.number), out);
    } else {
        lock_holders(look, found, descriptor, call, out);
    }
}

/// Processes with the end that the waiter needs.
fn other_ends(
    look: &Look<'_>,
    waits: &[Found],
    found: &Found,
    descriptor: &Descriptor,
    needs_writer: bool,
    out: &mut Observations,
) {
    let kernel = &look.processes[found.process].context.all.kernel;
    let key = &found.decoded.resource.key;
    let verb = if needs_writer { "write to" } else { "read from" };
    let fits = |reads: bool, writes: bool| if needs_writer { writes } else { reads };
    let mut holders = Vec::new();
    for (position, other) in look.processes.iter().enumerate() {
        let list = &other.context.image.descriptors;
        let ends: Vec<String> = list
            .iter()
            .filter(|one| one.target == descriptor.target && fits(one.reads, one.writes))
            .map(|one| one.number.to_string())
            .collect();
        if !ends.is_empty() {
            let pid = other.context.image.pid;
            let text = format!("process {pid} can {verb} {} (its descriptor {})", descriptor.target, ends.join(", "));
            holders.push((position, text));
        }
    }
    let outside: Vec<String> = kernel
        .ends
        .iter()
        .filter(|end| end.target == descriptor.target && fits(end.reads, end.writes))
        .map(|end| format!("{} ({})", end.name, end.pid))
        .collect();
    let unseen = match kernel.unread {
        0 => String::new(),
        count => format!("; the descriptors of {count} more processes could not be read"),
    };
    if outside.is_empty() && kernel.unread == 0 && only_waiters(look, waits, found, &holders) {
        let end = if needs_writer { "write" } else { "read" };
        let what = if needs_writer { "neither data nor its end can ever come" } else { "nobody can ever make room" };
        let why = format!("its only {end} ends are the waiting process's own: {what}");
        out.hopeless.push(Hopeless { resource: key.clone(), why });
        return;
    }
    for (position, text) in holders {
        let mut hold = exact_hold(key, Party::Process(position), None, vec![text + &unseen]);
        if kernel.unread > 0 {
            // One that was not seen may have that end too.
            hold.certainty = Certainty::Inferred;
        }
        out.holds.push(hold);
    }
    if !outside.is_empty() {
        let text = format!("not captured, can {verb} {}: {}", descriptor.target, outside.join(", "));
        out.holds.push(exact_hold(key, Party::Absent(found.process, 0), None, vec![text.clone()]));
        let why = format!("{text}; capture these processes too (--tree, or more PIDs)");
        out.gaps.push(Gap::new(format!("the other end of {}", descriptor.target), why));
    }
}

/// Whether nobody has the end but the waiter's own process, all of whose threads wait for this very pipe.
fn only_waiters(look: &Look<'_>, waits: &[Found], found: &Found, holders: &[(usize, String)]) -> bool {
    let process = &look.processes[found.process];
    let waits_too = |position: usize| waits_for(waits, &found.decoded.resource.key, found.process, position);
    holders.iter().all(|(position, _)| *position == found.process)
        && (0..process.threads.len())
            .all(|position| process.threads[position].image.state == TaskState::Zombie || waits_too(position))
}

/// Processes that hold the file lock which the waiter asked for.
fn lock_holders(look: &Look<'_>, found: &Found, descriptor: &Descriptor, call: Call, out: &mut Observations) {
    let process = &look.processes[found.process];
    let kernel = &process.context.all.kernel;
    let key = &found.decoded.resource.key;
    let Some(inode) = descriptor.inode else { return };
    let is_flock = call.number == NR_FLOCK;
    let of_file = |lock: &&FileLock| lock.inode == inode && (lock.kind == "FLOCK") == is_flock && lock.kind != "LEASE";
    // The request itself stands there too, and tells its bytes.
    let own = process.context.image.pid;
    let request = kernel.locks.iter().filter(of_file).find(|lock| lock.blocked && lock.pid == own);
    let in_the_way = |lock: &&FileLock| {
        let Some(request) = request else { return true };
        lock.device == request.device
            && (lock.write || request.write)
            && (is_flock || lock.start <= request.end && request.start <= lock.end)
    };
    let granted = kernel.locks.iter().filter(of_file).filter(|lock| !lock.blocked).filter(in_the_way);
    for lock in granted {
        let text = format!(
            "/proc/locks: {} {} on {} by process {}",
            lock.kind,
            if lock.write { "WRITE" } else { "READ" },
            descriptor.target,
            lock.pid
        );
        let taker = look.processes.iter().position(|other| other.context.image.pid == lock.pid);
        match taker {
            Some(position) => out.holds.push(exact_hold(key, Party::Process(position), None, vec![text])),
            None => {
                // A lock of flock belongs to the open file: a child may have inherited it from a process that ended.
                out.holds.push(exact_hold(key, Party::Absent(found.process, lock.pid), None, vec![text.clone()]));
                out.gaps.push(Gap::new(
                    format!("holder of the lock on {}", descriptor.target),
                    format!("{text}, which was not captured; capture that process too"),
                ));
            }
        }
    }
}

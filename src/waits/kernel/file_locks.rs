//! Waits for file locks (flock, fcntl): who holds the lock.
//!
//! In: a call on a descriptor, and the lines of /proc/locks. Out: the resource, and its holders: processes, since the
//! kernel keeps these locks for processes or open files and never for threads. It makes no system call.

use super::peers::descriptor;
use crate::arch::system_calls::{Role, SystemCall, Waits};
use crate::image::descriptors::FileLock;
use crate::image::{Addr, Descriptor, Gap, MemoryExt};
use crate::waits::accounts::Unnamed;
use crate::waits::blocked_call::Call;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds;
use crate::waits::model::{Hold, Needs, Party, Resource, ResourceKey, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Whether `call` requests a lock of flock, not of fcntl.
fn is_flock(process: &Process<'_>, call: &Call) -> bool {
    let locks_all = |row: &SystemCall| matches!(row.waits, Waits::Descriptor { role: Role::WholeFileLock, .. });
    call.row(process.architecture()).is_some_and(locks_all)
}

/// Whether all takers of these locks must give them back. Processes that share an open file since a fork share its lock, and any of
/// them may give it back.
pub(super) fn needs(granted: &[&FileLock]) -> Needs {
    let is_shared = |lock: &&FileLock| granted.iter().any(|one| one.pid != lock.pid && one.is_same(lock));
    if granted.iter().any(is_shared) { Needs::Any } else { Needs::All }
}

/// The lock that `call` waits for, how it is known to be one, and whether all takers must give it back.
pub(super) fn decode(process: &Process<'_>, call: Call, number: i32) -> Option<(Resource, String, Needs)> {
    let descriptor = descriptor(process, number)?;
    let (resource, evidence) = resource(process, descriptor, is_flock(process, &call))?;
    Some((resource, evidence, needs(&granted(process, Some(call), descriptor))))
}

/// A lock on an open file, and how it is known to be one.
pub(super) fn resource(process: &Process<'_>, descriptor: &Descriptor, is_flock: bool) -> Option<(Resource, String)> {
    let inode = descriptor.inode?;
    let what = if is_flock { "flock" } else { "fcntl lock" };
    let scope = Scope::System(format!("file-lock:{what}:{inode}:{}", descriptor.target));
    let key = ResourceKey { kind: kinds::FILE_LOCK, scope, address: Addr(0) };
    let label = format!("{what} on {}", descriptor.target).into();
    let evidence = format!("its descriptor {} is {}", descriptor.number, descriptor.target);
    Some((Resource { key, process: process.context.process, label, state: Vec::new(), role: None }, evidence))
}

/// The lock that a waiter requests.
#[derive(Debug, Clone, Copy)]
struct Request {
    write: bool,
    start: u64,
    end: u64,
}

impl From<&FileLock> for Request {
    fn from(line: &FileLock) -> Request {
        Request { write: line.write, start: line.start, end: line.end }
    }
}

/// `struct flock` {short type, whence; off_t start, len; pid} (fcntl.h), the third argument of fcntl, where it counts from the
/// start of the file.
fn requested(process: &Process<'_>, call: Call) -> Option<Request> {
    const WRITE: u16 = 1;
    let at = Addr(call.arguments[2]);
    let memory = process.memory();
    let kinds = memory.u32(at).ok().filter(|_| !is_flock(process, &call))?;
    let (kind, whence) = (kinds as u16, kinds >> 16);
    let start = memory.u64(at + 8).ok().filter(|_| whence == 0)?;
    let length = memory.u64(at + 16).ok()? as i64;
    let end = if length > 0 { start.saturating_add(length as u64 - 1) } else { u64::MAX };
    // Before the start for a negative length.
    let start = if length < 0 { 0 } else { start };
    Some(Request { write: kind == WRITE, start, end })
}

/// Processes that hold the file lock which the waiter requested.
pub(super) fn holders(blocked: &Blocked<'_>, wait: &ThreadWait, number: i32, out: &mut Observations) {
    let process = blocked.process(wait);
    let Some(descriptor) = descriptor(process, number) else { return };
    let granted = granted(process, wait.blocked_on.call, descriptor);
    add(blocked, wait, &descriptor.target, &granted, out);
}

/// The locks on the file of `descriptor` that are in the way of `call`.
fn granted<'p>(process: &Process<'p>, call: Option<Call>, descriptor: &Descriptor) -> Vec<&'p FileLock> {
    let kernel = &process.context.all.kernel;
    let Some(inode) = descriptor.inode else { return Vec::new() };
    let is_flock = call.is_some_and(|call| is_flock(process, &call));
    let of_file = |lock: &&FileLock| lock.inode == inode && (lock.kind == "FLOCK") == is_flock && lock.kind != "LEASE";
    // The request itself stands there too, and shows its bytes; one for an open file's lock does not show its process.
    let own = process.context.image.pid;
    let line = kernel.locks.iter().filter(of_file).find(|lock| lock.blocked && lock.pid == own);
    let request = line.map(Request::from).or_else(|| requested(process, call?));
    let in_the_way = |lock: &&FileLock| {
        let Some(request) = &request else { return true };
        line.is_none_or(|line| line.device == lock.device)
            && (lock.write || request.write)
            && (is_flock || lock.start <= request.end && request.start <= lock.end)
    };
    kernel.locks.iter().filter(of_file).filter(|lock| !lock.blocked).filter(in_the_way).collect()
}

/// Add the takers of locks on the file at `path` that are in the way of a waiter.
pub(super) fn add(blocked: &Blocked<'_>, wait: &ThreadWait, path: &str, granted: &[&FileLock], out: &mut Observations) {
    let key = &wait.blocked_on.resource.key;
    for lock in granted {
        let text = format!(
            "/proc/locks: {} {} on {path} by process {}{}",
            lock.kind,
            if lock.write { "WRITE" } else { "READ" },
            lock.pid,
            if lock.inherited { ", which shares the open file of its taker" } else { "" },
        );
        let taker = blocked.processes().iter().position(|other| other.context.image.pid == lock.pid);
        // Where the taker has ended or closed it, those that share it are its only holders.
        let has_taker = || granted.iter().any(|one| !one.inherited && one.is_same(lock));
        let strength = if lock.inherited && has_taker() { Strength::Sharer } else { Strength::Recorded };
        let hold = |holder| Hold { strength, ..exact_hold(key, holder, None, vec![text.clone()]) };
        match taker {
            Some(position) => out.holds.push(hold(Party::Process(position))),
            None => {
                out.holds.push(hold(Party::Absent(wait.process, lock.pid)));
                let gap = Gap::new(
                    format!("holder of the lock on {path}"),
                    format!("{text}, which was not captured; capture that process too"),
                );
                out.unnamed.push(Unnamed { resource: key.clone(), gap, counts_candidates: false });
            }
        }
    }
}

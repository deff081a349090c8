//! File locks that a library polls: the thread sleeps between its attempts, and no call of the kernel waits for the
//! lock.
//!
//! In: a thread that sleeps for a time, its frames, and the lines of /proc/locks. Out: a wait for the lock, and its
//! holders. The wait has a time-out, since the total time of polling is not read. There is a result only under these
//! conditions:
//! - The frames belong to a library that polls, or the code itself shows it ([`polling`]).
//! - Exactly one file that the process has open has a conflicting lock.

use super::file_locks::{add, needs, resource};
use super::{HolderRule, peers};
use crate::image::Descriptor;
use crate::image::descriptors::FileLock;
use crate::waits::blocked_on::{BlockedOn, Ownership, ThreadWait};
use crate::waits::holders::Blocked;
use crate::waits::observations::Observations;
use crate::waits::polling::{self, Polled};
use crate::waits::thread::{Process, ThreadView};

/// A library that polls.
struct Library {
    /// Parts of the path of its code's file: the name of a C module, or the directory of Python code.
    places: &'static [&'static str],
    /// Evidence for the wait, for people.
    what: &'static str,
    /// The kinds of locks that it takes, as /proc/locks has them.
    kinds: &'static [&'static str],
}

/// SQLite 3 (os_unix.c: bytes of the database from PENDING_BYTE on, and of the -shm file; main.c, sqliteDefaultBusyCallback),
/// portalocker 2 and 3 (utils.py, `Lock.acquire`), fasteners 0.18 (process_lock.py, `_do_acquire`).
const LIBRARIES: &[Library] = &[
    Library {
        places: &["libsqlite3.", "_sqlite3."],
        what: "SQLite's busy handler asks again for the lock",
        kinds: &["POSIX", "OFDLCK"],
    },
    Library { places: &["/portalocker/"], what: "portalocker asks again for the lock", kinds: &["FLOCK", "POSIX"] },
    Library { places: &["/fasteners/"], what: "fasteners asks again for the lock", kinds: &["POSIX"] },
];
/// Frames of the C library and the interpreter between the call that sleeps and the code that requests the lock.
const INNERMOST: usize = 8;

/// The lock that a thread which sleeps for a time will request again.
pub(super) fn decode(process: &Process<'_>, thread: &ThreadView<'_>, below: &BlockedOn) -> Option<BlockedOn> {
    let call = below.call?;
    if !call.row(process.architecture())?.lets_time_pass(&call.arguments) {
        return None;
    }
    let images = &process.context.all.processes;
    let own = process.context.process;
    let (what, kinds, files) = match library(thread) {
        Some(library) => (library.what.to_owned(), library.kinds, in_the_way_of(process, own, library.kinds)),
        None => {
            // Finding a holder of the lock is cheaper than finding out what the code does.
            let is_any = |kinds: &[&str]| (0..images.len()).any(|at| !in_the_way_of(process, at, kinds).is_empty());
            let Polled { what, kinds, paths } =
                is_any(&["FLOCK", "POSIX"]).then(|| polling::polled(process, thread)).flatten()?;
            let files = match paths.as_slice() {
                [] => in_the_way_of(process, own, kinds),
                // It is open where it is locked.
                paths => {
                    let is_it = |file: &Locked<'_>| paths.iter().any(|path| is_called(&file.descriptor.target, path));
                    let others = (0..images.len()).filter(|at| *at != own);
                    let files = others.flat_map(|at| in_the_way_of(process, at, kinds)).filter(is_it);
                    files.take(1).collect()
                }
            };
            (what, kinds, files)
        }
    };
    let [Locked { process: of, descriptor, locks }] = files.as_slice() else { return None };
    let is_flock = locks.iter().any(|lock| lock.kind == "FLOCK");
    let (resource, evidence) = resource(process, descriptor, is_flock)?;
    let evidence = match (*of == own, images.get(*of)) {
        (false, Some(image)) => format!("process {} has {} open", image.pid, descriptor.target),
        _ => evidence,
    };
    let rule = HolderRule::PolledLock(*of, descriptor.number, kinds);
    let refined = below.refined(resource, below.entry_points, vec![what, evidence]);
    Some(BlockedOn { timed: true, needs: needs(locks), ..refined.owned(Ownership::private(rule)) })
}

/// The polling library on the innermost end of a stack.
fn library(thread: &ThreadView<'_>) -> Option<&'static Library> {
    let frames = thread.frames();
    frames.iter().take(INNERMOST).find_map(|frame| {
        let places = [frame.module.as_deref(), frame.file.as_deref()];
        let is_of = |library: &&Library| {
            let is_in = |place: &&str| places.iter().flatten().any(|known| known.contains(*place));
            library.places.iter().any(is_in)
        };
        LIBRARIES.iter().find(is_of)
    })
}

/// Whether a program that calls a file `path` means `target`, which may stand in another folder for a path without one.
fn is_called(target: &str, path: &str) -> bool {
    target == path || !path.starts_with('/') && target.strip_suffix(path).is_some_and(|folder| folder.ends_with('/'))
}

/// A file that a process has open, and the locks on it that are in the way of another.
struct Locked<'p> {
    process: usize,
    descriptor: &'p Descriptor,
    locks: Vec<&'p FileLock>,
}

/// The open files of the process at a position on which there are locks in the way of `process`.
fn in_the_way_of<'p>(process: &Process<'p>, of: usize, kinds: &[&str]) -> Vec<Locked<'p>> {
    let mut open: Vec<Locked<'p>> = Vec::new();
    let image = process.context.all.processes.get(of);
    for descriptor in image.map(|image| image.descriptors.as_slice()).unwrap_or_default() {
        let locks = in_the_way(process, descriptor, kinds);
        let is_known = open.iter().any(|known| known.descriptor.inode == descriptor.inode);
        if !locks.is_empty() && !is_known {
            open.push(Locked { process: of, descriptor, locks });
        }
    }
    // The locks of the process itself are in the way of its other connections alone.
    let own = process.context.image.pid;
    let is_of_others = |locked: &Locked<'_>| locked.locks.iter().any(|lock| lock.pid != own);
    if open.iter().any(is_of_others) {
        open.retain(is_of_others);
    }
    // A database with a log has several files: readers lock one, writers another.
    let writes = |locks: &[&FileLock]| locks.iter().any(|lock| lock.write);
    if open.iter().any(|known| writes(&known.locks)) {
        open.retain(|known| writes(&known.locks));
    }
    open
}

/// The locks of these kinds on an open file: those to write, or else those to read, for which a writer waits; those of others, or
/// else of other threads of the process.
fn in_the_way<'p>(process: &Process<'p>, descriptor: &Descriptor, kinds: &[&str]) -> Vec<&'p FileLock> {
    let locks = process.context.all.kernel.locks.iter();
    let is_granted = |lock: &&FileLock| !lock.blocked && Some(lock.inode) == descriptor.inode;
    let mut locks: Vec<&FileLock> =
        locks.filter(is_granted).filter(|lock| kinds.contains(&lock.kind.as_str())).collect();
    if locks.iter().any(|lock| lock.write) {
        locks.retain(|lock| lock.write);
    }
    let own = process.context.image.pid;
    if locks.iter().any(|lock| lock.pid != own) {
        locks.retain(|lock| lock.pid != own);
    }
    locks
}

/// Add who has what is in the way.
pub(super) fn holders(
    blocked: &Blocked<'_>,
    wait: &ThreadWait,
    (of, number, kinds): (usize, i32, &'static [&'static str]),
    out: &mut Observations,
) {
    let process = blocked.process(wait);
    let Some(descriptor) = blocked.processes().get(of).and_then(|of| peers::descriptor(of, number)) else { return };
    let granted = in_the_way(process, descriptor, kinds);
    if granted.iter().all(|lock| lock.pid == process.context.image.pid) {
        // The kernel keeps it for the whole process, and does not show which of its threads will give it back.
        let why = "another part of the process itself has it, as another connection to the database";
        return out.nobody_named(&wait.blocked_on.resource, why);
    }
    add(blocked, wait, &descriptor.target, &granted, out);
}

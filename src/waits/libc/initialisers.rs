//! Holders of what only its user's frames tell: static guards, once controls, locks of malloc.
//!
//! In: a wait for such an object and all threads. Out: holds that are inferred, with the frame as evidence: the one
//! thread inside the initialiser, the one thread inside the allocator; or, where no thread of the process can be the
//! holder, one that fork left behind. Nothing here is exact: the objects record no thread.

use super::super::facts::{Process, ThreadFacts};
use super::super::family::{Found, Look, exact_hold, plain_name, waits_for};
use super::super::{Certainty, Gone, Hold, Observations, Party};
use super::call_sites;
use crate::image::{Addr, Gap, share_fork_ancestor};
use crate::waits::kinds;

/// Frames searched for a call that has not come back.
const FRAMES: usize = 64;

/// Functions that take the lock of an arena (malloc/malloc.c), by their plain names.
pub const ALLOCATION: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "free",
    "cfree",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "libc_malloc",
    "int_free",
    "arena_get",
];

/// Add who holds the object that `found` waits for.
pub fn holders(look: &Look<'_>, waits: &[Found], found: &Found, out: &mut Observations) {
    let process = &look.processes[found.process];
    let key = &found.decoded.resource.key;
    let Some(base) = found.decoded.futex.map(|futex| futex.word) else { return };
    let waits_for_it = |position: usize| waits_for(waits, key, found.process, position);
    let mut holders = Vec::new();
    if key.kind == kinds::STATIC_GUARD {
        // Between `__cxa_guard_acquire` and `__cxa_guard_release`: its thread runs the initialiser.
        return call_sites::holders(look, waits, found, base, &call_sites::GUARD, out);
    }
    for (position, thread) in process.threads.iter().enumerate() {
        let evidence = match key.kind {
            once if once == kinds::PTHREAD_ONCE && !waits_for_it(position) => in_once(process, thread, base),
            arena if arena == kinds::MALLOC_ARENA => in_allocator(process, thread, waits_for_it(position)),
            _ => None,
        };
        if let Some((native, evidence)) = evidence {
            let holder = Party::Thread(process.context.process, thread.image.tid);
            holders.push(Hold {
                frame: thread.merged(native),
                certainty: Certainty::Inferred,
                ..exact_hold(key, holder, None, vec![evidence])
            });
        }
    }
    if holders.len() > 1 {
        // One of them has it.
        holders.iter_mut().for_each(|hold| hold.certainty = Certainty::Candidate);
    }
    if holders.is_empty() && key.kind == kinds::MALLOC_ARENA {
        holders.extend(left_behind(look, process, found));
    }
    if holders.is_empty() {
        let (who, why) = match key.kind == kinds::MALLOC_ARENA {
            true => ("owner", "this lock records no owner"),
            false => ("holder", "the object records no thread"),
        };
        out.gaps.push(Gap::new(format!("{who} of {}", found.decoded.resource.label), why));
    }
    out.holds.extend(holders);
}

/// Inside a `pthread_once` that has this control in its registers or on its stack.
fn in_once(process: &Process<'_>, thread: &ThreadFacts<'_>, control: Addr) -> Option<(usize, String)> {
    let (native, name) = thread.names(FRAMES).find(|(_, name)| matches!(*name, "pthread_once" | "call_once"))?;
    let mention = thread.mention(process, control, 4, 0).filter(|mention| mention.native >= native)?;
    let who = thread.describe();
    Some((native, format!("{who} is inside {name} (frame {native}) and has the control's address: {}", mention.place)))
}

/// Inside the allocator: every holder of an arena's lock is. Of a thread that waits for the lock itself, that is the
/// code which a signal handler interrupted.
fn in_allocator(process: &Process<'_>, thread: &ThreadFacts<'_>, waits: bool) -> Option<(usize, String)> {
    let is_allocation = |name: &str| ALLOCATION.contains(&plain_name(name));
    let interrupted = if waits { thread.interrupted()? } else { 0 };
    let named = thread.names(FRAMES).map(|(native, name)| (native, name.to_owned()));
    let calls = named.chain(thread.nameless_entries(process));
    let inside = calls.filter(|(native, name)| *native >= interrupted && is_allocation(name));
    let (native, name) = inside.max_by_key(|(native, _)| *native)?;
    Some((native, format!("{} is inside {name} (frame {native}), where arena locks are held", thread.describe())))
}

/// No thread of the process is inside the allocator but those that wait: the lock came held from the parent.
fn left_behind(look: &Look<'_>, process: &Process<'_>, found: &Found) -> Option<Hold> {
    // A handler that interrupted the allocator waits for its own thread.
    let frames = process.threads[found.thread].thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let is_unknown = |thread: &ThreadFacts<'_>| thread.image.registers.is_none();
    if frames.iter().any(|frame| frame.signal) || process.threads.iter().any(is_unknown) {
        return None;
    }
    let (holder, gone, why) = left_by_fork(look, process)?;
    let evidence = format!("no thread of the process is inside the allocator but those that wait, and {why}");
    let hold = exact_hold(&found.decoded.resource.key, holder, None, vec![evidence]);
    Some(Hold { gone: Some(gone), certainty: Certainty::Inferred, ..hold })
}

/// Who stands for the threads that fork left behind in the parent, if the process came from one with several.
pub fn left_by_fork(look: &Look<'_>, process: &Process<'_>) -> Option<(Party, Gone, String)> {
    let image = process.context.image;
    let parent = image.parent?;
    let captured = look.processes.iter().find(|other| other.context.image.pid == parent);
    let several = captured.map_or(image.parent_threads.len(), |parent| parent.threads.len()) > 1;
    let was_one = captured.is_none_or(|parent| share_fork_ancestor(&parent.context.image.mappings, &image.mappings));
    if !several || !was_one {
        return None;
    }
    let why = format!("its parent {parent} has other threads, which fork did not copy");
    Some((Party::Absent(process.context.process, 0), Gone::LeftInParent, why))
}

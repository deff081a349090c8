//! Holders of objects that only their users' frames show: once controls, locks of malloc.
//!
//! In: a wait for such an object and all threads. Out: holds that are inferred, with the frame as evidence: the one
//! thread inside the initialiser, the one thread inside the allocator; or, where no thread of the process can be the
//! holder, one that fork left behind. Nothing here is exact: the objects record no thread.

use crate::image::Addr;
use crate::limits;
use crate::limits::libc::{INSIDE_FRAMES, ONCE_FRAMES};
use crate::symbols::base_symbol;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold, left_by_fork};
use crate::waits::model::{Hold, Party, ResourceKey, Strength};
use crate::waits::observations::Observations;
use crate::waits::references::Reference;
use crate::waits::thread::{Process, ThreadView};

/// Functions that take the lock of an arena (malloc/malloc.c), by their plain names.
pub(super) const ALLOCATION: &[&str] = &[
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

/// Add who runs the initialiser of the once control that `wait` waits for.
pub(super) fn initialisers(blocked: &Blocked<'_>, wait: &ThreadWait, control: Addr, out: &mut Observations) {
    let process = blocked.process(wait);
    let key = &wait.blocked_on.resource.key;
    let inside = process.threads.iter().filter_map(|thread| {
        let waits = blocked.waits_for(key, wait.process, thread.position);
        Some((thread, in_once(process, thread, control, waits)?))
    });
    let holders = holds(process, key, inside);
    if holders.is_empty() {
        let what = format!("holder of {}", wait.blocked_on.resource.label);
        tell_deep_threads(process, &what);
        out.nobody_named(&wait.blocked_on.resource, "the object records no thread");
    }
    out.holds.extend(holders);
}

/// Add who is inside the allocator, one of whose arenas `wait` waits for.
pub(super) fn allocators(blocked: &Blocked<'_>, wait: &ThreadWait, out: &mut Observations) {
    let process = blocked.process(wait);
    let key = &wait.blocked_on.resource.key;
    let inside = process.threads.iter().filter_map(|thread| {
        let waits = blocked.waits_for(key, wait.process, thread.position);
        Some((thread, in_allocator(process, thread, waits)?))
    });
    let mut holders = holds(process, key, inside);
    if holders.is_empty() {
        holders.extend(left_behind(blocked, process, wait));
    }
    if holders.is_empty() {
        let what = format!("holder of {}", wait.blocked_on.resource.label);
        tell_deep_threads(process, &what);
        out.nobody_named(&wait.blocked_on.resource, "this lock records no owner");
    }
    out.holds.extend(holders);
}

/// Note that some threads are too deep to show whether they are inside.
fn tell_deep_threads(process: &Process<'_>, what: &str) {
    if process.threads.iter().any(|thread| thread.names(usize::MAX).any(|(native, _)| native >= INSIDE_FRAMES)) {
        limits::met(INSIDE_FRAMES, what, "frames of a thread");
    }
}

/// One thread alone is inferred to hold it; of several, each may.
fn holds<'p>(
    process: &Process<'_>,
    key: &ResourceKey,
    inside: impl Iterator<Item = (&'p ThreadView<'p>, (usize, String))>,
) -> Vec<Hold> {
    let hold = |(thread, (native, evidence)): (&ThreadView<'_>, (usize, String))| {
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(key, holder, None, vec![evidence]);
        Hold { frame: thread.merged(native), strength: Strength::Inferred, ..hold }
    };
    let mut holds: Vec<Hold> = inside.map(hold).collect();
    if holds.len() > 1 {
        holds.iter_mut().for_each(|hold| hold.strength = Strength::Candidate);
    }
    holds
}

/// How far out a function stands in a call that runs an initialiser once: of the C library, of C++ up from the function that
/// calls the initialiser (libstdc++'s mutex and mutex.cc), of Rust.
fn depth_in_once(name: &str) -> Option<usize> {
    const PLAIN: [&str; 5] = ["once_proxy", "pthread_once_slow", "pthread_once", "gthread_once", "call_once"];
    const RUST: [&str; 2] = ["::once::futex::Once::call", "::futex_once::Once::call"];
    let plain = name.split('(').next().unwrap_or(name);
    let in_rust = || name.replace(['<', '>'], "");
    let outermost = || name.contains("std::call_once<") || RUST.iter().any(|part| in_rust().contains(part));
    PLAIN.iter().position(|known| *known == plain).or_else(|| outermost().then_some(PLAIN.len()))
}

/// Inside a call that runs an initialiser, and that has this control in its registers or on its stack. For a thread
/// that waits for the control, that call is one further out: the initialiser waits for itself.
fn in_once(process: &Process<'_>, thread: &ThreadView<'_>, control: Addr, waits: bool) -> Option<(usize, String)> {
    let named = thread.names(INSIDE_FRAMES).map(|(native, name)| (native, name.to_owned()));
    let entries = thread.nameless_entries(process).take_while(|(native, _)| *native < INSIDE_FRAMES);
    let mut calls: Vec<(usize, String)> =
        named.chain(entries).filter(|(_, name)| depth_in_once(base_symbol(name)).is_some()).collect();
    calls.sort_by_key(|(native, _)| *native);
    if waits {
        // The call that waits: its frames stand one behind the other, each further out in it.
        let place = |call: &(usize, String)| (call.0, depth_in_once(base_symbol(&call.1)));
        let next = |pair: &[(usize, String)]| matches!(pair, [one, two] if place(two).0 <= place(one).0 + 1 && place(two).1 > place(one).1);
        let same = 1 + calls.windows(2).take_while(|pair| next(pair)).count();
        calls.drain(..same.min(calls.len()));
    }
    calls.into_iter().find_map(|(native, name)| {
        // Further out a leftover of another call may have it.
        let near = |found: &Reference| found.native.is_some_and(|at| (native..native + ONCE_FRAMES).contains(&at));
        let reference = thread.references(process, control, 4).find(|found| found.is_live() && near(found))?;
        let who = thread.describe();
        Some((
            native,
            format!("{who} is inside {name} (frame {native}) and has the control's address: {}", reference.place),
        ))
    })
}

/// Inside the allocator: every holder of an arena's lock is. For a thread that waits for the lock itself, only the code
/// that a signal handler interrupted counts.
fn in_allocator(process: &Process<'_>, thread: &ThreadView<'_>, waits: bool) -> Option<(usize, String)> {
    let is_allocation = |name: &str| ALLOCATION.contains(&base_symbol(name));
    let interrupted = if waits { thread.interrupted()? } else { 0 };
    let named = thread.names(INSIDE_FRAMES).map(|(native, name)| (native, name.to_owned()));
    let calls = named.chain(thread.nameless_entries(process));
    let inside = calls.filter(|(native, name)| *native >= interrupted && is_allocation(name));
    let (native, name) = inside.max_by_key(|(native, _)| *native)?;
    Some((native, format!("{} is inside {name} (frame {native}), where arena locks are held", thread.describe())))
}

/// No thread of the process is inside the allocator but those that wait: the lock came held from the parent.
fn left_behind(blocked: &Blocked<'_>, process: &Process<'_>, wait: &ThreadWait) -> Option<Hold> {
    // A handler that interrupted the allocator waits for its own thread.
    let frames = process.threads[wait.thread].thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let is_unknown = |thread: &ThreadView<'_>| !thread.is_read();
    if frames.iter().any(|frame| frame.signal) || process.threads.iter().any(is_unknown) {
        return None;
    }
    let (holder, gone, why) = left_by_fork::left_by_fork(blocked, process)?;
    let evidence = format!("no thread of the process is inside the allocator but those that wait, and {why}");
    let hold = exact_hold(&wait.blocked_on.resource.key, holder, None, vec![evidence]);
    Some(Hold { gone: Some(gone), strength: Strength::Inferred, ..hold })
}

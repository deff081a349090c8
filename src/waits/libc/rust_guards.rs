//! `std::sync::Mutex` and `RwLock` of Rust, which name no holder. The holders are found by the guards that are alive in
//! the frames of threads.
//!
//! In: a wait for such a lock and all threads. Out: the holder, where the code of a thread shows it: on every path to
//! its return, a frame drops a guard of this lock. The compiler writes that only where the guard has been neither
//! dropped nor given away: not behind `drop(guard)`, and not around `condvar.wait(guard)`. That is so where it does not
//! inline the drop (-O0). Otherwise, the threads that have the lock's address at hand, as candidates.

use std::collections::BTreeSet;

use super::by_function::{RUST_MUTEX, RUST_RWLOCK};
use super::layout::rust_rwlock as layout;
use crate::code::{Code, Value};
use crate::image::{Addr, MemoryExt};
use crate::limits::holders::{CODE_FRAMES, GUARDS_LOOKED_AT};
use crate::unwind::{NativeFrame, Trust};
use crate::waits::blocked_on::Ownership;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds;
use crate::waits::model::{Hold, Party, ResourceKey, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// A way to have the lock.
#[derive(Debug)]
struct Way {
    mode: Option<&'static str>,
    /// The type of its guard.
    guard: &'static str,
}

const LOCKED: Way = Way { mode: None, guard: "::MutexGuard<" };
const READ: Way = Way { mode: Some("read"), guard: "::RwLockReadGuard<" };
const WRITE: Way = Way { mode: Some("write"), guard: "::RwLockWriteGuard<" };

/// `MutexGuard` { lock, poison } and `RwLockWriteGuard`, the same; `RwLockReadGuard` { data, inner_lock }, in either order.
const SIZE_OF_GUARD: u64 = 16;

impl Way {
    /// Whether a function ends a guard of this way: `drop` has any type.
    fn is_end(&self, function: &str) -> bool {
        function.contains("drop_in_place") && function.contains("std::sync::") && function.contains(self.guard)
            || function.starts_with("core::mem::drop")
    }
}

/// Put in the place of candidates who has such a lock.
pub(super) fn holders(blocked: &Blocked<'_>, out: &mut Observations) {
    let mut seen = BTreeSet::new();
    for found in blocked.waits() {
        let resource = &found.blocked_on.resource;
        let Ownership::ByReference(lock, _) = found.blocked_on.ownership else { continue };
        if resource.key.kind != kinds::FUTEX || !seen.insert(&resource.key) {
            continue;
        }
        let process = blocked.process(found);
        let (way, count) = match resource.label.noun.as_ref() {
            RUST_MUTEX => (&LOCKED, 1),
            RUST_RWLOCK => match process.memory().u32(lock).unwrap_or(0) & layout::COUNT {
                layout::WRITE_LOCKED => (&WRITE, 1),
                readers => (&READ, readers as usize),
            },
            _ => continue,
        };
        let holds = holds(process, &resource.key, lock, way, count);
        if !holds.is_empty() {
            out.holds.retain(|hold| hold.resource != resource.key);
            out.holds.extend(holds);
        }
    }
}

/// The holders of the lock by their code; none where more threads qualify than the lock allows.
fn holds(process: &Process<'_>, key: &ResourceKey, lock: Addr, way: &Way, count: usize) -> Vec<Hold> {
    let threads = process.threads.iter();
    let have: Vec<_> = threads.filter_map(|thread| Some((thread, guard(process, thread, lock, way)?))).collect();
    let hold = |(thread, (native, at)): (&ThreadView<'_>, (usize, Addr))| {
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let state = way.mode.map(|mode| format!("the state at {lock}: {count} may {mode}"));
        let why = format!(
            "frame {native} of {} has a guard of it at {at} and drops that whichever way it goes on, so that it is alive",
            thread.describe()
        );
        let hold = exact_hold(key, holder, way.mode, state.into_iter().chain([why]).collect());
        Hold { strength: Strength::Inferred, frame: thread.merged(native), ..hold }
    };
    if have.len() > count { Vec::new() } else { have.into_iter().map(hold).collect() }
}

/// The frame of a thread that has a living guard of the lock, and where that lies.
fn guard(process: &Process<'_>, thread: &ThreadView<'_>, lock: Addr, way: &Way) -> Option<(usize, Addr)> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let code = Code::new(process.context.image, process.context.symbols);
    let known = frames.iter().enumerate().take(CODE_FRAMES).filter(|(_, frame)| frame.trust != Trust::Scan);
    let mut guards = known
        .flat_map(|(native, frame)| slots(process, thread, frame, lock).into_iter().map(move |at| (native, frame, at)))
        .take(GUARDS_LOOKED_AT);
    let is_alive = |frame: &NativeFrame, at: Addr| {
        let value = Value { at, size: SIZE_OF_GUARD, word: lock.0 };
        code.surely_ends(frame, value, &|function| way.is_end(function))
    };
    guards.find(|(_, frame, at)| is_alive(frame, *at)).map(|(native, _, at)| (native, at))
}

/// Where a frame may have a guard of the lock: one of its two words is the lock's address.
fn slots(process: &Process<'_>, thread: &ThreadView<'_>, frame: &NativeFrame, lock: Addr) -> Vec<Addr> {
    let Some(end) = frame.cfa else { return Vec::new() };
    let words = thread.words(process);
    let first = words.partition_point(|(at, _)| *at < frame.sp);
    let of_frame = words.get(first..).unwrap_or_default().iter().take_while(|(at, _)| *at < end);
    of_frame.filter(|(_, value)| *value == lock.0).flat_map(|(at, _)| [*at, *at - 8]).collect()
}

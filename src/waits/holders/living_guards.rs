//! Locks of Rust's standard library, which name no holder. The holders are found by the guards that are alive in the frames of
//! threads.
//!
//! In: a wait for such a lock, the type of its guard, and all threads. Out: the holders, where the code of threads shows all of
//! them: on every path to its return, a frame drops a guard of this lock. The compiler writes that only where the guard has been
//! neither dropped nor given away: not behind `drop(guard)`, and not around `condvar.wait(guard)`. That is so where it does not
//! inline the drop (-O0).

use super::{Blocked, exact_hold};
use crate::code::{Code, Value};
use crate::image::Addr;
use crate::limits::holders::{CODE_FRAMES, GUARDS_LOOKED_AT};
use crate::unwind::{NativeFrame, Trust};
use crate::waits::blocked_on::{LivingGuards, Referenced, ThreadWait};
use crate::waits::model::{Hold, Party, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// `MutexGuard` { lock, poison } and `RwLockWriteGuard`, the same; `RwLockReadGuard` { data, inner_lock }, in either order.
const SIZE_OF_GUARD: u64 = 16;

/// Whether a function ends a guard of this type: `drop` has any type.
fn is_end(function: &str, guard: &str) -> bool {
    function.contains("drop_in_place") && function.contains("std::sync::") && function.contains(guard)
        || function.starts_with("core::mem::drop")
}

/// Add who has the lock; whether code shows it. It does not where more threads qualify than the lock allows.
pub(super) fn holders(blocked: &Blocked<'_>, wait: &ThreadWait, lock: &Referenced, out: &mut Observations) -> bool {
    let Some(guards) = &lock.guards else { return false };
    let process = blocked.process(wait);
    let threads = process.threads.iter();
    let have: Vec<_> =
        threads.filter_map(|thread| Some((thread, living(process, thread, lock.lock, guards)?))).collect();
    let hold = |(thread, (native, at)): (&ThreadView<'_>, (usize, Addr))| {
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let state = guards.mode.map(|mode| format!("the state at {}: {} may {mode}", lock.lock, guards.count));
        let why = format!(
            "frame {native} of {} has a guard of it at {at} and drops that whichever way it goes on, so that it is alive",
            thread.describe()
        );
        let evidence = state.into_iter().chain([why]).collect();
        let hold = exact_hold(&wait.blocked_on.resource.key, holder, guards.mode, evidence);
        Hold { strength: Strength::Inferred, frame: thread.merged(native), ..hold }
    };
    let is_found = (1..=guards.count as usize).contains(&have.len());
    out.holds.extend(have.into_iter().filter(|_| is_found).map(hold));
    is_found
}

/// The frame of a thread that has a living guard of the lock, and where that lies.
fn living(process: &Process<'_>, thread: &ThreadView<'_>, lock: Addr, guards: &LivingGuards) -> Option<(usize, Addr)> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let code = Code::new(process.context.image, process.context.symbols);
    let known = frames.iter().enumerate().take(CODE_FRAMES).filter(|(_, frame)| frame.trust != Trust::Scan);
    let mut found = known
        .flat_map(|(native, frame)| {
            slots(process, thread, frame, lock, guards).into_iter().map(move |at| (native, frame, at))
        })
        .take(GUARDS_LOOKED_AT);
    let is_alive = |frame: &NativeFrame, at: Addr| {
        let value = Value { at, size: SIZE_OF_GUARD, word: lock.0 };
        code.surely_ends(frame, value, &|function| is_end(function, guards.of))
    };
    found.find(|(_, frame, at)| is_alive(frame, *at)).map(|(native, _, at)| (native, at))
}

/// Where a frame may have a guard of the lock: one of its two words is the lock's address, and the other is no `None`. That is
/// a null pointer to the data of a reader, and for all others a flag that is neither of the values of a `bool`.
fn slots(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    frame: &NativeFrame,
    lock: Addr,
    guards: &LivingGuards,
) -> Vec<Addr> {
    let Some(end) = frame.cfa else { return Vec::new() };
    let words = thread.words(process);
    let first = words.partition_point(|(at, _)| *at < frame.sp);
    let of_frame = words.get(first..).unwrap_or_default();
    let pairs = of_frame.iter().zip(of_frame.iter().skip(1)).take_while(|((at, _), _)| *at < end);
    let is_reader = guards.mode == Some("read");
    let is_guard = |one: u64, other: u64| one == lock.0 && if is_reader { other != 0 } else { other as u8 <= 1 };
    let found = pairs.filter(|((_, one), (_, other))| is_guard(*one, *other) || is_reader && is_guard(*other, *one));
    found.map(|((at, _), _)| *at).collect()
}

//! `std::sync::RwLock` of Rust, which counts its readers and names nobody.
//!
//! In: a wait for such a lock and all threads. Out: who has it, where the code of a thread shows it: a frame that called
//! `read` or `write` more often than it dropped a guard, and has a guard of this lock among its words. That is so where
//! the compiler does not inline these calls (-O0). Else the threads that have its address at hand, as candidates.

use std::collections::BTreeSet;

use super::layout::rust_rwlock as layout;
use crate::code::{CallSite, Code};
use crate::image::{Addr, MemoryExt};
use crate::limits::holders::CODE_FRAMES;
use crate::unwind::{NativeFrame, Trust};
use crate::waits::blocked_on::Ownership;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds;
use crate::waits::model::{Certainty, Hold, Party, ResourceKey};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// A way to have the lock.
#[derive(Debug)]
struct Way {
    mode: &'static str,
    /// What the method that takes the lock ends with.
    method: &'static str,
    /// The type of its guard.
    guard: &'static str,
}

const READ: Way = Way { mode: "read", method: "::read", guard: "RwLockReadGuard" };
const WRITE: Way = Way { mode: "write", method: "::write", guard: "RwLockWriteGuard" };

impl Way {
    /// +1 where the call makes a guard, -1 where it ends one.
    fn step(&self, site: &CallSite) -> i32 {
        let Some(name) = site.function.as_deref() else { return 0 };
        // `std::sync::poison::rwlock::RwLock<T>::read`, in earlier versions without `poison`.
        if name.contains("rwlock::RwLock<") && name.ends_with(self.method) {
            return 1;
        }
        // A guard may be given to `drop`, which has any type.
        let ends = name.contains("drop_in_place") && name.contains(self.guard) || name.contains("core::mem::drop");
        -i32::from(ends)
    }
}

/// Put in the place of candidates who has such a lock.
pub(super) fn holders(blocked: &Blocked<'_>, out: &mut Observations) {
    let mut seen = BTreeSet::new();
    for found in blocked.waits() {
        let blocked_on = &found.blocked_on;
        // Of all locks that are looked for by reference only these have modes.
        let (Some(_), Ownership::ByReference(lock, _)) = (blocked_on.mode, &blocked_on.ownership) else { continue };
        let key = &blocked_on.resource.key;
        if key.kind != kinds::FUTEX || !seen.insert(key) {
            continue;
        }
        let holds = holds(blocked.process(found), key, *lock);
        if !holds.is_empty() {
            out.holds.retain(|hold| hold.resource != *key);
            out.holds.extend(holds);
        }
    }
}

/// Who has the lock by its code; nobody where that are more than it counts.
fn holds(process: &Process<'_>, key: &ResourceKey, lock: Addr) -> Vec<Hold> {
    let state = process.memory().u32(lock).unwrap_or(0) & layout::COUNT;
    let (way, count) = if state == layout::WRITE_LOCKED { (&WRITE, 1) } else { (&READ, state as usize) };
    let threads = process.threads.iter();
    let have: Vec<_> = threads.filter_map(|thread| Some((thread, guard(process, thread, lock, way)?))).collect();
    let hold = |(thread, (native, evidence)): (&ThreadView<'_>, (usize, String))| {
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let state = format!("the state at {lock}: {count} may {}", way.mode);
        let hold = exact_hold(key, holder, Some(way.mode), vec![state, evidence]);
        Hold { certainty: Certainty::Inferred, frame: thread.merged(native), ..hold }
    };
    if have.len() > count { Vec::new() } else { have.into_iter().map(hold).collect() }
}

/// The frame of a thread that has a guard of the lock, with what shows that.
fn guard(process: &Process<'_>, thread: &ThreadView<'_>, lock: Addr, way: &Way) -> Option<(usize, String)> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let code = Code::new(process.context.image, process.context.symbols);
    let known = frames.iter().enumerate().take(CODE_FRAMES).filter(|(_, frame)| frame.trust != Trust::Scan);
    let mut with_guard =
        known.filter_map(|(native, frame)| Some((native, frame, guard_in(process, thread, frame, lock)?)));
    with_guard.find_map(|(native, frame, at)| {
        let sites = code.calls_before(frame, thread.pthread);
        let on_the_way = sites.iter().filter(|site| !code.is_elsewhere(site.at, frame.lookup));
        let open: i32 = on_the_way.map(|site| way.step(site)).sum();
        let who = thread.describe();
        (open > 0).then(|| {
            (
                native,
                format!(
                    "frame {native} of {who} called {} and dropped no guard since; its guard is at {at}",
                    way.method
                ),
            )
        })
    })
}

/// Where a frame has a guard of the lock: the addresses of its data and of itself, side by side.
fn guard_in(process: &Process<'_>, thread: &ThreadView<'_>, frame: &NativeFrame, lock: Addr) -> Option<Addr> {
    let end = frame.cfa?;
    let is_data = |word: u64| Addr(word).within(lock + layout::POISON + 1, layout::MOST_BEFORE_DATA);
    let words = thread.words(process);
    let first = words.partition_point(|(at, _)| *at < frame.sp);
    let of_frame = words.get(first..)?.iter().take_while(|(at, _)| *at < end);
    let pairs = of_frame.clone().zip(of_frame.skip(1));
    let is_guard = |a: u64, b: u64| a == lock.0 && is_data(b) || b == lock.0 && is_data(a);
    pairs
        .filter(|((one, _), (next, _))| *one + 8 == *next)
        .find(|((_, a), (_, b))| is_guard(*a, *b))
        .map(|((at, _), _)| *at)
}

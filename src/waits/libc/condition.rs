//! `pthread_cond_t`: a thread waits to be signalled. A condition has no holder.
//!
//! In: a [`Case`]. Out: the condition's base and its mutex. The futex word's offset differs by version. The clean-up
//! buffer {.., cond, mutex, ..} on the waiter's stack has the base in every one (libc.md section 0.4).

use super::Case;
use super::layout::{condition as layout, mutex};
use crate::image::{Addr, MemoryExt};
use crate::limits::libc::{CLEANUP_RANGE, CONDITION_FRAMES, CONDITION_WAITERS, LOWEST_ADDRESS};
use crate::waits::blocked_on::BlockedOn;
use crate::waits::kinds;

/// Calls that wait on a condition.
pub(super) const ENTRY_POINTS: &[&str] = &["pthread_cond_", "cnd_"];

/// Decode a condition wait.
pub(super) fn decode(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    if !super::mutex::by_libc(case) {
        return None;
    }
    // Up to 2.34 the plain WAIT has value 0; a plain WAIT with another value is a mutex.
    if !(futex.command == 9 || futex.command == 0 && futex.value == 0) {
        return None;
    }
    let offset = |base: Addr| {
        let delta = futex.word - base;
        let (_, references, _) = layout::LAYOUTS.iter().find(|(words, ..)| words.contains(&delta))?;
        // The waiter itself is counted in `__wrefs`: a pointer to a structure that has the waited-for word by
        // chance at such an offset seldom passes.
        let waiters = case.word(base, *references)? >> layout::WAITERS_SHIFT;
        (base.0.is_multiple_of(8) && (1..CONDITION_WAITERS).contains(&waiters)).then_some(delta)
    };
    let words = case.thread.top(case.process, CLEANUP_RANGE);
    let from_stack = words.windows(2).find_map(|pair| {
        let (base, lock) = (Addr(pair[0].1), Addr(pair[1].1));
        let delta = offset(base)?;
        let is_place = lock != base && lock.0 >= LOWEST_ADDRESS && lock.0.is_multiple_of(4);
        let kind = is_place.then(|| case.word(lock, mutex::KIND)).flatten()?;
        (kind & !mutex::KIND_BITS == 0)
            .then(|| (base, delta, Some(lock), format!("the clean-up buffer at {}", pair[0].0)))
    });
    let (base, delta, lock, known) = from_stack.or_else(|| {
        if !case.inside(ENTRY_POINTS) {
            return None;
        }
        let architecture = case.process.context.image.architecture;
        case.thread.registers(CONDITION_FRAMES).into_iter().find_map(|(frame, register, value)| {
            Some((
                Addr(value),
                offset(Addr(value))?,
                None,
                format!("{} in frame {frame}", architecture.register_name(register)),
            ))
        })
    })?;
    let (_, references, version) = layout::LAYOUTS.iter().find(|(words, ..)| words.contains(&delta))?;
    let mut state = Vec::new();
    if let Some(references) = case.word(base, *references) {
        state.push(("waiters", i64::from(references >> layout::WAITERS_SHIFT)));
        state.push(("monotonic", i64::from(references >> 1 & 1)));
    }
    if let Ok(sequence) = case.process.memory().u64(base) {
        state.push(("wseq", sequence as i64));
    }
    let mut evidence = vec![
        case.word_is("condition", base, &format!("__g_signals[{}], {version}", (delta & 4) >> 2)),
        format!("{known} names the condition {base}"),
    ];
    if let Some(lock) = lock {
        state.push(("mutex", lock.0 as i64));
        evidence.push(format!("its mutex is {lock}"));
    }
    Some(case.below.refined(case.resource(kinds::PTHREAD_COND, "condition", base, state), ENTRY_POINTS, evidence))
}

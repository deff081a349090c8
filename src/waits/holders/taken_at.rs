//! Where what a thread holds was taken, in native code: the declaration of the guard that is alive in one of its frames, else the
//! one call in these that took it.
//!
//! In: holds whose holder is a captured thread. Out: the same with `taken`, and the frame. It finds no holder and
//! decides nothing: its result is for people who search the line to change.

use std::collections::HashMap;

use crate::code::Code;
use crate::image::{Addr, MemoryExt};
use crate::limits::holders::{GUARD_WORDS, NEAR_FRAMES, TAKEN_LOOKED_FOR};
use crate::symbols::{SourceFrame, Variable, base_symbol};
use crate::threads::Frame;
use crate::unwind::NativeFrame;
use crate::waits::holders::Blocked;
use crate::waits::kinds::{self, World};
use crate::waits::model::{Hold, Party, TakenAt};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// Add to each hold of a native lock the call site that took it, where the code shows it.
pub(crate) fn add(blocked: &Blocked<'_>, out: &mut Observations) {
    let mut known = Functions::default();
    let is_open = |hold: &&mut Hold| {
        let kind = hold.resource.kind;
        let is_kept = kind.is_lock() || kind == kinds::SEMAPHORE;
        hold.taken.is_none() && is_kept && kind.world == World::Native && !hold.resource.address.is_null()
    };
    for hold in out.holds.iter_mut().filter(is_open).take(TAKEN_LOOKED_FOR) {
        let Party::Thread(process, tid) = hold.holder else { continue };
        let Some(process) = blocked.processes().get(process) else { continue };
        let Some(thread) = process.position(tid).and_then(|at| process.threads.get(at)) else { continue };
        let lock = hold.resource.address;
        if let Some((native, variable)) = guard(process, thread, lock) {
            let Some(taken) = declared(thread, native, &variable) else { continue };
            // A candidate may have given the guard away.
            let is_alive = if !hold.is_known() { "may be" } else { "is" };
            let which = format!("its guard `{}` of line {}", variable.name, taken.line);
            hold.evidence.push(format!("{which} {is_alive} alive in frame {native}"));
            took(hold, thread, native, taken);
        } else if let Some((native, taken)) = call(&mut known, process, thread, hold.frame, lock) {
            took(hold, thread, native, taken);
        }
    }
}

/// Where it was taken, and the frame of that function, which may be inlined into the native one.
fn took(hold: &mut Hold, thread: &ThreadView<'_>, native: usize, taken: TakenAt) {
    let frames = thread.frames();
    let is_it = |frame: &Frame| frame.native == Some(native) && frame.function.as_deref() == Some(&taken.function);
    hold.frame = frames.iter().position(is_it).or_else(|| thread.merged(native)).or(hold.frame);
    hold.taken = Some(taken);
}

fn natives<'t>(thread: &'t ThreadView<'_>) -> &'t [NativeFrame] {
    thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default()
}

/// The guard of a lock, and the frame that it is alive in: that has the lock's address in it.
fn guard(process: &Process<'_>, thread: &ThreadView<'_>, lock: Addr) -> Option<(usize, Variable)> {
    let mut asked = Vec::new();
    let code = Code::new(process.context.image, process.context.symbols);
    for native in thread.references(process, lock, 1).filter_map(|reference| reference.native) {
        if asked.contains(&native) {
            continue;
        }
        if asked.len() >= NEAR_FRAMES {
            break;
        }
        asked.push(native);
        let Some(frame) = natives(thread).get(native).filter(|frame| frame.trust.is_certain()) else { continue };
        let variables = process.context.symbols.variables(frame.lookup);
        // One whose constructor has not returned has nothing yet.
        let made = native.checked_sub(1).and_then(|inner| code.parameter(natives(thread), inner, 0));
        let is_made =
            |variable: &Variable| made.is_some() && variable.address(frame.cfa, &frame.registers) == made.map(Addr);
        let guards = |variable: &&Variable| {
            variable.is_guard() && !is_made(variable) && points_to(process, frame, variable, lock)
        };
        if let Some(variable) = variables.iter().find(guards) {
            return Some((native, variable.clone()));
        }
    }
    None
}

fn points_to(process: &Process<'_>, frame: &NativeFrame, guard: &Variable, lock: Addr) -> bool {
    let Some(at) = guard.address(frame.cfa, &frame.registers) else { return false };
    let words = (guard.size / 8).min(GUARD_WORDS);
    (0..words).any(|word| process.memory().u64(at + 8 * word).is_ok_and(|value| value == lock.0))
}

/// The merged frames of a native one: what the compiler inlined there, innermost first.
fn merged<'t>(thread: &'t ThreadView<'_>, native: usize) -> impl Iterator<Item = &'t Frame> {
    let frames = thread.frames();
    frames.iter().filter(move |frame| frame.native == Some(native))
}

/// The line that declares a guard: in the file of its function.
fn declared(thread: &ThreadView<'_>, native: usize, guard: &Variable) -> Option<TakenAt> {
    let of_it = |frame: &&Frame| guard.function.is_some() && frame.function.as_deref() == guard.function.as_deref();
    let frame = merged(thread, native).find(of_it).or_else(|| merged(thread, native).last())?;
    let taken = TakenAt::at(frame.file.as_deref()?, guard.line, frame.function.as_deref()?);
    Some(TakenAt { guard: Some(guard.name.clone()), ..taken })
}

/// Whether functions have a call in them that is named as one which takes a lock, by the first address of each.
type Functions = HashMap<Addr, bool>;

/// The one call that took a lock, in the frame that has it or those further in, and that frame.
fn call(
    known: &mut Functions,
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    frame: Option<usize>,
    lock: Addr,
) -> Option<(usize, TakenAt)> {
    let symbols = process.context.symbols;
    let code = Code::new(process.context.image, symbols);
    let holder = frame.and_then(|frame| thread.thread?.frames.get(frame)?.native);
    let near = 0..NEAR_FRAMES.min(natives(thread).len());
    for native in holder.into_iter().chain(near) {
        let Some(frame) = natives(thread).get(native).filter(|frame| frame.trust.is_certain()) else { continue };
        let Some(start) = symbols.function_start(frame.lookup) else { continue };
        let takes = |name: &Option<String>| name.as_deref().is_some_and(takes_lock);
        let matters =
            known.entry(start).or_insert_with(|| code.calls_in(frame.lookup).iter().any(|site| takes(&site.function)));
        if !*matters {
            continue;
        }
        let mut sites = code.calls_before(frame, thread.pthread);
        sites.retain(|site| site.arguments.first() == Some(&Some(lock.0)));
        let mut open = Vec::new();
        for site in sites {
            match site.function.as_deref() {
                Some(name) if takes_lock(name) => open.push(site),
                Some(name) if gives_lock(name) => open.clear(),
                _ => {}
            }
        }
        // With two open calls, either may be the one.
        let [site] = open.as_slice() else { continue };
        let now: Vec<&Frame> = merged(thread, native).collect();
        return Some((native, parting(&symbols.source(site.at), &now)?));
    }
    None
}

/// The line of a call in the function that has gone on since: where the way to the call and the way to where the frame is now part.
/// Both are innermost first, and of one native function: what the compiler inlined there.
fn parting(call: &[SourceFrame], now: &[&Frame]) -> Option<TakenAt> {
    let mut common = call.iter().rev().zip(now.iter().rev()).enumerate();
    let at = common.find(|(depth, (place, frame))| {
        let is_other = *depth > 0 && place.function != frame.function;
        is_other || place.line != frame.line
    });
    let (place, frame) = match at {
        Some((depth, (place, frame))) if depth == 0 || place.function == frame.function => (place, *frame),
        // Another function of the same line: the line is that of their caller.
        Some((depth, _)) => (call.iter().rev().nth(depth - 1)?, *now.iter().rev().nth(depth - 1)?),
        None if call.len() == 1 && now.len() == 1 => (call.first()?, *now.first()?),
        None => return None,
    };
    Some(TakenAt::at(place.file.as_deref()?, place.line?, frame.function.as_deref()?))
}

/// `pthread_mutex_lock`, `std::mutex::lock()`, `omp_set_lock`, `sem_wait`.
fn takes_lock(name: &str) -> bool {
    let name = bare(name);
    !gives_lock(name) && (name.ends_with("lock") || name == "sem_wait")
}

fn gives_lock(name: &str) -> bool {
    let name = bare(name);
    name.ends_with("unlock") || name.ends_with("unset_lock") || name == "sem_post"
}

/// A function's name without its parameters.
fn bare(name: &str) -> &str {
    base_symbol(name.split(['(', '<']).next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_names() {
        for name in [
            "pthread_mutex_lock",
            "__pthread_mutex_lock",
            "std::mutex::lock()",
            "pthread_rwlock_wrlock",
            "omp_set_lock",
        ] {
            assert!(takes_lock(name) && !gives_lock(name), "{name}");
        }
        for name in ["pthread_mutex_unlock", "std::mutex::unlock()", "omp_unset_lock"] {
            assert!(gives_lock(name) && !takes_lock(name), "{name}");
        }
        assert!(!takes_lock("transfer(Account&, std::mutex::lock)"));
    }

    fn place(function: &str, line: u32) -> SourceFrame {
        let (function, file) = (Some(function.into()), Some("/src/bank.cpp".into()));
        SourceFrame { function, file, line: Some(line), inlined: false }
    }

    fn now(place: &SourceFrame) -> Frame {
        let SourceFrame { function, file, line, .. } = place.clone();
        Frame { file, line, native: Some(0), ..Frame::of(crate::threads::FrameKind::Native, function) }
    }

    #[test]
    fn the_line_is_where_the_ways_part() {
        let call = [place("mutex::lock", 100), place("transfer", 9), place("main", 20)];
        let frames: Vec<Frame> =
            [place("mutex::lock", 100), place("transfer", 11), place("main", 20)].iter().map(now).collect();
        let frames: Vec<&Frame> = frames.iter().collect();
        let taken = parting(&call, &frames).expect("a place");
        assert_eq!((taken.function.as_str(), taken.line), ("transfer", 9));
        // Not inlined.
        let taken = parting(&call[1..2], &frames[1..2]).expect("a place");
        assert_eq!((taken.function.as_str(), taken.line), ("transfer", 9));
        // The function that took it has returned, and was called in the same line as that which waits.
        let taken = parting(&[place("take", 5), place("transfer", 11), place("main", 20)], &frames).expect("a place");
        assert_eq!((taken.function.as_str(), taken.line), ("transfer", 11));
        assert!(parting(&[], &frames).is_none() && parting(&call, &[]).is_none());
    }
}

//! Locks that a program makes itself of a futex: whose function waits, and who called it before.
//!
//! In: a thread that sleeps on a word as locks of one word do, and the code of all threads. Out: candidate holders.
//! These threads called the same function with the same word before, and have not left the calling function. They made
//! no other call with that word since. Only the author knows the function's meaning, so a cycle of these is a
//! suspicion. A thread that only passes a gate repeatedly looks the same.

use crate::code::{CallSite, Code};
use crate::image::Addr;
use crate::limits::holders::CODE_FRAMES;
use crate::limits::libc::LARGEST_OBJECT;
use crate::origin::{OriginKind, is_c_library};
use crate::threads::Frame;
use crate::unwind::Trust;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::by_reference::is_looked_at_whole;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::model::{Hold, Party, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

/// Add who may have taken the lock at `word`.
pub(super) fn holders(blocked: &Blocked<'_>, wait: &ThreadWait, word: Addr, out: &mut Observations) {
    let process = blocked.process(wait);
    let waiter = &process.threads[wait.thread];
    let taking = own_function(process, waiter);
    let mut holds = Vec::new();
    for thread in &process.threads {
        let site = taking.and_then(|taking| taken(process, thread, taking, word));
        let Some((native, site)) = site else { continue };
        let evidence = vec![
            format!(
                "frame {native} of {} called {}({word}) at {}, in which the waiter is, and nothing with that word since",
                thread.describe(),
                site.function.as_deref().unwrap_or("the function"),
                site.at
            ),
            "the lock is the program's own and records no owner: a candidate".into(),
        ];
        let holder = Party::Thread(process.context.process, thread.image.tid);
        let hold = exact_hold(&wait.blocked_on.resource.key, holder, None, evidence);
        holds.push(Hold { strength: Strength::Candidate, frame: thread.merged(native), ..hold });
    }
    if let [hold] = holds.as_mut_slice()
        && is_looked_at_whole(blocked, wait.process)
    {
        hold.strength = Strength::SoleCandidate;
    }
    if holds.is_empty() {
        out.nobody_named(&wait.blocked_on.resource, "this lock records no owner");
    }
    out.holds.extend(holds);
}

/// The function of the program that makes a thread sleep.
fn own_function(process: &Process<'_>, thread: &ThreadView<'_>) -> Option<Addr> {
    let frames = thread.frames();
    let is_own = |frame: &&Frame| frame.module.is_some() && frame.origin.kind != OriginKind::CLibrary;
    let native = frames.iter().find(is_own)?.native?;
    let frame = thread.thread?.native.frames.get(native)?;
    process.context.symbols.function_start(frame.lookup)
}

/// Whether a function is the C library's, which gives back no lock of the program's own.
fn is_of_c_library(process: &Process<'_>, function: Addr) -> bool {
    let path = process.context.image.mapping(function).and_then(|mapping| mapping.path.as_deref());
    path.and_then(|path| path.rsplit('/').next()).is_some_and(is_c_library)
}

/// The last call of `taking` with `word` after which no call got the word: calls of outer frames come first.
fn taken(process: &Process<'_>, thread: &ThreadView<'_>, taking: Addr, word: Addr) -> Option<(usize, CallSite)> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let code = Code::new(process.context.image, process.context.symbols);
    let mut last = None;
    for (native, frame) in frames.iter().enumerate().take(CODE_FRAMES).rev() {
        // Reading with values is dear: only where there is such a call at all.
        let calls_it = || code.calls_in(frame.lookup).iter().any(|site| site.target == Some(taking));
        if frame.trust == Trust::Scan || !calls_it() {
            continue;
        }
        for site in code.calls_before(frame, thread.pthread) {
            let has = |least: u64| site.arguments.iter().flatten().any(|value| (least..=word.0).contains(value));
            let takes = site.target == Some(taking);
            if site.target.is_some_and(|target| is_of_c_library(process, target)) {
                continue;
            }
            // A call that releases it may get the object that the word lies in.
            let matters = if takes { has(word.0) } else { has(word.0.saturating_sub(LARGEST_OBJECT)) };
            if matters && !code.is_elsewhere(site.at, frame.lookup) {
                last = takes.then_some((native, site));
            }
        }
    }
    last
}

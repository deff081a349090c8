//! Calls that end although nothing came: their thread is cancelled, or a signal's handler runs.
//!
//! In: waits inside rings. Out: a wake source for each thread with a call of `pthread_cancel` or `pthread_kill` ahead of where it
//! stands, and one for a timer whose signal has a handler. The graph finds whether such a thread can get there. A handler may also end
//! the wait by what it does: post a semaphore, write to a pipe, end a child.

use std::collections::HashMap;

use super::Families;
use crate::image::descriptors::{CHILD_ENDS, COMING_SIGNALS, FAULT_SIGNALS};
use crate::waits::blocked_on::{Guards, LockCalls, ThreadWait};
use crate::waits::family::{Way, signal_name};
use crate::waits::holders::Blocked;
use crate::waits::holders::by_critical_section;
use crate::waits::holders::rings::rings;
use crate::waits::kinds::{self, Kind, World};
use crate::waits::model::{Party, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// The call that ends the wait of the thread with this descriptor, as one that gives something back.
const CANCEL: LockCalls = of_thread(&["pthread_cancel"]);
/// The same of a wait that ends when a handler has run.
const SIGNAL: LockCalls = of_thread(&["pthread_kill", "pthread_sigqueue"]);

/// The signal of timers that call a function (SIGEV_THREAD): glibc keeps it for these.
const CALLS_BACK: u32 = 32;

const fn of_thread(calls: &'static [&'static str]) -> LockCalls {
    LockCalls {
        mode: None,
        locks: &[],
        may_fail: &[],
        unlocks: calls,
        guards: Guards::NONE,
        is_ambiguous: false,
        is_only: false,
        lock: 0,
    }
}

/// Whether waits for this are in calls that end when the thread is cancelled (pthreads(7), "Cancellation points"): of locks, only
/// semaphores'.
fn is_cancelled(kind: &Kind) -> bool {
    !kind.is_lock() || *kind == *kinds::SEMAPHORE
}

/// Whether waits for this are in calls that return when a handler has run (signal(7)), or end by what a handler may do.
fn is_interrupted(kind: &Kind) -> bool {
    kind.world == World::Kernel || *kind == *kinds::SEMAPHORE
}

/// Whether some code of a process may call one of these by its name: reading what lies ahead of all threads takes long.
fn may_call(process: &Process<'_>, calls: &LockCalls) -> bool {
    let symbols = process.context.symbols;
    let modules = || 0..symbols.modules().list.len();
    calls.unlocks.iter().any(|call| {
        let is_static = || symbols.exporters(call).next().is_none();
        symbols.has_met_slot(call)
            || modules().any(|module| symbols.imports(module, call))
            || is_static() && modules().any(|module| symbols.find(module, call).is_some())
    })
}

/// Add what may end the call of a waiter inside a ring.
pub(super) fn wake_sources(blocked: &Blocked<'_>, families: &Families<'_>, out: &mut Observations) {
    let kind = |wait: &ThreadWait| wait.blocked_on.resource.key.kind;
    let may_end = |wait: &&ThreadWait| is_cancelled(kind(wait)) || is_interrupted(kind(wait));
    if !blocked.waits().iter().any(|wait| may_end(&wait)) {
        return;
    }
    let rings = rings(out);
    let mut may_be_called: HashMap<(usize, &LockCalls), bool> = HashMap::new();
    for wait in blocked.waits().iter().filter(may_end) {
        let process = blocked.process(wait);
        let thread = &process.threads[wait.thread];
        let waiter = Party::Thread(process.context.process, thread.image.tid);
        if !rings.contains(&waiter) {
            continue;
        }
        if *kind(wait) == *kinds::SEMAPHORE {
            for other in blocked.with_same_memory(process) {
                let by = Waker::Party(Party::Process(other.context.process));
                out.wake_source_for(&waiter, by, "a process that has the same memory could give it");
            }
        }
        let (kernel, pid) = (&process.context.all.kernel, process.context.image.pid);
        let handled = process.handled().unwrap_or_default() & !FAULT_SIGNALS;
        let is_signalled = is_interrupted(kind(wait)) && handled != 0;
        let calls = [(&CANCEL, is_cancelled(kind(wait))), (&SIGNAL, is_signalled)];
        for (calls, _) in calls.into_iter().filter(|(_, fits)| *fits) {
            let Some(descriptor) = thread.pthread else { continue };
            if *may_be_called.entry((wait.process, calls)).or_insert_with(|| may_call(process, calls)) {
                let key = &wait.blocked_on.resource.key;
                for source in by_critical_section::givers(blocked, process, descriptor, key, calls) {
                    out.wake_source_for(&waiter, source.by, &source.what);
                }
            }
        }
        if kernel.signals_of_timers(pid) >> (CALLS_BACK - 1) & 1 == 1 {
            let what = "a timer of its process calls a function of the program on a thread of its own";
            out.wake_source_for(&waiter, Waker::ByItself, what);
        }
        let in_ring = |child: i32| {
            let position = blocked.processes().iter().position(|one| one.context.image.pid == child);
            rings.iter().any(|party| match party {
                Party::Thread(process, _) | Party::Process(process) => Some(*process) == position,
                Party::Resource(_) | Party::Absent(..) => false,
            })
        };
        let mut children = kernel.children.iter().filter(|(of, _)| *of == pid).flat_map(|(_, children)| children);
        let child_ends = if children.any(|child| !in_ring(*child)) { CHILD_ENDS } else { 0 };
        let coming = kernel.signals_of_timers(pid) | COMING_SIGNALS | child_ends;
        let pending = (1..=64u32).filter(|signal| (handled & coming) >> (signal - 1) & 1 == 1);
        for signal in pending.filter(|_| is_signalled) {
            let way = families.iter().find_map(|family| family.handler(process, signal, wait));
            if !matches!(way, Some(Way::Shut(_))) {
                let what = format!("the process's handler for {} could still end it", signal_name(signal));
                out.wake_source_for(&waiter, Waker::ByItself, &what);
            }
        }
    }
}

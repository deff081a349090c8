//! `lock-taken-again-in-signal-handler`: a handler waits for what the code has that it interrupted.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::graph::Cycle;
use crate::report::Severity;
use crate::threads::{Frame, FrameKind};
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "lock-taken-again-in-signal-handler",
        title: "a signal handler waits for a lock that the interrupted code holds",
        severity: Severity::Error,
        what: "A signal arrived while the thread held a lock. The handler runs on the same thread and asks for the lock again; the code that would release it goes on only when the handler returns.",
        cause: "A handler may run between any two instructions. malloc, stdio, loggers and most libraries take locks, which is why so few functions may be called in a handler of C. Python runs its handlers later, between two instructions of the main thread: they may call anything, but not take a lock that the main thread may hold at that moment (that of a queue, of a condition, of a logger that writes to a queue).",
        example: Example {
            file: "lock_taken_again_in_signal_handler.c",
            program: include_str!("examples/lock_taken_again_in_signal_handler.c"),
            command: "cc -g -pthread lock_taken_again_in_signal_handler.c -o hang && ./hang",
            needs: Requirement::Nothing,
        },
        help: &[
            "let the handler only set a flag or write to a pipe (eventfd, signalfd), and do the work outside of it",
            "call only async-signal-safe functions in a handler (man 7 signal-safety)",
            "block the signal (pthread_sigmask) while the lock is held",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "let the handler only set a flag, or write to a descriptor: `signal.set_wakeup_fd`, or with asyncio `loop.add_signal_handler`, whose function runs as a callback of the loop. queue.SimpleQueue.put may be called in a handler, queue.Queue.put may not. threading.Event.set takes a lock too: use it only where the main thread does not call set, clear or wait on it.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "a handler for SIGTERM that saves a checkpoint runs between any two instructions of the main thread: set a flag in it and save at the end of the step.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "do not install handlers with C++ that lock; long functions call `PyErr_CheckSignals()` with the GIL so that Python's handlers run at a safe place.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "`cysignals` (sig_on, sig_off) jumps out of C code at a signal, and leaves locks taken: block it with sig_block around code that locks.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "use the crate signal-hook with a flag or a thread (`signal_hook::iterator::Signals`), and `py.check_signals()` in long loops.",
            },
            Fix {
                with: Toolkit::C,
                text: "only async-signal-safe functions in a handler (man 7 signal-safety): set a `volatile sig_atomic_t`, write to a pipe or eventfd, or use signalfd and no handler at all. Or block the signal with pthread_sigmask while the lock is held.",
            },
        ],
        references: &["man 7 signal-safety", "Icinga/icinga2#9938"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| handler(context, cycle).is_some());
    for draft in &mut drafts {
        let cycle = draft.cycle.and_then(|cycle| context.cycles.get(cycle));
        if let Some(Some((handler, code))) = cycle.map(|cycle| handler(context, cycle)) {
            draft.message += &format!(" The second time is in the signal handler {handler}, which interrupted {code}.");
        }
    }
    drafts
}

/// The handler that waits and the function that it interrupted.
fn handler(context: &Context<'_>, cycle: &Cycle) -> Option<(String, String)> {
    handler_of_python(context, cycle).or_else(|| native_handler(context, cycle))
}

/// Python runs the handlers of `signal.signal` between two instructions of the main thread.
fn handler_of_python(context: &Context<'_>, cycle: &Cycle) -> Option<(String, String)> {
    let (caller, handler) =
        super::called_by(context.between(cycle)?, &["PyErr_CheckSignals", "handle_signals", "PyRun_Pending"])?;
    let is_python = |frame: &&Frame| frame.kind == FrameKind::Python;
    let interrupted = context.names.frames(&cycle.edges.first()?.waiter);
    let outside = interrupted.iter().skip(context.frame_of(cycle.edges.first()?) + caller).find(is_python);
    Some((handler, outside?.function.clone()?))
}

/// The kernel called the handler.
fn native_handler(context: &Context<'_>, cycle: &Cycle) -> Option<(String, String)> {
    let [edge] = cycle.edges.as_slice() else { return None };
    let Party::Thread(process, tid) = &edge.waiter else { return None };
    let thread = context.look.threads.get(*process)?.iter().find(|thread| thread.tid == *tid)?;
    let native = |index: usize| thread.frames.get(index)?.native;
    let seen = context.look.observations;
    let waits = native(edge.wait.and_then(|wait| seen.waits[wait].frame).unwrap_or(0)).unwrap_or(0);
    let frames = &thread.native.frames;
    let signal = waits + frames.get(waits..)?.iter().position(|frame| frame.signal)?;
    // What is held may have been taken in the handler itself.
    let taken = edge.hold.and_then(|hold| native(seen.holds[hold].frame?));
    if taken.is_some_and(|taken| taken <= signal) {
        return None;
    }
    let name = |wanted: &dyn Fn(usize) -> bool| {
        let mut named = thread.frames.iter().filter(|frame| frame.native.is_some_and(wanted));
        named.find_map(|frame| frame.function.clone())
    };
    // The outermost frame of the handler is the one that the kernel called.
    let handler = thread.frames.iter().rev().find(|frame| frame.native.is_some_and(|native| native < signal));
    let handler = handler.and_then(|frame| frame.function.clone()).unwrap_or_else(|| "without a name".into());
    Some((handler, name(&|native| native > signal).unwrap_or_else(|| "code without a name".into())))
}

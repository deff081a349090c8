//! `lock-taken-again-in-signal-handler`: a handler waits for what the code has that it interrupted.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::graph::Cycle;
use crate::report::Severity;
use crate::threads::{Frame, FrameKind};
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "lock-taken-again-in-signal-handler",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "lock_taken_again_in_signal_handler.c",
        program: include_str!("example.c"),
        command: "cc -g -pthread lock_taken_again_in_signal_handler.c -o hang && ./hang",
        needs: Requirement::Nothing,
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
        super::rule::called_by(context.between(cycle)?, &["PyErr_CheckSignals", "handle_signals", "PyRun_Pending"])?;
    let is_python = |frame: &&Frame| frame.kind == FrameKind::Python;
    let interrupted = context.names.frames(&cycle.edges.first()?.waiter);
    let outside = interrupted.iter().skip(context.frame_of(cycle.edges.first()?) + caller).find(is_python);
    Some((handler, outside?.function.as_deref()?.to_owned()))
}

/// The kernel called the handler.
fn native_handler(context: &Context<'_>, cycle: &Cycle) -> Option<(String, String)> {
    let [edge] = cycle.edges.as_slice() else { return None };
    let Party::Thread(process, tid) = &edge.waiter else { return None };
    let thread = context.input.threads.get(*process)?.iter().find(|thread| thread.tid == *tid)?;
    let native = |index: usize| thread.frames.get(index)?.native;
    let seen = context.input.observations;
    let waits = native(edge.wait.and_then(|wait| seen.waits[wait].frame).unwrap_or(0)).unwrap_or(0);
    let frames = &thread.native.frames;
    let signal = waits + frames.get(waits..)?.iter().position(|frame| frame.signal)?;
    // The handler itself may have taken the lock.
    let taken = edge.hold.and_then(|hold| native(seen.holds[hold].frame?));
    if taken.is_some_and(|taken| taken <= signal) {
        return None;
    }
    let name = |wanted: &dyn Fn(usize) -> bool| {
        let mut named = thread.frames.iter().filter(|frame| frame.native.is_some_and(wanted));
        named.find_map(|frame| frame.function.as_deref()).map(str::to_owned)
    };
    // The outermost frame of the handler is the one that the kernel called.
    let handler = thread.frames.iter().rev().find(|frame| frame.native.is_some_and(|native| native < signal));
    let handler = handler.and_then(|frame| frame.function.as_deref()).unwrap_or("without a name").to_owned();
    Some((handler, name(&|native| native > signal).unwrap_or_else(|| "code without a name".into())))
}

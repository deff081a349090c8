//! `cuda-call-at-exit`: CUDA is called while the program ends.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule, is_libc};
use crate::report::Severity;
use crate::symbols::base_symbol;
use crate::threads::{Alike, Frame, FrameKind};
use crate::waits::model::Role;
use crate::waits::{Party, Wait};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "cuda-call-at-exit",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "cuda_call_at_exit.cpp",
        program: include_str!("example.cpp"),
        command: "c++ -g cuda_call_at_exit.cpp -o hang -lcuda && ./hang",
        needs: Requirement::Gpu,
    },
    rule,
};

/// Functions of the C library, and of the loader, that end a program.
const ENDS: [&str; 6] = ["exit", "run_exit_handlers", "cxa_finalize", "dl_fini", "dl_call_fini", "call_tls_dtors"];

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (process, threads) in context.input.threads.iter().enumerate() {
        let mut ends = Alike::default();
        for thread in threads {
            let Some(end) = ends.of(&thread.frames, is_end).iter().position(|(_, is_end)| *is_end) else { continue };
            let party = Party::Thread(process, thread.tid);
            let inner = &thread.frames[..end];
            let who = context.names.party_in_full(&party);
            let wait = context.input.observations.waits.iter().find(|wait| wait.waiter == party);
            let call = context.names.call(&party, wait.and_then(|wait| wait.frame)).phrase();
            if inner.iter().any(|frame| context.names.is_driver(frame)) {
                let by = destructor(inner).map(|by| format!(" It was called by {by}.")).unwrap_or_default();
                drafts.push(Draft {
                    message: format!("{who} ends the program and is{call} meanwhile.{by}"),
                    parties: vec![party],
                    ..Draft::default()
                });
                continue;
            }
            // It waits in there, and another thread is still inside CUDA.
            let others: Vec<Party> = threads
                .iter()
                .filter(|other| other.tid != thread.tid)
                .map(|other| (Party::Thread(process, other.tid), other))
                .filter(|(other, _)| !is_idle(context, other))
                .filter(|(_, other)| other.frames.iter().any(|frame| context.names.is_driver(frame)))
                .map(|(other, _)| other)
                .collect();
            if let (Some(first), true) = (others.first(), wait.is_some()) {
                let by = destructor(inner).map(|by| format!(" ({by})")).unwrap_or_default();
                drafts.push(Draft {
                    message: format!(
                        "{who} ends the program{call}{by}, while {} is still inside CUDA{}.",
                        context.names.party(first),
                        context.names.call(first, None).phrase()
                    ),
                    parties: std::iter::once(party).chain(others).collect(),
                    ..Draft::default()
                });
            }
        }
    }
    drafts
}

fn is_end(frame: &Frame) -> bool {
    frame.kind == FrameKind::Native && frame.function.as_deref().is_some_and(|name| ENDS.contains(&base_symbol(name)))
}

/// Whether a thread is one of the driver's own that has nothing to do.
fn is_idle(context: &Context<'_>, party: &Party) -> bool {
    let waits = &context.input.observations.waits;
    let is_idle = |wait: &Wait| {
        let resource = context.names.described(&wait.resource);
        resource.is_some_and(|resource| resource.role == Some(Role::IdleWork))
    };
    waits.iter().any(|wait| wait.waiter == *party && is_idle(wait))
}

/// The outermost frame that the end called: a destructor, or a function of atexit, with its library.
fn destructor(inner: &[Frame]) -> Option<String> {
    let called = inner.iter().rfind(|frame| frame.kind != FrameKind::Boundary && !is_libc(frame))?;
    let module = called.module.as_deref().map(|module| format!(" in {module}")).unwrap_or_default();
    match called.function.as_deref() {
        Some(function) => Some(format!("{function}{module}")),
        None => called.module.as_deref().map(|module| format!("a destructor or atexit function of {module}")),
    }
}

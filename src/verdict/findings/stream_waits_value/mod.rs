//! `stream-waits-value`: a thread waits for a stream that waits for a word in memory.
//!
//! In: the judged sample, with what threads gave to the GPU by their code. Out: drafts of the finding. Where the word
//! is the GPU's own its value is not known: then a core of the GPU in which no kernel runs has to say that the stream
//! stands.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::image::Addr;
use crate::report::Severity;
use crate::waits::circumstances::{Condition, Queued, Work};
use crate::waits::kinds;
use crate::waits::{Party, Wait};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "stream-waits-value",
    severity: Severity::Note,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "stream_waits_value.c",
        program: include_str!("example.c"),
        command: "cc -g stream_waits_value.c -o hang -lcuda && ./hang",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    seen.queued.iter().filter_map(|queued| draft(context, queued)).collect()
}

fn draft(context: &Context<'_>, queued: &Queued) -> Option<Draft> {
    let Work::Value { stream, address, found, condition } = &queued.work else { return None };
    let seen = context.input.observations;
    let wait = seen.waits.iter().find(|wait| wait.waiter == queued.waiter && is_for(wait, *stream))?;
    let is_open = match (found, condition) {
        (Some(found), Some(condition)) => !condition.is_met(*found),
        _ => is_idle(context, &queued.waiter),
    };
    if !is_open {
        return None;
    }
    let names = context.names;
    let who = names.party(&wait.waiter);
    let by = queued.place.as_ref().map(|place| format!(" in {place}")).unwrap_or_default();
    let mut message = format!(
        "{who} waits for {}{}. Before that it queued {}{by}: the stream goes on when {}",
        names.resource(&wait.resource),
        names.call(&wait.waiter, wait.frame).phrase(),
        queued.call,
        until(*address, *condition),
    );
    message += &match found {
        Some(found) => format!(", and it is {found}."),
        None => ". No kernel of the process runs.".to_owned(),
    };
    Some(Draft {
        message,
        parties: vec![wait.waiter.clone()],
        resources: vec![wait.resource.clone()],
        ..Draft::default()
    })
}

/// Whether the wait is for this stream, or for all work; one handle more or less is not known.
fn is_for(wait: &Wait, stream: Option<Addr>) -> bool {
    wait.resource.kind.is_gpu()
        && (wait.resource.kind != kinds::CUDA_STREAM
            || stream.is_none_or(|stream| wait.resource.address == Addr(0) || wait.resource.address == stream))
}

/// Whether cores of the GPU say that no kernel of the process runs.
fn is_idle(context: &Context<'_>, party: &Party) -> bool {
    let Party::Thread(process, _) = party else { return false };
    let cores = context.input.gpu_cores.of(*process);
    !cores.is_empty() && cores.iter().all(|core| core.kernels().next().is_none())
}

/// "the word at 0x7f.. is 1".
fn until(address: Option<Addr>, condition: Option<Condition>) -> String {
    let word = address.map_or("a word in memory".to_owned(), |at| format!("the word at {at}"));
    match condition {
        Some(condition) => format!("{word} {}", condition.told()),
        None => format!("{word} is as it was given"),
    }
}

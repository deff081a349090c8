//! `nobody-left-to-wake`: a thread waits to be woken, and nothing is left that could wake it.
//!
//! In: the judged look. Out: drafts of the finding. Who could wake whom is known to the lock families, not here.

use std::collections::HashSet;

use super::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::kinds::Kind;
use crate::waits::model::{Resource, Role};
use crate::waits::{Party, ResourceKey};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "nobody-left-to-wake",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "nobody_left_to_wake.py",
        program: include_str!("example.py"),
        command: "python3 nobody_left_to_wake.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    // A native lock whose holder is not known is nothing that a thread is to be woken for, nor is a GPU that is gone.
    let is_woken_for = |kind: &Kind| !kind.has_two_ends() && !kind.is_native_lock_with_holder() && !kind.is_gpu();
    let drafts = context.dead_end_drafts(is_woken_for);
    let seen = context.input.observations;
    // Who is to say that an item is done waits for the next one: that follows.
    let is_unfinished = |resource: &&Resource| matches!(resource.role, Some(Role::UnfinishedItems { .. }));
    let keys: HashSet<&ResourceKey> =
        seen.resources.iter().filter(is_unfinished).map(|resource| &resource.key).collect();
    let unfinished = |key: &ResourceKey| keys.contains(key);
    let givers: HashSet<&Party> =
        seen.holds.iter().filter(|hold| unfinished(&hold.resource)).map(|hold| &hold.holder).collect();
    let any_unfinished = drafts.iter().any(|draft| draft.resources.iter().any(unfinished));
    let is_told = |draft: &Draft| {
        any_unfinished
            && !draft.resources.iter().any(unfinished)
            && draft.parties.iter().all(|party| givers.contains(&party))
    };
    let first: Vec<bool> = drafts.iter().map(|draft| !is_told(draft)).collect();
    let kept = drafts.into_iter().zip(first).filter(|(_, is_first)| *is_first);
    kept.map(|(draft, _)| told(context, draft)).collect()
}

/// Say whose wake-up does not come, and which call is missing where that is known.
fn told(context: &Context<'_>, mut draft: Draft) -> Draft {
    let (Some(waiter), [key]) = (draft.parties.first(), draft.resources.as_slice()) else { return draft };
    let who = context.names.party_by_name(waiter);
    let role = context.names.described(key).and_then(|resource| resource.role);
    match role {
        Some(Role::UnfinishedItems { count }) => {
            let items = if count == 1 { "item" } else { "items" };
            draft.title = Some(format!(
                "{who} waits in join() of {}: task_done() was not called for {count} {items}",
                context.names.bare(key)
            ));
            draft.help = vec![format!(
                "call task_done() once for each item that get() gave, in a `finally`: a `continue`, a return or an error between \
                 the two leaves one out, as for {count} {items} here"
            )];
        }
        Some(Role::Future) if context.runs_a_loop(waiter) => {
            draft.title =
                Some(format!("{who} waits in result() for what only the event loop that it runs itself could do"));
            draft.help = vec![
                "await the coroutine, or asyncio.wrap_future(future): result() in the loop's own thread keeps the loop from \
                 running what it waits for"
                    .into(),
                "call run_coroutine_threadsafe(...).result() in other threads only: await asyncio.to_thread(function)".into(),
            ];
        }
        _ => {
            draft.title =
                Some(format!("{who} waits for {}, and nobody is left who could wake it", context.names.bare(key)))
        }
    }
    draft
}

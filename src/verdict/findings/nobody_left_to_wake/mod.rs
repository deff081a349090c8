//! `nobody-left-to-wake`: a thread waits to be woken, and nothing is left that could wake it.
//!
//! In: the judged sample. Out: drafts of the finding. The lock families know the possible wakers, not this module.

mod things;

use std::collections::BTreeSet;

use super::gil_vs_native_lock;
use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::verdict::kept;
use crate::waits::kinds::{self, Kind, World};
use crate::waits::model::{Completion, Resource, Role};
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
    let explained = context.dead_ends.iter().filter_map(|end| gil_vs_native_lock::kept_from_givers(context, end));
    let explained: BTreeSet<&ResourceKey> = explained.map(|(_, wanted, _)| wanted).collect();
    let drafts = context.dead_end_drafts(is_woken_for).into_iter();
    let drafts = drafts.filter(|draft| !draft.resources.iter().any(|key| explained.contains(key)));
    let mut drafts: Vec<Draft> = drafts.map(|draft| told(context, draft)).collect();
    // A wake-up and the lock that keeps it from coming explain the others.
    drafts.sort_by_key(|draft| draft.resources.len() < 2);
    drafts
}

/// Say whose wake-up does not come, what is missing, and what to change.
fn told(context: &Context<'_>, mut draft: Draft) -> Draft {
    let (Some(waiter), [key]) = (draft.parties.first().cloned(), draft.resources.as_slice()) else { return draft };
    let key = key.clone();
    let who = context.names.party_by_name(&waiter);
    let thing = context.names.bare(&key);
    let described = context.names.described(&key);
    let role = described.and_then(|resource| resource.role);
    match (role, &waiter) {
        (Some(Role::UnfinishedItems { count }), _) => {
            let items = if count == 1 { "item" } else { "items" };
            draft.title =
                Some(format!("{who} waits in join() of {thing}: task_done() was not called for {count} {items}"));
            draft.help = vec![format!(
                "call task_done() once for each item that get() gave, in a `finally`: a `continue`, a return or an error between \
                 the two leaves one out, as for {count} {items} here"
            )];
        }
        (Some(Role::Completed(completion)), Party::Resource(_)) => {
            if let Some(kept) = kept::meanwhile(context, &waiter, &key).filter(|kept| kept.gives) {
                return under_a_lock(context, draft, &key, &kept, Some(completion));
            }
            let (missing, help) = things::of_task(completion);
            draft.title = with_units(context, &mut draft, &key, ("task", "tasks"));
            if draft.title.is_some() {
                draft.help = things::of_units();
                return draft;
            }
            draft.help = help;
            draft.title = Some(format!("{who} awaits {}, and {missing}", context.names.resource(&key)));
        }
        _ => {
            if let Some(kept) = kept::by_generator(context, &key) {
                draft.help = vec![
                    "close the generator before you take the lock (`contextlib.closing`), or run it to its end".into(),
                    "yield outside of the `with` block: copy what is needed under the lock, release it, then yield"
                        .into(),
                ];
                draft.title = Some(format!(
                    "{who} waits for {thing}, which the suspended generator {} keeps",
                    context.names.bare(kept.generator)
                ));
                return draft;
            }
            let completion = described.and_then(completion);
            let world = key.kind.world;
            if let Some(kept) = kept::meanwhile(context, &waiter, &key) {
                return under_a_lock(context, draft, &key, &kept, completion);
            }
            if let Some(other) = waits_for_host_function(context, &waiter) {
                let other = context.names.party(other);
                draft.title = Some(format!("{who} waits for {thing} in a host function, for which {other} waits"));
                draft.help = things::in_a_host_function(&other, things::act(completion, world));
                return draft;
            }
            let (missing, help) = match completion {
                Some(completion) => things::of_thread(completion, world),
                None if key.kind.is_lock() && is_of_a_copy(context, &waiter) => things::of_a_copy(),
                None => ("no remaining thread can wake it", Vec::new()),
            };
            draft.help = help;
            draft.title = with_units(context, &mut draft, &key, ("thread", "threads"));
            if draft.title.is_some() {
                return draft;
            }
            draft.title = Some(match described.and_then(missing_parties) {
                Some(count) => {
                    let come =
                        if count == 1 { "1 party has not come" } else { &format!("{count} parties have not come") };
                    format!("{who} waits for {thing}: {come}, and {missing}")
                }
                None if is_channel(completion, world) => format!("{who} waits in a channel: {missing}"),
                None => format!("{who} waits for {thing}, and {missing}"),
            });
        }
    }
    draft
}

/// Whether a thread's process was forked, and runs the same program since.
fn is_of_a_copy(context: &Context<'_>, party: &Party) -> bool {
    let Party::Thread(process, _) = party else { return false };
    context.input.image.processes.get(*process).is_some_and(|image| image.is_copy == Some(true))
}

/// Say that the waiter keeps a lock which somebody needs who would end its wait.
fn under_a_lock(
    context: &Context<'_>,
    mut draft: Draft,
    key: &ResourceKey,
    kept: &kept::Meanwhile<'_>,
    completion: Option<Completion>,
) -> Draft {
    let names = context.names;
    let (lock, waker) = (kept.hold.resource.clone(), kept.wait.waiter.clone());
    let (waiter, thing, name) = (&kept.hold.holder, names.bare(key), names.bare(&lock));
    let (mut who, mut other) = (names.party_by_name(waiter), names.party_by_name(&waker));
    if who == other {
        // Threads of native code are called as their program.
        (who, other) = (names.party(waiter), names.party(&waker));
    }
    let verb = if matches!(waiter, Party::Resource(_)) { "awaits" } else { "waits for" };
    let world = if matches!(waiter, Party::Resource(_)) { World::Python } else { key.kind.world };
    let act = things::act(completion, world);
    draft.title = Some(format!("{who} {verb} {thing} and holds {name}, which {other} needs to {act}"));
    draft.help = things::under_a_lock(&name, &who, &other, completion, context.runs_a_loop(&waker));
    draft.parties.push(waker);
    draft.resources.push(lock);
    draft
}

/// The thread that waits for the GPU until `waiter` returns from its host function.
fn waits_for_host_function<'c>(context: &Context<'c>, waiter: &Party) -> Option<&'c Party> {
    let seen = context.input.observations;
    let own = seen.holds.iter().filter(|hold| hold.holder == *waiter && hold.resource.kind.is_gpu() && hold.is_known());
    own.flat_map(|hold| seen.waits.iter().filter(move |wait| wait.resource == hold.resource))
        .map(|wait| &wait.waiter)
        .find(|other| **other != *waiter)
}

/// The act that ends a thread's wait for this.
fn completion(resource: &Resource) -> Option<Completion> {
    match resource.role {
        Some(Role::Completed(completion)) => Some(completion),
        Some(Role::Future | Role::QueuedFuture) => Some(Completion::Resolve),
        _ => None,
    }
    .or(match resource.key.kind {
        kind if kind == kinds::PTHREAD_COND => Some(Completion::Notify),
        kind if kind == kinds::PTHREAD_BARRIER => Some(Completion::Arrive),
        kind if kind == kinds::SEMAPHORE => Some(Completion::Release),
        _ => None,
    })
}

/// "3 threads each have a unit of `slots` and wait for another one", or that those who have one wait for something else. The holders
/// become parties of the draft. `None` where it is not known of any unit who has it.
fn with_units(
    context: &Context<'_>,
    draft: &mut Draft,
    key: &ResourceKey,
    (one, several): (&str, &str),
) -> Option<String> {
    let waiters = draft.parties.clone();
    if context.names.described(key).and_then(completion) != Some(Completion::Release) {
        return None;
    }
    let own = context.input.observations.holds.iter().filter(|hold| hold.resource == *key && hold.taken.is_some());
    let holders: BTreeSet<&Party> = own.map(|hold| &hold.holder).collect();
    let thing = context.names.bare(key);
    let who = match waiters.as_slice() {
        [only] => context.names.party_by_name(only),
        more => format!("{} {several}", more.len()),
    };
    let is_alone = waiters.len() == 1;
    if waiters.iter().all(|waiter| holders.contains(waiter)) {
        let (each, wait) = if is_alone { ("has", "waits") } else { ("each have", "wait") };
        return Some(format!("{who} {each} a unit of {thing} and {wait} for another one"));
    }
    let others: Vec<&Party> = holders.into_iter().filter(|holder| !waiters.contains(holder)).collect();
    draft.parties.extend(others.iter().copied().cloned());
    let wait = if is_alone { "waits" } else { "wait" };
    match others.as_slice() {
        [] => None,
        [_] => Some(format!("{who} {wait} for a unit of {thing}, and the {one} that has one waits as well")),
        [..] => Some(format!("{who} {wait} for a unit of {thing}, and the {several} that have one wait as well")),
    }
}

/// Whether a wait is inside a channel of native code.
fn is_channel(completion: Option<Completion>, world: World) -> bool {
    matches!(completion, Some(Completion::Put | Completion::Get)) && world == World::Native
}

/// How many parties of a barrier have not come.
fn missing_parties(resource: &Resource) -> Option<i64> {
    let number = |name: &str| resource.state.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    Some(number("parties")? - number("waiting")?).filter(|missing| *missing > 0)
}

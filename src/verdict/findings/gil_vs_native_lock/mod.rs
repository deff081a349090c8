//! `gil-vs-native-lock`: the GIL and a native lock are taken in both orders.
//!
//! In: the judged sample. Out: drafts of the finding. It searches for no cycle itself.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::verdict::DeadEnd;
use crate::waits::kinds::{Giver, Topic, World};
use crate::waits::model::{Hold, Role};
use crate::waits::{Party, ResourceKey};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "gil-vs-native-lock",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "gil_vs_native_lock.py",
        program: include_str!("example.py"),
        command: "python3 gil_vs_native_lock.py",
        needs: Requirement::Nothing,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let drafts = context.cycle_drafts(|cycle| context.gil_waiter(cycle).is_some() && cycle.edges.len() > 1);
    let mut drafts = context.titled(drafts, |cycle| {
        let [one, other] = cycle.edges.as_slice() else { return None };
        let lock = if one.resource.kind.topic == Topic::Gil { other } else { one };
        Some(format!("the GIL and {} are taken in both orders", context.names.bare(&lock.resource)))
    });
    drafts.extend(context.dead_ends.iter().filter_map(|end| kept_from_givers(context, end)).map(
        |(waiter, wanted, hold)| {
            let names = context.names;
            let mut others = context.input.observations.waits.iter().filter(|wait| wait.resource == hold.resource);
            let other = others.next().map(|wait| &wait.waiter);
            let who = match (other, others.count()) {
                (Some(other), 0) => format!("{} needs", names.party_by_name(other)),
                (_, more) => format!("{} threads need", more + 1),
            };
            let (thing, kept) = (names.bare(wanted), names.bare(&hold.resource));
            Draft {
                title: Some(format!(
                    "{} {} and waits for {thing}, for which {who} {kept}",
                    names.party_by_name(waiter),
                    names.held(&hold.resource)
                )),
                message: format!(
                    "{} {} and waits for {}, and those who could give that wait for {}.",
                    names.party_in_full(waiter),
                    names.held(&hold.resource),
                    names.resource(wanted),
                    names.resource(&hold.resource),
                ),
                parties: std::iter::once(waiter).chain(other).cloned().collect(),
                resources: vec![wanted.clone(), hold.resource.clone()],
                ..Draft::default()
            }
        },
    ));
    drafts
}

/// A wait without end whose waiter keeps from others what they need to end it: the GIL, while it waits for a native lock
/// whose holder is unknown, or a native lock, under which Python was called and waits. The waiter, what it waits for, and
/// what it keeps.
pub(super) fn kept_from_givers<'c>(
    context: &Context<'c>,
    end: &'c DeadEnd,
) -> Option<(&'c Party, &'c ResourceKey, &'c Hold)> {
    let seen = context.input.observations;
    let wanted = &seen.known_wakers[end.known_wakers].resource;
    let keeps = |waiter: &Party| {
        let mut holds = seen.holds.iter().filter(|hold| hold.holder == *waiter);
        holds.find(|hold| {
            let opposed = match hold.resource.kind.topic {
                Topic::Gil => wanted.kind.world != World::Python,
                _ => wanted.kind.world == World::Python && is_native(context, &hold.resource),
            };
            opposed && seen.waits.iter().any(|wait| wait.resource == hold.resource)
        })
    };
    let mut waiters = end.waits.iter().map(|wait| &seen.waits[*wait].waiter);
    waiters.find_map(|waiter| Some((waiter, wanted, keeps(waiter)?)))
}

/// Whether a lock is one of native code: of libc, or an extension's own.
fn is_native(context: &Context<'_>, key: &ResourceKey) -> bool {
    let resource = || context.names.described(key);
    key.kind.world == World::Native && key.kind.is_lock() && key.kind.giver == Giver::Holder
        || resource().is_some_and(|resource| resource.role == Some(Role::ExtensionLock))
}

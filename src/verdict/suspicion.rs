//! What seems wrong, by the waits and holds of its own members: what two looks must show alike.
//!
//! In: cycles, lost owners and waits without end of one look. Out: a [`Suspicion`] each. Whatever other threads do in the
//! meantime is no part of it. Whether two looks show the same is for whoever takes the looks.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{DeadEnd, JudgeInput, Orphan};
use crate::graph::Cycle;
use crate::waits::{Hoped, Party, ResourceKey};

/// One member: who waits for what, who has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Link {
    /// Who waits.
    pub waiter: Party,
    /// For what.
    pub resource: ResourceKey,
    /// "read", "write".
    pub mode: Option<&'static str>,
    /// Who has it.
    pub holder: Option<Party>,
    /// What shows this very wait, where the waiter is no thread, whose waits the kernel counts.
    pub said: Vec<String>,
}

/// All members of one thing that seems wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Suspicion {
    /// Those of this one alone.
    pub links: BTreeSet<Link>,
    /// Those that it has in common with others.
    pub shared: Shared,
}

/// Members that many suspicions have in common: of a thousand threads that wait for one thing, and could all have ended each
/// other's waits, there are a thousand links and not a million. Two are the same by their number alone, so that to compare them
/// takes no time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    links: Arc<BTreeSet<Link>>,
    number: u64,
}

impl Shared {
    fn new(links: BTreeSet<Link>) -> Shared {
        let mut hasher = DefaultHasher::new();
        links.hash(&mut hasher);
        Shared { links: Arc::new(links), number: hasher.finish() }
    }

    /// Each of them.
    pub(crate) fn links(&self) -> &BTreeSet<Link> {
        &self.links
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Shared) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Shared {}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Shared) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shared {
    fn cmp(&self, other: &Shared) -> Ordering {
        (self.links.len(), self.number).cmp(&(other.links.len(), other.number))
    }
}

/// What the looks so far say of suspicions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confirmed {
    /// Each member's wait never ended in between.
    pub confirmed: BTreeSet<Suspicion>,
    /// A member's wait ended in between.
    pub refuted: BTreeSet<Suspicion>,
}

fn link(input: &JudgeInput<'_>, wait: usize, holder: Option<Party>) -> Link {
    let wait = &input.observations.waits[wait];
    let is_thread = matches!(wait.waiter, Party::Thread(..));
    Link {
        waiter: wait.waiter.clone(),
        resource: wait.resource.clone(),
        mode: wait.mode,
        holder,
        said: if is_thread { Vec::new() } else { wait.evidence.clone() },
    }
}

/// A cycle: its edges.
pub(super) fn of_cycle(input: &JudgeInput<'_>, cycle: &Cycle) -> Suspicion {
    let links = cycle.edges.iter().map(|edge| match edge.wait {
        Some(wait) => link(input, wait, Some(edge.holder.clone())),
        None => Link {
            waiter: edge.waiter.clone(),
            resource: edge.resource.clone(),
            mode: None,
            holder: Some(edge.holder.clone()),
            said: Vec::new(),
        },
    });
    Suspicion { links: links.collect(), shared: Shared::default() }
}

/// One wait for a lock whose owner is gone.
pub(super) fn of_orphan(input: &JudgeInput<'_>, orphan: &Orphan, wait: usize) -> Suspicion {
    let holder = input.observations.holds[orphan.hold].holder.clone();
    Suspicion { links: BTreeSet::from([link(input, wait, Some(holder))]), shared: Shared::default() }
}

/// Each wait without end, with the waits of all who could have ended it.
pub(super) fn of_dead_end(input: &JudgeInput<'_>, end: &DeadEnd) -> Vec<Suspicion> {
    let seen = input.observations;
    let resource = &seen.enclosed[end.enclosed].resource;
    let hopes = seen.hopes.iter().filter(|hope| hope.resource == *resource);
    let parties: BTreeSet<&Party> =
        hopes.filter_map(|hope| if let Hoped::Party(party) = &hope.by { Some(party) } else { None }).collect();
    let could = |waiter: &Party| {
        let process = if let Party::Thread(process, _) = waiter { Some(Party::Process(*process)) } else { None };
        parties.contains(waiter) || process.is_some_and(|process| parties.contains(&process))
    };
    let of = |position: &usize| could(&seen.waits[*position].waiter);
    let shared = Shared::new((0..seen.waits.len()).filter(of).map(|position| link(input, position, None)).collect());
    let one = |wait: &usize| Suspicion { links: BTreeSet::from([link(input, *wait, None)]), shared: shared.clone() };
    end.waits.iter().map(one).collect()
}

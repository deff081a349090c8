//! Suspicions, by the waits and holds of their own members, which two samples must show alike.
//!
//! In: cycles, lost owners and waits without end of one sample. Out: a [`Suspicion`] each. Whatever other threads do in
//! the meantime is no part of it. The caller, which takes the samples, decides whether two of them show the same.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{DeadEnd, JudgeInput, Orphan};
use crate::graph::Cycle;
use crate::waits::{Party, ResourceKey, Waker};

/// One member: waiter, resource and holder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Link {
    /// The waiter.
    pub waiter: Party,
    /// The resource that it waits for.
    pub resource: ResourceKey,
    /// "read", "write".
    pub mode: Option<&'static str>,
    /// The holder.
    pub holder: Option<Party>,
    /// Texts that identify this very wait, if the waiter is no thread. For threads the kernel counts waits.
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

/// The results of the samples so far for suspicions.
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
    let resource = &seen.known_wakers[end.known_wakers].resource;
    let wake_sources = seen.wake_sources.iter().filter(|wake_source| wake_source.resource == *resource);
    let parties: BTreeSet<&Party> = wake_sources
        .filter_map(|wake_source| if let Waker::Party(party) = &wake_source.by { Some(party) } else { None })
        .collect();
    let could = |waiter: &Party| {
        let process = if let Party::Thread(process, _) = waiter { Some(Party::Process(*process)) } else { None };
        parties.contains(waiter) || process.is_some_and(|process| parties.contains(&process))
    };
    let of = |position: &usize| could(&seen.waits[*position].waiter);
    let shared = Shared::new((0..seen.waits.len()).filter(of).map(|position| link(input, position, None)).collect());
    let one = |wait: &usize| Suspicion { links: BTreeSet::from([link(input, *wait, None)]), shared: shared.clone() };
    end.waits.iter().map(one).collect()
}

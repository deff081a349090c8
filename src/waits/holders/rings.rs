//! Parties that may be in a ring of waits.
//!
//! In: waits and holds. Out: the parties in rings, where each waits for a resource that another one holds, and the tasks that
//! go on only if one in a ring does. The graph proves rings, this file does not. It selects the parties for which expensive
//! searches are worthwhile.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::reduction::{Reduction, Rule};
use crate::waits::model::{Hold, Party, ResourceKey, WakeSource, Waker};
use crate::waits::observations::Observations;

/// Waiters that may be in a ring or behind one. Only there does it matter who else could end a wait whose holder is known.
pub(crate) fn rings(out: &Observations) -> BTreeSet<Party> {
    let mut holders: HashMap<&ResourceKey, Vec<&Party>> = HashMap::new();
    for hold in out.holds.iter().filter(|hold| hold.closes_cycles()) {
        holders.entry(&hold.resource).or_default().push(&hold.holder);
    }
    let waiters: BTreeSet<&Party> = out.waits.iter().map(|wait| &wait.waiter).collect();
    let resources: HashMap<&ResourceKey, &Party> = waiters
        .iter()
        .filter_map(|party| if let Party::Resource(key) = party { Some((key, *party)) } else { None })
        .collect();
    let mut reduction: Reduction<&Party> = Reduction::default();
    for wait in &out.waits {
        let held = holders.get(&wait.resource).into_iter().flatten().copied();
        for holder in held.chain(resources.get(&wait.resource).copied()) {
            let cause = reduction.node(holder);
            reduction.add_cause(&wait.waiter, cause);
        }
    }
    // A process waits in the name of its threads.
    let processes: BTreeSet<&Party> =
        out.holds.iter().map(|hold| &hold.holder).filter(|party| matches!(party, Party::Process(_))).collect();
    for process in processes.into_iter().filter(|process| reduction.has(process)).collect::<Vec<_>>() {
        let is_own = |party: &&&Party| matches!(party, Party::Thread(of, _) if Party::Process(*of) == *process);
        for thread in waiters.iter().filter(is_own) {
            let cause = reduction.node(thread);
            reduction.add_cause(process, cause);
        }
    }
    reduction.greatest().into_nodes().filter(|party| waiters.contains(party)).cloned().collect()
}

/// These parties, and the tasks that go on only if one of them or another such task does: those that wait for a task in a ring,
/// and those whose waits nothing but such tasks could end. They raise nothing any more.
pub(crate) fn behind(waiting: &BTreeSet<Party>, out: &Observations) -> BTreeSet<Party> {
    let mut sources: HashMap<&ResourceKey, Vec<&WakeSource>> = HashMap::new();
    for source in &out.wake_sources {
        sources.entry(&source.resource).or_default().push(source);
    }
    let mut holds: HashMap<&ResourceKey, Vec<&Hold>> = HashMap::new();
    for hold in &out.holds {
        holds.entry(&hold.resource).or_default().push(hold);
    }
    let known: HashSet<&ResourceKey> = out.known_wakers.iter().map(|known| &known.resource).collect();
    let mut reduction: Reduction<Party> = Reduction::default();
    let is_of_task = |party: &Party| matches!(party, Party::Resource(_)) && !waiting.contains(party);
    for wait in out.waits.iter().filter(|wait| wait.has_one_end() && is_of_task(&wait.waiter)) {
        let (key, waiter) = (&wait.resource, &wait.waiter);
        let task = reduction.node(Party::Resource(key.clone()));
        reduction.add_cause(waiter.clone(), task);
        let own = holds.get(key).into_iter().flatten();
        if !known.contains(key) && !own.clone().any(|hold| hold.is_known()) {
            continue;
        }
        let is_its = |one: &&&WakeSource| one.is_for(waiter);
        let by = sources.get(key).into_iter().flatten().filter(is_its).map(|source| match &source.by {
            Waker::Party(party) => Some(party),
            Waker::ByItself | Waker::OnRequest => None,
        });
        let Some(by) = by.collect::<Option<Vec<&Party>>>() else { continue };
        let others = own.map(|hold| &hold.holder).chain(by).filter(|party| *party != waiter);
        let others = others.map(|party| reduction.node(party.clone())).collect();
        let cause = reduction.part(Rule::All(others));
        reduction.add_cause(waiter.clone(), cause);
    }
    waiting.iter().for_each(|party| reduction.set(party.clone(), Rule::Always));
    reduction.greatest().into_nodes().collect()
}

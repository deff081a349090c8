//! Who may be in a ring of waits.
//!
//! In: waits and holds. Out: those of whom each waits for what another has. It proves nothing, the graph does: where something is
//! dear to find out, it is found out of these alone.

use std::collections::{BTreeSet, HashMap};

use petgraph::Direction;
use petgraph::graphmap::DiGraphMap;

use crate::waits::model::{Certainty, Hold, Party, ResourceKey};
use crate::waits::observations::Observations;

/// Whether a ring may lead through a hold.
pub(crate) fn closes_rings(hold: &Hold) -> bool {
    hold.certainty > Certainty::Candidate || hold.is_sole_candidate
}

/// Those who may be in a ring: each waits for what another of them has. Only there does it matter what else could end a wait
/// whose holder is known; to find that out is dear. Whoever waits for nobody is taken away, until none is left of that kind.
pub(crate) fn rings(out: &Observations) -> BTreeSet<Party> {
    let mut holders: HashMap<&ResourceKey, Vec<&Party>> = HashMap::new();
    for hold in out.holds.iter().filter(|hold| closes_rings(hold)) {
        holders.entry(&hold.resource).or_default().push(&hold.holder);
    }
    let waiters: BTreeSet<&Party> = out.waits.iter().map(|wait| &wait.waiter).collect();
    let resources: HashMap<&ResourceKey, &Party> = waiters
        .iter()
        .filter_map(|party| if let Party::Resource(key) = party { Some((key, *party)) } else { None })
        .collect();
    let mut waits_for: DiGraphMap<&Party, ()> = DiGraphMap::new();
    for wait in &out.waits {
        let held = holders.get(&wait.resource).into_iter().flatten().copied();
        for holder in held.chain(resources.get(&wait.resource).copied()) {
            waits_for.add_edge(&wait.waiter, holder, ());
        }
    }
    // A process goes on as long as one of its threads does.
    let processes: Vec<&Party> = waits_for.nodes().filter(|party| matches!(party, Party::Process(_))).collect();
    for process in processes {
        let own =
            waiters.iter().filter(|party| matches!(party, Party::Thread(of, _) if Party::Process(*of) == *process));
        own.for_each(|thread| {
            waits_for.add_edge(process, thread, ());
        });
    }
    let goes_on = |graph: &DiGraphMap<&Party, ()>, party: &Party| graph.neighbors(party).next().is_none();
    let mut going: Vec<&Party> = waits_for.nodes().filter(|party| goes_on(&waits_for, party)).collect();
    while let Some(party) = going.pop() {
        let behind: Vec<&Party> = waits_for.neighbors_directed(party, Direction::Incoming).collect();
        waits_for.remove_node(party);
        going.extend(behind.into_iter().filter(|party| goes_on(&waits_for, party)));
    }
    waits_for.nodes().filter(|party| waiters.contains(party)).cloned().collect()
}

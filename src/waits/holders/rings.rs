//! Parties that may be in a ring of waits.
//!
//! In: waits and holds. Out: the parties in rings, where each waits for a resource that another one holds. The graph
//! proves rings, this file does not. It selects the parties for which expensive searches are worthwhile.

use std::collections::{BTreeSet, HashMap};

use crate::reduction::Reduction;
use crate::waits::model::{Party, ResourceKey};
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

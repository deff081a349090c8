//! Minimal cycles of the stuck part of the graph.
//!
//! In: the graph with its stuck nodes. Out: [`Cycles`], each as the list of its waits and holds. [`crate::reduction::cycles`]
//! searches the shortest way back for each wait. A cycle whose parties include all of a shorter one's is dropped.

use std::collections::BTreeSet;

use petgraph::graph::{DiGraph, NodeIndex};

use super::stuck::Premise;
use super::{Edge, WaitGraph, proves_hold, proves_wait};
use crate::limits::graph::{MOST_CYCLES, MOST_FOUND, STEPS};
use crate::reduction::cycles::{Bounds, Edges, Path, search};
use crate::waits::kinds::Topic;
use crate::waits::{Certainty, Hold, Observations, Party, Proof, ResourceKey, Wait};

/// `waiter` waits for `resource`, which `holder` holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CycleEdge {
    /// The waiter.
    pub waiter: Party,
    /// For what.
    pub resource: ResourceKey,
    /// The holder: the waiter of the next edge, or the process of that waiter.
    pub holder: Party,
    /// Position in [`Observations::waits`](crate::waits::Observations::waits); `None` where the resource before
    /// this one is held in turn, without a wait of its own.
    pub wait: Option<usize>,
    /// Position in [`Observations::holds`](crate::waits::Observations::holds); `None` where the resource itself is
    /// what waits next.
    pub hold: Option<usize>,
}

impl CycleEdge {
    /// Its proof: the weaker of its wait and its hold.
    pub(crate) fn proof(&self, observations: &Observations) -> Proof {
        let wait = self.wait.and_then(|wait| observations.waits.get(wait)).map(Wait::proof);
        let hold = self.hold.and_then(|hold| observations.holds.get(hold)).map(Hold::proof);
        wait.into_iter().chain(hold).min().unwrap_or(Proof::Absence)
    }
}

/// One cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// In order: the holder of one is the waiter of the next, the last one's the first's. The smallest waiter first.
    pub edges: Vec<CycleEdge>,
    /// The weakest of its edges.
    pub certainty: Certainty,
    /// Some wait in it ends by a time-out.
    pub timed: bool,
    /// Some waiter in it burns CPU.
    pub spinning: bool,
    /// It proves a deadlock: every edge untimed and exact or binding, and no way out of any wait.
    pub proven: bool,
}

impl Cycle {
    /// The waiters and holders, each as often as it comes.
    pub(crate) fn parties(&self) -> impl Iterator<Item = Party> + '_ {
        self.edges.iter().flat_map(|edge| [edge.waiter.clone(), edge.holder.clone()])
    }

    /// Whether one of its waits is about this.
    pub(crate) fn is_about(&self, topic: Topic) -> bool {
        self.edges.iter().any(|edge| edge.resource.kind.topic == topic)
    }

    /// Whether threads or processes of more than one process take part.
    pub(crate) fn crosses_processes(&self) -> bool {
        let processes: BTreeSet<usize> = self
            .parties()
            .filter_map(|party| match party {
                Party::Thread(process, _) | Party::Process(process) | Party::Absent(process, _) => Some(process),
                Party::Resource(_) => None,
            })
            .collect();
        processes.len() > 1
    }
}

/// The result of the search.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cycles {
    /// The shortest first, at most [`MOST_CYCLES`].
    pub list: Vec<Cycle>,
    /// How many more minimal ones were found.
    pub more: usize,
    /// The search ended at its budget: there may be others still.
    pub exhausted: bool,
}

pub(super) fn find(graph: &WaitGraph<'_>) -> Cycles {
    let bounds = Bounds { cycles: MOST_FOUND, steps: STEPS };
    let found = search(&stuck_part(graph), graph, bounds);
    let mut cycles: Vec<Cycle> = found.cycles.iter().map(|path| describe(graph, path)).collect();
    cycles.sort_by(|a, b| {
        a.edges.len().cmp(&b.edges.len()).then_with(|| {
            let key = |c: &Cycle| c.edges.iter().map(|e| (e.waiter.clone(), e.resource.clone())).collect::<Vec<_>>();
            key(a).cmp(&key(b))
        })
    });
    cycles.dedup_by(|a, b| a.edges == b.edges);
    let minimal = keep_minimal(cycles);
    let more = minimal.len().saturating_sub(MOST_CYCLES);
    Cycles { list: minimal.into_iter().take(MOST_CYCLES).collect(), more, exhausted: found.exhausted }
}

/// The graph without what can go on and without edges that no cycle may use.
fn stuck_part(graph: &WaitGraph<'_>) -> DiGraph<(), Edge> {
    graph.graph.filter_map(
        |_, _| Some(()),
        |index, edge| {
            let (from, to) = graph.graph.edge_endpoints(index)?;
            let keep = graph.seeming.holds_up(from)
                && graph.seeming.holds_up(to)
                && match *edge {
                    Edge::Wait(wait) => graph.seeming.wait_is_stuck(graph, from, wait, to),
                    Edge::Hold(hold) => graph.hold(hold).closes_cycles(),
                    Edge::Member => true,
                };
            keep.then_some(*edge)
        },
    )
}

impl Edges<Edge> for WaitGraph<'_> {
    fn start(&self, _source: NodeIndex, edge: Edge) -> Option<usize> {
        if let Edge::Wait(position) = edge { Some(position) } else { None }
    }

    /// A thread never waits for itself only because its process has the other end of an awaited pipe.
    fn may_close(&self, resource: NodeIndex, before: Option<(NodeIndex, Edge)>, last: Edge) -> bool {
        let Some((from, Edge::Hold(hold))) = before else { return true };
        from != resource || last != Edge::Member || !self.hold(hold).is_end()
    }
}

/// From edges of the graph to waits with their holders.
fn describe(graph: &WaitGraph<'_>, path: &Path<Edge>) -> Cycle {
    let mut edges = Vec::new();
    let mut proven = path.iter().all(|(from, _, _)| graph.proven.holds_up(*from));
    let (mut certainty, mut timed, mut spinning) = (Certainty::Exact, false, false);
    for (index, (from, to, edge)) in path.iter().enumerate() {
        let (_, next_to, next) = path[(index + 1) % path.len()];
        let before = path[(index + path.len() - 1) % path.len()].2;
        match *edge {
            Edge::Wait(position) => {
                let wait = graph.wait(position);
                certainty = certainty.min(wait.certainty);
                timed |= wait.timed;
                spinning |= wait.spinning;
                proven &= proves_wait(wait) && !graph.proven.may_end(graph, position, Premise::Proven);
                let (holder, hold) = match next {
                    Edge::Hold(hold) => (graph.graph[next_to].clone(), Some(hold)),
                    Edge::Wait(_) | Edge::Member => (graph.graph[*to].clone(), None),
                };
                edges.push(CycleEdge {
                    waiter: wait.waiter.clone(),
                    resource: wait.resource.clone(),
                    holder,
                    wait: Some(position),
                    hold,
                });
            }
            Edge::Hold(position) => {
                let hold = graph.hold(position);
                // A lone candidate that got here is an upgrade: an inference, and drawn like one.
                certainty = certainty.min(hold.strength.certainty().max(Certainty::Inferred));
                proven &= proves_hold(hold);
                if matches!(before, Edge::Hold(_)) {
                    edges.push(CycleEdge {
                        waiter: graph.graph[*from].clone(),
                        resource: hold.resource.clone(),
                        holder: hold.holder.clone(),
                        wait: None,
                        hold: Some(position),
                    });
                }
            }
            Edge::Member => {}
        }
    }
    if let Some(smallest) = (0..edges.len()).min_by_key(|i| edges[*i].waiter.clone()) {
        edges.rotate_left(smallest);
    }
    Cycle { edges, certainty, timed, spinning, proven }
}

/// Drop each cycle whose waiters include all waiters of a shorter one. `cycles` come shortest first.
fn keep_minimal(cycles: Vec<Cycle>) -> Vec<Cycle> {
    let mut kept: Vec<(BTreeSet<Party>, Cycle)> = Vec::new();
    for cycle in cycles {
        let waiters: BTreeSet<Party> = cycle.edges.iter().map(|edge| edge.waiter.clone()).collect();
        if !kept.iter().any(|(shorter, _)| shorter.len() < waiters.len() && shorter.is_subset(&waiters)) {
            kept.push((waiters, cycle));
        }
    }
    kept.into_iter().map(|(_, cycle)| cycle).collect()
}

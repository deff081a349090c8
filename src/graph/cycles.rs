//! Minimal cycles of the stuck part of the graph.
//!
//! In: the graph with its stuck nodes. Out: [`Cycles`], each as the list of its waits and holds. For each wait in a
//! strongly connected component the shortest way back is searched breadth first, within a budget; a cycle whose
//! parties include all of a shorter one's is dropped. Nothing recurses: chains of any length are fine.

use std::collections::{BTreeSet, HashSet, VecDeque};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use super::stuck::Reduction;
use super::{Edge, WaitGraph, proves_hold, proves_wait};
use crate::limits::graph::{MOST_CYCLES, MOST_FOUND, STEPS};
use crate::waits::kinds::Topic;
use crate::waits::{Certainty, Party, ResourceKey};

/// `waiter` waits for `resource`, which `holder` holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CycleEdge {
    /// Who waits.
    pub waiter: Party,
    /// For what.
    pub resource: ResourceKey,
    /// Who has it; the waiter of the next edge, or the process of that waiter.
    pub holder: Party,
    /// Position in [`Observations::waits`](crate::waits::Observations::waits); `None` where the resource before
    /// this one is held in turn, without a wait of its own.
    pub wait: Option<usize>,
    /// Position in [`Observations::holds`](crate::waits::Observations::holds); `None` where the resource itself is
    /// what waits next.
    pub hold: Option<usize>,
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

/// What the search found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cycles {
    /// The shortest first, at most [`MOST_CYCLES`].
    pub list: Vec<Cycle>,
    /// How many more minimal ones were found.
    pub more: usize,
    /// The search ended at its budget: there may be others still.
    pub exhausted: bool,
}

/// A cycle as the edges of the subgraph, in order.
type Path = Vec<(NodeIndex, NodeIndex, Edge)>;

pub(super) fn find(graph: &WaitGraph<'_>) -> Cycles {
    let part = stuck_part(graph);
    let mut search =
        Search { graph, part: &part, component: vec![usize::MAX; part.node_count()], budget: STEPS, found: vec![] };
    let components = kosaraju_scc(&part);
    for (number, component) in components.iter().enumerate() {
        for node in component {
            search.component[node.index()] = number;
        }
    }
    let mut exhausted = false;
    for (number, component) in components.iter().enumerate() {
        exhausted |= !search.component(number, component);
    }

    let mut cycles: Vec<Cycle> = search.found.iter().map(|path| describe(graph, path)).collect();
    cycles.sort_by(|a, b| {
        a.edges.len().cmp(&b.edges.len()).then_with(|| {
            let key = |c: &Cycle| c.edges.iter().map(|e| (e.waiter.clone(), e.resource.clone())).collect::<Vec<_>>();
            key(a).cmp(&key(b))
        })
    });
    cycles.dedup_by(|a, b| a.edges == b.edges);
    let minimal = keep_minimal(cycles);
    let more = minimal.len().saturating_sub(MOST_CYCLES);
    Cycles { list: minimal.into_iter().take(MOST_CYCLES).collect(), more, exhausted }
}

/// The graph without what can go on and without edges that no cycle may use.
fn stuck_part(graph: &WaitGraph<'_>) -> DiGraph<(), Edge> {
    graph.graph.filter_map(
        |_, _| Some(()),
        |index, edge| {
            let (from, to) = graph.graph.edge_endpoints(index)?;
            let keep = graph.stuck.holds_up(from)
                && graph.stuck.holds_up(to)
                && match *edge {
                    Edge::Wait(wait) => graph.stuck.wait_is_stuck(graph, from, wait, to),
                    Edge::Hold(hold) => graph.usable[hold],
                    Edge::Member => true,
                    Edge::Hope(_) => false,
                };
            keep.then_some(*edge)
        },
    )
}

struct Search<'a> {
    graph: &'a WaitGraph<'a>,
    part: &'a DiGraph<(), Edge>,
    /// Number of the component of each node.
    component: Vec<usize>,
    budget: usize,
    found: Vec<Path>,
}

impl Search<'_> {
    /// Search one component; false when the budget ended it early.
    fn component(&mut self, number: usize, nodes: &[NodeIndex]) -> bool {
        let mut inside: Path = Vec::new();
        for node in nodes {
            for edge in self.part.edges(*node).filter(|edge| self.component[edge.target().index()] == number) {
                inside.push((edge.source(), edge.target(), *edge.weight()));
            }
        }
        // By position of the observation, so that the order does not depend on the component's.
        inside.sort_by_key(|(_, _, edge)| match edge {
            Edge::Wait(position) => (0, *position),
            Edge::Hold(position) => (1, *position),
            Edge::Member | Edge::Hope(_) => (2, 0),
        });
        let mut seen: HashSet<Vec<NodeIndex>> = HashSet::new();
        for start in inside.iter().filter(|(_, _, edge)| matches!(edge, Edge::Wait(_))) {
            if self.found.len() >= MOST_FOUND || self.budget == 0 {
                return false;
            }
            if let Some(path) = self.way_back(number, *start)
                && seen.insert(rotated(&path))
            {
                let whole = path.len() == inside.len();
                self.found.push(path);
                if whole {
                    // A plain ring: every other wait would find it again.
                    return true;
                }
            }
        }
        true
    }

    /// Whether `node` is the process of the waiter, with an end of `resource`: no thread waits for itself by that.
    fn only_by_itself(&self, came: &Came, node: NodeIndex, resource: NodeIndex, edge: Edge) -> bool {
        let held = came.get(&node).filter(|(from, _)| *from == resource && edge == Edge::Member);
        held.is_some_and(|(_, held)| matches!(held, Edge::Hold(hold) if self.graph.hold(*hold).is_end))
    }

    /// The shortest cycle that begins with this edge.
    fn way_back(&mut self, number: usize, start: (NodeIndex, NodeIndex, Edge)) -> Option<Path> {
        let (goal, first, edge) = start;
        let mut came = Came::new();
        let mut queue = VecDeque::from([first]);
        came.insert(first, (goal, edge));
        while let Some(node) = queue.pop_front() {
            for next in self.part.edges(node) {
                self.budget = self.budget.checked_sub(1)?;
                let target = next.target();
                if self.component[target.index()] != number {
                    continue;
                }
                if target == goal && self.only_by_itself(&came, node, first, *next.weight()) {
                    continue;
                }
                if target == goal {
                    let mut path = vec![(node, goal, *next.weight())];
                    let mut at = node;
                    while at != goal {
                        let (before, edge) = came[&at];
                        path.push((before, at, edge));
                        at = before;
                    }
                    path.reverse();
                    return Some(path);
                }
                came.entry(target).or_insert_with(|| {
                    queue.push_back(target);
                    (node, *next.weight())
                });
            }
        }
        None
    }
}

/// How a node was reached.
type Came = std::collections::HashMap<NodeIndex, (NodeIndex, Edge)>;

/// The nodes from the smallest on: equal for all rotations of a cycle.
fn rotated(path: &Path) -> Vec<NodeIndex> {
    let mut nodes: Vec<NodeIndex> = path.iter().map(|(from, _, _)| *from).collect();
    if let Some(smallest) = (0..nodes.len()).min_by_key(|i| nodes[*i]) {
        nodes.rotate_left(smallest);
    }
    nodes
}

/// From edges of the graph to waits with their holders.
fn describe(graph: &WaitGraph<'_>, path: &Path) -> Cycle {
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
                proven &= proves_wait(wait) && !graph.proven.may_end(graph, position, Reduction::Proven);
                let (holder, hold) = match next {
                    Edge::Hold(hold) => (graph.graph[next_to].clone(), Some(hold)),
                    Edge::Wait(_) | Edge::Member | Edge::Hope(_) => (graph.graph[*to].clone(), None),
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
                certainty = certainty.min(hold.certainty.max(Certainty::Inferred));
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
            Edge::Member | Edge::Hope(_) => {}
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

//! The shortest cycles of a graph.
//!
//! In: a directed graph and its edges from which a cycle may be told. Out: [`Found`], each cycle as the list of its edges.
//! For each starting edge in a strongly connected component, the shortest way back is searched breadth first, within a
//! budget. Nothing recurses, so that chains of any length are fine.

use std::collections::{HashMap, HashSet, VecDeque};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// A cycle as its edges, in order: source, target, weight.
pub(crate) type Path<E> = Vec<(NodeIndex, NodeIndex, E)>;

/// How far the search goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Cycles that are kept.
    pub(crate) cycles: usize,
    /// Edges that are walked in all.
    pub(crate) steps: usize,
}

/// What the search found.
#[derive(Debug)]
pub(crate) struct Found<E> {
    /// Each cycle once, from one of its starting edges on.
    pub(crate) cycles: Vec<Path<E>>,
    /// The search ended at a bound: other cycles may exist.
    pub(crate) exhausted: bool,
}

/// What the caller knows of edges.
pub(crate) trait Edges<E> {
    /// Where an edge stands among those that a search starts from; `None` if no search starts from it.
    fn start(&self, source: NodeIndex, edge: E) -> Option<usize>;

    /// Whether a cycle may end by these two edges.
    fn may_close(&self, _first: NodeIndex, _before: Option<(NodeIndex, E)>, _last: E) -> bool {
        true
    }
}

/// Search the shortest cycle through each starting edge.
pub(crate) fn search<N, E: Copy>(graph: &DiGraph<N, E>, edges: &impl Edges<E>, bounds: Bounds) -> Found<E> {
    let components = kosaraju_scc(graph);
    let mut component_of = vec![usize::MAX; graph.node_count()];
    for (number, component) in components.iter().enumerate() {
        component.iter().for_each(|node| component_of[node.index()] = number);
    }
    let mut search = Search { graph, edges, bounds, component_of, steps: bounds.steps, found: Vec::new() };
    let mut exhausted = false;
    for (number, component) in components.iter().enumerate() {
        exhausted |= !search.component(number, component);
    }
    Found { cycles: search.found, exhausted }
}

struct Search<'a, N, E, R> {
    graph: &'a DiGraph<N, E>,
    edges: &'a R,
    bounds: Bounds,
    /// Number of the component of each node.
    component_of: Vec<usize>,
    steps: usize,
    found: Vec<Path<E>>,
}

impl<N, E: Copy, R: Edges<E>> Search<'_, N, E, R> {
    /// Search one component; false when a bound ended it early.
    fn component(&mut self, number: usize, nodes: &[NodeIndex]) -> bool {
        let mut count = 0;
        let mut starts: Vec<(usize, (NodeIndex, NodeIndex, E))> = Vec::new();
        for node in nodes {
            for edge in self.graph.edges(*node).filter(|edge| self.component_of[edge.target().index()] == number) {
                count += 1;
                let start = self.edges.start(edge.source(), *edge.weight());
                starts.extend(start.map(|place| (place, (edge.source(), edge.target(), *edge.weight()))));
            }
        }
        // The caller's order, so that the result does not depend on the component's.
        starts.sort_by_key(|(place, _)| *place);
        let mut seen: HashSet<Vec<NodeIndex>> = HashSet::new();
        for (_, start) in starts {
            if self.found.len() >= self.bounds.cycles || self.steps == 0 {
                return false;
            }
            if let Some(path) = self.way_back(number, start)
                && seen.insert(rotated(&path))
            {
                let is_whole = path.len() == count;
                self.found.push(path);
                if is_whole {
                    // A plain ring: every other start would find it again.
                    return true;
                }
            }
        }
        true
    }

    /// The shortest cycle that begins with this edge.
    fn way_back(&mut self, number: usize, start: (NodeIndex, NodeIndex, E)) -> Option<Path<E>> {
        let (goal, first, edge) = start;
        if goal == first {
            return self.edges.may_close(first, None, edge).then(|| vec![start]);
        }
        let mut came: HashMap<NodeIndex, (NodeIndex, E)> = HashMap::from([(first, (goal, edge))]);
        let mut open = VecDeque::from([first]);
        while let Some(node) = open.pop_front() {
            for next in self.graph.edges(node) {
                self.steps = self.steps.checked_sub(1)?;
                let target = next.target();
                if self.component_of[target.index()] != number {
                    continue;
                }
                if target != goal {
                    came.entry(target).or_insert_with(|| {
                        open.push_back(target);
                        (node, *next.weight())
                    });
                } else if self.edges.may_close(first, came.get(&node).copied(), *next.weight()) {
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
            }
        }
        None
    }
}

/// The nodes from the smallest on: equal for all rotations of a cycle.
fn rotated<E>(path: &Path<E>) -> Vec<NodeIndex> {
    let mut nodes: Vec<NodeIndex> = path.iter().map(|(from, _, _)| *from).collect();
    if let Some(smallest) = (0..nodes.len()).min_by_key(|at| nodes[*at]) {
        nodes.rotate_left(smallest);
    }
    nodes
}

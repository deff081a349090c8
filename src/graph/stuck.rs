//! Which nodes can never go on, by reduction: the greatest set consistent with the AND/OR rules.
//!
//! In: the graph, and whether only edges that prove something count. Out: [`Stuck`]. Everything is assumed stuck at
//! first, then whatever has a way out is taken from the set until nothing changes; what remains is cycles, knots,
//! waits for holders that are gone for good, and whoever waits for these. It looks for no cycle itself.

use std::collections::VecDeque;

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::{Edge, WaitGraph, proves_hold, proves_wait};
use crate::waits::{Needs, Party};

/// For each node: what a waiter that needs all, or any, of its holders finds there.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// At least one holder is stuck: the end for an `all` wait. For a thread or process: it is stuck.
    some: Vec<bool>,
    /// Every holder is stuck: the end for an `any` wait.
    every: Vec<bool>,
}

impl Stuck {
    /// Compute the set. With `proof`, only untimed exact waits and exact or binding holds count.
    pub(super) fn find(graph: &WaitGraph<'_>, proof: bool) -> Stuck {
        let count = graph.graph.node_count();
        let mut stuck = Stuck { some: vec![true; count], every: vec![true; count] };
        let mut queue: VecDeque<NodeIndex> = graph.graph.node_indices().collect();
        let mut queued = vec![true; count];
        while let Some(node) = queue.pop_front() {
            queued[node.index()] = false;
            let (some, every) = stuck.evaluate(graph, node, proof);
            // Only ever from true to false, so that it ends.
            let some = some && stuck.some[node.index()];
            let every = every && stuck.every[node.index()];
            if (some, every) != (stuck.some[node.index()], stuck.every[node.index()]) {
                stuck.some[node.index()] = some;
                stuck.every[node.index()] = every;
                for source in graph.graph.neighbors_directed(node, Direction::Incoming) {
                    if !queued[source.index()] {
                        queued[source.index()] = true;
                        queue.push_back(source);
                    }
                }
            }
        }
        stuck
    }

    /// What could not go on if `given` never did: the least set that has these and is consistent with the rules.
    pub(super) fn because_of(graph: &WaitGraph<'_>, given: &[NodeIndex]) -> Stuck {
        let count = graph.graph.node_count();
        let mut stuck = Stuck { some: vec![false; count], every: vec![false; count] };
        for node in given {
            stuck.some[node.index()] = true;
            stuck.every[node.index()] = true;
        }
        let mut queue: VecDeque<NodeIndex> = given.to_vec().into();
        while let Some(changed) = queue.pop_front() {
            for node in graph.graph.neighbors_directed(changed, Direction::Incoming) {
                // An owner that is gone holds up for a reason of its own.
                if matches!(graph.graph[node], Party::Absent(..)) {
                    continue;
                }
                let (some, every) = stuck.evaluate(graph, node, false);
                // Only ever from false to true, so that it ends.
                if some && !stuck.some[node.index()] || every && !stuck.every[node.index()] {
                    stuck.some[node.index()] |= some;
                    stuck.every[node.index()] |= every;
                    queue.push_back(node);
                }
            }
        }
        stuck
    }

    /// Whether a node that depends on this one is blocked.
    pub(super) fn holds_up(&self, node: NodeIndex) -> bool {
        self.some[node.index()]
    }

    /// Whether this wait, by itself, can never end.
    pub(super) fn wait_is_stuck(&self, graph: &WaitGraph<'_>, waiter: NodeIndex, wait: usize, to: NodeIndex) -> bool {
        match graph.wait(wait).needs {
            Needs::All => self.some[to.index()],
            Needs::Any => self.any_waits_are_stuck(graph, waiter, false),
        }
    }

    fn evaluate(&self, graph: &WaitGraph<'_>, node: NodeIndex, proof: bool) -> (bool, bool) {
        match &graph.graph[node] {
            Party::Thread(..) => {
                let waits = self.waiter_is_stuck(graph, node, proof);
                (waits, waits)
            }
            Party::Process(_) => {
                let mut members =
                    graph.graph.edges(node).filter(|edge| *edge.weight() == Edge::Member).map(|edge| edge.target());
                let any_member = graph.graph.edges(node).any(|edge| *edge.weight() == Edge::Member);
                let all = any_member && members.all(|member| self.some[member.index()]);
                (all, all)
            }
            Party::Absent(..) => {
                // One outside the capture may well let go; one that is gone for good never does.
                let gone = graph
                    .graph
                    .edges_directed(node, Direction::Incoming)
                    .any(|edge| matches!(edge.weight(), Edge::Hold(hold) if graph.hold(*hold).gone.is_some()));
                (gone, gone)
            }
            Party::Resource(_) => {
                let waits = self.waiter_is_stuck(graph, node, proof);
                let (mut some, mut every, mut holders) = (false, true, 0);
                for edge in graph.graph.edges(node) {
                    let Edge::Hold(position) = *edge.weight() else { continue };
                    holders += 1;
                    let counts = graph.usable[position] && (!proof || proves_hold(graph.hold(position)));
                    let holder = self.some[edge.target().index()];
                    some |= counts && holder;
                    // A candidate is a possible way out, whether or not it may be part of a cycle.
                    every &= holder && (!proof || counts);
                }
                (some || waits, holders > 0 && every || waits)
            }
        }
    }

    fn waiter_is_stuck(&self, graph: &WaitGraph<'_>, node: NodeIndex, proof: bool) -> bool {
        let all = graph.graph.edges(node).any(|edge| match *edge.weight() {
            Edge::Wait(position) => {
                let wait = graph.wait(position);
                wait.needs == Needs::All && self.some[edge.target().index()] && (!proof || proves_wait(wait))
            }
            Edge::Hold(_) | Edge::Member => false,
        });
        all || self.any_waits_are_stuck(graph, node, proof)
    }

    /// A thread that waits for one of several things goes on with the first of them that comes.
    fn any_waits_are_stuck(&self, graph: &WaitGraph<'_>, node: NodeIndex, proof: bool) -> bool {
        let mut count = 0;
        for edge in graph.graph.edges(node) {
            let Edge::Wait(position) = *edge.weight() else { continue };
            let wait = graph.wait(position);
            if wait.needs == Needs::Any {
                count += 1;
                if !self.every[edge.target().index()] || proof && !proves_wait(wait) {
                    return false;
                }
            }
        }
        count > 0
    }
}

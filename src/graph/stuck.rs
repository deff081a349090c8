//! Which nodes of the wait-for graph can never go on, by [`crate::reduction`].
//!
//! In: the graph, and which waits and holds count ([`Premise`]). Out: [`Stuck`]. This file writes the rules of the
//! AND/OR model down, one for each node. The reduction leaves cycles, knots, waits for holders that have ended, waits
//! without any waker, and their victims.

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::{Edge, WaitGraph, proves_hold, proves_wait};
use crate::reduction::{Blocked, Id, Reduction, Rule};
use crate::waits::{Needs, Party, Wait};

/// The waits and holds that count in a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Premise {
    /// Everything that seems to be stuck at this instant, also with a time-out: what is suspected.
    Seeming,
    /// Waits without any end but the resource itself, and holders that are known: what nobody ends.
    Lasting,
    /// The same, if nothing came by itself and nobody requested anything.
    WithoutOutside,
    /// Only untimed exact waits, exact or binding holds, and no wake source at all: what is proven.
    Proven,
}

impl Premise {
    fn counts(self, wait: &Wait) -> bool {
        match self {
            Premise::Seeming => true,
            Premise::Lasting | Premise::WithoutOutside => wait.has_one_end(),
            Premise::Proven => proves_wait(wait),
        }
    }
}

/// A node of the reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// A party. A resource is blocked here if at least one holder is: an `all` wait for it never ends.
    Party(NodeIndex),
    /// A resource, blocked if every holder is: an `any` wait for it never ends.
    EveryHolder(NodeIndex),
    /// An event that may come by itself, or is not seen.
    ByItself,
    /// An event that first needs a request.
    OnRequest,
}

/// The nodes that can never go on.
#[derive(Debug, Default)]
pub(super) struct Stuck(Blocked<Node>);

impl Stuck {
    /// Compute the set.
    pub(super) fn find(graph: &WaitGraph<'_>, premise: Premise) -> Stuck {
        Stuck(Rules { graph, premise, reduction: Reduction::default() }.write().greatest())
    }

    /// The nodes that could not go on if `given` never did: the least set that has these and is consistent with the
    /// rules.
    pub(super) fn because_of(graph: &WaitGraph<'_>, given: impl Iterator<Item = NodeIndex>) -> Stuck {
        let mut rules = Rules { graph, premise: Premise::Seeming, reduction: Reduction::default() }.write();
        // An owner that is gone holds up for a reason of its own.
        let absent = graph.graph.node_indices().filter(|node| matches!(graph.graph[*node], Party::Absent(..)));
        absent.for_each(|node| rules.set(Node::Party(node), Rule::Never));
        Stuck(rules.least(given.flat_map(|node| [Node::Party(node), Node::EveryHolder(node)])))
    }

    /// Whether a node that depends on this one is blocked.
    pub(super) fn holds_up(&self, node: NodeIndex) -> bool {
        self.0.contains(&Node::Party(node))
    }

    /// Whether this wait, by itself, can never end.
    pub(super) fn wait_is_stuck(&self, graph: &WaitGraph<'_>, waiter: NodeIndex, wait: usize, to: NodeIndex) -> bool {
        if graph.wait(wait).needs == Needs::All {
            return self.holds_up(to) && !self.may_end(graph, wait, Premise::Seeming);
        }
        any_waits(graph, waiter)
            .all(|(wait, to)| self.0.contains(&Node::EveryHolder(to)) && !self.may_end(graph, wait, Premise::Seeming))
    }

    /// Whether a wake source may end this wait, and no other for the same resource.
    pub(super) fn may_end(&self, graph: &WaitGraph<'_>, wait: usize, premise: Premise) -> bool {
        let wakers = graph.own_wakers.get(&wait).map(Vec::as_slice).unwrap_or_default();
        wakers.iter().any(|waker| premise == Premise::Proven || !self.0.contains(waker))
    }
}

/// The waits of a party that goes on with the first of them that ends, each with its resource.
fn any_waits(graph: &WaitGraph<'_>, waiter: NodeIndex) -> impl Iterator<Item = (usize, NodeIndex)> {
    waits(graph, waiter).filter(|(wait, _)| graph.wait(*wait).needs == Needs::Any)
}

fn waits(graph: &WaitGraph<'_>, waiter: NodeIndex) -> impl Iterator<Item = (usize, NodeIndex)> {
    graph.graph.edges(waiter).filter_map(|edge| match *edge.weight() {
        Edge::Wait(position) => Some((position, edge.target())),
        Edge::Hold(_) | Edge::Member => None,
    })
}

/// The rules of all nodes, under one premise.
struct Rules<'g, 'a> {
    graph: &'g WaitGraph<'a>,
    premise: Premise,
    reduction: Reduction<Node>,
}

impl Rules<'_, '_> {
    fn write(mut self) -> Reduction<Node> {
        let outside = |is_shut: bool| if is_shut { Rule::Always } else { Rule::Never };
        // That a signal may be sent makes no ring of locks look better.
        let is_unrequested = matches!(self.premise, Premise::Seeming | Premise::WithoutOutside);
        self.reduction.set(Node::OnRequest, outside(is_unrequested));
        self.reduction.set(Node::ByItself, outside(self.premise == Premise::WithoutOutside));
        for node in self.graph.graph.node_indices() {
            match &self.graph.graph[node] {
                Party::Thread(..) => {
                    let causes = self.causes(node);
                    self.reduction.set(Node::Party(node), Rule::Any(causes));
                }
                Party::Process(_) => self.process(node),
                Party::Absent(..) => self.absent(node),
                Party::Resource(_) => self.resource(node),
            }
        }
        self.reduction
    }

    /// A process goes on as long as one of its threads does.
    fn process(&mut self, node: NodeIndex) {
        let edges = self.graph.graph.edges(node).filter(|edge| *edge.weight() == Edge::Member);
        let members: Vec<Id> = edges.map(|edge| self.reduction.node(Node::Party(edge.target()))).collect();
        let rule = if members.is_empty() { Rule::Never } else { Rule::All(members) };
        self.reduction.set(Node::Party(node), rule);
    }

    /// An owner outside the capture may well release; one that has ended never does.
    fn absent(&mut self, node: NodeIndex) {
        let mut holds = self.graph.graph.edges_directed(node, Direction::Incoming);
        let is_gone =
            holds.any(|edge| matches!(edge.weight(), Edge::Hold(hold) if self.graph.hold(*hold).gone.is_some()));
        self.reduction.set(Node::Party(node), if is_gone { Rule::Always } else { Rule::Never });
    }

    fn resource(&mut self, node: NodeIndex) {
        let graph = self.graph;
        let own = self.causes(node);
        let (mut counted, mut holders, mut all_count, mut is_held) = (Vec::new(), Vec::new(), true, false);
        for edge in graph.graph.edges(node) {
            let Edge::Hold(position) = *edge.weight() else { continue };
            let hold = graph.hold(position);
            // A generator that has stopped holds it for nobody.
            let goes_on = !matches!(hold.holder, Party::Resource(_)) || waits(graph, edge.target()).next().is_some();
            is_held |= hold.is_known() && goes_on;
            let holder = self.reduction.node(Node::Party(edge.target()));
            holders.push(holder);
            if hold.closes_cycles() && (self.premise != Premise::Proven || proves_hold(hold)) {
                counted.push(holder);
            } else {
                // A candidate may let go, whether or not it may be part of a cycle.
                all_count &= self.premise != Premise::Proven || proves_hold(hold);
            }
        }
        let wakers: Vec<Node> = graph.wakers.get(&node).cloned().unwrap_or_default();
        let mut shut: Vec<Id> = wakers.into_iter().map(|waker| self.reduction.node(waker)).collect();
        let lasts = matches!(self.premise, Premise::Lasting | Premise::WithoutOutside);
        let is_known = matches!(&graph.graph[node], Party::Resource(key) if graph.known_wakers.contains(key));
        if !is_held && lasts && is_known {
            let causes = own.into_iter().chain([self.reduction.part(Rule::All(shut))]).collect();
            self.reduction.set(Node::Party(node), Rule::Any(causes));
            let same = self.reduction.node(Node::Party(node));
            return self.reduction.set(Node::EveryHolder(node), Rule::Any(vec![same]));
        }
        if !is_held {
            // Where nobody is known to hold it, candidates say more than other wakers.
            shut.clear();
        }
        let one_holder = self.reduction.part(Rule::Any(counted));
        let some = self.reduction.part(Rule::All([shut.as_slice(), &[one_holder]].concat()));
        self.reduction.set(Node::Party(node), Rule::Any([own.as_slice(), &[some]].concat()));
        let mut causes = own;
        if !holders.is_empty() && all_count {
            causes.push(self.reduction.part(Rule::All([shut, holders].concat())));
        }
        self.reduction.set(Node::EveryHolder(node), Rule::Any(causes));
    }

    /// The blocks of a party by its own waits: one rule for each `all` wait, and one for its `any` waits together.
    fn causes(&mut self, node: NodeIndex) -> Vec<Id> {
        let graph = self.graph;
        let mut causes = Vec::new();
        let mut one_of_several: Option<Vec<Id>> = None;
        let mut may_go_on = false;
        for (position, resource) in waits(graph, node) {
            let wait = graph.wait(position);
            let wakers = graph.own_wakers.get(&position).map(Vec::as_slice).unwrap_or_default();
            let counts = self.premise.counts(wait) && (self.premise != Premise::Proven || wakers.is_empty());
            let target = match wait.needs {
                Needs::All => Node::Party(resource),
                Needs::Any => Node::EveryHolder(resource),
            };
            let mut needed = vec![self.reduction.node(target)];
            needed.extend(wakers.iter().map(|waker| self.reduction.node(*waker)));
            match (wait.needs, needed.as_slice()) {
                (Needs::All, [only]) if counts => causes.push(*only),
                (Needs::All, _) if counts => causes.push(self.reduction.part(Rule::All(needed))),
                (Needs::All, _) => {}
                (Needs::Any, _) => {
                    may_go_on |= !counts;
                    one_of_several.get_or_insert_default().extend(needed);
                }
            }
        }
        let several = one_of_several.filter(|_| !may_go_on);
        causes.extend(several.map(|needed| self.reduction.part(Rule::All(needed))));
        causes
    }
}

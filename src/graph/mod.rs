//! The wait-for graph: the waiters and their holders, the waits that can never end, and the cycles that prove it.
//!
//! In: waits and holds ([`Observations`]), and the threads of each process. Out: minimal cycles, the threads that are blocked
//! because of them, and the ends of all other chains. The graph is pure: it reads no memory and knows no lock family.
//! [`crate::verdict`] says what to do about a cycle.
//!
//! This is the AND/OR model of wait-for graphs (E. Knapp, "Deadlock detection in distributed databases", ACM Computing
//! Surveys 19(4), 1987, doi:10.1145/45075.46163). An `all` wait is stuck as soon as one holder is, an `any` wait only
//! when every holder is. A process that holds something is stuck only when all of its threads are. A cycle proves a
//! deadlock in the AND model. A *knot* does so in the OR model: a set of nodes from which every path leads back into
//! the set. [`crate::reduction`] finds both. It leaves the greatest set that is consistent with the rules. Cycles are
//! searched in there, so that a cycle through an `any` wait is always part of a knot.
//!
//! Wake sources are nodes of the reduction, too. Two of them are no party: something that comes by itself always ends a wait,
//! and something that has to be requested, as the handler of a signal, turns a proof into a suspicion. A resource with
//! [`KnownWakers`] is stuck when none of its wake sources can go on.
//!
//! [`KnownWakers`]: crate::waits::model::KnownWakers

mod cycles;
mod stuck;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::waits::{Certainty, Hold, Observations, Party, ResourceKey, Strength, Wait, WakeSource, Waker};
pub(crate) use cycles::{Cycle, CycleEdge, Cycles};
use stuck::{Node, Premise, Stuck};

/// An edge of the graph, with the position of the observation that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Edge {
    /// From a waiter to the resource: position in [`Observations::waits`].
    Wait(usize),
    /// From a resource to its holder: position in [`Observations::holds`].
    Hold(usize),
    /// From a process that holds something to one of its threads.
    Member,
}

/// Waits and holds as a graph. A resource that waits or holds is the same node as the resource that is waited for.
#[derive(Debug)]
pub(crate) struct WaitGraph<'a> {
    observations: &'a Observations,
    graph: DiGraph<Party, Edge>,
    nodes: HashMap<Party, NodeIndex>,
    /// For each wait: the wake sources that end it and no other wait for the same resource.
    own_wakers: HashMap<usize, Vec<Node>>,
    /// For each resource: the wake sources that end every wait for it.
    wakers: HashMap<NodeIndex, Vec<Node>>,
    /// The resources whose possible wakers are all known.
    known_wakers: HashSet<&'a ResourceKey>,
    seeming: Stuck,
    proven: Stuck,
    lasting: Stuck,
}

/// The end of a chain of waits: something that others wait for and that itself waits for nothing known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// The thread, process or resource at the end.
    pub party: Party,
    /// Threads that wait for it, directly or through others, in order. Many roots have the same.
    pub waiting: Rc<[Party]>,
}

impl<'a> WaitGraph<'a> {
    /// Build the graph. `threads` lists the tids of each process by its position in the image: a process that holds
    /// something can let go as long as one of them is not stuck.
    pub(crate) fn new(observations: &'a Observations, threads: &[Vec<i32>]) -> Self {
        let mut this = WaitGraph {
            observations,
            graph: DiGraph::new(),
            nodes: HashMap::new(),
            own_wakers: HashMap::new(),
            wakers: HashMap::new(),
            known_wakers: observations.known_wakers.iter().map(|one| &one.resource).collect(),
            seeming: Stuck::default(),
            proven: Stuck::default(),
            lasting: Stuck::default(),
        };
        this.connect(threads);
        this.seeming = Stuck::find(&this, Premise::Seeming);
        this.proven = Stuck::find(&this, Premise::Proven);
        this.lasting = Stuck::find(&this, Premise::Lasting);
        this
    }

    fn connect(&mut self, threads: &[Vec<i32>]) {
        // The strongest of several observations of the same edge stands for all.
        let mut edges: BTreeMap<(NodeIndex, NodeIndex, bool), (u8, Edge)> = BTreeMap::new();
        let mut add = |from: NodeIndex, to: NodeIndex, strength: u8, edge: Edge| {
            let slot = edges.entry((from, to, !matches!(edge, Edge::Wait(_)))).or_insert((strength, edge));
            if strength > slot.0 {
                *slot = (strength, edge);
            }
        };
        for (position, wait) in self.observations.waits.iter().enumerate() {
            let from = self.node(&wait.waiter);
            let to = self.node(&Party::Resource(wait.resource.clone()));
            let strength = u8::from(proves_wait(wait)) * 4 + u8::from(!wait.timed) * 2;
            add(from, to, strength, Edge::Wait(position));
        }
        for (position, hold) in self.observations.holds.iter().enumerate() {
            let from = self.node(&Party::Resource(hold.resource.clone()));
            let to = self.node(&hold.holder);
            let strength =
                u8::from(proves_hold(hold)) * 4 + u8::from(hold.closes_cycles()) * 2 + u8::from(hold.gone.is_some());
            add(from, to, strength, Edge::Hold(position));
        }
        self.add_wakers();
        let holding_processes: Vec<usize> =
            self.nodes.keys().filter_map(|party| if let Party::Process(p) = party { Some(*p) } else { None }).collect();
        for process in holding_processes {
            let from = self.node(&Party::Process(process));
            for tid in threads.get(process).into_iter().flatten() {
                let to = self.node(&Party::Thread(process, *tid));
                add(from, to, 0, Edge::Member);
            }
        }
        for ((from, to, _), (_, edge)) in edges {
            self.graph.add_edge(from, to, edge);
        }
    }

    fn add_wakers(&mut self) {
        let observations = self.observations;
        let mut waits_of: HashMap<&Party, Vec<usize>> = HashMap::new();
        if observations.wake_sources.iter().any(|wake_source| wake_source.waiter.is_some()) {
            for (position, wait) in observations.waits.iter().enumerate() {
                waits_of.entry(&wait.waiter).or_default().push(position);
            }
        }
        for wake_source in &observations.wake_sources {
            let waker = match &wake_source.by {
                Waker::Party(party) => Node::Party(self.node(party)),
                Waker::ByItself => Node::ByItself,
                Waker::OnRequest => Node::OnRequest,
            };
            let Some(waiter) = &wake_source.waiter else {
                let resource = self.node(&Party::Resource(wake_source.resource.clone()));
                self.wakers.entry(resource).or_default().push(waker);
                continue;
            };
            for wait in waits_of.get(waiter).into_iter().flatten() {
                if observations.waits[*wait].resource == wake_source.resource {
                    self.own_wakers.entry(*wait).or_default().push(waker);
                }
            }
        }
    }

    fn node(&mut self, party: &Party) -> NodeIndex {
        if let Some(node) = self.nodes.get(party) {
            return *node;
        }
        let node = self.graph.add_node(party.clone());
        self.nodes.insert(party.clone(), node);
        node
    }

    /// All minimal cycles, the shortest first, at most [`MOST_CYCLES`](crate::limits::graph::MOST_CYCLES).
    pub(crate) fn cycles(&self) -> Cycles {
        cycles::find(self)
    }

    /// Threads, and resources that wait as threads do (a task, a stream), that could not go on, directly or through others, if
    /// these never did; without these themselves.
    pub(crate) fn held_up_by(&self, these: &BTreeSet<Party>) -> Vec<Party> {
        let given = these.iter().filter_map(|party| self.nodes.get(party).copied());
        let stuck = Stuck::because_of(self, given);
        let held_up = self.graph.node_indices().filter(|node| stuck.holds_up(*node));
        let waits = |node: &NodeIndex| self.graph.edges(*node).any(|edge| matches!(edge.weight(), Edge::Wait(_)));
        let is_waiter = |node: &NodeIndex| match &self.graph[*node] {
            Party::Thread(..) => true,
            Party::Resource(_) => waits(node),
            Party::Process(_) | Party::Absent(..) => false,
        };
        let waiters = held_up.filter(is_waiter).map(|node| &self.graph[node]);
        let others: BTreeSet<&Party> = waiters.filter(|party| !these.contains(party)).collect();
        others.into_iter().cloned().collect()
    }

    /// Whether a wait for this never ends: none of its holders and wakers can go on.
    pub(crate) fn never_comes(&self, resource: &ResourceKey) -> bool {
        let node = self.nodes.get(&Party::Resource(resource.clone()));
        node.is_some_and(|node| self.lasting.holds_up(*node))
    }

    /// Whether a wait ends by its resource alone, and that never comes.
    pub(crate) fn lasts(&self, wait: usize) -> bool {
        let observed = self.wait(wait);
        let node = self.nodes.get(&observed.waiter);
        !observed.timed
            && node.is_some_and(|node| self.lasting.holds_up(*node))
            && !self.lasting.may_end(self, wait, Premise::Lasting)
    }

    /// Those of these resources for which a wait would never end without what may come by itself or be requested.
    pub(crate) fn kept_by_wake_source<'k>(
        &self,
        resources: impl Iterator<Item = &'k ResourceKey>,
    ) -> Vec<&'k ResourceKey> {
        let without_outside = Stuck::find(self, Premise::WithoutOutside);
        let is_kept = |key: &&ResourceKey| {
            let node = self.nodes.get(&Party::Resource((*key).clone()));
            node.is_some_and(|node| without_outside.holds_up(*node) && !self.lasting.holds_up(*node))
        };
        resources.filter(is_kept).collect()
    }

    /// The wake sources that may still end this waiter's wait.
    pub(crate) fn wake_sources<'h>(
        &'h self,
        resource: &'h ResourceKey,
        waiter: &'h Party,
    ) -> impl Iterator<Item = &'a WakeSource> {
        let is_own = move |wake_source: &&WakeSource| wake_source.resource == *resource && wake_source.is_for(waiter);
        let is_open = |wake_source: &&WakeSource| match &wake_source.by {
            Waker::Party(party) => self.nodes.get(party).is_none_or(|node| !self.lasting.holds_up(*node)),
            Waker::ByItself | Waker::OnRequest => true,
        };
        self.observations.wake_sources.iter().filter(is_own).filter(is_open)
    }

    /// Where chains of waits end, the one with the most waiting threads first.
    pub(crate) fn roots(&self) -> Vec<Root> {
        let mut roots = Vec::new();
        // Thousands of processes may wait for each of thousands that could write to one pipe.
        let mut sets: HashMap<Vec<NodeIndex>, Rc<[Party]>> = HashMap::new();
        for node in self.graph.node_indices() {
            let waited_for = self.graph.edges_directed(node, Direction::Incoming).any(|e| self.leads_on(*e.weight()));
            let goes_on = self.graph.edges(node).any(|e| self.leads_on(*e.weight()));
            // A process is an end of its own: the members of it that do not wait are not what is waited for.
            let is_process = matches!(self.graph[node], Party::Process(_));
            let by_membership = self
                .graph
                .edges_directed(node, Direction::Incoming)
                .filter(|e| self.leads_on(*e.weight()))
                .all(|e| *e.weight() == Edge::Member);
            if waited_for && (!goes_on || is_process && !self.seeming.holds_up(node)) && !by_membership {
                let party = self.graph[node].clone();
                let mut waiting = self.reaching([party.clone()], |_| true);
                waiting.retain(|other| matches!(self.graph[*other], Party::Thread(..)) && *other != node);
                waiting.sort_unstable();
                let waiting = sets.entry(waiting).or_insert_with_key(|nodes| {
                    let mut parties: Vec<Party> = nodes.iter().map(|node| self.graph[*node].clone()).collect();
                    parties.sort();
                    parties.into()
                });
                roots.push(Root { party, waiting: Rc::clone(waiting) });
            }
        }
        roots.sort_by(|a, b| b.waiting.len().cmp(&a.waiting.len()).then_with(|| a.party.cmp(&b.party)));
        roots
    }

    /// Whether an edge says where a chain goes on; a candidate holder does not.
    fn leads_on(&self, edge: Edge) -> bool {
        match edge {
            Edge::Hold(hold) => self.hold(hold).closes_cycles(),
            Edge::Wait(_) | Edge::Member => true,
        }
    }

    /// All nodes from which a chain leads to one of `starts`, through nodes that `pass` accepts; `starts` included.
    fn reaching(&self, starts: impl IntoIterator<Item = Party>, pass: impl Fn(NodeIndex) -> bool) -> Vec<NodeIndex> {
        let mut seen = vec![false; self.graph.node_count()];
        let mut order = Vec::new();
        let mut queue: VecDeque<NodeIndex> =
            starts.into_iter().filter_map(|party| self.nodes.get(&party).copied()).collect();
        for node in &queue {
            seen[node.index()] = true;
        }
        while let Some(node) = queue.pop_front() {
            order.push(node);
            for edge in self.graph.edges_directed(node, Direction::Incoming) {
                let source = edge.source();
                if !seen[source.index()] && self.leads_on(*edge.weight()) && pass(source) {
                    seen[source.index()] = true;
                    queue.push_back(source);
                }
            }
        }
        order
    }

    fn wait(&self, position: usize) -> &'a Wait {
        &self.observations.waits[position]
    }

    fn hold(&self, position: usize) -> &'a Hold {
        &self.observations.holds[position]
    }
}

/// Whether a wait may be part of a proof: it never ends by itself, and nothing in it was inferred.
pub(crate) fn proves_wait(wait: &Wait) -> bool {
    !wait.timed && !wait.spinning && wait.certainty == Certainty::Exact
}

/// Whether a hold may be part of a proof: recorded by memory or kernel, or by a rule that leaves no other holder.
pub(crate) fn proves_hold(hold: &Hold) -> bool {
    hold.strength >= Strength::Sole
}

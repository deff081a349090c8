//! The wait-for graph: who waits for whom, which of that can never end, and the cycles that prove it.
//!
//! In: waits and holds ([`Observations`]) and which threads each process has. Out: minimal cycles, the threads that
//! wait because of them, and the ends of all other chains. Pure: it reads no memory, knows no lock family, and says
//! nothing of what to do about a cycle ([`crate::verdict`] does).
//!
//! This is the AND/OR model of wait-for graphs (E. Knapp, "Deadlock detection in distributed databases", ACM Computing Surveys
//! 19(4), 1987, doi:10.1145/45075.46163): an `all` wait is stuck as soon as one holder is, an `any` wait only when every holder
//! is, and what a process as a whole holds is stuck only when all of its threads are. In the AND model a cycle proves a
//! deadlock; in the OR model a *knot* does, a set of nodes from which every way leads back into the set. Both are found by
//! *reduction* (R. C. Holt, "Some deadlock properties of computer systems", ACM Computing Surveys 4(3), 1972,
//! doi:10.1145/356603.356607): whoever can go on is taken out of the graph, with what it holds, until nothing changes. What
//! remains is the greatest set that is consistent with the rules, and cycles are looked for in there: a cycle through an
//! `any` wait is then always part of a knot.
//!
//! What could end a wait beside the holders stands in the graph, too: an edge from the resource to whoever could give it, and two
//! nodes that are no party, *hope*: what may come by itself, which is always a way out, and what somebody has to ask for, as the
//! handler of a signal, which makes a proof a suspicion. A resource of which all such ways are known ([`Enclosed`]) is stuck when
//! each of them leads to who can never go on.
//!
//! [`Enclosed`]: crate::waits::model::Enclosed

mod cycles;
mod stuck;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::waits::{Certainty, Hold, Hope, Hoped, Needs, Observations, Party, ResourceKey, Wait};
pub(crate) use cycles::{Cycle, CycleEdge, Cycles};
use stuck::{Reduction, Stuck};

/// An edge of the graph, with the position of the observation that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Edge {
    /// From a waiter to the resource: position in [`Observations::waits`].
    Wait(usize),
    /// From a resource to its holder: position in [`Observations::holds`].
    Hold(usize),
    /// From a process that holds something to one of its threads.
    Member,
    /// From a resource to who or what could give it: position in [`Observations::hopes`].
    Hope(usize),
}

/// A node that is no party: what may come by itself, or is not seen.
const COMING: Party = Party::Absent(usize::MAX, 1);
/// A node that is no party: what somebody has to ask for.
const ASKED: Party = Party::Absent(usize::MAX, 2);

/// Waits and holds as a graph. A resource that waits or holds is the same node as the resource that is waited for.
#[derive(Debug)]
pub(crate) struct WaitGraph<'a> {
    observations: &'a Observations,
    graph: DiGraph<Party, Edge>,
    nodes: HashMap<Party, NodeIndex>,
    /// For each hold: whether a cycle may run through it.
    usable: Vec<bool>,
    /// For each wait: what may end it and no other wait for the same thing.
    own_hopes: HashMap<usize, Vec<NodeIndex>>,
    /// From what may end single waits to those who wait.
    hoping: HashMap<NodeIndex, Vec<NodeIndex>>,
    /// The resources of which all ways out are known.
    enclosed: HashSet<&'a ResourceKey>,
    stuck: Stuck,
    proven: Stuck,
    lasting: Stuck,
}

/// The end of a chain of waits: something that others wait for and that itself waits for nothing known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// The thread, process or resource at the end.
    pub party: Party,
    /// Threads that wait for it, directly or through others, in order.
    pub waiting: Vec<Party>,
}

impl<'a> WaitGraph<'a> {
    /// Build the graph. `threads` lists the tids of each process by its position in the image: a process that holds
    /// something can let go as long as one of them is not stuck.
    pub(crate) fn new(observations: &'a Observations, threads: &[Vec<i32>]) -> Self {
        let mut this = WaitGraph {
            observations,
            graph: DiGraph::new(),
            nodes: HashMap::new(),
            usable: observations.holds.iter().map(|hold| usable(observations, hold)).collect(),
            own_hopes: HashMap::new(),
            hoping: HashMap::new(),
            enclosed: observations.enclosed.iter().map(|one| &one.resource).collect(),
            stuck: Stuck::default(),
            proven: Stuck::default(),
            lasting: Stuck::default(),
        };
        this.connect(threads);
        this.stuck = Stuck::find(&this, Reduction::Seeming);
        this.proven = Stuck::find(&this, Reduction::Proven);
        this.lasting = Stuck::find(&this, Reduction::Lasting);
        this
    }

    fn connect(&mut self, threads: &[Vec<i32>]) {
        // Of several observations of one and the same edge the strongest stands for all.
        let mut edges: BTreeMap<(NodeIndex, NodeIndex, u8), (u8, Edge)> = BTreeMap::new();
        let mut add = |from: NodeIndex, to: NodeIndex, strength: u8, edge: Edge| {
            let sort = match edge {
                Edge::Wait(_) => 0,
                Edge::Hold(_) | Edge::Member => 1,
                Edge::Hope(_) => 2,
            };
            let slot = edges.entry((from, to, sort)).or_insert((strength, edge));
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
                u8::from(proves_hold(hold)) * 4 + u8::from(self.usable[position]) * 2 + u8::from(hold.gone.is_some());
            add(from, to, strength, Edge::Hold(position));
        }
        let mut waits_of: HashMap<&Party, Vec<usize>> = HashMap::new();
        if self.observations.hopes.iter().any(|hope| hope.waiter.is_some()) {
            for (position, wait) in self.observations.waits.iter().enumerate() {
                waits_of.entry(&wait.waiter).or_default().push(position);
            }
        }
        for (position, hope) in self.observations.hopes.iter().enumerate() {
            let to = match &hope.by {
                Hoped::Party(party) => self.node(party),
                Hoped::Coming => self.node(&COMING),
                Hoped::Asked => self.node(&ASKED),
            };
            if hope.waiter.is_none() {
                let from = self.node(&Party::Resource(hope.resource.clone()));
                add(from, to, 0, Edge::Hope(position));
            }
            let of = hope.waiter.as_ref().and_then(|waiter| waits_of.get(waiter)).into_iter().flatten().copied();
            for wait in of.filter(|wait| self.observations.waits[*wait].resource == hope.resource) {
                let waiter = self.node(&self.observations.waits[wait].waiter);
                self.own_hopes.entry(wait).or_default().push(to);
                self.hoping.entry(to).or_default().push(waiter);
            }
        }
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

    /// Threads that could not go on, directly or through others, if these never did; without these themselves. Of a resource that
    /// waits (a task, a stream) the same holds as of a thread.
    pub(crate) fn held_up_by(&self, these: &BTreeSet<Party>) -> Vec<Party> {
        let given: Vec<NodeIndex> = these.iter().filter_map(|party| self.nodes.get(party).copied()).collect();
        let stuck = Stuck::because_of(self, &given);
        let held_up = self.graph.node_indices().filter(|node| stuck.holds_up(*node));
        let threads = held_up.map(|node| &self.graph[node]).filter(|party| matches!(party, Party::Thread(..)));
        let others: BTreeSet<&Party> = threads.filter(|party| !these.contains(party)).collect();
        others.into_iter().cloned().collect()
    }

    /// Whether a wait for this never ends: each way out leads to who can never go on.
    pub(crate) fn never_comes(&self, resource: &ResourceKey) -> bool {
        let node = self.nodes.get(&Party::Resource(resource.clone()));
        node.is_some_and(|node| self.lasting.holds_up(*node))
    }

    /// Whether a wait is one that lasts: nothing ends it but the thing that it is for, and never does that come.
    pub(crate) fn lasts(&self, wait: usize) -> bool {
        let of = &self.observations.waits[wait];
        let node = self.nodes.get(&of.waiter);
        !of.timed
            && node.is_some_and(|node| self.lasting.holds_up(*node))
            && !self.lasting.may_end(self, wait, Reduction::Lasting)
    }

    /// Of these resources, those for which a wait would never end but for what may come by itself or be asked for.
    pub(crate) fn kept_by_hope<'k>(&self, resources: impl Iterator<Item = &'k ResourceKey>) -> Vec<&'k ResourceKey> {
        let hopeless = Stuck::find(self, Reduction::Hopeless);
        let is_kept = |key: &&ResourceKey| {
            let node = self.nodes.get(&Party::Resource((*key).clone()));
            node.is_some_and(|node| hopeless.holds_up(*node) && !self.lasting.holds_up(*node))
        };
        resources.filter(is_kept).collect()
    }

    /// Those whose waits something at this node may end.
    fn hoping_for(&self, node: NodeIndex) -> &[NodeIndex] {
        self.hoping.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The hopes that keep a wait for this, by this waiter, from being without end.
    pub(crate) fn hopes<'h>(&'h self, resource: &'h ResourceKey, waiter: &'h Party) -> impl Iterator<Item = &'a Hope> {
        let of =
            move |hope: &&Hope| hope.resource == *resource && hope.waiter.as_ref().is_none_or(|only| only == waiter);
        let is_open = |hope: &&Hope| match &hope.by {
            Hoped::Party(party) => self.nodes.get(party).is_none_or(|node| !self.lasting.holds_up(*node)),
            Hoped::Coming | Hoped::Asked => true,
        };
        self.observations.hopes.iter().filter(of).filter(is_open)
    }

    /// Where chains of waits end, the one with the most waiting threads first.
    pub(crate) fn roots(&self) -> Vec<Root> {
        let mut roots = Vec::new();
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
            if waited_for && (!goes_on || is_process && !self.stuck.holds_up(node)) && !by_membership {
                let party = self.graph[node].clone();
                let waiting: BTreeSet<Party> = self
                    .reaching([party.clone()], |_| true)
                    .into_iter()
                    .map(|reached| self.graph[reached].clone())
                    .filter(|other| matches!(other, Party::Thread(..)) && *other != party)
                    .collect();
                roots.push(Root { party, waiting: waiting.into_iter().collect() });
            }
        }
        roots.sort_by(|a, b| b.waiting.len().cmp(&a.waiting.len()).then_with(|| a.party.cmp(&b.party)));
        roots
    }

    /// Whether an edge says where a chain goes on; a candidate holder does not.
    fn leads_on(&self, edge: Edge) -> bool {
        match edge {
            Edge::Hold(hold) => self.usable[hold],
            Edge::Wait(_) | Edge::Member => true,
            Edge::Hope(_) => false,
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
    hold.certainty == Certainty::Exact || hold.is_sole_holder && hold.certainty == Certainty::Inferred
}

/// Whether a cycle may run through this hold. A candidate is not enough, with two exceptions: a lock for which one thread of all
/// can be a holder, and a reader-writer lock with exactly one reader, the only candidate for which is the very thread that wants
/// to write (an upgrade).
fn usable(observations: &Observations, hold: &Hold) -> bool {
    if hold.certainty > Certainty::Candidate || hold.is_sole_candidate {
        return true;
    }
    let alone = observations.holds.iter().filter(|other| other.resource == hold.resource).count() == 1;
    let waits_itself = observations
        .waits
        .iter()
        .any(|wait| wait.resource == hold.resource && wait.waiter == hold.holder && wait.needs == Needs::All);
    alone && hold.counted_readers == Some(1) && waits_itself
}

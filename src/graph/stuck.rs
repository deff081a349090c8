//! Which nodes can never go on, by reduction: the greatest set consistent with the AND/OR rules.
//!
//! In: the graph, and which waits and holds count ([`Reduction`]). Out: [`Stuck`]. Everything is assumed stuck at
//! first, then whatever has a way out is taken from the set until nothing changes; what remains is cycles, knots,
//! waits for holders that are gone for good, waits that nobody can end, and whoever waits for these. It looks for no cycle itself.

use std::collections::VecDeque;

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::{ASKED, COMING, Edge, WaitGraph, proves_hold, proves_wait};
use crate::waits::{Certainty, Needs, Party, Wait};

/// What counts in a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reduction {
    /// Whatever seems to be stuck at this instant, also with a time-out: what is suspected.
    Seeming,
    /// Waits without any end but the thing itself, and holders that are known: what nobody ends.
    Lasting,
    /// The same, were nothing left of what may come by itself or be asked for.
    Hopeless,
    /// Only untimed exact waits, exact or binding holds, and no hope at all: what is proven.
    Proven,
}

impl Reduction {
    fn counts(self, wait: &Wait) -> bool {
        match self {
            Reduction::Seeming => true,
            Reduction::Lasting | Reduction::Hopeless => !wait.timed && !wait.spinning,
            Reduction::Proven => proves_wait(wait),
        }
    }
}

/// Nodes that are to be evaluated, each once however often it is asked for.
///
/// Those that depend on many (a process on its threads, a rwlock on its readers) come when no other is left: were they evaluated each
/// time that one of theirs changes, the time would grow with the square of these.
#[derive(Debug)]
struct Open {
    narrow: VecDeque<NodeIndex>,
    wide: VecDeque<NodeIndex>,
    queued: Vec<bool>,
}

impl Open {
    /// Nodes that depend on more are wide.
    const NARROW: usize = 8;

    fn new(count: usize) -> Open {
        Open { narrow: VecDeque::new(), wide: VecDeque::new(), queued: vec![false; count] }
    }

    fn add(&mut self, graph: &WaitGraph<'_>, node: NodeIndex) {
        if std::mem::replace(&mut self.queued[node.index()], true) {
            return;
        }
        match graph.graph.edges(node).nth(Open::NARROW) {
            Some(_) => self.wide.push_back(node),
            None => self.narrow.push_back(node),
        }
    }

    fn next(&mut self) -> Option<NodeIndex> {
        let node = self.narrow.pop_front().or_else(|| self.wide.pop_front())?;
        self.queued[node.index()] = false;
        Some(node)
    }
}

/// For each node: what a waiter that needs all, or any, of its holders finds there.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// At least one holder is stuck: the end for an `all` wait. For a thread or process: it is stuck.
    some: Vec<bool>,
    /// Every holder is stuck: the end for an `any` wait.
    every: Vec<bool>,
}

impl Stuck {
    /// Compute the set.
    pub(super) fn find(graph: &WaitGraph<'_>, by: Reduction) -> Stuck {
        let count = graph.graph.node_count();
        let mut stuck = Stuck { some: vec![true; count], every: vec![true; count] };
        let mut open = Open::new(count);
        graph.graph.node_indices().for_each(|node| open.add(graph, node));
        while let Some(node) = open.next() {
            let (some, every) = stuck.evaluate(graph, node, by);
            // Only ever from true to false, so that it ends.
            let some = some && stuck.some[node.index()];
            let every = every && stuck.every[node.index()];
            if (some, every) != (stuck.some[node.index()], stuck.every[node.index()]) {
                stuck.some[node.index()] = some;
                stuck.every[node.index()] = every;
                let dependent = graph.graph.neighbors_directed(node, Direction::Incoming);
                dependent.chain(graph.hoping_for(node).iter().copied()).for_each(|source| open.add(graph, source));
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
        if let Some(asked) = graph.nodes.get(&ASKED) {
            (stuck.some[asked.index()], stuck.every[asked.index()]) = (true, true);
        }
        let mut open = Open::new(count);
        let dependent = |changed: NodeIndex, open: &mut Open| {
            for node in graph.graph.neighbors_directed(changed, Direction::Incoming) {
                // An owner that is gone holds up for a reason of its own.
                if !matches!(graph.graph[node], Party::Absent(..)) {
                    open.add(graph, node);
                }
            }
        };
        given.iter().for_each(|node| dependent(*node, &mut open));
        while let Some(node) = open.next() {
            let (some, every) = stuck.evaluate(graph, node, Reduction::Seeming);
            // Only ever from false to true, so that it ends.
            if some && !stuck.some[node.index()] || every && !stuck.every[node.index()] {
                stuck.some[node.index()] |= some;
                stuck.every[node.index()] |= every;
                dependent(node, &mut open);
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
            Needs::All => self.some[to.index()] && !self.may_end(graph, wait, Reduction::Seeming),
            Needs::Any => self.any_waits_are_stuck(graph, waiter, Reduction::Seeming),
        }
    }

    fn evaluate(&self, graph: &WaitGraph<'_>, node: NodeIndex, by: Reduction) -> (bool, bool) {
        match &graph.graph[node] {
            Party::Thread(..) => {
                let waits = self.waiter_is_stuck(graph, node, by);
                (waits, waits)
            }
            Party::Process(_) => {
                let mut members =
                    graph.graph.edges(node).filter(|edge| *edge.weight() == Edge::Member).map(|edge| edge.target());
                let any_member = graph.graph.edges(node).any(|edge| *edge.weight() == Edge::Member);
                let all = any_member && members.all(|member| self.some[member.index()]);
                (all, all)
            }
            hope if *hope == COMING => (by == Reduction::Hopeless, by == Reduction::Hopeless),
            // That a signal may be sent makes no ring of locks look better.
            hope if *hope == ASKED => {
                let is_none = matches!(by, Reduction::Seeming | Reduction::Hopeless);
                (is_none, is_none)
            }
            Party::Absent(..) => {
                // One outside the capture may well let go; one that is gone for good never does.
                let gone = graph
                    .graph
                    .edges_directed(node, Direction::Incoming)
                    .any(|edge| matches!(edge.weight(), Edge::Hold(hold) if graph.hold(*hold).gone.is_some()));
                (gone, gone)
            }
            Party::Resource(key) => {
                let waits = self.waiter_is_stuck(graph, node, by);
                let (mut some, mut every, mut holders, mut is_held, mut is_shut) = (false, true, 0, false, true);
                for edge in graph.graph.edges(node) {
                    match *edge.weight() {
                        Edge::Hold(position) => {
                            holders += 1;
                            let hold = graph.hold(position);
                            // A generator that has stopped holds it for nobody.
                            let goes_on = !matches!(hold.holder, Party::Resource(_))
                                || graph.graph.edges(edge.target()).any(|next| matches!(next.weight(), Edge::Wait(_)));
                            is_held |= hold.certainty > Certainty::Candidate && goes_on;
                            let counts = graph.usable[position] && (by != Reduction::Proven || proves_hold(hold));
                            let holder = self.some[edge.target().index()];
                            some |= counts && holder;
                            // A candidate is a possible way out, whether or not it may be part of a cycle.
                            every &= holder && (by != Reduction::Proven || counts);
                        }
                        Edge::Hope(_) => is_shut &= self.some[edge.target().index()],
                        Edge::Wait(_) | Edge::Member => {}
                    }
                }
                let by_ways = matches!(by, Reduction::Lasting | Reduction::Hopeless) && graph.enclosed.contains(key);
                if !is_held && by_ways {
                    return (is_shut || waits, is_shut || waits);
                }
                // Of what nobody is known to hold, candidates say more than whoever else could give it.
                let is_shut = is_shut || !is_held;
                (is_shut && some || waits, is_shut && holders > 0 && every || waits)
            }
        }
    }

    /// Whether something may end this wait, and no other for the same thing.
    pub(super) fn may_end(&self, graph: &WaitGraph<'_>, wait: usize, by: Reduction) -> bool {
        let hopes = graph.own_hopes.get(&wait).map(Vec::as_slice).unwrap_or_default();
        match by {
            Reduction::Proven => !hopes.is_empty(),
            _ => hopes.iter().any(|hope| !self.some[hope.index()]),
        }
    }

    fn waiter_is_stuck(&self, graph: &WaitGraph<'_>, node: NodeIndex, by: Reduction) -> bool {
        let all = graph.graph.edges(node).any(|edge| match *edge.weight() {
            Edge::Wait(position) => {
                let wait = graph.wait(position);
                wait.needs == Needs::All
                    && self.some[edge.target().index()]
                    && by.counts(wait)
                    && !self.may_end(graph, position, by)
            }
            Edge::Hold(_) | Edge::Member | Edge::Hope(_) => false,
        });
        all || self.any_waits_are_stuck(graph, node, by)
    }

    /// A thread that waits for one of several things goes on with the first of them that comes.
    fn any_waits_are_stuck(&self, graph: &WaitGraph<'_>, node: NodeIndex, by: Reduction) -> bool {
        let mut count = 0;
        for edge in graph.graph.edges(node) {
            let Edge::Wait(position) = *edge.weight() else { continue };
            let wait = graph.wait(position);
            if wait.needs == Needs::Any {
                count += 1;
                if !self.every[edge.target().index()] || !by.counts(wait) || self.may_end(graph, position, by) {
                    return false;
                }
            }
        }
        count > 0
    }
}

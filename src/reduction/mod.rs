//! Reduction of AND/OR graphs: which nodes stay blocked, whatever else happens.
//!
//! In: nodes, each with the condition under which it is blocked ([`Rule`]). Out: a [`Blocked`] set. [`cycles`] searches the
//! shortest cycles of such a set. Nothing here knows threads, ranks or locks: the wait-for graph, the ranks of a job and
//! the threads of a cluster ask the same question.
//!
//! [`Reduction::greatest`] assumes that every node is blocked and takes out whatever can go on, until nothing changes
//! (R. C. Holt, "Some deadlock properties of computer systems", ACM Computing Surveys 4(3), 1972, doi:10.1145/356603.356607).
//! Cycles, knots and their victims remain. [`Reduction::least`] starts from given nodes and adds those that these block.
//! Both take time linear in the number of edges.

pub(crate) mod cycles;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;

/// A node, by its position in the [`Reduction`] that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(usize);

/// When a node is blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It goes on.
    Never,
    /// It is blocked for good.
    Always,
    /// While at least one of these is: it needs all of them.
    Any(Vec<Id>),
    /// While each of these is: one of them is enough for it. Without any, it is blocked.
    All(Vec<Id>),
}

impl Rule {
    fn depends_on(&self) -> &[Id] {
        match self {
            Rule::Never | Rule::Always => &[],
            Rule::Any(nodes) | Rule::All(nodes) => nodes,
        }
    }
}

/// Nodes with their rules. A node that got no rule goes on.
#[derive(Debug)]
pub(crate) struct Reduction<N> {
    ids: HashMap<N, Id>,
    rules: Vec<Rule>,
}

/// The nodes that are blocked.
#[derive(Debug)]
pub(crate) struct Blocked<N> {
    ids: HashMap<N, Id>,
    blocked: Vec<bool>,
}

impl<N> Default for Reduction<N> {
    fn default() -> Self {
        Reduction { ids: HashMap::new(), rules: Vec::new() }
    }
}

impl<N> Default for Blocked<N> {
    fn default() -> Self {
        Blocked { ids: HashMap::new(), blocked: Vec::new() }
    }
}

impl<N: Eq + Hash> Blocked<N> {
    /// Whether this node is blocked.
    pub(crate) fn contains(&self, node: &N) -> bool {
        self.ids.get(node).is_some_and(|id| self.blocked[id.0])
    }

    /// All blocked nodes that have a name, in no order.
    pub(crate) fn into_nodes(self) -> impl Iterator<Item = N> {
        self.ids.into_iter().filter(move |(_, id)| self.blocked[id.0]).map(|(node, _)| node)
    }
}

impl<N: Eq + Hash> Reduction<N> {
    /// The id of a node, which is added if it is new.
    pub(crate) fn node(&mut self, node: N) -> Id {
        *self.ids.entry(node).or_insert_with(|| {
            self.rules.push(Rule::Never);
            Id(self.rules.len() - 1)
        })
    }

    /// Whether the node was added already.
    pub(crate) fn has(&self, node: &N) -> bool {
        self.ids.contains_key(node)
    }

    /// Whether the node got a rule by which it may be blocked.
    pub(crate) fn has_rule(&self, node: &N) -> bool {
        self.ids.get(node).is_some_and(|id| self.rules[id.0] != Rule::Never)
    }

    /// Set the rule of a node.
    pub(crate) fn set(&mut self, node: N, rule: Rule) {
        let id = self.node(node);
        self.rules[id.0] = rule;
    }

    /// Add one more node that blocks this one.
    pub(crate) fn add_cause(&mut self, node: N, cause: Id) {
        let id = self.node(node);
        match &mut self.rules[id.0] {
            Rule::Any(causes) => causes.push(cause),
            Rule::Always => {}
            rule => *rule = Rule::Any(vec![cause]),
        }
    }

    /// A part of a rule that is a rule itself.
    pub(crate) fn part(&mut self, rule: Rule) -> Id {
        self.rules.push(rule);
        Id(self.rules.len() - 1)
    }

    /// The greatest set of blocked nodes that the rules allow.
    pub(crate) fn greatest(self) -> Blocked<N> {
        let dependents = self.dependents();
        let mut blocked = vec![true; self.rules.len()];
        let mut causes: Vec<usize> = self.rules.iter().map(|rule| rule.depends_on().len()).collect();
        let goes_on = |id: &usize| match &self.rules[*id] {
            Rule::Never => true,
            Rule::Any(causes) => causes.is_empty(),
            Rule::Always | Rule::All(_) => false,
        };
        let mut open: Vec<usize> = (0..self.rules.len()).filter(goes_on).collect();
        open.iter().for_each(|id| blocked[*id] = false);
        while let Some(id) = open.pop() {
            for dependent in dependents.of(id) {
                causes[*dependent] -= 1;
                let goes_on = causes[*dependent] == 0 || matches!(self.rules[*dependent], Rule::All(_));
                if goes_on && std::mem::replace(&mut blocked[*dependent], false) {
                    open.push(*dependent);
                }
            }
        }
        Blocked { ids: self.ids, blocked }
    }

    /// The nodes that are blocked if these are: the least set that has them and that the rules allow.
    pub(crate) fn least(self, given: impl IntoIterator<Item = N>) -> Blocked<N> {
        let dependents = self.dependents();
        let mut blocked: Vec<bool> = self
            .rules
            .iter()
            .map(|rule| match rule {
                Rule::Always => true,
                Rule::All(causes) => causes.is_empty(),
                Rule::Never | Rule::Any(_) => false,
            })
            .collect();
        given.into_iter().filter_map(|node| self.ids.get(&node)).for_each(|id| blocked[id.0] = true);
        let mut free: Vec<usize> = self.rules.iter().map(|rule| rule.depends_on().len()).collect();
        let mut open: Vec<usize> = (0..self.rules.len()).filter(|id| blocked[*id]).collect();
        while let Some(id) = open.pop() {
            for dependent in dependents.of(id) {
                free[*dependent] -= 1;
                let is_blocked = free[*dependent] == 0 || matches!(self.rules[*dependent], Rule::Any(_));
                if is_blocked && !std::mem::replace(&mut blocked[*dependent], true) {
                    open.push(*dependent);
                }
            }
        }
        Blocked { ids: self.ids, blocked }
    }

    fn dependents(&self) -> Dependents {
        let mut begins = vec![0; self.rules.len() + 1];
        for cause in self.rules.iter().flat_map(Rule::depends_on) {
            begins[cause.0 + 1] += 1;
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let mut next = begins.clone();
        let mut list = vec![0; begins[self.rules.len()]];
        for (id, rule) in self.rules.iter().enumerate() {
            for cause in rule.depends_on() {
                list[next[cause.0]] = id;
                next[cause.0] += 1;
            }
        }
        Dependents { begins, list }
    }
}

/// For each node, the nodes whose rules name it.
struct Dependents {
    begins: Vec<usize>,
    list: Vec<usize>,
}

impl Dependents {
    fn of(&self, id: usize) -> &[usize] {
        &self.list[self.begins[id]..self.begins[id + 1]]
    }
}

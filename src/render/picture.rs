//! The wait-for graph as nodes and links, for the renderers that draw it.
//!
//! In: a [`Report`]. Out: a [`Picture`]: the nodes, their names, and the red ones. Threads that neither wait nor hold
//! are left out. This module neither escapes nor lays out anything.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::view::{NO_BREAK, View, lost_owner};
use crate::report::{Certainty, Hold, Report, base_name};
use crate::waits::kinds::{Holding, Kind};

/// With more givers than this, a wait beside a cycle has none in the picture.
const MOST_GIVERS: usize = 4;

/// The graph of a report.
#[derive(Debug)]
pub(super) struct Picture {
    /// One for each process.
    pub(super) clusters: Vec<Cluster>,
    /// Resources between processes; empty if the report has one process only.
    pub(super) between: Vec<Node>,
    /// The report has several processes, so that it matters which process a node belongs to.
    pub(super) framed: bool,
    /// Waits and holds.
    pub(super) links: Vec<Link>,
    /// The threads of the first finding.
    told: HashSet<String>,
}

/// A process with its threads and what is waited for in it.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) id: String,
    pub(super) label: String,
    pub(super) nodes: Vec<Node>,
}

/// A thread, a whole process, or a resource.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) label: String,
    /// The common name of many things like it.
    pub(super) general: String,
    pub(super) shape: Shape,
    /// Part of a cycle.
    pub(super) red: bool,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A waiter and holder: a thread, or any thread of a process.
    Thread,
    /// A resource inside of a process: a lock, a queue, a task.
    Resource,
    /// A resource that leads out of the process: a pipe, a child, the GPU, the time.
    Outside,
    /// Any thread of a process that has several.
    Process,
}

/// From a waiter to a resource, or from a resource to its holder.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) from: String,
    pub(super) to: String,
    /// `read`, `write`; often empty.
    pub(super) label: String,
    /// The text beside it: "waits at a.py:14", "held by".
    pub(super) words: String,
    pub(super) certainty: Certainty,
    pub(super) evidence: String,
    /// Part of a cycle.
    pub(super) red: bool,
}

impl Picture {
    /// Draw up the graph of `report`.
    pub(super) fn of(report: &Report) -> Picture {
        let view = View::new(report, "<-");
        let names = Names::of(report);
        let red = Red::of(report, &names);
        let framed = report.processes.len() > 1;
        let mut threads: BTreeMap<&str, BTreeMap<String, (String, Shape)>> = BTreeMap::new();
        let mut links = Vec::new();
        let mut link = |from: &str,
                        to: &str,
                        certainty: Certainty,
                        mode: Option<&str>,
                        evidence: &[String],
                        words: String| {
            let pair = (from.to_string(), to.to_string());
            let red = red.links.contains(&pair);
            let label = mode.unwrap_or_default().to_string();
            links.push(Link { from: pair.0, to: pair.1, label, certainty, words, evidence: evidence.join("; "), red });
        };
        for wait in &report.waits {
            let waiter = names.node(&wait.process, wait.tid, wait.waiter_resource.as_deref());
            if wait.waiter_resource.is_none() {
                let thread = names.thread(&view, &wait.process, wait.tid);
                threads.entry(&wait.process).or_default().insert(waiter.clone(), thread);
            }
            let words = match view.wait_line(wait) {
                Some(line) => format!("waits at {line}"),
                None => "waits".to_owned(),
            };
            link(&waiter, &wait.resource, wait.certainty, wait.mode.as_deref(), &wait.evidence, words);
        }
        for hold in &report.holds {
            let holder = names.holder(hold);
            let thread = match hold.gone {
                Some(_) => (lost_owner(hold), Shape::Thread),
                None => names.thread(&view, &hold.process, hold.tid),
            };
            // A task is a node of its own.
            if hold.holder_resource.is_none() || hold.gone.is_some() {
                threads.entry(&hold.process).or_default().insert(holder.clone(), thread);
            }
            let holds = view.resource(&hold.resource).is_none_or(|one| one.properties().holding == Holding::Holds);
            let words = match (&hold.taken, holds) {
                (Some(taken), true) => format!("held since {}:{}", base_name(&taken.file), taken.line),
                (None, true) => "held by".to_owned(),
                _ => String::new(),
            };
            link(&hold.resource, &holder, hold.certainty, hold.mode.as_deref(), &hold.evidence, words);
        }
        let joined = joined(&view, &mut links);
        let mut processes: BTreeMap<&str, Vec<Node>> = BTreeMap::new();
        let mut home: HashMap<String, &str> = HashMap::new();
        let node = |id: &str, label: &str, shape| Node {
            id: id.to_string(),
            label: spaced(label),
            general: spaced(
                view.resource(id).map(|one| one.called_in_general().to_string()).as_deref().unwrap_or(label),
            ),
            shape,
            red: red.nodes.contains(id),
        };
        for (process, threads) in &threads {
            for (id, (label, shape)) in threads {
                home.insert(id.clone(), process);
                processes.entry(process).or_default().push(node(id, label, *shape));
            }
        }
        let touched = touched_by(&links, &home);
        let mut between = Vec::new();
        for resource in report.resources.iter().filter(|one| !joined.contains(&one.id)) {
            let shape = shape_of(resource.properties());
            let one = node(&resource.id, &view.short_name(&resource.id), shape);
            let by = touched.get(&resource.id);
            if framed && (shape == Shape::Outside || by.is_some_and(|by| by.len() > 1)) {
                between.push(one);
            } else {
                let own = by.and_then(|by| by.first()).copied().unwrap_or(resource.process.as_str());
                processes.entry(own).or_default().push(one);
            }
        }
        let clusters = processes.into_iter().map(|(process, nodes)| Cluster {
            id: process.to_string(),
            label: spaced(&view.process_name(process)),
            nodes,
        });
        let told = report.findings.first().map(|finding| finding.threads.as_slice()).unwrap_or_default();
        let told = told.iter().map(|thread| names.node(&thread.process, Some(thread.tid), None)).collect();
        Picture { clusters: clusters.collect(), between, framed, links, told }
    }

    /// All nodes: those of the processes, then those between them.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.clusters.iter().flat_map(|cluster| &cluster.nodes).chain(&self.between)
    }

    /// Beside a cycle: leaves out the givers of a wait that many can end, as a parent's for any of its children. A line
    /// to each of them crosses the cycle.
    fn drop_many_givers(&mut self, threads: &HashSet<String>) {
        let mut givers: HashMap<&str, (usize, bool)> = HashMap::new();
        for link in self.links.iter().filter(|link| threads.contains(&link.to)) {
            let (count, is_red) = givers.entry(&link.from).or_default();
            (*count, *is_red) = (*count + 1, *is_red || link.red);
        }
        let many = givers.iter().filter(|(_, (count, is_red))| *count > MOST_GIVERS && !is_red);
        let many: HashSet<String> = many.map(|(id, _)| (*id).to_owned()).collect();
        self.links.retain(|link| !many.contains(&link.from));
    }

    /// The part that a picture can show: the cycles and everything that leads to them. Without a cycle, the waits of a
    /// finding with everything that hangs on them. Without a finding, all holds; else the waits. Returns at most `most`
    /// links, and how many were left out.
    pub(super) fn reduced(mut self, most: usize) -> (Picture, usize) {
        let holders = self.nodes().filter(|node| matches!(node.shape, Shape::Thread | Shape::Process));
        let threads: HashSet<String> = holders.map(|node| node.id.clone()).collect();
        // Holds lead from resources to threads.
        let is_hold = |link: &Link| threads.contains(&link.to);
        let wanted = if self.links.iter().any(|link| link.red) {
            self.drop_many_givers(&threads);
            self.joined_to(|link| link.red)
        } else if self.links.iter().any(|link| self.told.contains(&link.from)) {
            self.joined_to(|link| self.told.contains(&link.from))
        } else if self.links.iter().any(is_hold) {
            self.joined_to(is_hold)
        } else {
            self.joined_to(|_| true)
        };
        self.links.retain(|link| wanted.contains(&link.from));
        self.join_pools();
        self.join_equal_waiters();
        let before = self.links.len();
        self.links.sort_by_key(|link| !link.red);
        self.links.truncate(most);
        let shown: HashSet<&str> = self.links.iter().flat_map(|link| [link.from.as_str(), link.to.as_str()]).collect();
        for cluster in &mut self.clusters {
            cluster.nodes.retain(|node| shown.contains(node.id.as_str()));
        }
        self.between.retain(|node| shown.contains(node.id.as_str()));
        self.clusters.retain(|cluster| !cluster.nodes.is_empty());
        let left_out = before - self.links.len();
        (self, left_out)
    }

    /// Many threads that do nothing but wait for one thing are one node: a hundred arrows side by side show no more.
    fn join_equal_waiters(&mut self) {
        /// So many stay nodes of their own.
        const FEW: usize = 3;
        let mut degree: HashMap<&str, usize> = HashMap::new();
        for end in self.links.iter().flat_map(|link| [link.from.as_str(), link.to.as_str()]) {
            *degree.entry(end).or_default() += 1;
        }
        let mut alike: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
        for cluster in &self.clusters {
            let single: HashSet<&str> = cluster
                .nodes
                .iter()
                .filter(|node| node.shape == Shape::Thread && !node.red)
                .map(|node| node.id.as_str())
                .filter(|id| degree.get(id) == Some(&1))
                .collect();
            for link in self.links.iter().filter(|link| single.contains(link.from.as_str())) {
                alike.entry((&cluster.id, &link.to, &link.label)).or_default().push(&link.from);
            }
        }
        let mut more: HashMap<String, usize> = HashMap::new();
        let mut gone: HashSet<String> = HashSet::new();
        for threads in alike.into_values().filter(|threads| threads.len() > FEW) {
            if let [first, rest @ ..] = threads.as_slice() {
                more.insert(first.to_string(), rest.len());
                gone.extend(rest.iter().map(|id| id.to_string()));
            }
        }
        self.links.retain(|link| !gone.contains(&link.from));
        for node in self.clusters.iter_mut().flat_map(|cluster| &mut cluster.nodes) {
            if let Some(more) = more.get(&node.id) {
                node.label.push_str(&format!(" and {more} more threads"));
            }
        }
    }

    /// The nodes that are linked, over any number of steps in either direction, with a link of this kind.
    fn joined_to(&self, kind: impl Fn(&Link) -> bool) -> HashSet<String> {
        let mut neighbours: HashMap<&str, Vec<&str>> = HashMap::new();
        for link in &self.links {
            neighbours.entry(&link.from).or_default().push(&link.to);
            neighbours.entry(&link.to).or_default().push(&link.from);
        }
        let mut ahead: Vec<&str> = self.links.iter().filter(|link| kind(link)).map(|link| link.from.as_str()).collect();
        let mut joined = HashSet::new();
        while let Some(node) = ahead.pop() {
            if joined.insert(node.to_owned()) {
                ahead.extend(neighbours.get(node).into_iter().flatten());
            }
        }
        joined
    }
}

fn shape_of(kind: &Kind) -> Shape {
    if kind.is_outside() { Shape::Outside } else { Shape::Resource }
}

/// Nodes and links of all cycles.
#[derive(Default)]
struct Red {
    nodes: HashSet<String>,
    links: HashSet<(String, String)>,
}

impl Red {
    fn of(report: &Report, names: &Names) -> Red {
        let mut red = Red::default();
        for edge in report.cycles.iter().flat_map(|cycle| &cycle.edges) {
            let waiter = names.node(&edge.process, edge.waiter, edge.waiter_resource.as_deref());
            let holder = names.node(&edge.holder_process, edge.holder, edge.holder_resource.as_deref());
            red.links.insert((waiter.clone(), edge.resource.clone()));
            red.links.insert((edge.resource.clone(), holder.clone()));
            red.nodes.extend([waiter, edge.resource.clone(), holder]);
        }
        // Without a cycle, the permanent hang is that of the waiters for an owner that is gone.
        let lost = report.holds.iter().filter(|hold| hold.gone.is_some() && report.cycles.is_empty());
        for hold in lost {
            let holder = names.holder(hold);
            for wait in report.waits.iter().filter(|wait| wait.resource == hold.resource) {
                let waiter = names.node(&wait.process, wait.tid, wait.waiter_resource.as_deref());
                red.links.insert((waiter.clone(), wait.resource.clone()));
                red.links.insert((wait.resource.clone(), holder.clone()));
                red.nodes.extend([waiter, wait.resource.clone(), holder.clone()]);
            }
        }
        red
    }
}

/// Names of nodes.
struct Names<'a> {
    /// The thread of each process that has but one: whatever its process holds, that thread holds.
    only: HashMap<&'a str, i32>,
    several: bool,
}

impl<'a> Names<'a> {
    fn of(report: &'a Report) -> Names<'a> {
        let single = report.processes.iter().filter_map(|process| match process.threads.as_slice() {
            [thread] => Some((process.id.as_str(), thread.tid)),
            _ => None,
        });
        Names { only: single.collect(), several: report.processes.len() > 1 }
    }

    /// The name of a node: a thread's, a resource's or a whole process's.
    fn node(&self, process: &str, tid: Option<i32>, resource: Option<&str>) -> String {
        match (tid.or(self.only.get(process).copied().filter(|_| resource.is_none())), resource) {
            (Some(tid), _) => format!("{process}_{tid}"),
            (None, Some(resource)) => resource.to_string(),
            (None, None) => format!("{process}_any"),
        }
    }

    /// The node of a holder. A holder that is gone is none of the nodes, even if its process has one thread only.
    fn holder(&self, hold: &Hold) -> String {
        match hold.gone {
            Some(_) => format!("{}_gone_{}", hold.process, hold.tid.unwrap_or_default()),
            None => self.node(&hold.process, hold.tid, hold.holder_resource.as_deref()),
        }
    }

    /// The name of a thread, or of a whole process, inside of its process, and its shape.
    fn thread(&self, view: &View, process: &str, tid: Option<i32>) -> (String, Shape) {
        match tid.or(self.only.get(process).copied()) {
            Some(tid) => {
                let short = view.thread(process, tid).filter(|thread| self.several && !thread.name.is_empty());
                let name = short.map(|thread| format!("{} ({tid})", thread.name));
                (name.unwrap_or_else(|| view.thread_name(process, tid)), Shape::Thread)
            }
            None => (format!("any thread of {}", view.process_name(process)), Shape::Process),
        }
    }
}

/// Let links lead right to a thread that is waited for by name; without the things that stood between, which are given back.
fn joined(view: &View, links: &mut Vec<Link>) -> HashSet<String> {
    let mut threads: HashMap<String, Vec<String>> = HashMap::new();
    for link in links.iter() {
        if link.from != link.to && view.resource(&link.from).is_some_and(|one| one.properties().holding == Holding::Is)
        {
            threads.entry(link.from.clone()).or_default().push(link.to.clone());
        }
    }
    threads.retain(|_, threads| threads.len() == 1);
    links.retain(|link| !threads.contains_key(&link.from));
    for link in links.iter_mut() {
        if let Some([thread]) = threads.get(&link.to).map(Vec::as_slice) {
            link.to.clone_from(thread);
        }
    }
    threads.into_keys().collect()
}

/// The processes whose threads each resource is linked with.
fn touched_by<'a>(links: &[Link], home: &HashMap<String, &'a str>) -> HashMap<String, BTreeSet<&'a str>> {
    let mut touched: HashMap<String, BTreeSet<&str>> = HashMap::new();
    for link in links {
        for (resource, thread) in [(&link.from, &link.to), (&link.to, &link.from)] {
            if let Some(process) = home.get(thread) {
                touched.entry(resource.clone()).or_default().insert(process);
            }
        }
    }
    touched
}

fn spaced(text: &str) -> String {
    // Labels are code as a whole.
    text.replace(NO_BREAK, " ").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::seed;

    #[test]
    fn an_owner_that_is_gone_is_no_thread_that_is_there() {
        let mut report = seed();
        report.cycles.clear();
        report.processes[0].threads.truncate(1);
        report.waits.truncate(1);
        report.holds.truncate(1);
        report.holds[0].resource = report.waits[0].resource.clone();
        (report.holds[0].tid, report.holds[0].gone) = (None, Some(crate::report::Gone::LeftInParent));
        let (picture, _) = Picture::of(&report).reduced(60);
        let labels: Vec<&str> = picture.nodes().filter(|node| node.red).map(|node| node.label.as_str()).collect();
        assert!(labels.contains(&"MainThread (533)") && labels.contains(&"lost owner, gone"), "{labels:?}");
        assert!(picture.links.iter().all(|link| link.red) && picture.links.len() == 2, "{:?}", picture.links);
    }

    #[test]
    fn many_equal_waiters_are_one_node_and_idle_threads_none() {
        let mut report = seed();
        let cycle = Picture::of(&report).links.iter().filter(|link| link.red).count();
        let gil = report.resources.iter().find(|one| one.is_gil()).expect("a GIL").id.clone();
        let wait = report.waits[0].clone();
        for tid in 600..700 {
            report.waits.push(crate::report::Wait { tid: Some(tid), resource: gil.clone(), ..wait.clone() });
        }
        let queue = crate::report::Resource { id: "r99".into(), ..report.resources[0].clone() };
        report.resources.push(queue);
        report.waits.push(crate::report::Wait { tid: Some(800), resource: "r99".into(), ..wait });
        let (picture, left_out) = Picture::of(&report).reduced(60);
        let nodes: Vec<&Node> = picture.clusters.iter().flat_map(|cluster| &cluster.nodes).collect();
        assert_eq!(picture.links.iter().filter(|link| link.red).count(), cycle);
        let joined = nodes.iter().filter(|node| node.label.ends_with("more threads")).count();
        assert!(joined == 1 && nodes.len() < 10, "{nodes:?}");
        assert!(left_out == 0 && !nodes.iter().any(|node| node.id == "r99"), "{nodes:?}");
    }

    #[test]
    fn without_a_cycle_the_picture_is_that_of_the_finding() {
        let mut report = seed();
        report.cycles.clear();
        let wait = report.waits[0].clone();
        let result = crate::report::Resource { id: "r99".into(), ..report.resources[0].clone() };
        report.resources.push(result);
        report.waits.push(crate::report::Wait { tid: Some(800), resource: "r99".into(), ..wait.clone() });
        let told = crate::report::ThreadReference { process: wait.process, tid: 800 };
        report.findings[0].threads = vec![told];
        let (picture, _) = Picture::of(&report).reduced(60);
        let links: Vec<&str> = picture.links.iter().map(|link| link.to.as_str()).collect();
        assert_eq!(links, ["r99"], "who holds what elsewhere is no part of it");
    }
}

//! The wait-for graph for Graphviz: threads are boxes, resources ellipses, the cycle red.
//!
//! An edge from a thread to a resource is a wait, from a resource to its holder a hold. Exact edges are solid,
//! inferred ones dashed, candidates dotted. Threads that neither wait nor hold are left out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::io;

use super::escape;
use super::view::{NO_BREAK, View};
use crate::report::{Certainty, Gone, Report};

/// Write `report` as a digraph.
pub fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    out.write_all(graph(report).as_bytes())
}

/// Nodes and edges of all cycles.
#[derive(Default)]
struct Red {
    nodes: HashSet<String>,
    edges: HashSet<(String, String)>,
}

impl Red {
    fn of(report: &Report) -> Red {
        let mut red = Red::default();
        for edge in report.cycles.iter().flat_map(|cycle| &cycle.edges) {
            let waiter = node(&edge.process, edge.waiter, edge.waiter_resource.as_deref());
            let holder = node(&edge.holder_process, edge.holder, edge.holder_resource.as_deref());
            red.edges.insert((waiter.clone(), edge.resource.clone()));
            red.edges.insert((edge.resource.clone(), holder.clone()));
            red.nodes.extend([waiter, edge.resource.clone(), holder]);
        }
        red
    }

    fn mark(&self, red: bool) -> &'static str {
        if red { ", color=red, penwidth=2" } else { "" }
    }
}

/// The name of a node: a thread's, a resource's or a whole process's.
fn node(process: &str, tid: Option<i32>, resource: Option<&str>) -> String {
    match (tid, resource) {
        (Some(tid), _) => format!("{process}_{tid}"),
        (None, Some(resource)) => resource.to_string(),
        (None, None) => format!("{process}_any"),
    }
}

fn graph(report: &Report) -> String {
    let view = View::new(report, "<-");
    let red = Red::of(report);
    let mut nodes: BTreeMap<&str, BTreeSet<(String, String)>> = BTreeMap::new();
    let mut edges = String::new();
    let mut edge = |from: &str, to: &str, certainty: Certainty, mode: Option<&str>, evidence: &[String]| {
        let style = match certainty {
            Certainty::Exact => "solid",
            Certainty::Inferred => "dashed",
            Certainty::Candidate => "dotted",
        };
        let red = red.mark(red.edges.contains(&(from.to_string(), to.to_string())));
        // Writing to a String cannot fail.
        let _ = writeln!(
            edges,
            "  {} -> {} [style={style}, label={}, tooltip={}{red}];",
            quote(from),
            quote(to),
            quote(mode.unwrap_or_default()),
            quote(&evidence.join("; ")),
        );
    };
    for wait in &report.waits {
        let waiter = node(&wait.process, wait.tid, wait.waiter_resource.as_deref());
        if wait.waiter_resource.is_none() {
            let label = box_label(&view, &wait.process, wait.tid, None);
            nodes.entry(&wait.process).or_default().insert((waiter.clone(), label));
        }
        edge(&waiter, &wait.resource, wait.certainty, wait.mode.as_deref(), &wait.evidence);
    }
    for hold in &report.holds {
        let holder = node(&hold.process, hold.tid, None);
        let label = box_label(&view, &hold.process, hold.tid, hold.gone);
        nodes.entry(&hold.process).or_default().insert((holder.clone(), label));
        edge(&hold.resource, &holder, hold.certainty, hold.mode.as_deref(), &hold.evidence);
    }
    let mut text = format!("digraph lockscope {{\n  label={};\n  rankdir=LR;\n", quote(&report.summary));
    let mut processes: BTreeSet<&str> = nodes.keys().copied().collect();
    processes.extend(report.resources.iter().map(|resource| resource.process.as_str()));
    for process in processes {
        let _ = writeln!(text, "  subgraph {} {{", quote(&format!("cluster_{process}")));
        let _ = writeln!(text, "    label={};", quote(&view.process_name(process)));
        for (name, label) in nodes.get(process).into_iter().flatten() {
            let red = red.mark(red.nodes.contains(name));
            let _ = writeln!(text, "    {} [shape=box, label={}{red}];", quote(name), quote(label));
        }
        for resource in report.resources.iter().filter(|resource| resource.process == process) {
            let red = red.mark(red.nodes.contains(&resource.id));
            let label = quote(&view.resource_name(&resource.id));
            let _ = writeln!(text, "    {} [shape=ellipse, label={label}{red}];", quote(&resource.id));
        }
        text.push_str("  }\n");
    }
    text.push_str(&edges);
    text.push_str("}\n");
    text
}

fn box_label(view: &View, process: &str, tid: Option<i32>, gone: Option<Gone>) -> String {
    let name = match tid {
        Some(tid) => view.thread_name(process, tid),
        None => format!("any thread of {}", view.process_name(process)),
    };
    if gone.is_some() { format!("{name}, gone") } else { name }
}

/// A quoted DOT string: quotes and backslashes escaped, no control characters.
fn quote(text: &str) -> String {
    let text = escape(&text.replace(NO_BREAK, " "));
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::{empty, seed};

    #[test]
    fn the_cycle_is_red_and_the_rest_is_not() {
        let text = graph(&seed());
        assert!(text.starts_with("digraph lockscope {\n"));
        assert!(text.contains("\"p0_533\" [shape=box, label=\"MainThread (533)\", color=red, penwidth=2];"), "{text}");
        assert!(text.contains("\"r1\" [shape=ellipse, label=\"rwlock 0x33b84080\", color=red, penwidth=2];"), "{text}");
        assert!(text.contains("\"p0_533\" -> \"r1\" [style=solid, label=\"read\", tooltip=\""), "{text}");
        let victim = text.lines().find(|line| line.contains("\"p0_550\" -> ")).unwrap();
        assert!(!victim.contains("red"), "{victim}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn strings_of_the_target_stay_inside_their_quotes() {
        let mut report = seed();
        report.processes[0].threads[0].name = "a\"] ; b\\ \n".to_string();
        let text = graph(&report);
        assert!(text.contains(r#""a\"] ; b\\ \\n (533)""#), "{text}");
    }

    #[test]
    fn an_empty_report_is_a_graph() {
        assert!(graph(&empty()).ends_with("}\n"));
    }
}

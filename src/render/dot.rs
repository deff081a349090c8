//! The wait-for graph for Graphviz: threads are boxes, resources ellipses, what leads outside hexagons, the cycle red.
//!
//! An edge from a thread to a resource is a wait, from a resource to its holder a hold. Exact edges are solid,
//! inferred ones dashed, candidates dotted. Threads that neither wait nor hold are left out.

use std::fmt::Write as _;
use std::io;

use super::escape;
use super::picture::{Node, Picture, Shape};
use crate::report::{Certainty, Report};

/// Write `report` as a digraph.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    out.write_all(graph(report).as_bytes())
}

fn mark(red: bool) -> &'static str {
    if red { ", color=red, penwidth=2" } else { "" }
}

fn graph(report: &Report) -> String {
    let picture = Picture::of(report);
    let mut text = format!("digraph lockscope {{\n  label={};\n  rankdir=LR;\n", quote(&report.summary));
    // Writing to a String cannot fail.
    let node = |text: &mut String, node: &Node, indent: &str| {
        let shape = match node.shape {
            Shape::Thread | Shape::Process => "box",
            Shape::Resource => "ellipse",
            Shape::Outside => "hexagon",
        };
        let (id, label, red) = (quote(&node.id), quote(&node.label), mark(node.red));
        let _ = writeln!(text, "{indent}{id} [shape={shape}, label={label}{red}];");
    };
    for cluster in &picture.clusters {
        let _ = writeln!(text, "  subgraph {} {{", quote(&format!("cluster_{}", cluster.id)));
        let _ = writeln!(text, "    label={};", quote(&cluster.label));
        cluster.nodes.iter().for_each(|one| node(&mut text, one, "    "));
        text.push_str("  }\n");
    }
    picture.between.iter().for_each(|one| node(&mut text, one, "  "));
    for link in &picture.links {
        let style = match link.certainty {
            Certainty::Exact => "solid",
            Certainty::Inferred => "dashed",
            Certainty::Candidate => "dotted",
        };
        let (from, to, label) = (quote(&link.from), quote(&link.to), quote(&link.label));
        let (tooltip, red) = (quote(&link.evidence), mark(link.red));
        let _ = writeln!(text, "  {from} -> {to} [style={style}, label={label}, tooltip={tooltip}{red}];");
    }
    text.push_str("}\n");
    text
}

/// A quoted DOT string: quotes and backslashes escaped, no control characters, and no character references, which Graphviz reads in
/// labels.
fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text).replace('\\', "\\\\").replace('"', "\\\"").replace('&', "&amp;"))
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

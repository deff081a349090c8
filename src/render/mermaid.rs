//! The wait-for graph for Mermaid, which GitHub, GitLab and many wikis draw: threads are boxes, resources
//! rounded, what leads outside hexagons, cycles red.
//!
//! Exact links are solid, the others dotted and named. Large graphs are cut down to the cycles and what fits, since Mermaid
//! refuses more than 500 links.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;

use super::escape;
use super::picture::{Node, Picture, Shape};
use crate::report::{Certainty, Report};

/// Most links: more are no picture any more.
const MOST_LINKS: usize = 120;

/// Write `report` as a flowchart.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    out.write_all(graph(report).as_bytes())
}

/// The flowchart, without a fence.
pub(super) fn graph(report: &Report) -> String {
    let (picture, left_out) = Picture::of(report).reduced(MOST_LINKS);
    let mut text = "flowchart LR\n".to_string();
    let mut names: HashMap<String, String> = HashMap::new();
    let mut red_nodes = Vec::new();
    let mut draw = |text: &mut String, node: &Node, indent: &str| {
        // Ids of our own: a word such as `end` is none that Mermaid takes.
        let name = format!("n{}", names.len());
        let (open, close) = match node.shape {
            Shape::Thread | Shape::Process => ("[", "]"),
            Shape::Resource => ("([", "])"),
            Shape::Outside => ("{{", "}}"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{indent}{name}{open}{}{close}", quote(&node.label));
        if node.red {
            red_nodes.push(name.clone());
        }
        names.insert(node.id.clone(), name);
    };
    for (number, cluster) in picture.clusters.iter().enumerate() {
        let _ = writeln!(text, "  subgraph c{number}[{}]", quote(&cluster.label));
        cluster.nodes.iter().for_each(|node| draw(&mut text, node, "    "));
        text.push_str("  end\n");
    }
    picture.between.iter().for_each(|node| draw(&mut text, node, "  "));
    let mut red_links = Vec::new();
    let mut drawn = 0;
    for link in &picture.links {
        let (Some(from), Some(to)) = (names.get(link.from.as_str()), names.get(link.to.as_str())) else { continue };
        let sure = match link.certainty {
            Certainty::Exact => "",
            Certainty::Inferred => "inferred",
            Certainty::Candidate => "candidate",
        };
        let label = [link.label.as_str(), sure].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        let label = if label.is_empty() { String::new() } else { format!("|{}|", quote(&label.join(", "))) };
        let arrow = if link.certainty == Certainty::Exact { "-->" } else { "-.->" };
        let _ = writeln!(text, "  {from} {arrow}{label} {to}");
        if link.red {
            red_links.push(drawn.to_string());
        }
        drawn += 1;
    }
    if !red_nodes.is_empty() {
        let _ = writeln!(text, "  classDef cycle stroke:#d1242f,stroke-width:3px");
        let _ = writeln!(text, "  class {} cycle", red_nodes.join(","));
    }
    if !red_links.is_empty() {
        let _ = writeln!(text, "  linkStyle {} stroke:#d1242f,stroke-width:3px", red_links.join(","));
    }
    if left_out > 0 {
        let _ = writeln!(text, "  %% {left_out} more waits and holds are in the report");
    }
    text
}

/// A quoted string of Mermaid: entities for what has a meaning in it, or in HTML.
fn quote(text: &str) -> String {
    let mut quoted = "\"".to_string();
    for letter in escape(text).chars() {
        match letter {
            '"' | '<' | '>' | '&' | '#' | ';' | '\\' | '`' | '*' | '_' => {
                let _ = write!(quoted, "#{};", u32::from(letter));
            }
            other => quoted.push(other),
        }
    }
    if text.is_empty() {
        // Nothing between quotes is an error.
        quoted.push(' ');
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::{empty, seed};

    #[test]
    fn the_cycle_is_red_and_hostile_names_stay_names() {
        let mut report = seed();
        report.processes[0].threads[0].name = "a\"] --> end; <script>\n".to_string();
        let text = graph(&report);
        assert!(text.starts_with("flowchart LR\n") && text.contains("linkStyle 0,"), "{text}");
        assert!(text.contains("a#34;] --#62; end#59; #60;script#62;#92;n (533)"), "{text}");
        assert_eq!(text.matches("subgraph").count(), text.lines().filter(|line| line.trim() == "end").count());
        assert_eq!(graph(&empty()), "flowchart LR\n");
    }
}

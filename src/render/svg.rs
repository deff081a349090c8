//! The wait-for graph as a picture: threads are boxes, locks rounded, what leads outside has slanted ends, cycles are red.
//!
//! In: a [`Report`]. Out: an SVG that needs nothing else: no script, no font, no network. `layout-rs` decides where things
//! stand; what they look like is written here, since colours follow the reader's light or dark scheme, and each thing has a
//! title with its evidence. Exact links are drawn through, inferred ones dashed, candidates dotted.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::{LineStyleKind, StyleAttr};
use layout::std_shapes::shapes::{Arrow, Element, LineEndKind, ShapeKind};
use layout::topo::layout::VisualGraph;

use super::picture::{Link, Node, Picture, Shape};
use super::{certainty_word, escape};
use crate::report::Report;

/// More links than these are no picture any more.
const MOST_LINKS: usize = 60;
/// Characters of a line of a label, and lines.
const LINE: usize = 30;
const MOST_LINES: usize = 4;
/// A character of a monospaced font of 13 px, and a line of it.
const CHARACTER: f64 = 8.0;
const LINE_HEIGHT: f64 = 17.0;
/// Around the picture.
const MARGIN: f64 = 16.0;

/// How the picture looks: the HTML report takes it over for its own.
pub(super) const STYLE: &str = include_str!("graph.css");

/// Write `report` as a picture of its own.
pub fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    out.write_all(graph(report, true).as_bytes())
}

/// The picture; with its style, or as a part of a page that has it.
pub(super) fn graph(report: &Report, with_style: bool) -> String {
    let (picture, left_out) = Picture::of(report).reduced(MOST_LINKS);
    let drawn = Drawn::of(&picture);
    let (least, most) = drawn.bounds();
    let (width, height) = (most.x - least.x + 2.0 * MARGIN, most.y - least.y + 2.0 * MARGIN + LINE_HEIGHT);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" role=\"img\" viewBox=\"{:.0} {:.0} {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\"><title>{}</title>",
        least.x - MARGIN,
        least.y - MARGIN,
        markup(&report.summary)
    );
    if with_style {
        let _ = writeln!(text, "<style>{STYLE}</style>");
    }
    for class in ["end", "end-cycle"] {
        let _ = writeln!(
            text,
            "<defs><marker id=\"{class}\" class=\"{class}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0 10 5 0 10z\"/></marker></defs>"
        );
    }
    for (link, path) in picture.links.iter().zip(&drawn.links) {
        if let Some(path) = path {
            draw_link(&mut text, link, path);
        }
    }
    for (index, node) in picture.clusters.iter().flat_map(|cluster| &cluster.nodes).enumerate() {
        if let Some((corner, size)) = drawn.nodes.get(&index) {
            draw_node(&mut text, node, *corner, *size);
        }
    }
    if left_out > 0 {
        let (x, y) = (least.x, most.y + MARGIN + LINE_HEIGHT / 2.0);
        let _ = writeln!(
            text,
            "<text class=\"note\" x=\"{x:.0}\" y=\"{y:.0}\">{left_out} more waits and holds are not drawn</text>"
        );
    }
    text.push_str("</svg>\n");
    text
}

fn draw_link(text: &mut String, link: &Link, path: &str) {
    let sure = certainty_word(link.certainty);
    let (cycle, end) = if link.red { (" cycle", "end-cycle") } else { ("", "end") };
    let mode = if link.label.is_empty() { String::new() } else { format!("{}, ", link.label) };
    let _ = writeln!(
        text,
        "<path class=\"link {sure}{cycle}\" d=\"{path}\" marker-end=\"url(#{end})\"><title>{}</title></path>",
        markup(&format!("{mode}{sure}: {}", link.evidence))
    );
}

fn draw_node(text: &mut String, node: &Node, corner: Point, size: Point) {
    let (x, y, width, height) = (corner.x, corner.y, size.x, size.y);
    let class = match node.shape {
        Shape::Thread => "thread",
        Shape::Resource => "resource",
        Shape::Outside => "outside",
    };
    let cycle = if node.red { " cycle" } else { "" };
    let _ = writeln!(text, "<g class=\"node {class}{cycle}\"><title>{}</title>", markup(&node.label));
    let _ = match node.shape {
        Shape::Outside => {
            let slant = height / 3.0;
            writeln!(
                text,
                "<path d=\"M{:.1} {y:.1}H{:.1}L{:.1} {:.1}L{:.1} {:.1}H{:.1}L{x:.1} {:.1}z\"/>",
                x + slant,
                x + width - slant,
                x + width,
                y + height / 2.0,
                x + width - slant,
                y + height,
                x + slant,
                y + height / 2.0
            )
        }
        shape => {
            let round = if shape == Shape::Thread { 3.0 } else { height / 2.0 };
            writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round:.1}\"/>"
            )
        }
    };
    let lines = lines(&node.label);
    let first = y + height / 2.0 - (lines.len() as f64 - 1.0) * LINE_HEIGHT / 2.0;
    for (number, line) in lines.iter().enumerate() {
        let (x, y) = (x + width / 2.0, first + number as f64 * LINE_HEIGHT);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", markup(line));
    }
    text.push_str("</g>\n");
}

/// A label in lines that fit.
fn lines(label: &str) -> Vec<String> {
    let label = escape(label);
    let mut lines: Vec<String> = textwrap::wrap(&label, textwrap::Options::new(LINE).break_words(true))
        .iter()
        .map(|line| line.to_string())
        .collect();
    if lines.len() > MOST_LINES {
        lines.truncate(MOST_LINES);
        if let Some(last) = lines.last_mut() {
            *last = format!("{}…", last.chars().take(LINE - 1).collect::<String>());
        }
    }
    lines
}

/// Text between tags, or in an attribute.
fn markup(text: &str) -> String {
    let text = escape(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where things stand: nodes by their number over all clusters, links as paths.
#[derive(Default)]
struct Drawn {
    nodes: HashMap<usize, (Point, Point)>,
    links: Vec<Option<String>>,
    points: Vec<Point>,
}

impl Drawn {
    fn of(picture: &Picture) -> Drawn {
        /// The layout counts so many pixels a character, in both directions; room is asked for by lines of such.
        const UNIT: f64 = 8.0;
        let look = || StyleAttr { font_size: UNIT as usize, ..StyleAttr::simple() };
        let mut graph = VisualGraph::new(Orientation::LeftToRight);
        let mut handles = HashMap::new();
        for (index, node) in picture.clusters.iter().flat_map(|cluster| &cluster.nodes).enumerate() {
            let lines = lines(&node.label);
            let widest = lines.iter().map(|line| textwrap::core::display_width(line)).max().unwrap_or(1);
            // Round and slanted ends leave less room.
            let around = if node.shape == Shape::Thread { 24.0 } else { 24.0 + lines.len() as f64 * LINE_HEIGHT / 2.0 };
            let columns = ((widest as f64 * CHARACTER + around) / UNIT).ceil() as usize;
            let rows = ((lines.len() as f64 * LINE_HEIGHT + 10.0) / UNIT).ceil() as usize;
            let room = vec!["x".repeat(columns); rows].join("\n");
            let size = Point::new(columns as f64 * UNIT, rows as f64 * UNIT);
            let element = Element::create_with_properties(
                ShapeKind::new_box(&room),
                look(),
                Orientation::LeftToRight,
                size,
                index.to_string(),
            );
            handles.insert(node.id.as_str(), graph.add_node(element));
        }
        for (index, link) in picture.links.iter().enumerate() {
            let (Some(from), Some(to)) = (handles.get(link.from.as_str()), handles.get(link.to.as_str())) else {
                continue;
            };
            let arrow = Arrow::with_properties(
                LineEndKind::None,
                LineEndKind::Arrow,
                LineStyleKind::Normal,
                "",
                &look(),
                index.to_string(),
                &None,
                &None,
            );
            graph.add_edge(arrow, *from, *to);
        }
        let mut drawn = Drawn { links: vec![None; picture.links.len()], ..Drawn::default() };
        if !handles.is_empty() {
            graph.do_it(false, false, false, &mut drawn);
        }
        drawn
    }

    /// The corners of all that is drawn.
    fn bounds(&self) -> (Point, Point) {
        let corners = self.nodes.values().flat_map(|(corner, size)| [*corner, corner.add(*size)]);
        let all: Vec<Point> = corners.chain(self.points.iter().copied()).collect();
        let fold = |pick: fn(f64, f64) -> f64, start: f64| {
            let x = all.iter().map(|point| point.x).fold(start, pick);
            Point::new(x, all.iter().map(|point| point.y).fold(start, pick))
        };
        if all.is_empty() {
            (Point::zero(), Point::zero())
        } else {
            (fold(f64::min, f64::MAX), fold(f64::max, f64::MIN))
        }
    }
}

/// What the layout would draw is where it would be drawn.
impl RenderBackend for Drawn {
    fn draw_rect(&mut self, xy: Point, size: Point, _: &StyleAttr, properties: Option<String>, _: Option<ClipHandle>) {
        if let Some(index) = properties.and_then(|index| index.parse().ok()) {
            self.nodes.insert(index, (xy, size));
        }
    }

    fn draw_line(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_circle(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_text(&mut self, _: Point, _: &str, _: &StyleAttr) {}

    fn draw_arrow(
        &mut self,
        path: &[(Point, Point)],
        _: bool,
        head: (bool, bool),
        _: &StyleAttr,
        properties: Option<String>,
        _: &str,
    ) {
        let Some(index) = properties.and_then(|index| index.parse::<usize>().ok()) else { return };
        // The first pair is a point and the way out of it, each further one the way into a point and the point.
        let [first, second, rest @ ..] = path else { return };
        let mut points = vec![first.0, first.1, second.0, second.1];
        for (control, end) in rest {
            // The way out of a point goes on as the way into it came.
            if let [.., before, point] = points[..] {
                points.push(point.add(point.sub(before)));
            }
            points.extend([*control, *end]);
        }
        // A link against the layout's direction has its head at its start.
        if head.0 {
            points.reverse();
        }
        self.points.extend(&points);
        let mut text = String::new();
        for (number, point) in points.iter().enumerate() {
            let letter = match number {
                0 => "M",
                number if number % 3 == 1 => "C",
                _ => " ",
            };
            let _ = write!(text, "{letter}{:.1} {:.1}", point.x, point.y);
        }
        if let Some(link) = self.links.get_mut(index) {
            *link = Some(text);
        }
    }

    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::{empty, seed};

    #[test]
    fn the_cycle_is_drawn_with_its_evidence() {
        let text = graph(&seed(), true);
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        assert_eq!(text.matches("class=\"link exact cycle\"").count(), 4, "{text}");
        assert!(text.contains("MainThread (533)") && text.contains("__cur_writer"), "{text}");
        assert!(graph(&empty(), true).contains("</svg>"));
    }

    #[test]
    fn hostile_names_stay_text() {
        let mut report = seed();
        report.processes[0].threads[0].name = "</title><script>alert(1)</script>\u{1b}[31m\" onload=\"x".repeat(3);
        let text = graph(&report, true);
        assert!(!text.contains("<script") && !text.contains('\u{1b}') && !text.contains("\" onload=\"x\""), "{text}");
    }
}

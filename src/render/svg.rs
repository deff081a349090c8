//! The wait-for graph as a picture: threads are boxes, locks rounded, what leads outside has slanted ends, cycles are red;
//! of several processes each has a frame.
//!
//! In: a [`Report`]. Out: an SVG that needs nothing else: no script, no font, no network. `layout` decides where things stand;
//! what they look like is written here, as attributes that each viewer knows; browsers follow the reader's dark scheme by a style beside.
//! Each thing has a title with its evidence. Exact links are drawn through, inferred ones dashed, candidates dotted.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io;

use super::layout::{self, End, Item, Placement, Plan, Point, Rect};
use super::picture::{Cluster, Link, Node, Picture, Shape};
use super::{certainty_word, escape, shortened};
use crate::report::{Certainty, Report};

/// More links than these are no picture any more.
const MOST_LINKS: usize = 60;
/// Characters of a line of a label, and lines.
const LINE: usize = 30;
const MOST_LINES: usize = 4;
/// A character of a monospaced font of 13 px, and a line of it.
const CHARACTER: f64 = 8.0;
const LINE_HEIGHT: f64 = 17.0;
/// A character of the words beside a link.
const SMALL: f64 = 6.8;
/// Height of a frame's title.
const TITLE: f64 = 26.0;
/// Around the picture.
const MARGIN: f64 = 16.0;

/// From the middle of a link to words that stand past the edges of the boxes at its ends.
const PAST_BOXES: f64 = 27.0;
/// Colours: words, paper, lines, what is wrong, its paper, and what is no thread.
const INK: &str = "#1f2328";
const PAPER: &str = "#ffffff";
const QUIET: &str = "#59636e";
const BAD: &str = "#c01a24";
const BAD_PAPER: &str = "#fff0ee";
const THING: &str = "#f0f3f6";
/// Text in the middle of a place: viewers differ in what they know of base lines.
const MIDDLE: &str = "text-anchor=\"middle\" dy=\"0.35em\"";

/// How the picture looks in a browser with a dark scheme, and in a page: the HTML report takes it over for its own.
pub(super) const STYLE: &str = include_str!("graph.css");

/// Write `report` as a picture of its own.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    out.write_all(graph(report, true).as_bytes())
}

/// The picture; with its style, or as a part of a page that has it.
pub(super) fn graph(report: &Report, with_style: bool) -> String {
    let (mut picture, left_out) = Picture::of(report).reduced(MOST_LINKS);
    let nodes: HashSet<String> = picture.nodes().map(|node| node.id.clone()).collect();
    picture.links.retain(|link| nodes.contains(&link.from) && nodes.contains(&link.to));
    let placed = Placement::of(&plan(&picture));
    let curves = placed.links.iter().flat_map(|path| layout::samples(path, 8.0));
    let at = |point: Point| Rect { left: point.x, top: point.y, right: point.x, bottom: point.y };
    let curves = curves.map(at);
    let all = layout::bounds(placed.items.iter().chain(&placed.frames).copied().chain(curves));
    let note = if left_out > 0 { LINE_HEIGHT + MARGIN } else { 0.0 };
    let (wide, high) = ((all.width() + 2.0 * MARGIN).ceil(), (all.height() + 2.0 * MARGIN + note).ceil());
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" role=\"img\" viewBox=\"{:.1} {:.1} {wide} {high}\" \
         width=\"{wide}\" height=\"{high}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"13\"><title>{}</title>",
        all.left - MARGIN,
        all.top - MARGIN,
        markup(&cut(&report.summary))
    );
    if with_style {
        let _ = writeln!(text, "<style>{STYLE}</style>");
    }
    let _ = writeln!(
        text,
        "<rect class=\"paper\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide}\" height=\"{high}\" fill=\"{PAPER}\"/>",
        all.left - MARGIN,
        all.top - MARGIN
    );
    for (class, color) in [("end", QUIET), ("end-cycle", BAD)] {
        let _ = writeln!(
            text,
            "<defs><marker id=\"{class}\" class=\"{class}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"13\" \
             markerHeight=\"13\" markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\"><path d=\"M0 0 10 5 0 10z\" fill=\"{color}\"/></marker></defs>"
        );
    }
    for (cluster, frame) in picture.clusters.iter().zip(&placed.frames) {
        draw_frame(&mut text, cluster, *frame);
    }
    for (link, path) in picture.links.iter().zip(&placed.links) {
        draw_link(&mut text, link, path);
    }
    let mut taken: Vec<Rect> = placed.items.clone();
    taken.extend(placed.frames.iter().map(|frame| Rect { bottom: frame.top + TITLE, ..*frame }));
    taken.extend(placed.frames.iter().flat_map(edges));
    // No words on a line, not even on their own.
    taken.extend(placed.links.iter().flat_map(|path| layout::samples(path, 4.0)).map(at));
    for (link, path) in picture.links.iter().zip(&placed.links) {
        draw_words(&mut text, link, path, all, &mut taken);
    }
    let boxed = picture.nodes().filter(|node| !(picture.framed && node.shape == Shape::Process));
    for (node, place) in boxed.zip(&placed.items) {
        draw_node(&mut text, node, *place);
    }
    if left_out > 0 {
        let _ = writeln!(
            text,
            "<text class=\"note\" x=\"{:.1}\" y=\"{:.1}\" fill=\"{QUIET}\" dy=\"0.35em\">{left_out} more waits and holds are not drawn</text>",
            all.left,
            all.bottom + MARGIN + LINE_HEIGHT / 2.0
        );
    }
    text.push_str("</svg>\n");
    text
}

/// The lines of a frame.
fn edges(frame: &Rect) -> [Rect; 4] {
    let Rect { left, top, right, bottom } = *frame;
    [
        Rect { bottom: top, ..*frame },
        Rect { top: bottom, ..*frame },
        Rect { right: left, ..*frame },
        Rect { left: right, ..*frame },
    ]
}

fn draw_frame(text: &mut String, cluster: &Cluster, place: Rect) {
    let whole = cluster.nodes.iter().find(|node| node.shape == Shape::Process);
    let (cycle, color, thick) =
        if whole.is_some_and(|node| node.red) { (" cycle", BAD, "2") } else { ("", QUIET, "1") };
    let label = whole.map_or(&cluster.label, |node| &node.label);
    let _ = writeln!(
        text,
        "<g class=\"frame{cycle}\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"6\" \
         fill=\"none\" stroke=\"{color}\" stroke-width=\"{thick}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{INK}\" font-weight=\"700\" dy=\"0.35em\">{}</text></g>",
        markup(&cut(label)),
        place.left,
        place.top,
        place.width(),
        place.height(),
        place.left + 10.0,
        place.top + 15.0,
        markup(&title(&cluster.label))
    );
}

fn draw_link(text: &mut String, link: &Link, path: &[Point]) {
    let sure = certainty_word(link.certainty);
    let (cycle, end) = if link.red { (" cycle", "end-cycle") } else { ("", "end") };
    let (color, thick) = if link.red { (BAD, "3") } else { (QUIET, "1.5") };
    let dashes = match link.certainty {
        Certainty::Exact => "",
        Certainty::Inferred => " stroke-dasharray=\"9 5\"",
        Certainty::Candidate => " stroke-dasharray=\"2 5\"",
    };
    let mode = if link.label.is_empty() { String::new() } else { format!("{}, ", link.label) };
    let mut curve = String::new();
    for (number, point) in path.iter().enumerate() {
        let letter = match number {
            0 => "M",
            number if number % 3 == 1 => "C",
            _ => " ",
        };
        let _ = write!(curve, "{letter}{:.1} {:.1}", point.x, point.y);
    }
    let _ = writeln!(
        text,
        "<path class=\"link {sure}{cycle}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{thick}\"{dashes} d=\"{curve}\" marker-end=\"url(#{end})\"><title>{}</title></path>",
        markup(&cut(&format!("{mode}{sure}: {}", link.evidence)))
    );
}

/// The words of a link beside its line, where there is room: else its title alone has them.
fn draw_words(text: &mut String, link: &Link, path: &[Point], all: Rect, taken: &mut Vec<Rect>) {
    if link.words.is_empty() {
        return;
    }
    let (width, height) = (textwrap::core::display_width(&link.words) as f64 * SMALL, LINE_HEIGHT - 4.0);
    let points = layout::samples(path, 6.0);
    let middle = points.len() / 2;
    let is_steep = match (points.first(), points.last()) {
        (Some(first), Some(last)) => f64::abs(last.y - first.y) > f64::abs(last.x - first.x),
        _ => false,
    };
    // From the middle of the line outwards, above it, below it, and on either side.
    let order = (0..points.len())
        .map(|step| if step % 2 == 0 { middle + step / 2 } else { middle.wrapping_sub(step.div_ceil(2)) });
    let places = order.filter_map(|at| points.get(at)).flat_map(|point| {
        let beside = width / 2.0 + 7.0;
        let (above, below) = ((0.0, -height / 2.0 - 3.0), (0.0, height / 2.0 + 4.0));
        let (right, left) = ((beside, 0.0), (-beside, 0.0));
        // Beside a line that goes up or down, above one that goes to the side.
        if is_steep { [right, left, above, below] } else { [above, below, right, left] }
            .map(|(x, y)| Point { x: point.x + x, y: point.y + y })
    });
    // Between two boxes that are close to each other there is no room; past their edges there may be.
    let past_boxes = points
        .get(middle)
        .into_iter()
        .flat_map(|point| [PAST_BOXES, -PAST_BOXES].map(|down| Point { x: point.x, y: point.y + down }));
    let places = places.chain(past_boxes);
    let around = |point: Point| Rect {
        left: point.x - width / 2.0 - 2.0,
        top: point.y - height / 2.0,
        right: point.x + width / 2.0 + 2.0,
        bottom: point.y + height / 2.0,
    };
    let overlap = |one: Rect, other: &Rect| {
        one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom
    };
    let free = places.map(|point| (point, around(point))).find(|(_, room)| {
        let is_inside = room.left > all.left - MARGIN
            && room.right < all.right + MARGIN
            && room.top > all.top - MARGIN
            && room.bottom < all.bottom + MARGIN;
        is_inside && !taken.iter().any(|other| overlap(*room, other))
    });
    if let Some((point, room)) = free {
        taken.push(room);
        let (cycle, color) = if link.red { (" cycle", BAD) } else { ("", QUIET) };
        let _ = writeln!(
            text,
            "<text class=\"words{cycle}\" x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{color}\" stroke=\"{PAPER}\" \
             stroke-width=\"3\" paint-order=\"stroke\" {MIDDLE}>{}</text>",
            point.x,
            point.y,
            markup(&link.words)
        );
    }
}

fn draw_node(text: &mut String, node: &Node, place: Rect) {
    let (x, y, width, height) = (place.left, place.top, place.width(), place.height());
    let class = match node.shape {
        Shape::Thread | Shape::Process => "thread",
        Shape::Resource => "resource",
        Shape::Outside => "outside",
    };
    let (cycle, color, thick) = if node.red { (" cycle", BAD, "3") } else { ("", QUIET, "1.5") };
    let fill = match (node.red, node.shape) {
        (true, _) => BAD_PAPER,
        (false, Shape::Resource | Shape::Outside) => THING,
        (false, Shape::Thread | Shape::Process) => PAPER,
    };
    let look = format!("fill=\"{fill}\" stroke=\"{color}\" stroke-width=\"{thick}\"");
    let _ = writeln!(text, "<g class=\"node {class}{cycle}\"><title>{}</title>", markup(&cut(&node.label)));
    let _ = match node.shape {
        Shape::Outside => {
            let slant = height / 3.0;
            writeln!(
                text,
                "<path d=\"M{:.1} {y:.1}H{:.1}L{:.1} {:.1}L{:.1} {:.1}H{:.1}L{x:.1} {:.1}z\" {look}/>",
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
            let round = if shape == Shape::Resource { height / 2.0 } else { 3.0 };
            writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round:.1}\" {look}/>"
            )
        }
    };
    let lines = lines(&node.label);
    let first = y + height / 2.0 - (lines.len() as f64 - 1.0) * LINE_HEIGHT / 2.0;
    for (number, line) in lines.iter().enumerate() {
        let (x, y) = (x + width / 2.0, first + number as f64 * LINE_HEIGHT);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{INK}\" {MIDDLE}>{}</text>", markup(line));
    }
    text.push_str("</g>\n");
}

/// The title of a frame: one line.
fn title(label: &str) -> String {
    shortened(&escape(label), LINE)
}

/// The part of a text that a title of a node or link shows.
fn cut(text: &str) -> String {
    shortened(text, 600)
}

/// A label in lines that fit.
fn lines(label: &str) -> Vec<String> {
    // A longer label keeps its end, where a thread has its number.
    let label = shortened(&escape(label), LINE * (MOST_LINES - 1));
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

/// The layout's input for a picture.
fn plan(picture: &Picture) -> Plan {
    let mut plan = Plan::default();
    let mut ends = HashMap::new();
    for cluster in &picture.clusters {
        if picture.framed {
            plan.frames.push(width(&title(&cluster.label)));
        }
        for node in &cluster.nodes {
            let frame = plan.frames.len().checked_sub(1);
            match (node.shape, frame) {
                (Shape::Process, Some(frame)) => ends.insert(node.id.as_str(), End::Frame(frame)),
                _ => {
                    ends.insert(node.id.as_str(), End::Box(plan.items.len()));
                    plan.items.push(item(node, frame));
                    continue;
                }
            };
        }
    }
    for node in &picture.between {
        ends.insert(node.id.as_str(), End::Box(plan.items.len()));
        plan.items.push(item(node, None));
    }
    let known = |id: &str| ends.get(id).copied();
    plan.links = picture.links.iter().filter_map(|link| Some((known(&link.from)?, known(&link.to)?))).collect();
    plan
}

/// The room that a node needs.
fn item(node: &Node, frame: Option<usize>) -> Item {
    let lines = lines(&node.label);
    let widest = lines.iter().map(|line| width(line)).fold(CHARACTER, f64::max);
    // Round and slanted ends leave less room.
    let around = if matches!(node.shape, Shape::Thread | Shape::Process) {
        24.0
    } else {
        24.0 + lines.len() as f64 * LINE_HEIGHT / 2.0
    };
    let square = matches!(node.shape, Shape::Thread | Shape::Process);
    Item { width: widest + around, height: lines.len() as f64 * LINE_HEIGHT + 10.0, square, frame }
}

fn width(line: &str) -> f64 {
    textwrap::core::display_width(line) as f64 * CHARACTER
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
    fn each_colour_is_an_attribute() {
        let text = graph(&seed(), true);
        assert!(!text.contains("var("), "{text}");
        let drawn = text.lines().filter(|line| ["<rect", "<text", "<path"].iter().any(|tag| line.contains(tag)));
        for line in drawn {
            assert!(line.contains(" fill=\""), "{line}");
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let mut report = seed();
        report.processes[0].threads[0].name = "</title><script>alert(1)</script>\u{1b}[31m\" onload=\"x".repeat(3);
        let text = graph(&report, true);
        assert!(!text.contains("<script") && !text.contains('\u{1b}') && !text.contains("\" onload=\"x\""), "{text}");
    }
}

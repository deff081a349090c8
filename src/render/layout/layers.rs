//! Boxes in layers along the direction of the links, by `layout-rs`.

use std::collections::HashMap;

use ::layout::core::base::Orientation;
use ::layout::core::format::{ClipHandle, RenderBackend};
use ::layout::core::geometry::Point as Corner;
use ::layout::core::style::{LineStyleKind, StyleAttr};
use ::layout::std_shapes::shapes::{Arrow, Element, LineEndKind, ShapeKind};
use ::layout::topo::layout::VisualGraph;

use super::geometry::{Point, Rect};
use crate::limits::without_panic;

/// Where links lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Right,
    Down,
}

/// Boxes, a little larger than requested, and the paths of the links: a point, then three for each cubic curve.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) boxes: Vec<Rect>,
    pub(super) links: Vec<Vec<Point>>,
}

/// Place boxes of these sizes, linked so.
pub(super) fn place(sizes: &[(f64, f64)], links: &[(usize, usize)], direction: Direction) -> Layers {
    // Its assertions are about rounding too: one box above the other is better than no report.
    let laid = without_panic(|| laid_out(sizes, links, direction)).flatten();
    laid.unwrap_or_else(|| stacked(sizes, links.len()))
}

/// One above the other; the links are left to be led around.
fn stacked(sizes: &[(f64, f64)], links: usize) -> Layers {
    const GAP: f64 = 40.0;
    let mut top = 0.0;
    let boxes = sizes.iter().map(|(width, height)| {
        let rect = Rect { left: 0.0, top, right: *width, bottom: top + height };
        top += height + GAP;
        rect
    });
    Layers { boxes: boxes.collect(), links: vec![Vec::new(); links] }
}

fn laid_out(sizes: &[(f64, f64)], links: &[(usize, usize)], direction: Direction) -> Option<Layers> {
    /// The layout counts this many pixels a character, in both directions. Room is requested as lines of characters.
    const UNIT: f64 = 8.0;
    let look = || StyleAttr { font_size: UNIT as usize, ..StyleAttr::simple() };
    let orientation = match direction {
        Direction::Right => Orientation::LeftToRight,
        Direction::Down => Orientation::TopToBottom,
    };
    let mut graph = VisualGraph::new(orientation);
    let mut handles = Vec::new();
    for (number, (width, height)) in sizes.iter().enumerate() {
        let (columns, rows) = ((width / UNIT).ceil() as usize, (height / UNIT).ceil() as usize);
        let room = vec!["x".repeat(columns); rows].join("\n");
        let shape = ShapeKind::new_box(&room);
        let size = Corner::new(columns as f64 * UNIT, rows as f64 * UNIT);
        let element = Element::create_with_properties(shape, look(), orientation, size, number.to_string());
        handles.push(graph.add_node(element));
    }
    for (number, (from, to)) in links.iter().enumerate() {
        let arrow = Arrow::with_properties(
            LineEndKind::None,
            LineEndKind::Arrow,
            LineStyleKind::Normal,
            "",
            &look(),
            number.to_string(),
            &None,
            &None,
        );
        graph.add_edge(arrow, *handles.get(*from)?, *handles.get(*to)?);
    }
    let mut seen = Seen { links: vec![Vec::new(); links.len()], ..Seen::default() };
    if !handles.is_empty() {
        graph.do_it(false, false, false, &mut seen);
    }
    let boxes = (0..sizes.len()).map(|number| seen.boxes.get(&number).copied());
    Some(Layers { boxes: boxes.collect::<Option<_>>()?, links: seen.links })
}

/// The layout's output.
#[derive(Default)]
struct Seen {
    boxes: HashMap<usize, Rect>,
    links: Vec<Vec<Point>>,
}

impl RenderBackend for Seen {
    fn draw_rect(
        &mut self,
        xy: Corner,
        size: Corner,
        _: &StyleAttr,
        properties: Option<String>,
        _: Option<ClipHandle>,
    ) {
        if let Some(number) = properties.and_then(|number| number.parse().ok()) {
            self.boxes.insert(number, Rect { left: xy.x, top: xy.y, right: xy.x + size.x, bottom: xy.y + size.y });
        }
    }

    fn draw_line(&mut self, _: Corner, _: Corner, _: &StyleAttr, _: Option<String>) {}

    fn draw_circle(&mut self, _: Corner, _: Corner, _: &StyleAttr, _: Option<String>) {}

    fn draw_text(&mut self, _: Corner, _: &str, _: &StyleAttr) {}

    fn draw_arrow(
        &mut self,
        path: &[(Corner, Corner)],
        _: bool,
        head: (bool, bool),
        _: &StyleAttr,
        properties: Option<String>,
        _: &str,
    ) {
        let Some(number) = properties.and_then(|number| number.parse::<usize>().ok()) else { return };
        // The first pair is a point and the way out of it, each further one the way into a point and the point.
        let [first, second, rest @ ..] = path else { return };
        let mut corners = vec![first.0, first.1, second.0, second.1];
        for (control, end) in rest {
            // The way out of a point goes on as the way into it came.
            if let [.., before, point] = corners[..] {
                corners.push(point.add(point.sub(before)));
            }
            corners.extend([*control, *end]);
        }
        // A link against the layout's direction has its head at its start.
        if head.0 {
            corners.reverse();
        }
        if let Some(link) = self.links.get_mut(number) {
            *link = corners.into_iter().map(|corner| Point { x: corner.x, y: corner.y }).collect();
        }
    }

    fn create_clip(&mut self, _: Corner, _: Corner, _: usize) -> ClipHandle {
        0
    }
}

//! Four boxes that are linked in a ring, as two threads and two locks in a deadlock are: a square, with who else waits beside it.
//!
//! In: sizes and links. Out: [`Layers`], or nothing where there is more than such a ring and boxes with one link to it each. So no link
//! crosses another one.

use super::geometry::{Point, Rect};
use super::layers::Layers;

/// Between the boxes of the ring, and between these and what is beside them: room for the words of a link.
const BETWEEN: f64 = 120.0;
const BESIDE: f64 = 90.0;
const ROWS: f64 = 64.0;
/// Between boxes one above the other.
const STACKED: f64 = 16.0;

/// Place boxes of these sizes, linked so.
pub(super) fn place(sizes: &[(f64, f64)], links: &[(usize, usize)]) -> Option<Layers> {
    let ring = ring(sizes.len(), links)?;
    // The waiters for each corner.
    let beside: Vec<Vec<usize>> = ring
        .iter()
        .map(|corner| {
            links.iter().filter(|(from, to)| to == corner && !ring.contains(from)).map(|(from, _)| *from).collect()
        })
        .collect();
    let size = |item: usize| sizes.get(item).copied().unwrap_or_default();
    let stack_height = |items: &[usize]| {
        items.iter().map(|item| size(*item).1 + STACKED).sum::<f64>() - if items.is_empty() { 0.0 } else { STACKED }
    };
    let stack_width = |one: usize, other: usize| {
        [one, other].into_iter().flat_map(|corner| &beside[corner]).map(|item| size(*item).0).fold(0.0, f64::max)
    };
    // The corners in the order of the links: above from left to right, then below from right to left.
    let row = |left: usize, right: usize| {
        let stacks = stack_height(&beside[left]).max(stack_height(&beside[right]));
        size(ring[left]).1.max(size(ring[right]).1).max(stacks)
    };
    let (above, below) = (row(0, 1), row(3, 2));
    let (first, second) = (size(ring[0]).0.max(size(ring[3]).0), size(ring[1]).0.max(size(ring[2]).0));
    let left = stack_width(0, 3);
    let start = if left > 0.0 { left + BESIDE } else { 0.0 };
    let columns = [start + first / 2.0, start + first + BETWEEN + second / 2.0];
    let rows = [above / 2.0, above + ROWS + below / 2.0];
    let centers = [(0, 0), (1, 0), (1, 1), (0, 1)]
        .map(|(column, row): (usize, usize)| Point { x: columns[column], y: rows[row] });
    let mut boxes = vec![Rect::default(); sizes.len()];
    let around = |center: Point, (width, height): (f64, f64)| Rect {
        left: center.x - width / 2.0,
        top: center.y - height / 2.0,
        right: center.x + width / 2.0,
        bottom: center.y + height / 2.0,
    };
    let far = start + first + BETWEEN + second + BESIDE;
    for (corner, center) in centers.iter().enumerate() {
        boxes[ring[corner]] = around(*center, size(ring[corner]));
        let is_left = corner == 0 || corner == 3;
        let mut top = center.y - stack_height(&beside[corner]) / 2.0;
        for item in &beside[corner] {
            let (width, height) = size(*item);
            let x = if is_left { left - width / 2.0 } else { far + width / 2.0 };
            boxes[*item] = around(Point { x, y: top + height / 2.0 }, (width, height));
            top += height + STACKED;
        }
    }
    let path = |(from, to): &(usize, usize)| link(boxes[*from], boxes[*to]);
    Some(Layers { links: links.iter().map(path).collect(), boxes })
}

/// The only ring of four among `count` boxes, if each other box has one link, which leads to a corner of it.
fn ring(count: usize, links: &[(usize, usize)]) -> Option<[usize; 4]> {
    let next = |from: usize| {
        let mut to = links.iter().filter(|(one, _)| *one == from).map(|(_, to)| *to);
        to.next().filter(|_| to.next().is_none())
    };
    let ring = (0..count).find_map(|first| {
        let second = next(first)?;
        let third = next(second)?;
        let fourth = next(third)?;
        let ring = [first, second, third, fourth];
        let differ = (0..4).all(|one| (one + 1..4).all(|other| ring[one] != ring[other]));
        (next(fourth) == Some(first) && differ).then_some(ring)
    })?;
    let others = (0..count).filter(|item| !ring.contains(item));
    let are_beside = others
        .into_iter()
        .all(|item| next(item).is_some_and(|to| ring.contains(&to)) && links.iter().all(|(_, to)| *to != item));
    are_beside.then_some(ring)
}

/// From the side of one box to the side of another: a straight line, or a bow where they are not in a row.
fn link(from: Rect, to: Rect) -> Vec<Point> {
    let middle = |rect: Rect| Point { x: (rect.left + rect.right) / 2.0, y: (rect.top + rect.bottom) / 2.0 };
    let (one, other) = (middle(from), middle(to));
    if from.right <= to.left || to.right <= from.left {
        let is_right = from.right <= to.left;
        let begin = Point { x: if is_right { from.right } else { from.left }, y: one.y };
        let end = Point { x: if is_right { to.left } else { to.right }, y: other.y };
        let half = (begin.x + end.x) / 2.0;
        return vec![begin, Point { x: half, y: begin.y }, Point { x: half, y: end.y }, end];
    }
    let is_down = from.bottom <= to.top;
    let begin = Point { x: one.x, y: if is_down { from.bottom } else { from.top } };
    let end = Point { x: other.x, y: if is_down { to.top } else { to.bottom } };
    let half = (begin.y + end.y) / 2.0;
    vec![begin, Point { x: begin.x, y: half }, Point { x: end.x, y: half }, end]
}

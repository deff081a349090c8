//! Where the parts of a picture stand: boxes inside of frames, boxes between them, and links.
//!
//! In: a [`Plan`]: sizes, frames and links of the boxes. Out: a [`Placement`]: rectangles and curves. Each frame is
//! laid out on its own, then the frames and what stands between them; a link that would run through a box is led around
//! it. Equal plans give equal placements. Knows nothing of reports, and draws nothing.

mod geometry;
mod layers;
mod route;
mod square;

use geometry::around;
pub(super) use geometry::{Point, Rect, bounds, samples};
use layers::Direction;

/// Around the boxes of a frame, and for its title.
const PADDING: f64 = 16.0;
const TITLE: f64 = 26.0;
/// Wider than this, a picture that grows down is better: pages scroll that way.
const WIDE: f64 = 1180.0;

/// The end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Box(usize),
    Frame(usize),
}

/// A box to be placed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Links may touch it anywhere above and below: its ends are neither round nor slanted.
    pub(super) square: bool,
    /// The frame that it is in; None stands outside of all.
    pub(super) frame: Option<usize>,
}

/// The items to place.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    /// The width of each frame's title.
    pub(super) frames: Vec<f64>,
    pub(super) links: Vec<(End, End)>,
}

/// Where it is.
#[derive(Debug, Default)]
pub(super) struct Placement {
    pub(super) items: Vec<Rect>,
    pub(super) frames: Vec<Rect>,
    /// A point, then three for each cubic curve.
    pub(super) links: Vec<Vec<Point>>,
}

impl Placement {
    /// Place `plan`: from left to right as far as that is not too wide, else downwards.
    pub(super) fn of(plan: &Plan) -> Placement {
        const WAYS: [(Direction, Direction); 3] = [
            (Direction::Right, Direction::Right),
            (Direction::Right, Direction::Down),
            (Direction::Down, Direction::Down),
        ];
        let mut best: Option<Placement> = None;
        for (inside, outside) in WAYS {
            let placed = Placement::along(plan, inside, outside);
            let width = placed.width();
            if best.as_ref().is_none_or(|best| width < best.width()) {
                best = Some(placed);
            }
            if width <= WIDE {
                break;
            }
        }
        let mut placed = best.unwrap_or_default();
        // The way back is not drawn upon the way there.
        for (number, (from, to)) in plan.links.iter().enumerate() {
            if plan.links.iter().take(number).any(|(one, other)| (other, one) == (from, to)) {
                placed.links[number].clear();
            }
        }
        route::lead_around(plan, &mut placed);
        placed
    }

    fn width(&self) -> f64 {
        bounds(self.items.iter().chain(&self.frames).copied()).width()
    }

    /// Boxes and frames, and those links that the layers draw.
    fn along(plan: &Plan, inside: Direction, outside: Direction) -> Placement {
        let mut placed = Placement {
            items: vec![Rect::default(); plan.items.len()],
            frames: vec![Rect::default(); plan.frames.len()],
            links: vec![Vec::new(); plan.links.len()],
        };
        // The units that the outer layout moves: frames, then boxes outside of all.
        let loose: Vec<usize> = (0..plan.items.len()).filter(|item| plan.items[*item].frame.is_none()).collect();
        let mut units = Vec::new();
        for (frame, title) in plan.frames.iter().enumerate() {
            let members: Vec<usize> =
                (0..plan.items.len()).filter(|item| plan.items[*item].frame == Some(frame)).collect();
            let area = placed.inside_of(plan, &members, inside);
            let width = area.width().max(*title) + 2.0 * PADDING;
            let height = area.height() + TITLE + if members.is_empty() { 4.0 } else { PADDING };
            // Below the title, in the middle.
            let left = (width - area.width()) / 2.0;
            placed.shift(plan, &members, Point { x: left - area.left, y: TITLE - area.top });
            placed.frames[frame] = Rect { left: 0.0, top: 0.0, right: width, bottom: height };
            units.push((width, height));
        }
        if plan.frames.is_empty() {
            placed.inside_of(plan, &loose, inside);
            return placed;
        }
        units.extend(loose.iter().map(|item| (plan.items[*item].width, plan.items[*item].height)));
        let unit = |end: End| match end {
            End::Frame(frame) => frame,
            End::Box(item) => plan.items[item]
                .frame
                .unwrap_or_else(|| plan.frames.len() + loose.iter().position(|one| *one == item).unwrap_or_default()),
        };
        let mut between: Vec<(usize, usize)> = Vec::new();
        for (from, to) in &plan.links {
            let pair = (unit(*from), unit(*to));
            if pair.0 != pair.1 && !between.contains(&pair) {
                between.push(pair);
            }
        }
        let outer = layers::place(&units, &between, outside);
        for (unit, rect) in outer.boxes.iter().enumerate() {
            match unit.checked_sub(plan.frames.len()) {
                Some(number) => placed.items[loose[number]] = *rect,
                None => {
                    let members: Vec<usize> =
                        (0..plan.items.len()).filter(|item| plan.items[*item].frame == Some(unit)).collect();
                    let (width, height) = units[unit];
                    let corner =
                        Point { x: (rect.left + rect.right - width) / 2.0, y: (rect.top + rect.bottom - height) / 2.0 };
                    placed.shift(plan, &members, corner);
                    placed.frames[unit] = placed.frames[unit].moved(corner);
                }
            }
        }
        placed
    }

    /// Lay out some boxes with the links among them; the room that they take.
    fn inside_of(&mut self, plan: &Plan, members: &[usize], direction: Direction) -> Rect {
        let sizes: Vec<(f64, f64)> =
            members.iter().map(|item| (plan.items[*item].width, plan.items[*item].height)).collect();
        let at = |end: End| match end {
            End::Box(item) => members.iter().position(|member| *member == item),
            End::Frame(_) => None,
        };
        let (numbers, links): (Vec<usize>, Vec<(usize, usize)>) = plan
            .links
            .iter()
            .enumerate()
            .filter_map(|(number, (from, to))| Some((number, (at(*from)?, at(*to)?))))
            .filter(|(_, (from, to))| from != to)
            .unzip();
        let laid = square::place(&sizes, &links).unwrap_or_else(|| layers::place(&sizes, &links, direction));
        for (item, rect) in members.iter().zip(&laid.boxes) {
            self.items[*item] = *rect;
        }
        let curves = laid.links.iter().filter(|path| !path.is_empty()).map(|path| around(&samples(path, 8.0)));
        let area = bounds(laid.boxes.iter().copied().chain(curves));
        for (number, path) in numbers.into_iter().zip(laid.links) {
            self.links[number] = path;
        }
        area
    }

    fn shift(&mut self, plan: &Plan, members: &[usize], by: Point) {
        for item in members {
            self.items[*item] = self.items[*item].moved(by);
        }
        for (link, (from, _)) in self.links.iter_mut().zip(&plan.links) {
            if matches!(from, End::Box(item) if members.contains(item)) {
                link.iter_mut().for_each(|point| *point = point.plus(by));
            }
        }
    }
}

#[cfg(test)]
mod tests;

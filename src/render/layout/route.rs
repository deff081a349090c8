//! Links that run through no box: as the layers draw them where that is clear, else the best of some curves, else along the gaps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use super::geometry::{Point, Rect, around, samples, straight};
use super::{End, Placement, Plan, TITLE};

/// How close a link may come to a box that is not its own.
const CLEARANCE: f64 = 5.0;
/// The distance of the points of a curve that are checked.
const STEP: f64 = 5.0;

/// Draw the links that have no path yet, or one through a box.
pub(super) fn lead_around(plan: &Plan, placed: &mut Placement) {
    let mut drawn: Vec<Vec<Point>> = vec![Vec::new(); plan.links.len()];
    let mut missing = Vec::new();
    for (number, (from, to)) in plan.links.iter().enumerate() {
        let course = Course::new(plan, placed, *from, *to);
        let path = &placed.links[number];
        if path.is_empty() || !course.is_clear(path) {
            missing.push((number, course));
        } else {
            drawn[number] = samples(path, 3.0 * STEP);
        }
    }
    for (number, course) in missing {
        let path = course.path(&drawn);
        drawn[number] = samples(&path, 3.0 * STEP);
        placed.links[number] = path;
    }
}

/// Where a link can begin or end, and the way out from there.
#[derive(Debug, Clone, Copy)]
struct Port {
    at: Point,
    out: Point,
    /// Beside the middle of a side.
    aside: f64,
}

/// One link: what it joins and what is in its way.
struct Course {
    from: Vec<Port>,
    to: Vec<Port>,
    /// Not to be touched.
    others: Vec<Rect>,
    /// Its own boxes: to be touched at their borders only.
    own: Vec<Rect>,
}

impl Course {
    fn new(plan: &Plan, placed: &Placement, from: End, to: End) -> Course {
        let frame_of = |end: End| match end {
            End::Box(item) => plan.items[item].frame,
            End::Frame(frame) => Some(frame),
        };
        let ends = [from, to];
        let crossed = ends.map(frame_of);
        let mut others = Vec::new();
        for (item, rect) in placed.items.iter().enumerate() {
            let inside = plan.items[item].frame.is_some_and(|frame| !crossed.contains(&Some(frame)));
            if !ends.contains(&End::Box(item)) && !inside {
                others.push(*rect);
            }
        }
        for (frame, rect) in placed.frames.iter().enumerate() {
            if crossed.contains(&Some(frame)) {
                // The title stays readable.
                others.push(Rect {
                    left: rect.left + 8.0,
                    right: rect.left + 8.0 + plan.frames[frame],
                    top: rect.top + 7.0,
                    bottom: rect.top + TITLE - 4.0,
                });
            } else {
                others.push(*rect);
            }
        }
        let own = ends.iter().filter_map(|end| match end {
            End::Box(item) => Some(placed.items[*item].grown(-2.0)),
            End::Frame(_) => None,
        });
        let mut own: Vec<Rect> = own.collect();
        // A link from outside ends at the frame's border.
        for (end, other) in [(from, to), (to, from)] {
            if let End::Frame(frame) = end
                && frame_of(other) != Some(frame)
            {
                own.push(placed.frames[frame].grown(-2.0));
            }
        }
        let ports = |end: End, other: End| match end {
            End::Box(item) => ports(placed.items[item], plan.items[item].square, false, false),
            End::Frame(frame) => ports(placed.frames[frame], true, true, frame_of(other) == Some(frame)),
        };
        Course { from: ports(from, to), to: ports(to, from), others, own }
    }

    /// Runs a path through no box.
    fn is_clear(&self, path: &[Point]) -> bool {
        let hull = around(path);
        let others = self.others.iter().map(|rect| rect.grown(CLEARANCE));
        let near: Vec<Rect> = others.chain(self.own.iter().copied()).filter(|rect| rect.overlaps(hull)).collect();
        near.is_empty() || !samples(path, STEP).iter().any(|point| near.iter().any(|rect| rect.contains(*point)))
    }

    fn path(&self, drawn: &[Vec<Point>]) -> Vec<Point> {
        /// So many of the shortest are compared with what is drawn already.
        const BEST: usize = 12;
        let mut curves: Vec<(f64, [Point; 4])> = Vec::new();
        for (from, to) in self.from.iter().flat_map(|from| self.to.iter().map(move |to| (from, to))) {
            let distance = from.at.distance(to.at);
            if distance < 1.0 {
                continue;
            }
            for reach in [0.15, 0.35, 0.7] {
                let reach = (distance * reach).clamp(30.0, 220.0);
                let path = [from.at, from.at.plus(from.out.times(reach)), to.at.plus(to.out.times(reach)), to.at];
                let length = path.windows(2).map(|pair| pair[0].distance(pair[1])).sum::<f64>();
                curves.push((length + from.aside + to.aside, path));
            }
        }
        curves.sort_by(|one, other| one.0.total_cmp(&other.0));
        let clear = curves.iter().filter(|(_, path)| self.is_clear(path)).take(BEST);
        let best =
            clear.map(|(cost, path)| (cost + beside(path, drawn), path)).min_by(|one, other| one.0.total_cmp(&other.0));
        match best {
            Some((_, path)) => path.to_vec(),
            None => self.along_gaps().or(curves.first().map(|(_, path)| path.to_vec())).unwrap_or_default(),
        }
    }

    /// Straight pieces beside the boxes with few bends, the shortest such way; None where there is none.
    fn along_gaps(&self) -> Option<Vec<Point>> {
        let outer = |port: &Port| port.at.plus(port.out.times(AWAY));
        let blocked: Vec<Rect> =
            self.others.iter().map(|rect| rect.grown(CLEARANCE)).chain(self.own.iter().copied()).collect();
        let free = |port: &&Port| {
            let way = around(&[port.at, outer(port)]).grown(0.1);
            !blocked.iter().any(|rect| rect.overlaps(way))
        };
        let (from, to): (Vec<&Port>, Vec<&Port>) =
            (self.from.iter().filter(free).collect(), self.to.iter().filter(free).collect());
        let places = from.iter().chain(&to).map(|port| outer(port));
        let grid = Grid::new(&blocked, places);
        let at = |port: &&Port| (grid.near(outer(port)), port.out.x != 0.0);
        let ways = grid.shortest(&from.iter().map(at).collect::<Vec<_>>(), &to.iter().map(at).collect::<Vec<_>>())?;
        let (first, last) = (ways.first()?, ways.last()?);
        let start = from.iter().find(|port| at(port).0 == *first)?;
        let end = to.iter().find(|port| at(port).0 == *last)?;
        let corners = ways.iter().map(|place| grid.point(*place));
        let corners: Vec<Point> = std::iter::once(start.at).chain(corners).chain([end.at]).collect();
        Some(rounded(&corners))
    }
}

/// From a box to the first bend.
const AWAY: f64 = 12.0;

/// The lines beside boxes, where a link may run, and which pieces of them are free.
struct Grid {
    xs: Vec<f64>,
    ys: Vec<f64>,
    /// Whether a link may go from a crossing to the next one to the right, and to the next one below.
    right: Vec<bool>,
    down: Vec<bool>,
}

/// A crossing of two lines.
type Crossing = (usize, usize);

impl Grid {
    fn new(blocked: &[Rect], places: impl Iterator<Item = Point>) -> Grid {
        const BESIDE: f64 = AWAY - CLEARANCE;
        let mut xs: Vec<f64> = blocked.iter().flat_map(|rect| [rect.left - BESIDE, rect.right + BESIDE]).collect();
        let mut ys: Vec<f64> = blocked.iter().flat_map(|rect| [rect.top - BESIDE, rect.bottom + BESIDE]).collect();
        for place in places {
            xs.push(place.x);
            ys.push(place.y);
        }
        for line in [&mut xs, &mut ys] {
            line.sort_by(f64::total_cmp);
            line.dedup_by(|one, other| (*one - *other).abs() < 0.5);
        }
        let (wide, high) = (xs.len(), ys.len());
        let mut grid = Grid { xs, ys, right: vec![true; wide * high], down: vec![true; wide * high] };
        for rect in blocked {
            // Lines inside of the rectangle, and the pieces that reach into it.
            let columns = inside(&grid.xs, rect.left, rect.right);
            let rows = inside(&grid.ys, rect.top, rect.bottom);
            for y in rows.clone() {
                for x in columns.start.saturating_sub(1)..columns.end {
                    grid.right[y * wide + x] = false;
                }
            }
            for x in columns {
                for y in rows.start.saturating_sub(1)..rows.end {
                    grid.down[y * wide + x] = false;
                }
            }
        }
        grid
    }

    fn point(&self, (x, y): Crossing) -> Point {
        Point { x: self.xs[x], y: self.ys[y] }
    }

    fn near(&self, point: Point) -> Crossing {
        let nearest = |line: &[f64], value: f64| {
            let after = line.partition_point(|one| *one < value).min(line.len().saturating_sub(1));
            let before = after.saturating_sub(1);
            if (line[before] - value).abs() < (line[after] - value).abs() { before } else { after }
        };
        (nearest(&self.xs, point.x), nearest(&self.ys, point.y))
    }

    /// From one of some crossings to one of others, which are left or reached along x or along y as it says there.
    fn shortest(&self, from: &[(Crossing, bool)], to: &[(Crossing, bool)]) -> Option<Vec<Crossing>> {
        const BEND: f64 = 60.0;
        /// Finer than a pixel.
        const SCALE: f64 = 16.0;
        let wide = self.xs.len();
        let key = |(x, y): Crossing, along_x: bool| (y * wide + x) * 2 + usize::from(along_x);
        let place = |key: usize| ((key / 2 % wide, key / 2 / wide), key % 2 == 1);
        let goals: HashSet<usize> = to.iter().map(|(crossing, along_x)| key(*crossing, *along_x)).collect();
        let area = around(&to.iter().map(|(crossing, _)| self.point(*crossing)).collect::<Vec<_>>());
        // No way to any goal is shorter than this.
        let left = |crossing: Crossing| {
            let point = self.point(crossing);
            let beyond = |value: f64, least: f64, most: f64| (least - value).max(value - most).max(0.0);
            ((beyond(point.x, area.left, area.right) + beyond(point.y, area.top, area.bottom)) * SCALE) as u64
        };
        let mut cost = vec![u64::MAX; self.right.len() * 2];
        let mut before = vec![usize::MAX; self.right.len() * 2];
        let mut ahead = BinaryHeap::new();
        for (crossing, along_x) in from {
            let start = key(*crossing, *along_x);
            cost[start] = 0;
            ahead.push(Reverse((left(*crossing), 0, start)));
        }
        while let Some(Reverse((_, price, here))) = ahead.pop() {
            if cost[here] < price {
                continue;
            }
            let ((x, y), along_x) = place(here);
            if goals.contains(&here) {
                let ways = std::iter::successors(Some(here), |at| Some(before[*at]).filter(|at| *at != usize::MAX));
                let mut ways: Vec<Crossing> = ways.map(|at| place(at).0).collect();
                ways.reverse();
                return Some(ways);
            }
            let steps = [
                (x > 0 && self.right[y * wide + x - 1]).then(|| ((x - 1, y), true)),
                (x + 1 < wide && self.right[y * wide + x]).then(|| ((x + 1, y), true)),
                (y > 0 && self.down[(y - 1) * wide + x]).then(|| ((x, y - 1), false)),
                (y + 1 < self.ys.len() && self.down[y * wide + x]).then(|| ((x, y + 1), false)),
            ];
            for (next, next_along_x) in steps.into_iter().flatten() {
                let bend = if next_along_x == along_x { 0.0 } else { BEND };
                let step = self.point((x, y)).distance(self.point(next)) + bend;
                let price = price + (step * SCALE) as u64;
                let next_key = key(next, next_along_x);
                if price < cost[next_key] {
                    cost[next_key] = price;
                    before[next_key] = here;
                    ahead.push(Reverse((price + left(next), price, next_key)));
                }
            }
        }
        None
    }
}

/// The lines between two values.
fn inside(line: &[f64], least: f64, most: f64) -> std::ops::Range<usize> {
    let first = line.partition_point(|one| *one <= least);
    first..line.partition_point(|one| *one < most).max(first)
}

/// The middles of a rectangle's sides, and places beside them where there is room.
fn ports(rect: Rect, square: bool, frame: bool, inwards: bool) -> Vec<Port> {
    let turn = if inwards { -1.0 } else { 1.0 };
    let middle = Point { x: (rect.left + rect.right) / 2.0, y: (rect.top + rect.bottom) / 2.0 };
    let mut ports = Vec::new();
    for fraction in [0.0, -0.22, 0.22, -0.4, 0.4] {
        let aside = f64::abs(fraction) * 60.0;
        if fraction == 0.0 || (rect.width() > 60.0 && (square || f64::abs(fraction) < 0.3)) {
            let x = middle.x + fraction * rect.width();
            ports.push(Port { at: Point { x, y: rect.top }, out: Point { x: 0.0, y: -turn }, aside: aside + 10.0 });
            ports.push(Port { at: Point { x, y: rect.bottom }, out: Point { x: 0.0, y: turn }, aside: aside + 10.0 });
        }
        // Round and slanted ends have but one place.
        if fraction == 0.0 || (frame && rect.height() > 60.0) {
            let y = middle.y + fraction * rect.height();
            ports.push(Port { at: Point { x: rect.left, y }, out: Point { x: -turn, y: 0.0 }, aside });
            ports.push(Port { at: Point { x: rect.right, y }, out: Point { x: turn, y: 0.0 }, aside });
        }
    }
    ports
}

/// The cost of meeting other paths: at the ends, and on the way.
fn beside(path: &[Point], drawn: &[Vec<Point>]) -> f64 {
    let points = samples(path, 3.0 * STEP);
    let mut cost = 0.0;
    for other in drawn.iter().filter(|other| !other.is_empty()) {
        let close = |one: Option<&Point>, other: Option<&Point>| {
            one.zip(other).is_some_and(|(one, other)| one.distance(*other) < 10.0)
        };
        // Where one begins and another ends, the arrow's head would seem to be of both.
        if close(points.first(), other.last()) || close(points.last(), other.first()) {
            cost += 200.0;
        }
        if close(points.first(), other.first()) || close(points.last(), other.last()) {
            cost += 45.0;
        }
        if !around(&points).grown(8.0).overlaps(around(other).grown(8.0)) {
            continue;
        }
        let near = points.iter().filter(|point| other.iter().any(|place| place.distance(**point) < 8.0)).count();
        cost += near as f64 * 15.0;
    }
    cost
}

/// Straight pieces between corners, with the corners rounded.
fn rounded(corners: &[Point]) -> Vec<Point> {
    const ROUND: f64 = 8.0;
    // Places on a straight way are no corners.
    let mut kept: Vec<Point> = Vec::new();
    for corner in corners {
        if kept.last().is_some_and(|last| last.distance(*corner) < 0.5) {
            continue;
        }
        if let [.., before, last] = kept[..] {
            let (one, other) = (last.minus(before), corner.minus(last));
            if (one.x * other.y - one.y * other.x).abs() < 1e-6 {
                kept.pop();
            }
        }
        kept.push(*corner);
    }
    let [first, middle @ .., last] = kept.as_slice() else { return Vec::new() };
    let mut path = vec![*first];
    let mut here = *first;
    for (number, corner) in middle.iter().enumerate() {
        let next = middle.get(number + 1).unwrap_or(last);
        let toward = |to: Point| {
            let length = corner.distance(to).max(1e-6);
            corner.plus(to.minus(*corner).times((ROUND / length).min(0.5)))
        };
        let (enter, leave) = (toward(here), toward(*next));
        path.extend(straight(here, enter));
        path.extend([*corner, *corner, leave]);
        here = leave;
    }
    path.extend(straight(here, *last));
    path
}

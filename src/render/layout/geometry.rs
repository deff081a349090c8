//! Points, rectangles and cubic curves.

/// A place; y grows downwards.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::render) struct Point {
    pub(in crate::render) x: f64,
    pub(in crate::render) y: f64,
}

impl Point {
    pub(super) fn plus(self, other: Point) -> Point {
        Point { x: self.x + other.x, y: self.y + other.y }
    }

    pub(super) fn minus(self, other: Point) -> Point {
        Point { x: self.x - other.x, y: self.y - other.y }
    }

    pub(super) fn times(self, factor: f64) -> Point {
        Point { x: self.x * factor, y: self.y * factor }
    }

    pub(super) fn distance(self, other: Point) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }
}

/// A rectangle along the axes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::render) struct Rect {
    pub(in crate::render) left: f64,
    pub(in crate::render) top: f64,
    pub(in crate::render) right: f64,
    pub(in crate::render) bottom: f64,
}

impl Rect {
    pub(in crate::render) fn width(self) -> f64 {
        self.right - self.left
    }

    pub(in crate::render) fn height(self) -> f64 {
        self.bottom - self.top
    }

    pub(super) fn moved(self, by: Point) -> Rect {
        Rect { left: self.left + by.x, top: self.top + by.y, right: self.right + by.x, bottom: self.bottom + by.y }
    }

    /// Larger, or with a negative `by` smaller, on all sides.
    pub(super) fn grown(self, by: f64) -> Rect {
        Rect { left: self.left - by, top: self.top - by, right: self.right + by, bottom: self.bottom + by }
    }

    /// Is a point in it, its border not counted.
    pub(super) fn contains(self, point: Point) -> bool {
        self.left < point.x && point.x < self.right && self.top < point.y && point.y < self.bottom
    }

    pub(super) fn overlaps(self, other: Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn joined(self, other: Rect) -> Rect {
        Rect {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }
}

/// The smallest rectangle around all; an empty one around nothing.
pub(in crate::render) fn bounds(rects: impl Iterator<Item = Rect>) -> Rect {
    rects.reduce(Rect::joined).unwrap_or_default()
}

/// The smallest rectangle around points.
pub(super) fn around(points: &[Point]) -> Rect {
    bounds(points.iter().map(|point| Rect { left: point.x, top: point.y, right: point.x, bottom: point.y }))
}

/// Points on a path of cubic curves, no further apart than `step`.
pub(in crate::render) fn samples(path: &[Point], step: f64) -> Vec<Point> {
    let Some(first) = path.first() else { return Vec::new() };
    let mut points = vec![*first];
    for end in (3..path.len()).step_by(3) {
        let [a, b, c, d] = [path[end - 3], path[end - 2], path[end - 1], path[end]];
        let around = a.distance(b) + b.distance(c) + c.distance(d);
        let count = (around / step).ceil().clamp(2.0, 2000.0);
        for number in 1..=count as usize {
            let t = number as f64 / count;
            let u = 1.0 - t;
            let weighted = [a.times(u * u * u), b.times(3.0 * u * u * t), c.times(3.0 * u * t * t), d.times(t * t * t)];
            points.push(weighted.into_iter().fold(Point::default(), Point::plus));
        }
    }
    points
}

/// A straight piece as a cubic curve: the three points that end it.
pub(super) fn straight(from: Point, to: Point) -> [Point; 3] {
    let third = to.minus(from).times(1.0 / 3.0);
    [from.plus(third), to.minus(third), to]
}

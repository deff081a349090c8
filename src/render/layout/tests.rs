//! Placements of pictures of all shapes: what must not overlap does not.

use std::time::{Duration, Instant};

use super::*;

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }

    fn one_of(&mut self, choices: &[usize]) -> usize {
        choices[self.below(choices.len())]
    }

    fn plan(&mut self) -> Plan {
        let frames = self.one_of(&[0, 0, 2, 3, 5, 12]);
        let most = self.one_of(&[6, 12, 40]);
        let count = 2 + self.below(most);
        let items = (0..count).map(|_| Item {
            width: 60.0 + self.below(220) as f64,
            height: 27.0 + 17.0 * self.below(4) as f64,
            square: self.below(2) == 0,
            frame: (frames > 0 && self.below(3) > 0).then(|| self.below(frames)),
        });
        let items: Vec<Item> = items.collect();
        let titles = (0..frames).map(|_| 60.0 + self.below(200) as f64).collect();
        let end = |numbers: &mut Numbers| match numbers.below(5) {
            0 if frames > 0 => End::Frame(numbers.below(frames)),
            _ => End::Box(numbers.below(count)),
        };
        // Links to itself and the same link twice are among them.
        let links = (0..(count + self.below(count)).min(60)).map(|_| (end(self), end(self))).collect();
        Plan { items, frames: titles, links }
    }
}

/// Faults of a placement.
fn faults(plan: &Plan, placed: &Placement) -> Vec<String> {
    let mut faults = Vec::new();
    let boxes = || placed.items.iter().enumerate();
    for (one, place) in boxes() {
        for (other, _) in boxes().skip(one + 1).filter(|(_, other)| other.overlaps(*place)) {
            faults.push(format!("boxes {one} and {other} overlap"));
        }
        for (frame, around) in placed.frames.iter().enumerate() {
            let inside = bounds([*around, *place].into_iter()) == *around;
            match plan.items[one].frame == Some(frame) {
                true if !inside => faults.push(format!("box {one} sticks out of frame {frame}")),
                false if around.overlaps(*place) => faults.push(format!("box {one} lies over frame {frame}")),
                _ => {}
            }
        }
    }
    for (one, place) in placed.frames.iter().enumerate() {
        for (other, _) in placed.frames.iter().enumerate().skip(one + 1).filter(|(_, other)| other.overlaps(*place)) {
            faults.push(format!("frames {one} and {other} overlap"));
        }
    }
    for (number, (path, ends)) in placed.links.iter().zip(&plan.links).enumerate() {
        if path.len() < 4 || path.iter().any(|point| !point.x.is_finite() || !point.y.is_finite()) {
            faults.push(format!("link {number} {ends:?} has no path: {path:?}"));
        }
        let points = samples(path, 4.0);
        for (one, place) in boxes().filter(|(one, _)| ![ends.0, ends.1].contains(&End::Box(*one))) {
            if points.iter().any(|point| place.contains(*point)) {
                faults.push(format!("link {number} {ends:?} runs through box {one}"));
            }
        }
    }
    faults
}

#[test]
fn nothing_overlaps_and_links_go_around() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for number in 0..60 {
        let plan = numbers.plan();
        let placed = Placement::of(&plan);
        let faults = faults(&plan, &placed);
        assert!(faults.is_empty(), "plan {number}: {faults:?}\n{plan:?}");
        let again = Placement::of(&plan);
        assert!(placed.items == again.items && placed.links == again.links, "plan {number}: two placements");
    }
}

#[test]
fn long_chains_grow_down_and_take_no_time() {
    let item = |frame| Item { width: 200.0, height: 44.0, square: true, frame };
    let ring = |count: usize| (0..count).map(|one| (End::Box(one), End::Box((one + 1) % count))).collect();
    let alone = Plan { items: vec![item(None); 60], frames: Vec::new(), links: ring(60) };
    let apart =
        Plan { items: (0..60).map(|frame| item(Some(frame))).collect(), frames: vec![90.0; 60], links: ring(60) };
    for plan in [alone, apart] {
        let started = Instant::now();
        let placed = Placement::of(&plan);
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert!(placed.width() < WIDE, "{}", placed.width());
        assert_eq!(faults(&plan, &placed), Vec::<String>::new());
    }
}

#[test]
fn nothing_and_next_to_nothing_have_a_place() {
    assert!(Placement::of(&Plan::default()).items.is_empty());
    let item = Item { width: 0.0, height: 0.0, square: false, frame: Some(0) };
    let plan = Plan { items: vec![item], frames: vec![0.0, 0.0], links: vec![(End::Box(0), End::Box(0)); 2] };
    assert_eq!(faults(&plan, &Placement::of(&plan)), Vec::<String>::new());
}

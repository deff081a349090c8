//! The participants, at the lines of source that matter.
//!
//! In: the scenes of a report. Out: lines on a [`Page`]: `-->` with file, line, function and thread, then the lines of source, each
//! with what happens there. It decides nothing.

use textwrap::core::display_width;

use super::page::Page;
use crate::render::view::keep_together;
use crate::render::{Style, places};
use crate::report::{ParticipantLine, ParticipantPlace, Report};

/// Columns of source text beside which there is room for what happens there.
const SOURCE: usize = 46;
/// Columns that are enough for what happens there.
const ROOM: usize = 28;

/// All scenes.
pub(super) fn all(report: &Report, style: &Style, page: &mut Page) {
    let lines = || report.scenes.iter().flat_map(|scene| &scene.places).flat_map(|place| &place.lines);
    let number = lines().filter_map(|line| line.line).max().map_or(1, |line| line.to_string().len()).max(3);
    let indent = |line: &ParticipantLine| line.text.as_ref().map(|text| text.len() - text.trim_start().len());
    let width = |line: &ParticipantLine, cut: usize| {
        line.text.as_ref().map_or(0, |text| display_width(text).saturating_sub(cut))
    };
    let column = |place: &ParticipantPlace| {
        let cut = cut_of(place, indent);
        place.lines.iter().map(|line| width(line, cut)).max().unwrap_or(0)
    };
    let places = || report.scenes.iter().flat_map(|scene| &scene.places);
    let texts = places().map(column).max().unwrap_or(0).min(SOURCE);
    let heads = places().map(|place| display_width(&head(place, style))).max().unwrap_or(0);
    let names = heads.min(SOURCE) + 8;
    // Without any text, or where there is no room beside it, what happens stands below.
    let below = number + 7;
    let beside = (number + 5 + texts + 2).max(names);
    let column = if texts > 0 && beside + ROOM <= page.width() { beside } else { below };
    let names = if texts > 0 { names.max(column) } else { names };
    for scene in &report.scenes {
        for (position, place) in scene.places.iter().enumerate() {
            let who = if position == 0 { keep_together(&scene.who) } else { String::new() };
            heading(place, &who, names, style, page);
            let cut = cut_of(place, indent);
            for line in &place.lines {
                // The heading has the number of the line where it waits.
                let is_in_heading = line.text.is_none() && line.line == place.line;
                source_line(line, number, cut, column, is_in_heading, page);
            }
        }
    }
}

/// The indentation that all lines of a place share, but for four columns.
fn cut_of(place: &ParticipantPlace, indent: impl Fn(&ParticipantLine) -> Option<usize>) -> usize {
    place.lines.iter().filter_map(indent).min().unwrap_or(0).saturating_sub(4)
}

/// `orders/service.py:14 place_order`.
fn head(place: &ParticipantPlace, style: &Style) -> String {
    let function = place.function.as_deref().map(keep_together).unwrap_or_default();
    match places::shown(place, style) {
        Some(place) => format!("{place} {function}").trim_end().to_owned(),
        None => function,
    }
}

fn heading(place: &ParticipantPlace, who: &str, names: usize, style: &Style, page: &mut Page) {
    let head = head(place, style);
    if head.is_empty() && who.is_empty() {
        return;
    }
    let changed = if place.changed { "  (the file was changed since)" } else { "" };
    let used = "  --> ".len() + display_width(&head);
    let gap = " ".repeat(names.saturating_sub(used).max(2));
    let text = format!("  --> {head}{}{who}{changed}", if head.is_empty() { "" } else { gap.as_str() });
    page.linked("      ", &text, &places::shown(place, style).unwrap_or_default(), places::address(place, style));
}

/// As much of a line as there is room for, with what stands at byte `focus` in it: `... charge(customer, retries=3) ...`.
fn around(text: &str, focus: usize, room: usize) -> String {
    const CUT: &str = "...";
    let text = text.trim_end();
    if display_width(text) <= room {
        return text.to_owned();
    }
    // A third of the room is for what stands before it.
    let (before, behind) = text.split_at_checked(focus).unwrap_or(("", text));
    let mut left = before.len();
    if display_width(before) > room / 3 {
        let mut width = 0;
        for (at, character) in before.char_indices().rev() {
            width += display_width(character.encode_utf8(&mut [0; 4]));
            if width > room / 3 {
                break;
            }
            left = at;
        }
    } else {
        left = 0;
    }
    let start = if left == 0 { "" } else { CUT };
    let mut shown = String::from(start);
    for character in text.get(left..).unwrap_or(behind).chars() {
        shown.push(character);
        if display_width(&shown) + CUT.len() >= room {
            shown.push_str(CUT);
            break;
        }
    }
    shown
}

fn source_line(line: &ParticipantLine, number: usize, cut: usize, column: usize, is_in_heading: bool, page: &mut Page) {
    let digits = line.line.map(|line| line.to_string()).unwrap_or_default();
    let indent = " ".repeat(column);
    match &line.text {
        Some(text) => {
            let head = format!("  {digits:>number$} | ");
            let room = page.width().saturating_sub(display_width(&head));
            let focus = line.column.and_then(|column| column.checked_sub(cut)).unwrap_or(0);
            let text = keep_together(&around(text.get(cut..).unwrap_or(text), focus, room));
            let start = format!("{head}{text}");
            let used = display_width(&start);
            if used + 2 <= column {
                page.paragraph(&indent, &format!("{start}{}{}", " ".repeat(column - used), line.does));
            } else {
                page.paragraph(&indent, &start);
                page.paragraph(&indent, &format!("{indent}{}", line.does));
            }
        }
        None if line.line.is_some() && !is_in_heading => {
            let start = format!("  {digits:>number$} |");
            page.paragraph(&indent, &format!("{start}{}{}", " ".repeat(column.saturating_sub(number + 4)), line.does));
        }
        None => {
            page.paragraph(&indent, &format!("{indent}{}", line.does));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_around_the_call() {
        let line =
            "    with registry.lock: return charge_the_customer(inventory, billing, retries=3, timeout=10)  # and more";
        let focus = line.find("charge").expect("it is there");
        assert_eq!(around(line, focus, 200), line);
        let cut = around(line, focus, 60);
        assert!(cut.starts_with("...") && cut.ends_with("...") && cut.contains("charge_the_customer("), "{cut}");
        assert!(display_width(&cut) <= 60, "{cut}");
        let start = around(line, 0, 60);
        assert!(start.starts_with("    with registry.lock") && start.ends_with("...") && display_width(&start) <= 60);
        // A wide character is never halved, and no width is too small.
        for room in 0..40 {
            around("例例例例 lock 例例例例例例例例例例例例例例例例例例", 13, room);
        }
    }
}

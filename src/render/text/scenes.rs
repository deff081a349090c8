//! Who takes part, at the lines of source that matter.
//!
//! In: the scenes of a report. Out: lines on a [`Page`]: `-->` with file, line, function and thread, then the lines of source, each
//! with what happens there. It decides nothing.

use textwrap::core::display_width;

use super::page::Page;
use crate::render::view::keep_together;
use crate::render::{Style, places};
use crate::report::{Report, SceneLine, ScenePlace};

/// Columns of source text beside which there is room for what happens there.
const SOURCE: usize = 46;
/// Columns that are enough for what happens there.
const ROOM: usize = 28;

/// All scenes.
pub(super) fn all(report: &Report, style: &Style, page: &mut Page) {
    let lines = || report.scenes.iter().flat_map(|scene| &scene.places).flat_map(|place| &place.lines);
    let number = lines().filter_map(|line| line.line).max().map_or(1, |line| line.to_string().len()).max(3);
    let indent = |line: &SceneLine| line.text.as_ref().map(|text| text.len() - text.trim_start().len());
    let width =
        |line: &SceneLine, cut: usize| line.text.as_ref().map_or(0, |text| display_width(text).saturating_sub(cut));
    let column = |place: &ScenePlace| {
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
                source_line(line, number, cut, column, page);
            }
        }
    }
}

/// The indentation that all lines of a place share, but for four columns.
fn cut_of(place: &ScenePlace, indent: impl Fn(&SceneLine) -> Option<usize>) -> usize {
    place.lines.iter().filter_map(indent).min().unwrap_or(0).saturating_sub(4)
}

/// `orders/service.py:14 place_order`.
fn head(place: &ScenePlace, style: &Style) -> String {
    let function = place.function.as_deref().map(keep_together).unwrap_or_default();
    match places::shown(place, style) {
        Some(place) => format!("{place} {function}").trim_end().to_owned(),
        None => function,
    }
}

fn heading(place: &ScenePlace, who: &str, names: usize, style: &Style, page: &mut Page) {
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

fn source_line(line: &SceneLine, number: usize, cut: usize, column: usize, page: &mut Page) {
    let digits = line.line.map(|line| line.to_string()).unwrap_or_default();
    let indent = " ".repeat(column);
    match &line.text {
        Some(text) => {
            let text = keep_together(text.get(cut..).unwrap_or(text));
            let start = format!("  {digits:>number$} | {text}");
            let used = display_width(&start);
            if used + 2 <= column {
                page.paragraph(&indent, &format!("{start}{}{}", " ".repeat(column - used), line.does));
            } else {
                page.paragraph(&indent, &start);
                page.paragraph(&indent, &format!("{indent}{}", line.does));
            }
        }
        None if line.line.is_some() => {
            let start = format!("  {digits:>number$} |");
            page.paragraph(&indent, &format!("{start}{}{}", " ".repeat(column.saturating_sub(number + 4)), line.does));
        }
        None => {
            page.paragraph(&indent, &format!("{indent}{}", line.does));
        }
    }
}

//! The parties as text: the numbered table of holds and waits, and a line for each edge.

use textwrap::core::display_width;

use super::page::Page;
use crate::render::parties::Parties;
use crate::render::view::keep_together;
use crate::render::{Style, certainty_word};

/// `1  name  holds X  in  CALL`, aligned where the lines fit, else one part a line.
pub(super) fn table(parties: &Parties, page: &mut Page) {
    let number = parties.parties.len().to_string().len();
    let names = parties.parties.iter().map(|party| display_width(&party.name)).max().unwrap_or(0);
    let all = || parties.parties.iter().flat_map(|party| &party.statements);
    let whats = all().filter(|s| s.call.is_some()).map(|s| display_width(&s.what)).max().unwrap_or(0);
    let start = 2 + number + 2 + names + 2;
    // A call that is too long goes on below its own start, unless a name would stick out.
    let calls = start + whats + "  in  ".len();
    let aligned = all().all(|statement| match &statement.call {
        Some(call) => call.split(' ').all(|word| calls + display_width(word) <= page.width()),
        None => start + display_width(&statement.what) <= page.width(),
    });
    let beside = aligned || start + 24 <= page.width();
    for (index, party) in parties.parties.iter().enumerate() {
        let mut head = format!("  {:>number$}  {}", index + 1, keep_together(&party.name));
        let indent = if beside { " ".repeat(start) } else { " ".repeat(2 + number + 4) };
        if beside {
            head.push_str(&" ".repeat(start.saturating_sub(display_width(&head))));
        } else {
            page.plain(&head);
            head = indent.clone();
        }
        for statement in &party.statements {
            let further = format!("{indent}    ");
            match &statement.call {
                Some(call) if aligned => {
                    let gap = " ".repeat(whats.saturating_sub(display_width(&statement.what)));
                    page.paragraph(&" ".repeat(calls), &format!("{head}{}{gap}  in  {call}", statement.what));
                }
                Some(call) => {
                    page.paragraph(&further, &format!("{head}{}", statement.what));
                    page.paragraph(&format!("{further}  "), &format!("{indent}  in {call}"));
                }
                None => page.paragraph(&further, &format!("{head}{}", statement.what)),
            }
            head = indent.clone();
        }
    }
    if let Some(more) = parties.more() {
        page.paragraph(&" ".repeat(4 + number), &format!("{}{more}", " ".repeat(4 + number)));
    }
}

/// `1 -> 2  evidence  exact`.
pub(super) fn edges(parties: &Parties, style: &Style, page: &mut Page) {
    let arrow = if style.unicode { "→" } else { "->" };
    let heads: Vec<String> = parties
        .edges
        .iter()
        .map(|edge| match edge.to {
            Some(to) => format!("  {} {arrow} {}  ", edge.from + 1, to + 1),
            None => format!("  {} {arrow}    ", edge.from + 1),
        })
        .collect();
    let head = heads.iter().map(|head| display_width(head)).max().unwrap_or(0);
    let longest = parties.edges.iter().map(|edge| display_width(&edge.evidence)).max().unwrap_or(0);
    // "candidate" is the longest word for how sure.
    let aligned = head + longest + 4 + 9 <= page.width();
    for (edge, start) in parties.edges.iter().zip(&heads) {
        let certainty = certainty_word(edge.certainty);
        let start = format!("{start}{}", " ".repeat(head - display_width(start)));
        let gap = if aligned { longest - display_width(&edge.evidence) + 4 } else { 4 };
        page.paragraph(&" ".repeat(head), &format!("{start}{}{}{certainty}", edge.evidence, " ".repeat(gap)));
    }
}

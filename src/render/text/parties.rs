//! How each link between the parties is known.

use super::page::Page;
use crate::render::parties::Parties;
use crate::render::view::keep_together;
use crate::render::{Style, certainty_word};

/// `how it is known:`, a link a paragraph: `MainThread (12) -> worker (13)  exact: evidence`.
pub(super) fn edges(parties: &Parties, style: &Style, page: &mut Page) {
    if parties.edges.is_empty() {
        return;
    }
    let arrow = if style.unicode { "→" } else { "->" };
    page.plain("how it is known:");
    let name =
        |position: usize| parties.parties.get(position).map(|party| keep_together(&party.name)).unwrap_or_default();
    for edge in &parties.edges {
        let to = edge.to.map_or_else(|| "nobody".to_owned(), name);
        let sure = certainty_word(edge.certainty);
        page.paragraph("      ", &format!("  {} {arrow} {to}  {sure}: {}", name(edge.from), edge.evidence));
    }
}

//! How each link between the parties is known.

use super::page::Page;
use crate::render::Style;
use crate::render::parties::Parties;
use crate::render::view::keep_together;
use crate::report::Proof;

/// `how it is known (each owner is recorded):`, a link a paragraph: `MainThread (12) -> worker (13)  recorded: evidence`.
/// `whole` is what the first finding is proven by.
pub(super) fn edges(parties: &Parties, whole: Option<Proof>, style: &Style, page: &mut Page) {
    if parties.edges.is_empty() {
        return;
    }
    let arrow = if style.unicode { "→" } else { "->" };
    let whole = whole.map(|proof| format!(" ({})", proof.words())).unwrap_or_default();
    page.plain(&format!("how it is known{whole}:"));
    let name =
        |position: usize| parties.parties.get(position).map(|party| keep_together(&party.name)).unwrap_or_default();
    for edge in &parties.edges {
        let to = edge.to.map_or_else(|| "nobody".to_owned(), name);
        let sure = edge.known_how;
        page.paragraph("      ", &format!("  {} {arrow} {to}  {sure}: {}", name(edge.from), edge.evidence));
    }
}

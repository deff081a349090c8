//! The report about one thread: its wait, the holder and that holder's wait, its holds and their waiters.
//!
//! In: a [`View`] and the thread. Out: lines on a [`Page`]. The callers print its stack and the steps of reading it.

use std::collections::HashSet;

use super::page::Page;
use super::within;
use crate::render::known_how;
use crate::render::view::{Key, View};
use crate::report::Thread;

/// At most this many links of a chain are shown.
const MOST_LINKS: usize = 32;
/// Waiters named one by one.
const MOST_WAITERS: usize = 8;

/// The lines about a thread.
pub(super) fn about(view: &View, process: &str, thread: &Thread, page: &mut Page) {
    let role = thread.role.as_deref().map(|role| format!(", {role}")).unwrap_or_default();
    page.plain(&format!("{}{role}: {}", view.thread_name(process, thread.tid), thread.state.as_str()));
    let mut told = HashSet::new();
    chain(view, (process, thread.tid), 1, &mut told, page);
    for hold in view.holds_by(process, thread.tid) {
        let call = within(view.hold_call(hold));
        page.paragraph(
            "    ",
            &format!("  {}{call}  ({})", view.hold_statement(hold), known_how(hold.certainty, hold.proof)),
        );
        let waiters = view.report.waits.iter().filter(|wait| wait.resource == hold.resource);
        let names: Vec<String> = waiters
            .filter_map(|wait| Some((wait.process.as_str(), wait.tid?)))
            .map(|(process, tid)| view.thread_name(process, tid))
            .collect();
        if !names.is_empty() {
            let more = names.len().saturating_sub(MOST_WAITERS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let shown = names.iter().take(MOST_WAITERS).cloned().collect::<Vec<_>>().join(", ");
            page.paragraph(
                "      ",
                &format!("    for which {shown}{more} {}", if names.len() == 1 { "waits" } else { "wait" }),
            );
        }
    }
    if view.waits_of(process, thread.tid).is_empty() && view.holds_by(process, thread.tid).next().is_none() {
        let place = view.where_is(thread).map(|place| format!("; it is in {place}")).unwrap_or_default();
        page.paragraph("    ", &format!("  in no known wait, and holds nothing that is known{place}"));
    }
}

/// The wait of a thread, the holder, the holder's wait, and so on, each thread once.
fn chain<'a>(view: &View<'a>, key: Key<'a>, depth: usize, told: &mut HashSet<Key<'a>>, page: &mut Page) {
    let again = !told.insert(key);
    if again || depth > MOST_LINKS {
        return;
    }
    let indent = "  ".repeat(depth.min(8));
    let further = format!("{indent}  ");
    for wait in view.waits_of(key.0, key.1).to_vec() {
        let call = within(view.wait_call(wait));
        let sure = known_how(wait.certainty, wait.proof);
        page.paragraph(&further, &format!("{indent}{}{call}  ({sure})", view.wait_statement(wait)));
        for hold in view.holds_of(&wait.resource).to_vec() {
            let next = hold.tid.filter(|_| hold.gone.is_none()).map(|tid| (hold.process.as_str(), tid));
            let back = if next.is_some_and(|next| told.contains(&next)) { ": a cycle" } else { "" };
            let (who, what) = (view.holder_name(hold), view.hold_statement(hold));
            page.paragraph(
                &further,
                &format!("{indent}{who} {what} ({}){back}", known_how(hold.certainty, hold.proof)),
            );
            if let Some(next) = next {
                chain(view, next, depth + 1, told, page);
            }
        }
    }
}

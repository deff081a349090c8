//! Tasks of event loops: what each awaits, as a tree of who awaits whom.
//!
//! In: the waits of a report whose waiter is a task, and the tasks at whose end such a wait may end. Out: lines on a [`Page`], each task below the one that awaits it. It names no
//! task twice, and folds all but the first when there are many.

use std::collections::{BTreeMap, BTreeSet};

use super::page::Page;
use crate::render::view::{View, keep_together};
use crate::report::{Wait, base_name};
use crate::waits::kinds::Topic;

/// At most this many tasks are listed unless the user requests all.
const LISTED: usize = 20;

/// The section, if there are tasks that wait.
pub(super) fn section(view: &View, is_whole: bool, page: &mut Page) {
    let is_task = |id: &str| view.resource(id).is_some_and(|one| one.properties().topic == Topic::Task);
    let mut waits: BTreeMap<&str, Vec<&Wait>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for wait in &view.report.waits {
        let Some(task) = wait.waiter_resource.as_deref().filter(|id| is_task(id)) else { continue };
        let own = waits.entry(task).or_default();
        if own.is_empty() {
            order.push(task);
        }
        own.push(wait);
    }
    if order.is_empty() {
        return;
    }
    let mut ends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for hold in view.report.holds.iter().filter(|hold| is_awaited_by_task(view, &hold.resource)) {
        let task = hold.holder_resource.as_deref().filter(|id| is_task(id));
        ends.entry(&hold.resource).or_default().extend(task);
    }
    let awaited: BTreeSet<&str> = waits
        .iter()
        .flat_map(|(task, own)| below(own, &ends).into_iter().filter(move |other| other != task && is_task(other)))
        .collect();
    page.plain("tasks:");
    let most = if is_whole { usize::MAX } else { LISTED };
    let mut listed: BTreeSet<&str> = BTreeSet::new();
    let roots = order.iter().filter(|task| !awaited.contains(*task));
    // Tasks of a ring have no root: the rest is listed in the order of the report.
    for root in roots.chain(&order) {
        let mut todo = vec![(*root, 0usize)];
        while let Some((task, depth)) = todo.pop() {
            if listed.len() >= most || !listed.insert(task) {
                continue;
            }
            let own = waits.get(task).map(Vec::as_slice).unwrap_or_default();
            line(view, task, own, depth, page);
            todo.extend(below(own, &ends).into_iter().rev().map(|id| (id, depth + 1)).filter(|(id, _)| is_task(id)));
        }
    }
    let left = order.iter().filter(|task| !listed.contains(*task)).count();
    if left > 0 {
        page.plain(&format!("  and {left} more: --all lists them"));
    }
    page.blank();
}

/// What these waits are for, or the tasks at whose end that comes.
fn below<'r>(own: &[&'r Wait], ends: &BTreeMap<&'r str, Vec<&'r str>>) -> Vec<&'r str> {
    let all = own.iter().map(|wait| wait.resource.as_str());
    all.flat_map(|id| ends.get(id).cloned().unwrap_or_else(|| vec![id])).collect()
}

/// Whether a resource is what a task awaits that is neither a task nor a lock.
fn is_awaited_by_task(view: &View, id: &str) -> bool {
    view.resource(id).is_some_and(|one| one.kind == "task_event")
}

/// "task consumer (consume)  awaits asyncio.Queue `jobs` (get, empty)  at app.py:12 consume".
fn line(view: &View, task: &str, waits: &[&Wait], depth: usize, page: &mut Page) {
    let name =
        |id: &str| view.resource(id).map_or_else(|| format!("resource {id}"), |one| one.called_shortly().to_string());
    let indent = "  ".repeat(depth + 1);
    let what = match waits {
        [] => "goes on".to_owned(),
        [wait] => format!("awaits {}", name(&wait.resource)),
        [first, more @ ..] => format!("awaits {} and {} more", name(&first.resource), more.len()),
    };
    let place = waits.first().and_then(|wait| wait.place.as_ref());
    let place = place
        .map(|at| format!("  at {}:{} {}", base_name(&at.file), at.line, crate::report::short_function(&at.function)));
    let below = keep_together(&"  ".repeat(depth));
    let text = format!("{below}{}  {what}{}", keep_together(&name(task)), place.unwrap_or_default());
    page.paragraph(&indent, &text);
}

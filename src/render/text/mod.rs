//! The report for people: verdict, cycle, evidence, what to change, who else waits, stacks, the rest in one line.
//!
//! In: a report and a [`Style`]. Out: lines no wider than the style asks, but never cut inside a function's name.
//! Every line passes through `Page`, the only place that wraps, colours and escapes. It decides nothing: certainty,
//! findings and sentences come with the report.

mod page;
mod parties;

#[cfg(test)]
pub(in crate::render) mod tests;

use std::collections::{HashMap, HashSet};
use std::io;

use self::page::{Color, Page};
use super::Style;
use super::parties::{self as who, Parties};
use super::view::{self, Key, View, keep_together};
use crate::report::{Finding, Report, Severity, Thread, Verdict, without_address};

/// Threads outside the cycle that get a line of their own.
const OTHER_THREADS: usize = 20;
/// Frames of a long stack that are shown at its inner and at its outer end.
const STACK_ENDS: (usize, usize) = (40, 10);
/// Things that the rest waits for, listed by name.
const GROUPS: usize = 6;
/// Cycles after the first, one line each.
const MORE_CYCLES: usize = 5;
/// Bytes of a local variable's value.
const LOCAL_VALUE: usize = 200;

/// Write `report` as text.
pub fn render(report: &Report, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
    let view = View::new(report, if style.unicode { "←" } else { "<-" });
    let parties = Parties::of(&view);
    let members: HashSet<Key> = parties.threads().collect();
    let mut page = Page::new(style);

    headline(report, &mut page);
    if !parties.is_empty() {
        page.blank();
        parties::table(&parties, &mut page);
        page.blank();
        parties::edges(&parties, style, &mut page);
    }
    if report.cycles.is_empty() && report.summary != super::headline(report) {
        page.blank();
        page.paragraph("", &report.summary);
    }
    page.blank();
    advice(report, &mut page);
    more_cycles(&view, style, &mut page);
    let victims = view.victims(&members);
    rest(&view, &members, &victims, &mut page);
    page.blank();
    for (number, process, tid) in parties.numbered_threads() {
        if let Some(thread) = view.thread(process, tid) {
            stack(&view, number, process, thread, &mut page);
            page.blank();
        }
    }
    others(&view, &members, &victims, &mut page);
    for gap in &report.gaps {
        page.prefixed("gap:", Color::Yellow, &format!("{}: {}", gap.what, gap.why));
    }
    page.plain(&super::captured(report));
    page.write(out)
}

fn headline(report: &Report, page: &mut Page) {
    let sentence = super::headline(report);
    let code = report.findings.first().map(|finding| finding.code.as_str());
    match report.verdict.exit_code() {
        0 => page.headline("ok:", Color::Green, &format!("no deadlock found: {sentence}"), code),
        _ => page.headline("error:", Color::Red, &format!("{}: {sentence}", report.verdict.as_str()), code),
    }
}

/// `help:` and `note:` of the findings; the later ones introduce themselves.
fn advice(report: &Report, page: &mut Page) {
    for (position, finding) in report.findings.iter().enumerate() {
        if position > 0 {
            let (word, color) = match finding.severity {
                Severity::Error => ("error:", Color::Red),
                Severity::Warning => ("warning:", Color::Yellow),
                Severity::Note => ("note:", Color::Cyan),
            };
            page.prefixed(word, color, &format!("{} [{}]", finding.title, finding.code));
        }
        // The cycle above says in full what the first message says, but not when a suspected one would end.
        let said = position == 0 && report.verdict == Verdict::Deadlock && !report.cycles.is_empty();
        if !said && !finding.message.is_empty() && finding.message != report.summary {
            page.prefixed("note:", Color::Cyan, &finding.message);
        }
        for (index, help) in finding.help.iter().enumerate() {
            page.prefixed("help:", Color::Green, &with_references(help, index, finding));
        }
    }
}

/// The first help of a finding names the public reports, unless it does already.
fn with_references(help: &str, index: usize, finding: &Finding) -> String {
    let unnamed: Vec<&str> =
        finding.references.iter().map(String::as_str).filter(|reference| !help.contains(reference)).collect();
    if index > 0 || unnamed.is_empty() {
        return help.to_string();
    }
    format!("{help} ({})", unnamed.join(", "))
}

/// Cycles after the first, as `A -> B -> A`.
fn more_cycles(view: &View, style: &Style, page: &mut Page) {
    let cycles = &view.report.cycles;
    let arrow = if style.unicode { " → " } else { " -> " };
    for cycle in cycles.iter().skip(1).take(MORE_CYCLES) {
        let mut names: Vec<String> = cycle.edges.iter().map(|edge| who::waiter_name(view, edge)).collect();
        names.extend(names.first().cloned());
        page.prefixed("note:", Color::Cyan, &format!("another cycle: {}", names.join(arrow)));
    }
    if cycles.len() > 1 + MORE_CYCLES {
        page.prefixed("note:", Color::Cyan, &format!("{} more cycles", cycles.len() - 1 - MORE_CYCLES));
    }
}

/// Who else waits, in one line, and where to read more.
fn rest(view: &View, members: &HashSet<Key>, victims: &HashSet<Key>, page: &mut Page) {
    let mut clauses = Vec::new();
    if !victims.is_empty() {
        let wait = if victims.len() == 1 { "waits" } else { "wait" };
        let groups = groups(view, |key| victims.contains(&key));
        clauses.push(format!(
            "{} {wait} because of this{groups}",
            if members.is_empty() { threads(victims.len()) } else { more_threads(victims.len()) },
            groups = list(&groups)
        ));
    }
    let apart = |key: Key| !members.contains(&key) && !victims.contains(&key);
    let groups = groups(view, apart);
    let count: usize = groups.iter().map(|(_, count)| count).sum();
    if count > 0 {
        let wait = if count == 1 { "waits" } else { "wait" };
        let other = if members.is_empty() && victims.is_empty() { "" } else { " for other things" };
        clauses.push(format!("{} {wait}{other}{}", threads(count), list(&groups)));
    }
    let idle = view
        .each_thread()
        .filter(|&(process, thread)| apart((process, thread.tid)) && view.waits_of(process, thread.tid).is_empty())
        .count();
    if idle > 0 && clauses.is_empty() && members.is_empty() {
        clauses.push(format!("{} in no known wait", threads(idle)));
    } else if idle > 0 {
        clauses.push(format!("{idle} in no known wait"));
    }
    let explain =
        view.report.findings.first().map(|finding| keep_together(&format!("`lockscope explain {}`", finding.code)));
    match (clauses.is_empty(), explain) {
        (false, Some(explain)) => {
            page.prefixed("note:", Color::Cyan, &format!("{}      {explain}", clauses.join("; ")))
        }
        (false, None) => page.prefixed("note:", Color::Cyan, &clauses.join("; ")),
        (true, Some(explain)) => page.prefixed("note:", Color::Cyan, &explain),
        (true, None) => {}
    }
}

/// The threads that `chosen` picks, counted by what they wait for, the most common first.
fn groups(view: &View, chosen: impl Fn(Key) -> bool) -> Vec<(String, usize)> {
    let mut groups: Vec<(String, usize)> = Vec::new();
    for (process, thread) in view.each_thread() {
        let waits = view.waits_of(process, thread.tid);
        let Some(wait) = waits.first().filter(|_| chosen((process, thread.tid))) else { continue };
        // Without the address: a pool's 64 condition variables are one group.
        let label = match view.resource(&wait.resource) {
            Some(resource) if resource.kind != "gil" && !resource.label.is_empty() => without_address(&resource.label),
            _ => view.resource_name(&wait.resource),
        };
        let label = match waits.len() {
            1 => label,
            several => format!("one of {several} things (first: {label})"),
        };
        match groups.iter_mut().find(|(name, _)| *name == label) {
            Some((_, count)) => *count += 1,
            None => groups.push((label, 1)),
        }
    }
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    groups
}

/// `: 3 for the GIL, 1 for a pipe`.
fn list(groups: &[(String, usize)]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let mut parts: Vec<String> =
        groups.iter().take(GROUPS).map(|(name, count)| format!("{count} for {name}")).collect();
    let more: usize = groups.iter().skip(GROUPS).map(|(_, count)| count).sum();
    if more > 0 {
        parts.push(format!("{more} for something else"));
    }
    format!(": {}", parts.join(", "))
}

fn more_threads(count: usize) -> String {
    if count == 1 { "1 more thread".to_string() } else { format!("{count} more threads") }
}

fn threads(count: usize) -> String {
    if count == 1 { "1 thread".to_string() } else { format!("{count} threads") }
}

/// A party's stack, innermost first, with the waiting and the holding frame marked.
fn stack(view: &View, number: usize, process: &str, thread: &Thread, page: &mut Page) {
    let marks = view.marks(process, thread);
    page.plain(&format!("stack of {number}, {}:", view.thread_name(process, thread.tid)));
    if thread.frames.is_empty() {
        page.plain("     no frame could be read");
    }
    let last = thread.frames.len();
    let mut skipped = 0;
    for (index, frame) in thread.frames.iter().enumerate() {
        let mark: Vec<&str> =
            marks.iter().filter(|(marked, _)| *marked == index).map(|(_, words)| words.as_str()).collect();
        if index >= STACK_ENDS.0 && index + STACK_ENDS.1 < last && mark.is_empty() {
            skipped += 1;
            continue;
        }
        if skipped > 0 {
            page.plain(&format!("     ... {skipped} frames ..."));
            skipped = 0;
        }
        if frame.kind == "boundary" {
            continue;
        }
        let mut line =
            format!("{} #{index:<3} {}", if mark.is_empty() { " " } else { ">" }, view::function_name(frame));
        if let Some(place) = view::place_or_module(frame) {
            line.push_str(&format!("  {place}"));
        }
        if frame.trust.as_deref() == Some("scan") {
            line.push_str("  (found by a scan)");
        }
        match mark.is_empty() {
            true => page.frame(&line),
            false => page.marked_frame(&format!("{line}    {}", mark.join(", "))),
        }
        for (name, value) in &frame.locals {
            let shown: String = value.chars().take(LOCAL_VALUE).collect();
            let cut = if shown.len() < value.len() { "..." } else { "" };
            page.frame(&format!("         {name} = {shown}{cut}"));
        }
    }
}

/// One line for each thread that is no party, victims first, and a count of those left out.
fn others(view: &View, members: &HashSet<Key>, victims: &HashSet<Key>, page: &mut Page) {
    let mut others: Vec<(&str, &Thread)> =
        view.each_thread().filter(|&(process, thread)| !members.contains(&(process, thread.tid))).collect();
    if others.is_empty() {
        return;
    }
    others.sort_by_key(|&(process, thread)| !victims.contains(&(process, thread.tid)));
    page.plain(if members.is_empty() { "threads:" } else { "other threads:" });
    let mut rows: Vec<Row> = Vec::new();
    let mut row_of: HashMap<String, usize> = HashMap::new();
    for &(process, thread) in &others {
        let name = view.thread_name(process, thread.tid);
        let (doing, call) = view.doing(process, thread);
        let call = call.map(|call| format!("  in  {call}")).unwrap_or_default();
        let role = thread.role.as_deref().map(|role| format!(", {role},")).unwrap_or_default();
        let alike = format!("{role}{}{call}", without_address(&doing));
        let text = format!("  {name}{role}  {doing}{call}");
        let row = *row_of.entry(alike).or_insert(rows.len());
        match rows.get_mut(row) {
            Some(row) => row.more.push(text),
            None => rows.push(Row { text, more: Vec::new() }),
        }
    }
    let mut left = OTHER_THREADS;
    let mut hidden = 0;
    for row in &rows {
        if left == 0 {
            hidden += 1 + row.more.len();
            continue;
        }
        left -= 1;
        page.frame(&row.text);
        if row.more.len() > FEW_ALIKE {
            page.frame(&format!("      and {} like it", more_threads(row.more.len())));
            continue;
        }
        for text in &row.more {
            page.frame(text);
        }
        left = left.saturating_sub(row.more.len());
    }
    if hidden > 0 {
        page.plain(&format!("  and {}, which are in the JSON", more_threads(hidden)));
    }
    page.blank();
}

/// Up to so many threads that do the same are told one by one.
const FEW_ALIKE: usize = 4;

/// A thread's line, and those of threads that do the same.
struct Row {
    text: String,
    more: Vec<String>,
}

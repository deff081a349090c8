//! The report for people: verdict, cycle, evidence, what to change, who else waits, stacks, the rest in one line.
//!
//! In: a report and a [`Style`]. Out: lines no wider than the style asks, but never cut inside a function's name.
//! Every line passes through `Page`, the only place that wraps, colours and escapes. It decides nothing: certainty,
//! findings and sentences come with the report.

mod gpus;
mod one_thread;
mod page;
mod parties;
mod working;

#[cfg(test)]
pub(in crate::render) mod tests;

use std::collections::HashSet;
use std::io;

use self::page::{Color, Page};
use super::Style;
use super::groups;
use super::parties::{self as who, Parties};
use super::view::{self, Key, View, keep_together};
use crate::report::{Finding, FrameKind, Report, Severity, Thread, Trust, Verdict};

/// Groups of threads outside the cycle that get a line.
const OTHER_THREADS: usize = 20;
/// Names of a group's threads.
const NAMES: usize = 4;
/// Frames of a long stack that are shown at its inner and at its outer end.
const STACK_ENDS: (usize, usize) = (40, 10);
/// Things that the rest waits for, listed by name.
const GROUPS: usize = 6;
/// Cycles after the first, one line each.
const MORE_CYCLES: usize = 5;
/// Bytes of a local variable's value.
const LOCAL_VALUE: usize = 200;

/// Write `report` as text.
pub(crate) fn render(report: &Report, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
    let view = View::new(report, if style.unicode { "←" } else { "<-" });
    let mut page = Page::new(style);
    headline(report, &mut page);
    match style.detail.thread {
        Some(tid) => about_one(&view, tid, style, &mut page),
        None => about_all(&view, style, &mut page),
    }
    page.plain(&super::captured(report));
    page.write(out)
}

/// The threads with this id, as lockscope or as the target sees it; one, unless there are several namespaces.
fn about_one(view: &View, tid: i32, style: &Style, page: &mut Page) {
    for (process, thread) in view.each_thread().filter(|(_, thread)| thread.has_id(tid)) {
        page.blank();
        one_thread::about(view, process, thread, page);
        page.blank();
        stack(view, "stack of", process, thread, (usize::MAX, 0), style, page);
        page.blank();
    }
}

fn about_all(view: &View, style: &Style, page: &mut Page) {
    let report = view.report;
    let parties = Parties::of(view);
    let members: HashSet<Key> = parties.members().collect();
    if !parties.is_empty() {
        page.blank();
        parties::table(&parties, page);
        page.blank();
        parties::edges(&parties, style, page);
    }
    if report.cycles.is_empty() && report.summary != super::headline(report) {
        page.blank();
        page.paragraph("", &report.summary);
    }
    page.blank();
    advice(report, style, page);
    more_cycles(view, style, page);
    let victims = view.victims();
    rest(view, &members, &victims, page);
    page.blank();
    for (number, process, tid) in parties.numbered_threads() {
        if let Some(thread) = view.thread(process, tid) {
            stack(view, &format!("stack of {number},"), process, thread, STACK_ENDS, style, page);
            page.blank();
        }
    }
    if style.detail.all {
        let told: HashSet<Key> = parties.told().collect();
        let apart = |(process, thread): &(&str, &Thread)| !told.contains(&(*process, thread.tid));
        for (process, thread) in view.each_thread().filter(apart) {
            one_thread::about(view, process, thread, page);
            stack(view, "stack of", process, thread, STACK_ENDS, style, page);
            page.blank();
        }
    } else {
        others(view, &parties.told().collect(), &victims, page);
    }
    gpus::section(view, page);
    for gap in &report.gaps {
        page.prefixed("gap:", Color::Yellow, &format!("{}: {}", gap.what, gap.why));
    }
}

fn headline(report: &Report, page: &mut Page) {
    let sentence = super::headline(report);
    let code = report.findings.first().map(|finding| finding.code.as_str());
    match report.verdict.exit_code() {
        0 => {
            let color = if report.verdict == Verdict::Running { Color::Green } else { Color::Yellow };
            page.headline(&format!("{}:", report.verdict.words()), color, sentence, code);
        }
        _ => page.headline("error:", Color::Red, &format!("{}: {sentence}", report.verdict.words()), code),
    }
}

/// `help:` and `note:` of the findings; the later ones introduce themselves.
fn advice(report: &Report, style: &Style, page: &mut Page) {
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
        for ruled_out in finding.ruled_out.iter().filter(|_| style.detail.steps) {
            page.prefixed("note:", Color::Cyan, &format!("ruled out: {ruled_out}"));
        }
        let help = if report.advice_was_given(position) { &[][..] } else { &finding.help };
        for (index, help) in help.iter().enumerate() {
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
        let label = view.resource_in_general(&wait.resource);
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

/// A stack, innermost first, with the waiting and the holding frame marked; so many frames of its inner and its outer end.
fn stack(
    view: &View,
    heading: &str,
    process: &str,
    thread: &Thread,
    ends: (usize, usize),
    style: &Style,
    page: &mut Page,
) {
    if style.detail.raw {
        working::raw(view, process, thread, page);
    } else {
        page.plain(&format!("{heading} {}:", view.thread_name(process, thread.tid)));
        merged(view, process, thread, ends, page);
    }
    if style.detail.steps {
        page.blank();
        working::steps(view, process, thread, page);
    }
}

fn merged(view: &View, process: &str, thread: &Thread, ends: (usize, usize), page: &mut Page) {
    let marks = view.marks(process, thread);
    if thread.frames.is_empty() {
        page.plain("     no frame could be read");
    }
    let last = thread.frames.len();
    let mut skipped = 0;
    for (index, frame) in thread.frames.iter().enumerate() {
        let mark: Vec<&str> =
            marks.iter().filter(|(marked, _)| *marked == index).map(|(_, words)| words.as_str()).collect();
        if index >= ends.0 && index + ends.1 < last && mark.is_empty() {
            skipped += 1;
            continue;
        }
        if skipped > 0 {
            page.plain(&format!("     ... {skipped} frames ..."));
            skipped = 0;
        }
        if frame.kind == FrameKind::Boundary {
            continue;
        }
        let mut line =
            format!("{} #{index:<3} {}", if mark.is_empty() { " " } else { ">" }, view::function_name(frame));
        if let Some(place) = view::place_or_module(frame) {
            line.push_str(&format!("  {place}"));
        }
        if frame.trust == Some(Trust::Scan) {
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

/// The call in which somebody waits, or took what he holds, behind the statement of it.
fn within(call: Option<String>) -> String {
    call.map(|call| format!("  in  {call}")).unwrap_or_default()
}

/// Threads that are no party, in groups of equal stacks, and a count of those left out.
fn others(view: &View, told: &HashSet<Key>, victims: &HashSet<Key>, page: &mut Page) {
    let groups = groups::groups(view, told, victims);
    if groups.is_empty() {
        return;
    }
    page.plain(if told.is_empty() { "threads:" } else { "other threads:" });
    for group in groups.iter().take(OTHER_THREADS) {
        let role = if group.role.is_empty() { String::new() } else { format!(", {},", group.role) };
        let call = within(group.call.clone());
        match group.members.as_slice() {
            [(process, thread)] => {
                page.frame(&format!("  {}{role}  {}{call}", view.thread_name(process, thread.tid), group.doing));
            }
            several => {
                page.frame(&format!("  {} threads{role}  {}{call}", several.len(), group.doing));
                page.frame(&format!("       {}", group.names(view, NAMES)));
            }
        }
    }
    let hidden: usize = groups.iter().skip(OTHER_THREADS).map(|group| group.members.len()).sum();
    if hidden > 0 {
        page.plain(&format!("  and {}, which `--all` tells", more_threads(hidden)));
    }
    page.blank();
}

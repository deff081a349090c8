//! The report for people: verdict, cycle, evidence, what to change, who else waits, stacks, the rest in one line.
//!
//! In: a report and a [`Style`]. Out: lines no wider than the style asks, but never cut inside a function's name.
//! Every line passes through `Page`, the only place that wraps, colours and escapes. It decides nothing: certainty,
//! findings and sentences come with the report.

mod gpus;
mod one_thread;
mod page;
mod parties;
mod ranks;
mod scenes;
mod tasks;
mod working;

#[cfg(test)]
pub(in crate::render) mod tests;

use std::collections::HashSet;
use std::io;

use self::page::{Color, Page};
use super::Style;
use super::fold;
use super::groups;
use super::parties::{self as who, Parties};
use super::similar::similar_reports;
use super::view::{self, Key, View, keep_together};
use crate::report::{
    FrameKind, Report, Severity, SourceKind, Thread, ThreadReference, Trust, Verdict, Wait, stuck_behind,
};
use crate::waits::kinds::Topic;

/// Groups of threads outside the cycle that get a line.
const OTHER_THREADS: usize = 20;
/// Names of a group's threads.
const NAMES: usize = 4;
/// Frames of a long stack that are shown at its inner and at its outer end.
const STACK_ENDS: (usize, usize) = (40, 10);
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
    if report.source.kind != SourceKind::Recorded {
        page.plain(&super::captured(report));
    }
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
    scenes::all(report, style, page);
    let victims = view.victims();
    if let Some(more) = parties.more().filter(|_| !scenes_tell(report, &parties)) {
        page.paragraph("  ", &format!("  {more}"));
    }
    let is_task = |id: &&String| view.resource(id).is_some_and(|one| one.properties().topic == Topic::Task);
    let tasks = report.victim_resources.iter().filter(is_task).count();
    if let Some(behind) = stuck_behind(victims.len(), tasks) {
        page.plain(&format!("  {behind}"));
    }
    if let Some(source) = &report.made_to_happen {
        page.plain(&format!("  made to happen: {source}"));
    }
    // If nothing is wrong in a process, the list of its threads suffices.
    let is_wrong = report.verdict.exit_code() != 0 || report.scenes.is_empty();
    if (report.cycles.is_empty() && is_wrong || report.job.is_some()) && report.summary != super::headline(report) {
        page.blank();
        page.paragraph("", &report.summary);
    }
    page.blank();
    why_unproven(report, page);
    advice(view, style, page);
    // A report on possible deadlocks has no stacks.
    if matches!(report.verdict, Verdict::CouldDeadlock | Verdict::NothingFound) {
        return gaps(report, page);
    }
    more_cycles(view, style, page);
    if let Some(job) = &report.job {
        ranks::section(job, page);
        gaps(report, page);
        return;
    }
    page.blank();
    let is_hang = report.verdict.exit_code() != 0;
    let whole = report.findings.first().filter(|_| is_hang).map(|finding| finding.proof);
    parties::edges(&parties, whole, style, page);
    page.blank();
    for (process, tid) in parties.told() {
        if let Some(thread) = view.thread(process, tid).filter(|_| !is_told_by_another(report, process, tid)) {
            stack(view, "stack of", process, thread, STACK_ENDS, style, page);
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
    tasks::section(view, style.detail.all, page);
    gpus::section(view, page);
    gaps(report, page);
}

/// Why no hang is proven: a thread or an event that could end the first wait.
fn why_unproven(report: &Report, page: &mut Page) {
    if report.verdict != Verdict::Blocked {
        return;
    }
    let first = report.scenes.iter().flat_map(|scene| &scene.threads).next();
    let is_its = |wait: &&Wait| first.is_some_and(|one| wait.process == one.process && wait.tid == Some(one.tid));
    if let Some(what) = report.waits.iter().filter(is_its).find_map(|wait| wait.could_end.first()) {
        page.prefixed("note:", Color::Cyan, &format!("no hang is proven: {what}"));
    }
}

fn gaps(report: &Report, page: &mut Page) {
    for gap in &report.gaps {
        page.prefixed("gap:", Color::Yellow, &format!("{}: {}", gap.what, gap.why));
    }
}

/// Whether the scenes show each participating thread.
fn scenes_tell(report: &Report, parties: &Parties) -> bool {
    let told: HashSet<Key> =
        report.scenes.iter().flat_map(|scene| &scene.threads).map(|one| (one.process.as_str(), one.tid)).collect();
    parties.members().all(|member| told.contains(&member))
}

/// Whether a thread does the same as another one, whose stack stands for its own.
fn is_told_by_another(report: &Report, process: &str, tid: i32) -> bool {
    let is_it = |one: &ThreadReference| one.process == process && one.tid == tid;
    report.scenes.iter().any(|scene| scene.threads.iter().skip(1).any(is_it))
}

fn headline(report: &Report, page: &mut Page) {
    let code = report.findings.first().map(|finding| finding.code.as_str());
    let color = match (report.verdict.exit_code(), report.verdict) {
        (0, Verdict::Running) => Color::Green,
        (0, _) => Color::Yellow,
        _ => Color::Red,
    };
    // Backticks are for where they can be made code of.
    let sentence = super::headline(report).replace('`', "");
    page.headline(&format!("{}:", report.verdict.words()), color, &sentence, code);
}

/// `help:` and `note:` of the findings; the later ones introduce themselves.
fn advice(view: &View, style: &Style, page: &mut Page) {
    let report = view.report;
    for (position, finding, more) in report.different_findings() {
        if position > 0 || super::headline(report) != finding.title {
            let (word, color) = match finding.severity {
                Severity::Error => ("error:", Color::Red),
                Severity::Warning => ("warning:", Color::Yellow),
                Severity::Note => ("note:", Color::Cyan),
            };
            page.prefixed(word, color, &format!("{} [{}]", finding.title, finding.code));
        }
        // The cycle above says in full what the first message says, but not when a suspected one would end.
        let said = position == 0 && report.verdict == Verdict::Deadlock && !report.cycles.is_empty();
        let is_summary = finding.message.eq_ignore_ascii_case(&report.summary);
        if !said && !finding.message.is_empty() && !is_summary {
            page.prefixed("note:", Color::Cyan, &finding.message);
        }
        for ruled_out in finding.ruled_out.iter().filter(|_| style.detail.steps) {
            page.prefixed("note:", Color::Cyan, &format!("ruled out: {ruled_out}"));
        }
        let help = if report.advice_was_given(position) { &[][..] } else { &finding.help };
        for help in help {
            page.prefixed("help:", Color::Green, help);
        }
        if let Some(processes) = view.also_found_in(finding) {
            page.prefixed("note:", Color::Cyan, &format!("the same in {processes}"));
        // For the first finding, the list of participants says so above.
        } else if more > 0 && !(position == 0 && report.scenes.iter().any(|scene| scene.threads.len() > 1)) {
            let threads = if more == 1 { "1 more thread does" } else { &format!("{more} more threads do") };
            page.prefixed("note:", Color::Cyan, &format!("{threads} the same"));
        }
    }
    if let Some(finding) = report.findings.first() {
        let explain = keep_together(&format!("`lockscope explain {}`", finding.code));
        page.prefixed("note:", Color::Cyan, &format!("details: {explain}{}", references(report)));
    }
}

/// "; similar reports: github.com/..": those of the shown findings, unless the advice names them.
fn references(report: &Report) -> String {
    let told = report.different_findings().into_iter().filter(|(position, ..)| !report.advice_was_given(*position));
    let mut links: Vec<String> = Vec::new();
    for (_, finding, _) in told {
        let is_named = |reference: &&str| finding.help.iter().any(|help| help.contains(reference));
        let similar = similar_reports(report, finding).into_iter();
        for link in similar.filter(|reference| !is_named(reference)).map(linked) {
            if !links.contains(&link) {
                links.push(link);
            }
        }
    }
    if links.is_empty() { String::new() } else { format!("; similar reports: {}", links.join(", ")) }
}

/// `rapidsai/dask-cuda#501` as the address that it is short for.
fn linked(reference: &str) -> String {
    format!("github.com/{}", reference.replace('#', "/issues/"))
}

/// Cycles after the first, as `A -> B -> A`.
fn more_cycles(view: &View, style: &Style, page: &mut Page) {
    let cycles = &view.report.cycles;
    // Each finding of a cycle describes one.
    if view.report.findings.len() >= cycles.len() {
        return;
    }
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

fn more_threads(count: usize) -> String {
    if count == 1 { "1 more thread".to_string() } else { format!("{count} more threads") }
}

/// A stack, innermost first, with the waiting and the holding frame marked. `ends` are the numbers of frames of its
/// inner and its outer end.
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
        let folds = !style.detail.all && style.detail.thread.is_none();
        merged(view, process, thread, ends, folds, page);
    }
    if style.detail.steps {
        page.blank();
        working::steps(view, process, thread, page);
    }
}

fn merged(view: &View, process: &str, thread: &Thread, ends: (usize, usize), folds: bool, page: &mut Page) {
    let marks = view.marks(process, thread);
    if thread.frames.is_empty() {
        page.plain("     no frame could be read");
    }
    let last = thread.frames.len();
    let mut skipped = 0;
    let is_marked = |index: usize| marks.iter().any(|(marked, _)| *marked == index);
    let folded = if folds { fold::runs(thread, is_marked) } else { Vec::new() };
    for (index, frame) in thread.frames.iter().enumerate() {
        if let Some(run) = folded.iter().find(|run| run.frames.contains(&index)) {
            if run.frames.start == index {
                page.frame(&format!("     ... {}", run.told()));
            }
            continue;
        }
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

/// The call in which a participant waits, or took its hold, behind the statement.
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
            several if group.is_idle => {
                let threads = if several.len() == 1 { "thread" } else { "threads" };
                page.frame(&format!("  {} {threads}, {}", several.len(), group.role));
            }
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

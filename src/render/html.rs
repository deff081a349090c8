//! The report for a browser: one file, without scripts, fonts or network, that a viewer of artefacts shows as it is.
//!
//! In: a [`Report`]. Out: HTML: the sentence, the graph, the parties, what to change, how each link is known, the parties' stacks
//! side by side, the other threads by equal stacks, gaps. It decides nothing; `maud` escapes every string, and control characters
//! and marks that reorder lines are made visible before.

use std::io;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::parties::{Parties, Party};
use super::similar::similar_reports;
use super::view::{self, View};
use super::{Style, captured, escape, fold, groups, headline, places, shortened, svg};
use crate::report::{Finding, FrameKind, JobRanks, Report, Thread, Verdict};

/// Groups of equal stacks that are shown, and frames of each; the rest is counted.
const MOST_GROUPS: usize = 100;
const MOST_FRAMES: usize = 60;
/// Names of a group's threads.
const MOST_NAMES: usize = 40;
/// Longest text of one place: names of functions and variables have no end of their own.
const MOST_TEXT: usize = 600;
const MOST_NAME: usize = 120;
const STYLE: &str = include_str!("report.css");
/// Even a browser that runs scripts runs none of this file's, and asks nobody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Write `report` as one page.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    out.write_all(page(report).into_string().as_bytes())
}

/// A string of the target, made visible and cut.
fn text(text: &str) -> String {
    shortened(&escape(text), MOST_TEXT)
}

/// A name, cut to what a heading has room for.
fn name(name: &str) -> String {
    shortened(&escape(name), MOST_NAME)
}

fn page(report: &Report) -> Markup {
    let view = View::new(report, "←");
    let parties = Parties::of(&view);
    let verdict = report.verdict.words();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "lockscope: " (verdict) ": " (text(headline(report))) }
                style { (PreEscaped(STYLE)) (PreEscaped(svg::STYLE)) }
            }
            body {
                header class=(state(report)) {
                    p.verdict { (verdict) }
                    h1 { (prose(headline(report))) }
                    @if tells_summary(report) { p { (prose(&report.summary)) } }
                    @if let Some(source) = &report.made_to_happen { p { "Made to happen: " (prose(source)) "." } }
                    p.quiet { (text(&processes(&view))) }
                    @if let Some(taken) = taken(report) { p.quiet { (text(&taken)) } }
                }
                main {
                    @if let Some(job) = &report.job { (ranks(job)) }
                    // A long cycle is seen at once in its picture.
                    @let graph_first = report.cycles.first().is_some_and(|cycle| cycle.edges.len() > 2);
                    @if graph_first && !report.waits.is_empty() { (graph(report)) }
                    @if !report.scenes.is_empty() { (scenes(report, &parties)) }
                    @if report.scenes.is_empty() && !parties.is_empty() { (who(&view, &parties)) }
                    @if !graph_first && !report.waits.is_empty() { (graph(report)) }
                    @if !report.findings.is_empty() { (advice(&view)) }
                    @if !parties.edges.is_empty() { (evidence(&parties)) }
                    @if !parties.is_empty() { (stacks(&view, &parties)) }
                    (others(&view, &parties))
                    @if report.processes.iter().any(|process| !process.gpus.is_empty()) { (gpus(&view)) }
                    @if !report.gaps.is_empty() { (gaps(report)) }
                }
                footer { p { (text(&captured(report))) "; lockscope " (report.lockscope) } }
            }
        }
    }
}

/// Whether the summary says more than the rest of the page: of a process in which nothing is wrong the list of its threads says it all.
fn tells_summary(report: &Report) -> bool {
    let is_wrong = report.verdict.exit_code() != 0 || report.scenes.is_empty() || report.job.is_some();
    is_wrong && !report.summary.is_empty() && report.summary != headline(report)
}

/// The colour of the page: a hang that lockscope finds nothing wrong with is still a hang.
fn state(report: &Report) -> &'static str {
    match report.verdict {
        Verdict::Running | Verdict::NothingFound => "fine",
        Verdict::Blocked | Verdict::CouldDeadlock => "waiting",
        _ => "wrong",
    }
}

/// When and where it was taken.
fn taken(report: &Report) -> Option<String> {
    let host = report.host.as_ref();
    let parts = [
        report.capture.ended.clone().or_else(|| report.capture.began.clone()),
        host.and_then(|host| host.name.clone()).map(|name| format!("on {name}")),
        host.and_then(|host| host.kernel.clone()).map(|kernel| format!("Linux {kernel}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Text in which what stands between backticks is code.
fn prose(words: &str) -> Markup {
    let words = text(words);
    let pieces: Vec<&str> = words.split('`').collect();
    // One backtick alone is a character.
    if pieces.len().is_multiple_of(2) {
        return html! { (words) };
    }
    html! {
        @for (position, piece) in pieces.iter().enumerate() {
            @if position % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}

/// The participants, at the lines of source that matter.
fn scenes(report: &Report, parties: &Parties) -> Markup {
    let style = Style { links: true, ..Style::plain() };
    html! {
        section aria-labelledby="parties" {
            h2 id="parties" { @if parties.is_empty() && report.scenes.len() < 2 { "Where it is" } @else { "Who takes part" } }
            div.side {
                @for scene in &report.scenes {
                    article.scene {
                        h3 { (name(&scene.who)) }
                        @for place in &scene.places {
                            p.place {
                                @let shown = places::shown(place, &style).unwrap_or_default();
                                @if let Some(address) = places::address(place, &style) { a href=(address) { (text(&shown)) } }
                                @else { (text(&shown)) }
                                @if let Some(function) = &place.function { " " code { (text(function)) } }
                                @if place.changed { " (the file was changed since)" }
                            }
                            // The common indentation of all lines carries no information.
                            @let indent = place.lines.iter().filter_map(|line| line.text.as_ref());
                            @let cut = indent.map(|text| text.len() - text.trim_start().len()).min().unwrap_or(0);
                            ol.source {
                                @for line in &place.lines {
                                    li {
                                        @if let Some(number) = line.line { span.number { (number) } }
                                        @if let Some(words) = &line.text { code { (text(words.get(cut..).unwrap_or(words))) } }
                                        span.does { (prose(&line.does)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if let Some(more) = parties.more().filter(|_| parties.members().count() > report.scenes.iter().map(|scene| scene.threads.len()).sum()) {
                p { (more) }
            }
        }
    }
}

/// `python3 train.py (process 885, CPython 3.12.3); ...`: each command once, with the processes that it started.
fn processes(view: &View) -> String {
    const MOST: usize = 8;
    let mut commands: Vec<(String, String, Vec<String>)> = Vec::new();
    for process in &view.report.processes {
        let words = if process.cmdline.is_empty() { view.process_name(&process.id) } else { process.cmdline.join(" ") };
        let python = process.python.as_ref().map(|python| format!(", CPython {}", python.version)).unwrap_or_default();
        match commands.iter_mut().find(|command| (&command.0, &command.1) == (&words, &python)) {
            Some(known) => known.2.push(process.pid.to_string()),
            None => commands.push((words, python, vec![process.pid.to_string()])),
        }
    }
    let first = |mut all: Vec<String>, separator: &str| {
        if all.len() > MOST {
            let more = format!("and {} more", all.len() - MOST);
            all.truncate(MOST);
            all.push(more);
        }
        all.join(separator)
    };
    let parts = commands.into_iter().map(|(words, python, pids)| {
        let word = if pids.len() == 1 { "process" } else { "processes" };
        format!("{words} ({word} {}{python})", first(pids, ", "))
    });
    first(parts.collect(), "; ")
}

/// The kernels on the GPUs.
fn gpus(view: &View) -> Markup {
    html! {
        section aria-labelledby="gpus" {
            h2 id="gpus" { "What ran on the GPU" }
            @for process in &view.report.processes {
                @for gpu in &process.gpus {
                    h3 { "GPU " (gpu.device) " of " (name(&view.process_name(&process.id))) ": " (name(&gpu.name)) }
                    @for error in &gpu.errors {
                        p {
                            strong { (text(&error.what)) }
                            @if let Some(kernel) = &error.kernel { " in " code { (text(kernel)) } }
                            @if let Some(line) = error.lines.last() { " at " (text(&line.place())) }
                        }
                    }
                    @if gpu.kernels.is_empty() { p { "No kernel runs." } }
                    @for kernel in gpu.kernels.iter().take(MOST_GROUPS) {
                        p { code { (text(&kernel.told())) } ", " (kernel.status) }
                        ul {
                            @for place in kernel.places.iter().take(MOST_FRAMES) {
                                li {
                                    (text(&place.told()))
                                    span.quiet { ", " (place.blocks) " blocks, " (place.warps) " warps, " (place.threads) " threads" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn graph(report: &Report) -> Markup {
    html! {
        section aria-labelledby="graph" {
            h2 id="graph" { "Who waits for whom" }
            figure {
                div.scroll tabindex="0" role="group" aria-label="Wait-for graph" { (PreEscaped(svg::graph(report, false))) }
                figcaption {
                    "An arrow leads from who waits to what is waited for, and from there to who has it. Boxes are threads, rounded "
                    "boxes locks and the like, pointed ones lead out of the process. "
                    @if report.processes.len() > 1 { "Frames are processes, and an arrow to a frame leads to any thread inside. " }
                    "Red and thick: a cycle, or an owner that is gone. Solid: exact; "
                    "dashed: inferred; dotted: one of several candidates."
                }
            }
        }
    }
}

fn who(view: &View, parties: &Parties) -> Markup {
    html! {
        section aria-labelledby="parties" {
            h2 id="parties" { "Who takes part" }
            ol.parties {
                @for party in &parties.parties {
                    li {
                        strong { (name(&party.name)) }
                        @if let Some(asleep) = party.thread.and_then(|(process, tid)| asleep(view, process, tid)) {
                            span.quiet { ", asleep for " (asleep) }
                        }
                        ul {
                            @for statement in &party.statements {
                                li { (prose(&statement.what)) @if let Some(call) = &statement.call { " in " code { (text(call)) } } }
                            }
                        }
                    }
                }
            }
            @if let Some(more) = parties.more() { p { (more) } }
        }
    }
}

/// How long a thread has waited, where that is known and no mere moment: `12.3 s`, `5 min`.
fn asleep(view: &View, process: &str, tid: i32) -> Option<String> {
    let since = view.waits_of(process, tid).iter().filter_map(|wait| wait.since_ms).max()?;
    match since / 1000 {
        0 => None,
        seconds @ 1..120 => Some(format!("{seconds}.{} s", since % 1000 / 100)),
        seconds @ 120..7200 => Some(format!("{} min", seconds / 60)),
        seconds => Some(format!("{} h", seconds / 3600)),
    }
}

fn evidence(parties: &Parties) -> Markup {
    html! {
        section aria-labelledby="evidence" {
            h2 id="evidence" { "How it is known" }
            div.scroll tabindex="0" role="group" aria-label="Evidence" {
                table.cards {
                    thead { tr { th scope="col" { "link" } th scope="col" { "evidence" } th scope="col" { "proof" } } }
                    tbody {
                        @for edge in &parties.edges {
                            tr {
                                th scope="row" {
                                    (parties.parties.get(edge.from).map(|party| name(&party.name)).unwrap_or_default()) " → "
                                    (edge.to.and_then(|to| parties.parties.get(to)).map_or("nobody".into(), |party| name(&party.name)))
                                }
                                td { (prose(&edge.evidence)) }
                                td data-label="proof" { (edge.known_how) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn advice(view: &View) -> Markup {
    let report = view.report;
    html! {
        section aria-labelledby="advice" {
            h2 id="advice" { "What to change" }
            @for (position, finding, more) in report.different_findings() {
                (one_finding(report, finding, report.advice_was_given(position), says(&report.summary, &finding.message)))
                @if let Some(processes) = view.also_found_in(finding) { p { "The same in " (text(&processes)) "." } }
                @else if more > 0 { p { (more) @if more == 1 { " more thread does" } @else { " more threads do" } " the same." } }
            }
        }
    }
}

/// Whether a text begins with a message, whose first letter may be another there.
fn says(text: &str, message: &str) -> bool {
    let rest = |text: &str| text.chars().skip(1).collect::<String>();
    !message.is_empty() && rest(text).starts_with(&rest(message))
}

fn one_finding(report: &Report, finding: &Finding, advice_was_given: bool, is_summary: bool) -> Markup {
    let severity = finding.severity.as_str();
    let similar = similar_reports(report, finding);
    html! {
        article {
            h3 { span class=(severity) { (severity) } " " (prose(&finding.title)) " " code { (text(&finding.code)) } }
            @if !finding.message.is_empty() && !is_summary { p { (prose(&finding.message)) } }
            @if !advice_was_given {
                @if !finding.help.is_empty() { ul { @for help in &finding.help { li { (prose(help)) } } } }
                @if !similar.is_empty() { p.quiet { "Similar reports: " (text(&similar.join(", "))) } }
                p.quiet { "More: " code { "lockscope explain " (text(&finding.code)) } }
            }
        }
    }
}

fn stacks(view: &View, parties: &Parties) -> Markup {
    let threads = parties.parties.iter().enumerate().filter_map(|(index, party): (usize, &Party)| {
        let (process, tid) = party.thread?;
        Some((index + 1, process, view.thread(process, tid)?))
    });
    html! {
        section aria-labelledby="stacks" {
            h2 id="stacks" { "Their stacks" }
            div.side {
                @for (number, process, thread) in threads {
                    article {
                        h3 { (number) ", " (name(&view.thread_name(process, thread.tid))) }
                        (stack(view, process, thread))
                    }
                }
            }
        }
    }
}

/// Innermost first, with the frames that wait or took something marked.
fn stack(view: &View, process: &str, thread: &Thread) -> Markup {
    let marks = view.marks(process, thread);
    let frames = || thread.frames.iter().enumerate().filter(|(_, frame)| frame.kind != FrameKind::Boundary);
    let marked = |index: usize| marks.iter().filter(move |(frame, _)| *frame == index).map(|(_, words)| words.as_str());
    let mut left = MOST_FRAMES;
    let shown: Vec<_> = frames()
        .filter(|(index, _)| {
            left = left.saturating_sub(1);
            left > 0 || marked(*index).next().is_some()
        })
        .collect();
    let hidden = frames().count() - shown.len();
    let runs = fold::runs(thread, |index| marked(index).next().is_some());
    let run_of = |index: usize| runs.iter().find(|run| run.frames.contains(&index));
    html! {
        @if shown.is_empty() { p.quiet { "no frame could be read" } }
        ol.stack {
            @for (index, frame) in shown.iter().copied() {
                @if let Some(run) = run_of(index) {
                    @if run.frames.start == index {
                        li.fold value=(index) {
                            details {
                                summary { (run.told()) }
                                ol.stack { @for (index, frame) in shown.iter().copied().filter(|(index, _)| run.frames.contains(index)) {
                                    li value=(index) {
                                        code { (text(&view::function_name(frame))) }
                                        @if let Some(place) = view::place_or_module(frame) { " " span.place { (text(&place)) } }
                                    }
                                } }
                            }
                        }
                    }
                } @else {
                @let words = marked(index).collect::<Vec<_>>().join(", ");
                li class=[(!words.is_empty()).then_some("marked")] value=(index) {
                    code { (text(&view::function_name(frame))) }
                    @if let Some(place) = view::place_or_module(frame) { " " span.place { (text(&place)) } }
                    @if !words.is_empty() { " " strong { (prose(&words)) } }
                    @if !frame.locals.is_empty() {
                        dl { @for (name, value) in &frame.locals { dt { (text(name)) } dd { (text(value)) } } }
                    }
                }
                }
            }
        }
        @if hidden > 0 { p.quiet { (hidden) " more frames are in the JSON" } }
    }
}

fn others(view: &View, parties: &Parties) -> Markup {
    let groups = groups::groups(view, &parties.told().collect(), &view.victims());
    if groups.is_empty() {
        return html! {};
    }
    let hidden: usize = groups.iter().skip(MOST_GROUPS).map(|group| group.members.len()).sum();
    html! {
        section aria-labelledby="others" {
            h2 id="others" { @if parties.is_empty() { "Threads" } @else { "Other threads" } }
            @for group in groups.iter().take(MOST_GROUPS) {
                details {
                    summary {
                        (group.members.len()) @if group.members.len() == 1 { " thread: " } @else { " threads: " }
                        @if !group.role.is_empty() { (text(&group.role)) ": " }
                        (prose(&group.doing))
                        @if let Some(call) = &group.call { " in " (text(call)) }
                        @if group.because { ", because of this" }
                    }
                    p { (text(&group.names(view, MOST_NAMES))) }
                    @if let Some((process, thread)) = group.members.first() { (stack(view, process, thread)) }
                }
            }
            @if hidden > 0 { p { (hidden) " more threads are in the JSON" } }
        }
    }
}

/// All ranks of a job, grouped by their activity. The rare groups come first, because the cause is among them.
fn ranks(job: &JobRanks) -> Markup {
    let of = job.size.map(|size| format!(" of {size}")).unwrap_or_default();
    let hidden = job.groups.get(MOST_GROUPS..).unwrap_or_default();
    let count: usize = hidden.iter().map(|group| group.count).sum();
    html! {
        section aria-labelledby="ranks" {
            h2 id="ranks" { "Who is where: ranks " (text(&job.reported)) (of) }
            table {
                thead { tr { th scope="col" { "Ranks" } th scope="col" { "How many" } th scope="col" { "What they do" } } }
                tbody {
                    @for group in job.groups.iter().take(MOST_GROUPS) {
                        tr {
                            th scope="row" { (text(&group.ranks)) }
                            td { (group.count) }
                            td { span class=[wrong(group.verdict)] { (group.verdict.words()) } ": " (prose(&group.doing)) }
                        }
                    }
                }
            }
            @if count > 0 { p.quiet { (count) " more ranks in " (hidden.len()) " further groups, which the JSON has." } }
            @if !job.missing.is_empty() { p { "No report of ranks " (text(&job.missing)) "." } }
            @if !job.ended.is_empty() { p { "Ended: ranks " (text(&job.ended)) "." } }
            @if !job.two_rounds { p.quiet { "Not all were looked at twice." } }
        }
    }
}

/// The appearance of a verdict over a group of ranks.
fn wrong(verdict: Verdict) -> Option<&'static str> {
    (verdict.exit_code() != 0).then_some("error")
}

fn gaps(report: &Report) -> Markup {
    html! {
        section aria-labelledby="gaps" {
            h2 id="gaps" { "What could not be read or decided" }
            ul { @for gap in &report.gaps { li { (text(&gap.what)) ": " (text(&gap.why)) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::{empty, ring, seed, with_scenes};

    #[test]
    fn ranks_of_a_job_stand_in_groups_however_many_there_are() {
        let mut report = seed();
        let group = |number: usize| crate::report::RankGroup {
            ranks: format!("{number}-{}", number + 9),
            count: 10,
            verdict: if number == 0 { Verdict::Deadlock } else { Verdict::Blocked },
            doing: format!("in `step` {number} <b>"),
        };
        report.job = Some(JobRanks {
            size: Some(2000),
            reported: "0-1999".into(),
            missing: "7".into(),
            groups: (0..200).map(group).collect(),
            ..JobRanks::default()
        });
        let page = page(&report).into_string();
        assert!(page.contains("Who is where: ranks 0-1999 of 2000"));
        assert!(page.contains("1000 more ranks in 100 further groups") && page.contains("No report of ranks 7."));
        assert!(page.contains("&lt;b&gt;") && page.contains("class=\"error\">"));
    }

    #[test]
    fn equal_advice_is_given_once() {
        let mut report = seed();
        report.findings.push(report.findings[0].clone());
        let page = page(&report).into_string();
        assert_eq!(page.matches("give CUDA a native callback").count(), 1, "{page}");
        assert_eq!(page.matches("<h3><span class=\"error\">").count(), 1, "{page}");
        assert!(page.contains("1 more thread does the same"), "{page}");
        report.findings[1].help.push("another".into());
        assert_eq!(super::page(&report).into_string().matches("give CUDA a native callback").count(), 2);
    }

    #[test]
    fn a_long_cycle_stays_a_page_that_can_be_read() {
        let page = page(&ring(500)).into_string();
        assert!(page.contains("and 499 more") && page.contains("484 threads: "), "{page}");
        assert!(page.len() < 200_000, "{}", page.len());
    }

    #[test]
    fn a_page_has_the_sentence_the_graph_the_stacks_and_the_advice() {
        let page = page(&seed()).into_string();
        for part in [
            "<p class=\"verdict\">deadlock</p>",
            "<svg ",
            "Who takes part",
            "waits here",
            "What to change",
            "stopped for 0.8 ms",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href=\"http"), "{page}");
        assert!(super::page(&empty()).into_string().contains("</html>"));
    }

    #[test]
    fn each_party_says_how_long_it_has_been_asleep() {
        let mut report = seed();
        for (since, words) in [(12_345, "(12.3 s so far)"), (300_000, "(5 min so far)"), (7_200_000, "(2 h so far)")] {
            report.waits[0].since_ms = Some(since);
            let page = page(&with_scenes(report.clone())).into_string();
            assert!(page.contains(words), "{words}: {page}");
        }
        report.waits[0].since_ms = Some(999);
        assert!(!page(&with_scenes(report)).into_string().contains("so far"));
    }

    #[test]
    fn a_command_of_many_processes_is_said_once() {
        let mut report = seed();
        for pid in 2000..2003 {
            let process = crate::report::Process { id: format!("p{pid}"), pid, ..report.processes[0].clone() };
            report.processes.push(process);
        }
        let words = processes(&View::new(&report, "<-"));
        assert!(words.contains("(processes ") && words.contains(", 2001, 2002"), "{words}");
        assert_eq!(words.matches("train.py").count(), 1, "{words}");
    }

    #[test]
    fn hostile_strings_stay_strings() {
        let mut report = seed();
        let hostile = "</title></style><script>alert(1)</script>\u{202e}\u{1b}[31m\"><img src=x onerror=y>";
        report.summary = hostile.into();
        report.findings[0].title = hostile.into();
        report.processes[0].threads[0].name = hostile.into();
        report.processes[0].threads[0].frames[0].function = Some(hostile.repeat(1000));
        let page = page(&report).into_string();
        for part in ["<script", "<img", "\u{202e}", "\u{1b}"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
        assert!(page.len() < 100_000, "{}", page.len());
    }
}

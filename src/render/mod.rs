//! Renderers: a [`Report`] in, bytes out.
//!
//! [`text`] and [`html`] are for people, [`json`] for programs, [`short`] for alerts, [`svg`], [`dot`] and [`mermaid`] for pictures, [`markdown`] for tickets, [`junit`]
//! and [`github`] for CI systems. A renderer sees the report and a [`Style`];
//! it samples no process and decides nothing that the report does not say.

mod alike;
mod dot;
mod fold;
pub(crate) mod github;
mod groups;
#[cfg(feature = "cli")]
pub(crate) mod html;
pub(crate) mod json;
#[cfg(feature = "cli")]
pub(crate) mod junit;
mod layout;
pub(crate) mod markdown;
pub(crate) mod mermaid;
mod parties;
mod picture;
#[cfg(test)]
mod pictures;
mod places;
mod sarif;
pub(crate) mod short;
mod similar;
pub(crate) mod svg;
pub(crate) mod text;
mod view;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use crate::report::{Certainty, Proof, Report, Verdict};

/// The formats of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// For people.
    Text,
    /// One line for alerts: verdict, code, places.
    Short,
    /// For programs; `lockscope schema` describes it.
    Json,
    /// Graphviz: the graph, with the cycle in red.
    Dot,
    /// For a browser: one file, without scripts and without network. Needs the feature `cli`.
    #[cfg(feature = "cli")]
    Html,
    /// The same graph as a picture.
    Svg,
    /// The same graph for Mermaid.
    Mermaid,
    /// For tickets and pull requests: GitHub's Markdown.
    Markdown,
    /// For code scanning and editors: SARIF 2.1.0. (Since 1.2.)
    Sarif,
}

impl Format {
    /// The format that a file's ending asks for: `.txt`, `.json`, `.dot` or `.gv`, `.html`, `.svg`, `.mmd`, `.md`, `.sarif`.
    pub fn from_path(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "txt" => Some(Format::Text),
            "json" => Some(Format::Json),
            "dot" | "gv" => Some(Format::Dot),
            #[cfg(feature = "cli")]
            "html" | "htm" => Some(Format::Html),
            "svg" => Some(Format::Svg),
            "mmd" | "mermaid" => Some(Format::Mermaid),
            "md" | "markdown" => Some(Format::Markdown),
            "sarif" => Some(Format::Sarif),
            _ => None,
        }
    }
}

/// How text is laid out. Made by [`Style::plain`] or [`Style::for_stdout`]; then each field can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// ANSI colours.
    pub color: bool,
    /// Arrows beyond ASCII.
    pub unicode: bool,
    /// Paths below this folder are shown without it.
    pub working_directory: Option<PathBuf>,
    /// Places are links, for terminals that support them (OSC 8).
    pub links: bool,
    /// The detail of a text.
    pub detail: Detail,
}

/// The detail of a text. Its default is the least; then each field can be set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Detail {
    /// Every thread with its stack, instead of groups.
    pub all: bool,
    /// Nothing but this thread.
    pub thread: Option<i32>,
    /// Native and Python stacks apart, as they were before merging.
    pub raw: bool,
    /// The steps by which each shown thread was read.
    pub steps: bool,
}

/// Columns where there is no terminal to ask.
const DEFAULT_WIDTH: usize = 100;
/// Narrower than this, columns are no help any more.
const LEAST_WIDTH: usize = 40;

impl Style {
    /// For a file or a pipe: 100 columns, no colour, ASCII arrows.
    pub fn plain() -> Style {
        Style {
            width: DEFAULT_WIDTH,
            color: false,
            unicode: false,
            working_directory: None,
            links: false,
            detail: Detail::default(),
        }
    }

    /// For standard output as it is: its width, and colour and arrows where the terminal and the user want them.
    pub fn for_stdout() -> Style {
        let terminal = io::stdout().is_terminal().then(|| {
            terminal_size::terminal_size_of(io::stdout())
                .map_or(DEFAULT_WIDTH, |(terminal_size::Width(width), _)| width.into())
        });
        let style = Style::decide(|name| std::env::var(name).ok(), terminal);
        Style { working_directory: std::env::current_dir().ok(), ..style }
    }

    /// The rules, apart from the process's own environment; `terminal` is the width of a terminal, if it is one.
    fn decide(variable: impl Fn(&str) -> Option<String>, terminal: Option<usize>) -> Style {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let color = if set("NO_COLOR").is_some() {
            false
        } else if ["CLICOLOR_FORCE", "FORCE_COLOR"]
            .into_iter()
            .filter_map(set)
            .any(|value| value != "0" && value != "false")
        {
            true
        } else {
            terminal.is_some() && !dumb && set("CLICOLOR").is_none_or(|value| value != "0")
        };
        // The first that is set decides, as in setlocale(3).
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        Style {
            width: terminal.unwrap_or(DEFAULT_WIDTH).max(LEAST_WIDTH),
            color,
            unicode: terminal.is_some() && !dumb && utf8,
            working_directory: None,
            // Terminals that know no links leave them out; the kernel's own console and `dumb` ones print them.
            links: terminal.is_some() && color && !dumb && set("TERM").is_some_and(|term| term != "linux"),
            detail: Detail::default(),
        }
    }
}

/// Write `report` as `format`; `style` matters to text, and its working directory to SARIF.
pub fn render(report: &Report, format: Format, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
    match format {
        Format::Text => text::render(report, style, out),
        Format::Short => short::render(report, out),
        Format::Json => json::render(report, out),
        Format::Dot => dot::render(report, out),
        #[cfg(feature = "cli")]
        Format::Html => html::render(report, out),
        Format::Svg => svg::render(report, out),
        Format::Mermaid => mermaid::render(report, out),
        Format::Markdown => markdown::render(report, out),
        Format::Sarif => sarif::render(report, style, out),
    }
}

/// The first sentence; of a report without one the title of the first finding, else the summary, else words for the verdict.
pub(crate) fn headline(report: &Report) -> &str {
    match report.findings.first() {
        _ if !report.sentence.is_empty() => &report.sentence,
        Some(finding) if !finding.title.is_empty() => &finding.title,
        _ if !report.summary.is_empty() => &report.summary,
        _ => match report.verdict {
            Verdict::Running => "the process is running",
            Verdict::Blocked => "every thread waits, for something outside of what was captured",
            Verdict::Deadlock | Verdict::SuspectedDeadlock => "threads wait for each other",
            Verdict::OrphanedLock => "the owner of a lock is gone",
            Verdict::Stuck => "nobody can end a wait",
            Verdict::CouldDeadlock => "locks are taken in different orders",
            Verdict::NothingFound => "nothing was seen that could hang",
        },
    }
}

/// The place of each member in the program's own code: `/srv/app.py:14`.
pub(crate) fn places_of_members(report: &Report) -> Vec<String> {
    short::places(report)
}

/// The wait of the first process's main thread, and its line: `MainThread waits for Queue (empty)`, `/srv/app.py:14`.
pub(crate) fn main_thread(report: &Report) -> Option<(String, Option<String>)> {
    let process = report.processes.first()?;
    let thread = process.threads.iter().find(|thread| thread.tid == process.pid)?;
    let view = view::View::new(report, "<-");
    view.waits_of(&process.id, thread.tid).first()?;
    Some((
        format!("{} {}", thread.name, view.doing_shortly(&process.id, thread)),
        short::place(report, process, thread),
    ))
}

/// At most `most` characters. The cut is before the end, because the end has numbers.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_string();
    }
    let tail = (most / 3).min(24);
    let head: String = text.chars().take(most - tail - 1).collect();
    head + "…" + &text.chars().skip(count - tail).collect::<String>()
}

/// How a link is known: `recorded`, `by code`, `by absence`, `candidate`.
fn known_how(certainty: Certainty, proof: Proof) -> &'static str {
    match (certainty, proof) {
        (Certainty::Candidate, _) => "candidate",
        (_, Proof::Recorded) => "recorded",
        (_, Proof::Code) => "by code",
        (_, Proof::Absence) => "by absence",
    }
}

/// How sure, in one word.
fn certainty_word(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Exact => "exact",
        Certainty::Inferred => "inferred",
        Certainty::Candidate => "candidate",
    }
}

/// `captured 13 threads, stopped for 0.8 ms, looked twice`.
fn captured(report: &Report) -> String {
    let count = report.capture.threads;
    let mut line = format!("captured {count} {}", if count == 1 { "thread" } else { "threads" });
    if let Some(path) = &report.source.path {
        line.push_str(&format!(" from {path}"));
    }
    if report.capture.pause_us > 0 {
        line.push_str(&format!(", stopped for {:.1} ms", report.capture.pause_us as f64 / 1000.0));
    }
    let read = &report.capture.registers;
    let ways = [(read.asleep_by_ebpf, "eBPF"), (read.asleep_by_proc, "/proc")];
    let ways: Vec<String> = ways
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, way)| format!("{count} read asleep by {way}"))
        .collect();
    if !ways.is_empty() {
        if report.capture.pause_us == 0 {
            line.push_str(", stopped for 0 ms");
        }
        line.push_str(&format!(" ({})", ways.join(", ")));
    }
    match read.asked_again {
        0 => {}
        1 => line.push_str(", late threads asked again"),
        times => line.push_str(&format!(", late threads asked again {times} times")),
    }
    match report.capture.looks {
        0 | 1 => {}
        2 => line.push_str(", looked twice"),
        looks => line.push_str(&format!(", looked {looks} times")),
    }
    line
}

/// Whether a character does something to a terminal or to the text around it, cannot be seen, or is none that XML may contain:
/// control characters, marks of direction and lines, what has no width, tags, U+FFFE and U+FFFF.
fn is_treacherous(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// The same for text of several lines, which stay lines.
pub(crate) fn escape_lines(text: &str) -> String {
    text.split('\n').map(|line| escape(&line.replace('\t', "    "))).collect::<Vec<_>>().join("\n")
}

/// Make a string of the target harmless: what could deceive a reader or a program becomes an escape that can be seen.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_treacherous(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(variables: &[(&str, &str)], terminal: Option<usize>) -> Style {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        Style::decide(find, terminal)
    }

    #[test]
    fn the_environment_decides_colour() {
        assert!(decide(&[], Some(80)).color);
        assert!(!decide(&[], None).color);
        assert!(!decide(&[("NO_COLOR", "1")], Some(80)).color);
        assert!(decide(&[("NO_COLOR", "")], Some(80)).color, "an empty NO_COLOR counts as unset");
        assert!(!decide(&[("TERM", "dumb")], Some(80)).color);
        assert!(!decide(&[("CLICOLOR", "0")], Some(80)).color);
        assert!(decide(&[("CLICOLOR_FORCE", "1")], None).color);
        assert!(decide(&[("FORCE_COLOR", "3")], None).color && !decide(&[("FORCE_COLOR", "0")], None).color);
        assert!(!decide(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], None).color);
    }

    #[test]
    fn arrows_need_a_terminal_and_utf8() {
        assert!(decide(&[("LANG", "de_DE.UTF-8")], Some(80)).unicode);
        assert!(!decide(&[("LANG", "de_DE.UTF-8")], None).unicode);
        assert!(!decide(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")], Some(80)).unicode);
        assert!(!decide(&[("LANG", "C.utf8"), ("TERM", "dumb")], Some(80)).unicode);
    }

    #[test]
    fn width_follows_the_terminal() {
        assert_eq!(decide(&[], Some(132)).width, 132);
        assert_eq!(decide(&[], Some(3)).width, LEAST_WIDTH);
        assert_eq!(decide(&[], None).width, DEFAULT_WIDTH);
    }

    #[test]
    fn endings_name_formats() {
        assert_eq!(Format::from_path(Path::new("a/b.JSON")), Some(Format::Json));
        assert_eq!(Format::from_path(Path::new("x.gv")), Some(Format::Dot));
        assert_eq!(Format::from_path(Path::new("x.txt")), Some(Format::Text));
        assert_eq!(Format::from_path(Path::new("x")), None);
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(shortened("MainThread (533)", 16), "MainThread (533)");
        assert_eq!(shortened("a very long name of a thread (533)", 18), "a very long… (533)");
        assert_eq!(shortened("äöüß", 2), "ä…");
    }

    #[test]
    fn nothing_of_the_target_controls_the_terminal() {
        assert_eq!(escape("a\x1b[31m\n\u{202e}ü"), "a\\u{1b}[31m\\n\\u{202e}ü");
        assert_eq!(escape("\u{9b}\u{200b}\u{feff}\u{ffff}\u{e0041}"), "\\u{9b}\\u{200b}\\u{feff}\\u{ffff}\\u{e0041}");
        assert_eq!(escape_lines("a\tb\r\nc\x07"), "a    b\\r\nc\\u{7}");
    }
}

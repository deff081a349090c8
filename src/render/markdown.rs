//! The report for tickets, pull requests and the summaries of CI systems: GitHub's Markdown.
//!
//! The verdict, the graph for Mermaid, the advice, and the text report folded away. It stays below 64 KiB, since a
//! comment on GitHub takes 65,536 characters. A text that does not fit is cut, and says so.

use std::io;

use super::{Format, Style, headline, mermaid};
use crate::report::Report;

/// Most bytes of the text report.
const MOST_TEXT: usize = 48 << 10;
/// Most bytes of the graph.
const MOST_GRAPH: usize = 12 << 10;

/// Write `report` as Markdown.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let mut text = Vec::new();
    super::render(report, Format::Text, &Style::plain(), &mut text)?;
    let text = String::from_utf8_lossy(&text);
    let title = report.verdict.words();
    writeln!(out, "### lockscope: {title}\n\n**{}**\n", prose(&cut(headline(report), 1 << 10)))?;
    if !report.summary.is_empty() && report.summary != headline(report) {
        writeln!(out, "{}\n", prose(&cut(&report.summary, 1 << 10)))?;
    }
    let graph = mermaid::graph(report);
    if !report.cycles.is_empty() && graph.len() <= MOST_GRAPH {
        fenced("mermaid", &graph, out)?;
    }
    let told = report.findings.iter().enumerate().filter(|(position, _)| !report.advice_was_given(*position));
    let help = told.flat_map(|(_, finding)| &finding.help);
    for help in help.take(8) {
        writeln!(out, "- {}", prose(&cut(help, 512)))?;
    }
    writeln!(out, "\n<details><summary>The whole report</summary>\n")?;
    fenced("text", &cut(&text, MOST_TEXT), out)?;
    writeln!(out, "</details>")
}

/// A code block whose fence is longer than any run of backticks inside.
fn fenced(language: &str, text: &str, out: &mut dyn io::Write) -> io::Result<()> {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    writeln!(out, "{fence}{language}\n{}\n{fence}\n", text.trim_end())
}

/// Text that is nothing but text: no markup, no links, nobody mentioned.
fn prose(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in super::escape(text).chars() {
        match letter {
            '@' => escaped.push_str("@<!-- -->"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' | '&' | '$' | '!' => {
                escaped.extend(['\\', letter]);
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// At most `most` bytes, with a note about the missing rest.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_string();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}\n[{} more bytes are cut here]", &text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::{empty, seed};

    fn rendered(report: &Report) -> String {
        let mut bytes = Vec::new();
        render(report, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_deadlock_has_a_graph_advice_and_the_whole_report() {
        let text = rendered(&seed());
        for part in ["### lockscope: deadlock", "```mermaid\nflowchart LR", "\n- ", "<details>", "deadlock: "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!rendered(&empty()).contains("mermaid"));
    }

    #[test]
    fn hostile_names_are_only_text_and_sizes_are_bounded() {
        let mut report = seed();
        report.findings[0].title = "</details>@everyone [x](y) ```".to_string();
        report.gaps[0].why = "```` ".repeat(40_000);
        let text = rendered(&report);
        assert!(text.contains(r"**\</details\>@<!-- -->everyone \[x\](y) \`\`\`**"), "{text}");
        assert!(text.len() < 65_536 && text.contains("more bytes are cut here"), "{}", text.len());
        assert!(text.trim_end().ends_with("</details>"));
    }
}

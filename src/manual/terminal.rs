//! Text for a terminal: how paragraphs, lists, tables and code are set out, for pages of the manual and for explanations of findings.
//!
//! In: a page and the width of the terminal. Out: text whose prose is as wide as the terminal. Code can be copied: its lines are not
//! broken. A table that the width has no room for is set out as a list.

use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};
use textwrap::{Options, WrapAlgorithm};

use super::{Page, linked};

/// Between two columns.
const GAP: usize = 2;
/// No column is made narrower than this.
const LEAST_COLUMN: usize = 18;

/// How wide, and by which rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    width: usize,
}

impl Layout {
    /// For so many columns.
    pub(crate) fn new(width: usize) -> Layout {
        Layout { width }
    }

    fn options(self) -> Options<'static> {
        // The other algorithm makes lines even, and some of them too long for the terminal.
        Options::new(self.width).wrap_algorithm(WrapAlgorithm::FirstFit)
    }

    /// One paragraph.
    pub(crate) fn paragraph(self, text: &str) -> String {
        textwrap::fill(text, self.options())
    }

    /// An entry of a list: what follows the first line is indented.
    pub(crate) fn entry(self, text: &str) -> String {
        self.indented(text, "* ", "  ")
    }

    fn indented(self, text: &str, first: &str, others: &str) -> String {
        textwrap::fill(text, self.options().initial_indent(first).subsequent_indent(others))
    }

    /// The title of a section.
    pub(crate) fn heading(title: &str) -> String {
        format!("{title}\n{}", "-".repeat(title.chars().count()))
    }

    fn table(self, rows: &[Vec<String>]) -> String {
        self.columns(rows).unwrap_or_else(|| self.list(rows))
    }

    /// Side by side; `None` where there is too little room.
    fn columns(self, rows: &[Vec<String>]) -> Option<String> {
        let count = rows.first()?.len();
        let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
        let mut widths: Vec<usize> =
            (0..count).map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
        let longest_word = |cell: &String| cell.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        let least: Vec<usize> =
            (0..count).map(|column| cells(column).map(longest_word).max().unwrap_or(0).max(LEAST_COLUMN)).collect();
        while widths.iter().sum::<usize>() + GAP * (count - 1) > self.width {
            let shrinks = widths.iter().zip(&least).enumerate().filter(|(_, (width, least))| width > least);
            let widest = shrinks.max_by_key(|(_, (width, _))| **width).map(|(column, _)| column)?;
            // A command that is broken cannot be copied.
            if cells(widest).any(|cell| code_alone(cell).is_some_and(|code| code.chars().count() + 2 >= widths[widest]))
            {
                return None;
            }
            widths[widest] -= 1;
        }
        let mut lines = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let broken: Vec<Vec<String>> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| Layout::new(*width).paragraph(cell).lines().map(str::to_owned).collect())
                .collect();
            for line in 0..broken.iter().map(Vec::len).max().unwrap_or(0) {
                let parts = broken.iter().zip(&widths).map(|(cell, width)| {
                    let text = cell.get(line).map_or("", String::as_str);
                    format!("{text:width$}")
                });
                lines.push(parts.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned());
            }
            if at == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                lines.push(rules.join(&" ".repeat(GAP)));
            }
        }
        Some(lines.join("\n"))
    }

    /// A row after the other.
    fn list(self, rows: &[Vec<String>]) -> String {
        let Some((heads, rows)) = rows.split_first() else { return String::new() };
        let entry = |row: &Vec<String>| {
            let mut cells = row.iter();
            let mut lines = vec![self.entry(cells.next().map_or("", String::as_str))];
            for (cell, head) in cells.zip(heads.iter().skip(1)).filter(|(cell, _)| !cell.is_empty()) {
                lines.push(match (code_alone(cell), head.is_empty()) {
                    (Some(code), _) => format!("    {code}"),
                    (None, true) => self.indented(cell, "  ", "  "),
                    (None, false) => self.indented(&format!("{head}: {cell}"), "  ", "    "),
                });
            }
            lines.join("\n")
        };
        rows.iter().map(entry).collect::<Vec<_>>().join("\n")
    }
}

/// The code of a cell that is nothing else.
fn code_alone(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`').filter(|code| !code.contains('`'))
}

/// A page of the manual.
pub(crate) fn text(page: &Page, width: usize) -> String {
    let mut writer = Writer { layout: Layout::new(width), ..Writer::default() };
    page.parsed().for_each(|event| writer.event(event));
    writer.out + "\n"
}

impl Default for Layout {
    fn default() -> Layout {
        Layout::new(80)
    }
}

/// A page as it is set out, block by block.
#[derive(Debug, Default)]
struct Writer {
    layout: Layout,
    out: String,
    /// The words of the block that is read.
    words: String,
    /// For each list that is open, whether an entry of it stands already.
    lists: Vec<bool>,
    /// An entry has begun, and its first words have not come yet.
    begins: bool,
    /// Where the link leads that is open, and where its words begin.
    link: Option<(String, usize)>,
    heading: Option<HeadingLevel>,
    rows: Vec<Vec<String>>,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.words.push_str(&text),
            Event::Code(code) => self.words.push_str(&format!("`{code}`")),
            Event::SoftBreak | Event::HardBreak => self.words.push(' '),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => self.heading = Some(level),
            Tag::CodeBlock(_) => self.paragraph(),
            Tag::List(_) => {
                self.paragraph();
                self.lists.push(false);
            }
            Tag::Item => self.begins = true,
            Tag::Link { dest_url, .. } => self.link = Some((dest_url.into_string(), self.words.len())),
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => self.title(),
            TagEnd::CodeBlock => {
                let code = std::mem::take(&mut self.words);
                self.block(code.trim_end(), false);
            }
            TagEnd::List(_) => drop(self.lists.pop()),
            TagEnd::Paragraph | TagEnd::Item => self.paragraph(),
            TagEnd::Link => self.end_link(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.words);
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell.trim().to_owned());
                }
            }
            TagEnd::Table => {
                let rows = std::mem::take(&mut self.rows);
                self.block(&self.layout.table(&rows), false);
            }
            _ => {}
        }
    }

    /// Where a link leads stands behind its words, unless these say it.
    fn end_link(&mut self) {
        let Some((target, from)) = self.link.take() else { return };
        if let Some(page) = linked(&target) {
            self.words.push_str(&format!(" (`lockscope help {}`)", page.name));
        } else if self.words.get(from..).is_some_and(|words| words != target) {
            self.words.push_str(&format!(" ({target})"));
        }
    }

    fn title(&mut self) {
        let title = std::mem::take(&mut self.words);
        let text = match self.heading.take() {
            Some(HeadingLevel::H1) => self.layout.paragraph(&title),
            Some(HeadingLevel::H2) => Layout::heading(&title),
            _ => format!("{title}:"),
        };
        self.block(&text, false);
    }

    /// The words that were read, as a paragraph or as a part of an entry.
    fn paragraph(&mut self) {
        let words = std::mem::take(&mut self.words);
        if words.trim().is_empty() {
            return;
        }
        let Some(outer) = self.lists.len().checked_sub(1) else {
            return self.block(&self.layout.paragraph(&words), false);
        };
        let (first, others) = ("  ".repeat(outer) + "* ", "  ".repeat(outer + 1));
        let begins = std::mem::take(&mut self.begins);
        let text = self.layout.indented(&words, if begins { &first } else { &others }, &others);
        let follows = self.lists.last_mut().is_some_and(|stands| std::mem::replace(stands, true));
        self.block(&text, begins && follows);
    }

    /// `joined`: without an empty line between.
    fn block(&mut self, text: &str, joined: bool) {
        if !self.out.is_empty() {
            self.out.push_str(if joined { "\n" } else { "\n\n" });
        }
        self.out.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual::PAGES;

    fn set_out(markdown: &'static str, width: usize) -> String {
        text(&Page { name: "x", text: markdown }, width)
    }

    #[test]
    fn blocks_are_set_out() {
        let page = "# A title\n\nOne\ntwo **three** `four`.\n\n## Section\n\n* an entry of\n  two lines\n* another\n\n### Part\n\n```\ncode  stays\n```\n\n\
                    See [the rest](containers.md), [the world](https://a.example/b), <https://a.example/>.\n";
        assert_eq!(
            set_out(page, 30),
            "A title\n\nOne two three `four`.\n\nSection\n-------\n\n* an entry of two lines\n* another\n\nPart:\n\ncode  stays\n\n\
             See the rest (`lockscope help\ncontainers`), the world\n(https://a.example/b),\nhttps://a.example/.\n"
        );
    }

    #[test]
    fn tables_are_columns_where_there_is_room() {
        let page =
            "# T\n\n| a | what it is |\n|---|---|\n| `x` | words of some length that are broken |\n| y | short |\n";
        assert_eq!(
            set_out(page, 30),
            "T\n\na    what it is\n---  -------------------------\n`x`  words of some length that\n     are broken\ny    short\n"
        );
        let page =
            "# T\n\n| you have | type | then |\n|---|---|---|\n| a host | `lockscope attach 12345` | look at it |\n";
        assert_eq!(set_out(page, 24), "T\n\n* a host\n    lockscope attach 12345\n  then: look at it\n");
    }

    #[test]
    fn prose_is_as_wide_as_the_terminal_and_code_as_it_is() {
        for page in PAGES {
            for width in [40, 60, 100] {
                let shown = text(page, width);
                let code: Vec<&str> = page.text.split("```").skip(1).step_by(2).collect();
                for line in shown.lines().filter(|line| line.chars().count() > width) {
                    let is_code = line.starts_with("    ") || code.iter().any(|block| block.contains(line));
                    assert!(is_code || !line.trim_start_matches(['*', ' ']).contains(' '), "{}: {line}", page.name);
                }
                assert!(
                    !shown.contains("](") && !shown.contains("**") && !shown.contains("|--"),
                    "{}: {shown}",
                    page.name
                );
            }
        }
    }
}

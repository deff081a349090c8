//! The lines of a text report: wrapped, escaped, coloured, and nothing else.
//!
//! Text goes in as strings that may come from the target; no-break spaces hold names together and become spaces
//! again on the way out.

use std::io;

use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

use crate::render::view::NO_BREAK;
use crate::render::{Style, escape};

/// Colours of a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) enum Color {
    Red,
    Green,
    Yellow,
    Cyan,
}

/// How far to the right the finding's code may stand.
const CODE_COLUMN: usize = 110;

/// Collected lines.
pub(super) struct Page {
    width: usize,
    color: bool,
    lines: Vec<String>,
}

impl Page {
    pub(super) fn new(style: &Style) -> Page {
        Page { width: style.width.max(1), color: style.color, lines: Vec::new() }
    }

    /// Columns of a line.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// An empty line, but never two in a row and none at the top.
    pub(super) fn blank(&mut self) {
        if self.lines.last().is_some_and(|line| !line.is_empty()) {
            self.lines.push(String::new());
        }
    }

    /// A wrapped line, continued at its own start.
    pub(super) fn plain(&mut self, text: &str) {
        self.paragraph("", text);
    }

    /// Wrapped text, its further lines indented by `indent`.
    pub(super) fn paragraph(&mut self, indent: &str, text: &str) {
        let lines = self.wrap(text, indent);
        self.lines.extend(lines);
    }

    /// Wrapped text, in which `part`, if it stands on the first line, leads to an address.
    pub(super) fn linked(&mut self, indent: &str, text: &str, part: &str, address: Option<String>) {
        let mut lines = self.wrap(text, indent);
        let part = escape(part).replace(NO_BREAK, " ");
        if let (Some(first), Some(address)) = (lines.first_mut(), address)
            && !part.is_empty()
        {
            *first = first.replacen(&part, &format!("\x1b]8;;{address}\x1b\\{part}\x1b]8;;\x1b\\"), 1);
        }
        self.lines.extend(lines);
    }

    /// `help: words`, the word in colour, further lines below the words.
    pub(super) fn prefixed(&mut self, word: &str, color: Color, text: &str) {
        let mut lines = self.wrap(&format!("{word} {text}"), &" ".repeat(word.len() + 1));
        self.paint(&mut lines, word, color);
        self.lines.extend(lines);
    }

    /// The verdict, and the finding's code at the right edge, or below where it does not fit.
    pub(super) fn headline(&mut self, word: &str, color: Color, text: &str, code: Option<&str>) {
        let mut lines = self.wrap(&format!("{word} {text}"), &" ".repeat(word.len() + 1));
        if let Some(code) = code {
            let code = escape(&format!("[{code}]"));
            let edge = self.width.min(CODE_COLUMN);
            let used = lines.last().map_or(0, |line| display_width(line));
            match edge.checked_sub(used + display_width(&code)).filter(|&space| space >= 2) {
                Some(space) if lines.len() == 1 => lines[0].push_str(&format!("{}{code}", " ".repeat(space))),
                _ => lines.push(format!("{}{code}", " ".repeat(word.len() + 1))),
            }
        }
        self.paint(&mut lines, word, color);
        self.lines.extend(lines);
    }

    /// A line of a stack: further lines are indented below the function.
    pub(super) fn frame(&mut self, text: &str) {
        self.paragraph("       ", text);
    }

    /// A frame that waits or holds.
    pub(super) fn marked_frame(&mut self, text: &str) {
        let mut lines = self.wrap(text, "       ");
        if self.color {
            for line in &mut lines {
                *line = format!("\x1b[1m{line}\x1b[0m");
            }
        }
        self.lines.extend(lines);
    }

    /// Write all lines.
    pub(super) fn write(self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut text = self.lines.join("\n");
        text.push('\n');
        out.write_all(text.as_bytes())
    }

    /// Break at spaces only: a name that is wider than the line sticks out rather than being cut.
    fn wrap(&self, text: &str, indent: &str) -> Vec<String> {
        let text = escape(text);
        let options = Options::new(self.width)
            .subsequent_indent(indent)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation)
            .wrap_algorithm(WrapAlgorithm::FirstFit);
        let lines = textwrap::wrap(&text, options);
        lines.iter().map(|line| line.trim_end().replace(NO_BREAK, " ")).collect()
    }

    /// Colour `word` at the start of the first line.
    fn paint(&self, lines: &mut [String], word: &str, color: Color) {
        let code = match color {
            Color::Red => "1;31",
            Color::Green => "1;32",
            Color::Yellow => "1;33",
            Color::Cyan => "1;36",
        };
        if let Some(first) = lines.first_mut().filter(|_| self.color)
            && let Some(rest) = first.strip_prefix(word)
        {
            *first = format!("\x1b[{code}m{word}\x1b[0m{rest}");
        }
    }
}

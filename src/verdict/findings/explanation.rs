//! The text of `lockscope explain` about a finding, as data.
//!
//! In: the text in a finding's `explain.md`. Out: [`Explanation`], which the command line sets out for a terminal and of
//! which a report takes the short parts. It holds no layout: lines are broken where they are printed.
//!
//! The text is Markdown of a strict form, so that no library is needed to read it: a title `# code: headline`, then four
//! sections in the order of [`Section`]; in "How to fix it" a part for everybody and a part `### toolkit` for those who are
//! named. Entries of lists (`* `) are what a report prints, paragraphs what `lockscope explain` adds.

use std::fmt;

use crate::report::Severity;

/// The texts of a finding. Paragraphs are one line each, with an empty line between.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// Its name in the contract.
    pub code: &'static str,
    /// A headline.
    pub title: String,
    /// How grave.
    pub severity: Severity,
    /// The meaning of the finding.
    pub what: String,
    /// How a program gets there.
    pub cause: String,
    /// A small program that does.
    pub example: Example,
    /// The fix in any language, if the rule has no closer one: the short form, for reports.
    pub help: Vec<String>,
    /// The fix in the terms of each toolkit.
    pub fixes: Vec<Fix>,
    /// Public reports of the same.
    pub references: Vec<String>,
}

/// A whole program that hangs so every time.
#[derive(Debug, Clone, Copy)]
pub struct Example {
    /// The name to save it under.
    pub file: &'static str,
    /// Its text.
    pub program: &'static str,
    /// A line of the shell that builds and starts it, in the folder of the file.
    pub command: &'static str,
    /// The requirement of a machine to run it.
    pub needs: Requirement,
}

/// The requirement of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// Linux, Python and a C compiler.
    Nothing,
    /// A Python that was built without a GIL.
    PythonWithoutGil,
    /// An NVIDIA GPU with its driver.
    Gpu,
    /// An NVIDIA GPU, and a core of it.
    GpuCore,
    /// A GPU, and CUDA's forward-compatibility package.
    GpuAndCompatibilityPackage,
    /// Two of them, and PyTorch with NCCL.
    TwoGpusAndPyTorch,
    /// MPI, and a sample of all ranks.
    Mpi,
    /// A recorder: it does not hang.
    Recorder,
}

impl Requirement {
    /// "an NVIDIA GPU".
    pub fn describe(self) -> Option<&'static str> {
        match self {
            Requirement::Nothing | Requirement::Recorder => None,
            Requirement::PythonWithoutGil => Some("a Python that was built without a GIL (python3.13t, python3.14t)"),
            Requirement::Gpu => Some("an NVIDIA GPU"),
            Requirement::GpuCore => Some("an NVIDIA GPU, and the core of it that the example has written"),
            Requirement::GpuAndCompatibilityPackage => {
                Some("an NVIDIA GPU, and an image with NVIDIA's package cuda-compat, as those of nvidia/cuda have it")
            }
            Requirement::TwoGpusAndPyTorch => Some("two NVIDIA GPUs and PyTorch"),
            Requirement::Mpi => Some("MPI with mpi4py, and `lockscope job` to look at all ranks"),
        }
    }
}

/// The fix in one toolkit's terms.
#[derive(Debug, Clone)]
pub struct Fix {
    /// Whose.
    pub with: Toolkit,
    /// The short form, for reports on threads that use it; may be empty.
    pub help: Vec<String>,
    /// Paragraphs.
    pub text: String,
}

/// A toolkit that programs are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Toolkit {
    /// Python and its standard library.
    Python,
    /// Coroutines of Python under an event loop.
    Asyncio,
    /// Numba, with numba-cuda.
    Numba,
    /// CuPy.
    CuPy,
    /// PyTorch and its extensions.
    PyTorch,
    /// pybind11.
    Pybind11,
    /// Cython.
    Cython,
    /// PyO3.
    PyO3,
    /// Rust, with Python or without.
    Rust,
    /// C and C++, with CPython's C API or without.
    C,
    /// The command line: environments, containers, batch systems.
    Shell,
}

impl Toolkit {
    /// All toolkits, in the order of the report.
    pub(super) const ALL: [Toolkit; 11] = [
        Toolkit::Python,
        Toolkit::Asyncio,
        Toolkit::Numba,
        Toolkit::CuPy,
        Toolkit::PyTorch,
        Toolkit::Pybind11,
        Toolkit::Cython,
        Toolkit::PyO3,
        Toolkit::Rust,
        Toolkit::C,
        Toolkit::Shell,
    ];

    /// As it stands in headings.
    pub fn name(self) -> &'static str {
        match self {
            Toolkit::Python => "Python",
            Toolkit::Asyncio => "asyncio",
            Toolkit::Numba => "Numba",
            Toolkit::CuPy => "CuPy",
            Toolkit::PyTorch => "PyTorch",
            Toolkit::Pybind11 => "pybind11",
            Toolkit::Cython => "Cython",
            Toolkit::PyO3 => "PyO3",
            Toolkit::Rust => "Rust",
            Toolkit::C => "C and C++",
            Toolkit::Shell => "Shell",
        }
    }
}

impl fmt::Display for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The sections of a text; what stands before the first is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Title,
    What,
    Cause,
    Fixes,
    References,
}

impl Section {
    fn named(heading: &str) -> Option<Section> {
        match heading {
            "What it is" => Some(Section::What),
            "How it comes about" => Some(Section::Cause),
            "How to fix it" => Some(Section::Fixes),
            "References" => Some(Section::References),
            _ => None,
        }
    }
}

/// A paragraph or an entry of a list, its lines joined.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    Title(String),
    Section(String),
    Toolkit(String),
    Entry(String),
    Paragraph(String),
}

impl Block {
    fn begin(line: &str) -> Block {
        let rest = |marker: &str| line.strip_prefix(marker).map(|rest| rest.trim().to_owned());
        rest("### ")
            .map(Block::Toolkit)
            .or_else(|| rest("## ").map(Block::Section))
            .or_else(|| rest("# ").map(Block::Title))
            .or_else(|| rest("* ").map(Block::Entry))
            .unwrap_or_else(|| Block::Paragraph(line.trim().to_owned()))
    }

    /// The text that a further line is joined to; a heading has one line.
    fn open(&mut self) -> Option<&mut String> {
        match self {
            Block::Entry(text) | Block::Paragraph(text) => Some(text),
            Block::Title(_) | Block::Section(_) | Block::Toolkit(_) => None,
        }
    }
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut joins = false;
    for line in text.lines() {
        let starts = ["# ", "## ", "### ", "* "].iter().any(|marker| line.starts_with(marker));
        let open = blocks.last_mut().filter(|_| joins && !starts).and_then(Block::open);
        match open {
            _ if line.trim().is_empty() => {}
            Some(text) => {
                text.push(' ');
                text.push_str(line.trim());
            }
            None => blocks.push(Block::begin(line)),
        }
        joins = !line.trim().is_empty();
    }
    blocks
}

/// Reads a text. Parts that are not of the form are left out and named in the second result, which a test demands to be
/// empty.
pub(super) fn parse(
    code: &'static str,
    severity: Severity,
    example: Example,
    text: &str,
) -> (Explanation, Vec<String>) {
    let (title, what, cause) = (String::new(), String::new(), String::new());
    let (help, fixes, references) = (Vec::new(), Vec::new(), Vec::new());
    let mut told = Explanation { code, title, severity, what, cause, example, help, fixes, references };
    let mut wrong = Vec::new();
    let mut section = Section::Title;
    for block in blocks(text) {
        match (section, block) {
            (Section::Title, Block::Title(title)) if told.title.is_empty() => match title.split_once(": ") {
                Some((of, headline)) if of == code => told.title = headline.to_owned(),
                _ => wrong.push(format!("its title is not `{code}: ...`: {title}")),
            },
            (_, Block::Section(heading)) => match Section::named(&heading) {
                Some(next) if next > section => section = next,
                _ => wrong.push(format!("no such section, or not here: {heading}")),
            },
            (Section::What, Block::Paragraph(text)) => add(&mut told.what, &text),
            (Section::Cause, Block::Paragraph(text)) => add(&mut told.cause, &text),
            (Section::Fixes, Block::Toolkit(name)) => match Toolkit::ALL.iter().find(|one| one.name() == name) {
                Some(with) => told.fixes.push(Fix { with: *with, help: Vec::new(), text: String::new() }),
                None => wrong.push(format!("no such toolkit: {name}")),
            },
            (Section::Fixes, Block::Entry(entry)) => match told.fixes.last_mut() {
                Some(fix) => fix.help.push(entry),
                None => told.help.push(entry),
            },
            (Section::Fixes, Block::Paragraph(text)) => match told.fixes.last_mut() {
                Some(fix) => add(&mut fix.text, &text),
                None => wrong.push(format!("for whom is this: {text}")),
            },
            (Section::References, Block::Entry(reference)) => told.references.push(reference),
            (_, block) => wrong.push(format!("what is this in {section:?}: {block:?}")),
        }
    }
    (told, wrong)
}

/// One more paragraph.
fn add(paragraphs: &mut String, text: &str) {
    if !paragraphs.is_empty() {
        paragraphs.push_str("\n\n");
    }
    paragraphs.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Example = Example { file: "a.py", program: "", command: "", needs: Requirement::Nothing };

    #[test]
    fn lines_are_joined_and_parts_are_told_apart() {
        let text = "# a-b: a headline\n\n## What it is\n\nOne\ntwo.\n\nThree.\n## How it comes about\nSo.\n\n## How to fix it\n\
                    * for all,\n  in two lines\n* again\n\n### Rust\n* short\n\nLong.\n## References\n* man 7 pipe\n";
        let (told, wrong) = parse("a-b", Severity::Note, EXAMPLE, text);
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(
            (told.title.as_str(), told.what.as_str(), told.cause.as_str()),
            ("a headline", "One two.\n\nThree.", "So.")
        );
        assert_eq!(told.help, ["for all, in two lines", "again"]);
        let [fix] = told.fixes.as_slice() else { panic!("{:?}", told.fixes) };
        assert_eq!(
            (fix.with, fix.help.as_slice(), fix.text.as_str()),
            (Toolkit::Rust, &["short".to_owned()][..], "Long.")
        );
        assert_eq!(told.references, ["man 7 pipe"]);
    }

    #[test]
    fn what_is_not_of_the_form_is_named() {
        for (text, complaint) in [
            ("# c: another\n", "its title"),
            ("## What it was\n", "no such section"),
            ("## References\n## What it is\n", "not here"),
            ("## How to fix it\n### Perl\n", "no such toolkit: Perl"),
            ("## How to fix it\nwords\n", "for whom is this: words"),
            ("## What it is\n* an entry\n", "what is this in What"),
            ("words\n", "what is this in Title"),
        ] {
            let (_, wrong) = parse("a-b", Severity::Note, EXAMPLE, text);
            assert!(wrong.len() == 1 && wrong[0].contains(complaint), "{text}: {wrong:?}");
        }
    }

    #[test]
    fn all_toolkits_are_listed_in_order() {
        assert!(Toolkit::ALL.is_sorted());
        assert_eq!(Toolkit::ALL.last(), Some(&Toolkit::Shell));
    }
}

//! The manual: pages of Markdown that are built into the program, and the two ways in which they are shown.
//!
//! In: the `.md` files beside this one. Out: [`PAGES`], a page as a [`terminal`] shows it, and all of them as one [`html`] file. They are
//! read by a library for Markdown; links between pages are the names of their files, so that they work wherever the source is read.

pub(crate) mod html;
pub(crate) mod terminal;

use pulldown_cmark::{Options, Parser};

/// One page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// The word behind `lockscope help`.
    pub(crate) name: &'static str,
    /// Markdown, with its title in the first line.
    pub(crate) text: &'static str,
}

macro_rules! page {
    ($name:literal) => {
        Page { name: $name, text: include_str!(concat!($name, ".md")) }
    };
}

/// All of them, in the order of a book.
pub(crate) const PAGES: &[Page] = &[
    page!("use"),
    page!("test-suites"),
    page!("services"),
    page!("python-locks"),
    page!("recorder"),
    page!("provoke"),
    page!("gpu"),
    page!("post-mortem"),
    page!("gdb"),
    page!("safety"),
    page!("permissions"),
    page!("containers"),
    page!("jobs"),
    page!("clusters"),
    page!("schedulers"),
    page!("comparison"),
    page!("limits"),
];

impl Page {
    /// The words of its first line.
    pub(crate) fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }

    fn parsed(&self) -> Parser<'static> {
        Parser::new_ext(self.text, Options::ENABLE_TABLES)
    }
}

/// The page of this name.
pub(crate) fn page(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

/// A line for each page.
pub(crate) fn list() -> String {
    let column = PAGES.iter().map(|page| page.name.len()).max().unwrap_or(0);
    let lines = PAGES.iter().map(|page| format!("  {:column$}  {}\n", page.name, page.title()));
    format!("Pages of the manual:\n{}", lines.collect::<String>())
}

/// The page that a link leads to.
fn linked(target: &str) -> Option<&'static Page> {
    page(target.split('#').next()?.strip_suffix(".md")?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pulldown_cmark::{Event, Tag};

    use super::*;

    #[test]
    fn each_file_is_a_page_and_each_page_has_one_title() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|file| file.extension().is_some_and(|ending| ending == "md"));
        assert_eq!(files.count(), PAGES.len());
        for page in PAGES {
            assert!(page.text.starts_with("# ") && !page.title().is_empty(), "{}", page.name);
            assert_eq!(page.text.lines().filter(|line| line.starts_with("# ")).count(), 1, "{}", page.name);
        }
    }

    #[test]
    fn links_lead_to_pages_or_to_the_world() {
        for page in PAGES {
            for event in page.parsed() {
                if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
                    let is_known = linked(&dest_url).is_some() || dest_url.starts_with("https://");
                    assert!(is_known, "{}: {dest_url}", page.name);
                }
            }
        }
    }
}

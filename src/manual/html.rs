//! The whole manual as one page for a browser, without scripts and network.
//!
//! In: [`PAGES`]. Out: HTML: a list of the pages, then one section for each. What the pages say as HTML is escaped: they are Markdown.

use maud::{DOCTYPE, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Tag, TagEnd};

use super::{PAGES, Page, linked};

const STYLE: &str = include_str!("manual.css");
/// Nothing is loaded and nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// All pages.
pub(crate) fn whole() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "lockscope " (version) ": manual" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "lockscope " (version) }
                    p { "The pages that " code { "lockscope help" } " shows. What a finding means, " code { "lockscope explain" } " says." }
                }
                nav aria-label="Pages" {
                    ul { @for page in PAGES { li { a href={ "#" (page.name) } { (page.title()) } } } }
                }
                main { @for page in PAGES { section id=(page.name) { (PreEscaped(section(page))) } } }
            }
        }
    };
    page.into_string() + "\n"
}

/// One page; its title is a heading of the second rank, below that of the whole.
fn section(page: &Page) -> String {
    let mut text = String::new();
    pulldown_cmark::html::push_html(&mut text, page.parsed().map(adapted));
    // So that a wide table scrolls by itself.
    text.replace("<table>", "<div class=\"scroll\"><table>").replace("</table>", "</table></div>")
}

fn adapted(event: Event<'static>) -> Event<'static> {
    match event {
        Event::Start(Tag::Heading { level, id, classes, attrs }) => {
            Event::Start(Tag::Heading { level: below(level), id, classes, attrs })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(below(level))),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let dest_url = linked(&dest_url).map_or(dest_url, |page| CowStr::from(format!("#{}", page.name)));
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        other => other,
    }
}

fn below(level: HeadingLevel) -> HeadingLevel {
    HeadingLevel::try_from(level as usize + 1).unwrap_or(HeadingLevel::H6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_a_section_and_links_stay_inside() {
        let text = whole();
        for page in PAGES {
            assert!(text.contains(&format!("<section id=\"{}\">", page.name)), "{}", page.name);
            assert!(text.contains(&format!("<a href=\"#{}\">", page.name)), "{}", page.name);
        }
        assert!(!text.contains(".md\"") && !text.contains("<script"), "links lead to sections");
        assert_eq!(text.matches("<h1>").count(), 1);
        assert!(text.contains("<div class=\"scroll\"><table>"));
    }
}

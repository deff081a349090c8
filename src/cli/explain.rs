//! `lockscope explain`: what a finding means, how it comes about, an example, how to fix it. Works offline.
//!
//! In: the findings' own texts ([`verdict::explanations`]). Out: their one layout, on standard output. The manual's
//! [`Layout`] breaks paragraphs and lists. Code can be copied: it stands at the left margin and its lines are not
//! broken.

use std::process::ExitCode;

use super::{CliError, output};
use crate::manual::{self, terminal::Layout};
use crate::render::Style;
use crate::verdict::{self, Explanation, Fix};

/// Print the explanation of `finding`, or the list of all.
pub(super) fn run(finding: Option<&str>) -> Result<ExitCode, CliError> {
    let text = match finding {
        Some(finding) => full_text(find(finding)?, Style::for_stdout().width),
        None => list(),
    };
    output::to_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each finding.
fn list() -> String {
    let column = verdict::explanations().map(|finding| finding.code.len()).max().unwrap_or(0);
    verdict::explanations().map(|finding| format!("{:column$}  {}\n", finding.code, finding.title)).collect()
}

/// The finding of this code.
pub(super) fn find(wanted: &str) -> Result<&'static Explanation, CliError> {
    // As copied from a report: with its brackets.
    let wanted = wanted.trim_matches(['[', ']']);
    verdict::explain(wanted).ok_or_else(|| {
        let error = CliError::new(format!("there is no finding `{wanted}`"));
        if manual::page(wanted).is_some() {
            return error.hint(format!("it is a page of the manual: `lockscope help {wanted}`"));
        }
        match similar(wanted, verdict::explanations().map(|finding| finding.code)).as_slice() {
            [] => error.hint("`lockscope explain` lists all findings"),
            [one] => error.hint(format!("`lockscope explain {one}`")),
            several => error.hint(format!("similar: {}", several.join(", "))),
        }
    })
}

/// Words that the user may have meant by `wanted`: those that begin with it; else those that share most of its parts.
pub(super) fn similar<'w>(wanted: &str, words: impl Iterator<Item = &'w str>) -> Vec<&'w str> {
    const MOST: usize = 5;
    let wanted = wanted.to_ascii_lowercase().replace('_', "-");
    let words: Vec<&str> = words.collect();
    let begin: Vec<&str> =
        words.iter().copied().filter(|word| !wanted.is_empty() && word.starts_with(&wanted)).collect();
    if !begin.is_empty() {
        return begin.into_iter().take(MOST).collect();
    }
    let mut near: Vec<(usize, &str)> = words.into_iter().map(|word| (shared_parts(word, &wanted), word)).collect();
    // The sort keeps the order of equal ones.
    near.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    let most = near.first().map_or(0, |(shared, _)| *shared);
    near.into_iter().filter(|(shared, _)| *shared > 0 && *shared == most).map(|(_, word)| word).take(MOST).collect()
}

fn shared_parts(word: &str, wanted: &str) -> usize {
    word.split('-').filter(|part| part.len() > 2).filter(|part| wanted.split('-').any(|other| other == *part)).count()
}

/// Everything that is known of a finding.
pub(super) fn full_text(finding: &Explanation, width: usize) -> String {
    let layout = Layout::new(width);
    let filled = |paragraph: &str| layout.paragraph(paragraph);
    let paragraphs = |text: &str| text.split("\n\n").map(filled).collect::<Vec<_>>().join("\n\n");
    let example = &finding.example;
    let needs = example.needs.describe().map(|needs| format!(" It needs {needs}.")).unwrap_or_default();
    let start = format!("Save this as {} and start it with the line below.{needs}", example.file);
    let entries = |help: &[String]| help.iter().map(|help| layout.entry(help)).collect::<Vec<_>>().join("\n");
    let of_toolkit = |fix: &Fix| {
        let parts = [entries(&fix.help), paragraphs(&fix.text)];
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        format!("{}:\n{}", fix.with, parts.join("\n\n"))
    };
    let fixes: Vec<String> = finding.fixes.iter().map(of_toolkit).collect();
    let sections = [
        ("What it is", paragraphs(&finding.what)),
        ("How it comes about", paragraphs(&finding.cause)),
        ("Example", format!("{}\n\n{}\n{}", filled(&start), example.program, example.command)),
        ("How to fix it", format!("{}\n\n{}", entries(&finding.help), fixes.join("\n\n"))),
        ("References", finding.references.join("\n")),
    ];
    let sections = sections.map(|(title, text)| format!("{}\n{text}\n", Layout::heading(title)));
    format!("{}\n\n{}", filled(&format!("{}: {}", finding.code, finding.title)), sections.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_explained_in_five_parts() {
        let text = full_text(find("[lock-order-cycle]").unwrap(), 60);
        assert!(text.starts_with("lock-order-cycle: locks are taken in different orders\n\nWhat it is\n----------\n"));
        let titles = ["What it is", "How it comes about", "Example", "How to fix it", "References"];
        let places: Vec<usize> = titles.iter().map(|title| text.find(&format!("\n{title}\n--")).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(text.contains("\npython3 lock_order_cycle.py\n"));
    }

    #[test]
    fn prose_is_as_wide_as_the_terminal_and_code_as_it_is() {
        for finding in verdict::explanations() {
            let text = full_text(finding, 60);
            assert!(text.contains(finding.example.program), "{}", finding.code);
            let prose = text.replace(finding.example.program, "").replace(finding.example.command, "");
            for line in prose.lines().filter(|line| line.chars().count() > 60) {
                assert!(!line.trim().contains(' '), "{}: {line}", finding.code);
            }
        }
    }

    #[test]
    fn without_a_name_all_are_listed() {
        let list = list();
        assert_eq!(list.lines().count(), verdict::explanations().count());
        let column = list.find("Python GIL <-> lock inside").unwrap() - list.find("gil-vs-driver-callback").unwrap();
        assert!(list.contains(&format!("{:column$}CUDA in a forked child", "cuda-after-fork")), "{list}");
    }

    #[test]
    fn an_unknown_name_gets_similar_ones() {
        let error = find("self-lok").unwrap_err().to_string();
        assert_eq!(error, "error: there is no finding `self-lok`\nhint: similar: executor-self-wait, self-deadlock");
        let error = find("lock-order-c").unwrap_err().to_string();
        assert_eq!(error, "error: there is no finding `lock-order-c`\nhint: `lockscope explain lock-order-cycle`");
        assert!(find("containers").unwrap_err().to_string().contains("`lockscope help containers`"));
        assert!(find("x").unwrap_err().to_string().contains("lists all"));
    }
}

//! `lockscope explain`: what a finding means, why it happens, how to fix it. Works offline.
//!
//! The texts belong to the findings themselves; [`catalogue`] is the only place that knows where they are.

use std::process::ExitCode;

use super::{CliError, output};
use crate::render::Style;
use crate::verdict;

/// What is known about one finding.
pub(super) struct Explanation {
    /// Its name in the contract.
    pub(super) code: String,
    /// A headline.
    pub(super) title: String,
    /// What, why, how to fix, references; paragraphs with an empty line between.
    pub(super) text: String,
}

/// All findings, in the order of the list.
fn catalogue() -> Vec<Explanation> {
    let list = |items: &[&str]| items.iter().map(|item| format!("  {item}\n")).collect::<String>();
    verdict::explanations()
        .map(|known| Explanation {
            code: known.code.into(),
            title: known.title.into(),
            text: format!(
                "{}\n\nWhat to change:\n{}\nReferences:\n{}",
                known.text,
                list(known.help),
                list(known.references)
            ),
        })
        .collect()
}

/// Print the explanation of `finding`, or the list of all.
pub(super) fn run(finding: Option<&str>) -> Result<ExitCode, CliError> {
    let text = answer(&catalogue(), finding, Style::for_stdout().width)?;
    output::to_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn answer(catalogue: &[Explanation], finding: Option<&str>, width: usize) -> Result<String, CliError> {
    let Some(wanted) = finding else {
        let column = catalogue.iter().map(|finding| finding.code.len()).max().unwrap_or(0);
        let lines = catalogue.iter().map(|finding| format!("{:column$}  {}\n", finding.code, finding.title));
        return Ok(lines.collect());
    };
    // As copied from a report: with its brackets.
    let wanted = wanted.trim_matches(['[', ']']);
    match catalogue.iter().find(|finding| finding.code == wanted) {
        Some(finding) => {
            // Only paragraphs are filled: an indented line is code and stays as it is.
            let lines = finding.text.lines().map(|line| match line.starts_with(' ') {
                true => line.to_string(),
                false => textwrap::fill(line, width),
            });
            let lines: Vec<String> = lines.collect();
            Ok(format!("{}: {}\n\n{}\n", finding.code, finding.title, lines.join("\n").trim_end()))
        }
        None => {
            let error = CliError::new(format!("there is no finding `{wanted}`"));
            let near = catalogue.iter().filter(|finding| shares_word(&finding.code, wanted));
            let near: Vec<&str> = near.map(|finding| finding.code.as_str()).take(5).collect();
            Err(match near.is_empty() {
                true => error.hint("`lockscope explain` lists all findings"),
                false => error.hint(format!("similar: {}", near.join(", "))),
            })
        }
    }
}

fn shares_word(code: &str, wanted: &str) -> bool {
    code.split('-').filter(|word| word.len() > 2).any(|word| wanted.split('-').any(|other| other == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<Explanation> {
        let make =
            |code: &str, text: &str| Explanation { code: code.into(), title: "A title".into(), text: text.into() };
        vec![make("lock-order-cycle", "One two three four.\n\n    code stays as it is"), make("self-deadlock", "x")]
    }

    #[test]
    fn a_finding_is_explained() {
        let text = answer(&two(), Some("[lock-order-cycle]"), 10).unwrap();
        assert_eq!(text, "lock-order-cycle: A title\n\nOne two\nthree\nfour.\n\n    code stays as it is\n");
    }

    #[test]
    fn without_a_name_all_are_listed() {
        assert_eq!(answer(&two(), None, 80).unwrap(), "lock-order-cycle  A title\nself-deadlock     A title\n");
    }

    #[test]
    fn an_unknown_name_gets_similar_ones() {
        let error = answer(&two(), Some("lock-cycle"), 80).unwrap_err();
        assert_eq!(error.to_string(), "error: there is no finding `lock-cycle`\nhint: similar: lock-order-cycle");
        assert!(answer(&two(), Some("x"), 80).unwrap_err().to_string().contains("lists all"));
    }
}

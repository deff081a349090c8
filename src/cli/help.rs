//! `lockscope help`: pages of the manual, commands and findings by one word.
//!
//! In: a word. Out: the page as a terminal shows it, the command's help, or the finding's explanation; without a word, what there is.

use std::process::ExitCode;

use super::{CliError, Color, explain, man_pages, output};
use crate::render::Style;
use crate::{manual, verdict};

/// Print what `word` names.
pub(super) fn run(word: Option<&str>, color: Color) -> Result<ExitCode, CliError> {
    let style = output::style(color);
    let text = match word {
        None => overview(&style),
        Some(word) => about(word, &style)?,
    };
    output::to_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Commands, pages, and where the findings are.
fn overview(style: &Style) -> String {
    let help = man_pages::command().render_help();
    let help = if style.color { help.ansi().to_string() } else { help.to_string() };
    let more = "`lockscope help WORD` shows a page, the help of a command, or what a finding means; `lockscope explain` lists the \
                findings.";
    let more = manual::terminal::Layout::new(style.width).paragraph(more);
    format!("{help}\n{}\n{more}\n", manual::list())
}

fn about(word: &str, style: &Style) -> Result<String, CliError> {
    if let Some(page) = manual::page(word) {
        return Ok(manual::terminal::text(page, style.width));
    }
    let mut command = man_pages::command();
    command.build();
    let shown = command.find_subcommand_mut(word).filter(|command| !command.is_hide_set());
    if let Some(command) = shown {
        let help = command.render_long_help();
        return Ok(if style.color { help.ansi().to_string() } else { help.to_string() });
    }
    if let Ok(finding) = explain::find(word) {
        return Ok(explain::full_text(finding, style.width));
    }
    let error = CliError::new(format!("there is no page, command or finding `{word}`"));
    let pages = manual::PAGES.iter().map(|page| page.name);
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let codes = verdict::explanations().map(|finding| finding.code);
    let near = explain::similar(word, pages.chain(commands).chain(codes));
    Err(match near.is_empty() {
        true => error.hint("`lockscope help` lists pages and commands, `lockscope explain` the findings"),
        false => error.hint(format!("similar: {}", near.join(", "))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Style {
        Style { width: 72, ..Style::plain() }
    }

    #[test]
    fn a_word_is_a_page_a_command_or_a_finding() {
        assert!(about("containers", &plain()).unwrap().contains("kubectl debug"));
        assert!(about("attach", &plain()).unwrap().contains("Usage: lockscope attach"));
        assert!(about("[lock-order-cycle]", &plain()).unwrap().starts_with("lock-order-cycle: "));
        let error = about("container", &plain()).unwrap_err().to_string();
        assert!(error.contains("similar: containers"), "{error}");
        assert!(about("demo-target", &plain()).is_err(), "what is hidden has no help");
    }

    /// The lines of blocks of code that begin with our name, up to the words behind them.
    #[test]
    fn lines_of_readme_and_manual_are_right_usage() {
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
        let texts = manual::PAGES.iter().map(|page| page.text).chain([readme.as_str()]);
        let blocks = texts.flat_map(|text| text.split("```").skip(1).step_by(2));
        let lines: Vec<&str> = blocks.flat_map(str::lines).filter(|line| line.starts_with("lockscope ")).collect();
        assert!(lines.len() > 10, "{lines:?}");
        for line in lines {
            let line = line.split("  ").next().unwrap_or_default();
            if let Err(error) = man_pages::command().try_get_matches_from(line.split(' ')) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn without_a_word_all_pages_and_commands_are_listed() {
        let text = overview(&plain());
        for word in manual::PAGES.iter().map(|page| page.name).chain(["attach", "snapshot", "explain"]) {
            assert!(text.contains(&format!("  {word} ")), "{word}: {text}");
        }
        assert!(!text.contains("demo-target"), "{text}");
    }
}

//! `lockscope generate`: manual pages and completions, made from the definition of the command line itself, and the manual as HTML.

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

use super::args::Arguments;
use super::{CliError, GenerateArguments, Generated, man_pages, output};
use crate::{manual, verdict};

/// The program's name, which shells complete.
const NAME: &str = "lockscope";

/// Where each shell looks for completions below a prefix's share, under which name.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/lockscope"),
    (Shell::Zsh, "zsh/site-functions/_lockscope"),
    (Shell::Fish, "fish/vendor_completions.d/lockscope.fish"),
];

/// Write one of them to standard output, or all of them to a folder.
pub(super) fn run(arguments: &GenerateArguments) -> Result<ExitCode, CliError> {
    if let Some(folder) = &arguments.all {
        all(folder)?;
    }
    if let Some(what) = arguments.what {
        output::to_stdout(&match what {
            Generated::Man => man_pages::main_page(),
            Generated::Html => manual::html::whole().into_bytes(),
            Generated::Bash => completion(Shell::Bash),
            Generated::Zsh => completion(Shell::Zsh),
            Generated::Fish => completion(Shell::Fish),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn all(folder: &Path) -> Result<(), CliError> {
    for (shell, place) in COMPLETIONS {
        file(&folder.join(place), &completion(shell))?;
    }
    for (name, text) in man_pages::pages() {
        file(&folder.join("man/man1").join(name), &text)?;
    }
    file(&folder.join("doc/lockscope/manual.html"), manual::html::whole().as_bytes())
}

/// Unlike a report, it is for everybody.
fn file(path: &Path, text: &[u8]) -> Result<(), CliError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| CliError::new(format!("cannot write `{}`: {error}", path.display())))
}

fn completion(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    generate(shell, &mut visible(), NAME, &mut text);
    if shell == Shell::Fish {
        text.extend(fish_values().into_bytes());
    }
    text
}

/// The values of arguments that are no options, which clap's completions for fish leave out; and fish knows processes.
fn fish_values() -> String {
    let codes: Vec<&str> = verdict::explanations().map(|known| known.code).collect();
    let shown: Vec<_> = Generated::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
    let shown: Vec<&str> = shown.iter().map(|value| value.get_name()).collect();
    let line = |subcommands: &str, values: &str| {
        format!("complete -c lockscope -n \"__fish_lockscope_using_subcommand {subcommands}\" -f -a \"{values}\"\n")
    };
    [
        line("explain", &codes.join(" ")),
        line("help", &words_of_help().join(" ")),
        line("generate", &shown.join(" ")),
        line("attach snapshot watch", "(__fish_complete_pids)"),
    ]
    .concat()
}

/// The words of `lockscope help`.
fn words_of_help() -> Vec<&'static str> {
    manual::PAGES.iter().map(|page| page.name).chain(man_pages::commands()).collect()
}

/// The command line as it is offered: without what is hidden, and with the findings that can be explained.
fn visible() -> clap::Command {
    let whole = Arguments::command();
    let shown = whole.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned().collect::<Vec<_>>();
    let mut command = clap::Command::new(NAME).disable_help_subcommand(true).subcommands(shown);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    let codes: Vec<&str> = verdict::explanations().map(|known| known.code).collect();
    command
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned().collect::<Vec<_>>())
        .mut_subcommand("explain", |explain| explain.mut_arg("finding", |finding| finding.value_parser(codes)))
        .mut_subcommand("help", |help| help.mut_arg("word", |word| word.value_parser(words_of_help())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_where_they_are_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        all(folder.path()).unwrap();
        for (_, place) in COMPLETIONS {
            let text = std::fs::read_to_string(folder.path().join(place)).unwrap();
            assert!(
                text.contains("max-pause") && text.contains("lock-order-cycle") && text.contains("containers"),
                "{place}"
            );
            assert!(!text.contains("demo-target") && !text.contains("monitor"), "{place}");
        }
        assert!(folder.path().join("man/man1/lockscope.1").exists());
        assert!(folder.path().join("man/man1/lockscope-attach.1").exists());
        assert!(folder.path().join("doc/lockscope/manual.html").exists());
    }
}

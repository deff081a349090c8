//! Suggestions for mistyped words.
//!
//! In: the words, and clap's error about them. Out: lines to type instead. Words of other debuggers are known by a table; a file that
//! exists and a process that runs are looked for, and nothing is done with them.

use std::path::Path;

use clap::error::ErrorKind;

use super::processes;
use crate::{manual, verdict};

/// Words that other programs have for it, and the command.
const OTHER_WORDS: &[(&[&str], &str)] = &[
    (
        &[
            "dump",
            "stack",
            "stacks",
            "bt",
            "backtrace",
            "thread",
            "threads",
            "inspect",
            "show",
            "look",
            "remote",
            "top",
            "ps",
        ],
        "attach",
    ),
    (&["open", "load", "read", "analyze", "analyse", "report", "postmortem", "post-mortem"], "core"),
    (&["save", "capture", "gcore", "collect"], "snapshot"),
    (&["exec", "test", "timeout", "start", "launch"], "run"),
    (&["follow", "wait", "guard"], "watch"),
    (&["man", "manual", "docs", "doc", "usage"], "help"),
    (&["findings", "codes", "why"], "explain"),
    (&["completion", "completions"], "generate"),
];
/// Options that name a process elsewhere, and nothing here.
const PROCESS_OPTIONS: [&str; 3] = ["-p", "--pid", "--process"];
/// Commands that take a process.
const OF_PROCESSES: [&str; 3] = ["attach", "snapshot", "watch"];

/// Lines to type instead; none where clap's own words are enough.
pub(super) fn hints(words: &[String], error: ErrorKind) -> Vec<String> {
    if !matches!(error, ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument | ErrorKind::InvalidValue) {
        return Vec::new();
    }
    let first = words.iter().find(|word| !word.starts_with('-')).map_or("", String::as_str);
    let other = OTHER_WORDS.iter().find(|(others, _)| others.contains(&first)).map(|(_, command)| *command);
    let pids = pids(words);
    if error == ErrorKind::InvalidSubcommand
        && let Some(command) = other
    {
        return match command {
            "attach" | "snapshot" | "watch" if !pids.is_empty() => vec![of_processes(command, &pids)],
            "attach" | "watch" => vec![format!("`lockscope {command} PID|NAME`")],
            "snapshot" => vec!["`lockscope snapshot PID|NAME -o FILE`".into()],
            "core" => vec!["`lockscope core FILE`".into()],
            "run" => vec!["`lockscope run -- COMMAND`".into()],
            other => vec![format!("`lockscope {other}`")],
        };
    }
    if is_pid(first) || error == ErrorKind::UnknownArgument && names_process(words) && !pids.is_empty() {
        let command = OF_PROCESSES.into_iter().find(|command| *command == first).unwrap_or("attach");
        return vec![of_processes(command, &pids)];
    }
    if error == ErrorKind::InvalidSubcommand { of_what_there_is(first) } else { Vec::new() }
}

/// `lockscope hang.snapshot.zst`, `lockscope containers`, `lockscope lock-order-cycle`, `lockscope gunicorn`.
fn of_what_there_is(word: &str) -> Vec<String> {
    let code = word.trim_matches(['[', ']']);
    if manual::page(word).is_some() {
        vec![format!("`lockscope help {word}`")]
    } else if verdict::explain(code).is_some() {
        vec![format!("`lockscope explain {code}`")]
    } else if Path::new(word).is_file() {
        vec![format!("`lockscope core {word}` for a core or a snapshot, `lockscope run -- {word}` for a program")]
    } else if processes::is_running(word) {
        vec![format!("`lockscope attach {word}`")]
    } else {
        Vec::new()
    }
}

fn of_processes(command: &str, pids: &[&str]) -> String {
    let file = if command == "snapshot" { " -o FILE" } else { "" };
    format!("`lockscope {command} {}{file}`", pids.join(" "))
}

fn is_pid(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// `--pid 12`, `--pid=12`, `-p12`.
fn names_process(words: &[String]) -> bool {
    words.iter().any(|word| PROCESS_OPTIONS.iter().any(|option| value_in(word, option).is_some()))
}

/// The text behind an option in the same word.
fn value_in<'w>(word: &'w str, option: &str) -> Option<&'w str> {
    let rest = word.strip_prefix(option)?;
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    (rest.is_empty() || is_pid(rest)).then_some(rest)
}

/// Ids of processes among the words.
fn pids(words: &[String]) -> Vec<&str> {
    let behind = |word| PROCESS_OPTIONS.iter().find_map(|option| value_in(word, option)).unwrap_or(word);
    words.iter().map(|word| behind(word.as_str())).filter(|word| is_pid(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::man_pages::command;

    fn hint(line: &str) -> String {
        let error = command().try_get_matches_from(line.split(' ')).unwrap_err();
        let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
        hints(&words, error.kind()).join("; ")
    }

    #[test]
    fn words_of_other_programs_lead_to_ours() {
        for (line, meant) in [
            ("lockscope 1234", "`lockscope attach 1234`"),
            ("lockscope -p 1234", "`lockscope attach 1234`"),
            ("lockscope --pid=1234", "`lockscope attach 1234`"),
            ("lockscope dump --pid 12", "`lockscope attach 12`"),
            ("lockscope dump -p12", "`lockscope attach 12`"),
            ("lockscope dump", "`lockscope attach PID|NAME`"),
            ("lockscope attach -p 12", "`lockscope attach 12`"),
            ("lockscope snapshot --pid 12 -o x", "`lockscope snapshot 12 -o FILE`"),
            ("lockscope exec pytest", "`lockscope run -- COMMAND`"),
            ("lockscope containers", "`lockscope help containers`"),
            ("lockscope lock-order-cycle", "`lockscope explain lock-order-cycle`"),
            ("lockscope attach 12 --treee", ""),
            ("lockscope no-such-word-at-all", ""),
        ] {
            assert_eq!(hint(line), meant, "{line}");
        }
    }

    #[test]
    fn each_word_leads_to_a_command() {
        let known = command();
        for (words, to) in OTHER_WORDS {
            assert!(known.find_subcommand(to).is_some(), "{to}");
            assert!(words.iter().all(|word| known.find_subcommand(word).is_none()), "{words:?}");
        }
    }
}

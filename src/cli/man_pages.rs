//! Manual pages for man, and what `--help` has behind the options: names, synopses and options come from the definition of the
//! command line, exit statuses, files, environment and examples from here.

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::args::Arguments;
use crate::manual;
use crate::render::Style;

/// A term and its explanation.
type Entry = (&'static str, &'static str);

/// The parts of a command's page that the definition of the command line lacks.
struct Extra {
    /// The subcommand, or "lockscope".
    command: &'static str,
    status: &'static [Entry],
    files: &'static [Entry],
    environment: &'static [Entry],
    /// Each example: its effect, and the line to type.
    examples: &'static [Entry],
    /// Pages of lockscope or of others, with their section.
    see_also: &'static [&'static str],
}

const OF_A_VERDICT: &[Entry] = &[
    ("0", "Nothing wrong was found: the process is running, or blocked by something outside."),
    ("1", "A deadlock, a suspected deadlock, an orphaned lock, or a wait that nobody can end."),
    ("2", "lockscope could not look: wrong usage, no permission, no such process or file."),
];
const OF_A_TASK: &[Entry] = &[("0", "Done."), ("2", "It could not be done.")];
const YAMA: Entry = (
    "/proc/sys/kernel/yama/ptrace_scope",
    "Who may look at processes of the same user: 0 all, 1 ancestors, 2 those with CAP_SYS_PTRACE, 3 nobody.",
);
const DEBUG_FILES: Entry =
    ("/usr/lib/debug", "Separate debug files, which give names and lines; nothing depends on them.");
const REPORTS: Entry = (
    "DIR/hang-HOST-PID.txt, .html, .json, .md, .xml, .snapshot.zst",
    "The reports of a hang, in the folder of --report-dir. Only their owner can read them.",
);
const COLOURS: &[Entry] = &[
    ("NO_COLOR", "No colour, unless it is empty."),
    ("CLICOLOR_FORCE, FORCE_COLOR", "Colour also where standard output is no terminal, unless it is 0."),
    ("CLICOLOR", "No colour if it is 0."),
    ("TERM", "No colour and no arrows beyond ASCII if it is dumb."),
    ("LC_ALL, LC_CTYPE, LANG", "Arrows beyond ASCII on a terminal if the first of these that is set names UTF-8."),
];
const REPORT_FOLDER: Entry = ("LOCKSCOPE_REPORT_DIR", "As --report-dir. A command that is run finds it set, too.");
const GITHUB: Entry = (
    "GITHUB_ACTIONS, GITHUB_STEP_SUMMARY, GITHUB_WORKSPACE",
    "If the first is true, a hang becomes an annotation of the line that hangs and a part of the step's summary.",
);

const EXTRAS: &[Extra] = &[
    Extra {
        command: "lockscope",
        status: &[
            ("0", "Nothing wrong was found, or the task was done."),
            ("1", "Something was found that will not end by itself: a deadlock, an orphaned lock, a stuck wait."),
            ("2", "lockscope could not look: wrong usage, no permission, no such process or file."),
            ("124 to 127, 128+N", "Of lockscope run only; see lockscope-run(1)."),
        ],
        files: &[YAMA, DEBUG_FILES],
        environment: &[COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[4], REPORT_FOLDER],
        examples: &[
            ("Why does process 1234 hang?", "lockscope attach 1234"),
            (
                "Keep what there is to know, and look at it on another machine:",
                "lockscope snapshot 1234 -o hang.snapshot.zst",
            ),
            ("", "lockscope core hang.snapshot.zst"),
            ("Let a test suite end itself when it deadlocks:", "lockscope run -- pytest"),
            ("What a finding means and what to change:", "lockscope explain lock-order-cycle"),
            ("A page of the manual:", "lockscope help containers"),
            ("See it work:", "lockscope demo"),
        ],
        see_also: &["gdb(1)", "ptrace(2)", "proc(5)", "core(5)"],
    },
    Extra {
        command: "attach",
        status: OF_A_VERDICT,
        files: &[YAMA, DEBUG_FILES],
        environment: COLOURS,
        examples: &[
            ("The verdict as text:", "lockscope attach 1234"),
            ("The process of this name, or that runs this script:", "lockscope attach app.py"),
            (
                "A server and all of its workers in one report, also those that it does not wait for:",
                "lockscope attach 1234 --tree",
            ),
            ("For a browser and for a program:", "lockscope attach 1234 -o hang.html -o hang.json"),
            ("JSON on standard output:", "lockscope attach 1234 --format json"),
            ("One line for an alert (verdict, code, file:line, file:line):", "lockscope attach 1234 --format short"),
            ("Nothing but the exit status and a file:", "lockscope attach 1234 --quiet -o hang.html"),
        ],
        see_also: &["lockscope-snapshot(1)", "lockscope-explain(1)", "ptrace(2)"],
    },
    Extra {
        command: "core",
        status: OF_A_VERDICT,
        files: &[DEBUG_FILES],
        environment: COLOURS,
        examples: &[
            ("A core of the kernel or of gcore:", "lockscope core core.1234"),
            ("Cores of several processes that wait for each other:", "lockscope core core.1234 core.1235.zst"),
            ("A snapshot from another machine:", "lockscope core hang.snapshot.zst -o hang.html"),
            (
                "A core from a container, with the container's files beside it:",
                "lockscope core core.1 --sysroot ./rootfs --exe ./rootfs/usr/bin/server",
            ),
        ],
        see_also: &["lockscope-snapshot(1)", "gcore(1)", "coredumpctl(1)", "core(5)"],
    },
    Extra {
        command: "snapshot",
        status: OF_A_TASK,
        files: &[YAMA],
        environment: &[],
        examples: &[
            ("", "lockscope snapshot 1234 -o hang.snapshot.zst"),
            (
                "Without local variables, the environment and arguments:",
                "lockscope snapshot 1234 --tree --redact -o hang.snapshot.zst",
            ),
        ],
        see_also: &["lockscope-core(1)", "lockscope-attach(1)"],
    },
    Extra {
        command: "job",
        status: &[
            ("0", "Digests were written; without -o, nothing wrong was found among the ranks of this node."),
            ("1", "Without -o: a deadlock, a suspected deadlock, an orphaned lock, or a wait that nobody can end."),
            ("2", "lockscope could not look: wrong usage, no permission, no rank of a job, or ranks of several."),
        ],
        files: &[
            (
                "DIR/HOST-*.1.digest.json, DIR/HOST-*.2.digest.json",
                "The looks of both rounds at the ranks of a node. Only their owner can read them.",
            ),
            YAMA,
        ],
        environment: &[("SLURM_JOB_ID", "Under srun: the job whose ranks are looked at.")],
        examples: &[
            ("The verdict over a job on one node:", "lockscope job"),
            ("On each node of a job, into a folder that they share:", "lockscope job -o hang"),
            ("", "lockscope merge hang"),
            ("One round, to standard output:", "lockscope job --round 1 -o -"),
        ],
        see_also: &["lockscope-merge(1)", "lockscope-attach(1)", "mpirun(1)", "srun(1)"],
    },
    Extra {
        command: "merge",
        status: OF_A_VERDICT,
        files: &[],
        environment: COLOURS,
        examples: &[
            ("The verdict over all nodes:", "lockscope merge hang-J"),
            ("For a browser:", "lockscope merge hang-J -o hang.html"),
            ("One file of many:", "lockscope merge hang-J -o hang.digest.json"),
        ],
        see_also: &["lockscope-job(1)"],
    },
    Extra {
        command: "record",
        status: OF_A_VERDICT,
        files: &[],
        environment: COLOURS,
        examples: &[
            ("Of a suite that was recorded:", "lockscope run --record --report-dir reports -- make check"),
            ("", "lockscope record reports/orders"),
            ("Of many, with known places left out:", "lockscope record --suppressions known */orders -o orders.html"),
        ],
        see_also: &["lockscope-run(1)"],
    },
    Extra {
        command: "explain",
        status: OF_A_TASK,
        files: &[],
        environment: &[],
        examples: &[
            ("All findings:", "lockscope explain"),
            ("One of them:", "lockscope explain gil-vs-driver-callback"),
        ],
        see_also: &["lockscope-attach(1)"],
    },
    Extra {
        command: "help",
        status: OF_A_TASK,
        files: &[],
        environment: COLOURS,
        examples: &[
            ("What there is:", "lockscope help"),
            ("A page of the manual:", "lockscope help containers"),
            ("A command:", "lockscope help run"),
        ],
        see_also: &["lockscope-explain(1)"],
    },
    Extra {
        command: "schema",
        status: OF_A_TASK,
        files: &[],
        environment: &[],
        examples: &[("", "lockscope schema")],
        see_also: &["lockscope-attach(1)"],
    },
    Extra {
        command: "generate",
        status: OF_A_TASK,
        files: &[(
            "man/man1, doc/lockscope, bash-completion/completions, zsh/site-functions, fish/vendor_completions.d",
            "Below the folder of --all: where man and the shells look below /usr/local/share and ~/.local/share. zsh looks \
             in the folders of its fpath only.",
        )],
        environment: &[],
        examples: &[
            ("Pages and completions for yourself:", "lockscope generate --all ~/.local/share"),
            ("Read the page without installing it:", "lockscope generate man"),
            ("The manual for a browser:", "lockscope generate html"),
        ],
        see_also: &["man(1)", "bash(1)", "zshcompsys(1)", "fish(1)"],
    },
    Extra {
        command: "run",
        status: &[
            ("N", "The command's own status, also where it is one of those below."),
            ("124", "The command hung, or ran into --timeout or --hang-after, and was ended."),
            ("125", "lockscope itself failed, or invalid usage."),
            ("126", "The command could not be executed."),
            ("127", "There is no such command."),
            ("128+N", "Signal N ended the command."),
        ],
        files: &[REPORTS, YAMA],
        environment: &[
            REPORT_FOLDER,
            (
                "LOCKSCOPE",
                "Set for the command: who watches it. While that process runs, another lockscope run below it only runs its command.",
            ),
            GITHUB,
        ],
        examples: &[
            ("A test suite that ends itself when it deadlocks:", "lockscope run -- pytest"),
            (
                "With a limit, and files for the CI system:",
                "lockscope run --timeout 20m --report-dir hangs -- make check",
            ),
            (
                "Say where it hangs, and let it go on:",
                "lockscope run --hang-after 10m --on-hang report -- python train.py",
            ),
        ],
        see_also: &["lockscope-watch(1)", "timeout(1)"],
    },
    Extra {
        command: "watch",
        status: &[
            (
                "0",
                "The process ended; with --service, SIGTERM ended the watch, or nothing hung at the end of --timeout.",
            ),
            (
                "1",
                "It hangs, or ran into --timeout or --hang-after; with --service, something hung at the end of --timeout.",
            ),
            ("2", "lockscope could not look: wrong usage, no permission, no such process."),
        ],
        files: &[REPORTS, YAMA],
        environment: &[REPORT_FOLDER, GITHUB],
        examples: &[
            ("", "lockscope watch 1234 --hang-after 5m --report-dir hangs"),
            ("A service, through its restarts:", "lockscope watch --unit nginx --report-dir /var/lib/lockscope"),
            (
                "Alarms and metrics:",
                "lockscope watch --exec notify-ops --metrics-file /metrics/lockscope.prom gunicorn",
            ),
        ],
        see_also: &["lockscope-run(1)", "lockscope-attach(1)"],
    },
    Extra {
        command: "demo",
        status: &[
            ("0", "Each deadlock was found."),
            ("1", "One was not."),
            ("2", "It could not be started, or not be looked at."),
        ],
        files: &[],
        environment: COLOURS,
        examples: &[("", "lockscope demo")],
        see_also: &["lockscope-attach(1)"],
    },
];

/// The command line as it is parsed, with examples, environment and exit statuses behind the options of `--help`.
pub(super) fn command() -> clap::Command {
    let width = Style::for_stdout().width;
    EXTRAS.iter().fold(Arguments::command(), |whole, extra| {
        let behind = behind_options(extra, width);
        if extra.command == whole.get_name() {
            whole.after_long_help(format!("{behind}\n\n{}", manual::list().trim_end()))
        } else {
            whole.mut_subcommand(extra.command, |command| command.after_long_help(behind))
        }
    })
}

/// The names of commands, without those that are hidden.
pub(super) fn commands() -> impl Iterator<Item = &'static str> {
    EXTRAS.iter().map(|extra| extra.command).filter(|command| *command != "lockscope")
}

/// Sections below the options of `--help`, in clap's style.
fn behind_options(extra: &Extra, width: usize) -> String {
    let mut parts = Vec::new();
    let examples: Vec<String> = extra
        .examples
        .iter()
        .map(|(what, line)| match *what {
            "" => format!("  {line}"),
            what => format!("  {what}\n      {line}"),
        })
        .collect();
    parts.push(format!("Examples:\n{}", examples.join("\n")));
    for (title, entries) in [("Environment", extra.environment), ("Exit status", extra.status)] {
        if !entries.is_empty() {
            let entries: Vec<String> = entries.iter().map(|entry| described(entry, width)).collect();
            parts.push(format!("{title}:\n{}", entries.join("\n")));
        }
    }
    parts.join("\n\n")
}

/// A short term beside its text, a long one above it.
fn described((term, text): &Entry, width: usize) -> String {
    const COLUMN: usize = 10;
    let indent = " ".repeat(COLUMN);
    let (first, above) = if term.len() + 4 > COLUMN {
        (indent.clone(), format!("  {term}\n"))
    } else {
        (format!("  {term:8}"), String::new())
    };
    let options = textwrap::Options::new(width).initial_indent(&first).subsequent_indent(&indent);
    above + &textwrap::fill(text, options)
}

/// The page of lockscope itself.
pub(super) fn main_page() -> Vec<u8> {
    page(built())
}

/// Each page with the name of its file; hidden subcommands have none.
pub(super) fn pages() -> Vec<(String, Vec<u8>)> {
    let whole = built();
    let shown = whole.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let commands = shown.chain([whole.clone()]);
    commands.map(|command| (format!("{}.1", name(&command)), page(command))).collect()
}

/// With the names that subcommands have in usage.
fn built() -> clap::Command {
    let mut command = Arguments::command();
    command.build();
    command
}

fn name(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(mut command: clap::Command) -> Vec<u8> {
    const SOURCE: &str = concat!("lockscope ", env!("CARGO_PKG_VERSION"));
    let title = name(&command);
    let extra = EXTRAS.iter().find(|extra| extra.command == command.get_name());
    let is_main = command.has_subcommands();
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let own: Vec<String> = shown.map(|subcommand| format!("{}(1)", name(subcommand))).collect();
    // As --help shows it, with all that a value needs.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    // An argument that is empty, as the date is, has to be quoted: the ones behind it would move up.
    let man = Man::new(command).title(title.to_uppercase()).date("\"\"").source(SOURCE).manual("User Commands");
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = man
        .render_title(&mut text)
        .and_then(|()| man.render_name_section(&mut text))
        .and_then(|()| man.render_synopsis_section(&mut text))
        .and_then(|()| man.render_description_section(&mut text))
        .and_then(|()| man.render_options_section(&mut text))
        .and_then(|()| if is_main { man.render_subcommands_section(&mut text) } else { Ok(()) });
    if let Some(extra) = extra {
        let mut more = Roff::new();
        entries(&mut more, "EXIT STATUS", extra.status);
        entries(&mut more, "FILES", extra.files);
        entries(&mut more, "ENVIRONMENT", extra.environment);
        examples(&mut more, extra.examples);
        let main = (!is_main).then(|| "lockscope(1)".to_owned());
        let others = extra.see_also.iter().map(|page| (*page).to_owned());
        see_also(&mut more, main.into_iter().chain(own).chain(others));
        let _ = more.to_writer(&mut text);
    }
    text
}

fn entries(roff: &mut Roff, heading: &str, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    for (term, text) in entries {
        roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
    }
}

fn examples(roff: &mut Roff, examples: &[Entry]) {
    roff.control("SH", ["EXAMPLES"]);
    for (what, line) in examples {
        if !what.is_empty() {
            roff.control("PP", []).text([roman(*what)]);
        }
        // As it is to be typed: not filled, and with hyphens that can be copied.
        roff.control("PP", []).control("RS", ["4"]).control("nf", []).text([roman(*line)]);
        roff.control("fi", []).control("RE", []);
    }
}

fn see_also(roff: &mut Roff, pages: impl Iterator<Item = String>) {
    let mut line = Vec::new();
    for page in pages {
        let Some((name, section)) = page.split_once('(') else { continue };
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(format!("({section}"))]);
    }
    roff.control("SH", ["SEE ALSO"]).text(line);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn each_command_has_all_sections() {
        for (name, text) in pages() {
            let text = String::from_utf8(text).unwrap();
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "EXAMPLES", "\"SEE ALSO\""]
            {
                assert!(text.contains(&format!(".SH {section}\n")), "{name}: {section}");
            }
        }
        let names: Vec<String> = pages().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), EXTRAS.len(), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("demo-target")), "{names:?}");
    }

    #[test]
    fn help_has_examples_and_exit_statuses_of_each_command() {
        let mut whole = command();
        whole.build();
        for name in commands() {
            let help = whole.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.contains("\nExamples:\n  ") && help.contains("\nExit status:\n  "), "{name}: {help}");
        }
        let help = whole.render_long_help().to_string();
        assert!(help.contains("NO_COLOR") && help.contains("\n  containers "), "{help}");
        let short = whole.find_subcommand_mut("attach").unwrap().render_help().to_string();
        assert!(!short.contains("Examples:"), "-h is short");
    }

    #[test]
    fn examples_are_right_usage() {
        for (_, line) in EXTRAS.iter().flat_map(|extra| extra.examples) {
            if let Err(error) = Arguments::try_parse_from(line.split(' ')) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn pages_that_are_named_exist() {
        let names: Vec<String> = pages().into_iter().map(|(name, _)| name).collect();
        let named = EXTRAS.iter().flat_map(|extra| extra.see_also).filter(|page| page.starts_with("lockscope"));
        for page in named {
            assert!(names.contains(&page.replace("(1)", ".1")), "{page}");
        }
    }
}

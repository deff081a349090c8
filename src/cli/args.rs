//! What the user typed, and nothing more: no file is opened, no process is looked at.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::render::Format;

/// Says why a process hangs: who waits for what, who holds it, and how that is known.
#[derive(Debug, Parser)]
#[command(name = "lockscope", version, arg_required_else_help = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Look at running processes; they are stopped for some milliseconds at most
    Attach(AttachArguments),
    /// Look at core files, or at a snapshot: the report that `attach` would have given
    ///
    /// Cores of the kernel and of gdb's gcore, one of each process, and lockscope's own snapshots, all also compressed
    /// with zstd. What the processes had mapped is looked for on this machine and used only where it is the same build.
    /// A core holds no names of threads, no descriptors, no file locks and no states: a snapshot does.
    Core(CoreArguments),
    /// Write down what there is to know of running processes, for `lockscope core` on any machine
    ///
    /// A snapshot is an ELF core of the pages that matter: stacks, registers, locks, Python's frames. It holds names and
    /// lines too, so that nothing of the target is needed to read it; gdb opens it. It is typically below 2 MiB. The
    /// memory of stacks can hold secrets, such as passwords in variables: treat the file as you would treat a core. It
    /// can be read by its owner only.
    Snapshot(SnapshotArguments),
    /// Explain a finding, or list all of them
    Explain {
        /// Code of a finding, as printed in brackets behind the verdict
        finding: Option<String>,
    },
    /// Print the JSON schema of the report
    Schema,
    /// Start a deadlock, look at it, print the report, end it
    Demo,
    /// The deadlock that `demo` looks at
    #[command(hide = true)]
    DemoTarget,
}

/// Arguments of `attach`.
#[derive(Debug, Clone, Args)]
pub struct AttachArguments {
    /// Processes to look at; the first one's progress decides between running and blocked
    #[arg(value_name = "PID", required = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
    /// Also look at all descendants
    #[arg(long)]
    pub tree: bool,
    /// Longest time to keep a process stopped; what did not fit is a gap in the report
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = duration)]
    pub max_pause: Duration,
    /// Show local variables of Python frames
    #[arg(long)]
    pub locals: bool,
    /// Where and how to write.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `core`.
#[derive(Debug, Clone, Args)]
pub struct CoreArguments {
    /// Cores, one of each process, or a snapshot
    #[arg(value_name = "FILE", required = true)]
    pub cores: Vec<PathBuf>,
    /// The program that left the core, where it lies elsewhere now
    #[arg(long, value_name = "FILE")]
    pub exe: Option<PathBuf>,
    /// A folder with the files that the process had mapped, under the paths that it saw
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// A folder with separate debug files, laid out as /usr/lib/debug; can be repeated
    #[arg(long = "debug-dir", value_name = "DIR")]
    pub debug_directories: Vec<PathBuf>,
    /// Where and how to write.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `snapshot`.
#[derive(Debug, Clone, Args)]
pub struct SnapshotArguments {
    /// Processes to look at; the first one's memory is what gdb sees
    #[arg(value_name = "PID", required = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
    /// Also look at all descendants
    #[arg(long)]
    pub tree: bool,
    /// The file to write; compressed when its name ends in .zst
    #[arg(short = 'o', long = "output", value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// Leave out local variables, the environment and arguments; raw stacks remain, and what of them is said
    #[arg(long)]
    pub redact: bool,
    /// Longest time to keep a process stopped; what did not fit is a gap in the report
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = duration)]
    pub max_pause: Duration,
    /// Keep local variables of Python frames
    #[arg(long, conflicts_with = "redact")]
    pub locals: bool,
}

/// Where and how to write a report.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArguments {
    /// Format of standard output, and of files whose ending says none [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Write to FILE, in the format of its ending (.txt, .json, .dot, .gv, or .snapshot and .snapshot.zst for
    /// `lockscope core`); can be repeated; - is standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `50ms`, `2s`, `1.5s`, `800us`, `1m`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "" => return Err("needs a unit, as in 50ms or 2s".to_string()),
        other => return Err(format!("unknown unit `{other}`; known are us, ms, s and m")),
    };
    let number: f64 = number.parse().map_err(|_| "not a number with a unit, as in 50ms or 2s".to_string())?;
    match Duration::try_from_secs_f64(number * unit) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be more than nothing and less than for ever".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("800 us"), Ok(Duration::from_micros(800)));
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["", "50", "ms", "0s", "-1s", "1h", "1e9s", "1.2.3s", "99999999999999999999999999m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn attach_takes_several_processes_and_files() {
        let line = ["lockscope", "attach", "12", "13", "--tree", "-o", "a.json", "-o", "b.dot", "--max-pause", "2s"];
        let Command::Attach(arguments) = Arguments::try_parse_from(line).unwrap().command else { panic!("attach") };
        assert_eq!(arguments.pids, [12, 13]);
        assert!(arguments.tree && !arguments.locals);
        assert_eq!(arguments.max_pause, Duration::from_secs(2));
        assert_eq!(arguments.output.files.len(), 2);
    }

    #[test]
    fn core_files_are_not_outputs() {
        let line = ["lockscope", "core", "a.core", "b.core", "-o", "c.json", "--debug-dir", "d"];
        let Command::Core(arguments) = Arguments::try_parse_from(line).unwrap().command else { panic!("core") };
        assert_eq!(arguments.cores, [PathBuf::from("a.core"), "b.core".into()]);
        assert_eq!(arguments.output.files, [PathBuf::from("c.json")]);
    }

    #[test]
    fn wrong_usage_is_refused() {
        for line in [&["lockscope", "attach"][..], &["lockscope", "attach", "0"], &["lockscope", "attach", "x"]] {
            assert_eq!(Arguments::try_parse_from(line).unwrap_err().exit_code(), 2);
        }
    }
}

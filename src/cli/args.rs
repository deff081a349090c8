//! The user's words on the command line, and nothing more: this module opens no file and samples no process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{EnumValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use nix::sys::signal::Signal;

use super::values::{ProcessName, duration, period, process, signal, size};
use super::watch_arguments::{LimitArguments, ReportArguments, WatchArguments};
use crate::image::live::Stopping;
use crate::launcher::JobEngine;
use crate::render::{Detail, Format};

/// Says why a process hangs: who waits for what, who holds it, and how that is known.
#[derive(Debug, Parser)]
#[command(name = "lockscope", version, long_version = super::version::LONG, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
pub(super) struct Arguments {
    /// Whether text has colours: auto has them on a terminal, unless the environment says otherwise
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(super) color: Color,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Report why running processes hang; they are stopped for some milliseconds at most
    Attach(AttachArguments),
    /// Report from core files, or from a snapshot, what `attach` would have reported
    ///
    /// Cores of the kernel and of gdb's gcore, one of each process, and lockscope's own snapshots, all also compressed
    /// with zstd. lockscope looks for the mapped files on this machine and uses them only if they are of the same
    /// build. A core holds no names of threads, no descriptors, no file locks and no states: a snapshot does.
    Core(CoreArguments),
    /// Save everything `lockscope core` needs to analyse the processes elsewhere
    ///
    /// A snapshot is an ELF core of the pages that matter: stacks, registers, locks, Python's frames. It also holds
    /// names and lines, so it can be read without any file of the target; gdb opens it. It is typically below 2 MiB.
    /// The memory of stacks can hold secrets, such as passwords in variables: treat the file as you would treat a core.
    /// Only its owner can read it.
    Snapshot(SnapshotArguments),
    /// Sample the ranks of a job on this node, twice
    ///
    /// Finds the ranks of a job of MPI, torchrun, Slurm or Kubernetes among the processes that it may attach to, by the
    /// variables of their launcher. Without -o it prints the verdict over this node. With -o it writes digests, some
    /// kilobytes a rank, for `lockscope merge` to make one verdict over all nodes. Digests record which ranks are in
    /// which collective, which ranks wait for which, and deadlocks inside a rank. A proof needs two rounds: a wait on
    /// the same request in both has not moved.
    Job(JobArguments),
    /// One verdict over the digests of a job's nodes
    ///
    /// Takes digests of `lockscope job`, reports (JSON) and snapshots of ranks, and folders of these, in any order.
    /// Ranks without a file are reported as missing. Equal files give equal bytes.
    Merge(MergeArguments),
    /// Report lock orders that could deadlock, from the files of `run --record`
    ///
    /// Takes the files of many processes and runs, which `run --record --report-dir DIR` keeps in DIR/orders. Nothing
    /// hung in these runs: the report is on possible deadlocks.
    Record(RecordArguments),
    /// Explain a finding, or list all of them
    Explain {
        /// Code of a finding, as printed in brackets behind the verdict
        finding: Option<String>,
    },
    /// Show a page of the manual, or the help of a command; without a word, a list of both
    Help {
        /// A page of the manual, a command, or the code of a finding
        #[arg(value_name = "WORD")]
        word: Option<String>,
    },
    /// Print the JSON schema of the report
    Schema,
    /// Write manual pages, the manual for a browser, and completions for shells
    ///
    /// Writes one of them to standard output, or all of them to a folder that is laid out as /usr/local/share is.
    Generate(GenerateArguments),
    /// Run a command, and end it with a report when it hangs
    ///
    /// Watches the command and all its descendants by /proc. A proven deadlock ends it within seconds, with the report
    /// on standard error and status 124. A suspected one is sampled three times first. A healthy command notices
    /// nothing, and lockscope passes on its exit status. As timeout(1): 125 when lockscope itself failed, 126 and 127
    /// when the command could not be run, 128+N when signal N ended it.
    Run(RunArguments),
    /// Watch running processes, and report when they hang
    ///
    /// The same looks as those of `lockscope run`, without owning the process: it is not ended. Ends with the first hang, or
    /// with the process. With --service, or an option that belongs to it, it goes on: it finds processes by name or systemd unit
    /// again after a restart, reports each hang once, and ends with SIGTERM.
    Watch(WatchArguments),
    /// Watch a test process, which reports the running test on standard input; for plugins of test runners
    #[command(hide = true)]
    Monitor(MonitorArguments),
    /// Start deadlocks, look at each, print the report, end it
    Demo,
    /// The deadlock that `demo` reports
    #[command(hide = true)]
    DemoTarget,
}

impl Command {
    /// Whether this process itself samples, or reads the samples of others, and then ends.
    pub(super) fn only_looks(&self) -> bool {
        matches!(
            self,
            Command::Attach(_)
                | Command::Core(_)
                | Command::Snapshot(_)
                | Command::Job(_)
                | Command::Merge(_)
                | Command::Record(_)
        )
    }
}

/// Arguments of `attach`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AttachArguments {
    /// Processes to attach to, by id or name (of the program, or of the script that Python runs); the first one's
    /// progress decides between running and blocked
    #[arg(value_name = "PID|NAME", required = true, value_parser = process)]
    pub processes: Vec<ProcessName>,
    /// Also attach to all descendants, not just to those that a process waits for
    #[arg(long)]
    pub tree: bool,
    /// Attach to no descendants, not even to those that a process waits for: children, workers of a pool
    #[arg(long, conflicts_with = "tree")]
    pub no_tree: bool,
    /// Which threads may be stopped, and how long.
    #[command(flatten)]
    pub stopping: StoppingArguments,
    /// Show local variables of Python frames
    #[arg(long)]
    pub locals: bool,
    /// A core of the GPUs that the processes use, as NVIDIA's driver writes it; can be repeated
    #[arg(long = "gpu-core", value_name = "FILE")]
    pub gpu_cores: Vec<PathBuf>,
    /// After the sample have NVIDIA's driver write cores of the GPUs, which ends the processes or makes their calls of
    /// CUDA fail; start them with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1
    #[arg(long)]
    pub trigger_gpu_core: bool,
    /// Also write the orders of locks of a deadlock to FILE, for `lockscope run --provoke=FILE -- COMMAND`, which makes it happen again
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub reproducer: Option<PathBuf>,
    /// Where and how to write.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `core`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CoreArguments {
    /// Cores, one of each process, or a snapshot; and cores of their GPUs; - is a core on standard input
    #[arg(value_name = "FILE", required = true)]
    pub cores: Vec<PathBuf>,
    /// Bytes of a core on standard input that are kept, with K, M or G behind them; the rest is not read
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G")]
    pub most_input: u64,
    /// The program that left the core, where it lies elsewhere now
    #[arg(long, value_name = "FILE")]
    pub exe: Option<PathBuf>,
    /// A folder with the files that the process had mapped, under the paths that it saw
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// A folder with separate debug files, laid out as /usr/lib/debug; can be repeated
    #[arg(long = "debug-dir", value_name = "DIR")]
    pub debug_directories: Vec<PathBuf>,
    /// Also write the orders of locks of a deadlock to FILE, for `lockscope run --provoke=FILE -- COMMAND`, which makes it happen again
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub reproducer: Option<PathBuf>,
    /// Where and how to write.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `snapshot`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SnapshotArguments {
    /// Processes to attach to, by id or name; gdb sees the memory of the first one
    #[arg(value_name = "PID|NAME", required = true, value_parser = process)]
    pub processes: Vec<ProcessName>,
    /// Also attach to all descendants, not just to those that a process waits for
    #[arg(long)]
    pub tree: bool,
    /// Attach to no descendants, not even to those that a process waits for: children, workers of a pool
    #[arg(long, conflicts_with = "tree")]
    pub no_tree: bool,
    /// The file to write; compressed if its name ends in .zst; - is standard output, compressed
    #[arg(short = 'o', long = "output", value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// Leave out local variables, the environment and arguments; raw stacks remain, and a message lists what remains of
    /// them
    #[arg(long)]
    pub redact: bool,
    /// Which threads may be stopped, and how long.
    #[command(flatten)]
    pub stopping: StoppingArguments,
    /// Keep local variables of Python frames
    #[arg(long, conflicts_with = "redact")]
    pub locals: bool,
    /// Print only errors
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// Arguments of `job`.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobArguments {
    /// The launcher of the job, if there are several jobs
    #[arg(long, value_name = "ENGINE", value_enum, default_value = "auto")]
    pub engine: Engine,
    /// The job that this process is a rank of
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Only that process, not the others of its job on this node: another lockscope samples these
    #[arg(long, requires = "pid")]
    pub alone: bool,
    /// The job of this name, as its engine calls it
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Only this round of the two, if another program orders them
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub round: Option<u8>,
    /// Digests of the first round of all nodes, for a second round without a shared folder; - is standard input
    #[arg(long, value_name = "FILE")]
    pub after: Vec<PathBuf>,
    /// Sample nothing, but request samples in both rounds from the `lockscope run --report-dir DIR` in front of each
    /// rank, which may always attach to it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["engine", "pid", "job", "round", "after", "file", "redact"])]
    pub ask: Option<PathBuf>,
    /// Write digests to a folder, which may be shared by all nodes, to a file that ends in .digest.json, or to standard output (-)
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Format of the verdict on standard output, without -o
    #[arg(long, value_name = "FORMAT", value_parser = EnumValueParser::<FormatName>::new().map(Format::from))]
    pub format: Option<Format>,
    /// Leave out the names of machines
    #[arg(long)]
    pub redact: bool,
    /// Which threads may be stopped, and how long.
    #[command(flatten)]
    pub stopping: StoppingArguments,
    /// Print only errors
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl JobArguments {
    /// How the verdict is written.
    pub(super) fn output(&self) -> OutputArguments {
        OutputArguments { format: self.format, quiet: self.quiet, ..OutputArguments::default() }
    }
}

/// The launcher of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Any launcher
    Auto,
    /// srun
    Slurm,
    /// torchrun; RANK, WORLD_SIZE and MASTER_ADDR set by hand; or ranks that start without a variable, as by torch.multiprocessing.spawn
    Torchrun,
    /// mpirun or mpiexec
    Mpi,
    /// An indexed job of Kubernetes
    Kubernetes,
    /// A cluster of Dask: its workers, its scheduler and its clients
    Dask,
    /// A cluster of Ray: its drivers, its actors and its workers
    Ray,
}

impl Engine {
    /// The engine of the jobs that are sampled; `None` is any.
    pub(super) fn of_jobs(self) -> Option<JobEngine> {
        match self {
            Engine::Auto => None,
            Engine::Slurm => Some(JobEngine::Slurm),
            Engine::Torchrun => Some(JobEngine::Torchrun),
            Engine::Mpi => Some(JobEngine::Mpi),
            Engine::Kubernetes => Some(JobEngine::Kubernetes),
            Engine::Dask => Some(JobEngine::Dask),
            Engine::Ray => Some(JobEngine::Ray),
        }
    }
}

/// Arguments of `merge`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MergeArguments {
    /// Digests, reports and snapshots of ranks, or folders of them; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub inputs: Vec<PathBuf>,
    /// Where and how to write; a file that ends in .digest.json is one digest of all.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Threads that a sample may stop, and for how long. Without either option, those whose registers cannot be read
/// otherwise.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct StoppingArguments {
    /// Longest time to keep a process stopped; data that did not fit is a gap in the report [default: 50ms, or 0.1ms
    /// for each thread if that is more]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_pause: Option<Duration>,
    /// Stop all threads, also those that sleep and could be read asleep
    #[arg(long, conflicts_with = "no_stop")]
    pub stop: bool,
    /// Stop nothing: only threads that sleep are read; those that run are gaps in the report
    #[arg(long, conflicts_with = "max_pause")]
    pub no_stop: bool,
}

impl StoppingArguments {
    /// The chosen way of stopping.
    pub(crate) fn choice(self) -> Stopping {
        match (self.stop, self.no_stop) {
            (true, _) => Stopping::Always,
            (_, true) => Stopping::Never,
            _ => Stopping::AsNeeded,
        }
    }
}

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArguments {
    /// When to end it.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Where to write.
    #[command(flatten)]
    pub reports: ReportArguments,
    /// How long the command may take to end before it is killed [default after a hang: 3s; after SIGTERM from outside:
    /// no limit]
    #[arg(short = 'k', long, value_name = "DURATION", value_parser = period)]
    pub kill_after: Option<Duration>,
    /// The signal that ends it: a name or a number
    #[arg(short = 's', long, value_name = "SIGNAL", default_value = "TERM", value_parser = signal)]
    pub signal: Signal,
    /// As timeout's; lockscope always leaves the terminal to the command
    #[arg(long)]
    pub foreground: bool,
    /// The action after a hang
    #[arg(long, value_name = "WHAT", value_enum, default_value = "kill")]
    pub on_hang: OnHang,
    /// Have a core of the GPUs written before the command is ended, so that the report shows which kernels ran and on
    /// which lines
    ///
    /// Sets variables of NVIDIA's driver for the command. A core is written only of processes that wait for a GPU or
    /// met a limit, and ends them. With these variables a kernel that fails ends its process by SIGABRT, and lockscope
    /// says which one and on which line. The command and its children must be able to write to a private folder below
    /// the temporary one: CUDA fails in a process that cannot.
    #[arg(long, env = "LOCKSCOPE_GPU_CORE", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0, default_missing_value = "true", default_value = "false")]
    pub gpu_core: bool,
    /// Preload a recorder into the command, which writes down which thread takes which lock, where and when
    ///
    /// The report then names holders that nothing else names, such as readers of a lock and functions that have
    /// returned, with the line where each took the lock. The recorder is a library of lockscope's own. The loader puts
    /// it in front of the C library's locks by LD_PRELOAD, in the command and in all that it starts. So lockscope's
    /// code runs in them, and takes some nanoseconds for each lock. Static and set-user-ID programs are not recorded.
    ///
    /// When the command has ended, lockscope reports lock orders that could deadlock: one thread took the locks in this
    /// order, another in the opposite one. With --record=strict the exit status is then 1 if the command's own is 0.
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "report")]
    pub record: Option<Record>,
    /// Make predicted deadlocks happen: run the command with the recorder, and again with threads held back where their orders of locks
    /// differ
    ///
    /// A thread that is about to take the second lock of a predicted order waits there, for 0.1 to 2 s, until its partners stand at
    /// their second locks; then all go on, and the deadlock is real. It is reported as any other. With a value the predictions come
    /// from earlier runs: a folder or file that `run --record --report-dir` kept. The command must be one that can be run several
    /// times. Only the time at which a lock is taken changes.
    #[arg(long, value_name = "DIR|FILE", num_args = 0..=1, require_equals = true, value_hint = ValueHint::AnyPath)]
    pub provoke: Option<Option<PathBuf>>,
    /// How long to go on with further runs for --provoke
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "60s")]
    pub provoke_for: Duration,
    /// A file of places whose orders of locks are known: a file, FILE:LINE or function a line, `#` begins a comment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub suppressions: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// The effect of lock orders that could deadlock, for `run --record`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Record {
    /// Report them
    Report,
    /// Report them, and fail if the command itself succeeded
    Strict,
}

/// Arguments of `record`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RecordArguments {
    /// Files of `run --record`, or folders of them
    #[arg(value_name = "FILE|DIR", required_unless_present = "preload", value_hint = ValueHint::AnyPath)]
    pub inputs: Vec<PathBuf>,
    /// A file of known lock orders: a file, FILE:LINE or function on each line; `#` begins a comment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub suppressions: Option<PathBuf>,
    /// Print the value of LD_PRELOAD for commands that something else starts; LOCKSCOPE_RECORD names the folder for
    /// their files
    #[arg(long)]
    pub preload: bool,
    /// Exit with 1 if locks were taken in orders that could deadlock
    #[arg(long)]
    pub strict: bool,
    /// Where to write.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `generate`.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct GenerateArguments {
    /// The text to write to standard output
    #[arg(value_name = "WHAT", value_enum)]
    pub what: Option<Generated>,
    /// Write all of them, with a page for each subcommand, below DIR, such as ~/.local/share
    #[arg(long, value_name = "DIR")]
    pub all: Option<PathBuf>,
}

/// The texts that `generate` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generated {
    /// The manual page of lockscope itself
    Man,
    /// The manual, all of its pages, as one page for a browser
    Html,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

/// The action of `run` after a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnHang {
    /// Report it and end the command
    Kill,
    /// Report it once and let the command go on
    Report,
}

/// Arguments of `monitor`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MonitorArguments {
    /// The process that runs the tests
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub of: i32,
    /// Where to write.
    #[command(flatten)]
    pub reports: ReportArguments,
    /// The action after a hang
    #[arg(long, value_name = "WHAT", value_enum, default_value = "kill")]
    pub on_hang: OnHang,
    /// As of `run`
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "60s")]
    pub stuck_after: Duration,
    /// Have a core of the GPUs written before the process is ended
    #[arg(long, env = "LOCKSCOPE_GPU_CORE", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0, default_missing_value = "true", default_value = "false")]
    pub gpu_core: bool,
}

/// Whether text has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless the environment says otherwise
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The formats of a report.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatName {
    /// For people.
    Text,
    /// One line for an alert, with tabs between: verdict, code, process, host, file:line of each member, one sentence.
    Short,
    /// Stable JSON schema 1.1.
    Json,
    /// Graphviz: the graph, with the cycle in red.
    Dot,
    /// For a browser: one file, without scripts and without network.
    Html,
    /// The same graph as a picture.
    Svg,
    /// The same graph for Mermaid.
    Mermaid,
    /// For tickets and pull requests: GitHub's Markdown.
    Markdown,
    /// For code scanning and editors: SARIF 2.1.0.
    Sarif,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Format {
        match name {
            FormatName::Text => Format::Text,
            FormatName::Short => Format::Short,
            FormatName::Json => Format::Json,
            FormatName::Dot => Format::Dot,
            FormatName::Html => Format::Html,
            FormatName::Svg => Format::Svg,
            FormatName::Mermaid => Format::Mermaid,
            FormatName::Markdown => Format::Markdown,
            FormatName::Sarif => Format::Sarif,
        }
    }
}

/// Where and how to write a report.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OutputArguments {
    /// Format of standard output, and of files whose ending names none [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = EnumValueParser::<FormatName>::new().map(Format::from))]
    pub format: Option<Format>,
    /// Write to FILE, in the format of its ending (.txt, .html, .md, .json, .sarif, .dot, .gv, .svg, .mmd, or .snapshot and .snapshot.zst for
    /// `lockscope core`); can be repeated; - is standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// In text: every thread with its stack, instead of groups of equal ones
    #[arg(short = 'a', long)]
    pub all: bool,
    /// In text: only this thread, with its waits, holds and whole stack
    #[arg(short = 't', long, value_name = "TID", value_parser = clap::value_parser!(i32).range(1..))]
    pub thread: Option<i32>,
    /// In text: native and Python stacks apart, as they were before merging; JSON has both
    #[arg(long)]
    pub raw: bool,
    /// In text: each step of decoding with its addresses and values, to check in gdb; JSON has them, too
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print only errors: the exit status tells, and the files of -o are written
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl OutputArguments {
    /// The detail of a text.
    pub(super) fn detail(&self) -> Detail {
        Detail { all: self.all, thread: self.thread, raw: self.raw, steps: self.verbose }
    }

    /// Whether the report must say how threads were read.
    pub(super) fn wants_working(&self) -> bool {
        self.raw || self.verbose
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
    fn the_command_keeps_its_own_options() {
        let line = ["lockscope", "run", "--timeout", "5", "make", "-k", "--timeout", "7"];
        let Command::Run(arguments) = Arguments::try_parse_from(line).unwrap().command else { panic!("run") };
        assert_eq!(arguments.command, ["make", "-k", "--timeout", "7"]);
        assert_eq!(arguments.limits.timeout, Some(Duration::from_secs(5)));
    }

    #[test]
    fn what_run_does_not_know_is_no_command() {
        for line in [&["run", "--timout", "5", "--", "make"][..], &["run", "-v", "make"]] {
            let words = ["lockscope"].iter().chain(line);
            assert!(Arguments::try_parse_from(words).is_err(), "{line:?}");
        }
        let Command::Run(arguments) = Arguments::try_parse_from(["lockscope", "run", "--", "-v"]).unwrap().command
        else {
            panic!("run")
        };
        assert_eq!(arguments.command, ["-v"]);
    }

    #[test]
    fn attach_takes_several_processes_and_files() {
        let line = ["lockscope", "attach", "12", "13", "--tree", "-o", "a.json", "-o", "b.dot", "--max-pause", "2s"];
        let Command::Attach(arguments) = Arguments::try_parse_from(line).unwrap().command else { panic!("attach") };
        assert_eq!(arguments.processes, [ProcessName::Pid(12), ProcessName::Pid(13)]);
        assert!(arguments.tree && !arguments.locals);
        assert_eq!(arguments.stopping.max_pause, Some(Duration::from_secs(2)));
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
        for line in [&["lockscope", "attach"][..], &["lockscope", "attach", "0"], &["lockscope", "attach", ""]] {
            assert_eq!(Arguments::try_parse_from(line).unwrap_err().exit_code(), 2);
        }
    }
}

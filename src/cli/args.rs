//! What the user typed, and nothing more: no file is opened, no process is looked at.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{EnumValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use nix::sys::signal::Signal;

use crate::image::live::Stopping;
use crate::render::{Detail, Format};
use crate::run::Limits;
use crate::run::children::REPORT_DIRECTORY;

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
    /// Look at the ranks of a job on this node, twice
    ///
    /// Finds the ranks of a job of MPI, torchrun, Slurm or Kubernetes among the processes that it may look at, by the variables of their
    /// launcher. Without -o it prints the verdict over this node. With -o it writes digests, some kilobytes a rank, for `lockscope
    /// merge` to make one verdict over all nodes: who is in which collective, who waits for whom, and who is in a deadlock of its own.
    /// Two rounds are needed for a proof: what stood still in both, on the same request, has not moved.
    Job(JobArguments),
    /// One verdict over the digests of a job's nodes
    ///
    /// Takes digests of `lockscope job`, reports (JSON) and snapshots of ranks, and folders of these, in any order. A rank of which there
    /// is no file is said to be missing. Equal files give equal bytes.
    Merge(MergeArguments),
    /// Which orders of locks could deadlock, by what `run --record` wrote down
    ///
    /// Takes the files of many processes and runs, which `run --record --report-dir DIR` keeps in DIR/orders. Nothing hung in these: the
    /// report is on what could.
    Record(RecordArguments),
    /// Explain a finding, or list all of them
    Explain {
        /// Code of a finding, as printed in brackets behind the verdict
        finding: Option<String>,
    },
    /// Show a page of the manual, or the help of a command; without a word, what there is
    Help {
        /// A page of the manual, a command, or the code of a finding
        #[arg(value_name = "WORD")]
        word: Option<String>,
    },
    /// Print the JSON schema of the report
    Schema,
    /// Write manual pages, the manual for a browser, and completions for shells
    ///
    /// One of them to standard output, or all of them to a folder that is laid out as /usr/local/share is.
    Generate(GenerateArguments),
    /// Run a command, and end it with a report when it hangs
    ///
    /// Watches the command and all that descends from it by /proc. A deadlock that is proven ends it within seconds, with the
    /// report on standard error and status 124; a suspected one is looked at three times first. A healthy command notices
    /// nothing and its own exit status is passed on. As timeout(1): 125 when lockscope itself failed, 126 and 127 when the
    /// command could not be run, 128+N when signal N ended it.
    Run(RunArguments),
    /// Watch running processes, and say when they hang
    ///
    /// The same looks as those of `lockscope run`, without owning the process: it is not ended. Ends with the first hang, or
    /// with the process.
    Watch(WatchArguments),
    /// Watch a test process, which reports the running test on standard input; for plugins of test runners
    #[command(hide = true)]
    Monitor(MonitorArguments),
    /// Start a deadlock, look at it, print the report, end it
    Demo,
    /// The deadlock that `demo` looks at
    #[command(hide = true)]
    DemoTarget,
}

impl Command {
    /// Whether this process itself looks, or reads what others wrote at their looks, and ends then.
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
    /// Processes to look at, by id or name (of the program, or of the script that Python runs); the first one's progress decides
    /// between running and blocked
    #[arg(value_name = "PID|NAME", required = true, value_parser = process)]
    pub processes: Vec<ProcessName>,
    /// Also look at all descendants, and not just at those that a process waits for
    #[arg(long)]
    pub tree: bool,
    /// Look at no descendants, not even at those that a process waits for: children, workers of a pool
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
    /// After the look have NVIDIA's driver write cores of the GPUs, which ends the processes or makes their calls of CUDA fail; they must
    /// have been started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1
    #[arg(long)]
    pub trigger_gpu_core: bool,
    /// Where and how to write.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `core`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CoreArguments {
    /// Cores, one of each process, or a snapshot; and cores of their GPUs
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
pub(crate) struct SnapshotArguments {
    /// Processes to look at, by id or name; the first one's memory is what gdb sees
    #[arg(value_name = "PID|NAME", required = true, value_parser = process)]
    pub processes: Vec<ProcessName>,
    /// Also look at all descendants, and not just at those that a process waits for
    #[arg(long)]
    pub tree: bool,
    /// Look at no descendants, not even at those that a process waits for: children, workers of a pool
    #[arg(long, conflicts_with = "tree")]
    pub no_tree: bool,
    /// The file to write; compressed when its name ends in .zst; - is standard output, compressed
    #[arg(short = 'o', long = "output", value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// Leave out local variables, the environment and arguments; raw stacks remain, and what of them is said
    #[arg(long)]
    pub redact: bool,
    /// Which threads may be stopped, and how long.
    #[command(flatten)]
    pub stopping: StoppingArguments,
    /// Keep local variables of Python frames
    #[arg(long, conflicts_with = "redact")]
    pub locals: bool,
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// Arguments of `job`.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobArguments {
    /// Whose job, where there are several
    #[arg(long, value_name = "ENGINE", value_enum, default_value = "auto")]
    pub engine: Engine,
    /// The job that this process is a rank of
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Only that process, and not the others of its job on this node: somebody else looks at these
    #[arg(long, requires = "pid")]
    pub alone: bool,
    /// The job of this name, as its engine calls it
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Only this round of the two, where somebody else orders them
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub round: Option<u8>,
    /// Digests of the first round of all nodes, for a second round that has no folder to see them in; - is standard input
    #[arg(long, value_name = "FILE")]
    pub after: Vec<PathBuf>,
    /// Look at nothing, and ask the `lockscope run --report-dir DIR` before each rank to look, in both rounds: these may always look
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
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl JobArguments {
    /// How the verdict is written.
    pub(super) fn output(&self) -> OutputArguments {
        OutputArguments { format: self.format, quiet: self.quiet, ..OutputArguments::default() }
    }
}

/// Who started a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Whoever did
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
    /// As identities name it.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Engine::Auto => None,
            Engine::Slurm => Some("slurm"),
            Engine::Torchrun => Some("torchrun"),
            Engine::Mpi => Some("mpi"),
            Engine::Kubernetes => Some("kubernetes"),
            Engine::Dask => Some("dask"),
            Engine::Ray => Some("ray"),
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

/// Which threads a look may stop, and how long; without either, those whose registers cannot be had otherwise.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct StoppingArguments {
    /// Longest time to keep a process stopped; what did not fit is a gap in the report [default: 50ms, or 0.1ms for each thread where
    /// that is more]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_pause: Option<Duration>,
    /// Stop all threads, also those that sleep and could be read asleep
    #[arg(long, conflicts_with = "no_stop")]
    pub stop: bool,
    /// Stop nothing: only threads that sleep are read, and those that run are gaps in the report
    #[arg(long, conflicts_with = "max_pause")]
    pub no_stop: bool,
}

impl StoppingArguments {
    /// What they ask for.
    pub(crate) fn choice(self) -> Stopping {
        match (self.stop, self.no_stop) {
            (true, _) => Stopping::Always,
            (_, true) => Stopping::Never,
            _ => Stopping::AsNeeded,
        }
    }
}

/// When `run` and `watch` end what they watch.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LimitArguments {
    /// Also take it for a hang when nothing has made progress for so long (30s, 5m, 1h; seconds without a unit)
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub hang_after: Option<Duration>,
    /// Also end it after so long
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub timeout: Option<Duration>,
}

/// Where the report of a hang goes, beside standard error.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ReportArguments {
    /// A folder for the reports (text, HTML, JSON, Markdown, JUnit) and a snapshot; made if it is not there
    #[arg(long, value_name = "DIR", env = REPORT_DIRECTORY)]
    pub report_dir: Option<PathBuf>,
    /// Write JUnit's XML with the hang as a failed test; only after a hang, and what was there before is removed
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Say nothing but errors: the exit status tells, and reports are written to files
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl LimitArguments {
    /// Those that end a watch.
    pub(super) fn limits(&self) -> Limits {
        Limits { hang_after: self.hang_after, timeout: self.timeout }
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
    /// How long the command may take to end before it is killed [default after a hang: 3s; after SIGTERM from outside: for ever]
    #[arg(short = 'k', long, value_name = "DURATION", value_parser = period)]
    pub kill_after: Option<Duration>,
    /// The signal that ends it: a name or a number
    #[arg(short = 's', long, value_name = "SIGNAL", default_value = "TERM", value_parser = signal)]
    pub signal: Signal,
    /// As timeout's; lockscope always leaves the terminal to the command
    #[arg(long)]
    pub foreground: bool,
    /// What to do about a hang
    #[arg(long, value_name = "WHAT", value_enum, default_value = "kill")]
    pub on_hang: OnHang,
    /// Have a core of the GPUs written before it is ended, so that the report says which kernels ran and on which lines
    ///
    /// Sets variables of NVIDIA's driver for the command. A core is written only of what waits for a GPU, or has met a limit, and
    /// ends it. With these variables a kernel that fails ends its process by SIGABRT, and lockscope says which one and on which
    /// line. The command and what it starts must be able to write to a private folder below the temporary one: CUDA fails
    /// in a process that cannot.
    #[arg(long, env = "LOCKSCOPE_GPU_CORE", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0, default_missing_value = "true", default_value = "false")]
    pub gpu_core: bool,
    /// Preload a recorder into the command, which writes down who takes which lock, where and when
    ///
    /// The report then names holders that nothing else names, such as readers of a lock and functions that have returned, with the
    /// line where each took what it has. The recorder is a library of lockscope's own, which the loader puts in front of the C
    /// library's locks by LD_PRELOAD, in the command and in all that it starts: code of lockscope's runs in them, and takes some
    /// nanoseconds for each lock. Static and set-user-ID programs are not recorded.
    ///
    /// When the command has ended, orders of locks that could deadlock are told: locks that one thread took in this order, and another in
    /// that. With --record=strict the exit status is then 1 where the command's own is 0.
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "report")]
    pub record: Option<Record>,
    /// A file of places whose orders of locks are known: a file, FILE:LINE or function a line, `#` begins a comment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub suppressions: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// What `run --record` does about orders of locks that could deadlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Record {
    /// Report them
    Report,
    /// Report them, and fail where the command itself did not
    Strict,
}

/// Arguments of `record`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RecordArguments {
    /// Files of `run --record`, or folders of them
    #[arg(value_name = "FILE|DIR", required_unless_present = "preload", value_hint = ValueHint::AnyPath)]
    pub inputs: Vec<PathBuf>,
    /// A file of places whose orders of locks are known: a file, FILE:LINE or function a line, `#` begins a comment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub suppressions: Option<PathBuf>,
    /// Say what to set LD_PRELOAD to for what is started by other means, with LOCKSCOPE_RECORD for the folder of the files
    #[arg(long)]
    pub preload: bool,
    /// Exit with 1 where locks were taken in orders that could deadlock
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
    /// What to write to standard output
    #[arg(value_name = "WHAT", value_enum)]
    pub what: Option<Generated>,
    /// Write all of them, with a page for each subcommand, below DIR, such as ~/.local/share
    #[arg(long, value_name = "DIR")]
    pub all: Option<PathBuf>,
}

/// What `generate` makes.
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

/// What `run` does about a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnHang {
    /// Report it and end the command
    Kill,
    /// Report it once and let the command go on
    Report,
}

/// Arguments of `watch`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WatchArguments {
    /// The process to watch, by id or name, with all its descendants
    #[arg(value_name = "PID|NAME", value_parser = process)]
    pub process: ProcessName,
    /// When to end.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Where to write.
    #[command(flatten)]
    pub reports: ReportArguments,
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
    /// What to do about a hang
    #[arg(long, value_name = "WHAT", value_enum, default_value = "kill")]
    pub on_hang: OnHang,
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

/// A process as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProcessName {
    /// By its id.
    Pid(i32),
    /// By its name, or its program's.
    Name(String),
}

/// What a report can be written as.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatName {
    /// For people.
    Text,
    /// One line for an alert: verdict, code, and file:line of each thread that takes part, with tabs between.
    Short,
    /// The contract, version 1.1.
    Json,
    /// Graphviz, the cycle in red.
    Dot,
    /// For a browser: one file, without scripts and without network.
    Html,
    /// The same graph as a picture.
    Svg,
    /// The same graph for Mermaid.
    Mermaid,
    /// For tickets and pull requests: GitHub's Markdown.
    Markdown,
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
        }
    }
}

/// Where and how to write a report.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OutputArguments {
    /// Format of standard output, and of files whose ending says none [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = EnumValueParser::<FormatName>::new().map(Format::from))]
    pub format: Option<Format>,
    /// Write to FILE, in the format of its ending (.txt, .html, .md, .json, .dot, .gv, .svg, .mmd, or .snapshot and .snapshot.zst for
    /// `lockscope core`); can be repeated; - is standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// In text: every thread with its stack, instead of groups of equal ones
    #[arg(short = 'a', long)]
    pub all: bool,
    /// In text: only this thread, what it waits for and holds, and its whole stack
    #[arg(short = 't', long, value_name = "TID", value_parser = clap::value_parser!(i32).range(1..))]
    pub thread: Option<i32>,
    /// In text: native and Python stacks apart, as they were before merging; JSON has both
    #[arg(long)]
    pub raw: bool,
    /// In text: each step of decoding with its addresses and values, to be checked in gdb; JSON has them too
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Say nothing but errors: the exit status tells, and the files of -o are written
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl OutputArguments {
    /// How much a text is to tell.
    pub(super) fn detail(&self) -> Detail {
        Detail { all: self.all, thread: self.thread, raw: self.raw, steps: self.verbose }
    }

    /// Whether the report must say how threads were read.
    pub(super) fn wants_working(&self) -> bool {
        self.raw || self.verbose
    }
}

/// `1234` or `gunicorn`.
fn process(text: &str) -> Result<ProcessName, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(ProcessName::Pid(pid)),
        Ok(_) => Err("ids of processes start at 1".to_string()),
        Err(_) if text.trim().is_empty() => Err("names no process".to_string()),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => Err("no process has an id so high".to_string()),
        Err(_) => Ok(ProcessName::Name(text.to_owned())),
    }
}

/// As timeout(1) takes them: `30`, `1.5m`, `2h`; and what [`duration`] takes.
fn period(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    match text.char_indices().last() {
        Some((at, 'h')) => seconds(text[..at].trim(), 3600.0),
        Some((at, 'd')) => seconds(text[..at].trim(), 86_400.0),
        Some((_, last)) if last.is_ascii_digit() => seconds(text, 1.0),
        _ => duration(text),
    }
}

/// `TERM`, `SIGTERM`, `15`.
fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let named = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let numbered = || text.parse().ok().and_then(|number: i32| Signal::try_from(number).ok());
    named.parse().ok().or_else(numbered).ok_or_else(|| "no signal has that name or number".to_string())
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
    seconds(number, unit)
}

/// So many times `unit` seconds.
fn seconds(number: &str, unit: f64) -> Result<Duration, String> {
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
    fn periods_are_those_of_timeout_and_signals_have_names() {
        for (text, seconds) in [("30", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86_400.0), ("500ms", 0.5)] {
            assert_eq!(period(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for wrong in ["", "0", "h", "-1", "1y"] {
            assert!(period(wrong).is_err(), "{wrong}");
        }
        for text in ["TERM", "sigterm", "15"] {
            assert_eq!(signal(text), Ok(Signal::SIGTERM));
        }
        assert!(signal("NONE").is_err() && signal("0").is_err());
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

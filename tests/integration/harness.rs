//! Starting targets, waiting until they hang, running lockscope on them.
//!
//! Targets announce readiness on a pipe; that they have come to their waits is read from /proc. Only processes that
//! a test started are ended, by their ids, and each ends by itself through SIGALRM.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything is waited for; the machine may be busy. LOCKSCOPE_PATIENCE says how many times as long on one that is slow.
pub(crate) fn patience() -> Duration {
    let times = std::env::var("LOCKSCOPE_PATIENCE").ok().and_then(|times| times.parse().ok());
    Duration::from_secs(180) * times.unwrap_or(1)
}

/// Say that something is not tried here, and why: `skipped!("no {shell}")`.
macro_rules! skipped {
    ($($reason:tt)*) => { $crate::harness::note_skipped(&format!($($reason)*)) };
}
pub(crate) use skipped;

/// Add a line to the file that LOCKSCOPE_SKIPPED names, which scripts/test prints at its end; without such a file, to the list that this
/// test binary prints at its end.
pub(crate) fn note_skipped(reason: &str) {
    println!("skipped: {reason}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let Some(list) = std::env::var_os("LOCKSCOPE_SKIPPED") else {
        static SUMMARY: Mutex<Option<ChildStdin>> = Mutex::new(None);
        let mut summary = SUMMARY.lock().unwrap_or_else(PoisonError::into_inner);
        let list = summary.get_or_insert_with(summary_at_the_end);
        return list.write_all(format!("{test}: {reason}\n").as_bytes()).expect("written");
    };
    let mut file = std::fs::File::options().append(true).create(true).open(&list).expect("LOCKSCOPE_SKIPPED is a file");
    // One call, so that lines of tests that run side by side do not mix.
    file.write_all(format!("{test}: {reason}\n").as_bytes()).expect("written");
}

/// Where lines go that standard error shows, with their number, once this process has ended. libtest has no hook for its end: a shell
/// waits for the end of a pipe instead.
fn summary_at_the_end() -> ChildStdin {
    const SUMMARY: &str =
        r#"list=$(sort -u); { echo; echo "skipped: $(echo "$list" | wc -l)"; echo "$list" | sed 's/^/    /'; } >&2"#;
    let shell = Command::new("sh").args(["-c", SUMMARY]).stdin(Stdio::piped()).spawn();
    shell.expect("sh runs").stdin.take().expect("piped")
}

/// Whether this is root, and not only that of a user namespace.
pub(crate) fn is_root() -> bool {
    let ids = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let all = ids.split_whitespace().last() == Some(&u32::MAX.to_string());
    nix::unistd::geteuid().is_root() && all
}

/// A file below testdata/.
pub(crate) fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// Compile a C file of testdata/, once a run; `flags` as for cc.
pub(crate) fn compile(source: &str, output: &str, flags: &[&str]) -> PathBuf {
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-g", "-O1", "-pthread", "-Wall"]);
    compiled(cc, source, output, flags).expect("cc runs")
}

/// The same of a Rust file, without optimisation; `None` where there is no compiler.
pub(crate) fn compile_rust(source: &str, output: &str, flags: &[&str]) -> Option<PathBuf> {
    let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
    rustc.args(["-g", "--edition", "2024"]);
    compiled(rustc, source, output, flags)
}

fn compiled(mut compiler: Command, source: &str, output: &str, flags: &[&str]) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    // Another user has a folder of its own.
    let folder = std::env::var_os("LOCKSCOPE_BUILT").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let built = folder.join(output);
    let mut done = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !done.contains(&built) {
        // Written aside and renamed: another test process may be running the old one.
        let fresh = built.with_extension(format!("{}", std::process::id()));
        let status = match compiler.arg("-o").arg(&fresh).arg(testdata(source)).args(flags).status() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            status => status.expect("a compiler that runs"),
        };
        assert!(status.success(), "{source} does not compile");
        std::fs::rename(&fresh, &built).expect("renamed");
        done.push(built.clone());
    }
    Some(built)
}

/// A running target; ended and reaped when dropped.
pub(crate) struct Target {
    child: Child,
    pub(crate) output: BufReader<ChildStdout>,
    /// The lines before its READY line.
    pub(crate) said: Vec<String>,
    /// As its READY line lists them; the first is the one to look at.
    pub(crate) pids: Vec<i32>,
}

impl Target {
    /// Start it and wait for its READY line.
    pub(crate) fn start(command: &mut Command) -> Target {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn().expect("the target starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = Vec::new();
        let line = loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).expect("readable") > 0, "the target ended before it was ready");
            if line.contains("READY pids=") {
                break line;
            }
            said.push(line);
        };
        let list = line.trim().rsplit('=').next().expect("a list");
        let pids = list.split(',').map(|p| p.parse().expect("a number")).collect();
        Target { child, output, said, pids }
    }

    /// The process that was started, which may be another's parent.
    pub(crate) fn child_id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, once it has ended by itself.
    pub(crate) fn status(&mut self) -> Option<i32> {
        self.child.wait().ok()?.code()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pids[0]
    }

    /// Wait until `threads` threads of its processes sleep in a futex call, seen twice.
    pub(crate) fn settle(self, threads: usize) -> Target {
        let mut seen = 0;
        wait_until("the target comes to its waits", || {
            let asleep: usize = self.pids.iter().map(|pid| futex_waiters(*pid)).sum();
            seen = if asleep >= threads { seen + 1 } else { 0 };
            seen >= 5
        });
        self
    }

    /// Wait until this many threads of its first process have burned CPU for a fifth of a second each.
    pub(crate) fn settle_spinning(self, threads: usize) -> Target {
        // utime and stime are in hundredths of a second.
        const ENOUGH: u64 = 20;
        wait_until("the target comes to burn CPU", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
            let burned = tasks.filter_map(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
                let fields: Vec<u64> =
                    stat.rsplit(')').next()?.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
                Some(fields.get(11)? + fields.get(12)?)
            });
            burned.filter(|ticks| *ticks >= ENOUGH).count() >= threads
        });
        self
    }

    /// Wait until the first thread of its last process sleeps in the same call, seen many times.
    pub(crate) fn settle_asleep(self) -> Target {
        let (mut seen, mut before) = (0, String::new());
        let last = self.pids.last().copied().expect("a process");
        wait_until("the target comes to its wait", || {
            let call = std::fs::read_to_string(format!("/proc/{last}/syscall")).unwrap_or_default();
            let is_same = !call.starts_with("running") && call == before;
            seen = if is_same { seen + 1 } else { 0 };
            before = call;
            seen >= 20
        });
        self
    }

    /// Wait until its first thread sleeps in a call for events, seen several times.
    pub(crate) fn settle_in_poll(self) -> Target {
        let mut seen = 0;
        wait_until("the target comes to wait for events", || {
            let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid())).unwrap_or_default();
            // epoll_wait.
            seen = if call.starts_with("232 ") { seen + 1 } else { 0 };
            seen >= 5
        });
        self
    }

    /// Stop one of its processes by SIGSTOP.
    pub(crate) fn stop(&self, pid: i32) {
        signal_process(pid, "STOP");
        wait_until("it stops", || matches!(state(pid), None | Some('T' | 'Z')));
    }

    /// End one of its processes, stopped or not, by SIGABRT; a core that the kernel writes of it is complete then.
    pub(crate) fn abort(&self, pid: i32) {
        // What stands still gets the first signal with the second one, and runs nothing before.
        signal_process(pid, "ABRT");
        signal_process(pid, "CONT");
        wait_until("it ends", || matches!(state(pid), None | Some('Z')));
    }

    /// End it by a signal and give the rest of its output.
    pub(crate) fn finish(mut self, signal: &str) -> String {
        signal_process(self.pid(), signal);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).expect("readable");
        rest
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Workers of a pool outlive the process that started them. Only the child's tree is walked: ids in `pids` may be of another
        // namespace, where 1 is a target.
        let lives = self.child.try_wait().is_ok_and(|ended| ended.is_none());
        let workers = if lives { descendants(self.child.id().cast_signed()) } else { Vec::new() };
        for pid in self.pids.iter().copied().filter(|pid| *pid > 0).chain(workers) {
            signal_process(pid, "KILL");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The children of all threads of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The children of a process, and theirs.
fn descendants(pid: i32) -> Vec<i32> {
    children(pid).into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Send a signal to one process.
pub(crate) fn signal_process(pid: i32, signal: &str) {
    let _ = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// The state of a process, as `/proc` has it.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Poll until `done`.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < patience(), "{what}: not within {:?}", patience());
        std::thread::yield_now();
        // Polling, not hoping: the condition decides, this only leaves the processor to the target.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Threads of a process that sleep in futex (call 202), or in the restart of one.
fn futex_waiters(pid: i32) -> usize {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok())
        .filter(|line| line.starts_with("202 "))
        .count()
}

/// A field of /proc/PID/status.
pub(crate) fn status_field(pid: i32, tid: i32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    text.lines().find_map(|l| Some(l.strip_prefix(name)?.strip_prefix(':')?.trim().to_string()))
}

/// Thread ids of a process.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The lockscope that the tests look with: LOCKSCOPE_TESTED names it, as scripts/test does, which takes the package's; otherwise it is
/// the one that Cargo has built beside the tests.
pub(crate) fn own_program() -> &'static str {
    static OWN: LazyLock<String> = LazyLock::new(|| {
        std::env::var("LOCKSCOPE_TESTED").unwrap_or_else(|_| env!("CARGO_BIN_EXE_lockscope").to_owned())
    });
    &OWN
}

/// lockscope, to be run.
pub(crate) fn lockscope() -> Command {
    Command::new(own_program())
}

/// A program that takes signals as it does from a terminal: what runs in the background, as tests may, has some of them ignored, and
/// all that it starts has.
pub(crate) fn as_from_a_terminal(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", program]);
    command
}

/// What one look gave.
pub(crate) struct Look {
    pub(crate) code: i32,
    pub(crate) json: Value,
    pub(crate) text: String,
}

/// Look at processes; the report as JSON and as text.
pub(crate) fn attach(pids: &[i32], more: &[&str]) -> Look {
    look("attach", pids.iter().map(i32::to_string).chain(more.iter().map(|word| (*word).to_owned())))
}

/// Look at core files or at a snapshot.
pub(crate) fn core(files: &[PathBuf], more: &[&str]) -> Look {
    look("core", files.iter().map(|path| path.display().to_string()).chain(more.iter().map(|word| (*word).to_owned())))
}

/// Run lockscope, writing to each of these files.
pub(crate) fn report(command: &str, words: impl Iterator<Item = String>, to: &[&Path]) -> Output {
    let mut run = lockscope();
    run.arg(command).args(words);
    for path in to {
        run.arg("-o").arg(path);
    }
    run.output().expect("lockscope runs")
}

fn look(command: &str, words: impl Iterator<Item = String>) -> Look {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, text) = (folder.path().join("r.json"), folder.path().join("r.txt"));
    let output = report(command, words, &[&json, &text]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("no report: {e}; {errors}"));
    Look {
        code: output.status.code().expect("an exit status"),
        json: serde_json::from_str(&read(&json)).expect("valid JSON"),
        text: read(&text),
    }
}

impl Look {
    /// Whether the text says this, however its lines are wrapped: that depends on how long the numbers of processes are.
    pub(crate) fn says(&self, words: &str) -> bool {
        self.text.contains(words) || self.text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words)
    }

    pub(crate) fn verdict(&self) -> &str {
        self.json["verdict"].as_str().expect("a verdict")
    }

    pub(crate) fn findings(&self) -> Vec<&str> {
        self.json["findings"].as_array().expect("a list").iter().filter_map(|f| f["code"].as_str()).collect()
    }

    /// Names of the waiting threads of each cycle, sorted; of tasks their labels.
    pub(crate) fn cycles(&self) -> Vec<Vec<String>> {
        let name = |edge: &Value| {
            if let Some(id) = edge["waiter_resource"].as_str() {
                let resource = self.json["resources"].as_array()?.iter().find(|r| r["id"] == id)?;
                return resource["label"].as_str().map(str::to_string);
            }
            let process = self.json["processes"].as_array()?.iter().find(|p| p["id"] == edge["process"])?;
            let thread = process["threads"].as_array()?.iter().find(|t| t["tid"] == edge["waiter"])?;
            thread["name"].as_str().map(str::to_string)
        };
        let cycles = self.json["cycles"].as_array().expect("a list");
        let mut all: Vec<Vec<String>> = cycles
            .iter()
            .map(|c| c["edges"].as_array().expect("a list").iter().map(|e| name(e).expect("a name")).collect())
            .collect();
        all.iter_mut().for_each(|names| names.sort());
        all
    }
}

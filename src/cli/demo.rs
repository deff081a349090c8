//! `lockscope demo`: deadlocks of its own, sampled as any other process.
//!
//! Where a `python3` with ctypes is found, the first is the example of README, two threads of Python and two locks, and the second the
//! GIL against a native mutex; else both are skipped. The last is in this very binary ([`super::demo_target`]) and needs neither
//! compiler nor Python. Exits with 0 if each one that ran was called a deadlock.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use super::{CliError, Color, output};
use crate::analysis::{self, AttachOptions, Keep};
use crate::render::{self, Format, Style};
use crate::report::Verdict;

/// The example of README.
const SERVICE_SCRIPT: &str = include_str!("../../testdata/orders/service.py");
/// The GIL case.
const GIL_SCRIPT: &str = include_str!("../../testdata/demo_gil.py");
/// How long a target may take to say that it is ready, and then to fall asleep.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two checks of the system calls of a target.
const POLL: Duration = Duration::from_millis(20);

/// Run the demonstrations and print their reports.
pub(super) fn run(color: Color) -> Result<ExitCode, CliError> {
    let mut expected = true;
    if let Some(reason) = python_is_missing() {
        output::say(&format!("demo 1 and 2: skipped, {reason}"));
    } else {
        // Files, so that the reports have lines of source.
        let folder = tempfile::tempdir().map_err(|error| CliError::new(format!("cannot make a folder: {error}")))?;
        for (title, name, script) in [
            ("demo 1: two threads of Python take two locks in different orders", "orders/service.py", SERVICE_SCRIPT),
            ("demo 2: a Python thread keeps the GIL while it waits for a native mutex", "orders/gil.py", GIL_SCRIPT),
        ] {
            output::say(title);
            let file = folder.path().join(name);
            let written =
                std::fs::create_dir_all(folder.path().join("orders")).and_then(|()| std::fs::write(&file, script));
            written.map_err(|error| CliError::new(format!("cannot write `{}`: {error}", file.display())))?;
            let mut python = Command::new("python3");
            python.arg(&file);
            expected &= demonstrate(python, color, Some(folder.path()))?;
        }
    }
    output::say("demo 3: two threads of native code lock two mutexes in opposite order");
    let mut native = Command::new("/proc/self/exe");
    native.arg("demo-target");
    expected &= demonstrate(native, color, None)?;
    Ok(if expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Start a target, wait until it hangs, look at it, print the report, end it. Whether it was called a deadlock.
fn demonstrate(command: Command, color: Color, folder: Option<&Path>) -> Result<bool, CliError> {
    let target = Target::start(command)?;
    target.wait_until_asleep();
    let report = analysis::attach(&AttachOptions::of([target.pid()]), Keep::Nothing)?.report;
    let mut text = Vec::new();
    let style = output::style(color);
    let working_directory = folder.map(Path::to_path_buf).or(style.working_directory.clone());
    render::render(&report, Format::Text, &Style { working_directory, ..style }, &mut text)
        .map_err(|error| CliError::new(format!("cannot render the report: {error}")))?;
    text.push(b'\n');
    output::to_stdout(&text)?;
    if report.verdict != Verdict::Deadlock {
        output::say(&format!("error: expected the verdict deadlock, got {}", report.verdict.as_str()));
    }
    Ok(report.verdict == Verdict::Deadlock)
}

/// Why the GIL case cannot run, if so.
fn python_is_missing() -> Option<String> {
    let probe = Command::new("python3")
        .args(["-c", "import ctypes; ctypes.CDLL(None).pthread_mutex_lock"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match probe {
        Ok(status) if status.success() => None,
        Ok(_) => Some("python3 has no usable ctypes".to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("no python3 on PATH".to_string()),
        Err(error) => Some(format!("python3 does not start: {error}")),
    }
}

/// A child that hangs; killed and reaped when dropped.
struct Target(Child);

impl Target {
    /// Start it and wait for its `READY`.
    fn start(mut command: Command) -> Result<Target, CliError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| CliError::new(format!("cannot start the demo: {error}")))?;
        let mut target = Target(child);
        let Some(stdout) = target.0.stdout.take() else { return Err(CliError::new("the demo has no output")) };
        let (sender, receiver) = mpsc::channel();
        // A thread, because a read has no time-out; it ends with the target at the latest.
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout.take(100)).read_line(&mut line);
            let _ = sender.send(read.is_ok() && line.starts_with("READY"));
        });
        match receiver.recv_timeout(PATIENCE) {
            Ok(true) => Ok(target),
            _ => Err(CliError::new("the demo did not get ready").hint("try it again on a less busy machine")),
        }
    }

    fn pid(&self) -> i32 {
        // A pid fits: the kernel's limit is 2^22.
        i32::try_from(self.0.id()).unwrap_or(i32::MAX)
    }

    /// Until all threads were seen in a futex call twice in a row. After [`PATIENCE`], or where the kernel does not
    /// tell, the sample itself has to decide.
    fn wait_until_asleep(&self) {
        let end = Instant::now() + PATIENCE;
        let mut seen = 0;
        while seen < 2 && Instant::now() < end {
            thread::sleep(POLL);
            seen = if self.all_in_futex() { seen + 1 } else { 0 };
        }
    }

    fn all_in_futex(&self) -> bool {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else { return false };
        let mut tasks = tasks.flatten().peekable();
        tasks.peek().is_some()
            && tasks.all(|task| std::fs::read_to_string(task.path().join("syscall")).is_ok_and(|line| in_futex(&line)))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a line of /proc/PID/task/TID/syscall is of a futex call, also one that the kernel restarts.
fn in_futex(line: &str) -> bool {
    let number = line.split(' ').next().and_then(|number| number.parse::<libc::c_long>().ok());
    number.is_some_and(|number| number == libc::SYS_futex || number == libc::SYS_restart_syscall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futex_calls_are_recognised() {
        assert!(in_futex(&format!("{} 0x7f 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f1\n", libc::SYS_futex)));
        assert!(!in_futex("running\n"));
        assert!(!in_futex("0 0x0 0x7f 0x400 0x0 0x0 0x0 0x7ffd 0x7f1\n"));
        assert!(!in_futex(""));
    }

    #[test]
    fn the_gil_case_hangs() {
        if let Some(reason) = python_is_missing() {
            eprintln!("skipped: {reason}");
            return;
        }
        let mut python = Command::new("python3");
        python.args(["-c", GIL_SCRIPT]);
        let target = Target::start(python).unwrap();
        let start = Instant::now();
        target.wait_until_asleep();
        assert!(start.elapsed() < PATIENCE, "all threads of the target sleep in futex calls");
    }
}

//! The plugin in pytest 7 to 9 on each Python, beside the plugins that people have: what it prints is compared with golden files.
//!
//! LOCKSCOPE_WHEEL is the package, LOCKSCOPE_PYTESTS what scripts/check/pytest-versions has filled. `LOCKSCOPE_GOLDEN=write` writes the
//! files anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::testdata;
use crate::pytest::{package, variable};
use crate::python::{Python, pythons};

/// Which pytest each Python gets: each is tried on two versions of Python at least.
fn pytest_for(minor: u32) -> Option<&'static str> {
    match minor {
        8 | 10 => Some("7"),
        9 | 12 => Some("8"),
        11 | 13.. => Some("9"),
        _ => None,
    }
}

fn minor_of(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--"]).args([from, to]).status().expect("cp runs");
    assert!(copied.success(), "{}", from.display());
}

/// A folder with the tests, the package and a pytest, as a Python finds it; and that Python in it.
fn prepared(python: &Python, pytest: &str) -> (tempfile::TempDir, Command) {
    let (folder, command) = python.in_a_folder();
    let at = folder.path();
    for (from, name) in [
        (testdata("pytest"), "tests"),
        (package().to_path_buf(), "package"),
        (variable("LOCKSCOPE_PYTESTS").join(pytest), "pytest"),
    ] {
        copy(&from, &at.join(name));
    }
    let Some(root) = python.root() else { return (folder, command) };
    // The monitor reads /proc, which a root file system of its own has not.
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", "mount -t proc proc \"$0/proc\" && exec \"$@\""]).arg(root);
    inside.arg(command.get_program()).args(command.get_args());
    (folder, inside)
}

/// What pytest says of a run, and its status; lines that differ from run to run and from version to version left out.
fn said(mut command: Command, folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    command
        .args(["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--lockscope", "--lockscope-stuck-after=6"])
        .args(arguments);
    command.env("PYTHONPATH", "package:pytest").env("COLUMNS", "400").env_remove("LOCKSCOPE");
    command.envs(variables.iter().copied());
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=10", "280"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let output = limited.output().expect("it runs");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut kept = Vec::new();
    let mut in_summary = false;
    for line in text.lines() {
        in_summary |= line.contains("short test summary info");
        // Whether a hang is told of before it is over depends on the time between two looks.
        let is_reportable = line.starts_with("lockscope: ") && !line.ends_with(" seems to hang");
        if is_reportable
            || in_summary && ["PASSED", "FAILED", "ERROR", "not run"].iter().any(|word| line.starts_with(word))
        {
            kept.push(line.replace(&folder.display().to_string(), "FOLDER"));
        }
        let counts = line.trim_matches('=').trim();
        if in_summary && counts.contains(" passed") {
            kept.push(counts.split(" in ").next().unwrap_or_default().to_owned());
        }
    }
    let mut status = format!("status {:?}", output.status.code());
    for line in kept {
        status += &format!("\n{}", harmonised(&line));
    }
    (status + "\n", text)
}

/// Without what a version of Python or pytest puts in another way.
fn harmonised(line: &str) -> String {
    // Inside of a root file system the folder has another name.
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.split(" at /").next().unwrap_or_default().split(" at FOLDER/").next().unwrap_or_default();
    let line = without_ids(&without_addresses(line));
    // The sentence is the report's, and has tests of its own.
    let cut = ["over its time limit", "Failed: Timeout", "coverage was saved", "waits for Future of work (running)"];
    let at = cut.iter().filter_map(|words| line.find(words).map(|at| at + words.len())).min();
    line[..at.unwrap_or(line.len())].to_owned()
}

/// `MainThread (1234)` has another id the next time.
fn without_ids(line: &str) -> String {
    let mut parts = line.split('(');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let is_id = rest.len() < part.len() && rest.starts_with(')');
        text += &if is_id { format!("(...{rest}") } else { format!("({part}") };
    }
    text
}

/// `mutex 0x7f.. in the heap` lies elsewhere the next time.
fn without_addresses(line: &str) -> String {
    let mut parts = line.split("0x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        let rest = match rest.strip_prefix(" inside ") {
            Some(place) => place.trim_start_matches(|letter: char| letter != ',' && letter != ' '),
            None => rest.strip_prefix(" in the heap").unwrap_or(rest),
        };
        text += &format!("0x...{rest}");
    }
    text
}

/// How often a report of a deadlock begins.
fn reports_of_deadlocks(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("deadlock: ")).count()
}

/// The golden file's text; written where the variable asks for it.
fn golden(name: &str, said: &str) -> String {
    let path = testdata(&format!("pytest/{name}.txt"));
    if std::env::var("LOCKSCOPE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, said).expect("written");
    }
    std::fs::read_to_string(&path).expect("a golden file")
}

/// Run it with each Python, but those of which `known` says what is not as it should be there.
fn tried(known: fn(u32) -> Option<&'static str>, run: impl Fn(&str, Command, &Path) + Sync) {
    if std::env::var_os("LOCKSCOPE_PYTESTS").is_none() {
        return crate::harness::skipped!("LOCKSCOPE_PYTESTS is not set: scripts/check/pytest-versions fills it");
    }
    let mut all: Vec<(u32, String, Python)> =
        pythons().into_iter().map(|(version, python)| (minor_of(&version), version, python)).collect();
    // One of each minor version.
    all.sort_by_key(|(minor, ..)| *minor);
    all.dedup_by_key(|(minor, ..)| *minor);
    all.retain(|(minor, version, _)| {
        let why = known(*minor);
        if let Some(why) = why {
            crate::harness::note_skipped(&format!("pytest on Python {version}: {why}"));
        }
        why.is_none()
    });
    let run = &run;
    let runs = all.iter().filter_map(|(minor, version, python)| Some((pytest_for(*minor)?, version, python))).map(
        |(pytest, version, python)| {
            move || {
                let (folder, mut command) = prepared(python, pytest);
                let mut has_proc = || command.arg("-V").output().is_ok_and(|output| output.status.success());
                if python.root().is_some() && !has_proc() {
                    crate::harness::note_skipped(&format!(
                        "pytest on Python {version}: no /proc can be mounted for it"
                    ));
                    return None;
                }
                drop(folder);
                let (folder, command) = prepared(python, pytest);
                let name = format!("Python {version}, pytest {pytest}");
                run(&name, command, folder.path());
                Some(name)
            }
        },
    );
    // They sleep for half of the time: more of them at once than processors, but not all, as their time is limited.
    let queue = std::sync::Mutex::new(runs);
    let next = || queue.lock().expect("no panic in an iterator").next();
    let worker = || std::iter::from_fn(&next).filter_map(|run| run()).collect::<Vec<String>>();
    let names: Vec<String> = std::thread::scope(|scope| {
        let count = std::thread::available_parallelism().map_or(2, usize::from) * 2;
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    println!("tried: {names:?}");
    assert!(!names.is_empty());
}

#[test]
fn hangs_are_failed_tests_and_the_suite_goes_on() {
    tried(
        |_| None,
        |name, command, folder| {
            let arguments = ["-p", "xdist", "tests/test_hangs.py"];
            let (said, text) = said(command, folder, &arguments, &[]);
            assert_eq!(said, golden("test_hangs", &said), "{name}: {text}");
            for words in ["words before the hang", "----- lockscope -----", "[lock-order-cycle]"] {
                assert!(text.contains(words), "{name}: {words}: {text}");
            }
            // The last of the tests hangs beside a deadlock that was left, and has that report as its own.
            assert_eq!(reports_of_deadlocks(&text), 3, "{name}: each told once: {text}");
        },
    );
}

#[test]
fn what_can_run_no_python_is_ended_with_its_process_and_the_rest_is_told() {
    tried(
        |_| None,
        |name, command, folder| {
            let coverage = ["--cov=tests", "tests/test_without_python.py"];
            let (said, text) = said(command, folder, &coverage, &[("KEEPS_GIL", "1")]);
            assert_eq!(said, golden("test_without_python", &said), "{name}: {text}");
            assert!(
                text.contains("words of a failed test") && text.contains("words before the hang"),
                "{name}: {text}"
            );
        },
    );
}

#[test]
fn coverage_is_kept_where_a_thread_gets_the_gil() {
    tried(
        |_| None,
        |name, command, folder| {
            let (said, text) = said(command, folder, &["--cov=tests", "tests/test_without_python.py"], &[]);
            assert!(
                said.contains("lockscope: coverage was saved") && said.starts_with("status Some(1)"),
                "{name}: {text}"
            );
            assert!(folder.join(".coverage").exists(), "{name}: {text}");
        },
    );
}

#[test]
fn a_worker_of_xdist_tells_once() {
    let newest = |(version, python): (String, Python)| python.root().is_none().then_some((version, python));
    if std::env::var_os("LOCKSCOPE_PYTESTS").is_none() {
        return crate::harness::skipped!("LOCKSCOPE_PYTESTS is not set: scripts/check/pytest-versions fills it");
    }
    let mut found = pythons().into_iter().filter_map(newest);
    let (version, python) = found.rfind(|(version, _)| minor_of(version) >= 11).expect("a Python");
    let (folder, command) = prepared(&python, "9");
    let tests = ["-n1", "tests/test_without_python.py", "tests/test_hangs.py::test_locks_in_two_orders"];
    let (_, text) = said(command, folder.path(), &tests, &[("KEEPS_GIL", "1")]);
    for words in [
        "FAILED tests/test_without_python.py::test_waits_in_native_code - ended by lockscope: deadlock: ",
        "FAILED tests/test_hangs.py::test_locks_in_two_orders - Failed: deadlock: ",
        "___ test_waits_in_native_code ___",
        "3 failed, 3 passed",
    ] {
        assert!(text.contains(words), "Python {version}: {words}: {text}");
    }
    assert_eq!(reports_of_deadlocks(&text), 2, "Python {version}: {text}");
}

/// Under ptrace_scope 1 a process may be looked at by the one that it names: the plugin names its monitor, which is no parent of it.
#[test]
fn the_monitor_may_look_where_only_parents_may() {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() != "1" {
        return crate::harness::skipped!("Yama's ptrace_scope is not 1 here: {scope:?}");
    }
    let found = pythons().into_iter().filter(|(version, python)| python.root().is_none() && minor_of(version) >= 11);
    let mut tried = 0;
    for (version, python) in found {
        let (folder, command) = prepared(&python, "9");
        let all = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root gives it away");
        let mut inside = Command::new("setpriv");
        if crate::harness::is_root() {
            all(folder.path());
            // Whoever has CAP_SYS_PTRACE may look anyway.
            inside.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
        }
        inside.arg(command.get_program()).args(command.get_args()).current_dir(folder.path());
        if !Command::new(inside.get_program())
            .args(inside.get_args())
            .arg("-V")
            .output()
            .is_ok_and(|out| out.status.success())
        {
            continue;
        }
        let (said, text) = said(inside, folder.path(), &["tests/test_hangs.py::test_queue"], &[]);
        assert!(said.contains("FAILED tests/test_hangs.py::test_queue - Failed: stuck: "), "Python {version}: {text}");
        tried += 1;
    }
    if tried == 0 {
        crate::harness::skipped!("no Python of 3.11 or later that another user may run");
    }
}

/// The Python interface: looks, snapshots and blocks that are watched.
#[test]
fn from_python_it_looks_and_watches() {
    let program = "
import ctypes, os, threading
import lockscope

def cross(first, second, both):
    with first:
        both.wait()
        with second:
            pass

locks, both = (threading.Lock(), threading.Lock()), threading.Barrier(2)
for order in (locks, locks[::-1]):
    threading.Thread(target=cross, args=(*order, both), daemon=True).start()
while True:
    report = lockscope.attach(os.getpid())
    if report.verdict == 'deadlock':
        break
print(report.findings[0].code, report.cycles[0].certainty, report.capture.registers.by_stop >= 0)
lockscope.snapshot(os.getpid(), 'a.snapshot.zst')
print(lockscope.read('a.snapshot.zst').verdict)
try:
    lockscope.attach('a-name-that-no-process-has')
except lockscope.LockscopeError as error:
    print('refused:', str(error).splitlines()[0])

def written(folder):
    # What is written there ends the read.
    while not any(name.endswith('.xml') for name in os.listdir(folder)):
        os.read(changes, 4096)
    return sorted(name.split('.', 1)[1] for name in os.listdir(folder))

libc = ctypes.CDLL(None)
changes, CLOSE_WRITE, MOVED_TO = libc.inotify_init1(0), 0x8, 0x80
for folder in ('late', 'locked'):
    libc.inotify_add_watch(changes, folder.encode(), CLOSE_WRITE | MOVED_TO)
with lockscope.expect(seconds=0.5, report_dir='late'):
    print(written('late'))
with lockscope.watch(report_dir='locked'):
    print(written('locked'))
with lockscope.expect(seconds=600) as block:
    block.renew()
print('over')
";
    for (version, python) in pythons() {
        if python.root().is_some() || minor_of(&version) < 8 {
            continue;
        }
        let (folder, mut command) = python.in_a_folder();
        for reports in ["late", "locked"] {
            std::fs::create_dir(folder.path().join(reports)).expect("a folder");
        }
        let output = command.args(["-c", program]).env("PYTHONPATH", package()).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            text,
            "lock-order-cycle inferred True\ndeadlock\n\
             refused: error: no process is called `a-name-that-no-process-has`\n\
             ['html', 'json', 'md', 'snapshot.zst', 'txt', 'xml']\n\
             ['html', 'json', 'md', 'snapshot.zst', 'txt', 'xml']\nover\n",
            "Python {version}: {errors}"
        );
        assert!(errors.contains("has run for longer than its time limit"), "Python {version}: {errors}");
    }
}

#[test]
fn the_types_of_the_report_are_those_of_the_schema() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let schema = crate::harness::lockscope().arg("schema").output().expect("it runs").stdout;
    let mut script = Command::new("python3");
    script.arg(root.join("scripts/check/report-types.py"));
    let mut child =
        script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("its input"), &schema).expect("written");
    let written = child.wait_with_output().expect("it ends");
    let kept = std::fs::read(root.join("scripts/ship/pypi/python/lockscope/report.py")).expect("the file");
    assert!(
        written.stdout == kept,
        "write it anew: lockscope schema | scripts/check/report-types.py > scripts/ship/pypi/python/lockscope/report.py"
    );
}

//! The Python package: a wheel in fresh environments, and its plugin with pytest alone, with xdist and below `lockscope run`.
//!
//! LOCKSCOPE_WHEEL is what scripts/release/wheel has built, LOCKSCOPE_TEST_TOOLS the folder of pytest and its like.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::harness::{as_from_a_terminal, compile, lockscope, own_program, testdata};
use crate::python::pythons;

/// One test of each kind, with a deadlock of the GIL: no Python can run in the process any more.
const SUITE: &str = "import ctypes, os, signal, subprocess, threading
import pytest

signal.alarm(120)


@pytest.mark.parametrize('number', range(20))
def test_good(number):
    pass


def test_bad():
    assert 1 == 2, 'as it should be'


@pytest.mark.skip(reason='not today')
def test_skipped():
    pass


def test_has_no_children_but_its_own():
    with pytest.raises(ChildProcessError):
        os.wait()
    subprocess.run(['true'], check=True)


def hold_the_gil_and_wait():
    mutex, locked = (ctypes.c_ulonglong * 16)(), threading.Event()
    releases, keeps = ctypes.CDLL(None), ctypes.PyDLL(None)
    releases.pthread_mutex_init(mutex, None)

    def work():
        releases.pthread_mutex_lock(mutex)
        locked.set()
        while True:
            releases.sched_yield()

    threading.Thread(target=work, name='native-lock', daemon=True).start()
    locked.wait()
    keeps.pthread_mutex_lock(mutex)


@pytest.mark.skipif('HANG' not in os.environ, reason='not asked for')
def test_hangs():
    hold_the_gil_and_wait()


@pytest.mark.skipif('SLOW' not in os.environ, reason='not asked for')
@pytest.mark.lockscope(timeout=1)
def test_slow():
    signal.pause()


def test_last():
    pass
";

pub(crate) fn variable(name: &str) -> PathBuf {
    PathBuf::from(std::env::var(name).unwrap_or_else(|_| panic!("{name}: scripts/test sets it")))
}

/// The package, installed into a folder of its own, once.
pub(crate) fn package() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
        let _ = std::fs::remove_dir_all(&folder);
        let mut pip = Command::new(variable("LOCKSCOPE_TEST_TOOLS").join("python3"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--disable-pip-version-check",
            "--target",
        ]);
        assert!(pip.arg(&folder).arg(variable("LOCKSCOPE_WHEEL")).status().expect("pip runs").success());
        folder
    })
}

struct Suite(TempDir);

impl Suite {
    fn new() -> Suite {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tests")).expect("made");
        std::fs::write(folder.path().join("tests/test_locks.py"), SUITE).expect("written");
        std::fs::write(folder.path().join("pytest.ini"), "[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
            .expect("written");
        Suite(folder)
    }

    /// `before` and then pytest with these arguments.
    fn pytest(&self, before: &[&str], arguments: &[&str], variables: &[&str]) -> Run {
        let python = variable("LOCKSCOPE_TEST_TOOLS").join("python3").display().to_string();
        let words = before.iter().copied().chain([python.as_str(), "-m", "pytest"]).chain(arguments.iter().copied());
        let words: Vec<&str> = words.collect();
        let mut command = as_from_a_terminal(words[0]);
        command.args(&words[1..]).current_dir(self.0.path()).env("PYTHONPATH", package()).env_remove("LOCKSCOPE");
        let output = command.envs(variables.iter().map(|name| (name, "1"))).output().expect("it runs");
        Run { junit: std::fs::read_to_string(self.0.path().join("junit.xml")).unwrap_or_default(), output }
    }

    fn reports(&self) -> Vec<String> {
        fn walk(folder: &Path, all: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() { walk(&path, all) } else { all.push(path.display().to_string()) }
            }
        }
        let mut all = Vec::new();
        walk(&self.0.path().join("reports"), &mut all);
        all
    }
}

struct Run {
    output: Output,
    junit: String,
}

impl Run {
    fn text(&self) -> String {
        let parts = [&self.output.stdout, &self.output.stderr];
        parts.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
    }

    fn says(&self, words: &[&str]) {
        for words in words {
            assert!(self.text().contains(words), "{words}: {}", self.text());
        }
    }

    /// The failures that the JUnit file has, by name.
    fn failures(&self) -> Vec<String> {
        let report = quick_junit::Report::deserialize_from_str(&self.junit)
            .unwrap_or_else(|error| panic!("{error}: {}", self.junit));
        let cases = report.test_suites.iter().flat_map(|suite| &suite.test_cases);
        let failed = cases.filter(|case| matches!(case.status, quick_junit::TestCaseStatus::NonSuccess { .. }));
        failed
            .map(|case| format!("{}::{}", case.classname.as_deref().unwrap_or_default(), case.name.as_str()))
            .collect()
    }
}

const WITH_REPORTS: [&str; 3] = ["--lockscope", "--lockscope-report-dir=reports", "--junitxml=junit.xml"];

/// Locks in two orders, by tests of which none hangs.
const ORDERS: &str = "import threading

ledger, journal = threading.Lock(), threading.Lock()


def take(first, second):
    with first:
        with second:
            pass


def run(first, second):
    thread = threading.Thread(target=take, args=(first, second))
    thread.start()
    thread.join()


def test_pay():
    run(ledger, journal)


def test_nothing():
    pass


def test_audit():
    run(journal, ledger)


def test_pay_again():
    run(ledger, journal)
";

#[test]
fn a_test_is_told_after_which_an_order_differs() {
    let suite = Suite::new();
    std::fs::write(suite.0.path().join("tests/test_locks.py"), ORDERS).expect("written");
    for distributed in [&[][..], &["-n1"]] {
        let options = ["-q", "-rP", "--lockscope-record", "--lockscope-report-dir=reports", "--junitxml=junit.xml"];
        let run = suite.pytest(&[], &[&options[..], distributed].concat(), &[]);
        assert!(run.output.status.success(), "{}", run.text());
        run.says(&["4 passed", "locks in orders that could deadlock", "  in tests/test_locks.py::test_audit\n"]);
        run.says(&["could deadlock: locks of one place (Lock `first`) are taken in different orders"]);
        assert!(!run.text().contains("in tests/test_locks.py::test_pay"), "{}", run.text());
        assert_eq!(run.junit.matches("lockscope.lock-order-inversion").count(), 1, "{}", run.junit);
    }
    assert_eq!(suite.reports().iter().filter(|path| path.ends_with(".html")).count(), 2);
    // Without it nothing is preloaded, and below a run that records its folder is used.
    let plain = suite.pytest(&[], &["-q"], &[]);
    assert!(!plain.text().contains("could deadlock"), "{}", plain.text());
    let program = own_program();
    let below = suite.pytest(&[program, "run", "--record", "--"], &["-q", "--lockscope-record"], &[]);
    below.says(&["  in tests/test_locks.py::test_audit\n", "did not hang, and could"]);
}

/// A test whose threads take locks in two orders and do not meet: the second begins when the first has ended, or when that takes longer
/// than it ever does by itself.
const APART: &str = "import os, select, threading

ledger, journal = threading.Lock(), threading.Lock()


def take(first, second):
    with first:
        with second:
            pass


def test_apart():
    reading, writing = os.pipe()

    def one():
        take(ledger, journal)
        os.write(writing, b'x')

    def other():
        select.select([reading], [], [], 0.06)
        take(journal, ledger)

    threads = [threading.Thread(target=target, name=target.__name__) for target in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_last():
    pass
";

#[test]
fn a_test_that_could_deadlock_is_made_to_and_fails() {
    let suite = Suite::new();
    std::fs::write(suite.0.path().join("tests/test_locks.py"), APART).expect("written");
    for distributed in [&[][..], &["-n1"]] {
        let options = ["-q", "--lockscope-provoke", "--junitxml=junit.xml"];
        let run = suite.pytest(&[], &[&options[..], distributed].concat(), &[]);
        assert_eq!(run.output.status.code(), Some(1), "{}", run.text());
        run.says(&[
            "1 failed, 1 passed",
            "The test deadlocks when threads are held back",
            "made to happen: predicted by",
        ]);
        assert_eq!(run.failures(), ["tests.test_locks::test_apart"], "{}", run.text());
    }
    // Two tests of one order each never meet: the reason stands in the report, and none fails.
    std::fs::write(suite.0.path().join("tests/test_locks.py"), ORDERS).expect("written");
    let run = suite.pytest(&[], &["-q", "-rP", "--lockscope-provoke"], &[]);
    assert!(run.output.status.success(), "{}", run.text());
    run.says(&["4 passed", "not made to happen"]);
}

/// A suite whose locks are taken in one order, and which has a module loaded.
const WITH_A_MODULE: &str = "
import ctypes, os, threading

ledger, journal = threading.Lock(), threading.Lock()
module = ctypes.CDLL('MODULE')

def pay():
    with ledger:
        with journal:
            pass

def test_pay():
    thread = threading.Thread(target=pay)
    thread.start()
    thread.join()

def test_pay_again():
    # A child says what it has loaded, too.
    child = os.fork()
    if child == 0:
        test_pay()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
";

#[test]
fn the_summary_says_what_was_not_seen_and_nothing_where_all_was() {
    let suite = Suite::new();
    let module = |kind: &str, name: &str| {
        let flags = ["-shared", "-fPIC", &format!("-D{kind}")];
        compile("native/modules_with_locks.c", name, &flags).display().to_string()
    };
    let (own, alike) = (module("RUST", "summary-rust.so"), module("LIKE_RUST", "summary-like-rust.so"));
    for (module, is_reportable) in [(&own, true), (&alike, false)] {
        let test = suite.0.path().join("tests/test_module.py");
        std::fs::write(test, WITH_A_MODULE.replace("MODULE", module)).expect("written");
        let run = suite.pytest(&[], &["-q", "--lockscope-record", "tests/test_module.py"], &[]);
        assert!(run.output.status.success(), "{}", run.text());
        run.says(&["2 passed"]);
        let line =
            "not all was recorded: locks of Rust's std in 1 module: the recorder does not see them: summary-rust.so";
        assert_eq!(run.text().contains(line), is_reportable, "{}", run.text());
        assert_eq!(run.text().contains("summary-"), is_reportable, "{}", run.text());
        assert_eq!(run.text().contains("not all was recorded"), is_reportable, "{}", run.text());
    }
}

#[test]
fn a_healthy_suite_notices_nothing() {
    let suite = Suite::new();
    let without = suite.pytest(&[], &["-q", "-p", "no:lockscope", "-o", "markers=lockscope", "tests"], &[]);
    without.says(&["1 failed, 22 passed, 3 skipped"]);
    for arguments in [
        &["-q"][..],
        &["-q", "--lockscope"],
        &["-q", "--lockscope-timeout=60", "--capture=sys"],
        &["-q", "-n2", "--lockscope"],
    ] {
        let with = suite.pytest(&[], arguments, &[]);
        assert_eq!(with.output.status.code(), Some(1), "{}", with.text());
        with.says(&["1 failed, 22 passed, 3 skipped"]);
        assert!(!with.text().contains("warning"), "{}", with.text());
    }
    assert!(suite.reports().is_empty());
}

/// A test sets a filter of system calls, replaces functions, forks past Python, closes all descriptors: the plugin changes no result,
/// and a hang in a later test is found.
#[test]
fn tests_that_attack_the_plugin_end_as_without_it() {
    let suite = Suite::new();
    let tests = suite.0.path().join("tests");
    std::fs::remove_file(tests.join("test_locks.py")).expect("removed");
    std::fs::copy(testdata("hostile/test_attacks.py"), tests.join("test_attacks.py")).expect("copied");
    let outcome = |before: &[&str], arguments: &[&str]| {
        let run = suite.pytest(before, &[&["-q", "--capture=sys"], arguments].concat(), &[]);
        let last =
            run.text().lines().rfind(|line| line.contains(" passed") || line.contains(" error")).map(str::to_owned);
        let counts = last.and_then(|line| line.split(" in ").next().map(str::to_owned));
        (run.output.status.code(), counts.unwrap_or_else(|| run.text()), run)
    };
    for attack in ["filter", "replaced", "fork", "descriptors"] {
        let attack = format!("ATTACK={attack}");
        let (status, counts, _) = outcome(&["env", &attack], &["-p", "no:lockscope", "-o", "markers=lockscope"]);
        let (with, with_counts, run) = outcome(&["env", &attack], &["--lockscope"]);
        assert_eq!((with, &with_counts), (status, &counts), "{attack}: {}", run.text());
    }
    // A thread of the test that hangs would be the first to break the filter, and the replaced functions are not lockscope's alone.
    for attack in ["fork", "descriptors"] {
        let (status, counts, run) = outcome(&["env", &format!("ATTACK={attack}"), "HANG=1"], &["--lockscope"]);
        assert_eq!((status, counts.as_str()), (Some(1), "1 failed, 5 passed"), "{attack}: {}", run.text());
        run.says(&["are taken in different orders"]);
    }
}

#[test]
fn what_can_run_no_python_ends_pytest_with_the_test_in_the_junit_file() {
    let suite = Suite::new();
    let run = suite.pytest(&[], &WITH_REPORTS, &["HANG"]);
    assert_eq!(run.output.status.code(), Some(1), "{}", run.text());
    run.says(&[
        "lockscope: tests/test_locks.py::test_hangs hangs",
        "deadlock: ",
        "native-lock",
        "FAILED tests/test_locks.py::test_bad - AssertionError: as it should be",
        "FAILED tests/test_locks.py::test_hangs - deadlock: ",
        "not run: tests/test_locks.py::test_slow, tests/test_locks.py::test_last",
        "2 failed, 21 passed, 1 skipped, 2 not run in ",
    ]);
    assert_eq!(run.failures(), ["tests.test_locks::test_bad", "tests.test_locks::test_hangs"], "{}", run.junit);
    assert!(run.junit.contains("type=\"deadlock\"") && run.junit.contains("[[ATTACHMENT|"), "{}", run.junit);
    assert_eq!(suite.reports().len(), 6, "{:?}", suite.reports());
}

/// Where pytest must be ended, what ran on the GPUs is in the report, though the driver ends pytest by SIGABRT; nothing is set unless it is asked for.
#[test]
fn a_core_of_the_gpu_is_taken_where_pytest_must_be_ended() {
    let core = tempfile::NamedTempFile::new().expect("a file");
    let packed = std::fs::read(testdata("gpu/cores/barrier.gpucore.zst")).expect("a core");
    std::fs::write(core.path(), packed).expect("written");
    let whose = |arguments: &[&str], status: Option<i32>| {
        let suite = Suite::new();
        let python = variable("LOCKSCOPE_TEST_TOOLS").join("python3");
        let mut command = as_from_a_terminal(&python.to_string_lossy());
        command.args(["-m", "pytest", "-p", "no:cacheprovider", "--lockscope-timeout=1"]);
        command.arg("--lockscope-report-dir=reports").args(arguments);
        command.arg(testdata("pytest/test_gpu.py")).current_dir(suite.0.path()).env("PYTHONPATH", package());
        let output = command.env_remove("LOCKSCOPE").env("CORE", core.path()).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), status, "{text}");
        assert!(text.contains("1 failed in ") && text.contains("FAILED "), "{text}");
        let reports = suite.reports();
        let json = reports.iter().find(|path| path.ends_with(".json")).unwrap_or_else(|| panic!("{reports:?}: {text}"));
        std::fs::read_to_string(json).expect("a report")
    };
    // Read, and found to be another process's.
    let words = "its contexts are in the memory of none of these processes";
    assert!(whose(&["--lockscope-gpu-core"], None).contains(words));
    assert!(!whose(&[], Some(1)).contains(words));
}

#[test]
fn with_xdist_the_suite_goes_on() {
    let suite = Suite::new();
    // Also below `lockscope run`, which leaves the tests to the monitors.
    let own = own_program();
    for before in [&[][..], &[own, "run", "--"]] {
        let run = suite.pytest(before, &[&WITH_REPORTS[..], &["-n2"]].concat(), &["HANG"]);
        assert_eq!(run.output.status.code(), Some(1), "{}", run.text());
        run.says(&["2 failed, 22 passed, 2 skipped", "ended by lockscope: deadlock: ", "native-lock"]);
        let mut failures = run.failures();
        failures.sort();
        assert!(failures[0].ends_with("test_bad") && failures[1].ends_with("test_hangs"), "{}", run.junit);
        assert!(run.junit.contains("ended by lockscope: deadlock: "), "{}", run.junit);
    }
}

#[test]
fn a_marker_gives_one_test_a_time_limit() {
    let suite = Suite::new();
    let run = suite.pytest(&[], &["-n1", "--junitxml=junit.xml"], &["SLOW"]);
    assert_eq!(run.output.status.code(), Some(1), "{}", run.text());
    run.says(&["2 failed, 22 passed, 2 skipped", "over its time limit"]);
    // And a limit for all, of which the user only wants to know.
    let arguments =
        ["-x", "-q", "--lockscope-timeout=1", "--lockscope-on-hang=report", "tests/test_locks.py::test_slow"];
    let run = suite.pytest(&["timeout", "--preserve-status", "6"], &arguments, &["SLOW"]);
    run.says(&["test_slow has run for longer than its time limit", "blocked: "]);
}

#[test]
fn without_the_plugin_run_names_the_test() {
    let suite = Suite::new();
    let own = own_program();
    let run = suite.pytest(&[own, "run", "--junit", "junit.xml", "--"], &["-q"], &["HANG"]);
    assert_eq!(run.output.status.code(), Some(124), "{}", run.text());
    run.says(&["hangs, in the test test_locks.py::test_hangs", "deadlock: "]);
    assert_eq!(run.failures(), ["test_locks::test_hangs"], "{}", run.junit);
}

#[test]
fn the_wheel_installs_into_every_python() {
    let wheel = variable("LOCKSCOPE_WHEEL");
    let mut tried = Vec::new();
    for (version, python) in pythons() {
        let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
        if minor < 8 || python.root().is_some() {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let made = python.command().args(["-m", "venv"]).arg(folder.path()).output().expect("it runs");
        assert!(made.status.success(), "{version}: {}", String::from_utf8_lossy(&made.stderr));
        let installed = Command::new(folder.path().join("bin/pip"))
            .args(["install", "--quiet", "--no-index", "--disable-pip-version-check"])
            .arg(&wheel)
            .output()
            .expect("pip runs");
        assert!(installed.status.success(), "{version}: {}", String::from_utf8_lossy(&installed.stderr));
        for words in [&["bin/lockscope"][..], &["bin/python", "-m", "lockscope"]] {
            let output = Command::new(folder.path().join(words[0])).args(&words[1..]).arg("-V").output();
            let said = String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned();
            assert_eq!(said.trim(), concat!("lockscope ", env!("CARGO_PKG_VERSION")), "{version}");
        }
        let about = "import pathlib, lockscope, importlib.metadata as m\n\
                     print(pathlib.Path(lockscope.__file__).with_name('manual.html').read_text())\n\
                     print(m.metadata('lockscope').get_all('Project-URL'), m.metadata('lockscope').get_payload() or \
                     m.metadata('lockscope')['Description'])";
        let output = Command::new(folder.path().join("bin/python")).args(["-c", about]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("<section id=\"containers\">"), "{version}: no manual: {errors}");
        assert!(said.contains("'Changelog, https://"), "{version}: {said}");
        assert!(said.contains("](https://") && !said.contains("](src/manual"), "{version}: links of README");
        tried.push(version);
    }
    println!("tried: {}", tried.join(", "));
    assert!(!tried.is_empty());
}

#[test]
fn its_program_needs_no_library_and_no_file() {
    let program = package().join("bin/lockscope");
    let described =
        Command::new("file").arg("-L").arg(&program).output().map(|output| output.stdout).unwrap_or_default();
    println!("{}", String::from_utf8_lossy(&described));
    if !nix::unistd::geteuid().is_root() {
        return crate::harness::skipped!("chroot needs root");
    }
    let empty = tempfile::tempdir().expect("a folder");
    let oldest = std::env::var("LOCKSCOPE_LIBCS").ok().and_then(|all| all.split(':').next().map(PathBuf::from));
    let roots = [Some(empty.path().to_path_buf()), oldest];
    for root in roots.iter().flatten() {
        let copy = root.join("lockscope-of-the-wheel");
        std::fs::copy(&program, &copy).expect("copied");
        let said = Command::new("chroot").arg(root).args(["/lockscope-of-the-wheel", "--version"]).output();
        std::fs::remove_file(&copy).expect("removed");
        let said = said.expect("chroot runs");
        assert!(said.status.success(), "{}: {}", root.display(), String::from_utf8_lossy(&said.stderr));
    }
    // It does its work from there, too.
    let demo = Command::new(&program).arg("demo").output().expect("it runs");
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    assert!(lockscope().arg("--version").output().expect("it runs").status.success());
}

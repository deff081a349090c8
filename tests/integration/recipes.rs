//! The files of scripts/ship/recipes, each with the runner or launcher that it is for: what is healthy passes, what deadlocks
//! fails by itself, with the deadlock named in the runner's own output and a report in the folder.
//!
//! LOCKSCOPE_TEST_TOOLS is the folder that scripts/check/test-tools has filled. Ranks and containers are in
//! [`crate::launchers`].

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::{own_program, skipped, testdata};

/// What a report says of two locks that are taken in different orders.
pub(crate) const DEADLOCK: &str = "[lock-order-cycle]";
/// What it says of what somebody else ends.
const FROM_OUTSIDE: &str = "is being ended from outside (SIGTERM)";

pub(crate) const PYTHON_TESTS: &str = "import signal
import threading
import unittest

ledger, journal, both = threading.Lock(), threading.Lock(), threading.Barrier(2)


def other():
    with journal:
        both.wait()
        with ledger:
            pass


class Locks(unittest.TestCase):
    def test_healthy(self):
        with ledger, journal:
            pass

    def test_hangs(self):
        signal.alarm(120)
        threading.Thread(target=other, name='reader', daemon=True).start()
        with ledger:
            both.wait()
            with journal:
                pass
";

/// Locks of the C library: those of `std::sync` record no owner.
const RUST_TESTS: &str = r#"use std::sync::Barrier;

#[repr(C)]
struct Mutex([u64; 5]);

extern "C" {
    fn alarm(seconds: u32) -> u32;
    fn pause() -> i32;
    fn pthread_mutex_lock(mutex: *mut Mutex) -> i32;
}

static mut LEDGER: Mutex = Mutex([0; 5]);
static mut JOURNAL: Mutex = Mutex([0; 5]);
static BOTH: Barrier = Barrier::new(2);

fn take(first: *mut Mutex, second: *mut Mutex) {
    unsafe { pthread_mutex_lock(first) };
    BOTH.wait();
    unsafe { pthread_mutex_lock(second) };
}

#[test]
fn healthy() {}

#[test]
fn hangs() {
    unsafe { alarm(120) };
    std::thread::spawn(|| take(&raw mut JOURNAL, &raw mut LEDGER));
    take(&raw mut LEDGER, &raw mut JOURNAL);
}

#[test]
#[ignore]
fn waits_for_a_signal() {
    unsafe { alarm(120) };
    unsafe { pause() };
}
"#;

const CMAKE: &str = "cmake_minimum_required(VERSION 3.29)
project(locks C)
enable_testing()
find_package(Threads REQUIRED)
add_executable(deadlocks ${DEADLOCKS})
target_link_libraries(deadlocks Threads::Threads)
file(WRITE ${CMAKE_BINARY_DIR}/healthy.c \"int main(void) { return 0; }\")
add_executable(healthy ${CMAKE_BINARY_DIR}/healthy.c)
add_test(NAME healthy COMMAND healthy)
add_test(NAME hangs COMMAND deadlocks abba)
add_test(NAME slow COMMAND deadlocks idle-workers)
set_tests_properties(slow PROPERTIES TIMEOUT 2 TIMEOUT_SIGNAL_NAME SIGTERM TIMEOUT_SIGNAL_GRACE_PERIOD 10)
";

pub(crate) fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/ship/recipes").join(name)
}

pub(crate) fn tools() -> PathBuf {
    PathBuf::from(std::env::var("LOCKSCOPE_TEST_TOOLS").expect("LOCKSCOPE_TEST_TOOLS: scripts/test sets it"))
}

/// A folder with a suite in it.
pub(crate) struct Project(pub(crate) TempDir);

impl Project {
    pub(crate) fn new(files: &[(&str, &str)]) -> Project {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        Project(folder)
    }

    fn rust() -> Project {
        let manifest = "[package]\nname = 'locks'\nversion = '0.0.0'\nedition = '2021'\n";
        Project::new(&[("Cargo.toml", manifest), ("src/lib.rs", ""), ("tests/locks.rs", RUST_TESTS)])
    }

    fn python() -> Project {
        Project::new(&[("test_locks.py", PYTHON_TESTS)])
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command in the folder that finds lockscope and the tools; these tests may themselves run under lockscope.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let own = Path::new(own_program()).parent().expect("a folder").to_owned();
        let before = std::env::var_os("PATH").unwrap_or_default();
        let path = [own, tools()].into_iter().chain(std::env::split_paths(&before));
        let path = std::env::join_paths(path).expect("a path");
        // The program is looked for in the PATH of this process, not in that of the new one.
        let mut command = Command::new("env");
        command.arg(format!("PATH={}", path.display())).arg(program.as_ref()).current_dir(self.0.path());
        command.env_remove("LOCKSCOPE").env_remove("LOCKSCOPE_REPORT_DIR").stdin(Stdio::null());
        command.env("CARGO_TARGET_DIR", self.path("target"));
        command
    }

    /// How many processes have written a report into a folder; each has text, JSON and a snapshot.
    pub(crate) fn reports(&self, folder: &str) -> usize {
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(self.path(folder)).into_iter().flatten().flatten() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        let count =
            |ending: &str| names.iter().filter(|name| name.starts_with("hang-") && name.ends_with(ending)).count();
        assert!(count(".txt") == count(".json") && count(".txt") == count(".snapshot.zst"), "{names:?}");
        count(".txt")
    }
}

/// Exit status and all output.
pub(crate) fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), text)
}

#[track_caller]
pub(crate) fn passes(command: &mut Command) {
    let (code, text) = outcome(command);
    assert!(code == Some(0) && !text.contains("lockscope: "), "{code:?}: {text}");
}

/// It fails with this status, and says all that.
#[track_caller]
pub(crate) fn fails(command: &mut Command, status: i32, words: &[&str]) {
    let (code, text) = outcome(command);
    assert_eq!(code, Some(status), "{text}");
    for words in words {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn nextest() {
    let project = Project::rust();
    let run = |config: &Path, more: &[&str]| {
        let mut run = project.command("cargo");
        run.args(["nextest", "run", "--offline", "--config-file"]).arg(config).args(more);
        run.env("LOCKSCOPE_REPORT_DIR", project.path("target/hangs"));
        run
    };
    passes(&mut run(&recipe("nextest.toml"), &["-E", "test(healthy)"]));
    fails(&mut run(&recipe("nextest.toml"), &[]), 100, &[DEADLOCK, "1 passed, 1 failed"]);
    assert_eq!(project.reports("target/hangs"), 1);

    // nextest's own limit comes first: it sends SIGTERM to the process group of the test.
    let text = std::fs::read_to_string(recipe("nextest.toml")).expect("readable");
    let short = text.replace(r#"period = "60s", terminate-after = 10"#, r#"period = "1s", terminate-after = 1"#);
    assert_ne!(text, short);
    std::fs::write(project.path("short.toml"), short).expect("written");
    let only = ["--run-ignored", "only", "-E", "test(waits_for_a_signal)"];
    fails(&mut run(&project.path("short.toml"), &only), 100, &[FROM_OUTSIDE, "waits for a signal", "1 timed out"]);
    assert_eq!(project.reports("target/hangs"), 2);
}

#[test]
fn cargo_test() {
    let project = Project::rust();
    let run = |more: &[&str]| {
        let mut run = project.command("cargo");
        run.arg("--config").arg(recipe("cargo-test.toml")).args(["test", "--offline", "--tests"]).args(more);
        run.env("LOCKSCOPE_REPORT_DIR", project.path("target/hangs"));
        run
    };
    passes(&mut run(&["healthy"]));
    fails(&mut run(&[]), 124, &[DEADLOCK, "test healthy ... ok"]);
    assert_eq!(project.reports("target/hangs"), 1);
}

#[test]
fn ctest() {
    let project = Project::new(&[("CMakeLists.txt", CMAKE)]);
    let mut configure = project.command("cmake");
    configure.arg("-C").arg(recipe("ctest.cmake")).args(["-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Debug"]);
    configure.arg(format!("-DDEADLOCKS={}", testdata("native/deadlocks.c").display()));
    passes(&mut configure);
    passes(project.command("cmake").args(["--build", "build"]));
    let run = |tests: &str| {
        let mut run = project.command("ctest");
        run.args(["--test-dir", "build", "--output-on-failure", "-R", tests]);
        run
    };
    passes(&mut run("healthy"));
    fails(&mut run("healthy|hangs"), 8, &[DEADLOCK, "1 tests failed out of 2", "hangs (Failed)"]);
    assert_eq!(project.reports("build/hangs"), 1);
    fails(&mut run("slow"), 8, &[FROM_OUTSIDE, "condition `more`", "slow (Timeout)"]);
    assert_eq!(project.reports("build/hangs"), 2);
}

#[test]
fn unittest_tox_and_nox() {
    for (file, status, runner) in [
        ("unittest.sh", 124, &["unittest.sh"][..]),
        ("tox.ini", 124, &["tox", "--"]),
        ("noxfile.py", 1, &["nox", "--"]),
    ] {
        let project = Project::python();
        let link = project.path(file);
        symlink(recipe(file), &link).expect("linked");
        let program = if runner[0] == file { link.display().to_string() } else { runner[0].to_owned() };
        let run = |test: &str| {
            let mut run = project.command(&program);
            run.args(&runner[1..]).arg(test);
            run
        };
        passes(&mut run("test_locks.Locks.test_healthy"));
        fails(&mut run("test_locks"), status, &[DEADLOCK, "test_locks.py"]);
        assert_eq!(project.reports("hangs"), 1, "{file}");
    }
}

/// The line that installs takes the wheel from where the recipe says that it is.
#[test]
fn ci_systems_install_the_wheel() {
    let Some(wheel) = std::env::var_os("LOCKSCOPE_WHEEL") else { return skipped!("LOCKSCOPE_WHEEL is not set") };
    for file in ["github.yml", "gitlab.yml"] {
        let text = std::fs::read_to_string(recipe(file)).expect("readable");
        let install = text.lines().find_map(|line| Some(&line[line.find("pip install")?..])).expect("it installs");
        let project = Project::python();
        let folder = project.path("ci");
        std::fs::create_dir(&folder).expect("made");
        let name = Path::new(&wheel).file_name().expect("a file");
        std::fs::copy(&wheel, folder.join(name)).expect("copied");
        let script =
            format!("python3 -m venv v && PATH=$PWD/v/bin:$PATH && {install} --quiet --no-index && v/bin/lockscope -V");
        let (code, said) = outcome(project.command("sh").args(["-c", &script]));
        assert!(code == Some(0) && said.contains("lockscope"), "{file}: {said}");
    }
}

#[test]
fn commands_of_ci_systems() {
    for file in ["github.yml", "gitlab.yml", "Jenkinsfile"] {
        let text = std::fs::read_to_string(recipe(file)).expect("readable");
        let project = Project::python();
        let (_, rest) = text.split_once("lockscope run --timeout 20m").unwrap_or_else(|| panic!("{file}: {text}"));
        let command = rest.lines().next().expect("a line").trim_end_matches('\'');
        let mut run = project.command("sh");
        run.args(["-c", &format!("lockscope run --timeout 20m{command}")]).env("LOCKSCOPE_REPORT_DIR", "hangs");
        fails(&mut run, 124, &[DEADLOCK]);
        assert_eq!(project.reports("hangs"), 1, "{file}");
        assert!(text.contains("30") && text.contains("hangs"), "{file}: its own limit, and the folder");
    }
}

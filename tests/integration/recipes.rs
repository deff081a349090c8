//! The files of scripts/recipes, each with the runner or launcher that it is for: what is healthy passes, what deadlocks fails by
//! itself, with the deadlock named in the runner's own output and a report in the folder.
//!
//! LOCKSCOPE_TEST_TOOLS is the folder that scripts/test-tools has filled. torchrun, Slurm and Docker are tried where they are.

use std::fmt::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::harness::{compile, lockscope, signal_process, testdata, wait_until};

/// What a report says of two locks that are taken in different orders.
const DEADLOCK: &str = "[lock-order-cycle]";
/// What it says of what somebody else ends.
const FROM_OUTSIDE: &str = "is being ended from outside (SIGTERM)";

const PYTHON_TESTS: &str = "import signal
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

fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/recipes").join(name)
}

fn tools() -> PathBuf {
    PathBuf::from(std::env::var("LOCKSCOPE_TEST_TOOLS").expect("LOCKSCOPE_TEST_TOOLS: scripts/test sets it"))
}

/// A folder with a suite in it.
struct Project(TempDir);

impl Project {
    fn new(files: &[(&str, &str)]) -> Project {
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

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command in the folder that finds lockscope and the tools; these tests may themselves run under lockscope.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let own = Path::new(env!("CARGO_BIN_EXE_lockscope")).parent().expect("a folder").to_owned();
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
    fn reports(&self, folder: &str) -> usize {
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
fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), text)
}

#[track_caller]
fn passes(command: &mut Command) {
    let (code, text) = outcome(command);
    assert!(code == Some(0) && !text.contains("lockscope: "), "{code:?}: {text}");
}

/// It fails with this status, and says all that.
#[track_caller]
fn fails(command: &mut Command, status: i32, words: &[&str]) {
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
        run.args(["nextest", "run", "--offline", "--no-fail-fast", "--config-file"]).arg(config).args(more);
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

/// A rank that deadlocks and others that wait.
const RANK: &str = "#!/bin/sh
case ${PMI_RANK-}${OMPI_COMM_WORLD_RANK-}${SLURM_PROCID-} in
    0) exec \"$1\" abba ;;
    *) exec sleep 100 ;;
esac
";

fn ranks() -> (Project, String) {
    let project = Project::new(&[("rank.sh", RANK)]);
    std::fs::set_permissions(project.path("rank.sh"), PermissionsExt::from_mode(0o755)).expect("allowed");
    (project, compile("native/deadlocks.c", "deadlocks", &[]).display().to_string())
}

#[test]
fn mpirun() {
    let (project, deadlocks) = ranks();
    let run = |command: &[&str]| {
        let mut run = project.command(recipe("mpirun.sh"));
        run.arg("2").args(command);
        run
    };
    passes(&mut run(&["true"]));
    // What hangs is one rank; the launcher ends the other.
    fails(&mut run(&["./rank.sh", &deadlocks]), 124, &[DEADLOCK]);
    assert!(project.reports("hangs") >= 1);
}

#[test]
fn torchrun() {
    if !tools().join("torchrun").exists() {
        return println!("not tried: torchrun, scripts/test-tools FOLDER torch installs it");
    }
    let script = "import os, sys, time, unittest\nif os.environ['RANK'] == '0':\n    unittest.main('test_locks', argv=sys.argv)\n\
                  time.sleep(100 if 'hang' in sys.argv else 0)\n";
    let project = Project::new(&[("test_locks.py", PYTHON_TESTS), ("train.py", script)]);
    let run = |arguments: &[&str]| {
        let mut run = project.command(recipe("torchrun.sh"));
        run.args(["2", "train.py"]).args(arguments).env("PYTHON", tools().join("python"));
        run
    };
    passes(&mut run(&["Locks.test_healthy"]));
    fails(&mut run(&["Locks.test_hangs", "hang"]), 1, &[DEADLOCK, "exitcode", "124"]);
    assert!(project.reports("hangs") >= 1);
}

/// A daemon of these tests, ended by its id.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        signal_process(self.0.id() as i32, "TERM");
        let _ = self.0.wait();
    }
}

/// A controller and a node of Slurm in a folder; they trust each other.
fn slurm(project: &Project) -> Option<[Daemon; 2]> {
    let port = || Some(std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port());
    let host = nix::unistd::gethostname().ok()?.into_string().ok()?;
    let folder = project.0.path().display();
    let mut text = format!("ClusterName=one\nSlurmctldHost={host}(127.0.0.1)\n");
    for (name, value) in [("SlurmctldPort", port()?), ("SlurmdPort", port()?)] {
        writeln!(text, "{name}={value}").ok()?;
    }
    for (name, file) in [
        ("StateSaveLocation", "state"),
        ("SlurmdSpoolDir", "spool"),
        ("SlurmctldPidFile", "slurmctld.pid"),
        ("SlurmdPidFile", "slurmd.pid"),
    ] {
        writeln!(text, "{name}={folder}/{file}").ok()?;
    }
    text += "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\nMailProg=/bin/true\nMpiDefault=none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nReturnToService=2\n";
    let processors = std::thread::available_parallelism().ok()?;
    writeln!(text, "NodeName={host} NodeAddr=127.0.0.1 CPUs={processors}").ok()?;
    writeln!(text, "PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8").ok()?;
    std::fs::write(project.path("slurm.conf"), text).ok()?;
    std::fs::create_dir(project.path("state")).ok()?;
    let daemon = |name: &str| {
        let log = std::fs::File::create(project.path(name)).ok()?;
        let mut daemon = Command::new(name);
        daemon.arg("-D").env("SLURM_CONF", project.path("slurm.conf")).env_remove("LOCKSCOPE");
        Some(Daemon(daemon.stdout(log.try_clone().ok()?).stderr(log).spawn().ok()?))
    };
    Some([daemon("slurmctld")?, daemon("slurmd")?])
}

#[test]
fn slurm_jobs() {
    let (project, deadlocks) = ranks();
    if !nix::unistd::geteuid().is_root() {
        return println!("not tried: Slurm, whose daemons need root");
    }
    let Some(daemons) = slurm(&project) else { return println!("not tried: Slurm, which is not on this machine") };
    let ask = |words: &[&str]| {
        let mut ask = project.command(words[0]);
        ask.args(&words[1..]).env("SLURM_CONF", project.path("slurm.conf"));
        outcome(&mut ask)
    };
    wait_until("the node is there", || ask(&["sinfo", "-h", "-o", "%T"]).1.trim() == "idle");
    // Submits a job and gives its output once it is over.
    let job = |command: &[&str]| {
        let script = recipe("slurm.sh").display().to_string();
        let (code, id) = ask(&[&["sbatch", "--parsable", "--ntasks=2", "--output=%j.out", &script], command].concat());
        assert_eq!(code, Some(0), "{id}");
        let id = id.trim().to_owned();
        wait_until("the job ends", || ask(&["squeue", "-h", "-t", "all", "-o", "%T", "-j", &id]).1.contains("ED"));
        let state = ask(&["squeue", "-h", "-t", "all", "-o", "%T", "-j", &id]).1.trim().to_owned();
        (state, std::fs::read_to_string(project.path(&format!("{id}.out"))).unwrap_or_default(), id)
    };
    let (state, text, _) = job(&["true"]);
    assert!(state == "COMPLETED" && text.is_empty(), "{state}: {text}");
    let (state, text, id) = job(&["./rank.sh", &deadlocks]);
    assert!(state == "FAILED" && text.contains(DEADLOCK) && text.contains("exit code 124"), "{state}: {text}");
    assert!(project.reports(&format!("hangs-{id}")) >= 1);
    drop(daemons);
}

#[test]
fn docker() {
    let project = Project::new(&[]);
    if !outcome(&mut project.command("docker").arg("info")).1.contains("Server Version") {
        return println!("not tried: Docker, no engine answers");
    }
    // An image of nothing but the two programs and their libraries.
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]).display().to_string();
    let files = "ldd \"$@\" | grep -o '/[^ :]*' | sort -u | tar --create --dereference --absolute-names --files-from - | docker import -";
    let (code, text) =
        outcome(project.command("sh").args(["-ec", files, "-", env!("CARGO_BIN_EXE_lockscope"), &deadlocks]));
    let image = text.lines().find(|line| line.starts_with("sha256:")).unwrap_or_else(|| panic!("{code:?}: {text}"));
    let run = |words: &[&str]| {
        let mut run = project.command(recipe("docker.sh"));
        run.arg(image).args(words);
        run
    };
    passes(&mut run(&["lockscope", "--version"]));
    fails(&mut run(&[&deadlocks, "abba"]), 124, &[DEADLOCK]);
    assert_eq!(project.reports("hangs"), 1);
    passes(project.command("docker").args(["image", "rm", image]));
}

/// What a container takes away: the first process, no capability, another user.
#[test]
fn no_privilege_is_needed() {
    if !nix::unistd::geteuid().is_root() {
        return println!("not tried: without privilege, which this test has not anyway");
    }
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    for (name, from) in [
        ("lockscope", PathBuf::from(env!("CARGO_BIN_EXE_lockscope"))),
        ("deadlocks", compile("native/deadlocks.c", "deadlocks", &[])),
    ] {
        std::fs::copy(from, folder.path().join(name)).expect("copied");
    }
    std::fs::create_dir(folder.path().join("hangs")).expect("made");
    for name in ["", "hangs"] {
        std::fs::set_permissions(folder.path().join(name), PermissionsExt::from_mode(0o777)).expect("allowed");
    }
    let project = Project(folder);
    let mut run = project.command("unshare");
    run.args(["--pid", "--fork", "--mount-proc", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    run.args([
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
        "./lockscope",
        "run",
        "--report-dir",
        "hangs",
        "--",
    ]);
    fails(run.args(["./deadlocks", "abba"]), 124, &[DEADLOCK]);
    assert_eq!(project.reports("hangs"), 1);
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
    assert!(lockscope().arg("--version").status().expect("runs").success());
}

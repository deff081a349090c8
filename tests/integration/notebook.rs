//! The Python package as notebooks, programs and CI use it: `lockscope.show`, `%lockscope`, `lockscope.expect` as a decorator, and what
//! GitHub Actions shows of a test that was ended while the suite goes on.
//!
//! The package is imported from its source, with the program that was built for these tests.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::testdata;
use crate::harness::{Target, own_program};
use crate::python::pythons;

/// Run a program of Python with the package.
fn python(program: &str, arguments: &[&str]) -> Option<Output> {
    // The package needs 3.8.
    let is_new = |version: &String| {
        version.split('.').nth(1).and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| minor >= 8)
    };
    let mut all = pythons().into_iter().filter(|(version, python)| is_new(version) && python.root().is_none());
    let (_, python) = all.next_back()?;
    let mut command: Command = python.command();
    command.args(["-c", program]).args(arguments);
    Some(with_package(&mut command).output().expect("it runs"))
}

/// Python finds the package's source and the program.
fn with_package(command: &mut Command) -> &mut Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/ship/pypi/python");
    let binary = Path::new(own_program()).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    command.env("PYTHONPATH", source).env("PATH", path).env_remove("LOCKSCOPE")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const NOTEBOOK: &str = r#"
import os, sys
import lockscope
# The import of the package takes in neither of these.
assert "lockscope._notebook" not in sys.modules and "subprocess" not in sys.modules
shown = lockscope.show(int(sys.argv[1]))
assert repr(shown).startswith("deadlock: "), repr(shown)
cell = shown._repr_html_()
assert cell.startswith("<iframe sandbox srcdoc=") and "lock-order-cycle" in cell and "<script" not in cell

class Notebook:
    def register_magic_function(self, function, kind, name):
        self.magic = {name: (function, kind)}

notebook = Notebook()
lockscope.load_ipython_extension(notebook)
function, kind = notebook.magic["lockscope"]
assert kind == "line"
assert repr(function(sys.argv[1])).startswith("deadlock: ")
# Without a process it is the kernel itself, which this is.
own = repr(function(""))
assert own.startswith(("blocked: ", "running: ")), own
assert not any(name.split(".")[0] in ("IPython", "ipykernel") for name in sys.modules)
try:
    lockscope.show(2000000000)
except lockscope.LockscopeError as error:
    print("refused:", error)
"#;

#[test]
fn a_notebook_shows_a_report_in_its_cell() {
    let python_3 = Command::new("python3").arg("-V").output().is_ok_and(|output| output.status.success());
    if !python_3 {
        return crate::harness::skipped!("no python3");
    }
    let target = Target::start(Command::new("python3").arg(testdata("orders/service.py"))).settle(3);
    let Some(output) = python(NOTEBOOK, &[&target.pid().to_string()]) else { return };
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("refused: error: there is no process 2000000000"), "{}", said(&output));
}

const OWN_LOOP: &str = r#"
import asyncio, os
import lockscope

async def cell():
    report = lockscope.attach(os.getpid())
    codes = [finding.code for finding in report.findings]
    assert "event-loop-blocked" not in codes, codes
    (main,) = [wait for wait in report.waits if wait.tid == os.getpid()][:1]
    (thing,) = [one for one in report.resources if one.id == main.resource]
    assert thing.label == "this very report", thing.label

async def main():
    other = asyncio.create_task(asyncio.sleep(100))
    await asyncio.create_task(cell())
    other.cancel()

asyncio.run(main())
"#;

#[test]
fn a_kernel_that_looks_at_itself_waits_for_the_report_and_is_not_blocked() {
    let Some(output) = python(OWN_LOOP, &[]) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

const DECORATED: &str = r#"
import asyncio, threading, time
import lockscope

@lockscope.expect(seconds=0.5)
def slow(seconds):
    "What it does."
    threading.Event().wait(seconds)
    return seconds

@lockscope.expect(seconds=60, name="quick work")
async def quick(value):
    await asyncio.sleep(0)
    return value

assert slow.__name__ == "slow" and slow.__doc__ == "What it does."
assert asyncio.iscoroutinefunction(quick)
assert slow(0.01) == 0.01
assert asyncio.run(quick(7)) == 7
# Ends after the report of it.
assert slow(20.0) == 20.0
"#;

#[test]
fn each_call_of_a_decorated_function_has_its_time() {
    let Some(output) = python(DECORATED, &[]) else { return };
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("slow() at <string>:5") && text.contains("has run for longer than its time limit"), "{text}");
    assert_eq!(text.matches("has run for longer").count(), 1, "{text}");
    assert!(!text.contains("quick work"), "{text}");
}

const SUITE: &str = "import signal, threading

signal.alarm(120)
ledger, journal, both = threading.Lock(), threading.Lock(), threading.Barrier(2)


def other():
    with journal:
        both.wait()
        with ledger:
            pass


def test_hangs():
    threading.Thread(target=other, name='reader', daemon=True).start()
    with ledger:
        both.wait()
        with journal:
            pass


def test_last():
    pass
";

#[test]
fn github_shows_a_hang_also_when_the_suite_goes_on() {
    let Some(tools) = std::env::var_os("LOCKSCOPE_TEST_TOOLS") else {
        return crate::harness::skipped!("LOCKSCOPE_TEST_TOOLS is not set");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let summary = folder.path().join("summary.md");
    std::fs::write(folder.path().join("test_locks.py"), SUITE).expect("written");
    let mut pytest = Command::new(Path::new(&tools).join("python3"));
    pytest.args(["-m", "pytest", "-p", "lockscope.pytest_plugin", "-p", "no:cacheprovider", "--lockscope"]);
    with_package(&mut pytest).current_dir(folder.path());
    pytest.env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", folder.path()).env("GITHUB_STEP_SUMMARY", &summary);
    let output = pytest.output().expect("it runs");
    let text = said(&output);
    assert!(text.contains("1 failed, 1 passed"), "{text}");
    let command = text.lines().find(|line| line.starts_with("::error ")).unwrap_or_else(|| panic!("{text}"));
    assert!(command.starts_with("::error file=test_locks.py,line=") && command.contains("test_hangs"), "{command}");
    let summary = std::fs::read_to_string(summary).expect("written");
    assert!(summary.contains("### lockscope: deadlock") && summary.matches("### lockscope").count() == 1, "{summary}");
}

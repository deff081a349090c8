//! Advice is in the language of who takes part: programs of each, and what their reports must and must not tell.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Look, Target, attach, compile, core, testdata};
use crate::python_locks;

/// The advice of the first finding.
fn help(look: &Look) -> String {
    let help = look.json["findings"][0]["help"].as_array().expect("a list");
    help.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

/// `fits` is told; of the others' words, which each stand in advice on the same finding, none is.
fn check(program: &str, told: &str, fits: &str, others: &[&str]) {
    assert!(told.contains(fits), "{program}: `{fits}` is not in\n{told}");
    for other in others {
        assert!(!told.contains(other), "{program}: `{other}` is in\n{told}");
    }
}

#[test]
fn c_is_told_of_c() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("abba")).settle(3);
    check(
        "deadlocks.c",
        &help(&attach(&target.pids, &[])),
        "std::scoped_lock",
        &["ExitStack", "asyncio", "`try_lock`"],
    );
}

#[test]
fn cpp_is_told_of_cpp() {
    let program = compile("native/initialisers.cpp", "initialisers-of-advice", &["-O2", "-lstdc++"]);
    let target = Target::start(&mut Command::new(program)).settle(3);
    check("initialisers.cpp", &help(&attach(&target.pids, &[])), "std::call_once", &["PyOnceLock", "py::"]);
}

#[test]
fn rust_is_told_of_rust() {
    // The one that Cargo has built: by its debug information it is a program of Rust, and the package's has none.
    let output = Command::new(env!("CARGO_BIN_EXE_lockscope")).arg("demo").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // Reports are on standard output, titles on standard error: the last report is that of native code.
    let last = text.rsplit("deadlock: ").next().unwrap_or_default();
    let told: Vec<&str> = last.lines().filter(|line| line.starts_with("help: ")).collect();
    check("lockscope demo", &told.join("\n"), "`try_lock`", &["std::scoped_lock", "ExitStack", "asyncio"]);
}

#[test]
fn python_is_told_of_python() {
    let pythons = python_locks::pythons();
    let python = pythons.values().find(|python| python.root().is_none()).expect("a Python of this machine");
    let (_folder, target, _) = python_locks::start(python, "lock_order");
    check(
        "threads of Python",
        &help(&attach(&target.pids, &[])),
        "contextlib.ExitStack",
        &["std::", "asyncio", "`try_lock`"],
    );
    let (_folder, target, _) = python_locks::start(python, "order_of_tasks");
    let told = help(&attach(&target.pids, &[]));
    check("tasks of asyncio", &told, "asyncio.Lock", &["std::", "ExitStack", "`try_lock`"]);
}

#[test]
fn a_call_of_cuda_by_ctypes_is_told_of_ctypes() {
    let look = core(&[testdata("gpu/endless-kernel-with-gil.snapshot.zst")], &[]);
    let others = ["py::gil_scoped_release", "Py_BEGIN_ALLOW_THREADS", "nogil", "py.detach"];
    check("endless-kernel-with-gil", &help(&look), "with ctypes use CDLL", &others);
}

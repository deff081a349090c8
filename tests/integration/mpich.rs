//! Jobs of MPICH, of whose ranks the call is known that they are in, and not whom they wait for there.
//!
//! LOCKSCOPE_TEST_TOOLS is the folder that scripts/check/test-tools has filled: it has MPICH's mpicc and mpirun.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Target, lockscope, skipped, testdata, wait_until};

/// The program and its launcher; `None` without MPICH.
fn program(folder: &std::path::Path) -> Option<(PathBuf, PathBuf)> {
    let tools = PathBuf::from(std::env::var_os("LOCKSCOPE_TEST_TOOLS")?);
    let built = folder.join("mpi");
    let mut compiler = Command::new(tools.join("mpicc"));
    compiler.args(["-g", "-O1", "-pthread", "-o"]).arg(&built).arg(testdata("native/mpi.c"));
    compiler.status().is_ok_and(|status| status.success()).then(|| (built, tools.join("mpirun")))
}

fn start(program: &PathBuf, mpirun: &PathBuf, scenario: &str) -> Target {
    Target::start(Command::new(mpirun).args(["-n", "3"]).arg(program).arg(scenario))
}

fn job(target: &Target) -> (Option<i32>, Value) {
    let pid = target.pid().to_string();
    let output = lockscope().args(["job", "--pid", &pid, "--format", "json"]).output().expect("lockscope runs");
    (output.status.code(), serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn who_is_late_for_a_barrier_is_told_and_what_it_waits_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((program, mpirun)) = program(folder.path()) else { return skipped!("no MPICH: mpicc and mpirun") };
    let target = start(&program, &mpirun, "receive");
    let mut last = (None, Value::Null);
    wait_until("both receive", || {
        last = job(&target);
        let summary = last.1["summary"].as_str().unwrap_or_default();
        summary.contains("1 rank waits for rank 0 (")
            && summary.matches("which waits for MPI_Recv with other ranks at mpi.c:").count() == 2
            && summary.contains("rank 2 in barrier")
    });
    assert_eq!((last.0, &last.1["verdict"]), (Some(0), &"blocked".into()), "{}", last.1["summary"]);
    let gaps = last.1["gaps"].to_string();
    assert!(gaps.contains("for whom ranks 0-1 wait") && gaps.contains("a cycle through it is not found"), "{gaps}");
}

#[test]
fn a_token_that_goes_round_is_in_no_cycle() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((program, mpirun)) = program(folder.path()) else { return skipped!("no MPICH: mpicc and mpirun") };
    for scenario in ["token", "large"] {
        let target = start(&program, &mpirun, scenario);
        for round in 0..5 {
            let (code, report) = job(&target);
            assert_eq!(code, Some(0), "{scenario}, look {round}: {}", report["summary"]);
            assert_eq!(report["cycles"], Value::Array(Vec::new()), "{scenario}, look {round}: {}", report["summary"]);
        }
    }
}

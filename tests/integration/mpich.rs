//! Jobs of MPICH, in which nothing of the library's own says whether ranks stood still: the processor does.
//!
//! LOCKSCOPE_TEST_TOOLS is the folder that scripts/check/test-tools has filled: it has MPICH's mpicc and mpirun.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Target, lockscope, own_program, skipped, testdata, wait_until};

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

/// Look until the verdict is this one and the summary has all of this, and give the report.
fn until(target: &Target, verdict: &str, parts: &[&str]) -> Value {
    let mut last = (None, Value::Null);
    let mut is_counted = true;
    wait_until(&parts.join(", "), || {
        last = job(target);
        // In some containers.
        is_counted = !last.1["gaps"].to_string().contains("the kernel does not count returns from calls");
        let has_all = parts.iter().all(|part| last.1["summary"].as_str().unwrap_or_default().contains(part));
        has_all && last.1["verdict"] == if is_counted { verdict } else { "blocked" }
    });
    if !is_counted {
        skipped!("proofs of MPICH's cycles: the kernel does not count returns from calls here");
    }
    assert_eq!(last.0, Some(i32::from(is_counted)), "{}", last.1["summary"]);
    let cycles = last.1["cycles"].as_array().map(Vec::len);
    assert_eq!(cycles, Some(usize::from(is_counted)), "{}", last.1["summary"]);
    last.1
}

#[test]
fn who_waits_for_whom_is_told_by_the_arguments_of_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((program, mpirun)) = program(folder.path()) else { return skipped!("no MPICH: mpicc and mpirun") };
    let target = start(&program, &mpirun, "receive");
    let receives =
        ["waits for MPI_Recv from rank 1 (tag 40) at mpi.c:", "waits for MPI_Recv from rank 0 (tag 41) at mpi.c:"];
    let report = until(&target, "deadlock", &[receives[0], receives[1], "rank 2 in barrier"]);
    let request = report["resources"].to_string();
    assert!(request.contains("MPI_COMM_WORLD") && request.contains("0x"), "{request}");
    drop(target);
    // Whom a send goes to the arguments alone say.
    let target = start(&program, &mpirun, "sends");
    let sends = ["waits for MPI_Ssend to rank 1 (tag 7)", "waits for MPI_Ssend to rank 0 (tag 7)"];
    until(&target, "suspected-deadlock", &sends);
    drop(target);
    // What another thread of theirs does later may end it.
    let target = start(&program, &mpirun, "listen");
    until(&target, "suspected-deadlock", &receives);
    drop(target);
    let target = start(&program, &mpirun, "wait");
    let of = ["waits for MPI_Wait of the communicator with context ", "with rank 1 (tag 40)", "with rank 0 (tag 41)"];
    until(&target, "deadlock", &[of[0], of[1], of[2], "rank 2 in barrier"]);
    drop(target);
    let target = start(&program, &mpirun, "waitall");
    // Their tags differ.
    until(&target, "deadlock", &["waits for MPI_Waitall of MPI_COMM_WORLD with ranks 1 and 2 at mpi.c:"]);
    drop(target);
    let target = start(&program, &mpirun, "exchange");
    let of = |rank: u32| format!("waits for MPI_Sendrecv of MPI_COMM_WORLD with rank {rank} (tag 71) at mpi.c:");
    until(&target, "deadlock", &[&of(0), &of(1), &of(2)]);
    drop(target);
    // A persistent receive, and a barrier of two of three.
    let target = start(&program, &mpirun, "small");
    let parts = [
        "waits for MPI_Barrier of the communicator with context ",
        "with rank 1 at mpi.c:",
        "waits for MPI_Wait of MPI_COMM_WORLD with rank 0 (tag 40) at mpi.c:",
    ];
    wait_until("the two wait for each other", || {
        let (_, report) = job(&target);
        parts.iter().all(|part| report["summary"].as_str().unwrap_or_default().contains(part))
    });
    drop(target);
    let target = start(&program, &mpirun, "mismatch");
    let orders = "rank 0 is in barrier of MPI_COMM_WORLD, rank 1 is in bcast of the communicator with context ";
    let groups = "Two groups of ranks are used in different orders: ";
    until(&target, "suspected-deadlock", &[groups, orders, "with rank 0 at mpi.c:"]);
}

/// Main threads that receive from each other, while other threads sleep before they send.
#[test]
fn a_thread_that_sleeps_may_send_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((program, mpirun)) = program(folder.path()) else { return skipped!("no MPICH: mpicc and mpirun") };
    let target = start(&program, &mpirun, "timer");
    for round in 0..3 {
        let (code, report) = job(&target);
        assert_eq!(
            (code, &report["cycles"]),
            (Some(0), &Value::Array(Vec::new())),
            "look {round}: {}",
            report["summary"]
        );
    }
}

/// Two rounds that somebody else orders are counted by nobody.
#[test]
fn rounds_that_are_taken_one_by_one_prove_nothing_of_calls_that_look_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((program, mpirun)) = program(folder.path()) else { return skipped!("no MPICH: mpicc and mpirun") };
    let target = start(&program, &mpirun, "receive");
    until(&target, "deadlock", &["waits for MPI_Recv"]);
    let files = ["1", "2"].map(|round| folder.path().join(format!("{round}.digest.json")));
    for (round, file) in ["1", "2"].iter().zip(&files) {
        let pid = target.pid().to_string();
        let mut command = lockscope();
        command.args(["job", "--quiet", "--pid", &pid, "--round", round, "-o"]).arg(file);
        if *round == "2" {
            command.arg("--after").arg(&files[0]);
        }
        assert!(command.status().expect("it runs").success());
    }
    let output = lockscope().args(["merge", "--format", "json"]).args(&files).output().expect("it runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["verdict"], "blocked", "{}", report["summary"]);
    let unproven = "Not confirmed, since nothing that could be read says whether these waits stood still";
    assert!(report["summary"].as_str().unwrap_or_default().starts_with(unproven), "{}", report["summary"]);
}

#[test]
fn a_token_that_goes_round_is_in_no_cycle() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((program, mpirun)) = program(folder.path()) else { return skipped!("no MPICH: mpicc and mpirun") };
    for scenario in ["token", "large", "shift"] {
        let target = start(&program, &mpirun, scenario);
        for round in 0..5 {
            let (code, report) = job(&target);
            assert_eq!(code, Some(0), "{scenario}, look {round}: {}", report["summary"]);
            assert_eq!(report["cycles"], Value::Array(Vec::new()), "{scenario}, look {round}: {}", report["summary"]);
        }
    }
}

/// Those before the ranks look at other times than each other, and count all the same.
#[test]
fn whoever_asks_those_before_the_ranks_gets_the_proof_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((program, mpirun)) = program(folder.path()) else { return skipped!("no MPICH: mpicc and mpirun") };
    let start = |scenario: &str| {
        let asked = folder.path().join(scenario);
        let mut command = Command::new(&mpirun);
        command.args(["-n", "3", own_program(), "run", "--report-dir"]).arg(&asked).arg("--");
        (Target::start(command.arg(&program).arg(scenario)), asked)
    };
    let ask = |asked: &std::path::Path| -> Value {
        let output = lockscope().args(["job", "--format", "json", "--ask"]).arg(asked).output().expect("it runs");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    let (_target, asked) = start("receive");
    let mut is_counted = true;
    wait_until("it is a deadlock", || {
        let report = ask(&asked);
        is_counted = !report["gaps"].to_string().contains("the kernel does not count returns from calls");
        let is_complete = report["job"]["reported"] == "0-2" && report["job"]["two_rounds"] == true;
        is_complete && report["verdict"] == if is_counted { "deadlock" } else { "blocked" }
    });
    if !is_counted {
        return skipped!("proofs of MPICH's cycles: the kernel does not count returns from calls here");
    }
    for scenario in ["token", "shift"] {
        let (_target, asked) = start(scenario);
        for round in 0..3 {
            let report = ask(&asked);
            assert_eq!(report["cycles"], Value::Array(Vec::new()), "{scenario}, look {round}: {}", report["summary"]);
        }
    }
}

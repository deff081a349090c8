//! Clusters of Dask on loopback: tasks that hang between workers, and healthy ones that look like it.
//!
//! Needs distributed, which scripts/check/dask installs. The truth of each case stands in testdata/python/dask_cluster.py.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Target, lockscope, own_program, skipped, testdata, wait_until};

/// The Python that has Dask.
fn python() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("LOCKSCOPE_DASK")?).join("python");
    python.exists().then_some(python)
}

/// A cluster in this case.
fn start(python: &PathBuf, case: &str, more: &[&str]) -> Target {
    let program = PathBuf::from(own_program());
    let folder = program.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/ship/pypi/python");
    let mut command = Command::new(python);
    command.arg(testdata("python/dask_cluster.py")).arg(case).args(more);
    command.env("PATH", format!("{folder}:{path}")).env("PYTHONPATH", package).env("PYTHONDONTWRITEBYTECODE", "1");
    Target::start(&mut command)
}

/// The verdict over the cluster of a target, or over one process of it.
fn job(target: &Target, more: &[&str]) -> (i32, Value) {
    let pid = target.pid().to_string();
    let command = ["job", "--engine", "dask", "--pid", &pid, "--format", "json"];
    let output = lockscope().args(command).args(more).output().expect("lockscope runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (output.status.code().expect("a status"), json)
}

fn summary(report: &Value) -> &str {
    report["summary"].as_str().unwrap_or_default()
}

/// Look until the verdict is this one, and give the report.
fn until(target: &Target, verdict: &str) -> Value {
    let mut last = Value::Null;
    wait_until(verdict, || {
        last = job(target, &[]).1;
        last["verdict"] == verdict
    });
    last
}

#[test]
fn tasks_that_wait_for_each_other_are_named_with_their_locks() {
    let Some(python) = python() else { return skipped!("no Python with distributed (LOCKSCOPE_DASK)") };
    let cases = [
        ("locks", "deadlock", "lock-order-cycle", ["held by task `both-0`", "held by task `both-1`"]),
        ("result", "deadlock", "rank-cycle", ["distributed.Lock `table`", "the result of task `wants-table`"]),
        ("inside", "deadlock", "lock-order-cycle", ["runs task `inside-0`", "for the result of task `after`"]),
        ("starved", "suspected-deadlock", "executor-self-wait", ["All 4 threads of worker", "`setter-0`, `setter-1`"]),
    ];
    for (case, verdict, finding, words) in cases {
        let target = start(&python, case, &[]);
        let report = until(&target, verdict);
        assert_eq!(report["findings"][0]["code"], finding, "{case}");
        assert_eq!(report["job"]["two_rounds"], true, "{case}");
        for word in words {
            assert!(summary(&report).contains(word), "{case}: no {word} in {}", summary(&report));
        }
    }
}

#[test]
fn locks_of_a_worker_are_a_deadlock_at_each_look() {
    const LOOKS: usize = 12;
    let Some(python) = python() else { return skipped!("no Python with distributed (LOCKSCOPE_DASK)") };
    let target = start(&python, "inside", &[]);
    // The loop of the worker beside them goes on all the time, and what is read of it changes.
    for look in 0..LOOKS {
        let report = crate::harness::attach(&target.pids[1..2], &[]);
        assert_eq!(report.verdict(), "deadlock", "look {look}: {}\n{}", report.text, report.json["gaps"]);
    }
}

#[test]
fn a_cluster_beside_it_is_not_touched() {
    let Some(python) = python() else { return skipped!("no Python with distributed (LOCKSCOPE_DASK)") };
    let (one, other) = (start(&python, "locks", &[]), start(&python, "slow", &[]));
    // Whoever has a tracer that stays cannot be looked at: it would be said if somebody tried.
    let worker = other.pids[1];
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-p", &worker.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut gdb = gdb.spawn().expect("gdb runs");
    let tracer = || crate::harness::status_field(worker, worker, "TracerPid");
    wait_until("gdb traces it", || tracer().is_some_and(|tracer| tracer.trim() == gdb.id().to_string()));
    let report = until(&one, "deadlock");
    gdb.kill().expect("ended");
    gdb.wait().expect("ended");
    assert!(!report["gaps"].to_string().contains(&format!("process {worker}")), "{}", report["gaps"]);
    assert_eq!(report["job"]["reported"], "0, 1, client");
}

#[test]
fn files_of_single_processes_make_the_same_verdict_and_one_round_proves_nothing() {
    let Some(python) = python() else { return skipped!("no Python with distributed (LOCKSCOPE_DASK)") };
    let target = start(&python, "locks", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let look = |round: &str| {
        for pid in &target.pids {
            let mut command = lockscope();
            command.args([
                "job",
                "--engine",
                "dask",
                "--alone",
                "--quiet",
                "--pid",
                &pid.to_string(),
                "--round",
                round,
            ]);
            assert!(command.arg("-o").arg(folder.path()).status().expect("lockscope runs").success());
        }
    };
    let merge = || {
        let output =
            lockscope().arg("merge").arg(folder.path()).args(["--format", "json"]).output().expect("lockscope runs");
        serde_json::from_slice::<Value>(&output.stdout).expect("valid JSON")
    };
    look("1");
    let one = merge();
    assert_ne!(one["verdict"], "deadlock", "{}", summary(&one));
    wait_until("all of it is seen to stand still", || {
        look("2");
        merge()["verdict"] == "deadlock"
    });
    let two = merge();
    assert_eq!(two["cycles"][0]["edges"].as_array().map(Vec::len), Some(2));
    let cluster = &two["processes"][0]["cluster"];
    assert_eq!((&cluster["engine"], &cluster["roles"][0]["role"]), (&Value::from("dask"), &Value::from("worker")));
}

#[test]
fn a_cluster_is_diagnosed_through_its_nannies() {
    let Some(python) = python() else { return skipped!("no Python with distributed (LOCKSCOPE_DASK)") };
    for (case, words) in [
        ("locks", ["locks of the cluster are taken in different orders", "is held by task `both-"]),
        // Its worker answers nobody.
        ("gil", ["for the result of task `after`", "has the GIL"]),
    ] {
        let target = start(&python, case, &["diagnose"]);
        let said: Value = serde_json::from_str(target.said.last().expect("a line")).expect("valid JSON");
        let text = said["text"].as_str().expect("a text").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said["not_seen"].as_object().map(serde_json::Map::len), Some(0), "{case}: {text}");
        for word in words {
            assert!(text.contains(word), "{case}: no {word} in {text}");
        }
    }
}

#[test]
fn a_nanny_watches_its_worker_and_tells_the_cluster() {
    let Some(python) = python() else { return skipped!("no Python with distributed (LOCKSCOPE_DASK)") };
    let folder = tempfile::tempdir().expect("a folder");
    let target = start(&python, "inside", &["watch", folder.path().to_str().expect("UTF-8")]);
    let told: Value = serde_json::from_str(target.said.last().expect("a line")).expect("valid JSON");
    let text = told["text"].as_str().expect("a text");
    assert!(text.contains("are taken in different orders"), "{text}");
    let pid = told["pid"].as_i64().expect("a process");
    assert!(target.pids[1..].iter().any(|worker| i64::from(*worker) == pid), "{told}");
    let written = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // An early report, from before it was sure, lies beside it.
    let is_hang = |path: &PathBuf| name(path).starts_with("hang-") && name(path).ends_with(".json");
    let written: Vec<PathBuf> = written.filter(is_hang).collect();
    let [report] = written.as_slice() else {
        panic!("{written:?}: the other worker hangs by itself as little as before")
    };
    let report: Value = serde_json::from_slice(&std::fs::read(report).expect("a file")).expect("valid JSON");
    assert_eq!((&report["verdict"], &report["processes"][0]["pid"]), (&Value::from("deadlock"), &Value::from(pid)));
}

#[test]
fn healthy_clusters_are_in_no_cycle() {
    let Some(python) = python() else { return skipped!("no Python with distributed (LOCKSCOPE_DASK)") };
    for case in ["ordered", "gated", "slow", "transfer", "event"] {
        let target = start(&python, case, &[]);
        for round in 0..3 {
            let (code, report) = job(&target, &[]);
            assert_eq!(code, 0, "{case}, look {round}: {}", summary(&report));
        }
    }
}

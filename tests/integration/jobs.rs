//! Jobs of MPI: ranks that hang between each other, and healthy ones that look like it, each under a real mpirun.
//!
//! Needs Open MPI (mpicc, mpirun), which scripts/test installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Target, lockscope, own_program, signal_process, skipped, status_field, testdata, wait_until};

/// The program, compiled; `None` without Open MPI.
fn program() -> Option<PathBuf> {
    let wrapper = Command::new("mpicc").arg("--showme:version").output().ok()?;
    let launcher = Command::new("mpirun").arg("--version").output().ok()?;
    if !wrapper.status.success() || !String::from_utf8_lossy(&launcher.stdout).contains("Open MPI") {
        return None;
    }
    let folder: PathBuf =
        std::env::var_os("LOCKSCOPE_BUILT").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let (built, fresh) = (folder.join("mpi"), tempfile::NamedTempFile::new_in(&folder).ok()?.into_temp_path());
    let status = Command::new("mpicc")
        .args(["-g", "-O1", "-Wall", "-pthread", "-o"])
        .arg(&fresh)
        .arg(testdata("native/mpi.c"))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "mpi.c does not compile");
    fresh.persist(&built).expect("renamed");
    Some(built)
}

/// Three ranks in this scenario.
fn start(program: &PathBuf, scenario: &str) -> Target {
    start_with(program, scenario, None)
}

/// The same, with a file whose lock is at stake.
fn start_with(program: &PathBuf, scenario: &str, file: Option<&Path>) -> Target {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "-n", "3"]).arg(program).arg(scenario).args(file);
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    mpirun.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    Target::start(&mut mpirun)
}

/// The verdict over the job of a target.
fn job(target: &Target) -> (i32, Value) {
    let pid = target.pid().to_string();
    let output = lockscope().args(["job", "--pid", &pid, "--format", "json"]).output().expect("lockscope runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (output.status.code().expect("a status"), json)
}

/// Look until the verdict is this one, and give the report.
fn until(target: &Target, verdict: &str) -> Value {
    let mut last = Value::Null;
    wait_until(verdict, || {
        last = job(target).1;
        last["verdict"] == verdict
    });
    last
}

fn cycle(report: &Value) -> Vec<&str> {
    let edges = report["cycles"][0]["edges"].as_array().map(Vec::as_slice).unwrap_or_default();
    edges.iter().filter_map(|edge| edge["process"].as_str()).collect()
}

#[test]
fn ranks_that_wait_for_each_other_are_named() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    for (scenario, members) in [
        ("receive", 2),
        ("probe", 2),
        ("small", 2),
        ("sends", 2),
        ("wait", 2),
        ("waitall", 2),
        ("exchange", 3),
        ("mismatch", 3),
    ] {
        let target = start(&program, scenario);
        let report = until(&target, "deadlock");
        assert_eq!(cycle(&report).len(), members, "{scenario}: {}", report["summary"]);
        assert_eq!(report["findings"][0]["code"], "rank-cycle", "{scenario}");
        assert_eq!(report["job"]["reported"], "0-2", "{scenario}");
        assert_eq!(report["job"]["two_rounds"], true, "{scenario}");
    }
}

/// Other threads of theirs, in whatever language, may do what is waited for.
#[test]
fn ranks_with_other_threads_of_the_program_are_suspected_at_most() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    let target = start(&program, "listen");
    let report = until(&target, "suspected-deadlock");
    assert!(report["gaps"].to_string().contains("a member has other threads of the program"), "{}", report["gaps"]);
}

/// One graph for the job: locks, files and pipes of ranks and of their helpers, and messages between ranks.
#[test]
fn a_cycle_is_found_through_helpers_threads_files_and_pipes() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lock");
    let receives = "waits for MPI_Recv from rank 1 (tag 40) at mpi.c:";
    for (scenario, members, parts) in [
        ("file", 2, &[receives, "waits for flock on ", "held by rank 0."][..]),
        ("helper", 2, &[receives, "waits for mutex ", "held by process mpi ", "which waits for flock on "]),
        ("thread", 2, &[receives, "waits for mutex ", "held by thread ", "which waits for flock on "]),
        (
            "child",
            1,
            &[
                "waits for mutex ",
                "held by process mpi ",
                "which waits for data in ",
                "whose only other end has rank 1.",
            ],
        ),
    ] {
        let target = start_with(&program, scenario, Some(&file));
        let report = until(&target, "suspected-deadlock");
        let summary = report["summary"].as_str().unwrap_or_default();
        assert_eq!(cycle(&report).len(), members, "{scenario}: {summary}");
        for part in parts {
            assert!(summary.contains(part), "{scenario}: {part} in {summary}");
        }
        drop(target);
        let late = format!("{scenario}-late");
        let target = start_with(&program, &late, Some(&file));
        for round in 0..3 {
            let (code, report) = job(&target);
            assert_eq!(
                (code, &report["cycles"]),
                (0, &Value::Array(Vec::new())),
                "{late}, look {round}: {}",
                report["summary"]
            );
        }
    }
}

/// Main threads that receive from each other, while other threads sleep before they send.
#[test]
fn a_thread_that_sleeps_may_send_later() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    let target = start(&program, "timer");
    for round in 0..3 {
        let (code, report) = job(&target);
        assert_eq!((code, &report["cycles"]), (0, &Value::Array(Vec::new())), "look {round}: {}", report["summary"]);
    }
}

#[test]
fn a_deadlock_inside_a_rank_is_the_cause_of_the_others_waiting() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    let target = start(&program, "lock");
    let report = until(&target, "deadlock");
    let summary = report["summary"].as_str().expect("a sentence");
    assert!(summary.starts_with("rank 1 (") && summary.contains("2 more ranks wait because of this"), "{summary}");
    assert_eq!(report["findings"][0]["code"], "self-deadlock");
}

#[test]
fn a_rank_that_a_debugger_has_is_left_out() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    let target = start(&program, "lock");
    until(&target, "deadlock");
    let pids = target.pids.clone();
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-p", &pids[1].to_string()]);
    let mut gdb = gdb.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("gdb runs");
    let traced = || status_field(pids[1], pids[1], "TracerPid").is_some_and(|pid| pid.trim() == gdb.id().to_string());
    wait_until("gdb traces it", traced);
    let (code, report) = job(&target);
    gdb.kill().expect("ended");
    gdb.wait().expect("ended");
    let summary = &report["summary"];
    assert_eq!((code, &report["verdict"]), (0, &"blocked".into()), "{summary}");
    assert!(summary.to_string().contains("2 ranks wait for rank 1, of which there is no report."), "{summary}");
    let job = &report["job"];
    assert_eq!((&job["reported"], &job["missing"], &job["ended"]), (&"0,2".into(), &"1".into(), &"".into()), "{job}");
    let gaps = report["gaps"].as_array().expect("gaps");
    let gap = gaps.iter().find(|gap| gap["what"] == "rank 1 of 3").expect("a gap of rank 1");
    let why = format!("process {} is already traced by gdb (pid {})", pids[1], gdb.id());
    assert!(gap["why"].to_string().contains(&why), "{gap}");
}

#[test]
fn healthy_jobs_are_in_no_cycle() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    for scenario in ["token", "large", "shift", "reduce", "late"] {
        let target = start(&program, scenario);
        for round in 0..10 {
            let (code, report) = job(&target);
            assert_eq!(code, 0, "{scenario}, look {round}: {}", report["summary"]);
        }
    }
}

#[test]
fn files_of_nodes_merge_in_any_order() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    let target = start(&program, "receive");
    until(&target, "deadlock");
    let folder = tempfile::tempdir().expect("a folder");
    let digests = folder.path().join("hang");
    let pid = target.pid().to_string();
    let status =
        lockscope().args(["job", "--quiet", "--pid", &pid, "-o"]).arg(&digests).status().expect("lockscope runs");
    assert!(status.success());
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&digests).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    let merge = |files: &[PathBuf]| {
        let output = lockscope().arg("merge").args(files).args(["--format", "json"]).output().expect("lockscope runs");
        (output.status.code(), output.stdout)
    };
    let whole = merge(&files);
    assert_eq!(whole.0, Some(1));
    let backward: Vec<PathBuf> = files.iter().rev().chain(&files).cloned().collect();
    assert_eq!(merge(&backward), whole);
    assert_eq!(merge(std::slice::from_ref(&digests)), whole);
    // One round of the two, and a cut file beside it.
    let (code, report) = merge(&files[..1]);
    assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&report));
    let bytes = std::fs::read(&files[1]).expect("readable");
    std::fs::write(&files[1], &bytes[..bytes.len() / 2]).expect("written");
    let (_, report) = merge(&files);
    let text = String::from_utf8_lossy(&report);
    assert!(text.contains("is damaged: it is cut"), "{text}");
}

/// The two lines of the manual's table for ranks that were prepared before.
fn lines_of_the_manual() -> [String; 2] {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/jobs.md")).expect("the page");
    let row = page.lines().find(|line| line.starts_with("| MPI and others, prepared before |")).expect("a row for MPI");
    let lines: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
    [lines[0].to_owned(), lines[1].to_owned()]
}

#[test]
fn the_lines_of_the_manual_tell_of_a_job_of_mpi() {
    let Some(program) = program() else { return skipped!("no Open MPI: mpicc and mpirun") };
    let [line, later] = lines_of_the_manual();
    assert_eq!(line, "mpirun -n 64 lockscope run --report-dir hang -- ./prog");
    assert_eq!(later, "lockscope job --ask hang");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(&program, folder.path().join("prog")).expect("copied");
    let own = PathBuf::from(own_program());
    let before = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(own.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&before)));
    let path = path.expect("a path");
    let words: Vec<String> = line.replace("-n 64", "-n 3").split(' ').map(str::to_owned).collect();
    let mut mpirun = Command::new(&words[0]);
    mpirun.args(&words[1..]).arg("receive").current_dir(folder.path()).env("PATH", &path).env_remove("LOCKSCOPE");
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    mpirun.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    let mut target = Target::start(&mut mpirun);
    let words: Vec<&str> = later.split(' ').skip(1).collect();
    let mut last = Value::Null;
    wait_until("deadlock", || {
        let output = lockscope().args(&words).args(["--format", "json"]).current_dir(folder.path()).output();
        last = serde_json::from_slice(&output.expect("lockscope runs").stdout).unwrap_or_default();
        last["verdict"] == "deadlock" && last["job"]["reported"] == "0-2" && last["job"]["two_rounds"] == true
    });
    assert_eq!((cycle(&last).len(), &last["findings"][0]["code"]), (2, &"rank-cycle".into()), "{}", last["summary"]);
    // mpirun ends the ranks, and what stands before them.
    signal_process(target.child_id().cast_signed(), "TERM");
    target.status();
}

/// What PyTorch wrote of two jobs, merged as a user would.
#[test]
fn files_of_pytorch_name_the_rank_that_is_missing() {
    let merged = |job: &str| {
        let output = lockscope().arg("merge").arg(testdata(&format!("jobs/{job}"))).output().expect("lockscope runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = merged("skipped");
    let said = "2 ranks wait for rank 1, which was not looked at and has entered nothing of default_pg after #3 at fr.py:14 step, by \
                PyTorch's Flight Recorder. They wait: ranks 0,2 in all_reduce #4 at fr.py:14 step.";
    assert!(text.starts_with("blocked: a rank does not take part") && text.contains(said), "{text}");
    let text = merged("other");
    assert!(text.contains("Rank 1 is in broadcast #4, where ranks 0,2 are in all_reduce #4 of default_pg"), "{text}");
}

/// Two ranks on real GPUs: nothing of a collective on a GPU is in their memory, and the witnesses tell.
#[test]
fn witnesses_say_what_ranks_on_gpus_wait_for() {
    for (scenario, verdict, said) in [
        ("missing-rank", "blocked", &["1 rank waits for rank 1 (", "entered nothing of default_pg after #1"][..]),
        ("rank-in-deadlock", "deadlock", &["rank 1 (", "1 more rank waits because of this"]),
        ("both-receive", "blocked", &["waits for recv from rank 1", "waits for recv from rank 0", "Not confirmed"]),
        ("two-orders", "blocked", &["1 rank waits for rank 1 (", "entered nothing of group 1 after #1"]),
        ("kernel-before", "blocked", &["All 2 ranks are in all_reduce #2", "nobody is missing"]),
    ] {
        let folder = testdata(&format!("jobs/nccl/{scenario}"));
        let merge = |witness: Option<&str>| {
            let mut files: Vec<_> =
                std::fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
            let is_kept =
                |name: &str| name.ends_with(".digest.json") || witness.is_some_and(|own| name.starts_with(own));
            files.retain(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(is_kept));
            let output = lockscope().arg("merge").args(files).args(["--format", "json"]).output().expect("it runs");
            serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
        };
        let report = merge(Some("nccl_trace_rank_"));
        let summary = report["summary"].as_str().unwrap_or_default();
        assert_eq!(report["verdict"], verdict, "{scenario}: {summary}");
        for words in said {
            assert!(summary.contains(words), "{scenario}: {summary}");
        }
        // Digests alone know nobody to wait for, and ranks that spin until a GPU is done go on no more than others.
        let report = merge(None);
        assert_eq!(report["verdict"], if verdict == "deadlock" { "deadlock" } else { "blocked" }, "{scenario}");
        let together = lockscope().arg("merge").arg(&folder).args(["--format", "json"]).output().expect("it runs");
        let together = String::from_utf8_lossy(&together.stdout);
        // RAS counts operations, and no messages between two.
        let report = merge(Some("ras"));
        let summary = report["summary"].as_str().unwrap_or_default();
        let is_counted = ["missing-rank", "rank-in-deadlock", "two-orders"].contains(&scenario);
        assert_eq!(report.to_string().contains("by NCCL's RAS"), is_counted, "{scenario}: {summary}");
        assert_eq!(together.contains("AllReduce #2"), is_counted, "{scenario}: {together}");
    }
}

/// The same where the digests have PyTorch's recorder from memory and NCCL's RAS, and heartbeats of PyTorch's store go from rank to rank.
#[test]
fn ranks_on_gpus_are_told_by_their_memory_whatever_a_store_sends() {
    for (scenario, said) in [
        ("both-receive", &["Not confirmed", "which is in recv from rank 1", "which is in recv from rank 0"][..]),
        ("two-orders", &["1 rank waits for rank 1 (", "rank 0 in all_reduce #2"]),
    ] {
        let folder = testdata(&format!("jobs/nccl/{scenario}-by-memory"));
        let output = lockscope().arg("merge").arg(folder).args(["--format", "json"]).output().expect("it runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let summary = report["summary"].as_str().unwrap_or_default();
        assert_eq!(report["verdict"], "blocked", "{scenario}: {summary}");
        for words in said {
            assert!(summary.contains(words), "{scenario}: {summary}");
        }
    }
}

/// NCCL waits for other ranks before anything is on a GPU: no witness is needed.
#[test]
fn ranks_that_nccl_has_not_connected_yet_are_told_by_its_functions() {
    let behind = "1 more rank waits because of this: rank 0 in ";
    for (scenario, finding, said) in [
        ("first-collective", "lock-order-cycle", &[behind, "ncclCommInitRankConfig at ranks.py:"][..]),
        ("new-group", "lock-order-cycle", &[behind, "new_group at ranks.py:"]),
        (
            "both-receive-by-sockets",
            "rank-cycle",
            &["waits for recv from rank 1 of default_pg at ranks.py:", "waits for recv from rank 0 of default_pg"],
        ),
    ] {
        let folder = testdata(&format!("jobs/nccl/{scenario}"));
        let output = lockscope().arg("merge").arg(folder).args(["--format", "json"]).output().expect("it runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let summary = report["summary"].as_str().unwrap_or_default();
        assert_eq!((&report["verdict"], &report["findings"][0]["code"]), (&"deadlock".into(), &finding.into()));
        for words in said {
            assert!(summary.contains(words), "{scenario}: {summary}");
        }
    }
}

/// Ranks that no launcher has started: their number and how many there are come from PyTorch's object.
#[test]
fn digests_of_ranks_that_no_variable_names_say_what_hangs() {
    for way in ["spawn", "process", "fork"] {
        let folder = testdata(&format!("jobs/gloo/{way}"));
        let output = lockscope().arg("merge").arg(folder).args(["--format", "json"]).output().expect("lockscope runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let summary = report["summary"].as_str().unwrap_or_default();
        assert_eq!(report["verdict"], "deadlock", "{way}: {summary}");
        let said =
            ["rank 1 (", "Rank 1 has enqueued nothing of default_pg after #3.", "ranks 0,2 in all_reduce #4 at "];
        assert!(said.iter().all(|words| summary.contains(words)), "{way}: {summary}");
        assert_eq!((&report["job"]["engine"], &report["job"]["size"]), (&"torch".into(), &3.into()), "{way}");
        assert_eq!((&report["job"]["reported"], &report["job"]["two_rounds"]), (&"0-2".into(), &true.into()), "{way}");
    }
}

/// Ranks of PyTorch on gloo, as scripts/check/torch-jobs found them: which sentence the merged digests say.
#[test]
fn digests_of_gloo_say_what_hangs() {
    let merge = |scenario: &str| {
        let folder = testdata(&format!("jobs/gloo/{scenario}"));
        let output = lockscope().arg("merge").arg(folder).args(["--format", "json"]).output().expect("lockscope runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (report["verdict"].as_str().unwrap_or_default().to_owned(), report)
    };
    for (scenario, verdict, said) in [
        (
            "lock",
            "deadlock",
            &["rank 3 (", "Rank 3 has enqueued nothing of default_pg after #3.", "ranks 0-2 in all_reduce #4 at "][..],
        ),
        ("skipped", "deadlock", &["Rank 2 is in barrier #4, where ranks 0-1,3 are in all_reduce #4 of default_pg."]),
        ("mismatch", "deadlock", &["Rank 1 is in broadcast #4, where ranks 0,2-3 are in all_reduce #4 of default_pg."]),
        (
            "groups",
            "deadlock",
            &[
                "Two groups of ranks are used in different orders: ranks 0,2 are in all_reduce #1 of group 1, ranks 1,3 are in \
               all_reduce #4 of default_pg.",
            ],
        ),
        (
            "loader",
            "blocked",
            &[
                "3 ranks wait for rank 1 (",
                "has enqueued nothing of default_pg after #5, as it waits for a worker of a PyTorch DataLoader (",
                "__getitem__. They wait: ranks 0,2-3 in all_reduce #6 at ",
            ],
        ),
        ("receive", "deadlock", &["recv from rank 1 (tag 5)", "recv from rank 0 (tag 5)", "ranks 2-3 in barrier #4"]),
        (
            "store",
            "blocked",
            &["3 ranks wait for rank 0 (", "epoch/7/done` of the store", "nothing of default_pg after #3"],
        ),
        ("absent", "blocked", &["3 ranks wait for rank 3 (", "ranks 0-2 in init_process_group"]),
    ] {
        let (found, report) = merge(scenario);
        let summary = report["summary"].as_str().unwrap_or_default();
        assert_eq!(found, verdict, "{scenario}: {summary}");
        for words in said {
            assert!(summary.contains(words), "{scenario}: {summary}");
        }
        assert_eq!(report["job"]["reported"], "0-3", "{scenario}");
    }
}

//! Clusters of Ray that hang, as scripts/check/ray-jobs found them on real ones: which sentence their merged digests say, and that two
//! rounds are needed for it. Ray itself is run by that script before a release.

use serde_json::Value;

use crate::harness::{lockscope, testdata};

/// What `merge` says of files.
fn merged(files: &[std::path::PathBuf]) -> Value {
    let output = lockscope().arg("merge").args(files).args(["--format", "json"]).output().expect("lockscope runs");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn digests_of_ray_say_what_hangs() {
    for (case, verdict, code, said) in [
        (
            "mutual",
            "deadlock",
            "rank-cycle",
            &["runs `Clerk.ask`, which waits at ray_jobs.py:", "for task `Clerk.reply` of actor Clerk", "the driver ("]
                [..],
        ),
        (
            "nodes",
            "deadlock",
            "rank-cycle",
            &[
                "(node1, python3.11 ",
                "(node2, python3.11 ",
                "for task `Clerk.reply` of actor Clerk",
                "the driver (node1",
            ],
        ),
        (
            "starved",
            "deadlock",
            "executor-self-wait",
            &[
                "All 2 threads of actor Office",
                "2 tasks that would have to run for it have no thread: `Office.do`, `Office.do`",
            ],
        ),
        (
            "inside",
            "deadlock",
            "lock-order-cycle",
            &[
                "Actor Producer",
                "holds Lock `second` and waits for Lock `first`",
                "runs task `Producer.produce`",
                "2 more threads wait because of this: task `Consumer.consume` in actor Consumer",
                "the driver (",
            ],
        ),
    ] {
        let report = merged(&[testdata(&format!("jobs/ray/{case}.digest.json"))]);
        let summary = report["summary"].as_str().unwrap_or_default();
        assert_eq!(
            (&report["verdict"], &report["findings"][0]["code"]),
            (&verdict.into(), &code.into()),
            "{case}: {summary}"
        );
        for words in said {
            assert!(summary.contains(words), "{case}: {words}: {summary}");
        }
        assert_eq!((&report["job"]["engine"], &report["job"]["two_rounds"]), (&"ray".into(), &true.into()), "{case}");
        let processes = report["processes"].as_array().expect("processes");
        assert!(processes.iter().all(|one| one["identity"]["job"]["engine"] == "ray"), "{case}");
        assert!(processes.iter().all(|one| one["identity"]["job"]["id"] == "01000000"), "{case}");
    }
}

#[test]
fn one_round_of_ray_is_suspected_at_most() {
    let bytes = std::fs::read(testdata("jobs/ray/mutual.digest.json")).expect("a digest");
    let mut digest: Value = serde_json::from_slice(&bytes).expect("JSON");
    digest["looks"].as_array_mut().expect("looks").retain(|look| look["round"] == 1);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("one.digest.json");
    std::fs::write(&file, serde_json::to_vec(&digest).expect("JSON")).expect("written");
    let report = merged(&[file]);
    assert_eq!(report["verdict"], "suspected-deadlock", "{}", report["summary"]);
    let gaps = report["gaps"].as_array().expect("gaps");
    assert!(gaps.iter().any(|gap| gap["why"].as_str().is_some_and(|why| why.contains("one round only"))), "{gaps:?}");
}

#[test]
fn rays_list_of_tasks_is_a_witness() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = std::fs::read(testdata("jobs/ray/mutual.digest.json")).expect("a digest");
    let mut digest: Value = serde_json::from_slice(&bytes).expect("JSON");
    let tasks = digest["witnesses"][0]["tasks"].as_array().expect("tasks").clone();
    digest.as_object_mut().expect("an object").remove("witnesses");
    let looks = folder.path().join("looks.digest.json");
    std::fs::write(&looks, serde_json::to_vec(&digest).expect("JSON")).expect("written");
    let summary = |files: &[std::path::PathBuf]| {
        let report = merged(files);
        (report["verdict"].clone(), report["summary"].as_str().unwrap_or_default().to_owned())
    };
    // Memory alone proves it, and names actors; the list names their tasks.
    let (verdict, alone) = summary(std::slice::from_ref(&looks));
    assert!(verdict == "deadlock" && alone.contains("for a task of actor Clerk"), "{verdict}: {alone}");
    let list = |state: &str| {
        let file = folder.path().join(format!("{state}.json"));
        let row = |task: &Value| serde_json::json!({"task_id": task["task"], "name": task["name"], "state": state});
        let rows: Vec<Value> = tasks.iter().map(row).collect();
        std::fs::write(&file, serde_json::to_vec(&rows).expect("JSON")).expect("written");
        file
    };
    let (verdict, named) = summary(&[looks.clone(), list("RUNNING")]);
    assert!(verdict == "deadlock" && named.contains("for task `Clerk.reply` of actor Clerk"), "{verdict}: {named}");
    // Results that are there already are on their way: who waits for them waits for no actor.
    assert_eq!(summary(&[looks, list("FINISHED")]).0, "blocked");
}

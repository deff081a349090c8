//! `lockscope run --report-dir` before each rank of a job: what `lockscope job --ask` is told, and what is left of a job that hangs.
//! The ranks are plain processes that a launcher's variables say are such: what they do is not MPI's.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{compile, lockscope, signal_process, wait_until};

/// Prefixes of ranks, which end with their commands.
struct Job(Vec<Child>);

impl Job {
    /// One rank for each command, with reports in this folder.
    fn start(folder: &Path, commands: &[Vec<String>]) -> Job {
        let rank = |(number, command): (usize, &Vec<String>)| {
            let mut run = lockscope();
            run.arg("run").arg("--report-dir").arg(folder).arg("--").args(command);
            run.env("PMIX_NAMESPACE", format!("job-{}", std::process::id()));
            run.env("OMPI_COMM_WORLD_RANK", number.to_string());
            run.env("OMPI_COMM_WORLD_SIZE", commands.len().to_string());
            run.env_remove("LOCKSCOPE").stdout(Stdio::null()).stderr(Stdio::null());
            run.spawn().expect("lockscope runs")
        };
        Job(commands.iter().enumerate().map(rank).collect())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            signal_process(rank.id() as i32, "TERM");
            let _ = rank.wait();
        }
    }
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

/// Digests of the second round.
fn second_round(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).map(|all| all.flatten().map(|one| one.path()).collect::<Vec<PathBuf>>());
    files.unwrap_or_default().iter().filter(|path| path.to_string_lossy().ends_with(".2.digest.json")).count()
}

fn report(command: &mut Command) -> (Option<i32>, Value) {
    let output = command.args(["--format", "json"]).output().expect("lockscope runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (output.status.code(), json)
}

#[test]
fn those_before_the_ranks_answer_whoever_asks() {
    let folder = tempfile::tempdir().expect("a folder");
    let _job = Job::start(folder.path(), &vec![words(&["sleep", "120"]); 3]);
    let mut last = (None, Value::Null);
    wait_until("all ranks answer", || {
        let output = lockscope().args(["job", "--ask"]).arg(folder.path()).args(["--format", "json"]).output();
        let output = output.expect("lockscope runs");
        last = (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default());
        // Whoever has begun since the first round was asked for has answered the second alone.
        last.1["job"]["reported"] == "0-2" && last.1["job"]["two_rounds"] == true
    });
    assert_eq!(last.0, Some(0), "{}", last.1["summary"]);
    let (code, merged) = report(lockscope().arg("merge").arg(folder.path()));
    assert_eq!((code, &merged["job"]), (Some(0), &last.1["job"]));
    assert!(
        !std::fs::read_dir(folder.path())
            .expect("a folder")
            .flatten()
            .any(|one| { one.file_name().to_string_lossy().ends_with(".request") })
    );
}

#[test]
fn a_rank_that_hangs_is_ended_after_all_were_looked_at_twice() {
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]).display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let commands = [words(&[&deadlocks, "abba"]), words(&["sleep", "120"]), words(&["sleep", "120"])];
    let mut job = Job::start(folder.path(), &commands);
    let mut status = None;
    wait_until("the rank is ended", || {
        status = job.0[0].try_wait().expect("a child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(124));
    assert_eq!(second_round(folder.path()), 3);
    let (code, merged) = report(lockscope().arg("merge").arg(folder.path()));
    assert_eq!(code, Some(1));
    assert_eq!((&merged["verdict"], &merged["job"]["reported"]), (&"deadlock".into(), &"0-2".into()));
    let summary = merged["summary"].as_str().expect("a sentence");
    assert!(summary.starts_with("rank 0 ("), "{summary}");
}

#[test]
fn nobody_there_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = lockscope().args(["job", "--ask"]).arg(folder.path().join("none")).output().expect("lockscope runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("--report-dir"), "{text}");
}

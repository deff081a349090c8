//! What NCCL's RAS says of a job whose ranks wait for their GPUs.

use std::net::TcpListener;

use serde_json::Value;

use crate::harness::{Look, Target, attach, compile, lockscope, own_program, testdata, wait_until};
use crate::post_mortem::looks;
use crate::python::pythons;

/// A rank on the stand-in for the driver, with a RAS that answers as `case` says, and its port.
fn rank(case: &str) -> (Target, u16) {
    let driver = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    // Nothing of NCCL is called: a process that has it mapped is a rank.
    compile("fakecuda/libcuda.c", "libnccl.so.2", &["-shared", "-fPIC"]);
    let (_, python) = pythons().into_iter().rfind(|(_, python)| python.root().is_none()).expect("a Python");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let mut command = python.command();
    command.arg(testdata("python/nccl_ras.py")).arg(case).arg(free.to_string()).arg(driver.parent().expect("a folder"));
    command.env("NCCL_RAS_ADDR", format!("localhost:{free}"));
    (Target::start(&mut command).settle(1), free)
}

/// Three ranks on the stand-in, each behind the words of `prefix`, their RAS, and the folder in which each question to it is counted.
fn job(prefix: &[&std::ffi::OsStr]) -> (Target, tempfile::TempDir) {
    let driver = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    compile("fakecuda/libcuda.c", "libnccl.so.2", &["-shared", "-fPIC"]);
    let (_, python) = pythons().into_iter().rfind(|(_, python)| python.root().is_none()).expect("a Python");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let asked = tempfile::tempdir().expect("a folder");
    let mut command = python.command();
    command
        .arg(testdata("python/nccl_ras.py"))
        .arg("job")
        .arg(free.to_string())
        .arg(driver.parent().expect("a folder"));
    command.args(prefix).env("NCCL_RAS_ADDR", format!("localhost:{free}")).env("ASKED", asked.path());
    (Target::start(&mut command), asked)
}

/// How many times RAS was asked.
fn questions(asked: &tempfile::TempDir) -> usize {
    std::fs::read_to_string(asked.path().join("asked")).unwrap_or_default().lines().count()
}

/// What is said of the job with RAS as a witness, as it must be said whoever asked.
fn names_who_lags(report: &Value) -> bool {
    let summary = report["summary"].as_str().unwrap_or_default();
    report["verdict"] == "blocked"
        && report["job"]["reported"] == "0-2"
        && summary.contains("2 ranks wait for rank 1 (")
        && summary.contains("has entered fewer operations of communicator 0xabc7, by NCCL's RAS")
        && summary.contains("ranks 0,2 in AllReduce #7 at ")
}

#[test]
fn a_job_asks_once_for_all_its_ranks_and_has_the_answer_as_a_witness() {
    let (target, asked) = job(&[]);
    let pid = target.pid().to_string();
    let mut last = (Value::Null, 0);
    wait_until("RAS is a witness", || {
        let before = questions(&asked);
        let output = lockscope().args(["job", "--pid", &pid, "--format", "json"]).output().expect("lockscope runs");
        last = (serde_json::from_slice(&output.stdout).expect("JSON"), questions(&asked) - before);
        names_who_lags(&last.0)
    });
    // Twice by one look: what moves between is left out.
    assert_eq!(last.1, 2, "{}", last.0["summary"]);
    // Its files have it too, and no name of a machine when they are redacted.
    let folder = asked.path().join("hang");
    let output = lockscope().args(["job", "--quiet", "--redact", "--pid", &pid, "-o"]).arg(&folder).output();
    assert!(output.expect("lockscope runs").status.success());
    let output = lockscope().arg("merge").arg(&folder).args(["--format", "json"]).output().expect("lockscope runs");
    assert!(names_who_lags(&serde_json::from_slice(&output.stdout).expect("JSON")));
    for file in std::fs::read_dir(&folder).expect("a folder").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("readable");
        assert!(!text.contains("192.0.2.2"), "{text}");
    }
}

#[test]
fn of_ranks_behind_a_prefix_one_asks() {
    let reports = tempfile::tempdir().expect("a folder");
    let program = std::path::Path::new(own_program()).as_os_str();
    let (_target, asked) =
        job(&[program, "run".as_ref(), "--report-dir".as_ref(), reports.path().as_os_str(), "--".as_ref()]);
    let mut last = (Value::Null, 0);
    wait_until("RAS is a witness", || {
        let before = questions(&asked);
        let output = lockscope().args(["job", "--format", "json", "--ask"]).arg(reports.path()).output();
        let report = serde_json::from_slice(&output.expect("lockscope runs").stdout).unwrap_or_default();
        last = (report, questions(&asked) - before);
        names_who_lags(&last.0)
    });
    assert_eq!(last.1, 2, "{}", last.0["summary"]);
}

fn is_missing(look: &Look) -> bool {
    look.findings().contains(&"missing-rank")
}

#[test]
fn who_has_launched_fewer_is_named_live_and_in_snapshots() {
    let (target, port) = rank("missing");
    for look in looks(&target) {
        assert_eq!(look.verdict(), "blocked", "{}", look.text);
        assert!(is_missing(&look), "{}", look.text);
        let said =
            format!("By NCCL's RAS (127.0.0.1:{port}), rank 0 (process {} on 192.0.2.2) has launched", target.pids[0]);
        let message = look.json["findings"].to_string();
        assert!(message.contains(&said), "{said}: {message}");
        assert!(message.contains("AllReduce 7 times in communicator 0xabc7, rank 1 (process "), "{message}");
        assert!(message.contains(" on 192.0.2.2) 6 times, and none of its ranks"), "{message}");
    }
}

#[test]
fn who_goes_on_or_is_of_another_job_is_not() {
    for case in ["moves", "other", "even"] {
        let (target, _) = rank(case);
        {
            let look = attach(&target.pids, &[]);
            assert_eq!(look.verdict(), "blocked", "{case}: {}", look.text);
            assert!(!is_missing(&look), "{case}: {}", look.text);
            assert!(!look.says("NCCL's RAS"), "{case}: {}", look.text);
        }
    }
}

#[test]
fn who_gives_no_answer_is_a_gap() {
    for (case, why) in [("silent", "no answer within"), ("old", "answers otherwise than NCCL 2.28")] {
        let (target, port) = rank(case);
        {
            let look = attach(&target.pids, &[]);
            assert!(!is_missing(&look), "{case}: {}", look.text);
            let gaps = look.json["gaps"].to_string();
            assert!(gaps.contains(&format!("NCCL's RAS at 127.0.0.1:{port}")) && gaps.contains(why), "{case}: {gaps}");
        }
    }
}

/// Whoever owns a rank can answer in the place of RAS.
#[test]
fn a_hostile_one_costs_seconds_and_says_nothing_raw() {
    for case in ["endless", "drips", "nested", "rude"] {
        let (target, _) = rank(case);
        let began = std::time::Instant::now();
        let look = attach(&target.pids, &[]);
        assert!(began.elapsed().as_secs() < 60, "{case}");
        assert!(matches!(look.code, 0 | 1), "{case}: {}", look.text);
        if case != "rude" {
            assert!(look.json["gaps"].to_string().contains("NCCL's RAS"), "{case}: {}", look.text);
        }
        assert!(!look.text.contains(['\u{1b}', '\u{7}']), "{case}: {}", look.text);
        assert!(!look.text.lines().any(|line| line.starts_with("::")), "{case}: {}", look.text);
        assert!(look.text.len() < 64 << 10, "{case}: {} bytes", look.text.len());
    }
}

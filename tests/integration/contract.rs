//! The contract: command line, JSON, schema, formats.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Target, attach, compile, lockscope};

fn output(words: &[&str]) -> (i32, String) {
    let output = lockscope().args(words).output().expect("lockscope runs");
    (output.status.code().expect("a status"), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_schema_describes_the_report() {
    let (code, text) = output(&["schema"]);
    assert_eq!(code, 0);
    let schema: Value = serde_json::from_str(&text).expect("valid JSON");
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("abba")).settle(3);
    let look = attach(&target.pids, &[]);
    let properties = schema["properties"].as_object().expect("properties");
    let report = look.json.as_object().expect("an object");
    // `job` needs merged files of ranks, `nccl_ras` an answer of NCCL, and `made_to_happen` a run with --provoke.
    let others = ["job", "nccl_ras", "made_to_happen"];
    let of_one_look: Vec<_> = properties.keys().filter(|name| !others.contains(&name.as_str())).collect();
    assert_eq!(report.keys().collect::<Vec<_>>(), of_one_look);
    assert_eq!((report["schema"].as_str(), report["version"].as_str()), (Some("lockscope.report"), Some("1.2")));
    assert_eq!(report["host"]["boot_id"].as_str().map(str::len), Some(36), "{}", report["host"]);
    let (began, ended) = (&report["capture"]["began"], &report["capture"]["ended"]);
    let (began, ended) = (began.as_str().expect("a time"), ended.as_str().expect("a time"));
    assert!(began.ends_with('Z') && began.len() == ended.len() && began < ended, "{began} {ended}");
    for edge in report["cycles"][0]["edges"].as_array().expect("edges") {
        let resource = report["resources"].as_array().expect("a list").iter().find(|r| r["id"] == edge["resource"]);
        assert!(resource.is_some_and(|r| r["address"].as_str().is_some_and(|a| a.starts_with("0x"))), "{edge}");
        assert!(resource.is_some_and(|r| r["noun"] == "mutex" && r["place"].is_object()), "{resource:?}");
    }
}

#[test]
fn formats_and_exit_status() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("abba")).settle(3);
    let pid = target.pid().to_string();
    let (code, text) = output(&["attach", &pid]);
    assert_eq!(code, 1);
    assert!(text.starts_with("deadlock: "), "{text}");
    let (code, dot) = output(&["attach", &pid, "--format", "dot"]);
    assert_eq!(code, 1);
    assert!(dot.starts_with("digraph") && dot.contains("red"), "{dot}");
    let (code, json) = output(&["attach", &pid, "--format", "json"]);
    assert_eq!(code, 1);
    assert!(serde_json::from_str::<Value>(&json).is_ok());
    assert_eq!(output(&["attach"]).0, 2);
    assert_eq!(output(&["attach", &pid, "-o", "hang.xyz"]).0, 2);
    assert_eq!(output(&["explain", "no-such-finding"]).0, 2);
}

#[test]
fn every_finding_is_explained() {
    let (code, list) = output(&["explain"]);
    assert_eq!(code, 0);
    assert!(list.lines().count() >= 10, "{list}");
    for name in list.lines().filter_map(|l| l.split_whitespace().next()) {
        let (code, text) = output(&["explain", name]);
        assert_eq!(code, 0, "{name}");
        for part in ["What it is", "How it comes about", "Example", "How to fix it", "References"] {
            assert!(text.contains(&format!("\n{part}\n")), "{part} is not in {text}");
        }
    }
}

#[test]
fn the_demonstration_comes_out_as_announced() {
    let (code, text) = output(&["demo"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("[lock-order-cycle]") && text.contains("transfer-a"), "{text}");
    assert!(text.contains("[gil-vs-native-lock]"), "the tests' Python has ctypes: {text}");
    // It makes the call, and has no lock of its own.
    assert!(!text.contains("inside libffi"), "{text}");
}

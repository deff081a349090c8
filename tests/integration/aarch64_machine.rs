//! Looks inside an emulated machine of 64-bit Arm: hangs of testdata whose truth is known, living and as snapshots and cores that are
//! read here; and stops of calls that a careless one ends early.
//!
//! LOCKSCOPE_AARCH64 is a folder with `machine`, as scripts/check/aarch64-machine makes it, and `lockscope` for it. It boots once for
//! all of these; what runs inside is aarch64_machine.py.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Look, core, patience, skipped, testdata};
use crate::native::HANGS;

/// Cases of testdata/python/hangs.py, which say themselves what is true of them.
const PYTHON: &[&str] = &[
    "lock_order",
    "recursive_order",
    "own_lock",
    "condition_lock",
    "in_a_generator",
    "signal_handler",
    "join_under_lock",
    "joined_import",
    "event",
    "semaphore",
    "lock_across_await",
    "left_by_fork",
];
/// Of these, cores are taken.
const WITH_CORES: &[&str] = &["native-abba", "native-rwlocks", "python-lock_order"];
/// Programs that do not hang, and how many of their threads sleep.
const HEALTHY: &[(&str, usize, &str)] = &[("contention", 0, "running"), ("idle-workers", 4, "blocked")];
/// How often the calls of testdata/native/zoo.c are stopped.
const STOPS: usize = 60;

fn name_of(kind: &str, case: &str) -> String {
    format!("{kind}-{case}")
}

/// What runs inside.
fn cases() -> Value {
    let case = |kind: &str, case: &str, asleep: usize, command: Value| {
        let name = name_of(kind, case);
        let cores = WITH_CORES.contains(&name.as_str());
        json!({"name": name, "command": command, "asleep": asleep, "cores": cores})
    };
    let native = |name: &str, asleep: usize| case("native", name, asleep, json!(["/work/deadlocks", name]));
    let python = |name: &&str| case("python", name, 0, json!(["python3", "/work/hangs.py", name, "."]));
    let mut all: Vec<Value> = HANGS.iter().map(|truth| native(truth.case, truth.asleep)).collect();
    all.extend(HEALTHY.iter().map(|(name, asleep, _)| native(name, *asleep)));
    all.extend(PYTHON.iter().map(python));
    for name in ["zoo", "harmless"] {
        all.push(json!({"name": name, "command": [format!("/work/{name}")], "looks": STOPS}));
    }
    let compile: Vec<Value> =
        ["deadlocks", "zoo", "harmless"].iter().map(|name| json!([format!("{name}.c"), name])).collect();
    json!({"compile": compile, "cases": all})
}

/// What the machine gets to see.
fn share(program: &Path) -> tempfile::TempDir {
    let share = tempfile::tempdir().expect("a folder");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/aarch64_machine.py");
    let files = ["native/deadlocks.c", "native/zoo.c", "native/harmless.c", "python/hangs.py"].map(testdata);
    for file in files.into_iter().chain([here, program.to_path_buf()]) {
        std::fs::copy(&file, share.path().join(file.file_name().expect("a name"))).expect("copied");
    }
    std::fs::write(share.path().join("cases.json"), cases().to_string()).expect("written");
    share
}

/// A look that was taken inside.
fn inside(folder: &Path, kind: &str) -> Option<Look> {
    let text = std::fs::read_to_string(folder.join(format!("{kind}.txt"))).ok()?;
    let json = std::fs::read_to_string(folder.join(format!("{kind}.json"))).ok()?;
    Some(Look { code: 0, json: serde_json::from_str(&json).ok()?, text })
}

/// All looks at a case, by their names.
fn looks(folder: &Path, has_cores: bool, root: &str) -> Vec<(&'static str, Option<Look>)> {
    let here = |name: &str, more: &[&str]| {
        let file: PathBuf = folder.join(name);
        file.exists().then(|| core(&[file], more))
    };
    let mut all: Vec<_> = ["live", "stopped"].map(|kind| (kind, inside(folder, kind))).into();
    all.push(("snapshot", here("snapshot", &[])));
    if has_cores {
        all.extend(["gdb.core", "kernel.core"].map(|name| (name, here(name, &["--sysroot", root]))));
    }
    all
}

/// What is wrong with a look.
fn difference(look: &Look, verdict: &str, finding: Option<&str>, cycle: &[&str], words: &[&str]) -> Option<String> {
    if look.verdict() != verdict {
        return Some(format!("{}, not {verdict}", look.verdict()));
    }
    let findings = look.findings();
    if finding.is_some_and(|finding| !findings.contains(&finding)) {
        return Some(format!("findings {findings:?}"));
    }
    // Cores have no names of threads.
    let has_names = look.cycles().iter().flatten().any(|name| cycle.contains(&name.as_str()));
    if has_names && !look.cycles().iter().any(|names| names == cycle) {
        return Some(format!("cycles {:?}", look.cycles()));
    }
    words.iter().find(|word| !look.says(word)).map(|word| format!("nothing of {word}"))
}

/// Calls that returned early: lines of zoo.c and harmless.c that count them.
fn early(said: &[Value]) -> Vec<&str> {
    let counts = said.iter().filter_map(Value::as_str).filter(|line| line.contains('='));
    counts.filter(|line| !line.contains("=0")).collect()
}

#[test]
fn looks_inside_a_machine_of_64_bit_arm_say_what_is_true() {
    let Some(given) = std::env::var_os("LOCKSCOPE_AARCH64").map(PathBuf::from) else {
        return skipped!("no emulated machine of 64-bit Arm");
    };
    let share = share(&given.join("lockscope"));
    let out = tempfile::tempdir().expect("a folder");
    let limit = (patience() * 20).as_secs().to_string();
    let times = patience().as_secs() / 60;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check/aarch64-machine");
    let command = format!(
        "mkdir /out/results; LOCKSCOPE_PATIENCE={times} exec python3 aarch64_machine.py cases.json /out/results"
    );
    let ended = Command::new(script)
        .arg(given.join("machine"))
        .arg("run")
        .args([share.path(), out.path()])
        .args([&limit, &command])
        .output()
        .expect("the machine runs");
    let errors = std::fs::read_to_string(out.path().join("stderr")).unwrap_or_default();
    // Each case with its seconds.
    println!("{}", std::fs::read_to_string(out.path().join("stdout")).unwrap_or_default());
    assert!(ended.status.success(), "{}\n{errors}", String::from_utf8_lossy(&ended.stderr));
    let results = out.path().join("results");
    let told: Value =
        serde_json::from_slice(&std::fs::read(results.join("told.json")).expect("results")).expect("valid JSON");
    let root = results.join("root");
    let root = root.to_str().expect("a name");

    let mut wrong = Vec::new();
    let mut compare = |name: String, truth: (&str, Option<&str>, &[&str], &[&str])| {
        if let Some(failed) = told[&name]["failed"].as_str() {
            return wrong.push(format!("{name}: {failed}"));
        }
        let (verdict, finding, cycle, words) = truth;
        for (kind, look) in looks(&results.join(&name), WITH_CORES.contains(&name.as_str()), root) {
            let difference = match &look {
                Some(look) => difference(look, verdict, finding, cycle, words),
                None => Some(format!("no report: {}", told[&name]["errors"])),
            };
            let text = look.map(|look| look.text).unwrap_or_default();
            wrong.extend(difference.map(|difference| format!("{name}, {kind}: {difference}\n{text}")));
        }
    };
    for truth in HANGS {
        compare(name_of("native", truth.case), (truth.verdict, Some(truth.finding), truth.cycle, &[]));
    }
    for (case, _, verdict) in HEALTHY {
        compare(name_of("native", case), (verdict, None, &[], &[]));
    }
    for case in PYTHON {
        let name = name_of("python", case);
        let truth = &told[&name]["truth"];
        let texts = |key: &str| -> Vec<&str> {
            truth[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let cycle = if truth["verdict"].as_str().is_some_and(|it| it.ends_with("deadlock")) {
            texts("threads")
        } else {
            Vec::new()
        };
        let verdict = truth["verdict"].as_str().unwrap_or("told");
        compare(name, (verdict, truth["finding"].as_str(), &cycle, &texts("words")));
    }
    for name in ["zoo", "harmless"] {
        let counted = told[name]["said"].as_array().cloned().unwrap_or_default();
        let calls = counted.iter().filter_map(Value::as_str).filter(|line| line.contains('=')).count();
        if calls < 6 || !early(&counted).is_empty() {
            wrong.push(format!("{name}: {calls} calls, early {:?}; {}", early(&counted), told[name]));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong of {}:\n{}",
        wrong.len(),
        told.as_object().map_or(0, serde_json::Map::len),
        wrong.join("\n\n")
    );
}

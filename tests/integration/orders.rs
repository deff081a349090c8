//! `run --record` and `record`: orders of locks that could deadlock, of programs that did not hang and say what is true.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{compile, lockscope, testdata};
use crate::python_locks::pythons;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command that was recorded: what it wrote, and the report, whose files are in the folder.
struct Run {
    output: Output,
    report: Value,
    folder: tempfile::TempDir,
}

fn record(options: &[&str], command: &[&Path]) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = lockscope();
    // Of its own environment it would make an annotation.
    run.env_remove("GITHUB_ACTIONS").arg("run").args(options).arg("--report-dir").arg(folder.path()).arg("--");
    let output = run.args(command).output().expect("lockscope runs");
    let report = file(folder.path(), "json").map(|path| std::fs::read(path).expect("a report"));
    let report = report.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).expect("JSON"));
    Run { output, report, folder }
}

/// The report of a folder that ends so.
fn file(folder: &Path, ending: &str) -> Option<PathBuf> {
    let mut files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.find(|path| path.extension().is_some_and(|its| its == ending))
}

/// What the report says of orders: nothing, or of each finding its severity.
fn severities(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    for finding in &findings {
        assert_eq!((&finding["code"], &finding["class"]), (&"lock-order-inversion".into(), &"possible".into()));
    }
    findings.iter().map(|finding| finding["severity"].as_str().expect("a word").to_owned()).collect()
}

/// What a program says of itself, and what the report must say then.
fn check(run: &Run, case: &str) {
    assert!(run.output.status.success(), "{case}: {}", text(&run.output.stderr));
    let said = text(&run.output.stdout);
    let expected: &[&str] = match said.lines().next() {
        Some("orders differ") => &["warning"],
        // A thread was joined before the other began: it could not have met that one.
        Some("orders differ, one after the other") => &[],
        Some("orders do not differ") => &[],
        _ => panic!("{case}: {said}"),
    };
    assert_eq!(severities(&run.report), expected, "{case}: {}", text(&run.output.stderr));
    assert_eq!(text(&run.output.stderr).contains("could deadlock"), !expected.is_empty(), "{case}");
}

#[test]
fn native_orders_that_differ_are_told_and_others_are_not() {
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    for case in [
        "differ",
        "transfers",
        "written",
        "three",
        "four",
        "joined",
        "gated",
        "tried",
        "one-thread",
        "sorted",
        "instances",
        "made-anew",
        "read",
        "written-once",
    ] {
        check(&record(&["--record"], &[&program, Path::new(case)]), case);
    }
}

#[test]
fn the_lines_of_both_orders_are_in_each_form() {
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    let run = record(&["--record"], &[&program, Path::new("differ")]);
    let lines =
        ["pthread_mutex_lock(&amp;ledger);", "pthread_mutex_lock(&amp;journal);", "takes", "auditor (", "payer ("];
    let html = text(&std::fs::read(file(run.folder.path(), "html").expect("a page")).expect("a page"));
    let seen = text(&run.output.stderr);
    for line in lines {
        assert!(html.contains(line), "{line}: {html}");
        assert!(seen.contains(&line.replace("&amp;", "&")), "{line}: {seen}");
    }
    assert_eq!(run.report["verdict"], "could-deadlock");
    assert_eq!(run.report["source"]["kind"], "recorded");
    assert_eq!(run.report["resources"].as_array().map(Vec::len), Some(2));
    let scenes = run.report["scenes"].as_array().expect("scenes");
    assert_eq!(scenes.len(), 2, "{scenes:?}");
}

#[test]
fn the_exit_status_is_the_commands_own_but_for_strict() {
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    let status = |options: &[&str], case: &str| record(options, &[&program, Path::new(case)]).output.status.code();
    assert_eq!(status(&["--record"], "differ"), Some(0));
    assert_eq!(status(&["--record=strict"], "differ"), Some(1));
    assert_eq!(status(&["--record=strict"], "joined"), Some(0));
    assert_eq!(status(&["--record=strict"], "gated"), Some(0));
    let failed = record(
        &["--record=strict"],
        &["sh", "-c", "\"$0\" differ; exit 7"]
            .map(Path::new)
            .into_iter()
            .chain([program.as_path()])
            .collect::<Vec<_>>(),
    );
    assert_eq!(failed.output.status.code(), Some(7));
    assert_eq!(severities(&failed.report), ["warning"], "{}", text(&failed.output.stderr));
}

#[test]
fn many_runs_are_one_report_and_known_places_are_left_out() {
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    let folder = tempfile::tempdir().expect("a folder");
    for case in ["differ", "differ", "gated", "three"] {
        let run = lockscope()
            .args(["run", "--record", "--report-dir"])
            .arg(folder.path())
            .arg("--")
            .arg(&program)
            .arg(case)
            .output();
        assert!(run.expect("lockscope runs").status.success());
    }
    let orders = folder.path().join("orders");
    let read = |options: &[&str]| {
        let output =
            lockscope().arg("record").args(options).args(["--format", "json"]).arg(&orders).output().expect("it runs");
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        (output.status.code(), report)
    };
    let (status, report) = read(&[]);
    assert_eq!((status, severities(&report).len()), (Some(0), 2));
    assert!(report["findings"][0]["message"].as_str().expect("text").contains("in 2 processes"), "{report}");
    assert_eq!(read(&["--strict"]).0, Some(1));
    let known = folder.path().join("known");
    std::fs::write(&known, "# paid before\npay\n").expect("a file");
    let (status, report) = read(&["--strict", "--suppressions", known.to_str().expect("a name")]);
    assert_eq!((status, severities(&report).len()), (Some(1), 1), "{report}");
    std::fs::write(&known, "orders.c\n").expect("a file");
    let (status, report) = read(&["--strict", "--suppressions", known.to_str().expect("a name")]);
    assert_eq!((status, severities(&report)), (Some(0), Vec::new()));
    assert_eq!(report["verdict"], "nothing-found");
    assert!(report["gaps"].to_string().contains("suppressions"), "{report}");
}

#[test]
fn files_that_are_none_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = || lockscope().arg("record").arg(folder.path()).output().expect("it runs");
    assert_eq!(run().status.code(), Some(2));
    std::fs::write(folder.path().join("1-2.orders"), "other").expect("a file");
    let output = run();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("no file of lockscope's recorder"), "{}", text(&output.stdout));
}

#[test]
fn orders_of_python_are_told_on_each_version() {
    for (version, python) in pythons() {
        let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).expect("a version");
        // Of these it knows the frames; in another root the library would not be found.
        if version.ends_with('t') || !(8..=14).contains(&minor) || python.root().is_some() {
            continue;
        }
        for case in [
            "differ",
            "bare",
            "named",
            "named-timeout",
            "recursive",
            "named-recursive",
            "gil",
            "gated",
            "joined",
            "tried",
            "named-tried",
            "timed",
            "one-thread",
            "instances",
            "signals",
        ] {
            // Of frames that are objects some cases are enough.
            if minor < 11 && !["differ", "bare", "gil", "instances"].contains(&case) {
                continue;
            }
            let (_folder, command) = python.in_a_folder();
            let script = testdata("python/orders.py");
            let mut words: Vec<&Path> = vec![Path::new(command.get_program())];
            words.extend(command.get_args().map(Path::new));
            words.extend([script.as_path(), Path::new(case)]);
            let run = record(&["--record"], &words);
            check(&run, &format!("{case} {version}"));
        }
    }
}

#[test]
fn ci_systems_get_a_property_and_a_warning() {
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let run = |case: &str| {
        let mut command = lockscope();
        command.args(["run", "--record", "--junit"]).arg(folder.path().join("junit.xml")).arg("--").arg(&program);
        command.arg(case).env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", env!("CARGO_MANIFEST_DIR"));
        let output = command.env_remove("GITHUB_STEP_SUMMARY").output().expect("lockscope runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let junit = std::fs::read_to_string(folder.path().join("junit.xml")).unwrap_or_default();
        (text(&output.stdout) + &text(&output.stderr), junit)
    };
    let (said, junit) = run("differ");
    assert!(said.contains("::warning file=testdata/native/orders.c,line="), "{said}");
    assert!(junit.contains("lockscope.lock-order-inversion") && !junit.contains("<failure"), "{junit}");
    // Nothing was found: the file of the run before is not this one's.
    let (said, junit) = run("gated");
    assert!(!said.contains("::") && junit.is_empty(), "{said} {junit}");
}

#[test]
fn what_found_no_room_is_told() {
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    let script = format!("ulimit -f 8; {} differ", program.display());
    let run = record(&["--record"], &["sh", "-c", &script].map(Path::new));
    assert!(run.output.status.success(), "{}", text(&run.output.stderr));
    assert_eq!(severities(&run.report), Vec::<String>::new());
    assert!(text(&run.output.stderr).contains("not all was recorded"), "{}", text(&run.output.stderr));
    assert!(run.report["gaps"].to_string().contains("ulimit -f"), "{}", run.report["gaps"]);
    // A process that is killed has written what it did.
    let script = format!("{} differ; kill -KILL $$", program.display());
    let run = record(&["--record"], &["sh", "-c", &script].map(Path::new));
    assert_eq!(run.output.status.code(), Some(137));
    assert_eq!(severities(&run.report), ["warning"]);
}

/// Gaps of a report as (what, why), but for the last, which each has.
fn gaps(report: &Value) -> Vec<(String, String)> {
    let list = report["gaps"].as_array().expect("a list");
    let text = |gap: &Value, part: &str| gap[part].as_str().expect("a text").to_owned();
    let all: Vec<(String, String)> = list.iter().map(|gap| (text(gap, "what"), text(gap, "why"))).collect();
    let (last, others) = all.split_last().expect("what no recorder sees");
    assert!(last.0.contains("locks that no function of the C library takes"), "{last:?}");
    others.to_vec()
}

#[test]
fn modules_with_locks_of_their_own_are_named_and_others_are_not() {
    let source = "native/modules_with_locks.c";
    let program = compile(source, "modules_with_locks", &["-g", "-O1"]);
    let module = |kind: &str| {
        let name = format!("module-{}.so", kind.to_lowercase().replace('_', "-"));
        compile(source, &name, &["-shared", "-fPIC", &format!("-D{kind}"), "-ldl"])
    };
    let kinds = [
        ("RUST", "locks of Rust's std"),
        ("GO", "locks of Go"),
        ("STATIC_PTHREAD", "locks of a statically linked pthread"),
        ("WITHOUT_GIL", "locks of a Python without a GIL"),
        ("PY_MUTEX", "PyMutexes that C code takes"),
        ("ABSEIL", "locks of Abseil"),
        ("REENTRANT", "re-entrant locks of C code (Cython's FastRLock and its like)"),
        ("OPEN_MP", "locks and critical sections of OpenMP"),
    ];
    let alike: Vec<PathBuf> = kinds.iter().map(|(kind, _)| module(&format!("LIKE_{kind}"))).collect();
    let plain = module("PLAIN");
    let healthy: Vec<&Path> = alike.iter().chain([&plain]).map(PathBuf::as_path).collect();
    let own: Vec<PathBuf> = kinds.iter().map(|(kind, _)| module(kind)).collect();
    let run = |end: &str, modules: &[&Path]| {
        let words: Vec<&Path> = [&program, Path::new(end)].into_iter().chain(modules.iter().copied()).collect();
        let run = record(&["--record"], &words);
        let status = run.output.status.code();
        assert_eq!(status, Some(if end == "killed" { 137 } else { 0 }), "{}", text(&run.output.stderr));
        (gaps(&run.report), text(&run.output.stderr))
    };
    for end in ["returns", "_exit"] {
        assert_eq!(run(end, &healthy).0, [], "{end}");
        let all: Vec<&Path> = own.iter().map(PathBuf::as_path).chain(healthy.iter().copied()).collect();
        let (gaps, said) = run(end, &all);
        let expected = kinds.iter().zip(&own).map(|((_, what), path)| {
            let name = path.file_name().expect("a name").to_string_lossy();
            (format!("{what} in 1 module"), format!("the recorder does not see them: {name}"))
        });
        assert_eq!(gaps, expected.collect::<Vec<_>>(), "{end}");
        assert!(said.contains("not all was recorded: locks of Rust's std in 1 module"), "{said}");
    }
    // Nothing says what it had loaded.
    let (gaps, said) = run("killed", &healthy);
    let whats: Vec<&str> = gaps.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(whats, ["modules of 1 process"]);
    assert!(said.contains("modules of 1 process"), "{said}");
}

#[test]
fn locks_that_find_no_room_are_counted() {
    let program = compile("native/many_locks.c", "many_locks", &["-g", "-O1"]);
    for (count, expected) in [("64", 0), ("67", 3)] {
        let run = record(&["--record"], &[&program, Path::new(count)]);
        assert_eq!(severities(&run.report), Vec::<String>::new());
        let counted: Vec<String> = gaps(&run.report).into_iter().map(|(what, _)| what).collect();
        match expected {
            0 => assert_eq!(counted, Vec::<String>::new()),
            lost => {
                let what = format!("{lost} times a lock was taken with more held than the recorder writes down");
                assert_eq!(counted, [what], "{count}");
            }
        }
    }
}

#[test]
fn a_static_program_is_said_to_be_none_that_can_be_recorded() {
    let program = compile("native/orders.c", "orders-static", &["-g", "-O1", "-static"]);
    for (program, is_static) in [(&program, true), (&compile("native/orders.c", "orders", &["-g", "-O1"]), false)] {
        let run = record(&["--record"], &[program, Path::new("gated")]);
        assert!(run.output.status.success(), "{}", text(&run.output.stderr));
        assert_eq!(text(&run.output.stderr).contains("it is a static program"), is_static);
    }
}

/// What a child takes is its own, and what it had of its parent is not told twice.
#[test]
fn children_have_files_of_their_own() {
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    let script = format!("{0} gated & {0} differ; wait", program.display());
    let run = record(&["--record"], &["sh", "-c", &script].map(Path::new));
    assert_eq!(severities(&run.report), ["warning"], "{}", text(&run.output.stderr));
    let files = std::fs::read_dir(run.folder.path().join("orders")).expect("a folder").count();
    assert!(files >= 2, "{files}");
    let is_private = |path: &Path| {
        Command::new("find")
            .arg(path)
            .args(["-name", "*.orders", "-perm", "/077"])
            .output()
            .expect("find")
            .stdout
            .is_empty()
    };
    assert!(is_private(run.folder.path()));
}

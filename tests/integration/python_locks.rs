//! Python's own locks: hangs whose truth is known, and random programs that keep a table of who holds what.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Look, Target, attach, compile, core, skipped, testdata};
use crate::post_mortem::{essence, gdb_cores, kernel_cores, snapshot};
use crate::python::{Python, all_pythons};

/// The cases of testdata/python/hangs.py.
const CASES: &[&str] = &[
    "lock_order",
    "names_of_parameters",
    "names_of_globals",
    "recursive_order",
    "bare_order",
    "own_lock",
    "condition_lock",
    "behind_contextlib",
    "in_a_generator",
    "finaliser",
    "signal_handler",
    "join_under_lock",
    "joined_import",
    "own_pool",
    "event",
    "full_queue",
    "empty_queue",
    "unfinished_queue",
    "semaphore",
    "barrier",
    "lock_across_await",
    "order_of_tasks",
    "left_by_fork",
    "process_lock",
    "lost_task",
    "end_of_the_program",
];

/// Whether a case hangs on a version: from 3.15 on who waits for a lock at the end is told so (PythonFinalizationError).
fn hangs(case: &str, version: &str) -> bool {
    case != "end_of_the_program" || !version.starts_with("3.15.")
}

/// 3.8 and newer.
pub(crate) fn pythons() -> BTreeMap<String, Python> {
    let mut found = all_pythons();
    found.retain(|version, _| !version.starts_with("3.7."));
    found
}

/// What a case says of itself.
pub(crate) struct Truth(Value);

impl Truth {
    fn of(target: &Target) -> Truth {
        let line = target.said.iter().find_map(|line| line.strip_prefix("TRUTH ")).expect("a line of truth");
        Truth(serde_json::from_str(line).expect("valid JSON"))
    }

    fn texts(&self, name: &str) -> Vec<&str> {
        self.0[name].as_array().expect("a list").iter().filter_map(Value::as_str).collect()
    }

    fn verdict(&self) -> &str {
        self.0["verdict"].as_str().expect("a text")
    }
}

pub(crate) fn start(python: &Python, case: &str) -> (tempfile::TempDir, Target, Truth) {
    let (folder, mut command) = python.in_a_folder();
    command.arg(python.sees(&testdata("python/hangs.py"))).args([case, "."]);
    let target = Target::start(&mut command);
    let truth = Truth::of(&target);
    let target = match truth.0["asleep"].as_u64() {
        None => target.settle_asleep(),
        Some(0) => target.settle_in_poll(),
        Some(asleep) => target.settle(asleep as usize),
    };
    (folder, target, truth)
}

fn check(look: &Look, truth: &Truth, place: &str) {
    let finding = truth.0["finding"].as_str().expect("a text");
    assert_eq!(look.verdict(), truth.verdict(), "{place}:\n{}", look.text);
    // A stripped interpreter does not say that the frames between two Python functions are those of a signal.
    let found = look.findings();
    let stripped = finding == "lock-taken-again-in-signal-handler" && found.contains(&"self-deadlock");
    assert!(found.contains(&finding) || stripped, "{place}: {found:?}");
    if truth.verdict() != "stuck" && truth.verdict() != "orphaned-lock" {
        let (cycles, threads) = (look.cycles(), truth.texts("threads"));
        // Tasks have names that differ from version to version.
        let right = if threads.is_empty() { cycles.len() == 1 } else { cycles == [threads] };
        assert!(right, "{place}: {cycles:?}\n{}", look.text);
    }
    for word in truth.texts("words") {
        assert!(look.says(word) || stripped, "{place}: {word} is not in\n{}", look.text);
    }
}

#[test]
fn every_hang_is_named_on_every_python() {
    for (version, python) in pythons() {
        for case in CASES.iter().filter(|case| hangs(case, &version)) {
            let (folder, target, truth) = start(&python, case);
            let place = format!("{case} on Python {version}");
            let live = attach(&target.pids, &[]);
            check(&live, &truth, &place);
            let file = folder.path().join("hang.snapshot");
            snapshot(&target.pids, &file, &[]);
            assert_eq!(essence(&core(&[file], &[])), essence(&live), "{place} as a snapshot");
        }
    }
}

/// The mutexes of objects, where there is no GIL.
#[test]
fn critical_sections_are_named_without_a_gil() {
    let mut pythons = all_pythons();
    pythons.retain(|version, _| version.ends_with('t'));
    if pythons.is_empty() {
        return skipped!("critical sections: no Python without a GIL");
    }
    for (version, python) in pythons {
        let (folder, target, truth) = start(&python, "critical_section");
        let live = attach(&target.pids, &[]);
        check(&live, &truth, &version);
        let file = folder.path().join("hang.snapshot");
        snapshot(&target.pids, &file, &[]);
        assert_eq!(essence(&core(&[file], &[])), essence(&live), "{version} as a snapshot");
        let (_folder, target, _) = start(&python, "busy_section");
        for _ in 0..5 {
            let look = attach(&target.pids, &[]);
            assert_eq!((look.verdict(), look.code), ("blocked", 0), "{version}: {}", look.text);
            assert!(look.says("list `shared`"), "{version}: {}", look.text);
        }
    }
}

/// A PyMutex of code in C, which records no owner.
#[test]
fn mutexes_of_an_extension_are_inferred() {
    let mut looked_at = 0;
    for (version, python) in all_pythons() {
        let Some(headers) = python.headers().filter(|_| python.has_mutexes()) else { continue };
        let gil = if version.ends_with('t') { "-DPy_GIL_DISABLED=1" } else { "-UPy_GIL_DISABLED" };
        let headers = format!("-I{headers}");
        for level in ["-O0", "-O2"] {
            let flags = ["-shared", "-fPIC", level, gil, &headers];
            let library = compile("native/mutexes_of_python.c", &format!("mutexes-{version}{level}.so"), &flags);
            let run = |calls: [&str; 2], asleep| {
                let mut command = python.command();
                command.arg(testdata("python/mutexes.py")).arg(&library).args(calls);
                let target = Target::start(&mut command).settle(asleep);
                attach(&target.pids, &[])
            };
            let look = run(["accounts_first", "audit_first"], 3);
            assert_eq!(look.verdict(), "suspected-deadlock", "{version} {level}: {}", look.text);
            assert_eq!(look.cycles(), [["accounts_first", "audit_first"]], "{version} {level}: {}", look.text);
            for word in ["PyMutex `accounts`", "PyMutex `audit`", "mutexes_of_python.c"] {
                assert!(look.says(word), "{version} {level}: no {word} in {}", look.text);
            }
            let look = run(["long_work", "behind_it"], 2);
            assert_eq!((look.verdict(), look.code), ("blocked", 0), "{version} {level}: {}", look.text);
        }
        looked_at += 1;
    }
    if looked_at == 0 {
        skipped!("mutexes of an extension: no headers of CPython 3.13 or newer");
    }
}

/// Workers that are younger than their pool have lost nothing while another is at work.
#[test]
fn a_pool_whose_worker_is_at_work_is_left_in_peace() {
    for (version, python) in pythons() {
        let (_folder, target, _) = start(&python, "busy_pool");
        for _ in 0..5 {
            let look = attach(&target.pids, &[]);
            // The main thread may be on the way to its wait yet.
            let is_calm = matches!(look.verdict(), "blocked" | "running");
            assert!(is_calm && look.code == 0, "{version}: {}", look.text);
        }
    }
}

/// Each case as cores on one of the versions, each version with some of the cases.
#[test]
fn every_hang_is_named_from_cores() {
    let pythons: Vec<(String, Python)> = pythons().into_iter().collect();
    let mut skipped = 0;
    for (position, case) in CASES.iter().enumerate() {
        let able: Vec<_> = pythons.iter().filter(|(version, _)| hangs(case, version)).collect();
        let (version, python) = able[position % able.len()];
        let (folder, target, _) = start(python, case);
        let place = format!("{case} on Python {version}");
        let live = attach(&target.pids, &[]);
        let sysroot = python.root().map(|root| format!("--sysroot={}", root.display()));
        let more: Vec<&str> = sysroot.iter().map(String::as_str).collect();
        let same = |look: &Look, kind: &str| {
            let gaps = look.json["gaps"].to_string();
            let no_stacks = gaps.contains("stacks of threads");
            // Whether something else could wake a thread is not in a core. gdb's has no name of the shared memory of a
            // process in a root file system of its own.
            let missing = ["handlers for signals", "no captured process has an object of it"];
            // Nor are descriptors: that the workers of a pool wait for their next task is seen by the pipe.
            let is_less =
                look.verdict() == "blocked" && (missing.iter().any(|what| gaps.contains(what)) || *case == "lost_task");
            if is_less || no_stacks {
                println!("{place} as a core of {kind}: {}, for what is not in it", look.verdict());
            } else {
                assert_eq!(essence(look), essence(&live), "{place} as a core of {kind}:\n{}", look.text);
            }
        };
        same(&core(&gdb_cores(&target.pids, folder.path()), &more), "gdb's");
        match kernel_cores(target, folder.path()) {
            Ok(cores) => same(&core(&cores, &more), "the kernel's"),
            Err(why) => {
                skipped += 1;
                crate::harness::skipped!("{place} as a core of the kernel's: {why}");
            }
        }
    }
    println!("{skipped} of {} kernel cores skipped", CASES.len());
}

/// How often what was said of holders is right.
#[derive(Debug, Default)]
struct Score {
    waits: usize,
    wrong_waits: usize,
    /// Recorded by the lock, or by a rule that leaves no other holder.
    binding: usize,
    wrong_binding: usize,
    other: usize,
    wrong_other: usize,
    /// Locks that a `with` block holds, and how many of them were said.
    with_blocks: usize,
    found: usize,
}

/// Programs of one process.
const PROGRAMS: usize = 25;

impl Score {
    /// Compare one look with the table that the programs kept.
    fn add(&mut self, look: &Look, table: &Value, place: &str) {
        let process = &look.json["processes"][0];
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let names: BTreeMap<i64, String> = list(&process["threads"])
            .iter()
            .filter_map(|thread| Some((thread["tid"].as_i64()?, thread["name"].as_str()?.to_owned())))
            .collect();
        let resources: BTreeMap<String, Value> = list(&look.json["resources"])
            .into_iter()
            .map(|resource| (resource["id"].as_str().expect("an id").to_owned(), resource))
            .collect();
        let lock = |id: &Value| {
            let resource = &resources[id.as_str()?];
            let is_lock = ["py_lock", "py_rlock"].contains(&resource["kind"].as_str()?);
            let address = resource["address"].as_str()?.strip_prefix("0x")?;
            is_lock.then(|| u64::from_str_radix(address, 16).expect("hex").to_string())
        };
        let waited: BTreeMap<String, String> = list(&look.json["waits"])
            .iter()
            .filter_map(|wait| Some((names.get(&wait["tid"].as_i64()?)?.clone(), lock(&wait["resource"])?)))
            .collect();
        for table in table.as_object().expect("a table").values() {
            for (thread, truth) in table["waits"].as_object().expect("waits") {
                self.waits += 1;
                if waited.get(thread).map(String::as_str) != truth.as_str() {
                    self.wrong_waits += 1;
                    println!("{place}: {thread} waits for {truth}, not for {:?}", waited.get(thread));
                }
            }
            let is_waited = |lock: &str| table["waits"].as_object().is_some_and(|w| w.values().any(|w| w == lock));
            for (object, holder) in table["holders"].as_object().expect("holders") {
                let (name, how) = (holder[0].as_str().expect("a name"), holder[1].as_str().expect("a way"));
                if is_waited(object) && ["with", "managed", "stack"].contains(&how) {
                    self.with_blocks += 1;
                    let said = list(&look.json["holds"]).iter().any(|hold| {
                        lock(&hold["resource"]).as_ref() == Some(object)
                            && hold["certainty"] != "candidate"
                            && hold["tid"].as_i64().and_then(|tid| names.get(&tid)).is_some_and(|said| said == name)
                    });
                    self.found += usize::from(said);
                    if !said {
                        println!("{place}: {name} has {object} by {how}, which is not said");
                    }
                }
            }
        }
        for hold in list(&look.json["holds"]).iter().filter(|hold| hold["certainty"] != "candidate") {
            let Some(object) = lock(&hold["resource"]) else { continue };
            let truth = table.as_object().expect("a table").values().find_map(|t| t["holders"].get(&object));
            let said = hold["tid"].as_i64().and_then(|tid| names.get(&tid));
            let right = match (truth, said) {
                (Some(truth), Some(said)) => truth[0] == said.as_str(),
                // A generator that has stopped is no thread.
                (Some(truth), None) => truth[1] == "generator",
                (None, _) => false,
            };
            let evidence = hold["evidence"].to_string();
            let by_rule =
                hold["certainty"] == "exact" || evidence.contains("which it has not left yet") || said.is_none();
            let (count, wrong) = match by_rule {
                true => (&mut self.binding, &mut self.wrong_binding),
                false => (&mut self.other, &mut self.wrong_other),
            };
            *count += 1;
            *wrong += usize::from(!right);
            if !right {
                println!("{place}: {said:?} is said to have {object}, {truth:?} has it: {evidence}");
            }
        }
    }
}

#[test]
fn holders_are_those_of_the_table_that_programs_keep() {
    let pythons = pythons();
    // Many on the oldest and on the newest version, fewer on those between.
    let ends: Vec<&String> = pythons.keys().filter(|v| v.starts_with("3.8.") || v.starts_with("3.14.")).collect();
    for (version, python) in &pythons {
        let programs = if ends.contains(&version) || pythons.len() < 3 { 1000 } else { 200 };
        let mut score = Score::default();
        for seed in 0..programs / PROGRAMS {
            let mut command = python.command();
            command.arg(python.sees(&testdata("python/truth.py"))).args([seed.to_string(), PROGRAMS.to_string()]);
            let target = Target::start(&mut command).settle(PROGRAMS * 8 + 1);
            let table: Value = serde_json::from_str(&target.said[0]).expect("valid JSON");
            let look = attach(&target.pids, &[]);
            score.add(&look, &table, &format!("Python {version}, seed {seed}"));
        }
        println!("Python {version}, {programs} programs: {score:?}");
        assert_eq!((score.wrong_waits, score.wrong_binding), (0, 0), "Python {version}: {score:?}");
        assert!(score.wrong_other * 100 <= score.other, "Python {version}: {score:?}");
        assert!(score.found * 100 >= score.with_blocks * 99, "Python {version}: {score:?}");
        assert!(score.with_blocks >= programs && score.other >= programs / 20, "too little was tried: {score:?}");
    }
}

//! Looks inside an emulated machine of 64-bit Arm: hangs of testdata whose truth is known, living and as snapshots and cores that are
//! read here; frames beside gdb's; stops of calls that a careless one ends early; and the same cores and snapshots read on both
//! machines.
//!
//! LOCKSCOPE_AARCH64 is a folder with `machine`, as scripts/check/aarch64-machine makes it, and `lockscope` for it. It boots once for
//! all of these; what runs inside is aarch64_machine.py. LOCKSCOPE_STOPS is how often calls are stopped. It boots once more, with a
//! kernel that has larger pages, for a few of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::harness::{Look, Target, compile, core, lockscope, patience, skipped, testdata};
use crate::native::HANGS;
use crate::peers::{FRAMES_SCRIPT, equal_frames, frames_told};

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
/// Of these, and of [`FOR_FRAMES`], gdb is asked for its frames.
const WITH_FRAMES: &[&str] =
    &["native-abba", "native-idle-workers", "native-join-ring", "python-lock_order", "python-in_a_generator"];
/// Programs whose frames alone are compared: name, command, how many of their threads sleep.
const FOR_FRAMES: &[(&str, &[&str], usize)] = &[
    ("frames-optimised", &["/work/deadlocks-optimised", "ring"], 4),
    ("frames-c++", &["/work/guards", "unique"], 3),
    ("frames-libffi", &["python3", "/work/occupancy.py", "/work/libcuda.so.1", "cuLaunchKernel"], 3),
];
/// What is compiled inside.
const PROGRAMS: &[&[&str]] = &[
    &["cc", "-g", "-O1", "-pthread", "-o", "deadlocks", "deadlocks.c"],
    &["cc", "-g", "-O2", "-fomit-frame-pointer", "-pthread", "-o", "deadlocks-optimised", "deadlocks.c"],
    &["cc", "-g", "-O1", "-pthread", "-o", "zoo", "zoo.c"],
    &["cc", "-g", "-O1", "-pthread", "-o", "harmless", "harmless.c"],
    &["cc", "-g", "-O1", "-shared", "-fPIC", "-pthread", "-o", "libcuda.so.1", "libcuda.c"],
    &["c++", "-g", "-O1", "-pthread", "-o", "guards", "guards.cpp"],
];
const SOURCES: &[&str] = &[
    "native/deadlocks.c",
    "native/zoo.c",
    "native/harmless.c",
    "native/guards.cpp",
    "python/hangs.py",
    "fakecuda/libcuda.c",
    "fakecuda/occupancy.py",
    "aarch64/abba.core.zst",
    "aarch64/abba-gdb.core.zst",
    "aarch64/abba.snapshot.zst",
    "snapshots/lock-order.snapshot.zst",
];
/// How often the calls of testdata/native/zoo.c are looked at, each second time with a stop.
const STOPS: usize = 60;
/// What is looked at on a kernel with larger pages, and how often the calls are.
const ON_LARGER_PAGES: &[&str] =
    &["native-abba", "native-join-ring", "native-idle-workers", "python-lock_order", "python-left_by_fork", "zoo"];
const STOPS_ON_LARGER_PAGES: usize = 20;
/// Their sources.
const SOURCES_ON_LARGER_PAGES: &[&str] = &["deadlocks.c", "zoo.c"];

fn name_of(kind: &str, case: &str) -> String {
    format!("{kind}-{case}")
}

/// Cores and snapshots that are read inside and here: arguments of `lockscope core`, with files of the machine's /work.
fn read_on_both(own: &Path) -> Vec<Vec<String>> {
    let program = crate::other_machines::unpacked("abba", own);
    let program = program.file_name().expect("a name").to_str().expect("a name").to_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    vec![
        words(&["abba.core.zst", "--exe", &program]),
        words(&["abba-gdb.core.zst", "--exe", &program]),
        words(&["abba.snapshot.zst"]),
        words(&["lock-order.snapshot.zst"]),
        words(&["here.snapshot"]),
        words(&["here.core", "--sysroot", "here.root"]),
    ]
}

/// A hang of this machine: its snapshot, its core, and the files that this needs. Of the C library, which is linked in, no debug
/// information of this machine is found that the other has not.
fn hang_here(folder: &Path) {
    let target =
        Target::start(Command::new(compile("native/deadlocks.c", "deadlocks-static", &["-static"])).arg("abba"))
            .settle(3);
    let pid = target.pid().to_string();
    let snapshot = folder.join("here.snapshot");
    let done = lockscope().args(["snapshot", &pid, "-o"]).arg(&snapshot).output().expect("lockscope runs");
    assert!(snapshot.exists(), "{}", String::from_utf8_lossy(&done.stderr));
    let cores = crate::post_mortem::gdb_cores(&[target.pid()], folder);
    std::fs::rename(&cores[0], folder.join("here.core")).expect("renamed");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("readable");
    for file in maps.lines().filter_map(|line| line.split_whitespace().nth(5)).filter(|name| name.starts_with('/')) {
        let copy = folder.join("here.root").join(file.trim_start_matches('/'));
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("made");
        std::fs::copy(file, copy).expect("copied");
    }
}

/// What runs inside on a kernel with larger pages.
fn few_tasks(reads: &[Vec<String>]) -> Value {
    let mut tasks = tasks(reads);
    if let Some(cases) = tasks["cases"].as_array_mut() {
        cases.retain(|case| case["name"].as_str().is_some_and(|name| ON_LARGER_PAGES.contains(&name)));
        // gdb says the same of them as on any kernel.
        cases.iter_mut().for_each(|case| case["frames"] = json!(false));
        cases
            .iter_mut()
            .filter(|case| case["looks"].is_u64())
            .for_each(|case| case["looks"] = json!(STOPS_ON_LARGER_PAGES));
    }
    let is_needed = |word: &Value| word.as_str().is_some_and(|word| SOURCES_ON_LARGER_PAGES.contains(&word));
    if let Some(programs) = tasks["compile"].as_array_mut() {
        programs.retain(|command| command.as_array().is_some_and(|words| words.iter().any(is_needed)));
    }
    tasks["commands"]["demo"] = json!(["./lockscope", "demo"]);
    tasks["commands"]["page"] = json!(["getconf", "PAGESIZE"]);
    tasks
}

/// What runs inside.
fn tasks(reads: &[Vec<String>]) -> Value {
    let case = |name: String, command: Value, asleep: usize| {
        let [cores, frames] = [WITH_CORES, WITH_FRAMES].map(|names| names.contains(&name.as_str()));
        json!({"name": name, "command": command, "asleep": asleep, "cores": cores, "frames": frames})
    };
    let native = |name: &str, asleep: usize| case(name_of("native", name), json!(["/work/deadlocks", name]), asleep);
    let python = |name: &&str| case(name_of("python", name), json!(["python3", "/work/hangs.py", name, "."]), 0);
    let mut cases: Vec<Value> = HANGS.iter().map(|truth| native(truth.case, truth.asleep)).collect();
    cases.extend(HEALTHY.iter().map(|(name, asleep, _)| native(name, *asleep)));
    cases.extend(PYTHON.iter().map(python));
    cases.extend(
        FOR_FRAMES
            .iter()
            .map(|(name, command, asleep)| json!({"name": name, "command": command, "asleep": asleep, "frames": true})),
    );
    let stops = std::env::var("LOCKSCOPE_STOPS").ok().and_then(|stops| stops.parse().ok()).unwrap_or(STOPS);
    cases.push(json!({"name": "zoo", "command": ["/work/zoo"], "looks": stops}));
    cases.push(json!({"name": "harmless", "command": ["/work/harmless"], "looks": STOPS}));
    let mut commands = json!({
        "version": ["./lockscope", "--version"],
        "record": ["./lockscope", "run", "--record", "--", "true"],
    });
    for (number, words) in reads.iter().enumerate() {
        let command =
            ["./lockscope", "core"].into_iter().chain(words.iter().map(String::as_str)).chain(["--format", "json"]);
        commands[format!("read-{number}")] = command.collect();
    }
    json!({"compile": PROGRAMS, "cases": cases, "commands": commands})
}

/// What the machine gets to see.
fn share(program: &Path, tasks: fn(&[Vec<String>]) -> Value) -> (tempfile::TempDir, Vec<Vec<String>>) {
    let share = tempfile::tempdir().expect("a folder");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/aarch64_machine.py");
    for file in SOURCES.iter().map(|name| testdata(name)).chain([here, program.to_path_buf()]) {
        std::fs::copy(&file, share.path().join(file.file_name().expect("a name"))).expect("copied");
    }
    hang_here(share.path());
    let reads = read_on_both(share.path());
    std::fs::write(share.path().join("frames.gdb"), FRAMES_SCRIPT).expect("written");
    std::fs::write(share.path().join("tasks.json"), tasks(&reads).to_string()).expect("written");
    (share, reads)
}

/// What the machine has brought back.
pub(crate) struct Brought {
    share: tempfile::TempDir,
    out: tempfile::TempDir,
    /// Of each case and command what is known of it, by its name.
    told: Value,
    reads: Vec<Vec<String>>,
}

/// Boot it with pages of 4 KiB, once for all tests; `None` where there is none.
pub(crate) fn brought() -> Option<&'static Brought> {
    static BROUGHT: OnceLock<Option<Brought>> = OnceLock::new();
    BROUGHT.get_or_init(|| boot(&given()?, "4k", tasks)).as_ref()
}

fn given() -> Option<PathBuf> {
    std::env::var_os("LOCKSCOPE_AARCH64").map(PathBuf::from)
}

fn boot(given: &Path, pages: &str, tasks: fn(&[Vec<String>]) -> Value) -> Option<Brought> {
    let (share, reads) = share(&given.join("lockscope"), tasks);
    let out = tempfile::tempdir().expect("a folder");
    let limit = (patience() * 10).as_secs().to_string();
    let times = patience().as_secs() / 60;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check/aarch64-machine");
    let command = format!(
        "mkdir /out/results; LOCKSCOPE_PATIENCE={times} exec python3 aarch64_machine.py tasks.json /out/results"
    );
    let ended = Command::new(script)
        .env("LOCKSCOPE_PAGES", pages)
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
    let told = std::fs::read(out.path().join("results/told.json")).expect("results");
    Some(Brought { share, out, told: serde_json::from_slice(&told).expect("valid JSON"), reads })
}

impl Brought {
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.out.path().join("results").join(name)
    }

    /// A look that was taken inside.
    fn inside(&self, name: &str, kind: &str) -> Option<Look> {
        let text = std::fs::read_to_string(self.folder(name).join(format!("{kind}.txt"))).ok()?;
        let json = std::fs::read_to_string(self.folder(name).join(format!("{kind}.json"))).ok()?;
        Some(Look { code: 0, json: serde_json::from_str(&json).ok()?, text })
    }

    /// All looks at a case, by their names.
    fn looks(&self, name: &str) -> Vec<(&'static str, Option<Look>)> {
        let root = self.folder("root");
        let root = root.to_str().expect("a name");
        let here = |kind: &str, more: &[&str]| {
            let file = self.folder(name).join(kind);
            file.exists().then(|| core(&[file], more))
        };
        let mut all: Vec<_> = ["live", "stopped"].map(|kind| (kind, self.inside(name, kind))).into();
        all.push(("snapshot", here("snapshot", &[])));
        if WITH_CORES.contains(&name) {
            all.extend(["gdb.core", "kernel.core"].map(|kind| (kind, here(kind, &["--sysroot", root]))));
        }
        all
    }
}

/// What is wrong with the looks at a case: verdict, finding, cycle and words are the truth.
fn wrong(brought: &Brought, name: &str, truth: (&str, Option<&str>, &[&str], &[&str])) -> Vec<String> {
    let told = &brought.told[name];
    if told.is_null() || !told["failed"].is_null() {
        return vec![format!("{name}: {}", told["failed"])];
    }
    let (verdict, finding, cycle, words) = truth;
    let looks = brought.looks(name).into_iter();
    looks
        .filter_map(|(kind, look)| {
            let difference = match &look {
                Some(look) => difference(look, verdict, finding, cycle, words),
                None => Some(format!("no report: {}", told["errors"])),
            };
            let text = look.map(|look| look.text).unwrap_or_default();
            difference.map(|difference| format!("{name}, {kind}: {difference}\n{text}"))
        })
        .collect()
}

/// The same of all cases that are among those `wanted`.
fn all_wrong(brought: &Brought, wanted: fn(&str) -> bool) -> Vec<String> {
    let mut all = Vec::new();
    for truth in HANGS {
        let name = name_of("native", truth.case);
        if wanted(&name) {
            all.extend(wrong(brought, &name, (truth.verdict, Some(truth.finding), truth.cycle, &[])));
        }
    }
    for (case, _, verdict) in HEALTHY {
        let name = name_of("native", case);
        if wanted(&name) {
            all.extend(wrong(brought, &name, (verdict, None, &[], &[])));
        }
    }
    for name in PYTHON.iter().map(|case| name_of("python", case)).filter(|name| wanted(name)) {
        let truth = &brought.told[&name]["truth"];
        let texts = |key: &str| -> Vec<&str> {
            truth[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let cycle = if truth["verdict"].as_str().is_some_and(|it| it.ends_with("deadlock")) {
            texts("threads")
        } else {
            Vec::new()
        };
        let verdict = truth["verdict"].as_str().unwrap_or("told");
        all.extend(wrong(brought, &name, (verdict, truth["finding"].as_str(), &cycle, &texts("words"))));
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
    let Some(brought) = brought() else {
        return skipped!("no emulated machine of 64-bit Arm");
    };
    let wrong = all_wrong(brought, |_| true);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn no_look_at_64_bit_arm_ends_a_call() {
    let Some(brought) = brought() else {
        return skipped!("no emulated machine of 64-bit Arm");
    };
    ["zoo", "harmless"].iter().for_each(|name| assert_no_call_ended(brought, name));
}

fn assert_no_call_ended(brought: &Brought, name: &str) {
    let told = &brought.told[name];
    println!("{name}: {told}");
    let counted = told["said"].as_array().cloned().unwrap_or_default();
    let calls = counted.iter().filter_map(Value::as_str).filter(|line| line.contains('=')).count();
    assert!(calls >= 6 && early(&counted).is_empty(), "{name}: {calls} calls, early {:?}; {told}", early(&counted));
}

#[test]
fn frames_of_64_bit_arm_equal_those_of_gdb() {
    let Some(brought) = brought() else {
        return skipped!("no emulated machine of 64-bit Arm");
    };
    let (mut equal, mut all) = (0, 0);
    for name in WITH_FRAMES.iter().copied().chain(FOR_FRAMES.iter().map(|(name, ..)| *name)) {
        let told = std::fs::read_to_string(brought.folder(name).join("frames.txt")).unwrap_or_default();
        let Some(look) = brought.inside(name, "live") else { panic!("{name}: {}", brought.told[name]) };
        let (same, frames) = equal_frames(name, &look.json, &frames_told(&told));
        println!("{name}: {same} of {frames}");
        assert!(frames > 0, "{name}: gdb has no frames: {told}");
        (equal, all) = (equal + same, all + frames);
    }
    println!("{equal} of {all} frames equal");
    assert!(equal * 1000 >= all * 995, "{equal} of {all} frames are gdb's");
}

/// A report without what depends on who looks, and when.
fn without_time_and_host(report: &[u8]) -> Value {
    let mut report: Value = serde_json::from_slice(report).expect("valid JSON");
    let is_snapshot = report["source"]["kind"] == "snapshot";
    let members: &[(&str, &[&str])] = match is_snapshot {
        // All else is the snapshot's.
        true => &[("capture", &["total_us"])],
        false => &[("host", &["name", "boot_id", "kernel"]), ("capture", &["total_us", "began", "ended"])],
    };
    for (object, names) in members {
        names.iter().for_each(|name| report[object][name] = Value::Null);
    }
    report
}

#[test]
fn both_machines_say_the_same_of_a_file() {
    let Some(brought) = brought() else {
        return skipped!("no emulated machine of 64-bit Arm");
    };
    assert_same_reports(brought);
}

fn assert_same_reports(brought: &Brought) {
    for (number, words) in brought.reads.iter().enumerate() {
        let here = lockscope()
            .arg("core")
            .args(words)
            .args(["--format", "json"])
            .current_dir(brought.share.path())
            .output()
            .expect("lockscope runs");
        let there = &brought.told[format!("read-{number}")];
        let text = there["output"].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{words:?}: {there}");
        let [here, there] = [&*here.stdout, text.as_bytes()].map(without_time_and_host);
        assert_eq!(here["verdict"], "deadlock", "{words:?}");
        // Member by member: the order of a list is part of it.
        assert_eq!(here.to_string(), there.to_string(), "{words:?}");
    }
}

#[test]
fn the_program_for_64_bit_arm_says_what_it_is_and_what_it_lacks() {
    let Some(brought) = brought() else {
        return skipped!("no emulated machine of 64-bit Arm");
    };
    let version = brought.told["version"]["output"].as_str().unwrap_or_default();
    for line in ["\ntarget:  aarch64-unknown-linux-musl\n", ", static\n"] {
        assert!(version.contains(line), "{line:?}: {version}");
    }
    let record = &brought.told["record"];
    let errors = record["errors"].as_str().unwrap_or_default();
    assert!(record["status"] != 0 && errors.contains("a recorder for x86-64 alone"), "{record}");
}

/// A kernel of 64-bit Arm may have pages of 16 or 64 KiB, as those of Grace Hopper do.
#[test]
fn looks_on_a_kernel_with_larger_pages_say_what_is_true() {
    let Some(given) = given().filter(|given| given.join("machine/kernel-16k").exists()) else {
        return skipped!("no emulated machine of 64-bit Arm with pages of 16 KiB");
    };
    let Some(brought) = boot(&given, "16k", few_tasks) else { panic!("it does not boot") };
    let output = |name: &str| brought.told[name]["output"].as_str().unwrap_or_default().to_owned();
    assert_eq!(output("page"), "16384\n");
    let demo = output("demo");
    for finding in ["[lock-order-cycle]", "[gil-vs-native-lock]"] {
        assert!(demo.contains(finding), "{finding}: {demo}");
    }
    let wrong = all_wrong(&brought, |name| ON_LARGER_PAGES.contains(&name));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    assert_no_call_ended(&brought, "zoo");
    assert_same_reports(&brought);
}

//! Beside others: gdb's own backtrace frame by frame, py-spy's names through the report, /proc's states.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Look, Target, attach, compile, testdata, wait_until};
use crate::python::pythons;
use crate::python_locks;

/// Program counters of each thread as gdb unwinds them.
fn gdb_frames(pid: i32) -> BTreeMap<i64, Vec<u64>> {
    // Also for a process with a root file system of its own: else gdb takes the files of this one, and the frames are
    // plausible and wrong.
    let (sysroot, program) = (format!("set sysroot /proc/{pid}/root"), format!("/proc/{pid}/exe"));
    gdb_frames_of(&["-iex", &sysroot, &program, "-p", &pid.to_string()])
}

/// A script for gdb: a line for each thread with the program counters of its frames, innermost first.
pub(crate) const FRAMES_SCRIPT: &str = "set backtrace past-main on
set backtrace past-entry on
python
import gdb
for t in gdb.selected_inferior().threads():
    t.switch()
    f = gdb.newest_frame()
    pcs = []
    while f is not None and len(pcs) < 4000:
        if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            pcs.append('%x' % f.pc())
        try:
            f = f.older()
        except gdb.error:
            break
    print('FRAMES', t.ptid[1], ' '.join(pcs))
end
";

/// The same of whatever these words name to gdb.
pub(crate) fn gdb_frames_of(target: &[&str]) -> BTreeMap<i64, Vec<u64>> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), FRAMES_SCRIPT).expect("written");
    let output = Command::new("gdb")
        .args(["-q", "-nx", "-batch", "-iex", "set debuginfod enabled off"])
        .args(target)
        .arg("-x")
        .arg(file.path())
        .stdin(Stdio::null())
        .output()
        .expect("gdb runs");
    frames_told(&String::from_utf8_lossy(&output.stdout))
}

/// What [`FRAMES_SCRIPT`] has printed.
pub(crate) fn frames_told(text: &str) -> BTreeMap<i64, Vec<u64>> {
    let threads = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("FRAMES ")?.split_whitespace();
        Some((words.next()?.parse().ok()?, words.filter_map(|w| u64::from_str_radix(w, 16).ok()).collect()))
    });
    threads.collect()
}

/// Every frame of gdb's that the report shows must be gdb's, and none of gdb's may be missing: Python frames stand in
/// the place of native ones, so native pcs are compared as a subsequence, and counted together with these.
fn compare(name: &str, pid: i32) -> (usize, usize) {
    let look = attach(&[pid], &[]);
    equal_frames(name, &look.json, &gdb_frames(pid))
}

/// How many of a report's frames are gdb's, and how many there are.
pub(crate) fn equal_frames(name: &str, report: &Value, gdb: &BTreeMap<i64, Vec<u64>>) -> (usize, usize) {
    let (mut equal, mut all) = (0, 0);
    for thread in report["processes"][0]["threads"].as_array().expect("a list") {
        let tid = thread["tid"].as_i64().expect("a number");
        let Some(expected) = gdb.get(&tid) else { continue };
        // Beyond the first frame without call frame information both guess, each in its own way.
        let frames = thread["frames"].as_array().expect("a list").iter().filter(|f| f["kind"] == "native");
        let (own, guessed): (Vec<_>, Vec<_>) = frames.partition(|f| f["trust"] == "cfi");
        let pc = |f: &&Value| u64::from_str_radix(f["pc"].as_str()?.trim_start_matches("0x"), 16).ok();
        let own: Vec<u64> = own.iter().filter_map(pc).collect();
        let mut rest = expected.iter();
        let found = own.iter().filter(|pc| rest.by_ref().any(|e| e == *pc)).count();
        if found < own.len() {
            println!("{name}: thread {tid}: {own:x?}, gdb {expected:x?}");
        }
        all += own.len();
        equal += found;
        assert!(!own.is_empty(), "{name}: thread {tid} has no frames");
        // gdb and the walk end at the same outermost frame.
        if guessed.is_empty() {
            assert_eq!(own.last(), expected.last(), "{name}: thread {tid} ends elsewhere: {own:x?} {expected:x?}");
        }
    }
    (equal, all)
}

#[test]
fn frames_equal_those_of_gdb() {
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]);
    let optimised = compile("native/deadlocks.c", "deadlocks-optimised", &["-O2", "-fomit-frame-pointer"]);
    let library = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    let mut targets = Vec::new();
    for (program, case, asleep) in [
        (&deadlocks, "abba", 3),
        (&optimised, "ring", 4),
        (&optimised, "join-ring", 3),
        (&deadlocks, "idle-workers", 4),
    ] {
        targets.push((case.to_string(), Target::start(Command::new(program).arg(case)).settle(asleep)));
    }
    for (version, python) in pythons() {
        let mut command = python.command();
        command.arg(python.sees(&testdata("fakecuda/occupancy.py"))).arg(python.sees(&library)).arg("cuLaunchKernel");
        println!("Python {version}");
        targets.push((format!("Python {version}"), Target::start(&mut command).settle(3)));
    }
    for (name, target) in targets {
        let (equal, all) = compare(&name, target.pid());
        assert!(all > 0 && equal * 1000 >= all * 995, "{name}: {equal} of {all} frames are gdb's");
    }
}

/// Programs that are on many machines, most of them stripped, and what makes them sleep.
const PROGRAMS: &[&[&str]] = &[
    &["sleep", "100"],
    &["cat"],
    &["tail", "-f", "/dev/null"],
    &["bash", "-c", "read line; exit"],
    &["dash", "-c", "read line; exit"],
    &["perl", "-e", "sleep 100"],
    &["perl", "-e", "<STDIN>"],
    &["awk", "BEGIN { getline }"],
    &["sed", "p"],
    &["grep", "x"],
    &["sort"],
    &["tee"],
    &["wc"],
    &["xargs", "echo"],
    &["bc"],
    &["sqlite3"],
    &["openssl", "dgst"],
    &["gzip", "-c"],
    &["xz", "-c"],
    &["tar", "-tf", "-"],
    &["ssh-agent", "-D"],
    &["git", "hash-object", "--stdin"],
    &["gdb", "-q", "-nx"],
    &["make", "-f", "-"],
    &["cc", "-E", "-"],
    &["rustc", "-"],
    &["node", "-e", "setInterval(() => {}, 1e6)"],
    &["python3", "-c", "import numpy, time; time.sleep(100)"],
    &["redis-server", "--port", "0"],
    &["nginx", "-g", "daemon off; error_log stderr;"],
];

/// Wait until all its threads sleep and none was switched to between two looks.
fn quiet(pid: i32) {
    let mut before = Vec::new();
    let mut calm = 0;
    wait_until("the program sleeps", || {
        let now: Vec<_> = crate::harness::threads(pid)
            .into_iter()
            .map(|tid| ["State", "voluntary_ctxt_switches"].map(|name| crate::harness::status_field(pid, tid, name)))
            .collect();
        let asleep = now.iter().all(|[state, _]| state.as_deref().is_some_and(|s| s.starts_with(['S', 'Z'])));
        calm = if asleep && now == before { calm + 1 } else { 0 };
        before = now;
        calm >= 20
    });
}

#[test]
fn frames_of_real_programs_equal_those_of_gdb() {
    let (mut equal, mut all, mut compared, mut missing) = (0, 0, 0, Vec::new());
    for words in PROGRAMS {
        let folder = tempfile::tempdir().expect("a folder");
        let child = Command::new(words[0])
            .args(&words[1..])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            missing.push(words[0]);
            continue;
        };
        let pid = child.id() as i32;
        quiet(pid);
        if matches!(child.try_wait(), Ok(None)) {
            let (same, frames) = compare(&words.join(" "), pid);
            println!("{}: {same} of {frames}", words.join(" "));
            (equal, all, compared) = (equal + same, all + frames, compared + 1);
        } else {
            missing.push(words[0]);
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    println!("{compared} programs, {equal} of {all} frames equal; not on this machine: {missing:?}");
    assert!(compared >= 15 && equal * 1000 >= all * 995, "{equal} of {all} frames are gdb's");
}

#[test]
fn states_are_those_of_proc() {
    let program = compile("native/harmless.c", "harmless", &[]);
    let target = Target::start(&mut Command::new(program));
    wait_until("its threads are there", || crate::harness::threads(target.pid()).len() == 7);
    let look = attach(&target.pids, &[]);
    let threads: &Vec<Value> = look.json["processes"][0]["threads"].as_array().expect("a list");
    assert_eq!(threads.len(), 7);
    for thread in threads {
        assert_eq!(thread["state"], "sleeping", "{thread}");
    }
}

/// Function, file's name and line of a Python frame.
type PythonFrame = (String, String, i64);

/// The Python frames of each thread, innermost first, as lockscope has them.
fn own_python_frames(look: &Look) -> BTreeMap<i64, Vec<PythonFrame>> {
    let process = &look.json["processes"][0];
    let threads = process["threads"].as_array().expect("a list").iter();
    let frame = |frame: &Value| {
        let is_python = frame["kind"] == "python";
        is_python.then(|| (text(&frame["function"]), base_name(&frame["file"]), frame["line"].as_i64().unwrap_or(0)))
    };
    let frames = |thread: &Value| thread["frames"].as_array().expect("a list").iter().filter_map(frame).collect();
    threads.map(|thread| (thread["tid"].as_i64().expect("a number"), frames(thread))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn base_name(value: &Value) -> String {
    text(value).rsplit('/').next().unwrap_or_default().to_owned()
}

/// As py-spy has them; `None`, with its message, where it cannot read this Python.
fn py_spy_frames(peers: &Path, pid: i32) -> Result<BTreeMap<i64, Vec<PythonFrame>>, String> {
    let output = Command::new(peers.join("py-spy"))
        .args(["dump", "--json", "-p", &pid.to_string()])
        .output()
        .expect("py-spy runs");
    let Ok(threads) = serde_json::from_slice::<Value>(&output.stdout) else {
        return Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned());
    };
    let frame =
        |frame: &Value| (text(&frame["name"]), base_name(&frame["filename"]), frame["line"].as_i64().unwrap_or(0));
    let frames = |thread: &Value| thread["frames"].as_array().expect("a list").iter().map(frame).collect();
    let threads = threads.as_array().expect("a list").iter();
    Ok(threads.map(|thread| (thread["os_thread_id"].as_i64().expect("a number"), frames(thread))).collect())
}

/// As pystack has them: it prints the outermost first, and functions without their classes.
fn pystack_frames(peers: &Path, pid: i32) -> Result<BTreeMap<i64, Vec<PythonFrame>>, String> {
    let output = Command::new(peers.join("pystack")).args(["remote", &pid.to_string()]).output().expect("pystack runs");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned());
    }
    let mut threads: BTreeMap<i64, Vec<PythonFrame>> = BTreeMap::new();
    let mut thread = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(rest) = line.strip_prefix("Traceback for thread ") {
            thread = rest.split(' ').next().and_then(|tid| tid.parse().ok()).expect("a thread id");
            threads.insert(thread, Vec::new());
        } else if let Some(rest) = line.trim().strip_prefix("(Python) File \"") {
            let (file, rest) = rest.split_once("\", line ").expect("a line");
            let (number, function) = rest.split_once(", in ").expect("a function");
            let file = file.rsplit('/').next().unwrap_or_default().to_owned();
            let frame = (function.to_owned(), file, number.parse().expect("a number"));
            threads.entry(thread).or_default().insert(0, frame);
        }
    }
    Ok(threads)
}

#[test]
fn python_frames_equal_those_of_py_spy_and_pystack() {
    let peers = PathBuf::from(std::env::var("LOCKSCOPE_PEERS").expect("LOCKSCOPE_PEERS: scripts/test sets it"));
    let mut compared = BTreeMap::from([("py-spy", 0), ("pystack", 0)]);
    for (version, python) in python_locks::pythons() {
        for case in
            ["lock_order", "condition_lock", "joined_import", "own_pool", "behind_contextlib", "lock_across_await"]
        {
            let (_folder, target, _) = python_locks::start(&python, case);
            let own = own_python_frames(&attach(&target.pids, &[]));
            // Newer than these tools, or in a root file system of its own where they do not look.
            let is_known = python.root().is_none() && !version.ends_with('t');
            for (name, theirs) in
                [("py-spy", py_spy_frames(&peers, target.pid())), ("pystack", pystack_frames(&peers, target.pid()))]
            {
                let theirs = match theirs {
                    Ok(theirs) => theirs,
                    Err(why) if is_known => panic!("{name} on {case}, Python {version}: {why}"),
                    Err(why) => {
                        crate::harness::skipped!("not compared with {name}: {case} on Python {version}: {why}");
                        continue;
                    }
                };
                for (tid, frames) in theirs.iter().filter(|(_, frames)| !frames.is_empty()) {
                    let mut ours = own.get(tid).cloned().unwrap_or_default();
                    if name == "pystack" {
                        ours.iter_mut()
                            .for_each(|frame| frame.0 = frame.0.rsplit('.').next().unwrap_or_default().to_owned());
                    }
                    assert_eq!(ours, *frames, "{case} on Python {version}, thread {tid}, beside {name}");
                    *compared.get_mut(name).expect("known") += 1;
                }
            }
        }
    }
    println!("threads compared: {compared:?}");
    assert!(compared.values().all(|count| *count >= 10), "{compared:?}");
}

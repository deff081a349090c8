//! Python: the deadlock of 2019 on every interpreter at hand.
//!
//! Interpreters are those on the PATH and those in the folders of LOCKSCOPE_PYTHONS (separated by colons). At least
//! one must be there: the test command installs it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Target, attach, compile, testdata};

/// Version -> interpreter, 3.7 and newer.
pub(crate) fn pythons() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let path = std::env::var("PATH").unwrap_or_default();
    let more = std::env::var("LOCKSCOPE_PYTHONS").unwrap_or_default();
    for folder in more.split(':').chain(path.split(':')).filter(|f| !f.is_empty()) {
        for name in ["python3"].map(String::from).into_iter().chain((7..=15).map(|n| format!("python3.{n}"))) {
            let program = PathBuf::from(folder).join(name);
            if !program.exists() {
                continue;
            }
            // A shim of a version manager is a shell script that starts another program: ask for the real one.
            let ask = "import sys; print('%d.%d.%d' % sys.version_info[:3]); print(sys.executable)";
            let Ok(answer) = Command::new(&program).args(["-c", ask]).output() else { continue };
            let text = String::from_utf8_lossy(&answer.stdout).into_owned();
            let mut lines = text.lines();
            if let (Some(version), Some(real)) = (lines.next(), lines.next()) {
                let minor: u32 = version.split('.').nth(1).and_then(|m| m.parse().ok()).unwrap_or(0);
                if version.starts_with("3.") && minor >= 7 {
                    found.entry(version.to_string()).or_insert_with(|| PathBuf::from(real));
                }
            }
        }
    }
    assert!(!found.is_empty(), "no Python 3.7 or newer on the PATH");
    found
}

#[test]
fn the_deadlock_of_2019_is_named_on_every_python() {
    let library = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    for (version, python) in pythons() {
        for call in ["cuLaunchKernel", "cuMemAlloc_v2", "cuStreamAddCallback", "cuEventRecord"] {
            let mut command = Command::new(&python);
            command.arg(testdata("fakecuda/occupancy.py")).arg(&library).arg(call);
            let target = Target::start(&mut command).settle(3);
            let look = attach(&target.pids, &[]);
            let place = format!("Python {version}, {call}:\n{}", look.text);
            assert_eq!(look.verdict(), "deadlock", "{place}");
            assert!(look.findings().contains(&"gil-vs-driver-callback"), "{place}");
            assert_eq!(look.cycles(), [["launcher", "occupancy"]], "{place}");
            for word in [
                "GIL",
                "ctx_lock",
                "__cur_writer",
                "cuOccupancyMaxPotentialBlockSize",
                call,
                "query_occupancy",
                "occupancy.py:30",
                "native callback",
            ] {
                assert!(look.text.contains(word), "{word} is not in the report of {place}");
            }
            let exact = |list: &str| {
                look.json[list].as_array().is_some_and(|l| {
                    !l.is_empty() && l.iter().all(|x| !x["evidence"].as_array().is_none_or(Vec::is_empty))
                })
            };
            assert!(exact("waits") && exact("holds"), "{place}");
            let shown = look.json["processes"][0]["python"]["version"].as_str().unwrap_or("");
            assert!(version.starts_with(shown.rsplit_once('.').map_or(shown, |v| v.0)), "{shown} is not {version}");
        }
    }
}

const DEEP: &str = "
import os, signal, sys, threading, time
signal.alarm(120)
sys.setrecursionlimit(20000)
threading.stack_size(512 << 20)
ready = threading.Event()
def dig(n):
    if n: return dig(n - 1)
    ready.set(); time.sleep(100)
threading.Thread(target=dig, args=(5000,), name='deep', daemon=True).start()
ready.wait()
print('READY pids=%d' % os.getpid(), flush=True)
time.sleep(100)
";

#[test]
fn a_thread_of_5000_frames_is_shown_whole() {
    for (version, python) in pythons() {
        let target = Target::start(Command::new(&python).args(["-c", DEEP]));
        let look = attach(&target.pids, &[]);
        let threads = look.json["processes"][0]["threads"].as_array().expect("a list");
        let deepest = threads
            .iter()
            .map(|t| t["frames"].as_array().expect("a list").iter().filter(|f| f["function"] == "dig").count())
            .max();
        assert_eq!(deepest, Some(5001), "Python {version}");
        assert_eq!(look.code, 0, "Python {version}");
    }
}

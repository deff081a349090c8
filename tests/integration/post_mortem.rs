//! The same verdict from a core of the kernel, a core of gdb's, and a snapshot, as from the living process.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Look, Target, attach, compile, core, lockscope, own_program, report, status_field, testdata};
use crate::native::{HANGS, start};
use crate::python::pythons;

/// What must not differ between sources; threads by their ids, since a core has no names of them.
#[derive(Debug, PartialEq)]
pub(crate) struct Essence {
    verdict: String,
    cycles: Vec<Vec<(i64, i64)>>,
    findings: Vec<String>,
}

pub(crate) fn essence(look: &Look) -> Essence {
    Essence {
        verdict: look.verdict().to_owned(),
        cycles: look.json["cycles"].as_array().expect("a list").iter().map(edges).collect(),
        findings: look.findings().iter().map(|code| (*code).to_owned()).collect(),
    }
}

/// Waiter and holder of each edge, sorted.
fn edges(cycle: &Value) -> Vec<(i64, i64)> {
    let edge = |edge: &Value| (edge["waiter"].as_i64().unwrap_or(-1), edge["holder"].as_i64().unwrap_or(-1));
    let mut list: Vec<_> = cycle["edges"].as_array().expect("a list").iter().map(edge).collect();
    list.sort_unstable();
    list
}

/// The living processes, and a snapshot of them, which must say the same.
pub(crate) fn looks(target: &Target) -> [Look; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hang.snapshot");
    let live = attach(&target.pids, &[]);
    snapshot(&target.pids, &file, &[]);
    [live, core(&[file], &[])]
}

/// A snapshot of living processes.
pub(crate) fn snapshot(pids: &[i32], file: &Path, more: &[&str]) {
    let output = lockscope()
        .arg("snapshot")
        .args(pids.iter().map(i32::to_string))
        .args(more)
        .arg("-o")
        .arg(file)
        .output()
        .expect("lockscope runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mode = std::fs::metadata(file).expect("written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only for its owner");
}

/// Cores as gdb writes them.
pub(crate) fn gdb_cores(pids: &[i32], folder: &Path) -> Vec<PathBuf> {
    let core = |pid: &i32| {
        let file = folder.join(format!("gcore.{pid}"));
        let done = Command::new("gdb")
            .args(["-q", "-nx", "-batch", "-p", &pid.to_string(), "-ex"])
            .arg(format!("gcore {}", file.display()))
            .output()
            .expect("gdb runs");
        assert!(file.exists(), "{}", String::from_utf8_lossy(&done.stderr));
        file
    };
    pids.iter().map(core).collect()
}

/// End the processes so that the kernel writes their cores; `None`, with the reason, where it does not.
pub(crate) fn kernel_cores(target: Target, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.contains('/') {
        return Err(format!("core_pattern is {}", pattern.trim()));
    }
    let pids = target.pids.clone();
    let parent = |pid: i32| status_field(pid, pid, "PPid").and_then(|id| id.trim().parse::<i32>().ok());
    let depth = |pid: i32| std::iter::successors(Some(pid), |pid| parent(*pid).filter(|of| pids.contains(of))).count();
    let mut order: Vec<i32> = pids.clone();
    // Children first: the core of one whose parent has ended names another one as its parent.
    order.sort_by_cached_key(|pid| std::cmp::Reverse(depth(*pid)));
    let mut cores = BTreeMap::new();
    // All stand still before the first one ends: who lives on sees what became of it, and a pool of workers starts another.
    pids.iter().for_each(|pid| target.stop(*pid));
    for pid in &order {
        let written = |folder: &Path| {
            let mut files = std::fs::read_dir(folder).expect("readable").flatten().map(|entry| entry.path());
            files.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core")))
        };
        target.abort(*pid);
        // The kernel has written all of it before the process is a zombie.
        let Some(file) = written(folder) else { return Err("the kernel wrote no core; see ulimit -Hc".into()) };
        let kept = folder.join(format!("kernel.{pid}"));
        std::fs::rename(file, &kept).expect("renamed");
        cores.insert(*pid, kept);
    }
    Ok(pids.iter().filter_map(|pid| cores.remove(pid)).collect())
}

#[test]
fn every_hang_has_the_same_verdict_from_every_source() {
    let mut skipped = Vec::new();
    for truth in HANGS {
        let case = truth.case;
        let folder = tempfile::tempdir().expect("a folder");
        let target = start_in(case, truth.asleep, folder.path());
        let live = essence(&attach(&target.pids, &[]));
        assert_eq!(live.verdict, truth.verdict, "{case}");

        let file = folder.path().join("hang.snapshot");
        snapshot(&target.pids, &file, &[]);
        assert_eq!(essence(&core(&[file], &[])), live, "{case} as a snapshot");
        let packed = folder.path().join("hang.snapshot.zst");
        snapshot(&target.pids, &packed, &[]);
        assert_eq!(essence(&core(&[packed], &[])), live, "{case} as a compressed snapshot");

        let cores = gdb_cores(&target.pids, folder.path());
        assert_eq!(essence(&core(&cores, &[])), live, "{case} as a core of gdb's");
        match kernel_cores(target, folder.path()) {
            Ok(cores) => assert_eq!(essence(&core(&cores, &[])), live, "{case} as a core of the kernel's"),
            Err(why) => skipped.push(format!("{case} as a core of the kernel's: {why}")),
        }
    }
    skipped.iter().for_each(|what| crate::harness::skipped!("{what}"));
    println!("{} of {} kernel cores skipped", skipped.len(), HANGS.len());
}

/// What a core has of threads that were let go by a debugger, or continued after a stop, and whose process ended before they came to
/// make their call again, or even out of the kernel: here gdb sets them back as the kernel does.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_core_of_threads_about_to_make_their_call_again() {
    for truth in HANGS {
        let folder = tempfile::tempdir().expect("a folder");
        let target = start_in(truth.case, truth.asleep, folder.path());
        let live = essence(&attach(&target.pids, &[]));
        let set_back = "python
for place, thread in enumerate([thread for inferior in gdb.inferiors() for thread in inferior.threads()]):
    thread.switch()
    number = int(gdb.parse_and_eval('$orig_rax'))
    if place % 2:
        gdb.execute('set $orig_rax = -1')
    gdb.execute(f'set $rax = {number}')
    gdb.execute(f'set $rip = {int(gdb.parse_and_eval(\"$rcx\")) - 2:#x}')
end
";
        let cores: Vec<PathBuf> = target
            .pids
            .iter()
            .map(|pid| {
                let (script, file) = (folder.path().join("set-back.gdb"), folder.path().join(format!("gcore.{pid}")));
                std::fs::write(&script, format!("{set_back}gcore {}\n", file.display())).expect("written");
                let mut command = Command::new("gdb");
                command.args(["-q", "-nx", "-batch", "-p", &pid.to_string(), "-x"]).arg(script);
                let done = command.output().expect("gdb runs");
                assert!(file.exists(), "{}", String::from_utf8_lossy(&done.stderr));
                file
            })
            .collect();
        assert_eq!(essence(&core(&cores, &[])), live, "{}", truth.case);
    }
}

#[test]
fn the_deadlock_of_2019_is_named_after_the_end_on_every_python() {
    let library = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    for (version, python) in pythons() {
        let (folder, mut command) = python.in_a_folder();
        command.arg(python.sees(&testdata("fakecuda/occupancy.py"))).arg(python.sees(&library)).arg("cuLaunchKernel");
        let target = Target::start(&mut command).settle(3);
        let live = attach(&target.pids, &[]);
        assert_eq!((live.verdict(), live.cycles()), ("deadlock", vec![vec!["launcher".into(), "occupancy".into()]]));
        let file = folder.path().join("hang.snapshot");
        snapshot(&target.pids, &file, &[]);
        let size = std::fs::metadata(&file).expect("written").len();
        assert!(size < 2 << 20, "Python {version}: a snapshot of {size} bytes");
        let replayed = core(&[file], &[]);
        assert_eq!(essence(&replayed), essence(&live), "Python {version} as a snapshot");
        assert_eq!(replayed.cycles(), live.cycles(), "Python {version} as a snapshot");
        let sysroot: Vec<String> =
            python.root().map(|root| format!("--sysroot={}", root.display())).into_iter().collect();
        let more: Vec<&str> = sysroot.iter().map(String::as_str).collect();
        let of_gdb = core(&gdb_cores(&target.pids, folder.path()), &more);
        let place = format!("Python {version} as a core of gdb's");
        // gdb 13 and glibc 2.42: without stacks a thread that is between two waits for the GIL is not seen to wait.
        if of_gdb.text.contains("stacks of threads") {
            println!("{place}: gdb wrote no stacks; verdict {}", of_gdb.verdict());
            assert!(["deadlock", "blocked"].contains(&of_gdb.verdict()), "{place}: {}", of_gdb.text);
        } else {
            assert_eq!(essence(&of_gdb), essence(&live), "{place}");
            assert_eq!(of_gdb.cycles(), live.cycles(), "{place}");
        }
        match kernel_cores(target, folder.path()) {
            Ok(cores) => {
                let look = core(&cores, &more);
                assert_eq!(essence(&look), essence(&live), "Python {version} as a core of the kernel's");
                assert_eq!(look.cycles(), live.cycles(), "Python {version} as a core of the kernel's");
            }
            Err(why) => crate::harness::skipped!("Python {version} as a core of the kernel's: {why}"),
        }
    }
}

pub(crate) fn start_in(case: &str, asleep: usize, folder: &Path) -> Target {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c $(ulimit -Hc); exec \"$@\"", "sh"]).arg(program).arg(case).current_dir(folder);
    Target::start(&mut command).settle(asleep)
}

/// A report without what says where it came from and how long it took.
fn content(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("readable");
    let mut value: Value = serde_json::from_str(&text).expect("valid JSON");
    let report = value.as_object_mut().expect("an object");
    report.remove("capture");
    report.remove("source");
    serde_json::to_string_pretty(&value).expect("valid")
}

/// Run lockscope where no file of this machine is, but what it needs to run itself; `None` where that is not allowed.
fn elsewhere(folder: &Path, snapshot: &Path) -> Option<PathBuf> {
    let root = folder.join("empty-root");
    let own = root.join("own");
    std::fs::create_dir_all(&own).expect("created");
    let program = own_program();
    std::fs::copy(program, own.join("lockscope")).expect("copied");
    let libraries = Command::new("ldd").arg(program).output().expect("ldd runs");
    for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
        let name = Path::new(word).file_name().expect("a name");
        std::fs::copy(word, own.join(name)).expect("copied");
    }
    std::fs::copy(snapshot, root.join("hang.snapshot")).expect("copied");
    let mut inside = Command::new("unshare");
    inside.args(["-r", "chroot"]).arg(&root);
    if own.join("ld-linux-x86-64.so.2").exists() {
        inside.args(["/own/ld-linux-x86-64.so.2", "--library-path", "/own"]);
    }
    let done = inside
        .args(["/own/lockscope", "core", "/hang.snapshot", "-o", "/replayed.json"])
        .output()
        .expect("unshare runs");
    let errors = String::from_utf8_lossy(&done.stderr);
    if errors.contains("unshare: unshare failed") || errors.contains("Operation not permitted") {
        crate::harness::skipped!("replay in an empty root: {}", errors.trim());
        return None;
    }
    assert!(done.status.code().is_some_and(|code| code < 2), "{errors}");
    Some(root.join("replayed.json"))
}

#[test]
fn a_snapshot_replays_the_same_report_without_any_file_of_the_target() {
    for case in ["abba", "rwlocks", "self-inheriting", "fork-held", "pshared", "join-ring"] {
        let truth = HANGS.iter().find(|truth| truth.case == case).expect("known");
        let target = start(case, truth.asleep);
        let folder = tempfile::tempdir().expect("a folder");
        let (json, file) = (folder.path().join("live.json"), folder.path().join("hang.snapshot"));
        report("attach", target.pids.iter().map(i32::to_string), &[&json, &file]);
        drop(target);
        if let Some(replayed) = elsewhere(folder.path(), &file) {
            assert_eq!(content(&json), content(&replayed), "{case}");
        }
    }
}

#[test]
fn gdb_opens_a_snapshot_and_sees_the_same_stacks() {
    for case in ["abba", "join-ring", "rwlocks"] {
        let truth = HANGS.iter().find(|truth| truth.case == case).expect("known");
        let target = start(case, truth.asleep);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hang.snapshot");
        snapshot(&target.pids, &file, &[]);
        let program = std::fs::read_link(format!("/proc/{}/exe", target.pid())).expect("readable");
        let look = core(std::slice::from_ref(&file), &[]);
        let of_gdb = crate::peers::gdb_frames_of(&[&program.display().to_string(), &file.display().to_string()]);
        assert_eq!(of_gdb.len(), look.json["processes"][0]["threads"].as_array().expect("a list").len(), "{case}");
        for thread in look.json["processes"][0]["threads"].as_array().expect("a list") {
            let tid = thread["tid"].as_i64().expect("a number");
            let frames = thread["frames"].as_array().expect("a list");
            let native = frames.iter().filter(|frame| frame["kind"] == "native");
            let own: Vec<u64> = native
                .map(|frame| {
                    let text = frame["pc"].as_str().expect("a pc");
                    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal")
                })
                .collect();
            assert!(own.len() > 2, "{case}: thread {tid} has {} frames", own.len());
            assert_eq!(own, of_gdb[&tid], "{case}: thread {tid}");
        }
    }
}

#[test]
fn redaction_leaves_arguments_environment_and_locals_out() {
    const SECRET: &str = "a-secret-that-nobody-may-see";
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).args(["abba", SECRET]).env("TOKEN", SECRET)).settle(3);
    let folder = tempfile::tempdir().expect("a folder");
    let holds = |file: &Path| {
        let bytes = std::fs::read(file).expect("readable");
        bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
    };
    let (plain, redacted) = (folder.path().join("plain.snapshot"), folder.path().join("redacted.snapshot"));
    snapshot(&target.pids, &plain, &[]);
    snapshot(&target.pids, &redacted, &["--redact"]);
    assert!(holds(&plain), "the test looks for the right thing");
    assert!(!holds(&redacted));
    let look = core(&[redacted], &[]);
    assert_eq!(look.verdict(), "deadlock");
    assert_eq!(look.json["processes"][0]["cmdline"], serde_json::json!([]));
    let gaps = look.json["gaps"].as_array().expect("a list");
    assert!(gaps.iter().any(|gap| gap["why"].as_str().is_some_and(|why| why.contains("--redact"))), "{gaps:?}");
}

#[test]
fn a_core_without_lock_words_says_which_range_is_missing() {
    // Shared anonymous memory is left out with this filter; private memory stays.
    let folder = tempfile::tempdir().expect("a folder");
    let target = start_in("pshared", 2, folder.path());
    for pid in &target.pids {
        std::fs::write(format!("/proc/{pid}/coredump_filter"), "0x11").expect("its own process");
    }
    match kernel_cores(target, folder.path()) {
        Err(why) => crate::harness::skipped!("{why}"),
        Ok(cores) => {
            let look = core(&cores, &[]);
            assert_eq!(look.verdict(), "blocked", "{}", look.text);
            let gaps = look.json["gaps"].as_array().expect("a list");
            let named = gaps.iter().any(|gap| {
                let text = |field: &str| gap[field].as_str().unwrap_or_default().to_owned();
                text("what").contains("futex word") && text("why").contains("coredump_filter")
            });
            assert!(named, "{gaps:#?}");
        }
    }
}

#[test]
fn the_size_of_a_core_costs_nothing() {
    // Fifty gigabytes of nothing behind a core of the kernel's, and less address space than that to read it in.
    let folder = tempfile::tempdir().expect("a folder");
    let target = start_in("abba", 3, folder.path());
    let live = essence(&attach(&target.pids, &[]));
    let cores = match kernel_cores(target, folder.path()) {
        Ok(cores) => cores,
        Err(why) => return crate::harness::skipped!("{why}"),
    };
    let mut bytes = std::fs::read(&cores[0]).expect("readable");
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    let (headers, count) = (word(&bytes, 32) as usize, usize::from(u16::from_le_bytes([bytes[56], bytes[57]])));
    let mut table = bytes[headers..headers + count * 56].to_vec();
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let new_headers = bytes.len() as u64;
    let data = (new_headers + table.len() as u64 + 56).next_multiple_of(4096);
    let size = 50u64 << 30;
    // PT_LOAD, readable and writable: offset, address, physical address, sizes, alignment.
    table.extend([1u32, 6].iter().flat_map(|value| value.to_le_bytes()));
    table.extend([data, 0x1000_0000_0000, 0, size, size, 4096].iter().flat_map(|value| value.to_le_bytes()));
    bytes.extend(table);
    bytes[32..40].copy_from_slice(&new_headers.to_le_bytes());
    bytes[56..58].copy_from_slice(&(count as u16 + 1).to_le_bytes());
    let huge = folder.path().join("huge.core");
    std::fs::write(&huge, bytes).expect("written");
    std::fs::OpenOptions::new().write(true).open(&huge).expect("opened").set_len(data + size).expect("sparse");
    let json = folder.path().join("r.json");
    let done = Command::new("sh")
        .args(["-c", "ulimit -v 1048576; exec \"$@\"", "sh", own_program(), "core"])
        .args([&huge, Path::new("-o"), &json])
        .output()
        .expect("runs");
    let text = std::fs::read_to_string(&json).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&done.stderr)));
    let look = Look {
        code: done.status.code().expect("a status"),
        json: serde_json::from_str(&text).expect("valid"),
        text: String::new(),
    };
    assert_eq!(essence(&look), live);
}

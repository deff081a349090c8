//! Targets whose memory does not come when it is read: the stop is bounded all the same, and so is the look.
//!
//! The targets measure by themselves how long one of their threads did not run. No test asserts a short time, since the machine may
//! be loaded: without the defence each of these targets stands still for ever.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    Target, children, compile, lockscope, patience, signal_process, status_field, threads, wait_until,
};

/// Start it; `None` where the kernel or the user's rights do not allow the attack.
fn start(command: &mut Command) -> Option<Target> {
    let target = Target::start(command);
    match target.said.iter().find(|line| line.starts_with("IMPOSSIBLE")) {
        Some(line) => {
            crate::harness::skipped!("{}", line.trim());
            None
        }
        None => Some(target),
    }
}

fn begin_look(pid: i32, json: &Path) -> Child {
    lockscope()
        .args(["attach", "--stop", &pid.to_string(), "-o"])
        .arg(json)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("lockscope runs")
}

/// Wait for the end of a look, which has one.
fn finish_look(look: &mut Child, what: &str) -> i32 {
    let began = Instant::now();
    loop {
        if let Some(status) = look.try_wait().expect("its state") {
            return status.code().unwrap_or(-1);
        }
        if began.elapsed() > patience() {
            let _ = look.kill();
            panic!("the look at {what} does not end");
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn until_free(pid: i32) {
    wait_until("every thread runs on untraced", || {
        threads(pid).iter().all(|tid| {
            status_field(pid, *tid, "TracerPid").is_none_or(|tracer| tracer == "0")
                && status_field(pid, *tid, "State").is_none_or(|state| !state.starts_with(['t', 'T']))
        })
    });
}

/// Looks that come to their end, looks that are killed at some moment, and looks whose copier is killed: all leave the target free.
/// The longest stop that it felt, in microseconds.
fn attack(target: Target, what: &str) -> u64 {
    let pid = target.pid();
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let began = Instant::now();
    for _ in 0..3 {
        let code = finish_look(&mut begin_look(pid, &report), what);
        assert!(matches!(code, 0 | 1), "{what}: exit status {code}");
        until_free(pid);
    }
    let usual = began.elapsed() / 3;
    for round in 1..=20u32 {
        let mut look = begin_look(pid, &report);
        let moment = usual * round / 20;
        if round % 2 == 0 {
            std::thread::park_timeout(moment);
            let _ = look.kill();
            let _ = look.wait();
        } else {
            let begin = Instant::now();
            // As soon as it is there, and at some moments later.
            while begin.elapsed() < moment || children(look.id() as i32).is_empty() {
                if look.try_wait().expect("its state").is_some() {
                    break;
                }
                std::thread::park_timeout(Duration::from_micros(200));
            }
            children(look.id() as i32).iter().for_each(|copier| signal_process(*copier, "KILL"));
            let code = finish_look(&mut look, what);
            assert!(matches!(code, 0..=2), "{what}: exit status {code}");
        }
        until_free(pid);
    }
    let said = target.finish("TERM");
    let longest = said.lines().find_map(|line| line.strip_prefix("longest_us=")).and_then(|us| us.parse().ok());
    let longest: u64 = longest.expect("the target tells its longest stop");
    println!("{what}: the longest stop of 23 looks was {longest} us");
    assert!(Duration::from_micros(longest) < patience() / 2, "{what}: stood still for {longest} us");
    longest
}

#[test]
fn a_process_that_serves_its_own_memory() {
    for mode in ["answers", "silent"] {
        let program = compile("hostile/userfault.c", "userfault", &[]);
        let Some(target) = start(Command::new(program).arg(mode)) else { return };
        attack(target, &format!("userfaultfd, {mode}"));
    }
}

#[test]
fn a_process_that_serves_its_own_memory_without_privilege() {
    let program = compile("hostile/userfault.c", "userfault", &[]);
    if !crate::harness::is_root() {
        return crate::harness::skipped!("the test beside this one runs without privilege");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    let Some(target) = start(&mut command) else { return };
    attack(target, "userfaultfd of an unprivileged process, seen by root");
}

#[test]
fn a_mapped_file_of_a_file_system_that_does_not_answer() {
    let server = compile("hostile/silent_fs.c", "silent_fs", &[]);
    let mapper = compile("hostile/mapped.c", "mapped", &[]);
    let mount = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(server);
    command.arg(mount.path()).arg(mapper).arg(mount.path().join("file"));
    let Some(target) = start(&mut command) else { return };
    attack(target, "a file of a FUSE file system");
}

#[test]
fn code_of_a_file_system_that_does_not_answer() {
    let server = compile("hostile/silent_fs.c", "silent_fs", &[]);
    let program = compile("hostile/maps_code.c", "maps_code", &[]);
    let mount = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(server);
    command.arg(mount.path()).arg(program).arg(mount.path().join("file"));
    let Some(target) = start(&mut command) else { return };
    let json = mount.path().join("report.json");
    let code = finish_look(&mut begin_look(target.pid(), &json), "code of a FUSE file system");
    let report = std::fs::read_to_string(&json).expect("written");
    assert!(code == 0 && report.contains("did not give it in time"), "{code} {report}");
}

/// Its server answers who asks whether it does, and dies then.
#[test]
fn code_of_a_file_system_that_falls_silent_after_its_answer() {
    let server = compile("hostile/silent_fs.c", "silent_fs", &[]);
    let program = compile("hostile/maps_code.c", "maps_code", &[]);
    // A library of some size, of which the answers cover a part.
    let library = Command::new("cc").arg("-print-file-name=libc.so.6").output().expect("cc runs").stdout;
    let library = String::from_utf8_lossy(&library).trim().to_owned();
    for answers in [18, 22, 1 << 20] {
        let mount = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(&server);
        command.env("SERVES", &library).env("ANSWERS", answers.to_string());
        command.arg(mount.path()).arg(&program).arg(mount.path().join("file"));
        let Some(target) = start(&mut command) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let json = folder.path().join("report.json");
        let code = finish_look(&mut begin_look(target.pid(), &json), "code of a FUSE file system");
        let report = std::fs::read_to_string(&json).expect("written");
        // Its twin answers always.
        let silent = report.contains("did not give it in time");
        assert!(code == 0 && silent == (answers < 1000), "{answers}: {code} {report}");
    }
}

/// The same for one that is too large to be copied before it is read: the look ends with a sentence, and a later one leaves the
/// file out.
#[test]
fn a_large_file_of_a_file_system_that_falls_silent_after_its_answer() {
    let server = compile("hostile/silent_fs.c", "silent_fs", &[]);
    let program = compile("hostile/maps_code.c", "maps_code", &[]);
    let library = Command::new("cc").arg("-print-file-name=libc.so.6").output().expect("cc runs").stdout;
    let folder = tempfile::tempdir().expect("a folder");
    let large = folder.path().join("large");
    std::fs::copy(String::from_utf8_lossy(&library).trim(), &large).expect("copied");
    let file = std::fs::File::options().append(true).open(&large).expect("there");
    file.set_len(80 << 20).expect("made larger");
    // How many answers come before the first page that is missed depends on the kernel's reading ahead. One that goes on with a
    // request that is given up keeps whoever waits for it beyond SIGKILL: no look could end.
    let mut stalled = 0;
    for answers in [31, 32, 33, 34, 35, 1 << 20] {
        if stalled > 0 && answers < 1000 {
            continue;
        }
        let mount = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(&server);
        command.env("SERVES", &large).env("ANSWERS", answers.to_string()).env("INTERRUPTIBLE", "1");
        command.arg(mount.path()).arg(&program).arg(mount.path().join("file"));
        let Some(target) = start(&mut command) else { return };
        let output = lockscope().args(["attach", &target.pid().to_string()]).output().expect("lockscope runs");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        until_free(target.pid());
        if output.status.code() == Some(2) {
            stalled += 1;
            assert!(said.contains("did not come for 10 s") && said.contains("hint: nothing stood still"), "{said}");
            let json = folder.path().join("report.json");
            let code = finish_look(&mut begin_look(target.pid(), &json), "a silent file");
            let report = std::fs::read_to_string(&json).expect("written");
            assert!(code == 0 && report.contains("did not give it in time"), "{answers}: {code} {report}");
        } else {
            let silent = text.split_whitespace().collect::<Vec<_>>().join(" ").contains("did not give it in time");
            assert!(output.status.code() == Some(0) && (!silent || answers < 1000), "{answers}: {text} {said}");
        }
    }
    assert!(stalled > 0, "no look met the silence while it read");
}

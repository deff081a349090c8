//! Sleeping threads are read where they sleep, the others are stopped, and nobody is lost: beside threads that move, on a
//! busy machine, without privilege.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection};

use crate::harness::{Look, Target, attach, compile, own_program, skipped, threads};

/// What of an eBPF object is loaded: its name and bytes. The rest is for debuggers, and names the compiler's build.
fn loaded(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).expect("readable");
    let file = object::File::parse(&*bytes).expect("an object");
    let names = ["iter/task", ".reliter/task", "license", ".maps", ".BTF", ".rel.BTF", ".BTF.ext"];
    let section = |name: &str| file.section_by_name(name).and_then(|section| section.data().ok().map(<[u8]>::to_vec));
    names.iter().map(|name| (name.to_string(), section(name).unwrap_or_default())).collect()
}

#[test]
fn the_ebpf_objects_are_those_that_their_source_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let output =
        Command::new(root.join("scripts/check/bpf-object")).arg(fresh).output().expect("scripts/check/bpf-object runs");
    if output.status.code() == Some(3) {
        return println!("skip: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for machine in ["x86_64", "aarch64"] {
        let object = format!("task_registers.{machine}.bpf.o");
        let wanted = loaded(&root.join("src/image/live/asleep").join(&object));
        assert!(wanted.iter().filter(|(_, bytes)| bytes.is_empty()).count() == 0, "{object}: a section is missing");
        for ((name, checked_in), (_, built)) in wanted.iter().zip(loaded(&fresh.join(&object))) {
            assert!(
                *checked_in == built,
                "{object}: section {name} differs: run scripts/check/bpf-object and check in what it writes"
            );
        }
    }
}

/// Processes that do nothing but run, for some seconds; ended with the test.
struct Load(Vec<std::process::Child>);

impl Load {
    fn of(count: usize) -> Load {
        let busy =
            || Command::new("timeout").args(["20", "sh", "-c", "while :; do :; done"]).spawn().expect("it starts");
        Load((0..count).map(|_| busy()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for busy in &mut self.0 {
            // timeout hands it on to the loop.
            crate::harness::signal_process(busy.id() as i32, "TERM");
            let _ = busy.wait();
        }
    }
}

/// What is true of a look that lost nobody.
fn is_complete(look: &Look, threads: usize) {
    let read = &look.json["capture"]["registers"];
    let ways = ["by_stop", "asleep_by_ebpf", "asleep_by_proc"].map(|way| read[way].as_u64().expect("a number"));
    assert_eq!(ways.iter().sum::<u64>(), threads as u64, "{}", look.text);
    assert!(!look.json["gaps"].to_string().contains("registers of "), "{}", look.text);
}

#[test]
fn no_thread_is_lost_on_a_busy_machine() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let beside = compile("native/beside.c", "beside", &[]);
    let alone = Target::start(Command::new(&program).arg("join-ring")).settle(3);
    let idle = Target::start(Command::new(&program).arg("idle-workers")).settle(3);
    let twin = Target::start(Command::new(&beside).args(["2", "20"])).settle(2);
    let _load = Load::of(12);
    for words in [&[][..], &["--stop"]] {
        for (target, verdict) in [(&alone, "deadlock"), (&twin, "deadlock"), (&idle, "blocked")] {
            let look = attach(&target.pids, words);
            assert_eq!(look.verdict(), verdict, "{words:?}: {}", look.text);
            is_complete(&look, threads(target.pid()).len());
        }
    }
}

/// What other threads do says nothing of two that hang: with one that runs, with many that sleep for a moment again and again.
#[test]
fn a_deadlock_beside_threads_that_move() {
    let program = compile("native/beside.c", "beside", &[]);
    for (busy, polling) in [("0", "0"), ("1", "0"), ("0", "200"), ("2", "100")] {
        let target = Target::start(Command::new(&program).args([busy, polling])).settle(2);
        for words in [&[][..], &["--no-stop"]] {
            let look = attach(&target.pids, words);
            assert_eq!(look.verdict(), "deadlock", "{busy} {polling} {words:?}: {}", look.text);
            assert_eq!(look.cycles(), [["first", "second"]], "{}", look.text);
            if words.is_empty() {
                is_complete(&look, threads(target.pid()).len());
            }
        }
    }
}

/// Without eBPF nothing is lost but the sleep of some: those of which more registers are asked for are stopped.
#[test]
fn a_look_without_privilege() {
    if !nix::unistd::geteuid().is_root() {
        return skipped!("only root can become another user");
    }
    let folder = tempfile::Builder::new().prefix("lockscope-unprivileged").tempdir_in("/tmp").expect("a folder");
    let open = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("permissions");
    open(folder.path());
    let copied = |from: &Path| {
        let to = folder.path().join(from.file_name().expect("a name"));
        std::fs::copy(from, &to).expect("copied");
        open(&to);
        to
    };
    let own = copied(Path::new(own_program()));
    // At -O0 no frame of the C library saves the frame pointer by which the program's own frames are found.
    for optimised in ["-O0", "-O2"] {
        let program = compile("native/beside.c", &format!("beside{optimised}"), &[optimised]);
        let program = copied(&program);
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let target = Target::start(Command::new("setpriv").args(nobody).arg(&program).args(["1", "5"])).settle(2);
        let look = |word: &str| {
            let words = ["attach", &target.pid().to_string(), "--format", "json", word];
            let words = words.into_iter().filter(|word| !word.is_empty());
            let output = Command::new("setpriv").args(nobody).arg(&own).args(words).output().expect("it runs");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            serde_json::from_slice::<serde_json::Value>(&output.stdout).map_err(|_| errors)
        };
        for word in ["", "--no-stop"] {
            let report = match look(word) {
                Err(errors) if errors.contains("ptrace_scope") => return skipped!("Yama forbids it: {errors}"),
                report => report.expect("a report"),
            };
            assert_eq!(report["verdict"], "deadlock", "{optimised} {word}: {report}");
            assert_eq!(report["capture"]["registers"]["asleep_by_ebpf"], 0);
            let of_thread = |thread: &serde_json::Value| {
                let frames = thread["frames"].as_array().expect("a list").iter();
                frames.filter_map(|frame| frame["function"].as_str().map(str::to_owned)).collect::<Vec<_>>()
            };
            let threads = report["processes"][0]["threads"].as_array().expect("a list");
            let stacks: Vec<Vec<String>> = threads.iter().map(of_thread).collect();
            for function in ["first", "second"] {
                let is_in = |stack: &&Vec<String>| stack.iter().any(|frame| frame == function);
                assert_eq!(stacks.iter().filter(is_in).count(), 1, "{optimised} {word} {function}: {stacks:?}");
            }
        }
    }
}

/// Whose stack was unwound whole while it slept was read: that it waits for what nobody can give is known.
#[test]
fn a_wait_without_end_is_told_without_privilege() {
    if !nix::unistd::geteuid().is_root() {
        return skipped!("only root can become another user");
    }
    let folder = tempfile::Builder::new().prefix("lockscope-unprivileged").tempdir_in("/tmp").expect("a folder");
    let own = folder.path().join("lockscope");
    std::fs::copy(own_program(), &own).expect("copied");
    for path in [folder.path(), &own] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("permissions");
    }
    let as_nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).env("PATH", "/usr/bin:/bin");
        command
    };
    let python = Path::new("python3");
    if !as_nobody(python).arg("-V").output().is_ok_and(|output| output.status.success()) {
        return skipped!("no python3 that everybody may run");
    }
    let program = "
import os, queue, signal
signal.alarm(120)
print('READY pids=%d' % os.getpid(), flush=True)
queue.Queue().get()
";
    let target = Target::start(as_nobody(python).args(["-c", program])).settle(1);
    let mut attach = as_nobody(&own);
    let output = attach.args(["attach", &target.pid().to_string(), "--format", "json"]).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("ptrace_scope") {
        return skipped!("Yama forbids it: {errors}");
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["verdict"], "stuck", "{report}");
}

#[test]
fn who_could_not_be_read_is_told_on_the_first_line_where_others_wait_for_it() {
    let program = compile("native/beside.c", "beside", &[]);
    // One runs, and has what the first one wants.
    let target = Target::start(Command::new(&program).args(["holding", "0"])).settle(1);
    let look = attach(&target.pids, &["--no-stop"]);
    let first = look.text.lines().next().unwrap_or_default();
    assert!(first.contains("look was incomplete") && look.says("without --no-stop"), "{}", look.text);
    let look = attach(&target.pids, &[]);
    assert!(!look.says("incomplete"), "{}", look.text);
}

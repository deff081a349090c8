//! What a container gives and takes away: ids, capabilities, users, and a root of its own. Namespaces of the kernel stand in for
//! an engine, so that all of it needs root.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{Target, compile, lockscope, own_program};

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        crate::harness::skipped!("only root may make namespaces and become another user");
    }
    root
}

/// lockscope and a deadlock where every user can run them.
struct Programs(TempDir);

impl Programs {
    fn new() -> Programs {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir_in("/tmp").expect("a folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("allowed");
        let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]);
        for (name, from) in [("lockscope", PathBuf::from(own_program())), ("deadlocks", deadlocks)] {
            std::fs::copy(from, folder.path().join(name)).expect("copied");
        }
        Programs(folder)
    }

    /// The deadlock, by way of other commands that end by running it.
    fn deadlock(&self, through: &[&str]) -> Target {
        let mut words = through.to_vec();
        let program = self.0.path().join("deadlocks").display().to_string();
        words.extend([&*program, "abba"]);
        Target::start(Command::new(words[0]).args(&words[1..]))
    }

    /// The exit status of a look, and all that was said.
    fn attach(&self, through: &[&str], pid: i32) -> (Option<i32>, String) {
        let program = self.0.path().join("lockscope").display().to_string();
        let mut words = through.to_vec();
        let pid = pid.to_string();
        words.extend([&*program, "attach", &pid]);
        let output = Command::new(words[0]).args(&words[1..]).output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }
}

/// Root as an engine makes it.
const WITHOUT_PTRACE: [&str; 3] = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const DEADLOCK: &str = "[lock-order-cycle]";

#[test]
fn exec_in_a_container_needs_no_capability() {
    if !is_root() {
        return;
    }
    let programs = Programs::new();
    let namespaces = ["unshare", "--pid", "--fork", "--mount-proc"];
    let mut target = programs.deadlock(&[&namespaces[..], &WITHOUT_PTRACE].concat());
    let unshare = target.child_id();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).expect("readable");
    let outside: i32 = children.trim().parse().expect("one child");
    target.pids = vec![outside];
    let target = target.settle(3);
    let pid = outside.to_string();
    let inside = [&["nsenter", "--target", &pid, "--pid", "--mount"][..], &WITHOUT_PTRACE].concat();
    let (code, text) = programs.attach(&inside, 1);
    assert!(code == Some(1) && text.contains(DEADLOCK), "{code:?}: {text}");
    // The id that the machine has for it is nobody's there.
    let (code, text) = programs.attach(&inside, outside);
    assert!(code == Some(2) && text.contains("other ids inside a container"), "{code:?}: {text}");
    drop(target);
}

#[test]
fn what_is_missing_is_named() {
    if !is_root() {
        return;
    }
    let programs = Programs::new();
    let of_root = programs.deadlock(&["env"]).settle(3);
    let of_nobody = programs.deadlock(&NOBODY).settle(3);
    let (code, text) = programs.attach(&WITHOUT_PTRACE, of_root.pid());
    assert!(code == Some(2) && text.contains("has capabilities that lockscope lacks"), "{text}");
    assert!(text.contains("--cap-add=SYS_PTRACE") && !text.contains("sudo"), "{text}");
    let (code, text) = programs.attach(&WITHOUT_PTRACE, of_nobody.pid());
    assert!(code == Some(2) && text.contains("docker exec --user 65534") && !text.contains("sudo"), "{text}");
}

#[test]
fn the_capability_alone_is_enough() {
    if !is_root() {
        return;
    }
    let programs = Programs::new();
    let target = programs.deadlock(&["env"]).settle(3);
    let with = [&NOBODY[..], &["--inh-caps=-all,+sys_ptrace", "--ambient-caps=+sys_ptrace"]].concat();
    let (code, text) = programs.attach(&with, target.pid());
    assert!(code == Some(1) && text.contains(DEADLOCK) && text.contains("ledger_lock"), "{code:?}: {text}");
}

#[test]
fn a_snapshot_leaves_a_container_by_standard_output() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(program).arg("abba")).settle(3);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hang.snapshot.zst");
    let to = std::fs::File::create(&file).expect("made");
    let mut snapshot = lockscope();
    snapshot.args(["snapshot", &target.pid().to_string(), "-o", "-"]).current_dir(folder.path()).stdout(to);
    let output = snapshot.output().expect("it runs");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("standard output"));
    assert!(!folder.path().join("-").exists());
    assert_eq!(crate::harness::core(&[file], &[]).verdict(), "deadlock");
}

//! Files whose opening somebody has a say in: the look opens none that would cost the target a signal, and waits for no listener.

use std::process::Command;

use crate::harness::{Target, attach, compile, is_root, signal_process, testdata, wait_until};
use crate::run_hostile::is_gone;

fn is_impossible(target: &Target) -> bool {
    target.said.iter().any(|line| line.contains("IMPOSSIBLE"))
}

#[test]
fn a_source_with_a_lease_is_left_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("lease.c"), folder.path().join("lease"));
    std::fs::copy(testdata("hostile/lease.c"), &source).expect("copied");
    let status = Command::new("cc").args(["-g", "-pthread", "-o"]).args([&program, &source]).status();
    assert!(status.expect("cc runs").success());
    for _ in 0..3 {
        let target = Target::start(Command::new(&program).arg(&source)).settle(1);
        if is_impossible(&target) {
            return crate::harness::skipped!("this file system knows no leases");
        }
        let look = attach(&[target.pid()], &[]);
        assert_eq!(look.verdict(), "deadlock", "{}", look.text);
        assert!(look.says("lease.c:"), "{}", look.text);
        assert!(
            !look.says("pthread_mutex_lock(&ledger);"),
            "its lines stand in a file that was not opened: {}",
            look.text
        );
        assert!(!is_gone(target.pid()), "SIGIO has ended it");
    }
    // Without the lease its lines are shown.
    let target = Target::start(Command::new(&program).arg("/nowhere")).settle(1);
    let look = attach(&[target.pid()], &[]);
    assert!(look.says("pthread_mutex_lock(&ledger);"), "{}", look.text);
}

#[test]
fn a_listener_that_hangs_holds_up_no_look() {
    if !is_root() {
        return crate::harness::skipped!("a listener needs root");
    }
    let program = compile("hostile/listener.c", "listener", &[]).display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().display().to_string();
    let script = format!(
        "mount --make-rprivate / && mount -t tmpfs none {place} && cp {program} {place}/ && exec {place}/listener {place}"
    );
    let target = Target::start(Command::new("unshare").args(["-m", "sh", "-c", &script])).settle(1);
    if is_impossible(&target) {
        return crate::harness::skipped!("this kernel has no listeners that are asked");
    }
    let look = attach(&[target.pid()], &[]);
    assert!(look.says("did not give it in time"), "{}", look.text);
    assert!(!is_gone(target.pid()));
    signal_process(target.pid(), "KILL");
    wait_until("it ends", || is_gone(target.pid()));
}

/// Everybody can start a process with the variables of a rank.
#[test]
fn ranks_that_others_claim_to_be_are_none() {
    if !is_root() {
        return crate::harness::skipped!("processes of two users need root");
    }
    let sleeper = |rank: &str, user: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(user).args(["sh", "-c", "echo READY pids=$$; exec sleep 180"]);
        let port = std::process::id().to_string();
        let job = [("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)];
        Target::start(command.envs(job))
    };
    const OTHER: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let own = [sleeper("0", &["--"]), sleeper("1", &["--"])];
    let theirs = sleeper("1", &OTHER);
    let job = |pid: i32| {
        let output = crate::harness::lockscope().args(["job", "--pid", &pid.to_string(), "--format", "json"]).output();
        let output = output.expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let said = job(own[0].pid());
    // As a whole number: ids wrap around, and a small one is a part of many.
    let names = |pid: i32| said.split(|letter: char| !letter.is_ascii_digit()).any(|word| word == pid.to_string());
    assert!(!names(theirs.pid()) && names(own[1].pid()), "{said}");
    // Two processes of one user: both are named, and neither is judged.
    let twin = sleeper("1", &["--"]);
    let said = job(own[0].pid());
    assert!(said.contains("say that they are it: none is judged"), "{said}");
    assert!([&own[1], &twin].iter().all(|one| said.contains(&format!("process {} ", one.pid()))), "{said}");
    assert!(!said.contains("\"verdict\": \"deadlock\""), "{said}");
}

//! Servers: the first line is about the workers, the lock or the peer that all wait for, and not about the master's loop.

use crate::harness::{Look, Target, attach, lockscope, testdata};
use crate::python::pythons;

fn server(case: &str) -> Option<Target> {
    let python = pythons().into_values().next_back()?;
    let mut command = python.command();
    command.arg(python.sees(&testdata("python/servers.py"))).arg(case);
    Some(Target::start(&mut command))
}

/// Look until it has come to what it is to show.
fn look_until(target: &Target, more: &[&str], is_there: impl Fn(&Look) -> bool) -> Look {
    let mut looks = (0..40).map(|_| attach(&target.pids[..1], more));
    let found = looks.find(|look| is_there(look));
    found.unwrap_or_else(|| panic!("{}", attach(&target.pids[..1], more).text))
}

#[test]
fn workers_that_hang_are_told_of_by_a_look_at_their_master() {
    let Some(target) = server("workers") else { return };
    let target = target.settle(6);
    let look = look_until(&target, &[], |look| look.verdict() == "deadlock");
    assert_eq!((look.code, look.findings()[0]), (1, "lock-order-cycle"), "{}", look.text);
    assert!(look.says("accounts_lock") && !look.says("not looked at"), "{}", look.text);
    // The workers do the same: their locks have one name each, and the advice stands once.
    assert!(!look.json["findings"][0]["title"].as_str().expect("a title").contains("0x"), "{}", look.text);
    assert!(look.says("note: the same in python"), "{}", look.text);
    assert_eq!(look.text.matches("help: hold only one at a time").count(), 1, "{}", look.text);
    // A thread of the same process is called by its name alone.
    assert!(look.says(", held by report (") && look.says(", held by transfer ("), "{}", look.text);
    assert_eq!(attach(&target.pids[..1], &["--no-tree"]).verdict(), "blocked");
}

#[test]
fn children_of_another_session_are_counted() {
    let Some(target) = server("services") else { return };
    let target = target.settle(6);
    let look = attach(&target.pids[..1], &[]);
    assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    assert!(look.says("; 2 child processes were not looked at: --tree"), "{}", look.text);
    look_until(&target, &["--tree"], |look| look.verdict() == "deadlock");
    assert!(!attach(&target.pids[..1], &["--no-tree"]).says("not looked at"));
}

#[test]
fn an_idle_server_is_blocked_and_nothing_more() {
    let Some(target) = server("idle") else { return };
    let look = attach(&target.pids[..1], &[]);
    assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    assert!(!look.says("not looked at") && look.findings().is_empty(), "{}", look.text);
    // Where the report goes to a file, the terminal still has the sentence.
    let folder = tempfile::tempdir().expect("a folder");
    let mut to_file = lockscope();
    to_file.args(["attach", &target.pid().to_string(), "-o"]).arg(folder.path().join("idle.html"));
    let said = String::from_utf8_lossy(&to_file.output().expect("it runs").stderr).into_owned();
    assert!(said.starts_with("blocked: MainThread (") && said.contains("; written to "), "{said}");
}

#[test]
fn all_handlers_behind_one_lock_are_the_headline() {
    let Some(target) = server("handlers") else { return };
    let target = target.settle(3);
    let headline = |look: &Look| look.says("blocked: 3 threads wait for price_lock, held by handler-");
    let look = look_until(&target, &[], headline);
    assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    // The peer has its address, its port and its name.
    assert!(look.says("which waits for data on TCP 127.0.0.1:") && look.says("(python"), "{}", look.text);
    assert!(look.text.contains("with price_lock:"), "{}", look.text);
}

#[test]
fn the_task_that_keeps_a_lock_over_an_await_is_told_of() {
    let Some(target) = server("across") else { return };
    let look = look_until(&target, &[], |look| look.code == 1);
    assert_eq!(look.findings()[0], "self-deadlock", "{}", look.text);
    assert!(look.says("MainThread waits for store_lock, which its suspended task first ("), "{}", look.text);
    let (held, rest) = look.text.split_once("with store_lock:").expect("the line of the holder");
    assert!(held.contains("servers.py:") && rest.contains("holds it, in task first ("), "{}", look.text);
    // The loop took nothing, and a lock that counts would keep no task out.
    assert!(!look.says("_run_once asyncio/base_events.py") || !look.says("took Lock store_lock"), "{}", look.text);
    assert!(
        !look.says("use threading.RLock if") && look.says("use the loop's own lock (asyncio.Lock"),
        "{}",
        look.text
    );
}

#[test]
fn the_lock_that_is_kept_during_a_wait_for_a_database_is_the_headline() {
    let Some(target) = server("database") else { return };
    let is_told = |look: &Look| look.says("blocked: 1 thread waits for cache_lock, held by refresher (");
    let look = look_until(&target, &[], is_told);
    assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    assert!(look.text.contains("with cache_lock:"), "{}", look.text);
    // Not the function of the C library that it rests in between two tries.
    assert!(!look.says("which is in clock_nanosleep"), "{}", look.text);
}

#[test]
fn the_silent_peer_of_all_threads_is_the_headline() {
    let Some(target) = server("silent") else { return };
    let is_told = |look: &Look| look.says("blocked: 3 threads wait for 127.0.0.1:") && look.says("to answer in recv");
    let look = look_until(&target, &[], is_told);
    assert!(look.text.contains("return peer.recv(100)"), "{}", look.text);
}

#[test]
fn a_child_that_has_died_is_told_of_where_its_data_are_waited_for() {
    let Some(target) = server("loader") else { return };
    let look = look_until(&target, &[], |look| look.verdict() == "stuck");
    assert_eq!(look.findings()[0], "pipe-without-writer", "{}", look.text);
    assert!(look.says("exited with status 3 [pipe-without-writer]"), "{}", look.text);
    assert!(look.text.contains("done.get()"), "{}", look.text);
    assert!(look.says("help: look for the reason why the child ended"), "{}", look.text);
    // The thread that feeds the other queue has nothing to do.
    assert!(!look.text.contains("QueueFeederThread waits"), "{}", look.text);
}
